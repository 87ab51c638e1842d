"""Weights without a sum in saccade.jax.dot_product_attention, and their derivatives, against plain jax.numpy."""

import functools

import jax
import jax.numpy as jnp
import pytest

pytest.importorskip("jax_tvm_ffi")

import saccade.jax

NAMED = {"sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu, "relu_squared": lambda s: jax.nn.relu(s) ** 2}
KEYS = jax.random.split(jax.random.key(0), 8)
Q, K, V = (jax.random.normal(key, (2, length, heads, 16)) for key, length, heads in zip(KEYS, (7, 11, 11), (4, 2, 2)))
BIAS, GATES = jax.random.normal(KEYS[3], (1, 4, 7, 11)), jax.random.normal(KEYS[4], (4,))


def plain(q, k, v, weigh, bias=0.0, sees=True, scale=0.25):
    """Σ f(s) v over the visible keys, with all of Q·Kᵀ in memory."""
    k, v = (jnp.repeat(x, 2, 2) for x in (k, v))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * scale + bias
    return jnp.einsum("bhqk,bkhd->bqhd", jnp.where(jnp.tril(jnp.ones((7, 11), bool)) & sees, weigh(s), 0), v)


own = functools.partial(saccade.jax.dot_product_attention, is_causal=True)


def close(found, expected, tolerance=2e-5):
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert one.shape == other.shape
        assert jnp.linalg.norm(one - other) <= tolerance * jnp.linalg.norm(other)


@pytest.mark.parametrize("name", NAMED)
def test_named_normalizers_with_masks_and_lengths(name):
    lengths, mask = jnp.asarray([11, 4], jnp.int32), jnp.arange(11) != 0
    found = own(Q, K, V, mask=mask[None, None, None], key_value_seq_lengths=lengths, normalizer=name)
    close(found, plain(Q, K, V, NAMED[name], sees=mask & (jnp.arange(11) < lengths[:, None, None, None])))
    assert (found[:, 0] == 0).all()  # no key: not the mean of the values, as there is no sum
    inputs = [x.astype(jnp.bfloat16) for x in (Q, K, V)]
    close(jax.jit(functools.partial(own, normalizer=name))(*inputs).astype(jnp.float32),
          plain(*[x.astype(jnp.float32) for x in inputs], NAMED[name]), 2e-2)  # fmt: skip


def both_gated():
    """A normalizer that reads an array, with a bias: ours and the definition."""
    return (lambda q, k, v, bias, gates: own(q, k, v, bias, normalizer=lambda s, b, h, i, j: jax.nn.silu(s + gates[h])),
            lambda q, k, v, bias, gates: plain(q, k, v, lambda s: jax.nn.silu(s + gates[:, None, None]), bias))


ARGUMENTS = Q, K, V, BIAS, GATES
TANGENTS = tuple(jax.random.normal(key, x.shape) for key, x in zip(KEYS[3:], ARGUMENTS))


def test_derivatives_in_both_modes_with_a_captured_array():
    ours, theirs = both_gated()
    close(*[jax.jit(jax.grad(lambda *x, f=f: jnp.sin(f(*x)).sum(), range(5)))(*ARGUMENTS) for f in (ours, theirs)])
    close(*[jax.jit(lambda *t, f=f: jax.jvp(f, ARGUMENTS, t))(*TANGENTS) for f in (ours, theirs)])


def test_vmap_of_derivatives():
    ours, theirs = both_gated()
    stacked = jnp.stack([GATES, 2 * GATES])
    close(*[jax.vmap(jax.grad(lambda g, f=f: jnp.sin(f(*ARGUMENTS[:4], g)).sum()))(stacked) for f in (ours, theirs)])
    mapped = [lambda q, f=f: jax.jvp(lambda q: f(q, K, V), (q,), (q + 1,))
              for f in (functools.partial(own, normalizer="sigmoid"), lambda *x: plain(*x, jax.nn.sigmoid))]
    close(*[jax.vmap(f)(jnp.stack([Q, 2 * Q])) for f in mapped])


def test_the_gradient_of_the_scale_and_scores_before_the_normalizer():
    def ours(scale):
        return jnp.sin(own(Q, K, V, scale=scale, score=lambda s, b, h, i, j: s - (i - j), normalizer="silu")).sum()

    def theirs(scale):
        distance = jnp.arange(7)[:, None] - jnp.arange(11)
        return jnp.sin(plain(Q, K, V, jax.nn.silu, -distance, scale=scale)).sum()

    close(*[jax.grad(f)(jnp.float32(0.3)) for f in (ours, theirs)])


def test_softmax_is_the_default_and_what_is_refused():
    assert (own(Q, K, V, normalizer="softmax") == own(Q, K, V)).all()
    with pytest.raises(ValueError, match="return_residual is True, expected False: it belongs to the softmax"):
        own(Q, K, V, normalizer="silu", return_residual=True)
    with pytest.raises(ValueError, match="normalizer is 'gelu', expected one of 'softmax', 'sigmoid'"):
        own(Q, K, V, normalizer="gelu")
    with pytest.raises(ValueError, match="xla has no score and mask functions, and no normalizer"):
        own(Q, K, V, normalizer="silu", implementation="xla")
    with pytest.raises(TypeError, match="a call with a normalizer has query of int32"):
        own(*[x.astype(jnp.int32) for x in (Q, K, V)], normalizer="silu")
    with pytest.raises(saccade.TraceError, match="normalizer is a int, expected a function"):
        own(Q, K, V, normalizer=3)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        jax.hessian(lambda q: own(q, K, V, normalizer="silu").sum())(Q)


def test_stick_breaking_is_refused_by_name():
    x = jax.numpy.ones((1, 3, 2, 8))
    with pytest.raises(NotImplementedError, match="'stick_breaking', which saccade"):
        saccade.jax.dot_product_attention(x, x, x, normalizer="stick_breaking")
