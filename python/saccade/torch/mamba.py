"""Functions with the names, parameters and layouts of the package `mamba_ssm` for Mamba-2, computed by
`saccade.linear_attention` on CPUs: the state space model h ← exp(Δ A)·h + Δ x ⊗ B, y = h C + D x.

C are the queries, B the keys, Δ x the values, and Δ A the logarithms of the decay. States are [batch, heads, head_dim,
state size], the transpose of those of `saccade.linear_attention`. Everything is computed in float32 (float64 for
float64 inputs), and the output has the element type of x.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from saccade import _served
from saccade.linear import attend

_INFINITE = float("inf")


def mamba_chunk_scan_combined(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int | None = None,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, _INFINITE),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Any:
    """The scan over all positions.

    Args:
        x: [batch, positions, heads, head_dim].
        dt: [batch, positions, heads]: Δ is dt + dt_bias, with `dt_softplus` its softplus, clamped to `dt_limit`.
        A: [heads], negative.
        B, C: [batch, positions, groups, state size]; `heads` is a multiple of `groups`.
        chunk_size: ignored.
        D: [heads] or [heads, head_dim], the factor of x that is added to the output.
        z: [batch, positions, heads, head_dim]; the output is multiplied by silu(z).
        dt_bias: [heads].
        initial_states: [batch, heads, head_dim, state size].
        seq_idx: [batch, positions], the numbers of sequences that are stored one after another: a state ends with its
            sequence. Not with initial or final states.

    Returns:
        The output [batch, positions, heads, head_dim], with `return_final_states` (output, states).

    Raises:
        NotImplementedError: `cu_seqlens` or `return_varlen_states`.
    """
    if cu_seqlens is not None or return_varlen_states:
        name = "return_varlen_states" if cu_seqlens is None else "cu_seqlens"
        raise NotImplementedError(f"mamba_chunk_scan_combined: {name} is not supported, expected seq_idx for sequences "
                                  "that are stored one after another")
    if _served.is_on and not torch.compiler.is_compiling():
        _served.note("mamba_chunk_scan_combined", (C, B, x))
    output, states = scan(x, dt, A, B, C, D=D, z=z, dt_bias=dt_bias, initial_states=initial_states, seq_idx=seq_idx,
                          dt_softplus=dt_softplus, dt_limit=dt_limit, returns_state=return_final_states)
    output = output.to(x.dtype)
    return (output, states) if return_final_states else output


def selective_state_update(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """One position of Mamba-2, which updates `state` in place.

    Args:
        state: [batch, heads, head_dim, state size], of any float type.
        x: [batch, heads, head_dim].
        dt: [batch, heads, head_dim], of which the elements of a head are equal, as by `expand`; dt_bias [heads,
            head_dim] and A [heads, head_dim, state size] likewise, D [heads, head_dim] of any elements.
        B, C: [batch, groups, state size].
        z: [batch, heads, head_dim].

    Returns:
        The output [batch, heads, head_dim].

    Raises:
        NotImplementedError: `state_batch_indices`, or elements of a head that may differ, as in Mamba-1.
    """
    if _served.is_on and not torch.compiler.is_compiling():
        _served.note("selective_state_update", (C, B, x))
    return update(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus, state_batch_indices)


def update(state: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor,
           D: torch.Tensor | None = None, z: torch.Tensor | None = None, dt_bias: torch.Tensor | None = None,
           dt_softplus: bool = False, state_batch_indices: torch.Tensor | None = None) -> torch.Tensor:
    """`selective_state_update`, which is not reported."""
    if state_batch_indices is not None:
        raise NotImplementedError("selective_state_update: state_batch_indices is not supported, expected None")
    for name, tensor, axes in (("dt", dt, 1), ("A", A, 2), ("dt_bias", dt_bias, 1)):
        if tensor is not None and not _is_tied(tensor, axes):
            raise NotImplementedError(f"selective_state_update: elements of {name} may differ within a head, expected "
                                      "one value for each head, expanded: Mamba-1 is not supported")
    x1, dt1, b1, c1 = [tensor.unsqueeze(1) for tensor in (x, dt[..., 0], B, C)]
    output, last = scan(x1, dt1, A[:, 0, 0], b1, c1, D=D, z=None if z is None else z.unsqueeze(1),
                        dt_bias=None if dt_bias is None else dt_bias[:, 0], initial_states=state,
                        dt_softplus=dt_softplus, returns_state=True)
    state.copy_(last)
    return output.squeeze(1).to(x.dtype)


def _is_tied(x: torch.Tensor, axes: int) -> bool:
    """Whether the elements along the last axes are one in memory."""
    return all(stride == 0 or extent == 1 for stride, extent in zip(x.stride()[-axes:], x.shape[-axes:]))


def scan(x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, *,
         D: torch.Tensor | None = None, z: torch.Tensor | None = None, dt_bias: torch.Tensor | None = None,
         initial_states: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None, dt_softplus: bool = False,
         dt_limit: tuple[float, float] = (0.0, _INFINITE), returns_state: bool = False) -> Any:
    """The output and the final states, or None, of `mamba_chunk_scan_combined` in float32 or float64."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    if dt_bias is not None:
        dt = dt + dt_bias.to(dt.dtype)
    if dt_softplus:
        dt = functional.softplus(dt)
    if dt_limit != (0.0, _INFINITE) or not dt_softplus:
        dt = dt.clamp(dt_limit[0], dt_limit[1])
    x, dt, b, c = (each.to(wide) for each in (x, dt, B, C))
    values, decay = x * dt.unsqueeze(-1), dt * A.to(wide)
    state = None if initial_states is None else initial_states.to(wide).transpose(-1, -2)
    options = "identity", True, False, None, returns_state, None, "bshd"
    if seq_idx is not None:
        if initial_states is not None or returns_state:
            raise ValueError("seq_idx is given with initial or final states, expected it without them")
        decay = _ended(decay, seq_idx)
    given = {"decay": decay, "beta": None, "erase": None, "state": state, "cu_seqlens": None, "kv_len": None}
    found = attend(c, b, values, given, options)
    output, last = found if returns_state else (found, None)
    if D is not None:
        output = output + x * (D.to(wide).unsqueeze(-1) if D.dim() == 1 else D.to(wide))
    if z is not None:
        output = output * functional.silu(z.to(wide))
    return output, None if last is None else last.transpose(-1, -2)


def _ended(decay: torch.Tensor, seq_idx: torch.Tensor) -> torch.Tensor:
    """The decays [batch, positions, heads], −∞ at the first position of each sequence."""
    is_first = torch.zeros(seq_idx.shape, dtype=torch.bool)
    is_first[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    return decay.masked_fill(is_first.unsqueeze(-1), -_INFINITE)


__all__ = ["mamba_chunk_scan_combined", "selective_state_update"]
