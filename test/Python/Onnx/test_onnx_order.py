"""Nodes of ONNX graphs are sorted by what they read, also inside of their subgraphs. Random graphs, in random orders."""

import random

import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from saccade._text import Scope
from saccade.onnx import ModelError
from saccade.onnx.order import sort_nodes

VALUE = helper.make_tensor_value_info


def graph(draw, outer, depth):
    """A subgraph that reads some of the names `outer`, and these names. Its own names hide equal ones of other graphs."""
    inputs, weights, nodes, read = [f"n{draw.randrange(12)}"], [f"n{draw.randrange(12)}"], [], set()
    own = {*inputs, *weights}
    for i in range(draw.randint(0, 3)):
        taken = draw.sample(sorted({*outer, *own}), min(2, len({*outer, *own})))
        name = f"inner{depth}_{i}"
        made = helper.make_node("Op", taken, [name])
        read |= set(taken) - own
        if depth and draw.random() < 0.5:
            body, names = graph(draw, sorted({*outer, *own}), depth - 1)
            made.attribute.append(helper.make_attribute("body", body))
            read |= names - own
        nodes.append(made)
        own.add(name)
    draw.shuffle(nodes)
    result = draw.choice(sorted({*outer, *own}))
    read |= {result} - own
    tensors = [helper.make_tensor(name, TensorProto.FLOAT, [1], [0.0]) for name in weights]
    values = [VALUE(name, TensorProto.FLOAT, [1]) for name in inputs]
    return helper.make_graph(nodes, "body", values, [VALUE(result, TensorProto.FLOAT, [1])], tensors), read


def nodes_of(seed):
    """Sorted nodes, and the names that each one reads."""
    draw, nodes, reads = random.Random(seed), [], []
    names = []
    for i in range(draw.randint(1, 8)):
        taken = draw.sample([*names, "x", ""], min(draw.randint(0, 2), len(names) + 2))
        made = helper.make_node("Op", taken, [f"n{i}", *([""] if draw.random() < 0.2 else [])], name=f"node{i}")
        read = {name for name in taken if name}
        if draw.random() < 0.5:
            body, inner = graph(draw, [*names, "x"], 1)
            made.attribute.append(helper.make_attribute("body", body))
            read |= inner
        nodes.append(made)
        reads.append(read)
        names.append(f"n{i}")
    return nodes, reads


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_every_node_follows_what_it_reads(first):
    for seed in range(first, first + 20):
        nodes, reads = nodes_of(seed)
        assert sort_nodes(nodes, Scope(), "m") == nodes, f"seed {seed}: sorted nodes keep their order"
        numbers = list(range(len(nodes)))
        random.Random(seed).shuffle(numbers)
        found = [node.name for node in sort_nodes([nodes[i] for i in numbers], Scope(), "m")]
        assert sorted(found) == sorted(node.name for node in nodes), f"seed {seed}"
        for i, read in enumerate(reads):
            before = found[: found.index(f"node{i}")]
            assert all(f"node{name[1:]}" in before for name in read if name != "x"), f"seed {seed}: {found}, node{i} reads {read}"


def chain(count, last="n0"):
    """Each node reads what the next one makes, the last one reads `last`."""
    return [helper.make_node("Op", [f"n{i + 1}" if i + 1 < count else last], [f"n{i}"], name=f"node{i}") for i in range(count)]


def test_long_chains_are_sorted():
    found = sort_nodes(chain(5000, "x"), Scope(), "m")
    assert [node.name for node in found] == [f"node{i}" for i in reversed(range(5000))]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_cycle_is_refused_by_name(count):
    free = [helper.make_node("Op", ["x"], ["y"], name="before"), helper.make_node("Op", ["n0"], ["z"], name="after")]
    with pytest.raises(ModelError, match=r"^m: node 'node\d' \(Op\): it reads what is made of its own output"):
        sort_nodes([free[0], *chain(count), free[1]], Scope(), "m")


def test_a_cycle_through_a_subgraph_is_refused():
    body = helper.make_graph([helper.make_node("Op", ["n1"], ["i"])], "body", [], [VALUE("i", TensorProto.FLOAT, [1])])
    nodes = [helper.make_node("If", ["x"], ["n0"], name="node0", then_branch=body), helper.make_node("Op", ["n0"], ["n1"], name="node1")]
    with pytest.raises(ModelError, match="it reads what is made of its own output"):
        sort_nodes(nodes, Scope(), "m")


def test_two_readers_of_one_node_are_no_cycle():
    nodes = [helper.make_node("Op", ["b", "c"], ["d"]), helper.make_node("Op", ["a"], ["c"]), helper.make_node("Op", ["a"], ["b"]),
             helper.make_node("Op", ["x"], ["a"])]  # fmt: skip
    found = [node.output[0] for node in sort_nodes(nodes, Scope(), "m")]
    assert found[0] == "a"
    assert found[-1] == "d"


def test_an_output_that_is_there_already_is_refused():
    scope = Scope()
    scope.values["x"] = ("%x", "f32")
    for nodes in ([helper.make_node("Op", [], ["y", "y"])], [helper.make_node("Op", [], ["y"]), helper.make_node("Op", [], ["y"])],
                  [helper.make_node("Op", [], ["x"])]):  # fmt: skip
        with pytest.raises(ModelError, match=r"m: a node Op: the output '[xy]' is there already"):
            sort_nodes(nodes, scope, "m")
    outer = Scope(scope)
    assert sort_nodes([helper.make_node("Op", [], ["x"])], outer, "m"), "a subgraph may hide it"
    assert sort_nodes([helper.make_node("Op", [], ["", ""]), helper.make_node("Op", [], [""])], scope, "m")
