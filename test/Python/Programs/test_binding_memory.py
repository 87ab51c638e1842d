"""Prepacked weights are those of their binding: other weights in the same memory are packed anew."""

import numpy as np
import pytest
from constant_weights import PROGRAM

import saccade

RAND = np.random.default_rng(0)
X = RAND.standard_normal((3, 64), np.float32)


@pytest.fixture(scope="module", params=[True, False], ids=["prepack", "plain"])
def main(request):
    return saccade.compile(PROGRAM, prepack=request.param).main


def expect_product(bound, weight):
    np.testing.assert_allclose(bound(X), X @ weight, rtol=1e-4, atol=1e-4)


def test_weights_that_change_in_place_are_prepared_anew(main):
    weight = RAND.standard_normal((64, 64), np.float32)
    first = weight.copy()
    expect_product(main.bind(w=weight), first)
    for _ in range(3):
        weight[:] = RAND.standard_normal((64, 64), np.float32)
        expect_product(main.bind(w=weight), weight)
    weight[5, 7] += 1  # one element
    expect_product(main.bind(w=weight), weight)


def test_weights_at_the_address_of_freed_ones_are_prepared_anew(main):
    memory, seen = np.empty(64 * 64 + 16, np.float32), set()
    for i in range(4):
        # The array of the last round is gone; the new one has its address.
        weight = np.frombuffer(memory.data, np.float32, 64 * 64).reshape(64, 64)
        weight[:] = RAND.standard_normal((64, 64), np.float32)
        seen.add(weight.ctypes.data)
        expect_product(main.bind(w=weight), weight)
        del weight
    assert len(seen) == 1


def test_bindings_keep_their_own_weights(main):
    weights = [RAND.standard_normal((64, 64), np.float32) for _ in range(3)]
    bound = [main.bind(w=each) for each in weights]
    for own, weight in zip(bound, weights):
        expect_product(own, weight)


def test_weights_given_at_each_call_may_change_between_calls():
    main = saccade.compile(PROGRAM).main
    weight = RAND.standard_normal((64, 64), np.float32)
    for _ in range(3):
        np.testing.assert_allclose(main(X, weight), X @ weight, rtol=1e-4, atol=1e-4)
        weight *= -0.5


def test_module_of_torch_compiles_with_the_weights_that_it_has():
    torch = pytest.importorskip("torch")
    import saccade.torch

    module = torch.nn.Linear(64, 64, bias=False)
    x = torch.tensor(X)
    for _ in range(3):
        compiled = saccade.torch.compile(module, (x,))
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            module.weight.mul_(-0.5).add_(0.125)
