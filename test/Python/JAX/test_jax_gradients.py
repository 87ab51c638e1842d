"""Gradients of saccade.jax.dot_product_attention against those of jax.nn.dot_product_attention."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi")

import jax.numpy as jnp

import saccade.jax

random = np.random.default_rng(0)
ours, theirs = saccade.jax.dot_product_attention, jax.nn.dot_product_attention


def array(*shape):
    return jnp.asarray(random.standard_normal(shape), jnp.float32)


q, k, v = array(2, 5, 4, 8), array(2, 7, 2, 8), array(2, 7, 2, 8)
empty_row = np.array(random.random((1, 1, 5, 7)) > 0.4)
empty_row[..., 2, :] = False
CALLS = {
    "plain": ((), {}),
    "causal": ((), {"is_causal": True}),
    "bias": ((array(1, 4, 5, 7),), {}),
    "bias of batches": ((array(2, 1, 5, 7),), {}),
    "bias of keys": ((array(1, 1, 1, 7),), {"is_causal": True}),
    "mask with an empty row": ((None, jnp.asarray(empty_row)), {}),
    "lengths": ((), {"query_seq_lengths": jnp.asarray([3, 5], jnp.int32),
                     "key_value_seq_lengths": jnp.asarray([4, 0], jnp.int32)}),
    "window": ((), {"local_window_size": (2, 1)}),
    "residual": ((), {"return_residual": True}),
}


def close(found, expected, tolerance=2e-5):
    found, expected = jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_jax(name):
    more, options = CALLS[name]
    floats = tuple(i for i, x in enumerate((q, k, v, *more)) if x is not None and x.dtype == jnp.float32)

    def loss(function, *arguments):
        results = function(*arguments, **options)
        return sum(jnp.sin(x).sum() for x in (results if isinstance(results, tuple) else (results,)))

    expected = jax.grad(functools.partial(loss, theirs), floats)(q, k, v, *more)
    close(jax.grad(functools.partial(loss, ours), floats)(q, k, v, *more), expected)
    close(jax.jit(jax.grad(functools.partial(loss, ours), floats))(q, k, v, *more), expected)


def test_gradients_of_the_scale_and_of_captured_arrays():
    def loss(function, scale):
        return jnp.sin(function(q, k, v, scale=scale)).sum()

    close(jax.grad(functools.partial(loss, ours))(jnp.float32(0.3)), jax.grad(functools.partial(loss, theirs))(jnp.float32(0.3)))
    distance = jnp.arange(5)[:, None] - jnp.arange(7)
    found = jax.grad(lambda x: jnp.sin(ours(q, k, v, score=lambda s, b, h, i, j: s + x[h] * (i - j))).sum())
    expected = jax.grad(lambda x: jnp.sin(theirs(q, k, v, x[None, :, None, None] * distance)).sum())
    slopes = array(4)
    close(found(slopes), expected(slopes), 1e-4)


TRANSFORMS = {
    "vmap of grad": lambda f: jax.vmap(jax.grad(f, (0, 1, 2))),
    "grad of vmap": lambda f: jax.grad(lambda *x: jax.vmap(f)(*x).sum(), (0, 1, 2)),
    "scan": lambda f: jax.grad(lambda *x: jax.lax.scan(lambda c, y: (c + f(*y), None), 0.0, x)[0], (0, 1, 2)),
    "remat": lambda f: jax.grad(lambda *x: jax.checkpoint(jax.vmap(f))(*x).sum(), (0, 1, 2)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    arrays = [jnp.stack([x, -x, 2 * x]) for x in (q, k, v)]
    found, expected = [TRANSFORMS[name](lambda q, k, v: jnp.sin(f(q, k, v, is_causal=True)).sum())(*arrays)
                       for f in (ours, theirs)]
    close(found, expected, 5e-5)


def test_what_is_not_supported_is_an_error():
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        jax.grad(lambda q: jax.grad(lambda q: jnp.sin(ours(q, k, v)).sum())(q).sum())(q)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_types(dtype):
    arrays = [x.astype(dtype) for x in (q, k, v)]
    found, expected = [jax.grad(lambda *x: f(*x, is_causal=True).astype(jnp.float32).sum(), (0, 1, 2))(*arrays)
                       for f in (ours, theirs)]
    assert all(x.dtype == dtype for x in found)
    close([x.astype(jnp.float32) for x in found], [x.astype(jnp.float32) for x in expected], 0.05)
