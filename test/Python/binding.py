"""Weights are bound once: what depends on them alone is computed then, and by no call; results are equal to the bit.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import pickle
import sys
import threading

sys.path.append(sys.argv[1])

import numpy as np
from programs import refused
from weights_program import SHAPES, TEXT

import saccade
from saccade.function import Function

MARKED = TEXT.replace("{MARK}", " {attn.constant}")
random = np.random.default_rng(7)
weights = {name: random.standard_normal(shape).astype(np.float16 if name == "h" else np.float32)
           for name, shape in SHAPES.items()}  # fmt: skip
plain = saccade.compile(MARKED).main


def expected(x, w, t, h, u, v, b):
    product = x.astype(np.float64) @ w @ t.T @ h.astype(np.float64)
    return product @ np.concatenate([u, v], 1) + b


# --- the work is done once
calls = []
original = Function._run
Function._run = lambda self, described: (calls.append(self.name), original(self, described))[1]
module = saccade.compile(MARKED, prepack=True)
bound = module.main.bind(**weights)
assert calls == ["main__prepack"], calls
xs = [random.standard_normal((n, 24)).astype(np.float32) for n in (1, 3, 12, 200, 400, 1000)]
found = [bound(x) for x in xs]
assert calls == ["main__prepack"] + ["main"] * len(xs), calls
Function._run = original
assert [value.name for value in bound.inputs] == ["x"] and "x: tensor<?x24xf32>" in bound.signature
# ... and by no call: of what is only packed, transposed, cast and joined the function takes the outcome alone.
prepack, taken = module.main__prepack, {value.name for value in module.main.inputs}
assert {value.name for value in prepack.inputs} == {"w", "t", "h", "u", "v"}
assert not taken & {"t", "h", "u", "v"} and {value.name for value in prepack.results} <= taken, taken

# --- the same to the bit, in all forms
for x, y in zip(xs, found):
    wanted = plain(x, **weights)
    assert y.dtype == np.float32 and np.array_equal(y, wanted)
    exact = expected(x, **weights)
    assert np.linalg.norm(y - exact) < 1e-5 * np.linalg.norm(exact)
    assert np.array_equal(bound(x=x), wanted) and np.array_equal(bound(np.asfortranarray(x)), wanted)
    assert np.array_equal(bound(x[::-1])[::-1], wanted)
    out = np.full_like(wanted, np.nan)
    assert bound(x, out=out) is out and np.array_equal(out, wanted)
    out[:] = np.nan
    bound.into(x, out)
    assert np.array_equal(out, wanted)
    assert bound.result_shapes(x) == (wanted.shape,)
x, wanted = xs[3], found[3]
# Without the option the program is compiled again; weights may lie as they like.
strange = {name: np.repeat(np.asfortranarray(w), 2, 0)[::2] for name, w in weights.items()}
assert np.array_equal(saccade.compile(MARKED).main.bind(**strange)(x), wanted)
# They are packed now: what happens to those that were only packed does not matter.
mine = {name: w.copy() for name, w in weights.items()}
again = module.main.bind(**mine)
for name in "thuv":
    mine[name][:] = np.nan
assert np.array_equal(again(x), wanted)
# Other weights, other results, and each keeps its own.
other = module.main.bind(**{**weights, "h": -weights["h"]})
assert np.array_equal(other(x), plain(x, **{**weights, "h": -weights["h"]})) and np.array_equal(bound(x), wanted)
# Unmarked arguments are only fixed; so are some of them.
unmarked = saccade.compile(TEXT.replace("{MARK}", ""), prepack=True)
assert list(unmarked) == ["main"] and np.array_equal(unmarked.main.bind(**weights)(x), wanted)
some = module.main.bind(**{name: w for name, w in weights.items() if name != "b"})
assert [value.name for value in some.inputs] == ["x", "b"] and np.array_equal(some(x, weights["b"]), wanted)
# Calls at once.
results = [None] * 8
threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, bound(x))) for i in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert all(np.array_equal(each, wanted) for each in results)

# --- bad binds say what was found and wanted
bind, partial = module.main.bind, {name: w for name, w in weights.items() if name not in "th"}
refused(TypeError, ["main has no argument 'wq'; it has: ", "t"], bind, wq=weights["w"])
refused(TypeError, ["main has no argument 'w_prepacked'"], bind, **weights, w_prepacked=weights["w"])
refused(TypeError, ["main is bound without its constant arguments t, h"], bind, **partial)
for error, words, name, value in (
    (ValueError, "w has shape (24, 39), expected (24, 40)", "w", weights["w"][:, 1:]),
    (ValueError, "b has shape (47,), expected (48,)", "b", weights["b"][1:]),
    (TypeError, "b has 2 dimensions, expected 1", "b", weights["b"][None]),
    (TypeError, "h has element type float32, expected float16", "h", weights["h"].astype(np.float32)),
    (TypeError, "u is a list", "u", weights["u"].tolist()),
):
    refused(error, [words], bind, **{**weights, name: value})
refused(TypeError, ["main takes 1 arguments (x), found 2"], bound, x, x)
refused(TypeError, ["main has no argument 'w'; it has: x"], bound, x, w=weights["w"])
refused(TypeError, ["main already has bound arguments"], bound.bind, x=x)
refused(TypeError, ["TVM-FFI"], lambda: bound.tvm_ffi)
refused(TypeError, ["cannot be pickled"], pickle.dumps, bound)
# Whether a weight is long enough for a slice of it is asked in calls: nothing of it is read before.
short = saccade.compile("""
func.func @main(%w: tensor<?x40xf32> {attn.constant}, %x: tensor<2x4000000xf32>) -> tensor<2x40xf32> {
  %part = tensor.extract_slice %w[0, 0] [4000000, 40] [1, 1] : tensor<?x40xf32> to tensor<4000000x40xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x40xf32>) -> tensor<2x40xf32>
  %y = linalg.matmul ins(%x, %part : tensor<2x4000000xf32>, tensor<4000000x40xf32>) outs(%f : tensor<2x40xf32>)
      -> tensor<2x40xf32>
  return %y : tensor<2x40xf32>
}""", prepack=True)
assert list(short) == ["main"]
refused(ValueError, ["slice leaves its tensor in dimension 0: found 4000000, expected 2"],
        short.main.bind(w=np.ones((2, 40), np.float32)), np.zeros((2, 4000000), np.float32))
# Names of arguments are free.
own = saccade.compile("func.func @main(%self: tensor<4xf32>) -> tensor<4xf32> { return %self : tensor<4xf32> }").main
assert own.bind(self=np.ones(4, np.float32))().sum() == 4 == own(self=np.ones(4, np.float32)).sum()
assert own.result_shapes(self=np.ones(4, np.float32)) == ((4,),)
# What is passed by hand must lie as it was prepacked.
made = dict(zip((value.name for value in prepack.results), prepack(**{name: weights[name] for name in "wthuv"})))
direct = {**weights, **made}
direct = {value.name: direct[value.name] for value in module.main.inputs if value.name != "x"}
assert np.array_equal(module.main(x, **direct), wanted)
wide = np.repeat(direct["t_prepacked"], 2, -1)[..., ::2]
refused(ValueError, ["argument 't_prepacked' is not compact as returned by main__prepack", "found 64, expected 32"],
        module.main, x, **{**direct, "t_prepacked": wide})
