"""Forward mode of saccade.jax.dot_product_attention against that of jax.nn.dot_product_attention."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi")

import jax.numpy as jnp
from test_jax_gradients import CALLS, array, close, k, ours, q, theirs, v

random = np.random.default_rng(1)


def tangents_of(arrays):
    return tuple(jnp.asarray(random.standard_normal(x.shape), x.dtype) for x in arrays)


@pytest.mark.parametrize("name", CALLS)
def test_tangents_are_those_of_jax(name):
    more, options = CALLS[name]
    floats = [x for x in more if x is not None and x.dtype == jnp.float32]

    def push(function, tangents):
        def call(q, k, v, *floats):
            given = iter(floats)
            return function(q, k, v, *[x if x is None or x.dtype != jnp.float32 else next(given) for x in more], **options)

        return jax.jvp(call, (q, k, v, *floats), tangents)

    tangents = tangents_of((q, k, v, *floats))
    expected = push(theirs, tangents)
    close(push(ours, tangents), expected)
    close(jax.jit(functools.partial(push, ours))(tangents), expected)


slopes, scale = array(4), jnp.float32(0.3)


def own(q, k, slopes, scale):
    return ours(q, k, v, scale=scale, score=lambda s, b, h, i, j: s + slopes[h] * (i - j), is_causal=True)


def plain(q, k, slopes, scale):
    i, j = jnp.arange(5)[:, None], jnp.arange(7)
    return theirs(q, k, v, slopes[None, :, None, None] * (i - j), scale=scale, is_causal=True)


ARGUMENTS = q, k, slopes, scale
TANGENTS = tangents_of(ARGUMENTS)


def test_tangents_of_the_scale_and_of_captured_arrays():
    expected = jax.jvp(plain, ARGUMENTS, TANGENTS)
    close(jax.jvp(own, ARGUMENTS, TANGENTS), expected, 1e-4)
    output, push = jax.linearize(own, *ARGUMENTS)
    close((output, push(*TANGENTS)), expected, 1e-4)
    for number, (x, tangent) in enumerate(zip(ARGUMENTS, TANGENTS)):
        one = [jax.jvp(lambda x, f=f, n=number: f(*ARGUMENTS[:n], x, *ARGUMENTS[n + 1:]), (x,), (tangent,)) for f in (own, plain)]
        close(*one, 1e-4)


@pytest.mark.parametrize("number", range(len(ARGUMENTS)))
def test_jacobians_of_both_modes_are_equal(number):
    def loss(*arguments):
        return jnp.sin(own(*arguments)).sum((0, 1, 3))

    close(jax.jacfwd(loss, number)(*ARGUMENTS), jax.jacrev(loss, number)(*ARGUMENTS), 2e-4)


def test_vmap_with_forward_and_reverse_mode():
    stacked = [jnp.stack([x, x * 0.5]) for x in ARGUMENTS]
    tangents = [jnp.stack([x, x + 1]) for x in TANGENTS]

    def push(function, *arguments):
        return jax.jvp(function, arguments[:4], arguments[4:])

    # Captured arrays and the scale are mapped, so there is one call after another; or only queries and keys are.
    for axes in (0, (0, 0, None, None, 0, 0, None, None)):
        chosen = [x if axes == 0 or axes[i] == 0 else x[0] for i, x in enumerate((*stacked, *tangents))]
        close(*[jax.vmap(functools.partial(push, f), axes)(*chosen) for f in (own, plain)], 1e-4)
        mapped = 0 if axes == 0 else axes[:4]
        close(*[jax.jvp(jax.vmap(f, mapped), tuple(chosen[:4]), tuple(chosen[4:])) for f in (own, plain)], 1e-4)
        # JAX transposes the function of tangents.
        close(*[jax.grad(lambda *x, f=f, m=mapped: jnp.sin(jax.vmap(f, m)(*x)).sum(), (0, 1, 2, 3))(*chosen[:4])
                for f in (own, plain)], 2e-4)


def test_checkpoint_and_scan():
    def loss(function, q):
        def step(x, _):
            return jax.checkpoint(function)(x, *ARGUMENTS[1:]), None

        return jax.lax.scan(step, q, None, length=2)[0]

    close(*[jax.jvp(functools.partial(loss, f), (q,), TANGENTS[:1]) for f in (own, plain)], 1e-4)


def test_second_derivatives_are_an_error():
    def call(q):
        return own(q, *ARGUMENTS[1:])

    def push(q):
        return jax.jvp(call, (q,), TANGENTS[:1])[1]

    for second in (lambda: jax.jvp(push, (q,), TANGENTS[:1]), lambda: jax.grad(lambda q: push(q).sum())(q),
                   lambda: jax.jvp(jax.grad(lambda q: call(q).sum()), (q,), TANGENTS[:1])):
        with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
            second()
