"""`saccade.jax.linear_attention` agrees with the recurrence in JAX, in jit, vmap and scan, with gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saccade
import saccade.jax

KEYS = jax.random.split(jax.random.key(0), 6)
Q, K = (jax.random.normal(key, (2, 2, 66, 16)) for key in KEYS[:2])
V = jax.random.normal(KEYS[2], (2, 4, 66, 8))
DECAY = -jax.random.uniform(KEYS[3], (2, 4, 66, 16))
STATE = jax.random.normal(KEYS[4], (2, 4, 16, 8))
OPTIONS = {"causal": True, "l2norm": 1e-6, "scale": 0.5, "return_state": True}
call = functools.partial(saccade.jax.linear_attention, **OPTIONS)


def recurrence(q, k, v, decay, state):
    """The output and the final state, by JAX's scan over positions."""
    q, k = (x / jnp.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    q, k = (jnp.repeat(x, v.shape[1] // x.shape[1], 1) for x in (q, k))

    def step(state, x):
        q, k, v, decay = x
        state = state * jnp.exp(decay)[..., None] + k[..., :, None] * v[..., None, :]
        return state, 0.5 * jnp.einsum("bhd,bhde->bhe", q, state)

    last, outputs = jax.lax.scan(step, state, [jnp.moveaxis(x, 2, 0) for x in (q, k, v, decay)])
    return jnp.moveaxis(outputs, 0, 2), last


def assert_close(found, expected, tolerance=2e-5):
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert one.shape == other.shape
        assert jnp.linalg.norm(one - other) <= tolerance * jnp.linalg.norm(other)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_results_agree_with_the_recurrence(transform):
    found = transform(lambda *x: call(*x[:3], decay=x[3], state=x[4]))(Q, K, V, DECAY, STATE)
    assert_close(found, recurrence(Q, K, V, DECAY, STATE))


def test_gradients_agree_with_the_recurrence():
    def loss(function, *x):
        output, state = function(*x)
        return (output**2).sum() + state.sum()

    own = jax.jit(jax.grad(lambda *x: loss(lambda *y: call(*y[:3], decay=y[3], state=y[4]), *x), range(5)))
    other = jax.grad(lambda *x: loss(recurrence, *x), range(5))
    assert_close(own(Q, K, V, DECAY, STATE), other(Q, K, V, DECAY, STATE), 1e-4)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        jax.grad(lambda q: (own(q, K, V, DECAY, STATE)[0] ** 2).sum())(Q)


ARGUMENTS = Q, K, V, DECAY, STATE
TANGENTS = tuple(jax.random.normal(key, x.shape) for key, x in zip(jax.random.split(jax.random.key(1), 5), ARGUMENTS))


def own(*x):
    return call(*x[:3], decay=x[3], state=x[4])


def test_tangents_agree_with_those_of_the_recurrence():
    expected = jax.jvp(recurrence, ARGUMENTS, TANGENTS)
    assert_close(jax.jit(lambda *x: jax.jvp(own, ARGUMENTS, x))(*TANGENTS), expected, 1e-4)
    output, push = jax.linearize(own, *ARGUMENTS)
    assert_close((output, push(*TANGENTS)), expected, 1e-4)
    mapped = jax.vmap(lambda q, dq: jax.jvp(lambda q: own(q, *ARGUMENTS[1:]), (q,), (dq,)))(*[jnp.stack([x, 2 * x]) for x in (Q, K)])
    other = jax.vmap(lambda q, dq: jax.jvp(lambda q: recurrence(q, *ARGUMENTS[1:]), (q,), (dq,)))(
        *[jnp.stack([x, 2 * x]) for x in (Q, K)])
    assert_close(mapped, other, 1e-4)


def test_jacobians_of_both_modes_agree():
    short = [x[:1, :1, :5] for x in ARGUMENTS[:4]]

    def jacobian(mode, function):
        return mode(lambda state: function(*short, state)[0])(STATE[:1, :1])

    expected = jacobian(jax.jacrev, recurrence)
    for mode in (jax.jacfwd, jax.jacrev):
        assert_close(jacobian(mode, own), expected, 1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-4), (jnp.bfloat16, 5e-2)])
def test_tangents_of_a_ragged_delta_rule_agree_with_its_sequences(dtype, tolerance):
    """The recurrence of each sequence, by JAX's scan."""
    q, k, v = (jnp.swapaxes(x[0], 0, 1).astype(dtype) for x in (Q, K, V))
    beta = jax.random.uniform(KEYS[5], (66, 4), dtype)

    def plain(q, k, v, beta):
        q, k, v, beta = (x.astype(jnp.float32) for x in (q, k, v, beta))
        q, k = (x / jnp.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
        q, k = (jnp.repeat(x, 2, 1) for x in (q, k))

        def step(state, x):
            q, k, v, beta, is_first = x
            state = jnp.where(is_first, 0, state)
            change = beta[:, None] * (v - jnp.einsum("hd,hde->he", k, state))
            state = state + k[:, :, None] * change[:, None]
            return state, jnp.einsum("hd,hde->he", q, state)

        is_first = jnp.zeros(66, bool).at[jnp.array([0, 10])].set(True)
        return jax.lax.scan(step, jnp.zeros((4, 16, 8)), (q, k, v, beta, is_first))[1]

    def ragged(*x):
        return saccade.jax.linear_attention(*x[:3], causal=True, beta=x[3], l2norm=1e-6, scale=1.0, layout="shd",
                                            cu_seqlens=jnp.array([0, 10, 66])).astype(jnp.float32)

    arguments = q, k, v, beta
    tangents = tuple(jnp.ones_like(x) if x is beta else x[::-1] for x in arguments)
    assert_close(jax.jvp(ragged, arguments, tangents), jax.jvp(plain, arguments, tangents), tolerance)


def test_second_derivatives_are_refused_in_all_modes():
    def loss(q):
        return (own(q, *ARGUMENTS[1:])[0] ** 2).sum()

    for second in (jax.hessian(loss), jax.grad(lambda q: jax.jvp(loss, (q,), (q,))[1]),
                   lambda q: jax.jvp(jax.grad(loss), (q,), (q,))):
        with pytest.raises(NotImplementedError, match="linear_attention: second derivatives are not supported"):
            second(Q)


def test_a_mapped_axis_is_one_call_after_another():
    both = jnp.stack([Q, 2 * Q])
    found = jax.vmap(lambda q: call(q, K, V, decay=DECAY)[0])(both)
    assert_close(found, jnp.stack([call(q, K, V, decay=DECAY)[0] for q in both]))


def test_states_are_carried_by_scan():
    parts = [jnp.moveaxis(x.reshape(*x.shape[:2], 6, 11, *x.shape[3:]), 2, 0) for x in (Q, K, V, DECAY)]

    def step(state, x):
        output, state = call(*x[:3], decay=x[3], state=state)
        return state, output

    last, outputs = jax.lax.scan(step, STATE, parts)
    output, expected = call(Q, K, V, decay=DECAY, state=STATE)
    assert_close((jnp.moveaxis(outputs, 0, 2).reshape(output.shape), last), (output, expected))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_element_types_and_layouts_agree_with_the_call_of_numpy(dtype):
    q, k, v = (jnp.swapaxes(x, 1, 2).astype(dtype) for x in (Q, K, V))
    found = saccade.jax.linear_attention(q, k, v, causal=True, layout="bshd")
    wide = [np.asarray(x.astype(jnp.float32)) for x in (q, k, v)]
    expected = saccade.linear_attention(*wide, causal=True, layout="bshd")
    assert found.dtype == dtype
    assert_close(found.astype(jnp.float32), jnp.asarray(expected), 1e-2)


def test_gradients_of_a_ragged_delta_rule_agree_with_its_sequences():
    q, k, v = (jnp.swapaxes(x[0], 0, 1) for x in (Q, K, V))
    beta = jax.random.uniform(KEYS[5], (66, 4))
    offsets = jnp.array([0, 10, 66])

    def loss(q, k, v, beta, **more):
        return (saccade.jax.linear_attention(q, k, v, causal=True, beta=beta, l2norm=1e-6, layout="shd", **more)**2).sum()

    def in_parts(*x):
        return sum(loss(*[each[start:end] for each in x]) for start, end in ((0, 10), (10, 66)))

    found = jax.grad(functools.partial(loss, cu_seqlens=offsets), range(4))(q, k, v, beta)
    assert_close(found, jax.grad(in_parts, range(4))(q, k, v, beta), 1e-4)


def test_mistakes_are_reported_in_the_words_of_the_call():
    with pytest.raises(ValueError, match="v has length 9, expected 66, that of k"):
        call(Q, K, V[:, :, :9])
    with pytest.raises(TypeError, match="q has element type int32"):
        call(Q.astype(jnp.int32), K, V)
    with pytest.raises(ValueError, match=r"decay has shape \(2, 4, 9, 16\), expected \(2, 4, 66, 16\)"):
        jax.jit(lambda q: call(q, K, V, decay=DECAY[:, :, :9]))(Q)
