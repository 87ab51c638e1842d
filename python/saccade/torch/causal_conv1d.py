"""Functions with the names, parameters and layouts of the package `causal_conv1d`, computed by
`saccade.causal_conv1d` on CPUs."""

from __future__ import annotations

from typing import Any

import torch

from saccade import _served, conv


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """The convolution of whole sequences.

    Args:
        x: [batch, dim, length].
        weight: [dim, width].
        bias: [dim].
        seq_idx: [batch, length], the numbers of sequences that are stored one after another: a position reads none of
            another sequence. Not with initial or final states.
        initial_states: [batch, dim, width − 1].
        return_final_states: returns (output, final states [batch, dim, width − 1]).
        final_states_out: the tensor to write the final states to.
        activation: None, "silu" or "swish".

    Returns:
        The output [batch, dim, length], of x's element type.
    """
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError("activation must be None, silu, or swish")
    _note("causal_conv1d_fn", x)
    if seq_idx is not None:
        if initial_states is not None or return_final_states or final_states_out is not None:
            raise ValueError("seq_idx is given with initial or final states, expected it without them")
        if tuple(seq_idx.shape) != (x.shape[0], x.shape[2]):
            raise ValueError(f"seq_idx has shape {tuple(seq_idx.shape)}, expected {(x.shape[0], x.shape[2])}")
        rows = x.transpose(1, 2).reshape(-1, x.shape[1])
        found = conv.causal_conv1d(rows, weight, bias, activation=activation, cu_seqlens=_offsets(seq_idx), layout="sd")
        return found.view(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)
    if final_states_out is not None and not return_final_states:
        raise ValueError("final_states_out is given, expected return_final_states=True with it")
    found = conv.causal_conv1d(x, weight, bias, activation=activation, state=initial_states,
                               return_state=return_final_states)
    if not return_final_states or final_states_out is None:
        return found
    output, last = found
    return output, final_states_out.copy_(last)


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """The convolution of the next positions, which updates `conv_state` in place.

    Args:
        x: [batch, dim], or [batch, dim, length].
        conv_state: [batch, dim, n] with n ≥ width − 1: the inputs before x, the last one last.
        weight, bias, activation: as in `causal_conv1d_fn`.

    Returns:
        The output, of x's shape.

    Raises:
        NotImplementedError: `cache_seqlens`, for states that are circular buffers, or `conv_state_indices`.
    """
    for name, value in (("cache_seqlens", cache_seqlens), ("conv_state_indices", conv_state_indices)):
        if value is not None:
            raise NotImplementedError(f"causal_conv1d_update: {name} is not supported, expected None")
    _note("causal_conv1d_update", x)
    rows = x.unsqueeze(-1) if x.dim() == 2 else x
    output, last = conv.causal_conv1d(rows, weight, bias, activation=activation, state=conv_state, return_state=True)
    conv_state.copy_(last)
    return output.squeeze(-1) if x.dim() == 2 else output


def _offsets(seq_idx: torch.Tensor) -> torch.Tensor:
    """The offsets of the sequences of all batches, stored one after another."""
    is_first = torch.ones(seq_idx.shape, dtype=torch.bool)
    is_first[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    starts = is_first.flatten().nonzero().flatten()
    return torch.cat([starts, torch.full((1,), seq_idx.numel())])


def _note(name: str, x: torch.Tensor) -> None:
    if _served.is_on and not torch.compiler.is_compiling():
        _served.note(name, (x,))


__all__ = ["causal_conv1d_fn", "causal_conv1d_update"]
