"""Weights and inputs may be torch tensors: results are, too, and the same to the bit."""

import pytest

pytest.importorskip("torch")

import torch
from programs import refused
from weights_program import SHAPES, TEXT

import saccade

torch.manual_seed(5)
WEIGHTS = {name: torch.randn(shape).to(torch.float16 if name == "h" else torch.float32)
           for name, shape in SHAPES.items()}  # fmt: skip
INPUTS = {rows: torch.randn(rows, 24) for rows in (1, 7, 300)}

ADD = """
func.func @main(%w: tensor<4000000xf32>, %x: tensor<4000000xf32>) -> tensor<4000000xf32> {
  %e = tensor.empty() : tensor<4000000xf32>
  %y = linalg.add ins(%w, %x : tensor<4000000xf32>, tensor<4000000xf32>) outs(%e : tensor<4000000xf32>)
      -> tensor<4000000xf32>
  return %y : tensor<4000000xf32>
}"""


@pytest.fixture(scope="module")
def module():
    return saccade.compile(TEXT.replace("{MARK}", " {attn.constant}"), prepack=True)


@pytest.fixture(scope="module")
def bound(module):
    return module.main.bind(**WEIGHTS)


@pytest.fixture(scope="module")
def plain():
    """The program whose weights are ordinary arguments."""
    return saccade.compile(TEXT.replace("{MARK}", "")).main


every_input = pytest.mark.parametrize("x", INPUTS.values(), ids=[f"{rows} rows" for rows in INPUTS])


@every_input
def test_result_is_a_tensor_and_the_same_to_the_bit(bound, plain, x):
    found = bound(x)
    assert type(found) is torch.Tensor
    assert torch.equal(found, plain(x, **WEIGHTS))


@every_input
def test_out_is_written_and_autograd_sees_it(bound, plain, x):
    out = torch.full((len(x), 48), torch.nan)
    version = out._version
    assert bound(x, out=out) is out
    assert torch.equal(out, plain(x, **WEIGHTS))
    assert out._version > version


@every_input
def test_arrays_are_taken_beside_tensor_weights(bound, plain, x):
    assert (bound(x.numpy()) == plain(x, **WEIGHTS).numpy()).all()


@every_input
def test_tensors_are_taken_beside_array_weights(module, plain, x):
    found = module.main.bind(**{name: weight.numpy() for name, weight in WEIGHTS.items()})(x)
    assert type(found) is torch.Tensor
    assert torch.equal(found, plain(x, **WEIGHTS))


def test_weight_that_requires_grad_is_refused_but_under_no_grad(module, plain):
    x = INPUTS[300]
    needing = {**WEIGHTS, "w": WEIGHTS["w"].clone().requires_grad_()}
    refused(ValueError, ["w requires grad"], module.main.bind, **needing)
    with torch.no_grad():
        assert torch.equal(module.main.bind(**needing)(x), plain(x, **WEIGHTS))


def test_input_that_requires_grad_is_refused(bound):
    refused(ValueError, ["x requires grad"], bound, INPUTS[300].clone().requires_grad_())


def test_parameter_that_later_holds_other_memory_stays_as_it_was_bound():
    # Module.to gives a parameter other memory.
    changed = torch.ones(4000000)
    kept = saccade.compile(ADD).main.bind(w=changed)
    changed.data = torch.zeros(1)
    assert torch.equal(kept(torch.ones(4000000)), torch.full((4000000,), 2.0))
