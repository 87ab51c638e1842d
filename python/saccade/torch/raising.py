"""Replaces attention that is written by hand in a graph of Dynamo by the operator `saccade::attention`.

The pattern is two products of tensors around a softmax or a sigmoid. The index of every tensor is followed backwards
from the second product through views to the first one, so permutations, einsum orders, windows and joined dimensions
need no cases of their own. Scores become the score function of the operator. What cannot be proved stays as it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import has_static_value

from saccade.module import compile
from saccade.regions import Region, trace
from saccade.torch import attention_operator, weight_sums
from saccade.torch.differentiated import differentiated, function_of
from saccade.torch.element_index import Dim, Piece, Unknown, is_one
from saccade.torch.element_trees import Score, Value, is_cast, viewed
from saccade.torch.graph_writes import Writes, follow_writes, is_write
from saccade.torch.products import Product, name_of, product, shape_of, views_of
from saccade.torch.traced_drop_ins import is_supported, layout_of
from saccade.torch.tracing import make_program

_DROPOUT = ("dropout", "dropout_")


class _Operand(NamedTuple):
    """A tensor and what its dimensions are, None for one of extent 1."""

    node: Node
    dims: tuple[Any, ...]


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
    letters = _Letters(second, side)
    node = weights[side]
    index: list[Dim] = [() if letter is None else (letters.piece(letter),) for letter in values[side]]
    while node is not softmax:
        index, node = _weights(node, index), node.args[0]
    is_softmax = name_of(softmax) == "softmax"
    if is_softmax and index[_softmax_axis(softmax)] != (letters.piece(letters.keys),):
        raise Unknown("the softmax is not over the keys of the second product")
    lead = frozenset(letter for letter in letters.lead if not is_one(letters.extents[letter]))
    score = Score(first, chain, letters.piece(letters.keys) if is_softmax else None, lead)
    value = score.build(softmax.args[0], index)
    if score.place is None:
        raise Unknown("scores do not come from a product")
    q, k = _queries_and_keys(first, score.place, letters)
    captured = [node for node, _ in score.captures]
    own = chain - _ancestors(node for node in captured if node in chain) | score.elements
    _check_readers(own, second, chain)
    Writes(graph.graph, first.node, second.node).check(own, [first.left, first.right, *captured])
    v = _Operand(weights[1 - side], tuple(None if x is None else letters.piece(x) for x in values[1 - side]))
    return _Insertion(graph, letters, score, value, second, is_softmax).insert(q, k, v, chain)


def _as_product(node: Node) -> Product:
    """The product that a node computes, whose operands have changed."""
    found = product(node)
    assert found is not None
    return found


class _Letters:
    """The dimensions of the second product: `lead`, queries, keys and the values' size."""

    def __init__(self, second: Product, side: int):
        weights = second.left_dims if side == 0 else second.right_dims
        values = second.right_dims if side == 0 else second.left_dims
        node = second.left if side == 0 else second.right
        shape, other = shape_of(node), shape_of(second.right if side == 0 else second.left)
        assert shape is not None and other is not None
        self.extents = {letter: extent for letter, extent in (*zip(values, other), *zip(weights, shape)) if letter}
        reduced = [letter for letter in weights if letter is not None and letter not in second.result]
        alone = [letter for letter in weights if letter in second.result and letter not in values]
        widths = [letter for letter in values if letter in second.result and letter not in weights]
        if len(reduced) != 1 or not alone or not widths or second.addend is not None or second.alpha != 1:
            raise Unknown("the second product is not one of weights and values")
        self.keys, self.queries, self.width = reduced[0], alone[-1], widths[-1]
        shared = [letter for letter in weights if letter in values and letter in second.result]
        self.lead: list[str] = [*widths[:-1], *shared, *alone[:-1]]

    def piece(self, letter: str) -> Piece:
        return Piece(letter, 1, self.extents[letter])


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
    if is_cast(node):
        return index
    if name_of(node) in _DROPOUT:
        given = dict(zip(("p", "training"), node.args[1:])) | dict(node.kwargs)
        if given.get("training", True) is False or given.get("p", 0.5) == 0.0:
            return index
        raise Unknown("dropout of weights is not supported: eval() avoids it, and F.scaled_dot_product_attention in "
                      "saccade.torch.enabled() has it")
    raise Unknown(f"weights are changed by '{name_of(node) or node.name}'")


def _softmax_axis(node: Node) -> int:
    """The dimension of a softmax, counted from the first one."""
    given = dict(zip(("dim", "_stacklevel") if node.op == "call_function" else ("dim", "dtype"), node.args[1:]))
    given |= dict(node.kwargs)
    shape = shape_of(node)
    if shape is None or not isinstance(given.get("dim"), int):
        raise Unknown("the softmax has no dimension")
    return int(given["dim"] % len(shape))


def _queries_and_keys(first: Product, place: list[Dim], letters: _Letters) -> tuple[_Operand, _Operand]:
    """The operands of the first product with their dimensions as pieces; "e" is the dimension of the product's sum."""
    index: dict[str, Dim] = dict(zip(first.result, place))
    reduced = {x for x in (*first.left_dims, *first.right_dims) if x is not None and x not in first.result}
    if len(reduced) != 1:
        raise Unknown("the first product sums over several dimensions")
    queries, keys = letters.piece(letters.queries), letters.piece(letters.keys)
    found: list[tuple[list[Piece], _Operand]] = []
    for node, dims in ((first.left, first.left_dims), (first.right, first.right_dims)):
        pieces: list[Any] = []
        for letter, extent in zip(dims, shape_of(node) or ()):
            dim: Dim = () if letter is None else index.get(letter, ())
            for piece in dim:
                if piece != letters.piece(piece.letter):
                    raise Unknown("a position is a part of a dimension of the first product")
            if letter in reduced:
                pieces.append("e")
            elif not dim:
                if not (has_static_value(extent) and int(extent) == 1):
                    raise Unknown("a dimension of the first product is broadcast after it")
                pieces.append(None)
            else:
                pieces.append(dim)
        flat = [piece for dim in pieces if isinstance(dim, tuple) for piece in dim]
        if len(set(flat)) != len(flat) or queries in flat and keys in flat:
            raise Unknown("a position is two dimensions of the first product")
        found.append((flat, _Operand(node, tuple(pieces))))
    have_keys = [keys in flat for flat, _ in found]
    if have_keys == [False, False] and is_one(keys.extent):  # the one that lacks queries, or either one
        is_right = queries not in found[1][0]
        have_keys = [not is_right, is_right]
    if sum(have_keys) != 1:
        raise Unknown("the first product is not one of queries and keys")
    (_, x), (_, y) = found if have_keys[1] else reversed(found)
    return x, y


class _Insertion:
    """The nodes that replace attention."""

    def __init__(self, graph: GraphModule, letters: _Letters, score: Score, value: Value, second: Product,
                 is_softmax: bool):
        self.graph, self.letters, self.score, self.second = graph, letters, score, second
        self.value = value if is_softmax else _log_sigmoid(value)
        self.is_softmax = is_softmax
        self.made: list[Node] = []

    def insert(self, q: _Operand, k: _Operand, v: _Operand, chain: set[Node]) -> Node:
        node = self.second.node
        result = node.meta["example_value"]
        try:
            with self.graph.graph.inserting_before(node):
                call = self._insert(q, k, v, result)
        except (Unknown, TypeError, ValueError, RuntimeError) as error:  # of the tracer and the compiler
            for made in reversed(self.made):
                self.graph.graph.erase_node(made)
            raise Unknown(str(error).split("\n")[0]) from None
        node.replace_all_uses_with(self.made[-1])
        self.graph.graph.erase_node(node)
        for old in reversed(list(self.graph.graph.nodes)):
            if old in chain and not old.users:
                self.graph.graph.erase_node(old)
        return call

    def _insert(self, q: _Operand, k: _Operand, v: _Operand, result: torch.Tensor) -> Node:
        letters = self.letters
        lead = [letters.piece(letter) for letter in letters.lead]
        queries, keys, width = (letters.piece(x) for x in (letters.queries, letters.keys, letters.width))
        # One dimension of heads that keys and values lack is that of grouped heads.
        is_shared = len(lead) > 1 and lead[-1] not in _pieces(k) and lead[-1] not in _pieces(v)
        tensors = [self._arranged(x, [*lead, own, last], is_shared and x is not q, result.dtype)
                   for x, own, last in ((q, queries, "e"), (k, keys, "e"), (v, keys, width))]
        examples = [x.meta["example_value"] for x in tensors]
        q_like, k_like, v_like = examples
        if not is_supported(q_like, k_like, v_like, True):
            raise Unknown(f"query, key and value have shapes {', '.join(str(tuple(x.shape)) for x in examples)}, or "
                          "types or devices that Saccade does not support")
        program, tables = self._program(examples, lead)
        layout = layout_of(examples[0].dim())
        _check_compiles(program, examples, tables)
        call = self._add(self.graph.graph.call_function(
            attention_operator.overload(not self.is_softmax, False),
            ([*tensors, *tables], program, None, [1.0], layout)), self._results(examples))
        output = call if self.is_softmax else self._sum(call, result.dtype)
        if len(lead) > 2:
            output = self._apply("reshape", output, *[self._extent(x.letter) for x in (*lead, queries, width)])
        order = [*letters.lead, letters.queries, letters.width]
        axes = [order.index(letter) for letter in self.second.result if letter in order]
        if len(axes) != len(order):
            raise Unknown("a dimension of the result is broadcast")
        if axes != sorted(axes):
            output = self._apply("permute", output, *axes)
        if result.dim() != len(axes):
            raise Unknown("a dimension of the result has extent 1 in both operands")
        self._apply("contiguous", output)  # readers may take it for a product, which is contiguous
        return call

    def _results(self, examples: list[torch.Tensor]) -> Any:
        """The output, and the log-sum-exp that a sum needs."""
        q, _, v = examples
        output = q.new_empty((*q.shape[:-1], v.shape[-1]))
        precision = torch.float64 if q.dtype == torch.float64 else torch.float32
        return output if self.is_softmax else (output, q.new_empty(q.shape[:-1], dtype=precision))

    def _sum(self, call: Node, dtype: torch.dtype) -> Node:
        """The sum of the values times the exponentials of scores: the output without the division by their sum."""
        parts = [self._add(self.graph.graph.call_function(operator.getitem, (call, number)), example)
                 for number, example in enumerate(call.meta["example_value"])]
        factor = self._apply("unsqueeze", self._apply("exp", parts[1]), -1)
        return self._apply("to", self._apply("mul", parts[0], factor), dtype)

    def _program(self, examples: list[torch.Tensor], lead: list[Piece]) -> tuple[str, list[Node]]:
        """The program, and the nodes that its score function reads."""
        precision = "f64" if examples[0].dtype == torch.float64 else "f32"
        nodes = [self._table(node, index, precision) for node, index in self.score.captures]
        stand_ins: dict[Node, torch.Tensor] = {}
        for node in nodes:
            example = node.meta["example_value"]
            stand_ins.setdefault(node, torch.empty((1,) * example.dim(), dtype=example.dtype))
        letters, value = self.letters, self.value
        extents = {f"#{letter}": extent for letter, extent in letters.extents.items()}

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            at = {letters.queries: i, letters.keys: j} | extents
            at |= _lead_positions(lead, b, h)
            return value(s, at, [stand_ins[node] for node in nodes])

        with torch.no_grad():
            region: Region | None = trace(score, "score", precision, bakes_numbers=True)
        if region is not None and region.root.op == "argument":
            region = None
        read = []
        for capture in () if region is None else region.captures:
            made = next((node for node, known in stand_ins.items() if known is capture), None)
            if made is None:
                raise Unknown("scores are computed with a constant tensor")
            read.append(made)
        program = make_program(examples[0].dtype, int(examples[0].shape[-1]), int(examples[2].shape[-1]),
                               layout_of(examples[0].dim()), region, None, has_scale=True,
                               return_lse=not self.is_softmax)
        return program, read

    def _table(self, node: Node, index: list[Dim], precision: str) -> Node:
        """A tensor that scores are computed with, without the dimensions of extent 1; a 0-d tensor for a number."""
        example = node.meta["example_value"]
        if not isinstance(example, torch.Tensor):
            is_integer = isinstance(example, (int, torch.SymInt))
            dtype = torch.int64 if is_integer else torch.float64 if precision == "f64" else torch.float32
            made = self.graph.graph.call_function(torch.full, ((), node), {"dtype": dtype})
            return self._add(made, torch.empty((), dtype=dtype, device="meta"))
        single = tuple(axis for axis, dim in enumerate(index) if not dim)
        if len(index) != example.dim():
            raise Unknown("a tensor that scores are computed with has more dimensions than they have")
        return self._apply("squeeze", node, single) if single else node

    def _arranged(self, x: _Operand, order: list[Any], is_shared: bool, dtype: torch.dtype) -> Node:
        """A tensor as a view with the dimensions of `order`: at most two before the last two."""
        node = x.node
        if node.meta["example_value"].dtype != dtype:
            node = self._apply("to", node, dtype)
        dims: list[Any] = []
        shape: list[Any] = []
        for dim, extent in zip(x.dims, shape_of(x.node) or ()):
            parts = list(dim) if isinstance(dim, tuple) and not isinstance(dim, Piece) else [dim]
            dims += parts
            shape += [extent] if len(parts) == 1 else [part.extent for part in parts]
        if len(dims) != len(x.dims):
            node = self._apply("reshape", node, *shape)
        if unneeded := [axis for axis, dim in enumerate(dims) if dim is None]:
            node = self._apply("squeeze", node, tuple(unneeded))
            dims = [dim for dim in dims if dim is not None]
        present = [dim for dim in order if dim in dims]
        if len(present) != len(dims):
            raise Unknown("a product has a dimension that the other has not")
        axes = [dims.index(dim) for dim in present]
        if axes != sorted(axes):
            node = self._apply("permute", node, *axes)
        missing = [dim for dim in order if dim not in dims]
        for axis, dim in enumerate(order):
            if dim in missing:
                node = self._apply("unsqueeze", node, axis)
        last_lead = len(order) - 3
        broadcast = [dim for axis, dim in enumerate(order) if dim in missing and not (is_shared and axis == last_lead)]
        if "e" in broadcast:
            raise Unknown("a product has a dimension that the other has not")
        if broadcast:
            node = self._apply("expand", node, *[self._extent(dim.letter) if dim in broadcast else -1
                                                 for dim in order])
        if len(order) > 4:
            whole = node.meta["example_value"].shape
            node = self._apply("reshape", node, math.prod(int(extent) for extent in whole[:-3]), *map(int, whole[-3:]))
        return node

    def _extent(self, letter: str) -> int:
        extent = self.letters.extents[letter]
        if not has_static_value(extent):
            raise Unknown("a dimension of dynamic extent is broadcast or joined")
        return int(extent)

    def _apply(self, method: str, node: Node, *arguments: Any) -> Node:
        with torch.no_grad():
            example = getattr(node.meta["example_value"], method)(
                *[x.meta["example_value"] if isinstance(x, Node) else x for x in arguments])
        if example.requires_grad != node.meta["example_value"].requires_grad:
            example.requires_grad_(node.meta["example_value"].requires_grad)
        return self._add(self.graph.graph.call_method(method, (node, *arguments)), example)

    def _add(self, node: Node, example: Any) -> Node:
        node.meta["example_value"] = example
        if "stack_trace" in self.second.node.meta:
            for name in ("stack_trace", "nn_module_stack", "source_fn_stack"):
                if name in self.second.node.meta:
                    node.meta[name] = self.second.node.meta[name]
        self.made.append(node)
        return node


def _pieces(x: _Operand) -> list[Any]:
    return [piece for dim in x.dims for piece in (dim if isinstance(dim, tuple) and not isinstance(dim, Piece)
                                                  else (dim,))]


def _log_sigmoid(value: Value) -> Value:
    """The logarithm of the weights of sigmoid attention, which have no sum to be divided by."""
    return lambda s, at, read: -torch.nn.functional.softplus(-value(s, at, read))


def _lead_positions(lead: Sequence[Piece], b: Any, h: Any) -> dict[str, Any]:
    """The positions of the dimensions before queries, from the operator's batch and head."""
    if len(lead) == 1:
        return {lead[0].letter: b}
    if not lead:
        return {}
    *outer, last = lead
    found = {last.letter: h}
    stride = 1
    for number, piece in reversed(list(enumerate(outer))):
        digit = b if stride == 1 else b // stride
        found[piece.letter] = digit if number == 0 else digit % int(piece.extent)
        if number:
            stride *= int(piece.extent)
    return found


def _check_compiles(program: str, examples: Sequence[torch.Tensor], tables: Sequence[Node]) -> None:
    """Raises what the compiler reports of the program or of its gradient."""
    if any(x.device.type != "cpu" for x in examples):
        return
    needs = tuple(bool(x.requires_grad) for x in (*examples, *[node.meta["example_value"] for node in tables]))
    if torch.is_grad_enabled() and any(needs):
        function_of(differentiated(program, needs, "attn.gradient"), "host", "attention_gradient")
    else:
        compile(program)
