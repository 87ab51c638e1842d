"""Random values for a call of jax.nn.dot_product_attention, with rows that masks and biases hide, shift or empty; and JAX's
own computation, with its softmax in float64."""

import contextlib
import types

import jax.numpy as jnp
import numpy as np
from jax._src.nn import functions as implementation

LOWEST = -0.7 * np.finfo(np.float32).max  # what JAX writes over the scores of hidden keys
# Shifts at which rounding leaves something to compare: small ones, and those that absorb every score.
SHIFTS = {"f64": (1e4, 1e6, 1e9, 1e20, 1e30), "f32": (1e12, 1e20, 1e30)}


def draw_values(call, arrays, rng, has_shifts):
    """The arrays of a call with other numbers, and the largest shift that does not absorb scores."""
    found = {}
    shift = 0.0
    for name, x in arrays.items():
        if name == "bias":
            found[name], shift = draw_bias(x, call.type, rng, has_shifts)
        elif name == "mask":
            hidden = rng.random() * 0.9
            mask = rng.random(x.shape) >= hidden
            mask &= rng.random((*x.shape[:3], 1)) < 0.9  # rows without keys
            found[name] = mask
        elif name.endswith("lengths"):
            limit = arrays["query" if name.startswith("query") else "key"].shape[1]
            found[name] = rng.integers(-1, limit + 2, x.shape).astype(np.int32)
        else:
            found[name] = rng.standard_normal(x.shape)
    if "bias" in found and "mask" in found and rng.random() < 0.5:  # -inf on all keys that the mask leaves
        shape = np.broadcast_shapes(found["bias"].shape, found["mask"].shape)
        if shape == found["bias"].shape:
            chosen = np.broadcast_to(found["mask"], shape) & (rng.random((*shape[:3], 1)) < 0.3)
            found["bias"] = np.where(chosen, rng.choice([-np.inf, np.finfo(np.float32).min]), found["bias"])
    return {name: jnp.asarray(x, arrays[name].dtype) for name, x in found.items()}, shift


def draw_bias(x, type_name, rng, has_shifts):
    bias = rng.standard_normal(x.shape)
    rows = (*x.shape[:3], 1)
    if rng.random() < 0.4:
        bias = np.where(rng.random(x.shape) < rng.random(), -np.inf, bias)
    largest = 0.0
    if rng.random() < 0.3:  # rows that may have nothing else
        value = rng.choice([-np.inf, np.finfo(np.float32).min, LOWEST] if has_shifts else [-np.inf])
        bias = np.where(rng.random(rows) < 0.2, value, bias)
    if has_shifts and rng.random() < 0.5:
        size = rng.choice(SHIFTS[type_name]) * rng.choice([-1, 1])
        bias = np.where(rng.random(rows) < 0.3, bias + size, bias)
        largest = abs(size) if abs(size) < 1e10 else 0.0
    if x.dtype != jnp.float64:
        bias = np.where(np.isfinite(bias), np.clip(bias, *[float(f(jnp.finfo(x.dtype))) for f in (
            lambda info: info.min, lambda info: info.max)]), bias)
    return bias, largest


@contextlib.contextmanager
def exact_softmax():
    """JAX's implementation computes softmax in float64, where it would in float32."""
    names = types.SimpleNamespace(**{name: getattr(np, name) for name in dir(np) if not name.startswith("__")})
    names.float32 = np.float64
    original = implementation.np, implementation._get_large_negative
    implementation._get_large_negative = lambda dtype: jnp.asarray(LOWEST, dtype)
    implementation.np = names
    try:
        yield
    finally:
        implementation.np, implementation._get_large_negative = original


def difference(what, found, expected, tolerance):
    """None, or how two arrays differ: in NaN, Inf, or by more than the tolerance relative to the largest number."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{what} is {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
    found, expected = (np.asarray(x, np.float64) for x in (found, expected))
    finite = np.isfinite(expected) & (np.abs(expected) < 1e30)
    if not np.array_equal(np.isfinite(found) & (np.abs(found) < 1e30), finite):
        place = np.argwhere((np.isfinite(found) & (np.abs(found) < 1e30)) != finite)[0]
        return f"{what} is {found[tuple(place)]} at {place.tolist()}, expected {expected[tuple(place)]}"
    if not np.array_equal(np.isnan(found), np.isnan(expected)):
        return f"{what} differs in NaN"
    if not finite.any():
        return None
    error = np.abs(found[finite] - expected[finite])
    allowed = tolerance * (1 + np.abs(expected[finite]).max())
    return None if error.max() <= allowed else f"{what} is off by {error.max():.3g}, {allowed:.3g} allowed"
