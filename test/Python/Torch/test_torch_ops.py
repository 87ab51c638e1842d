"""Operators of PyTorch, family by family, agree with PyTorch in types, shapes and elements: on random inputs, empty
ones, single numbers and mixed types."""

import functools

import pytest

pytest.importorskip("torch")

import torch
from interpreter import interpret
from torch_cases import ATTENTION, COMPOSED, ELEMENTS, OPEN, PRODUCTS, SHAPES, SUMS
from torch_targets import array

import saccade
import saccade.torch
from saccade.torch.operators import OPERATORS

FAMILIES = {"elements": ELEMENTS, "shapes": SHAPES, "sums": SUMS, "products": PRODUCTS, "composed": COMPOSED,
            "attention": ATTENTION}  # fmt: skip
# The families whose operators have a decomposition in PyTorch.
DECOMPOSED = {f"{family} {name}": case for family in ("elements", "sums", "composed")
              for name, case in FAMILIES[family].items()}  # fmt: skip


class All(torch.nn.Module):
    """Every case of a family in one program."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, *inputs):
        results, at = [], 0
        for function, *own in self.cases.values():
            results.append(function(*inputs[at : at + len(own)]))
            at += len(own)
        return results


def inputs_of(cases):
    return tuple(tensor.clone() for _, *own in cases.values() for tensor in own)


def pairs(cases, compiled, *inputs):
    """By case, what the compiled function returned and what PyTorch did."""
    return dict(zip(cases, zip(compiled(*inputs), All(cases)(*inputs), strict=True), strict=True))


def expect_near(found, expected):
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for each in zip(found, expected):
            expect_near(*each)
        return
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if not expected.is_floating_point():
        assert torch.equal(found, expected), f"found\n{found}\nexpected\n{expected}"
        return
    tolerance = {torch.bfloat16: 1e-2, torch.float16: 1e-3}.get(expected.dtype, 2e-5)
    is_near = torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert is_near, f"found\n{found}\nexpected\n{expected}"


# A family is compiled once, as one program, when the first of its cases is asked for.


@functools.cache
def compiled_family(family):
    cases = FAMILIES[family]
    return saccade.torch.compile(All(cases), inputs_of(cases))


@functools.cache
def pairs_of_family(family):
    cases = FAMILIES[family]
    return pairs(cases, compiled_family(family), *inputs_of(cases))


def tensor_of(found):
    is_half = found.dtype.name == "bfloat16"
    return torch.from_numpy(found.view("int16")).view(torch.bfloat16) if is_half else torch.from_numpy(found)


@functools.cache
def pairs_decomposed():
    """What the reference interpreter gives: the same operators are compiled above, as they are."""
    inputs = inputs_of(DECOMPOSED)
    program = torch.export.export(All(DECOMPOSED), inputs).run_decompositions()
    read = saccade.torch.reader.read(program, "decomposed")
    weights = [weight.tensor for _, weight in read.weights]
    found = [tensor_of(each) for each in interpret(read.text, [array(each) for each in (*inputs, *weights)])]
    tree = All(DECOMPOSED)(*inputs)
    leaves, spec = torch.utils._pytree.tree_flatten(tree)
    assert len(found) == len(leaves)
    results = torch.utils._pytree.tree_unflatten(found, spec)
    return dict(zip(DECOMPOSED, zip(results, tree, strict=True), strict=True))


@functools.cache
def compiled_open():
    inputs = inputs_of(OPEN)
    rows = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    return saccade.torch.compile(All(OPEN), inputs, dynamic_shapes={"inputs": rows})


@functools.cache
def pairs_open(count):
    inputs = tuple(torch.cat([each, each, each])[:count].clone() for each in inputs_of(OPEN))
    return pairs(OPEN, compiled_open(), *inputs)


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, cases in FAMILIES.items() for name in cases])
def test_operator_agrees(family, name):
    expect_near(*pairs_of_family(family)[name])


def test_every_case_of_attention_is_raised():
    found = compiled_family("attention").module.ir("transforms").count("= attn.attention")
    assert found == len(ATTENTION), f"found {found} attentions, expected {len(ATTENTION)}"


@pytest.mark.parametrize("name", DECOMPOSED)
def test_operator_agrees_after_the_decompositions_of_torch(name):
    expect_near(*pairs_decomposed()[name])


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_operator_agrees_for_another_first_extent(count, name):
    expect_near(*pairs_open(count)[name])


def error_of(program):
    """The message of the compiler's error, empty if it compiles the program."""
    try:
        saccade.compile(program)
    except saccade.CompileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_compiler_knows_each_operator_that_stays_whole(name):
    error = error_of(f"""func.func @main() -> tensor<1xf32> {{
  %0 = "torch.aten.{name}"() : () -> tensor<1xf32>
  return %0 : tensor<1xf32>
}}
""")
    assert "this op is not supported" not in error
