"""Ops of StableHLO with one thing wrong: an operand, an integer, a type or an attribute. What StableHLO's verifier
refuses, the frontend refuses, with a message that names the op; it neither crashes nor computes something."""

import dataclasses
import random
import re

import pytest

pytest.importorskip("jax")

import numpy as np
from interpreter import Refused, interpret
from jaxlib.mlir import ir
from stablehlo_drawn import RECIPES, TYPES, Op, draw, i64s, text_of
from stablehlo_targets import context

# What StableHLO's verifier refuses and the frontend gives a meaning: positions and extents of several integer types,
# group counts that are left out, hints about which dimensions grow.
TOLERATED = [(r"(real_)?dynamic_(slice|update_slice|pad)", "operand has another type"),
             (r"convolution", "_group_count is missing"), (r"dynamic_broadcast_in_dim", "known_(non)?expanding_dimensions"),
             (r"get_dimension_size", "result has another type")]  # fmt: skip


def retyped(operand, element):
    """The operand with elements of another type."""
    array = np.asarray(operand[0] if isinstance(operand, tuple) else operand)
    with np.errstate(invalid="ignore"):
        other = array.astype(TYPES[element])
    return (other, True) if isinstance(operand, tuple) else other


def reranked(operand):
    """The operand with one dimension more."""
    array = np.asarray(operand[0] if isinstance(operand, tuple) else operand)
    return (array[None], True) if isinstance(operand, tuple) else array[None]


def lists_of(text):
    """The attribute with another list of integers in place of one of its own."""
    if found := re.fullmatch(r"array<i64(?:: (.*))?>", text):
        values = [int(each) for each in found[1].split(", ")] if found[1] else []
        yield from (i64s(each) for each in wrong(values))
    for found in re.finditer(r"\[([-\d, ]*)\]", text):
        values = [int(each) for each in found[1].split(", ")] if found[1] else []
        if text.startswith("#"):
            yield from (f"{text[:found.start()]}{each}{text[found.end():]}" for each in wrong(values))
    for found in re.finditer(r"(?<== )\d+|^\d+", text):
        yield from (text[: found.start()] + each + text[found.end():] for each in ("-1", "9"))


def wrong(values):
    """Lists that differ in their length or in one number."""
    yield values + [0]
    if values:
        yield values[:-1]
        yield values + values[-1:]
        for i in range(len(values)):
            for number in (-9, -1, 9):
                yield values[:i] + [number] + values[i + 1:]


def variants(op):
    """The op with one mistake each."""
    copy = lambda **changes: dataclasses.replace(op, **changes)
    for i, operand in enumerate(op.operands):
        rest = op.operands[:i], op.operands[i + 1:]
        yield "an operand is missing", copy(operands=[*rest[0], *rest[1]])
        yield "an operand comes twice", copy(operands=[*rest[0], operand, operand, *rest[1]])
        for element in ("i8", "f64"):
            yield "an operand has another type", copy(operands=[*rest[0], retyped(operand, element), *rest[1]])
        yield "an operand has another rank", copy(operands=[*rest[0], reranked(operand), *rest[1]])
    for name, value in op.attributes.items():
        if value is not None:
            yield f"{name} is missing", copy(attributes=op.attributes | {name: None})
            for other in lists_of(value):
                yield f"{name} is {other}", copy(attributes=op.attributes | {name: other})
    for i, (shape, element) in enumerate(op.results):
        rest = op.results[:i], op.results[i + 1:]
        yield "a result has another type", copy(results=[*rest[0], (shape, "i8" if element != "i8" else "f32"), *rest[1]])
        yield "a result is too many", copy(results=[*rest[0], (shape, element), (shape, element), *rest[1]])


def is_valid(text):
    """Whether StableHLO's verifier accepts a program. It crashes on some that the frontend refuses."""
    try:
        with context(), ir.Location.unknown():
            return ir.Module.parse(text).operation.verify()
    except ir.MLIRError:
        return False


def is_tolerated(name, what):
    return any(re.fullmatch(op, name) and re.search(mistake, what) for op, mistake in TOLERATED)


@pytest.mark.parametrize("name", RECIPES)
def test_ops_with_a_mistake_are_refused(name):
    draws, refused = random.Random(name), 0
    for _ in range(4):
        op = draw(name, draws, draws.choice(RECIPES[name][1]))
        for what, variant in variants(op):
            text, given = text_of(variant)
            try:
                interpret(text, given)
            except Refused as error:
                refused += 1
                # Extents of results are compared with the declared ones at the end of the function.
                assert f"{name}:" in str(error) or "declared is" in str(error), f"{what}:\n{text}\n{error}"
            else:
                assert is_tolerated(name, what) or is_valid(text), f"{what} is accepted:\n{text}"
    assert refused


WINDOW = """func.func public @main(%x: tensor<4xi32>) -> tensor<4xi32> {{
  %zero = "stablehlo.constant"() {{value = dense<0> : tensor<i32>}} : () -> tensor<i32>
  %y = "stablehlo.reduce_window"(%x, %zero) ({{
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    {body}
  }}) {{window_dimensions = array<i64: 4>, padding = dense<[[3, 0]]> : tensor<1x2xi64>}} : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
  return %y : tensor<4xi32>
}}"""
BINARY = '{result} = "stablehlo.{name}"({x}, {y}) : (tensor<i32>, tensor<i32>) -> tensor<i32>'


def window(*ops, returned):
    lines = [BINARY.format(result=result, name=name, x=x, y=y) for result, name, x, y in ops]
    return WINDOW.format(body="\n".join([*lines, f'"stablehlo.return"({returned}) : (tensor<i32>) -> ()']))


def test_only_regions_that_add_both_arguments_are_sums():
    x = np.arange(1, 5, dtype=np.int32)
    for operands in (("%a", "%b"), ("%b", "%a")):
        np.testing.assert_array_equal(interpret(window(("%c", "add", *operands), returned="%c"), [x])[0], x.cumsum())
    for text in [window(returned="%a"), window(returned="%b"), window(("%c", "add", "%a", "%a"), returned="%c"),
                 window(("%c", "add", "%b", "%b"), returned="%c"), window(("%c", "add", "%a", "%b"), returned="%a"),
                 window(("%c", "add", "%a", "%b"), returned="%b"), window(("%c", "subtract", "%a", "%b"), returned="%c"),
                 window(("%c", "maximum", "%a", "%b"), returned="%c"),
                 window(("%c", "add", "%a", "%b"), ("%d", "add", "%c", "%a"), returned="%d"),
                 window(("%c", "add", "%a", "%b"), ("%d", "add", "%c", "%a"), returned="%c"),
                 window(("%c", "multiply", "%a", "%b"), ("%d", "add", "%a", "%b"), returned="%c")]:  # fmt: skip
        with pytest.raises(Refused, match="only cumulative sums along one dimension"):
            interpret(text, [x])


@pytest.mark.parametrize("index", [-(2**31), -1, 0, 1, 2, 3, 4, 2**31 - 1])
@pytest.mark.parametrize("is_known", [True, False])
def test_an_index_out_of_range_selects_the_last_branch(index, is_known):
    branches = ", ".join(f"""{{
    %b{i} = "stablehlo.constant"() {{value = dense<{10 + i}> : tensor<i32>}} : () -> tensor<i32>
    "stablehlo.return"(%b{i}) : (tensor<i32>) -> ()
  }}""" for i in range(3))
    constant = f'%k = "stablehlo.constant"() {{value = dense<{index}> : tensor<i32>}} : () -> tensor<i32>'
    text = f"""func.func public @main(%i: tensor<i32>) -> tensor<i32> {{
  {constant if is_known else ''}
  %y = "stablehlo.case"({'%k' if is_known else '%i'}) ({branches}) : (tensor<i32>) -> tensor<i32>
  return %y : tensor<i32>
}}"""
    assert interpret(text, [np.array(index, np.int32)])[0] == (10 + index if 0 <= index < 3 else 12)


@pytest.mark.parametrize("index", range(3))
def test_a_known_index_needs_no_other_branch(index):
    """The extents of the branches differ, so no op can choose between their results."""
    branches = ", ".join(f"""{{
    %b{i} = "stablehlo.constant"() {{value = dense<{i}> : tensor<{i + 1}xi32>}} : () -> tensor<{i + 1}xi32>
    "stablehlo.return"(%b{i}) : (tensor<{i + 1}xi32>) -> ()
  }}""" for i in range(3))
    text = f"""func.func public @main() -> tensor<?xi32> {{
  %k = "stablehlo.constant"() {{value = dense<{index}> : tensor<i32>}} : () -> tensor<i32>
  %y = "stablehlo.case"(%k) ({branches}) : (tensor<i32>) -> tensor<?xi32>
  return %y : tensor<?xi32>
}}"""
    np.testing.assert_array_equal(interpret(text, [])[0], [index] * (index + 1))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-3, 0), (0, -4), (-2, -2), (-4, 1), (-5, 0), (0, -5), (-3, -2), (-9, 4), (4, -9)])
def test_padding_crops_at_most_the_whole_dimension(low, high):
    x, extent = np.arange(4, dtype=np.int32), 4 + low + high
    attributes = {"edge_padding_low": i64s([low]), "edge_padding_high": i64s([high]), "interior_padding": i64s([0])}
    text, given = text_of(Op("pad", [x, np.array(7, np.int32)], attributes, [([max(extent, 0)], "i32")]))
    if extent < 0:
        with pytest.raises(Refused, match="pad: the padding crops 'tensor<4xi32>' to a negative extent"):
            interpret(text, given)
    else:
        padded = np.pad(x, (max(low, 0), max(high, 0)), constant_values=7)
        expected = padded[max(-low, 0) : len(padded) - max(-high, 0)]
        np.testing.assert_array_equal(interpret(text, given)[0], expected)
