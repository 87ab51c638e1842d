"""Replaces attention that is written by hand in a graph of Dynamo by the operator `saccade::attention`.

The pattern is two products of tensors around a softmax or a sigmoid. The index of every tensor is followed backwards
from the second product through views to the first one, so permutations, einsum orders, windows and joined dimensions
need no cases of their own. Scores become the score function of the operator. What cannot be proved stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import Graph, GraphModule, Node

from saccade.torch import hard_weights, weight_sums
from saccade.torch.attention_dims import Letters, Operand, queries_and_keys, softmax_axis
from saccade.torch.attention_insertion import Insertion
from saccade.torch.element_index import Dim, Unknown, is_one
from saccade.torch.element_trees import Score, is_cast, is_dropout, is_idle_dropout, viewed
from saccade.torch.graph_writes import Writes, follow_writes, is_write
from saccade.torch.products import Product, name_of, product, views_of


def raise_attention(graph: GraphModule, softmax: Node, first: Product, second: Product) -> Node:
    """Replaces the nodes from the first product to the second one. Raises Unknown, and leaves the graph as it is, if
    they are not proved to be attention.

    Returns:
        The node of the operator.
    """
    follow_writes(graph, first.node, second.node)
    first, second = _as_product(first.node), _as_product(second.node)
    if not weight_sums.is_changed(softmax, second):
        return _raise(graph, softmax, first, second)
    copied, twins = GraphModule(graph, Graph()), dict[Node, Node]()
    copied.graph.output(copied.graph.graph_copy(graph.graph, twins))
    found = twins[softmax], _as_product(twins[first.node]), _as_product(twins[second.node])
    _raise_changed(copied, *found)  # reports what the graph would not be left alone for
    return _raise_changed(graph, softmax, first, second)


def _raise_changed(graph: GraphModule, softmax: Node, first: Product, second: Product) -> Node:
    """Replaces attention whose weights are changed linearly."""
    chain = _chain(first.node, second)
    _check_readers(chain, second)
    read = [first.left, first.right, *weight_sums.others(softmax, chain)]
    Writes(graph.graph, first.node, second.node).check(chain, read)
    return _raise(graph, softmax, first, weight_sums.distribute(graph.graph, softmax, second, chain))


def _raise(graph: GraphModule, softmax: Node, first: Product, second: Product) -> Node:
    """Replaces attention, or leaves the graph as it is."""
    chain = _chain(first.node, second)
    weights, values = (second.left, second.right), (second.left_dims, second.right_dims)
    side = 0 if second.left in chain else 1
    if second.left in chain and second.right in chain or softmax not in chain:
        raise Unknown("values are computed from the scores")
    letters = Letters(second, side)
    node = weights[side]
    index: list[Dim] = [() if letter is None else (letters.piece(letter),) for letter in values[side]]
    is_softmax, is_hard = name_of(softmax) == "softmax", False
    while node is not softmax:
        if not is_hard and hard_weights.softmax_of(node) is softmax:
            is_hard, node = True, softmax
        else:
            index, node = _weights(node, index), node.args[0]
    if is_softmax and index[softmax_axis(softmax)] != (letters.piece(letters.keys),):
        raise Unknown("the softmax is not over the keys of the second product")
    lead = frozenset(letter for letter in letters.lead if not is_one(letters.extents[letter]))
    score = Score(first, chain, letters.piece(letters.keys) if is_softmax else None, lead)
    value = score.build(softmax.args[0], index)
    if score.place is None:
        raise Unknown("scores do not come from a product")
    if is_hard:
        hard_weights.check(score, second.node)
    q, k = queries_and_keys(first, score.place, letters)
    captured = [node for node, _ in score.captures]
    own = chain - _ancestors(node for node in captured if node in chain) | score.elements
    _check_readers(own, second, chain)
    Writes(graph.graph, first.node, second.node).check(own, [first.left, first.right, *captured])
    v = Operand(weights[1 - side], tuple(None if x is None else letters.piece(x) for x in values[1 - side]))
    kind = "hard" if is_hard else "softmax" if is_softmax else "sigmoid"
    return Insertion(graph, letters, score, value, second, kind).insert(q, k, v, chain)


def _as_product(node: Node) -> Product:
    """The product that a node computes, whose operands have changed."""
    found = product(node)
    assert found is not None
    return found


def _chain(first: Node, second: Product) -> set[Node]:
    """The nodes from the first product to the second."""
    ancestors = _ancestors(second.node.all_input_nodes)
    chain = {first}
    for node in first.graph.nodes:  # in order
        if node in ancestors and any(x in chain for x in node.all_input_nodes):
            chain.add(node)
    return chain


def _ancestors(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and all that they are computed from."""
    found, todo = set[Node](), list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _check_readers(own: set[Node], second: Product, chain: Iterable[Node] = ()) -> None:
    """Refuses scores and weights that other nodes than those of the chain read."""
    known = {*own, *chain, second.node}
    for node in own:
        if any(user not in known and _is_live(user) for user in node.users):
            raise Unknown("scores or weights have other readers")


def _is_live(node: Node) -> bool:
    """Whether something of the graph depends on a node."""
    seen, todo = {node}, [node]
    while todo:
        at = todo.pop()
        if at.op == "output" or is_write(at):
            return True
        todo += [user for user in at.users if user not in seen]
        seen |= set(at.users)
    return False


def _weights(node: Node, index: list[Dim]) -> list[Dim]:
    """The index of the source of a node between the softmax and the second product."""
    view = views_of(node)
    if view is not None:
        return viewed(node, view, index)
    if is_cast(node) or is_idle_dropout(node):
        return index
    if is_dropout(node):
        raise Unknown("dropout of weights is not supported: eval() avoids it, and F.scaled_dot_product_attention in "
                      "saccade.torch.enabled() has it")
    raise Unknown(f"weights are changed by '{name_of(node) or node.name}'")
