"""Attention as programs in JAX write it becomes one attention and computes what JAX does, in f32 and bf16, and with
open lengths.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax import export

import saccade.jax

rng = np.random.default_rng(0)


def real(*shape):
    return jnp.asarray(rng.standard_normal(shape), jnp.float32)


def weigh(s, v):
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def causal(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    return weigh(jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf), v)


def padded(q, k, v, flags):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.25
    return weigh(s + (1.0 - flags[:, None, None, :].astype(s.dtype)) * -1e9, v)


def capped(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q * 0.25, k)
    return weigh(5 * jnp.tanh(s / 5), v)


def alibi(q, k, v):
    distance = jnp.arange(k.shape[2])[None, :] - jnp.arange(q.shape[2])[:, None]
    slopes = jnp.exp2(-jnp.arange(1, q.shape[1] + 1, dtype=jnp.float32))
    return weigh(jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.25 + slopes[:, None, None] * distance, v)


def by_hand(q, k, v):
    s = q @ jnp.swapaxes(k, -1, -2) * 0.25
    e = jnp.exp(s - jnp.max(s, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True) @ v


def mapped(q, k, v):
    one = lambda a, b, c: jax.nn.softmax(a @ b.T * 0.25) @ c
    return jax.vmap(jax.vmap(one))(q, k, v)


def ready(**options):
    """JAX's own function, its heads behind the sequence."""
    return lambda q, k, v, *more: jax.nn.dot_product_attention(q, k, v, *more, **options)


Q, K = real(2, 4, 21, 16), real(2, 4, 33, 16)
SQUARE, ROWS, FEW = real(2, 4, 33, 16), real(2, 33, 4, 16), real(2, 33, 2, 16)
FLAGS = jnp.arange(33)[None] < jnp.asarray([[33], [20]])
LENGTHS = jnp.asarray([20, 33], jnp.int32)
CASES = {
    "causal": (causal, SQUARE, SQUARE, SQUARE), "padded": (padded, Q, K, K, FLAGS), "capped": (capped, Q, K, K),
    "alibi": (alibi, Q, K, K),
    "by hand": (by_hand, Q, K, K), "mapped": (mapped, Q, K, K), "ready": (ready(), ROWS, ROWS, ROWS),
    "ready, causal": (ready(is_causal=True), ROWS, ROWS, ROWS),
    "grouped": (ready(), ROWS, FEW, FEW), "grouped, causal": (ready(is_causal=True), ROWS, FEW, FEW),
    "window": (ready(is_causal=True, local_window_size=(4, 0)), ROWS, FEW, FEW),
    "window on both sides": (ready(local_window_size=(4, 3)), ROWS, ROWS, ROWS),
    "bias": (ready(), ROWS, ROWS, ROWS, real(2, 4, 33, 33)),
    "lengths": (lambda q, k, v, n: jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=n), ROWS, ROWS, ROWS,
                LENGTHS),
    "lengths of queries": (lambda q, k, v,
                           n: jax.nn.dot_product_attention(q, k, v, query_seq_lengths=n, key_value_seq_lengths=n), ROWS,
                           ROWS, ROWS, LENGTHS),
    "mask": (lambda q, k, v, m: jax.nn.dot_product_attention(q, k, v, mask=m), ROWS, ROWS, ROWS,
             FLAGS[:, None, None, :]),
}
b, n, m = export.symbolic_shape("b,n,m")


def spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


OPEN = {
    "causal": (causal, [SQUARE] * 3, [spec(b, 4, n, 16)] * 3),
    "padded": (padded, [Q, K, K, FLAGS],
               [spec(b, 4, n, 16), *[spec(b, 4, m, 16)] * 2, spec(b, m, dtype=jnp.bool_)]),
    "grouped": (ready(is_causal=True), [ROWS, FEW, FEW], [spec(b, n, 4, 16), *[spec(b, n, 2, 16)] * 2]),
}


def check(f, args, examples=None, limit=2e-6):
    """One attention, whose result agrees with JAX's in f32."""
    compiled = saccade.jax.compile(f, *(examples or args))
    count = compiled.module.ir("transforms").count("= attn.attention")
    assert count == 1, f"{count} attentions\n{compiled.module.explain()}"
    found, expected = compiled(*args), f(*[a.astype(jnp.float32) if a.dtype == jnp.bfloat16 else a for a in args])
    assert isinstance(found, jax.Array)
    assert found.dtype == args[0].dtype
    error = np.linalg.norm(np.float32(found) - np.float32(expected)) / np.linalg.norm(np.float32(expected))
    assert error <= limit, f"differs by {error:.2g}"


@pytest.mark.parametrize("name", CASES)
def test_becomes_one_attention_that_agrees_with_jax(name):
    f, *args = CASES[name]
    check(f, args)


@pytest.mark.parametrize("name", ["causal", "grouped, causal"])
def test_becomes_one_attention_in_bf16(name):
    f, *args = CASES[name]
    check(f, [a.astype(jnp.bfloat16) for a in args], limit=6e-3)


@pytest.mark.parametrize("name", OPEN)
def test_becomes_one_attention_with_open_lengths(name):
    f, args, examples = OPEN[name]
    check(f, args, examples)
