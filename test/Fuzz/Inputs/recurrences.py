"""Recurrences of models with linear attention: for each, random inputs, its formula as the paper states it, and the
arguments of saccade.linear_attention with which it is the same.

Formulas are in float64 NumPy, position by position, with the state of the paper (most have d_v × d_k). They share
nothing with one another or with the compiler. Arrays are [batch, heads, position, ...].
"""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass
class Sizes:
    """Extents of one call. `heads` are those of values and states."""

    batch: int
    heads: int
    key_heads: int
    length: int
    depth: int
    width: int


@dataclasses.dataclass
class Recurrence:
    """One row of the table in docs/guides/linear-models.md."""

    draw: Callable
    """(rng, sizes, strength) -> the inputs of the model by name; decays reach e^-strength."""
    formula: Callable
    """(inputs, state) -> the output and the state after the last position, [batch, heads, d_k, d_v]."""
    arguments: Callable
    """(inputs) -> q, k, v and the options of linear_attention."""
    output: Callable = lambda x: x
    """The output of the model, of that of linear_attention."""
    has_gradient: bool = True
    feature: str = "identity"


def unit(x, epsilon=0.0):
    """x over its L2 norm, with epsilon inside of the root."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + epsilon)


def normal(rng, *shape):
    return rng.standard_normal(shape)


def qkv(rng, n, key_heads=None):
    kept = n.key_heads if key_heads is None else key_heads
    return {"q": normal(rng, n.batch, kept, n.length, n.depth), "k": normal(rng, n.batch, kept, n.length, n.depth),
            "v": normal(rng, n.batch, n.heads, n.length, n.width)}


def log_decay(rng, strength, *shape):
    """Logarithms of decays: mostly weak, some 0 (no decay), some as strong as e^-strength."""
    weak = -np.abs(normal(rng, *shape)) * 0.2
    kind = rng.random(shape)
    return np.where(kind < 0.1, 0.0, np.where(kind > 0.93, -strength * rng.random(shape), weak))


def per_value_head(x, heads):
    """A tensor of KV heads for each head of values: consecutive heads of values share one."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def positions(inputs, *names):
    """The elements of each position."""
    for t in range(inputs[names[0]].shape[2]):
        yield tuple([inputs[name][:, :, t] for name in names])


def outer(column, row):
    return column[..., :, None] * row[..., None, :]


def applied(matrix, vector):
    return (matrix @ vector[..., None])[..., 0]


def transposed(x):
    return np.swapaxes(x, -1, -2)


# --- gated delta rules ------------------------------------------------------------------------------------------------


def draw_gated_delta(rng, n, strength):
    shape = n.batch, n.heads, n.length
    return qkv(rng, n) | {"g": log_decay(rng, strength, *shape), "beta": rng.random(shape)}


def gated_delta(x, state):
    """Yang, Kautz, Hatamizadeh 2025 (Gated DeltaNet), equation 10: S = S (α (I − β k kᵀ)) + β v kᵀ, o = S q, for q / √d_k.
    q and k have norm 1, with 1e-6 inside of the root."""
    heads = x["v"].shape[1]
    x = x | {name: per_value_head(unit(x[name], 1e-6), heads) for name in ("q", "k")}
    depth = x["k"].shape[-1]
    s, outputs = transposed(state), []
    for q, k, v, g, beta in positions(x, "q", "k", "v", "g", "beta"):
        beta = beta[..., None, None]
        s = s @ (np.exp(g)[..., None, None] * (np.eye(depth) - beta * outer(k, k))) + beta * outer(v, k)
        outputs.append(applied(s, q / np.sqrt(depth)))
    return np.stack(outputs, 2), transposed(s)


def gated_delta_arguments(x):
    return x["q"], x["k"], x["v"], {"decay": x["g"], "beta": x["beta"], "l2norm": 1e-6,
                                    "scale": x["q"].shape[-1] ** -0.5}


def draw_delta(rng, n, strength):
    return qkv(rng, n) | {"beta": 2 * rng.random((n.batch, n.heads, n.length))}


def delta(x, state):
    """Yang et al. 2024 (DeltaNet), equation 1: S = S (I − β k kᵀ) + β v kᵀ, o = S q; β up to 2 has negative eigenvalues."""
    still = {"g": np.zeros(x["v"].shape[:3])}
    return gated_delta(x | still, state)


def delta_arguments(x):
    return x["q"], x["k"], x["v"], {"beta": x["beta"], "l2norm": 1e-6, "scale": x["q"].shape[-1] ** -0.5}


def draw_kda(rng, n, strength):
    shape = n.batch, n.heads, n.length
    return qkv(rng, n) | {"g": log_decay(rng, strength, *shape, n.depth), "beta": rng.random(shape)}


def kda(x, state):
    """Kimi Team 2025 (Kimi Linear), equation 1: S = (I − β k kᵀ) Diag(α) S + β k vᵀ, o = Sᵀ q, for q / √d_k."""
    heads = x["v"].shape[1]
    x = x | {name: per_value_head(unit(x[name], 1e-6), heads) for name in ("q", "k")}
    depth = x["k"].shape[-1]
    s, outputs = state, []
    for q, k, v, g, beta in positions(x, "q", "k", "v", "g", "beta"):
        beta = beta[..., None, None]
        s = (np.eye(depth) - beta * outer(k, k)) @ (np.exp(g)[..., None] * s) + beta * outer(k, v)
        outputs.append(applied(transposed(s), q / np.sqrt(depth)))
    return np.stack(outputs, 2), s


def draw_gdn2(rng, n, strength):
    erase = rng.random((n.batch, n.heads, n.length, n.depth))
    return qkv(rng, n) | {"g": log_decay(rng, strength, n.batch, n.heads, n.length, n.depth), "b": erase,
                          "w": rng.random((n.batch, n.heads, n.length, n.width))}


def gdn2(x, state):
    """Gated DeltaNet 2: S = (I − k (b ∘ k)ᵀ) Diag(α) S + k (w ∘ v)ᵀ, o = Sᵀ q, for q / √d_k: a gate for each row that is
    erased, and one for each column that is written."""
    heads = x["v"].shape[1]
    x = x | {name: per_value_head(unit(x[name], 1e-6), heads) for name in ("q", "k")}
    depth = x["k"].shape[-1]
    s, outputs = state, []
    for q, k, v, g, b, w in positions(x, "q", "k", "v", "g", "b", "w"):
        s = (np.eye(depth) - outer(k, b * k)) @ (np.exp(g)[..., None] * s) + outer(k, w * v)
        outputs.append(applied(transposed(s), q / np.sqrt(depth)))
    return np.stack(outputs, 2), s


def gdn2_arguments(x):
    k = per_value_head(unit(x["k"], 1e-6), x["v"].shape[1])
    q = unit(x["q"], 1e-6)
    return q, k, x["w"] * x["v"], {"decay": x["g"], "erase": x["b"] * k, "scale": x["q"].shape[-1] ** -0.5}


# --- decays -----------------------------------------------------------------------------------------------------------


def decayed(x, decay, state, scale):
    """S = Diag(α) S + k vᵀ, o = Sᵀ q."""
    heads = x["v"].shape[1]
    x = x | {name: per_value_head(x[name], heads) for name in ("q", "k")} | {"decay": decay}
    s, outputs = state, []
    for q, k, v, alpha in positions(x, "q", "k", "v", "decay"):
        s = alpha[..., None] * s + outer(k, v)
        outputs.append(scale * applied(transposed(s), q))
    return np.stack(outputs, 2), s


def draw_gla(rng, n, strength):
    x = qkv(rng, n)
    return x | {"g": log_decay(rng, strength, n.batch, n.heads, n.length, n.depth)}


def gla(x, state):
    """Yang et al. 2024 (Gated Linear Attention), equation 3: S = Diag(α) S + kᵀ v, o = q S, for q / √d_k."""
    return decayed(x, np.exp(x["g"]), state, x["q"].shape[-1] ** -0.5)


def gla_arguments(x):
    return x["q"], x["k"], x["v"], {"decay": x["g"], "scale": x["q"].shape[-1] ** -0.5}


def retention_rates(heads):
    """Sun et al. 2023, section 2.2: γ = 1 − 2^(−5 − h)."""
    return 1 - 2.0 ** (-5 - np.arange(heads))


def draw_fixed(rng, n, strength):
    return qkv(rng, n)


def retention(x, state):
    """Sun et al. 2023 (RetNet), equation 6: S = γ S + kᵀ v, o = q S, for q / √d_k, with one γ for each head."""
    rates = retention_rates(x["v"].shape[1])[:, None, None]
    return decayed(x, np.broadcast_to(rates, (*x["v"].shape[:3], 1)), state, x["q"].shape[-1] ** -0.5)


def retention_arguments(x):
    return x["q"], x["k"], x["v"], {"decay": np.log(retention_rates(x["v"].shape[1])),
                                    "scale": x["q"].shape[-1] ** -0.5}


def lightning_slopes(heads, layer=1, layers=4):
    """MiniMax 2025: 2^(−8 (h + 1) / H), less in later layers."""
    return 2.0 ** (-8 * (np.arange(heads) + 1) / heads) * (1 - layer / (layers - 1 + 1e-5) + 1e-5)


def lightning(x, state):
    """Qin et al. 2024 (Lightning Attention-2), algorithm 1: S = e^(−slope) S + kᵀ v, o = q S, without a scale."""
    rates = np.exp(-lightning_slopes(x["v"].shape[1]))[:, None, None]
    return decayed(x, np.broadcast_to(rates, (*x["v"].shape[:3], 1)), state, 1.0)


def lightning_arguments(x):
    return x["q"], x["k"], x["v"], {"decay": -lightning_slopes(x["v"].shape[1])}


def draw_mamba2(rng, n, strength):
    """x, Δ, A (negative), B, C, of which B and C belong to groups of heads."""
    delta = np.abs(normal(rng, n.batch, n.heads, n.length)) * 0.5
    delta[rng.random(delta.shape) > 0.93] *= strength
    return {"x": normal(rng, n.batch, n.heads, n.length, n.width), "delta": delta, "A": -np.abs(normal(rng, n.heads)),
            "B": normal(rng, n.batch, n.key_heads, n.length, n.depth),
            "C": normal(rng, n.batch, n.key_heads, n.length, n.depth)}


def mamba2(x, state):
    """Dao, Gu 2024 (Mamba-2, SSD): h = e^(Δ A) h + Δ x Bᵀ, y = h C: the state is d_v × d_k."""
    heads = x["x"].shape[1]
    x = x | {name: per_value_head(x[name], heads) for name in ("B", "C")}
    h, outputs = transposed(state), []
    for value, step, b, c in positions(x, "x", "delta", "B", "C"):
        h = np.exp(step * x["A"])[..., None, None] * h + step[..., None, None] * outer(value, b)
        outputs.append(applied(h, c))
    return np.stack(outputs, 2), transposed(h)


def mamba2_arguments(x):
    return x["C"], x["B"], x["x"] * x["delta"][..., None], {"decay": x["delta"] * x["A"][:, None]}


# --- without decays ---------------------------------------------------------------------------------------------------


def linear(x, state):
    """Katharopoulos et al. 2020, equations 16 to 20: S = S + φ(k) vᵀ, z = z + φ(k), o = φ(q)ᵀ S / φ(q)ᵀ z, φ = elu + 1.
    The last column of the state is z."""
    phi = lambda y: np.where(y > 0, y + 1, np.exp(np.minimum(y, 0)))
    x = x | {name: per_value_head(phi(x[name]), x["v"].shape[1]) for name in ("q", "k")}
    s, z, outputs = state[..., :-1], state[..., -1], []
    for q, k, v in positions(x, "q", "k", "v"):
        s, z = s + outer(k, v), z + k
        outputs.append(applied(transposed(s), q) / (q * z).sum(-1, keepdims=True))
    return np.stack(outputs, 2), np.concatenate([s, z[..., None]], -1)


def linear_arguments(x):
    return x["q"], x["k"], x["v"], {"feature_map": "elu+1", "normalize": True}


# --- RWKV-7 -----------------------------------------------------------------------------------------------------------


def draw_rwkv7(rng, n, strength):
    """r, the logarithm of w in (−e^−0.5, 0), k, v, the removal key κ of norm 1, and its rate a in (0, 1)."""
    shape = n.batch, n.heads, n.length, n.depth
    return {"r": normal(rng, *shape), "w": -np.exp(-0.5) * rng.random(shape), "k": normal(rng, *shape),
            "v": normal(rng, n.batch, n.heads, n.length, n.width), "kappa": unit(normal(rng, *shape)),
            "a": rng.random(shape)}


def rwkv7(x, state):
    """Peng et al. 2025 (RWKV-7), equation 17: S = S (diag(w) − κᵀ (a ∘ κ)) + vᵀ k, o = r Sᵀ: the state is d_v × d_k."""
    s, outputs = transposed(state), []
    for r, w, k, v, kappa, a in positions(x, "r", "w", "k", "v", "kappa", "a"):
        diagonal = np.exp(w)[..., None] * np.eye(w.shape[-1])
        s = s @ (diagonal - outer(kappa, a * kappa)) + outer(v, k)
        outputs.append(applied(s, r))
    return np.stack(outputs, 2), transposed(s)


def rwkv7_arguments(x):
    """Two positions for each: one that decays the state and erases, and one that writes. The first reads the state
    after its decay, so its key is divided by the decay, which is above 0.54."""
    def pairs(first, second):
        both = np.stack([first, second], 3)
        return both.reshape(*both.shape[:2], -1, *both.shape[4:])

    zero = np.zeros_like(x["k"])
    return (pairs(zero, x["r"]), pairs(x["a"] * x["kappa"], x["k"]), pairs(np.zeros_like(x["v"]), x["v"]),
            {"decay": pairs(x["w"], zero), "erase": pairs(x["kappa"] * np.exp(-x["w"]), zero)})


RECURRENCES = {
    "linear": Recurrence(draw_fixed, linear, linear_arguments),
    "retnet": Recurrence(draw_fixed, retention, retention_arguments),
    "lightning": Recurrence(draw_fixed, lightning, lightning_arguments),
    "gla": Recurrence(draw_gla, gla, gla_arguments),
    "mamba2": Recurrence(draw_mamba2, mamba2, mamba2_arguments),
    "deltanet": Recurrence(draw_delta, delta, delta_arguments),
    "gated_deltanet": Recurrence(draw_gated_delta, gated_delta, gated_delta_arguments),
    "kda": Recurrence(draw_kda, kda, gated_delta_arguments),
    "gdn2": Recurrence(draw_gdn2, gdn2, gdn2_arguments),
    "rwkv7": Recurrence(draw_rwkv7, rwkv7, rwkv7_arguments, lambda x: x[:, :, 1::2]),
}
