"""A compiled function takes NumPy arrays as they lie in memory and gives new ones, or writes into those of the caller.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import sys

sys.path.append(sys.argv[1])

import numpy as np
import programs
from programs import expected_attention, refused

import saccade

random = np.random.default_rng(3)
attend = saccade.compile(programs.attention()).attend
q, k, v = random.standard_normal((3, 2, 3, 7, 16)).astype(np.float32)
first = np.empty_like(q)
attend.into(q, k, v, first)  # before anything else has seen an array
wanted = attend(q, k, v)
assert np.array_equal(first, wanted)
assert type(wanted) is np.ndarray and wanted.dtype == np.float32 and wanted.flags.c_contiguous
assert np.abs(wanted - expected_attention(q, k, v)).max() < 1e-5
assert "torch" not in sys.modules and "tvm_ffi" not in sys.modules, "NumPy arrays need neither"


def same(*inputs, **named):
    found = attend(*inputs, **named)
    assert np.array_equal(found, wanted), np.abs(found - wanted).max()


# --- any memory: transposed, sliced, backwards, sparse in memory, read-only, of subclasses, at no special address
same(np.asfortranarray(q), k.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0), np.repeat(v, 2, -1)[..., ::2])
same(q[::-1].copy()[::-1], np.flip(np.flip(k).copy()), v)
wide = np.full((2, 3, 9, 20), np.nan, np.float32)
wide[..., 1:8, 2:18] = k
same(q, wide[..., 1:8, 2:18], v)
frozen = [x.copy() for x in (q, k, v)]
for x in frozen:
    x.flags.writeable = False
same(*frozen)
same(np.frombuffer(q.tobytes(), np.float32).reshape(q.shape), k, v)
same(q.view(type("Mine", (np.ndarray,), {})), k, v)
expanded = np.broadcast_to(k[:1, :1], k.shape)
assert expanded.strides[:2] == (0, 0)
assert np.array_equal(attend(q, expanded, v), attend(q, expanded.copy(), v))
records = np.zeros((2, 3, 7, 16), [("a", "f4"), ("k", "f4")])
records["k"] = k
same(q, records["k"], v)
assert attend(q, k[:, :, :0], v[:, :, :0]).any() == False and attend(q[:, :, :0], k, v).shape == (2, 3, 0, 16)
assert attend(q[:0], k[:0], v[:0]).shape == (0, 3, 7, 16)

# --- types
for dtype, element, bound in ((np.float64, "f64", 1e-12), (np.float16, "f16", 3e-3)):
    arrays = [x.astype(dtype) for x in (q, k, v)]
    found = saccade.compile(programs.attention(element)).attend(*arrays)
    assert found.dtype == dtype and np.abs(found - expected_attention(*arrays)).max() < bound
brain = saccade.compile(programs.attention("bf16")).attend
try:
    import ml_dtypes
except ImportError:
    arrays = [x.astype(np.float16) for x in (q, k, v)]
    refused(TypeError, ["argument 'q'", "found element type f16, expected bf16"], brain, *arrays)
else:
    arrays = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    found = brain(*arrays)
    assert found.dtype == ml_dtypes.bfloat16 and np.abs(found - expected_attention(*arrays)).max() < 3e-2

# --- names, scalars, several results
capped = saccade.compile(programs.capped).capped
assert [value.name for value in capped.inputs] == ["q", "k", "v", "n", "cap", "strict"]
assert [value.dtype for value in capped.inputs[3:]] == ["int64", "float32", "bool"] and capped.inputs[3].shape is None
q1, k1, v1 = q[0, 0], k[0, 0], v[0, 0]
for n, cap, strict in ((5, 2.5, True), (np.int32(7), np.float32(0.5), np.bool_(False)), (np.array(3), 4, 1), (0, 1, 0)):
    output, lse = capped(q1, k1, v1, n, cap, strict)
    for found, expected in zip((output, lse), programs.expected_capped(q1, k1, v1, n, cap, strict)):
        assert found.dtype == np.float32 and np.allclose(found, expected, atol=1e-5), (n, cap, strict)
    for again in (capped(q1, strict=strict, v=v1, n=n, k=k1, cap=cap), capped(q1, k1, v1, n, cap=cap, strict=strict)):
        assert np.array_equal(again[0], output) and np.array_equal(again[1], lse)
assert capped.result_shapes(q1[:4], k1, v1, 5, 2.5, True) == ((4, 16), (4,))
assert capped.result_shapes(q1[:4], k=k1, v=v1, n=5, cap=2.5, strict=True) == ((4, 16), (4,))

refused(TypeError, ["capped takes 6 arguments", "missing: cap, strict"], capped, q1, k1, v1, 5)
refused(TypeError, ["capped has no argument 'm'", "q, k, v, n, cap, strict"], capped, q1, k1, v1, 5, 2.5, True, m=3)
refused(TypeError, ["two values for argument 'q'"], capped, q1, k1, v1, 5, 2.5, q=q1)
refused(TypeError, ["takes 6 arguments (q, k, v, n, cap, strict), found 7"], capped, q1, k1, v1, 5, 2.5, True, 1)
refused(TypeError, ["n is 5.0, expected an integer (index)"], capped, q1, k1, v1, 5.0, 2.5, True)
refused(TypeError, ["n is array([5]), expected an integer"], capped, q1, k1, v1, np.array([5]), 2.5, True)
refused(ValueError, ["n is 9223372036854775808, expected -9223372036854775808"], capped, q1, k1, v1, 2**63, 2.5, True)
refused(TypeError, ["cap is '2.5', expected a number (f32)"], capped, q1, k1, v1, 5, "2.5", True)
refused(ValueError, ["strict is 2, expected 0 ... 1 (i1)"], capped, q1, k1, v1, 5, 2.5, 2)

# --- out: memory of the caller's, with any strides
out = np.full_like(q, np.nan)
assert attend(q, k, v, out=out) is out
assert np.array_equal(out, wanted)
out = np.full((7, 2, 16, 3), np.nan, np.float32).transpose(1, 3, 0, 2)
same(q, k, v, out=out)
outs = (np.empty((7, 16), np.float32), np.empty(7, np.float32))
assert capped(q1, k1, v1, 5, 2.5, True, out=outs) is outs
assert np.array_equal(outs[0], capped(q1, k1, v1, 5, 2.5, True)[0])
into = np.empty_like(q)
assert attend.into(q, k, v, into) is None and np.array_equal(into, wanted)
outs[0].fill(np.nan)
for numbers in ((5, 2, True), (np.int32(5), np.float64(2), 1)):  # an int serves for a float, and not the other way round
    capped.into(q1, k1, v1, *numbers, *outs)
    assert np.array_equal(outs[0], capped(q1, k1, v1, 5, 2.0, True)[0]), numbers
refused(TypeError, ["n is 5.0, expected an integer (index)"], capped.into, q1, k1, v1, 5.0, 2.5, True, *outs)
refused(TypeError, ["found 5 arguments, expected 6 inputs"], capped.into, q1, k1, v1, 5, 2.5)
refused(TypeError, ["k is a list, expected"], attend.into, q, [1.0], v, into)
refused(TypeError, ["k has dtype >f4", "other byte order"], attend.into, q, k.astype(">f4"), v, into)
refused(ValueError, ["output is a read-only NumPy array"], attend.into, q, k, v, frozen[0])

refused(ValueError, ["result 'output'", "found extent 6 in dimension 2, expected 7"], attend, q, k, v, out=out[:, :, :6])
refused(TypeError, ["result 'output'", "element type f64, expected f32"], attend, q, k, v, out=out.astype(float))
refused(TypeError, ["out has 2 arrays, expected 1"], attend, q, k, v, out=outs)
refused(TypeError, ["out has 1 arrays, expected 2"], capped, q1, k1, v1, 5, 2.5, True, out=outs[0])
refused(TypeError, ["out[1] is a list"], capped, q1, k1, v1, 5, 2.5, True, out=(outs[0], []))
refused(ValueError, ["out is a read-only NumPy array"], attend, q, k, v, out=frozen[0])
refused(ValueError, ["overlap"], attend, q, k, v, out=q)

# --- the extents of a result may depend on what a tensor holds
filled = saccade.compile(programs.filled).filled
for length in (3, 3, 5, 0, 5):
    found = filled(np.array(length, np.int32), np.array(1.5, np.float32))
    assert found.shape == (length,) and (found == 1.5).all()
said = ["filled: result 'result' (tensor<?xf32>)", "negative extent -2"]
refused(ValueError, said, filled, np.array(-2, np.int32), np.array(1.5, np.float32))

# --- what the code refuses, in the words of the program
refused(ValueError, ["argument 'q'", "found extent 15 in dimension 3, expected 16"], attend, q[..., 1:], k, v)
refused(TypeError, ["argument 'k'", "found 3 dimensions, expected 4"], attend, q, k[0], v)
refused(TypeError, ["argument 'v'", "found element type i32, expected f32"], attend, q, k, v.astype(np.int32))
refused(ValueError, ["value", "found 6, expected 7"], attend, q, k, v[:, :, 1:])
refused(ValueError, ["value", "found 6, expected 7"], attend.result_shapes, q, k, v[:, :, 1:])
