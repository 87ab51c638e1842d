"""Every op that is translated from StableHLO computes what it does in JAX: elementwise ops, shapes, slices, reductions,
products, gathers, branches and loops, also for extents of 0 and 1 and for tensors of rank 0.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax import lax

import saccade.jax

rng = np.random.default_rng(0)


def real(*shape, dtype=np.float32):
    return jnp.asarray(rng.standard_normal(shape), dtype)


def integer(*shape, low=-9, high=9):
    return jnp.asarray(rng.integers(low, high, shape), jnp.int32)


def tolerance(dtype):
    return {"bfloat16": 2e-2, "float16": 4e-3, "float64": 1e-12}.get(np.dtype(dtype).name, 3e-5)


def compare(name, found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"{name}: shape {found.shape}, expected {expected.shape}"
    assert found.dtype == expected.dtype, f"{name}: {found.dtype}, expected {expected.dtype}"
    if expected.dtype.kind in "iub":
        assert (found == expected).all(), f"{name}: {found}\nexpected {expected}"
        return
    limit = tolerance(expected.dtype)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    assert np.allclose(found, expected, rtol=limit, atol=limit, equal_nan=True), f"{name}: {found}\nexpected {expected}"


UNARY = {
    "abs": jnp.abs, "negate": jnp.negative, "exp": jnp.exp, "expm1": jnp.expm1, "tanh": jnp.tanh, "sin": jnp.sin,
    "cos": jnp.cos, "floor": jnp.floor, "ceil": jnp.ceil, "sign": jnp.sign, "logistic": lax.logistic, "erf": lax.erf,
    "erfc": lax.erfc, "round even": jnp.round, "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "log": lambda x: jnp.log(jnp.abs(x) + 0.1), "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x)),
    "rsqrt": lambda x: lax.rsqrt(jnp.abs(x) + 0.1), "cbrt": jnp.cbrt, "tan": lambda x: jnp.tan(x / 4),
    "square": jnp.square,
    "cube": lambda x: x ** 3, "power": lambda x: jnp.abs(x) ** 1.7,
    "is finite": lambda x: jnp.isfinite(1 / jnp.floor(x)),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False), "gelu by tanh": jax.nn.gelu, "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus, "clamp": lambda x: jnp.clip(x, -0.5, 0.7),
    "to int": lambda x: (x * 4).astype(jnp.int32),
    "to bool": lambda x: jnp.floor(x).astype(bool), "to bf16": lambda x: x.astype(jnp.bfloat16),
    "precision": lambda x: lax.reduce_precision(x, 8, 7),
}
PAIRS = {
    "add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply, "divide": jnp.divide, "maximum": jnp.maximum,
    "minimum": jnp.minimum, "less": jnp.less, "less or equal": jnp.less_equal, "greater": jnp.greater,
    "equal": jnp.equal,
    "not equal": jnp.not_equal, "where": lambda x, y: jnp.where(x > y, x, 2.0), "atan2": jnp.arctan2,
    "broadcast": lambda x, y: x + y[:1], "remainder": lambda x, y: lax.rem(x, jnp.abs(y) + 0.5),
    "modulo": lambda x, y: jnp.mod(x, jnp.abs(y) + 0.5),
}
INTEGERS = {
    "add": lambda x, y: x + y, "divide": lambda x, y: lax.div(x, y), "remainder": lambda x, y: lax.rem(x, y),
    "floor divide": lambda x, y: x // y, "modulo": lambda x, y: x % y, "and": lambda x, y: x & y,
    "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y, "not": lambda x, y: ~x,
    "shift left": lambda x, y: x << jnp.abs(y),
    "shift right": lambda x, y: x >> jnp.abs(y), "logical": lambda x, y: lax.shift_right_logical(x, jnp.abs(y)),
    "maximum": jnp.maximum, "sign": lambda x, y: jnp.sign(x), "abs": lambda x, y: jnp.abs(x),
    "to float": lambda x, y: x.astype(jnp.float32) / 3, "to i8": lambda x, y: x.astype(jnp.int8),
    "flags": lambda x, y: ((x > 0) & (y > 0)) | ~(x > y) ^ (x == y), "flags compared": lambda x, y: (x > 0) > (y > 0),
    "clamp": lambda x, y: jnp.clip(x, -2, 3),
}
# What processors and LLVM leave open: division by 0, shifts by the width and more, numbers that integers do not hold.
EDGES = {
    "divide": lax.div, "remainder": lax.rem, "shift left": lax.shift_left, "shift right": lax.shift_right_arithmetic,
    "logical": lax.shift_right_logical, "divide by none": lambda x, y: lax.div(x, jnp.zeros_like(x)),
    "remainder by none": lambda x, y: lax.rem(x, jnp.zeros_like(x)),
    "shift far": lambda x, y: x << 40, "shift right far": lambda x, y: x >> 40,
}
TO_INTEGERS = {
    "i8": lambda x: x.astype(jnp.int8), "i16": lambda x: x.astype(jnp.int16), "i32": lambda x: x.astype(jnp.int32),
    "flags": lambda x: x.astype(bool), "bf16": lambda x: x.astype(jnp.bfloat16).astype(jnp.int32),
    "f16": lambda x: x.astype(jnp.float16).astype(jnp.int8),
}
SHAPES = {
    "reshape": lambda x: x.reshape(-1, x.shape[-1]), "flat": lambda x: x.reshape(-1),
    "transpose": lambda x: x.transpose(2, 0, 1),
    "swap": lambda x: jnp.swapaxes(x, 0, 2), "expand": lambda x: x[:, None, :, :, None],
    "squeeze": lambda x: x[:, :, None].squeeze(2),
    "broadcast": lambda x: jnp.broadcast_to(x, (2, *x.shape)),
    "broadcast inside": lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], 3, *x.shape[1:])),
    "row": lambda x: jnp.broadcast_to(x[:, :1], x.shape) + x, "tile": lambda x: jnp.tile(x, (1, 2, 1)),
    "repeat": lambda x: jnp.repeat(x, 2, axis=1),
    "slice": lambda x: x[:, 1:, ::2], "reverse": lambda x: x[:, ::-1, ::-1],
    "concatenate": lambda x: jnp.concatenate([x, x * 2, x[:, :1]], axis=1),
    "stack": lambda x: jnp.stack([x, -x], axis=1), "split": lambda x: jnp.split(x, 2, axis=2),
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=7),
    "crop": lambda x: lax.pad(x, jnp.float32(0), ((0, 0, 0), (-1, 1, 0), (0, -1, 0))),
    "roll": lambda x: jnp.roll(x, 1, axis=1),
    "iota": lambda x: x + jnp.arange(x.shape[-1], dtype=jnp.float32), "tril": lambda x: jnp.tril(x),
    "triu": lambda x: jnp.triu(x, 1),
    "eye": lambda x: jnp.eye(9, dtype=jnp.float32), "full": lambda x: jnp.full((9, 9), 3.5),
    "zeros like": jnp.zeros_like,
    "scalar": lambda x: jnp.float32(2) * 3, "identity": lambda x: x, "barrier": lax.optimization_barrier,
}
REDUCTIONS = {
    "sum": lambda x: x.sum(-1), "sum of all": jnp.sum, "sum of two": lambda x: x.sum((0, 2)),
    "kept": lambda x: x.sum(1, keepdims=True),
    "mean": lambda x: x.mean(-1), "max": lambda x: x.max(-1, initial=-9), "min": lambda x: x.min(1, initial=9),
    "product": lambda x: x.prod(-1),
    "any": lambda x: (x > 1).any(-1), "all": lambda x: (x > -2).all(1), "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "cumsum": lambda x: jnp.cumsum(x, axis=1), "reversed cumsum": lambda x: lax.cumsum(x, axis=2, reverse=True),
    "bf16": lambda x: x.astype(jnp.bfloat16).sum(-1), "integers": lambda x: (x * 4).astype(jnp.int32).sum(-1),
}
ORDERED = {
    "softmax": lambda x: jax.nn.softmax(x), "log softmax": lambda x: jax.nn.log_softmax(x, axis=1),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "argmax": lambda x: jnp.argmax(x, axis=-1), "argmin": lambda x: jnp.argmin(x, axis=1), "max": lambda x: x.max(-1),
    "norm": lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5),
    "started": lambda x: lax.reduce(x, x[0, 0, 0], lax.add, (2,)),
    "two": lambda x: lax.reduce((x, -x), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (2,)),
}
DOTS = {
    "matrices": lambda x, y: x @ y.swapaxes(1, 2), "batched": lambda x, y: jnp.einsum("bid,bjd->bij", x, y),
    "batch behind": lambda x, y: jnp.einsum("bid,bjd->ijb", x, y),
    "outer": lambda x, y: jnp.einsum("bid,cjd->bicj", x, y),
    "two contracted": lambda x, y: jnp.einsum("bid,bid->b", x, y), "vector": lambda x, y: x @ y[0, 0],
    "scalars": lambda x, y: jnp.tensordot(x, y, 3),
    "no sum": lambda x, y: jnp.einsum("bid,bid->bid", x, y),
    "bf16": lambda x, y: jnp.einsum("bid,bjd->bij", x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)),
    "bf16 to f32": lambda x, y: jnp.einsum("bid,bjd->bij", x.astype(jnp.bfloat16), y.astype(jnp.bfloat16),
                                           preferred_element_type=jnp.float32),
    "integers": lambda x, y: jnp.einsum("bid,bjd->bij", (x * 4).astype(jnp.int32), (y * 4).astype(jnp.int32)),
}
LOOKUPS = {
    "take": lambda x, i: jnp.take(x, i, axis=0), "clipped": lambda x, i: jnp.take(x, i, axis=1, mode="clip"),
    "index": lambda x, i: x[i],
    "pair": lambda x, i: x[i, jnp.abs(i) % 3], "behind": lambda x, i: x[:, i], "one": lambda x, i: x[i[0, 0]],
    "along": lambda x, i: jnp.take_along_axis(x, jnp.abs(i[0])[None, :, None] % 4, axis=1),
    "constant": lambda x, i: x[jnp.array([1, 0, 1])],
    "dynamic slice": lambda x, i: lax.dynamic_slice(x, (i[0, 0], 1, 0), (2, 2, 3)),
    "index in": lambda x, i: lax.dynamic_index_in_dim(x, i[0, 1], axis=1),
    "window": lambda x, i: lax.dynamic_slice_in_dim(x, i[1, 1], 2, axis=2),
    "update": lambda x, i: lax.dynamic_update_slice(x, x[:1, :2] * 2, (i[0, 0], i[0, 1], 0)),
    "cache": lambda x, i: lax.dynamic_update_slice_in_dim(x, jnp.ones((4, 1, 5)), 2, axis=1),
    "one hot": lambda x, i: jax.nn.one_hot(i, 5),
}


def layers(x, w):
    return lax.scan(lambda c, wi: (jnp.tanh(c @ wi), c.sum()), x, w)


CONTROL = {
    "scan": lambda x, p, w: layers(x, w), "for": lambda x, p, w: lax.fori_loop(0, 4, lambda i, c: c * 2 + i, x),
    "cond": lambda x, p, w: lax.cond(p, lambda y: y * 2, lambda y: y + 1, x),
    "known": lambda x, p, w: lax.cond(True, jnp.sin, jnp.cos, x),
    "switch": lambda x, p, w: lax.switch(p.astype(jnp.int32) * 2, [jnp.sin, jnp.cos, jnp.tanh], x),
    "while": lambda x, p, w: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1],
    "map": lambda x, p, w: lax.map(lambda row: row.sum() * row, x),
    "vmap": lambda x, p, w: jax.vmap(lambda row: jnp.outer(row, row))(x),
    "nested": lambda x, p, w: jax.jit(lambda y: jax.jit(jnp.sin)(y) + jax.jit(jnp.sin)(y * 2))(x),
}
IMAGES = {
    "patches": lambda x, w: lax.conv_general_dilated(x, w, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    "channels first": lambda x, w: lax.conv_general_dilated(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (4, 4),
                                                            "VALID"),
    "same": lambda x, w: lax.conv_general_dilated(x, w, (2, 1), "SAME", rhs_dilation=(1, 2),
                                                  dimension_numbers=("NHWC", "HWIO", "NHWC")),
    "groups": lambda x, w: lax.conv_general_dilated(jnp.concatenate([x, -x], 3), jnp.concatenate([w, w * 2], 3), (3, 2),
                                                    [(1, 2), (0, 3)], dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                                    feature_group_count=2),
}


def some(functions, names):
    return {name: functions[name] for name in names.split(", ")}


numerators, denominators = (each.reshape(-1) for each in jnp.meshgrid(
    jnp.asarray([-2**31, -7, -1, 0, 1, 9, 2**31 - 1], jnp.int32),
    jnp.asarray([-1, 0, 1, 3, 31, 32, 40, -2**31], jnp.int32)))  # fmt: skip
edges = np.float32([np.nan, np.inf, 1e20, 2**31, 2**31 - 128, 40000, 128, 127.5, 0.7, -128.9, -129])

# All functions of a group are compiled as one: its functions and their arguments.
GROUPS = {
    "one number": (UNARY, real(5, 7) * 2),
    "one bf16": (some(UNARY, "exp, tanh, erf, gelu, silu, rsqrt, abs"), real(5, 7, dtype=jnp.bfloat16)),
    "two numbers": (PAIRS, real(5, 7), real(5, 7)),
    "no numbers": (some(PAIRS, "add, less, where"), real(0, 7), real(0, 7)),
    "integers": (INTEGERS, integer(5, 7), integer(5, 7, low=1)),
    "edges": (EDGES, numerators, denominators),
    "edges of i8": (EDGES, numerators.astype(jnp.int8), denominators.astype(jnp.int8)),
    "to integers": (TO_INTEGERS, jnp.asarray([*edges, *-edges])),
    "shapes": (SHAPES, real(3, 4, 6)),
    "reductions": (REDUCTIONS, real(3, 4, 5)),
    "reductions of nothing": (some(REDUCTIONS, "sum, sum of all, max, product, any, all"), real(3, 4, 0)),
    "orders": (ORDERED, real(3, 4, 5)),
    "products": (DOTS, real(3, 4, 5), real(3, 4, 5)),
    "products of nothing": (some(DOTS, "batched, outer, two contracted"), real(2, 3, 0), real(2, 3, 0)),
    "gathers": (LOOKUPS, real(4, 4, 5), jnp.asarray([[1, 3], [0, 2]], jnp.int32)),
    "gathers outside": (some(LOOKUPS, "take, clipped, index, dynamic slice, update"), real(4, 4, 5),
                        jnp.asarray([[-1, 9], [-7, 4]], jnp.int32)),
    "control, true": (CONTROL, real(3, 3), jnp.asarray(True), real(2, 3, 3)),
    "control, false": (CONTROL, real(3, 3), jnp.asarray(False), real(2, 3, 3)),
    "images": (IMAGES, real(2, 8, 12, 3), real(4, 4, 3, 5)),
}


@pytest.mark.parametrize("group", GROUPS)
def test_group_agrees_with_jax(group):
    functions, *args = GROUPS[group]

    def whole(*given):
        return {name: functions[name](*given) for name in functions}

    found = saccade.jax.compile(whole, *args)(*args)
    expected = jax.jit(whole)(*args)
    for name in functions:
        jax.tree_util.tree_map(lambda f, e: compare(name, f, e), found[name], expected[name])


def test_relative_error_of_erfc_is_small_however_small_erfc_is():
    x = jnp.linspace(-4, 9, 400, dtype=jnp.float32)
    ours, jaxs = saccade.jax.compile(lax.erfc, x)(x), lax.erfc(x)
    np.testing.assert_allclose(ours, jaxs, rtol=4e-6, atol=0)
