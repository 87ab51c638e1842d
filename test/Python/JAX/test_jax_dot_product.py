"""saccade.jax.dot_product_attention is jax.nn.dot_product_attention: results, errors, transformations, compilations.

test/Fuzz/jax_calls.py compares random calls.
"""

import functools
import inspect

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi")

import jax.numpy as jnp

import saccade
import saccade.jax
from saccade import masks, scores

rng = np.random.default_rng(0)
ours, theirs = saccade.jax.dot_product_attention, jax.nn.dot_product_attention


def real(*shape, dtype=jnp.float32):
    return jnp.asarray(rng.standard_normal(shape), dtype)


Q, K, V = real(2, 20, 4, 16), real(2, 30, 2, 16), real(2, 30, 2, 16)
BIAS, MASK = real(1, 4, 20, 30), jnp.asarray(rng.random((2, 1, 20, 30)) < 0.5)
LENGTHS = jnp.asarray([12, 30], jnp.int32)


def reference(*arrays, **options):
    """The result of JAX, compiled as a whole, which is faster than op by op."""
    static = {name: x for name, x in options.items() if not isinstance(x, jax.Array)}
    named = {name: x for name, x in options.items() if isinstance(x, jax.Array)}
    return jax.jit(lambda arrays, named: theirs(*arrays, **named, **static))(arrays, named)


def close(found, expected, tolerance=2e-6):
    for x, y in zip(*map(jax.tree_util.tree_leaves, (found, expected)), strict=True):
        assert isinstance(x, jax.Array) and x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), rtol=tolerance, atol=tolerance)


def test_signature():
    mine, its = (inspect.signature(f).parameters for f in (ours, theirs))
    assert list(mine)[: len(its)] != [] and set(its) <= set(mine)
    for name, parameter in its.items():
        assert mine[name].kind == parameter.kind and mine[name].default == parameter.default
    assert all(mine[name].kind == inspect.Parameter.KEYWORD_ONLY for name in set(mine) - set(its))


def test_results():
    close(ours(Q, K, V), reference(Q, K, V))
    close(ours(np.asarray(Q), np.asarray(K), np.asarray(V)), reference(Q, K, V))
    every = dict(bias=BIAS, mask=MASK, scale=0.3, is_causal=True, query_seq_lengths=LENGTHS[:1].repeat(2),
                 key_value_seq_lengths=LENGTHS, local_window_size=(9, 4), return_residual=True)
    close(ours(Q, K, V, **every), reference(Q, K, V, **every))
    close(ours(Q[0], K[0], V[0], BIAS[0], return_residual=True), reference(Q[0], K[0], V[0], BIAS[0], return_residual=True))


def test_sixteen_bits():
    arrays = [x.astype(jnp.bfloat16) for x in (Q, K, V)]
    found, expected = ours(*arrays, BIAS, MASK), reference(*arrays, BIAS, MASK)
    assert found.dtype == jnp.bfloat16
    close(found.astype(jnp.float32), expected.astype(jnp.float32), 0.02)


def test_double_precision():
    with jax.enable_x64(True):
        q, k, v = (real(1, 5, 1, 16, dtype=jnp.float64) for _ in range(3))
        found = np.asarray(ours(q, k, v))[0, :, 0]
        s = np.asarray(q)[0, :, 0] @ np.asarray(k)[0, :, 0].T / 4
        p = np.exp(s - s.max(-1, keepdims=True))
        np.testing.assert_allclose(found, p / p.sum(-1, keepdims=True) @ np.asarray(v)[0, :, 0], rtol=1e-13, atol=1e-13)


def test_queries_without_keys_have_the_mean_of_all_values():
    nothing = MASK.at[0, 0, 3].set(False)
    found, residual = ours(Q, K, V, mask=nothing, return_residual=True)
    expected = reference(Q, K, V, mask=nothing, return_residual=True)
    close((found, residual), expected)
    np.testing.assert_allclose(found[0, 3, 0], V[0, :, 0].mean(0), atol=1e-6)
    assert float(residual[0, 3, 0]) < -1e38
    zero = jnp.zeros(2, jnp.int32)
    close(ours(Q, K, V, key_value_seq_lengths=zero), reference(Q, K, V, key_value_seq_lengths=zero))
    # A length beyond the keys, or below 0, is a mask in JAX, and no error.
    odd = jnp.asarray([-5, 100], jnp.int32)
    close(ours(Q, K, V, key_value_seq_lengths=odd), reference(Q, K, V, key_value_seq_lengths=odd))


@pytest.mark.parametrize("arguments", [
    dict(value=V[:, :5]), dict(query=Q.astype(jnp.bfloat16)), dict(query=Q[:, :, :3]), dict(query=Q[..., :8]),
    dict(query=Q[None]), dict(key=K[0, 0]), dict(mask=BIAS), dict(bias=BIAS[:, :3]), dict(bias=BIAS[..., :7]),
    dict(mask=MASK[:, :, :4]), dict(bias=BIAS[None]), dict(implementation="fast"), dict(query_seq_lengths=LENGTHS[:1]),
    dict(key_value_seq_lengths=LENGTHS.astype(jnp.float32)), dict(query="q"), dict(query=None), dict(scale="x"),
    dict(local_window_size=(1, 2, 3)), dict(local_window_size="x"),
], ids=lambda arguments: "-".join(arguments))  # fmt: skip
def test_mistakes_raise_what_jax_raises(arguments):
    arguments = {"query": Q, "key": K, "value": V, **arguments}
    with pytest.raises(Exception) as expected:  # noqa: PT011
        theirs(**arguments)
    with pytest.raises(Exception) as found:  # noqa: PT011
        ours(**arguments)
    assert found.type is expected.type
    if expected.type is ValueError and "window" not in str(arguments):
        assert str(found.value) == str(expected.value)


def test_what_has_no_kernel_is_computed_by_jax():
    close(ours(Q[:0], K[:0], V[:0]), reference(Q[:0], K[:0], V[:0]))
    close(ours(Q[:, :0], K, V, return_residual=True), reference(Q[:, :0], K, V, return_residual=True))
    close(ours(Q, K, V, scale=jnp.full((1,), 0.3)), reference(Q, K, V, scale=jnp.full((1,), 0.3)))
    close(ours(Q, K, V, implementation="xla"), reference(Q, K, V))


def test_jit_vmap_and_scan():
    bias, mask = BIAS, MASK
    compare = lambda f: close(f(ours), jax.jit(lambda: f(theirs))())
    compare(lambda attend: jax.jit(lambda q, k, v, scale: attend(q * 2, k, v, bias, mask, scale=scale) + 1)(Q, K, V, 0.2))
    compare(lambda attend: jax.vmap(lambda q, k, v, m: attend(q, k, v, bias, m, return_residual=True))(Q, K, V, mask))
    # Axes that meet the batch in other ways: shared keys, a bias for each element of the axis, mapped scales.
    queries = jnp.stack([Q, Q * 2, Q[::-1]])
    compare(lambda attend: jax.vmap(attend, (0, None, None, 0))(queries, K, V, jnp.stack([BIAS, -BIAS, BIAS * 0.5])))
    compare(lambda attend: jax.vmap(lambda q, s: attend(q, K, V, scale=s))(queries, jnp.asarray([0.1, 0.2, 0.3])))
    both = jnp.stack([Q, Q + 1], 1)
    compare(lambda attend: jax.vmap(jax.vmap(lambda q, k: attend(q, k, k), (0, None)), (0, 0))(both, K))
    compare(lambda attend: jax.lax.scan(lambda x, _: (attend(x, K, V, is_causal=True), None), Q, None, length=3)[0])


def test_donated_buffers():
    f = jax.jit(functools.partial(ours, is_causal=True), donate_argnums=(0,))
    expected = theirs(Q, K, V, is_causal=True)
    close(f(Q + 0, K, V), expected)


def test_one_kernel_for_all_lengths_batches_and_heads():
    call = functools.partial(ours, is_causal=True, local_window_size=(5, 0), return_residual=True)
    make = lambda b, t, s, h: (real(b, t, 2 * h, 16), real(b, s, h, 16), real(b, s, h, 16))
    call(*make(2, 5, 9, 2), real(2, 4, 5, 9), mask=MASK[:1, :, :5, :9], key_value_seq_lengths=LENGTHS)
    before = saccade.cache_info().compilations
    for b, t, s, h in ((3, 7, 6, 3), (2, 20, 30, 4)):
        lengths, mask = jnp.full((b,), 4, jnp.int32), jnp.ones((1, 1, t, s), bool)
        arrays, bias = make(b, t, s, h), real(b, 2 * h, t, s)
        found = call(*arrays, bias, mask, key_value_seq_lengths=lengths, scale=0.1 * b)
        close(found, reference(*arrays, bias, mask, is_causal=True, local_window_size=(5, 0), return_residual=True,
                            key_value_seq_lengths=lengths, scale=0.1 * b))
    assert saccade.cache_info().compilations == before


def weighed(s):
    weights = jax.nn.softmax(s, axis=-1)
    return jnp.einsum("bnts,bsnh->btnh", weights, jnp.repeat(V, 2, 2))


SCORES = jnp.einsum("btnh,bsnh->bnts", Q, jnp.repeat(K, 2, 2)) / 4
ROWS, COLUMNS = jnp.arange(20)[:, None], jnp.arange(30)[None]


def test_score_and_mask_functions():
    slopes = jnp.asarray([0.5, 0.25, 0.125, 0.1])

    def attend(q, k, v, slopes, period):
        return ours(q, k, v, BIAS, mask=lambda b, h, i, j: (i - j) % period == 0,
                    score=lambda s, b, h, i, j: jnp.where(j > i, jnp.tanh(s), s + slopes[h] * (j - i)))

    def expected(slopes, period):
        s = jnp.where(COLUMNS > ROWS, jnp.tanh(SCORES), SCORES + slopes[:, None, None] * (COLUMNS - ROWS)) + BIAS
        return weighed(jnp.where((ROWS - COLUMNS) % period == 0, s, -jnp.inf))

    period = jnp.asarray(3)
    close(attend(Q, K, V, slopes, period), expected(slopes, 3))
    before = saccade.cache_info().compilations
    traced = jax.jit(attend)  # the captured arrays are operands
    close(traced(Q, K, V, slopes * 2, period), expected(slopes * 2, 3))
    close(traced(Q, K, V, slopes, period + 1), expected(slopes, 4))
    assert saccade.cache_info().compilations == before
    mapped = jax.vmap(attend, (0, 0, 0, 0, None))(Q[:, None], K[:, None], V[:, None], jnp.stack([slopes, slopes]), period)
    close(mapped[:, 0], expected(slopes, 3))


def test_functions_of_the_library_and_of_the_batch():
    capped = 2 * jnp.tanh(SCORES / 2)
    score = scores.soft_cap(2.0) >> (lambda s, b, h, i, j: s + jax.nn.sigmoid(s) * jax.numpy.exp(-s).astype(jnp.float32))
    close(ours(Q, K, V, mask=masks.causal(), score=score),
          weighed(jnp.where(ROWS >= COLUMNS, capped + jax.nn.sigmoid(capped) * jnp.exp(-capped), -jnp.inf)))
    table = jnp.asarray([0.0, 1.0])
    f = lambda q, k, v: ours(q, k, v, score=lambda s, b, h, i, j: s * table[b])
    close(f(Q, K, V), weighed(SCORES * table[:, None, None, None]))
    once = f(Q, K, V)
    close(jax.vmap(f)(*[jnp.stack([x, x]) for x in (Q, K, V)]), jnp.stack([once, once]))  # b counts within one call


def test_errors_of_functions():
    with pytest.raises(saccade.TraceError, match="if"):
        ours(Q, K, V, score=lambda s, b, h, i, j: s if i > j else -s)
    with pytest.raises(saccade.TraceError, match="value of an array that JAX traces"):
        jax.jit(lambda t: ours(Q, K, V, score=lambda s, b, h, i, j: s + t.sum()))(jnp.ones(3))
    for function in (jax.lax.exp, jax.nn.gelu):
        with pytest.raises(saccade.TraceError, match=r"calls a function of JAX on .*score=lambda"):
            ours(Q, K, V, score=lambda s, b, h, i, j, f=function: f(s))
    with pytest.raises(saccade.TraceError, match=r"calls a function of JAX on .*jax\.scipy\.special\.erf"):
        ours(Q, K, V, score=lambda s, b, h, i, j: jax.scipy.special.erf(s))
    with pytest.raises(TypeError, match="expected arrays with elements"):
        ours(Q[:0], K[:0], V[:0], score=lambda s, b, h, i, j: s)
    with pytest.raises(TypeError, match="give it as mask"):
        ours(Q, K, V, score=masks.causal())


def test_attention_takes_jax_arrays():
    lay = lambda x: jnp.swapaxes(x, 1, 2)
    q, k, v = map(lay, (Q, K, V))
    close(saccade.attention(q, k, v), lay(theirs(Q, K, V)))
    slopes = jnp.asarray([0.5, 0.25, 0.125, 0.1])
    found, lse = saccade.attention(Q, K, V, layout="bshd", return_lse=True, kv_len=jnp.asarray([12, 30]),
                                   score=lambda s, b, h, i, j: jnp.minimum(s, slopes[h] * j))
    s = jnp.minimum(SCORES, slopes[:, None, None] * COLUMNS)
    close(found, weighed(jnp.where(LENGTHS[:, None, None, None] > COLUMNS, s, -jnp.inf)))
    assert isinstance(lse, jax.Array) and lse.shape == (2, 4, 20)
    low = saccade.attention(*[x.astype(jnp.bfloat16) for x in (q, k, v)])
    assert low.dtype == jnp.bfloat16
    with pytest.raises(TypeError, match=r"in functions that JAX traces, use saccade\.jax\.dot_product_attention"):
        jax.jit(saccade.attention)(q, k, v)
    with pytest.raises(ValueError, match="read-only"):
        saccade.attention(q, k, v, out=q)
