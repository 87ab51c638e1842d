"""Weights are bound once: what depends on them alone is computed then, and by no call. Results are equal to the bit."""

import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
from programs import refused
from weights_program import SHAPES, TEXT

import saccade
from saccade import _arrays
from saccade.function import Function

MARKED = TEXT.replace("{MARK}", " {attn.constant}")
RANDOM = np.random.default_rng(7)
WEIGHTS = {name: RANDOM.standard_normal(shape).astype(np.float16 if name == "h" else np.float32)
           for name, shape in SHAPES.items()}  # fmt: skip
INPUTS = {rows: RANDOM.standard_normal((rows, 24)).astype(np.float32) for rows in (1, 3, 12, 200, 400, 1000)}
X = INPUTS[200]

every_input = pytest.mark.parametrize("x", INPUTS.values(), ids=[f"{rows} rows" for rows in INPUTS])


@pytest.fixture(scope="module")
def plain():
    """The program compiled without prepacking, whose calls take the weights."""
    return saccade.compile(MARKED).main


@pytest.fixture(scope="module")
def module():
    return saccade.compile(MARKED, prepack=True)


@pytest.fixture(scope="module")
def bound(module):
    return module.main.bind(**WEIGHTS)


@pytest.fixture(scope="module")
def expected(plain):
    """The result for X."""
    return plain(X, **WEIGHTS)


# --- The work is done once.


def test_binding_prepacks_once_and_calls_do_not(module, monkeypatch):
    calls = []
    original = Function._run
    monkeypatch.setattr(Function, "_run", lambda self, *given: (calls.append(self.name), original(self, *given))[1])
    bound = module.main.bind(**WEIGHTS)
    assert calls == ["main__prepack"]
    for x in INPUTS.values():
        bound(x)
    assert calls == ["main__prepack"] + ["main"] * len(INPUTS)


def test_bound_function_takes_the_other_inputs(bound):
    assert [value.name for value in bound.inputs] == ["x"]
    assert "x: tensor<?x24xf32>" in bound.signature


def test_function_takes_the_outcome_alone_of_weights_that_are_only_prepacked(module):
    # They are packed, transposed, cast and joined.
    prepack, taken = module.main__prepack, {value.name for value in module.main.inputs}
    assert {value.name for value in prepack.inputs} == {"w", "t", "h", "u", "v"}
    assert not taken & {"t", "h", "u", "v"}
    assert {value.name for value in prepack.results} <= taken


# --- The same to the bit, in all forms.


@every_input
def test_result_is_the_same_to_the_bit(bound, plain, x):
    found = bound(x)
    assert found.dtype == np.float32
    assert np.array_equal(found, plain(x, **WEIGHTS))


@every_input
def test_result_agrees_with_float64(bound, x):
    w, t, h, u, v, b = (WEIGHTS[name] for name in "wthuvb")
    exact = x.astype(np.float64) @ w @ t.T @ h.astype(np.float64) @ np.concatenate([u, v], 1) + b
    assert np.linalg.norm(bound(x) - exact) < 1e-5 * np.linalg.norm(exact)


@every_input
def test_input_is_taken_by_name_and_in_any_order_in_memory(bound, plain, x):
    expected = plain(x, **WEIGHTS)
    assert np.array_equal(bound(x=x), expected)
    assert np.array_equal(bound(np.asfortranarray(x)), expected)
    assert np.array_equal(bound(x[::-1])[::-1], expected)


@every_input
def test_result_is_written_by_out_and_into(bound, plain, x):
    expected = plain(x, **WEIGHTS)
    out = np.full_like(expected, np.nan)
    assert bound(x, out=out) is out
    assert np.array_equal(out, expected)
    out[:] = np.nan
    bound.into(x, out)
    assert np.array_equal(out, expected)


@every_input
def test_result_shapes_are_known_before_the_call(bound, x):
    assert bound.result_shapes(x) == ((len(x), 48),)


def test_bind_without_prepack_compiles_again_and_takes_any_memory(expected):
    strange = {name: np.repeat(np.asfortranarray(w), 2, 0)[::2] for name, w in WEIGHTS.items()}
    assert np.array_equal(saccade.compile(MARKED).main.bind(**strange)(X), expected)


def test_weights_that_were_only_packed_may_change_afterwards(module, expected):
    own = {name: w.copy() for name, w in WEIGHTS.items()}
    again = module.main.bind(**own)
    for name in "thuv":
        own[name][:] = np.nan
    assert np.array_equal(again(X), expected)


def test_arrays_are_not_kept_and_may_change_afterwards(module, expected):
    own = {name: w.copy() for name, w in WEIGHTS.items()}
    alive = {name: weakref.ref(w) for name, w in own.items()}
    bound = module.main.bind(**own)
    for w in own.values():
        w[:] = np.nan
    del own, w
    gc.collect()
    assert not [name for name, w in alive.items() if w() is not None]
    assert np.array_equal(bound(X), expected)


def test_each_binding_keeps_its_own_weights(module, bound, plain, expected):
    others = {**WEIGHTS, "h": -WEIGHTS["h"]}
    other = module.main.bind(**others)
    assert np.array_equal(other(X), plain(X, **others))
    assert np.array_equal(bound(X), expected)


def test_unmarked_arguments_are_bound_without_prepacking(expected):
    unmarked = saccade.compile(TEXT.replace("{MARK}", ""), prepack=True)
    assert list(unmarked) == ["main"]
    assert np.array_equal(unmarked.main.bind(**WEIGHTS)(X), expected)


def test_argument_that_is_not_prepacked_may_stay_unbound(module, expected):
    some = module.main.bind(**{name: w for name, w in WEIGHTS.items() if name != "b"})
    assert [value.name for value in some.inputs] == ["x", "b"]
    assert np.array_equal(some(X, WEIGHTS["b"]), expected)


def test_calls_at_once(bound, expected):
    results = [None] * 8
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, bound(X))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(each, expected) for each in results)


# --- What is refused.


def test_a_call_does_not_change_the_arguments_of_another():
    """Calls of one bound function share its encoded arguments."""
    shared = _arrays.EncodedValues([1, 2, 3])
    shared.fill([0], [9])
    assert list(shared.fill([2], [7])) == list(_arrays.encode_values([1, 2, 7]))


def test_unknown_and_missing_names_are_refused(module):
    bind, partial = module.main.bind, {name: w for name, w in WEIGHTS.items() if name not in "th"}
    refused(TypeError, ["main has no argument 'wq'; it has: ", "t"], bind, wq=WEIGHTS["w"])
    refused(TypeError, ["main has no argument 'w_prepacked'"], bind, **WEIGHTS, w_prepacked=WEIGHTS["w"])
    refused(TypeError, ["main is bound without its constant arguments t, h"], bind, **partial)


@pytest.mark.parametrize(("error", "words", "name", "value"), [
    (ValueError, "w has shape (24, 39), expected (24, 40)", "w", WEIGHTS["w"][:, 1:]),
    (ValueError, "b has shape (47,), expected (48,)", "b", WEIGHTS["b"][1:]),
    (TypeError, "b has 2 dimensions, expected 1", "b", WEIGHTS["b"][None]),
    (TypeError, "h has element type float32, expected float16", "h", WEIGHTS["h"].astype(np.float32)),
    (TypeError, "u is a list", "u", WEIGHTS["u"].tolist()),
], ids=["shape", "length", "dimensions", "type", "list"])  # fmt: skip
def test_wrong_weight_is_refused(module, error, words, name, value):
    refused(error, [words], module.main.bind, **{**WEIGHTS, name: value})


def test_wrong_calls_of_a_bound_function_are_refused(bound):
    refused(TypeError, ["main takes 1 arguments (x), found 2"], bound, X, X)
    refused(TypeError, ["main has no argument 'w'; it has: x"], bound, X, w=WEIGHTS["w"])


def test_what_bound_functions_do_not_support_is_refused(bound):
    refused(TypeError, ["main already has bound arguments"], bound.bind, x=X)
    refused(TypeError, ["TVM-FFI"], lambda: bound.tvm_ffi)
    refused(TypeError, ["cannot be pickled"], pickle.dumps, bound)


SLICED = """
func.func @main(%w: tensor<?x40xf32> {attn.constant}, %x: tensor<2x4000000xf32>) -> tensor<2x40xf32> {
  %part = tensor.extract_slice %w[0, 0] [4000000, 40] [1, 1] : tensor<?x40xf32> to tensor<4000000x40xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x40xf32>) -> tensor<2x40xf32>
  %y = linalg.matmul ins(%x, %part : tensor<2x4000000xf32>, tensor<4000000x40xf32>) outs(%f : tensor<2x40xf32>)
      -> tensor<2x40xf32>
  return %y : tensor<2x40xf32>
}"""


def test_calls_check_that_a_weight_is_long_enough_for_a_slice():
    # Nothing of it is read before.
    short = saccade.compile(SLICED, prepack=True)
    assert list(short) == ["main"]
    refused(ValueError, ["slice leaves its tensor in dimension 0: found 4000000, expected 2"],
            short.main.bind(w=np.ones((2, 40), np.float32)), np.zeros((2, 4000000), np.float32))  # fmt: skip


def test_arguments_may_have_any_name():
    text = "func.func @main(%self: tensor<4xf32>) -> tensor<4xf32> { return %self : tensor<4xf32> }"
    own = saccade.compile(text).main
    assert own.bind(self=np.ones(4, np.float32))().sum() == 4
    assert own(self=np.ones(4, np.float32)).sum() == 4
    assert own.result_shapes(self=np.ones(4, np.float32)) == ((4,),)


# --- What main__prepack returns may be passed by hand, as it lies.


@pytest.fixture(scope="module")
def by_hand(module):
    prepack = module.main__prepack
    prepacked = prepack(**{name: WEIGHTS[name] for name in "wthuv"})
    given = {**WEIGHTS, **dict(zip((value.name for value in prepack.results), prepacked))}
    return {value.name: given[value.name] for value in module.main.inputs if value.name != "x"}


def test_prepacked_weights_are_taken(module, by_hand, expected):
    assert np.array_equal(module.main(X, **by_hand), expected)


def test_prepacked_weight_that_lies_otherwise_is_refused(module, by_hand):
    compact = by_hand["t_prepacked"]
    wide = np.repeat(compact, 2, -1)[..., ::2]
    width = compact.shape[-1]  # two registers of the processor
    words = ["argument 't_prepacked' is not compact as returned by main__prepack", f"found {2 * width}, expected {width}"]
    refused(ValueError, words, module.main, X, **{**by_hand, "t_prepacked": wide})


def test_integers_are_bound_with_or_without_a_sign():
    text = "func.func @main(%w: tensor<4xi8>) -> tensor<4xi8> { return %w : tensor<4xi8> }"
    main = saccade.compile(text).main
    for dtype in (np.int8, np.uint8):
        assert main.bind(w=np.array([1, 2, 3, 127], dtype))().tolist() == [1, 2, 3, 127]
    for dtype in (np.int16, np.uint16, np.bool_):
        refused(TypeError, [f"w has element type {np.dtype(dtype).name}, expected int8"], main.bind, w=np.ones(4, dtype))
