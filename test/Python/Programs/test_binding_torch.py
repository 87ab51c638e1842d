"""Weights and inputs may be torch tensors: results are, too, and the same to the bit."""

import threading

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


CONSTANT = ADD.replace("%w: tensor<4000000xf32>,", "%w: tensor<4000000xf32> {attn.constant},")


@pytest.mark.parametrize("text", [ADD, CONSTANT], ids=["read in place", "constant"])
def test_parameter_that_later_holds_other_memory_is_read_there(text):
    # Module.to gives a parameter other memory.
    changed = torch.ones(4000000)
    kept = saccade.compile(text).main.bind(w=changed)
    changed.data = torch.full((4000000,), 5.0)
    assert torch.equal(kept(torch.ones(4000000)), torch.full((4000000,), 6.0))
    changed.data = torch.zeros(1)
    refused(ValueError, ["w has shape (1,), expected (4000000,)"], kept, torch.ones(4000000))
    changed.data = torch.zeros(4000000, dtype=torch.float64)
    refused(TypeError, ["w has element type float64, expected float32"], kept, torch.ones(4000000))
    changed.data = torch.zeros(4000000)
    assert torch.equal(kept(torch.ones(4000000)), torch.ones(4000000))


@pytest.mark.parametrize("text", [ADD, CONSTANT], ids=["read in place", "constant"])
@pytest.mark.parametrize("size", [0, 4])
def test_freed_storage_is_refused_by_name_until_it_is_there_again(text, size):
    w = torch.ones(4000000)
    bound = saccade.compile(text).main.bind(w=w)
    w.untyped_storage().resize_(size)
    refused(ValueError, ["w has a storage of", "expected at least 16000000"], bound, torch.ones(4000000))
    w.untyped_storage().resize_(16000000)
    w.fill_(3)
    assert torch.equal(bound(torch.ones(4000000)), torch.full((4000000,), 4.0))


def test_every_weight_that_changes_in_place_changes_the_result(module, plain):
    own = {name: weight.clone() for name, weight in WEIGHTS.items()}
    bound, x = module.main.bind(**own), INPUTS[7]
    for weight in own.values():
        for write in (lambda w: w.mul_(-0.5), lambda w: w.view(-1)[3].add_(1), lambda w: w.detach().t_().add_(0.125)):
            write(weight)
            assert torch.equal(bound(x), plain(x, **own))


def test_weight_of_which_only_a_view_was_bound_is_seen_to_change(module, plain):
    own = {name: weight.clone() for name, weight in WEIGHTS.items()}
    bound, x = module.main.bind(**{name: weight[:] for name, weight in own.items()}), INPUTS[7]
    assert torch.equal(bound(x), plain(x, **own))
    own["w"].mul_(2)
    refused(ValueError, ["a bound tensor has changed", "no longer exists: bind or compile again"], bound, x)


def test_weight_that_changes_beside_packed_arrays_is_refused(module):
    own = {name: weight.clone() if name == "w" else weight.numpy() for name, weight in WEIGHTS.items()}
    bound = module.main.bind(**own)
    bound(INPUTS[7])
    own["w"].mul_(2)
    refused(ValueError, ["a bound tensor has changed", "bind or compile again"], bound, INPUTS[7])


def test_tensors_of_inference_mode_are_copied():
    with torch.inference_mode():
        w = torch.ones(4000000)
        bound = saccade.compile(ADD).main.bind(w=w)
        w.fill_(7)
        assert torch.equal(bound(torch.ones(4000000)), torch.full((4000000,), 2.0))


def test_threads_that_call_while_weights_change_get_the_old_or_the_new_result(module, plain):
    own, x = {name: weight.clone() for name, weight in WEIGHTS.items()}, INPUTS[7]
    bound, biases = module.main.bind(**own), [own["b"].clone(), own["b"] + 1]
    allowed = [plain(x, **{**own, "b": bias}) for bias in biases]
    wrong = []

    def work():
        for _ in range(50):
            found = bound(x)
            if not any(torch.equal(found, each) for each in allowed):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(20):
        own["b"].data = biases[step % 2].clone()
    for thread in threads:
        thread.join()
    assert not wrong
