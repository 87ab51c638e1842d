"""`saccade.jax.causal_conv1d` and `saccade.jax.gated_rms_norm` agree with their definitions in jax.numpy, in jit, vmap and
scan, with gradients; and what they refuse, by name."""

import functools

import jax
import jax.numpy as jnp
import pytest

import saccade.jax

KEYS = jax.random.split(jax.random.key(0), 8)
X, WEIGHT, BIAS = (jax.random.normal(key, shape) for key, shape in zip(KEYS, ((3, 10, 17), (10, 4), (10,))))
STATE = jax.random.normal(KEYS[3], (3, 10, 5))


def conv(x, weight, bias, state, activation, length=None):
    """The output and the final state of one sequence [dim, length], by shifted products in float32 or more."""
    width, count = weight.shape[1], x.shape[1] if length is None else length
    full = jnp.concatenate([jnp.zeros((x.shape[0], width - 1), x.dtype) if state is None else state, x], 1)
    first = full.shape[1] - x.shape[1] - (width - 1)
    wide = full.astype(jnp.promote_types(x.dtype, jnp.float32))
    total = sum(weight[:, j, None] * wide[:, first + j:first + j + x.shape[1]] for j in range(width))
    total = total if bias is None else total + bias[:, None]
    total = total * jax.nn.sigmoid(total) if activation else total
    kept = full.shape[1] - x.shape[1]
    return (jnp.where(jnp.arange(x.shape[1]) < count, total, 0).astype(x.dtype),
            jax.lax.dynamic_slice_in_dim(full, count, kept, 1))


def batch_of(x, weight, bias, state, activation, lengths):
    found = [conv(x[i], weight, bias, None if state is None else state[i], activation, lengths and lengths[i])
             for i in range(x.shape[0])]
    return tuple(map(jnp.stack, zip(*found)))


def close(found, expected, tolerance=2e-5):
    found, expected = map(jax.tree_util.tree_leaves, (found, expected))
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        one, other = (x.astype(jnp.float32) for x in (one, other))
        assert jnp.linalg.norm(one - other) <= tolerance * (1e-3 + jnp.linalg.norm(other))


def scored(function):
    """A number of which all results are a part."""
    def call(*arguments):
        return sum((jnp.sin(x.astype(jnp.float32)) * (i + 1)).sum()
                   for i, x in enumerate(jax.tree_util.tree_leaves(function(*arguments))))

    return call


@pytest.mark.parametrize(("options", "has_state", "dtype"), [
    ({"activation": "silu"}, True, jnp.float32), ({"lengths": [17, 1, 9], "activation": "swish"}, True, jnp.float32),
    ({"layout": "bsd", "lengths": [0, 17, 4]}, False, jnp.float32), ({"activation": "silu"}, True, jnp.bfloat16),
], ids=["silu", "padded", "positions first", "bfloat16"])  # fmt: skip
def test_the_convolution_and_its_gradients(options, has_state, dtype):
    options = dict(options)
    lengths, activation, is_first = options.pop("lengths", None), options.get("activation"), "layout" in options
    kv_len = None if lengths is None else jnp.asarray(lengths)
    turned = (lambda x: jnp.swapaxes(x, 1, 2)) if is_first else lambda x: x

    def own(x, weight, bias, state):
        found = saccade.jax.causal_conv1d(turned(x), weight, bias, return_state=True, kv_len=kv_len,
                                          state=None if state is None else turned(state), **options)
        return tuple(map(turned, found))

    def other(x, weight, bias, state):
        return batch_of(x, weight, bias, state, activation, lengths)

    arguments = X.astype(dtype), WEIGHT, BIAS, STATE.astype(dtype) if has_state else None
    tolerance = 2e-2 if dtype == jnp.bfloat16 else 2e-5
    close(own(*arguments), other(*arguments), tolerance)
    places = tuple(range(3 + has_state))
    close(jax.jit(jax.grad(scored(own), places))(*arguments), jax.grad(scored(other), places)(*arguments), tolerance)


def test_a_ragged_convolution_is_that_of_its_sequences():
    x, offsets = X[0], jnp.asarray([0, 5, 5, 15])
    states = STATE[:, :, :3]

    def own(x, weight, states):
        return saccade.jax.causal_conv1d(x, weight, activation="silu", state=states, return_state=True, cu_seqlens=offsets)

    def other(x, weight, states):
        parts = [conv(x[:, a:b], weight, None, states[i], "silu") for i, (a, b) in enumerate(((0, 5), (5, 5), (5, 15)))]
        return jnp.concatenate([*[y for y, _ in parts], jnp.zeros((10, 2))], 1), jnp.stack([s for _, s in parts])

    close(jax.jit(own)(x, WEIGHT, states), other(x, WEIGHT, states))
    close(*[jax.grad(scored(f), (0, 1, 2))(x, WEIGHT, states) for f in (own, other)])


def test_the_convolution_in_vmap_and_scan_and_without_elements():
    own = functools.partial(saccade.jax.causal_conv1d, activation="silu", return_state=True)
    both = jnp.stack([WEIGHT, -WEIGHT])
    grads = jax.vmap(jax.grad(lambda w: scored(own)(X, w)))(both)
    close(grads, jnp.stack([jax.grad(lambda w: scored(lambda w: batch_of(X, w, None, None, "silu", None))(w))(each)
                            for each in both]))  # fmt: skip

    def step(state, x):
        output, state = own(x[..., None], WEIGHT, state=state)
        return state, output[..., 0]

    state, outputs = jax.lax.scan(step, jnp.zeros((3, 10, 3)), jnp.moveaxis(X, 2, 0))
    close((jnp.moveaxis(outputs, 0, 2), state), own(X, WEIGHT))
    output, state = own(X[:, :, :0], WEIGHT, state=STATE)
    assert output.shape == (3, 10, 0) and (state == STATE).all()
    output, state = own(X, WEIGHT[:, :1])
    close((output, state), batch_of(X, WEIGHT[:, :1], None, None, "silu", None))


def norm(x, gate, weight, activation, before, size):
    active = jax.nn.silu(gate) if activation == "silu" else jax.nn.sigmoid(gate)
    entering = x.astype(jnp.float32) * (1 if before else active)
    parts = entering.reshape(*x.shape[:-1], -1, size)
    normed = (parts / jnp.sqrt((parts * parts).mean(-1, keepdims=True) + 1e-6)).reshape(x.shape) * weight
    return (normed * active if before else normed).astype(x.dtype)


@pytest.mark.parametrize(("activation", "before", "size", "dtype"), [
    ("silu", True, 17, jnp.float32), ("sigmoid", True, 17, jnp.float32), ("silu", False, 1, jnp.float32), ("silu", True, 17, jnp.bfloat16),
])
def test_the_norm_and_its_derivatives_in_both_modes(activation, before, size, dtype):
    gate, weight = jax.random.normal(KEYS[4], X.shape), jax.random.normal(KEYS[5], (17,))
    arguments = X.astype(dtype), gate.astype(dtype), weight
    tangents = tuple(jax.random.normal(key, x.shape).astype(x.dtype) for key, x in zip(KEYS[5:], arguments))
    tolerance = 3e-2 if dtype == jnp.bfloat16 else 1e-4

    def own(*x):
        return saccade.jax.gated_rms_norm(*x, activation=activation, norm_before_gate=before, group_size=size)

    def other(*x):
        return norm(*x, activation, before, size)

    close(jax.jit(lambda *x: jax.jvp(own, arguments, x))(*tangents), jax.jvp(other, arguments, tangents), tolerance)
    close(*[jax.jvp(lambda g, f=f: f(arguments[0], g, weight), arguments[1:2], tangents[1:2]) for f in (own, other)], tolerance)
    close(*[jax.grad(scored(f), (0, 1, 2))(*arguments) for f in (own, other)], tolerance)
    close(*[jax.vmap(jax.grad(lambda x, f=f: scored(f)(x, *arguments[1:])))(jnp.stack([arguments[0]] * 2)) for f in (own, other)],
          tolerance)  # fmt: skip


def test_what_is_refused():
    own = functools.partial(saccade.jax.causal_conv1d, X)
    with pytest.raises(NotImplementedError, match=r"saccade\.jax\.causal_conv1d: forward mode"):
        jax.jit(lambda w: jax.jvp(own, (w,), (w,)))(WEIGHT)
    for function in (own, lambda w: saccade.jax.gated_rms_norm(X[0].T, X[0].T, w[:, 0])):
        with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
            jax.grad(lambda w, f=function: (jax.grad(scored(f))(w) ** 2).sum())(WEIGHT)
    with pytest.raises(ValueError, match=r"weight has shape \(9, 4\), expected \(10, 4\)"):
        jax.jit(own)(WEIGHT[:9])
    with pytest.raises(TypeError, match="bias has 2 dimensions, expected 1"):
        own(WEIGHT, WEIGHT)
    with pytest.raises(ValueError, match="state has 2 positions, expected 3 or more"):
        own(WEIGHT, state=STATE[:, :, :2])
    with pytest.raises(ValueError, match="group_size is 5, expected a divisor of 17"):
        saccade.jax.gated_rms_norm(X, X, X[0, 0], group_size=5)
    with pytest.raises(TypeError, match="x has element type int32"):
        saccade.jax.gated_rms_norm(X.astype(jnp.int32), X, X[0, 0])
