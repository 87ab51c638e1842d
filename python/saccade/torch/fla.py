"""Functions with the names, parameters and layouts of the package `fla` (flash-linear-attention 0.6), computed by
`saccade.linear_attention` on CPUs.

Tensors are [batch, positions, heads, ...], states [sequences, heads, d_k, d_v] in float32 (float64 for float64
queries), and gates are natural logarithms. Every function returns (output, final state), whose second is None without
`output_final_state`. The scale is 1/√d_k by default, except of `chunk_rwkv7`. As in `fla`, NaN and gates above 0 are
computed with. `cu_seqlens` [sequences + 1] divides the positions of a batch of 1 into sequences.

Parameters without a meaning here, such as `chunk_size`, are ignored. Others that are not supported are refused by name
(NotImplementedError) unless they have their default, and names that `fla` does not have (TypeError).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from saccade import _served
from saccade.linear import attend

Result = tuple[torch.Tensor, torch.Tensor | None]

IGNORED = frozenset({"cu_seqlens_cpu", "chunk_indices", "chunk_size", "safe_gate", "disable_recompute", "use_graph",
                     "max_num_seqs"})
"""Parameters of `fla` that do not change results."""
REFUSED = {"cp_context": None, "return_intermediate_states": False, "gv": None}
"""Parameters of `fla` that are not supported, with their defaults."""


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    use_gate_in_kernel: bool = False,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """S ← exp(g)·S + β k ⊗ (v − Sᵀ k), o = scale · Sᵀ q (Gated DeltaNet).

    Args:
        q, k: [B, T, H, K]; with `use_qk_l2norm_in_kernel` divided by √(Σ x² + 1e-6).
        v: [B, T, HV, V], HV a multiple of H.
        g: [B, T, HV]; with `use_gate_in_kernel` the gate is −exp(A_log)·softplus(g + dt_bias).
        beta: [B, T, HV]; with `use_beta_sigmoid_in_kernel` β is sigmoid(beta), twice that with `allow_neg_eigval`.
        initial_state: [N, HV, K, V], or [N, HV, V, K] with `state_v_first`.
    """
    _check("chunk_gated_delta_rule", kwargs)
    if use_gate_in_kernel:
        g = _gate(g, A_log, dt_bias, None)
    return _call("chunk_gated_delta_rule", q, k, v, g, _rate(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale,
                 initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first, cu_seqlens)


def fused_recurrent_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_gated_delta_rule` with gates of heads, of rows of the state (gk [B, T, HV, K]), or both. β is 1 by
    default."""
    _check("fused_recurrent_gated_delta_rule", kwargs | {"gv": gv})
    if use_gate_in_kernel and g is not None:
        g = _gate(g, A_log, dt_bias, None)
    if gk is not None:
        g = gk if g is None else gk + g.unsqueeze(-1)
    beta = torch.ones(v.shape[:3], dtype=v.dtype) if beta is None else beta
    return _call("fused_recurrent_gated_delta_rule", q, k, v, g,
                 _rate(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale, initial_state, output_final_state,
                 use_qk_l2norm_in_kernel, state_v_first, cu_seqlens)


def chunk_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """S ← S + β k ⊗ (v − Sᵀ k), o = scale · Sᵀ q (DeltaNet); β [B, T, H] is 1 by default."""
    _check("chunk_delta_rule", kwargs)
    beta = torch.ones(v.shape[:3], dtype=v.dtype) if beta is None else beta
    return _call("chunk_delta_rule", q, k, v, None, beta, scale, initial_state, output_final_state,
                 use_qk_l2norm_in_kernel, False, cu_seqlens)


fused_recurrent_delta_rule = chunk_delta_rule


def chunk_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """The gated delta rule with a gate for each row of the state (Kimi Delta Attention): g is [B, T, HV, K]. With
    `use_gate_in_kernel` the gate is −exp(A_log)·softplus(g + dt_bias), or with `lower_bound`
    lower_bound·sigmoid(exp(A_log)·(g + dt_bias)), for A_log [HV] and dt_bias [HV·K]."""
    _check("chunk_kda", kwargs)
    if use_gate_in_kernel:
        g = _gate(g, A_log, dt_bias, lower_bound)
    return _call("chunk_kda", q, k, v, g, _rate(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), scale,
                 initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first, cu_seqlens)


fused_recurrent_kda = chunk_kda


def chunk_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """S ← diag(exp(g))·S + k ⊗ v, o = scale · Sᵀ q (Gated Linear Attention); g is [B, T, H, K]."""
    _check("chunk_gla", kwargs)
    return _call("chunk_gla", q, k, v, g, None, scale, initial_state, output_final_state, False, state_v_first,
                 cu_seqlens)


def fused_recurrent_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_gla`; with `reverse` from the last position to the first."""
    _check("fused_recurrent_gla", kwargs | {"gv": gv})
    return _call("fused_recurrent_gla", q, k, v, gk, None, scale, initial_state, output_final_state, False,
                 state_v_first, cu_seqlens, reverse)


def chunk_simple_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    g_gamma: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    reverse: bool = False,
    **kwargs: Any,
) -> Result:
    """S ← exp(g)·S + k ⊗ v, o = scale · Sᵀ q; g is [B, T, H], g_gamma [H] for all positions, or both."""
    _check("chunk_simple_gla", kwargs)
    if g_gamma is not None:
        g = g_gamma if g is None else g + g_gamma
    return _call("chunk_simple_gla", q, k, v, g, None, scale, initial_state, output_final_state, False, state_v_first,
                 cu_seqlens, reverse)


fused_recurrent_simple_gla = chunk_simple_gla


def chunk_retention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    reverse: bool = False,
    state_v_first: bool = False,
    **kwargs: Any,
) -> Result:
    """`chunk_simple_gla` with the decays of RetNet: 1 − 2^(−5 − h) of head h."""
    _check("chunk_retention", kwargs)
    rates = torch.log1p(-(2.0 ** (-5.0 - torch.arange(q.shape[2], dtype=torch.float64))))
    return _call("chunk_retention", q, k, v, rates, None, scale, initial_state, output_final_state, False,
                 state_v_first, cu_seqlens, reverse)


fused_recurrent_retention = chunk_retention


def chunk_lightning_attn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    reverse: bool = False,
    state_v_first: bool = False,
    **kwargs: Any,
) -> Result:
    """`chunk_simple_gla` with the decays of lightning attention: the logarithm is −8 h/H · (1 − layer_idx/num_layers)
    of head h."""
    _check("chunk_lightning_attn", kwargs)
    heads = q.shape[2]
    rates = -(8 / heads * (1 - layer_idx / num_layers)) * torch.arange(heads, dtype=torch.float64)
    return _call("chunk_lightning_attn", q, k, v, rates, None, scale, initial_state, output_final_state, False,
                 state_v_first, cu_seqlens, reverse)


fused_recurrent_lightning_attn = chunk_lightning_attn


def chunk_dplr_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    gk: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """S ← diag(exp(gk))·S + b ⊗ (Sᵀ a) + k ⊗ v, o = scale · Sᵀ q, with Sᵀ a of the state before its decay (diagonal
    plus low rank, the recurrence of RWKV-7); a, b and gk are [B, T, H, K]. Each position is two of
    `saccade.linear_attention`: one that decays and erases, one that writes."""
    _check("chunk_dplr_delta_rule", kwargs)
    return _dplr("chunk_dplr_delta_rule", q, k, v, a, b, gk, scale, initial_state, output_final_state, cu_seqlens)


def chunk_rwkv7(
    r: torch.Tensor,
    w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    scale: float = 1.0,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    lower_bound: float | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_dplr_delta_rule` of r, k, v, a, b and the gate w, with a scale of 1 by default."""
    _check("chunk_rwkv7", kwargs)
    return _dplr("chunk_rwkv7", r, k, v, a, b, w, scale, initial_state, output_final_state, cu_seqlens)


def fused_recurrent_rwkv7(
    r: torch.Tensor,
    w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: torch.Tensor | None = None,
) -> Result:
    """`chunk_rwkv7` with a scale of 1/√d_k by default, which returns the final state by default."""
    return _dplr("fused_recurrent_rwkv7", r, k, v, a, b, w, scale, initial_state, output_final_state, cu_seqlens)


# --- what they share --------------------------------------------------------------------------------------------------


def _check(function: str, given: dict[str, Any]) -> None:
    """Refuses parameters that are not supported."""
    for name, value in given.items():
        if name in REFUSED:
            if value is not REFUSED[name]:
                raise NotImplementedError(f"{function}: {name} is not supported, expected {REFUSED[name]}")
        elif name not in IGNORED:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def _rate(beta: torch.Tensor, is_logit: bool, is_doubled: bool) -> torch.Tensor:
    if not is_logit:
        if is_doubled:
            raise ValueError("allow_neg_eigval is True, expected use_beta_sigmoid_in_kernel=True with it")
        return beta
    rate = torch.sigmoid(beta.float() if beta.dtype != torch.float64 else beta)
    return 2 * rate if is_doubled else rate


def _gate(g: torch.Tensor, A_log: torch.Tensor | None, dt_bias: torch.Tensor | None,
          lower_bound: float | None) -> torch.Tensor:
    """The gate of heads [B, T, H], or of rows [B, T, H, K], from what enters its activation."""
    wide = g if g.dtype == torch.float64 else g.float()
    if dt_bias is not None:
        wide = wide + dt_bias.to(wide.dtype).view(g.shape[2:])
    if A_log is None:
        if lower_bound is None:
            raise ValueError("A_log is None, expected a tensor with use_gate_in_kernel=True")
        return lower_bound * torch.sigmoid(wide)
    rate = A_log.to(wide.dtype).exp().view(-1, *[1] * (g.dim() - 3))
    return -rate * functional.softplus(wide) if lower_bound is None else lower_bound * torch.sigmoid(rate * wide)


def _fitting(x: torch.Tensor | None, q: torch.Tensor) -> torch.Tensor | None:
    """A gate or a state in an element type that a call with q takes."""
    if x is None or x.dtype == q.dtype or x.dtype == torch.float32 and q.dtype != torch.float64:
        return x
    return x.to(torch.float64 if q.dtype == torch.float64 else torch.float32)


def _call(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None,
          beta: torch.Tensor | None, scale: float | None, initial_state: torch.Tensor | None, returns_state: bool,
          has_l2norm: bool = False, is_v_first: bool = False, cu_seqlens: torch.Tensor | None = None,
          is_reversed: bool = False, erase: torch.Tensor | None = None) -> Result:
    """`compute` of a function of this module."""
    if _served.is_on and not torch.compiler.is_compiling():
        _served.note(name, (q, k, v))
    return compute(name, q, k, v, g, beta, scale, initial_state, returns_state, has_l2norm, is_v_first, cu_seqlens,
                   is_reversed, erase)


def compute(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None,
            beta: torch.Tensor | None, scale: float | None, initial_state: torch.Tensor | None, returns_state: bool,
            has_l2norm: bool = False, is_v_first: bool = False, cu_seqlens: torch.Tensor | None = None,
            is_reversed: bool = False, erase: torch.Tensor | None = None) -> Result:
    """A call of `saccade.linear_attention`. `name` is that of messages."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    layout = "bshd" if cu_seqlens is None else "shd"
    options = ("identity", True, False, scale, bool(returns_state), 1e-6 if has_l2norm else None, layout)
    state = _fitting(initial_state, q)
    if is_v_first and state is not None:
        state = state.transpose(-1, -2)
    if is_reversed and cu_seqlens is not None:
        raise NotImplementedError(f"{name}: reverse is not supported with cu_seqlens, expected False")

    def rows(x: torch.Tensor | None) -> torch.Tensor | None:
        """An operand with positions; without the batch of 1 if it is ragged."""
        if x is None or x.dim() == 1:
            return x
        x = x.flip(1) if is_reversed else x
        return x if cu_seqlens is None else x[0]

    if cu_seqlens is not None and q.shape[0] != 1:
        raise ValueError(f"{name}: q has batch size {q.shape[0]}, expected 1 with cu_seqlens")
    given = {"decay": rows(_fitting(g, q)), "beta": rows(_fitting(beta, q)), "erase": rows(erase), "state": state,
             "cu_seqlens": cu_seqlens, "kv_len": None}
    found = attend(rows(q), rows(k), rows(v), given, options)
    output, last = found if returns_state else (found, None)
    output = output.flip(1) if is_reversed else output
    if is_v_first and last is not None:
        last = last.transpose(-1, -2).contiguous()
    return output if cu_seqlens is None else output.unsqueeze(0), last


_STRONGEST = -80.0
"""A logarithm of a decay whose inverse is finite in float32, and after which nothing of a state is left."""


def _dplr(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
          g: torch.Tensor, scale: float | None, initial_state: torch.Tensor | None, returns_state: bool,
          cu_seqlens: torch.Tensor | None) -> Result:
    """The state that is read to erase has decayed already, so the key of the erasure is divided by the decay."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    g = g.to(wide).clamp(min=_STRONGEST)
    zero = torch.zeros_like(k)

    def pairs(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return torch.stack([first, second], 2).flatten(1, 2)

    erase = pairs(-a.to(wide) * torch.exp(-g), torch.zeros_like(g))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    cu_seqlens = None if cu_seqlens is None else 2 * cu_seqlens
    values, gates = pairs(torch.zeros_like(v), v), pairs(g, torch.zeros_like(g))
    output, last = _call(name, pairs(zero, q), pairs(b, k), values, gates, None, scale, initial_state, returns_state,
                         cu_seqlens=cu_seqlens, erase=erase)
    return output[:, 1::2], last


__all__ = [
    "chunk_delta_rule",
    "chunk_dplr_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_gla",
    "chunk_kda",
    "chunk_lightning_attn",
    "chunk_retention",
    "chunk_rwkv7",
    "chunk_simple_gla",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_lightning_attn",
    "fused_recurrent_retention",
    "fused_recurrent_rwkv7",
    "fused_recurrent_simple_gla",
]
