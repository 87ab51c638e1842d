"""Short convolutions and gated norms of Transformers models with attn_implementation="saccade", with the parameters of
the models' own functions and classes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from saccade.conv import causal_conv1d
from saccade.norms import gated_rms_norm

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def convolve(hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
             activation: str | None = None, **kwargs: Any) -> torch.Tensor:
    """The convolution of whole sequences [batch, channels, length], which starts with zeros."""
    return causal_conv1d(hidden_states, weight, bias, activation=activation)


def convolve_step(hidden_states: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor,
                  bias: torch.Tensor | None = None, activation: str | None = None) -> torch.Tensor:
    """The convolution of the next positions, which updates the state [batch, channels, positions] in place."""
    output, last = causal_conv1d(hidden_states, weight, bias, activation=activation, state=conv_state,
                                 return_state=True)
    conv_state.copy_(last)
    return output


def _reason(hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
            activation: str | None = None, **kwargs: Any) -> str | None:
    if activation not in (None, "silu", "swish"):
        return f"the activation of the convolution is {activation}, expected silu or none"
    return _reason_of_types(hidden_states, weight, bias)


def _reason_of_step(hidden_states: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor,
                    bias: torch.Tensor | None = None, activation: str | None = None) -> str | None:
    if conv_state.dtype != hidden_states.dtype:
        return f"the state of the convolution is {conv_state.dtype}, expected {hidden_states.dtype}, that of its input"
    return _reason(hidden_states, weight, bias, activation)


def _reason_of_types(first: torch.Tensor, *others: torch.Tensor | None) -> str | None:
    for x in (first, *others):
        allowed = (torch.float64,) if first.dtype == torch.float64 else _FLOATS
        if x is not None and x.dtype not in allowed:
            return f"a tensor is {x.dtype}, expected {' or '.join([str(each) for each in allowed])}"
    return None


REASONS: dict[str, Callable[..., str | None]] = {"causal_conv1d_fn": _reason, "causal_conv1d_update": _reason_of_step}
"""By the name of the function in modules of models: why PyTorch computes a call, or None."""


# --- gated norms ------------------------------------------------------------------------------------------------------


def _before(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """The norm over the last dimension, then the gate."""
    return gated_rms_norm(hidden_states, gate, self.weight, eps=self.variance_epsilon, activation=self.activation)


def _after(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """The gate, then the norm over groups of a size."""
    return gated_rms_norm(hidden_states, gate, self.weight, eps=self.variance_epsilon, norm_before_gate=False,
                          group_size=self.group_size)


def _either(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """The norm over a number of groups, before or after the gate."""
    return gated_rms_norm(hidden_states, gate, self.weight, eps=self.variance_epsilon,
                          norm_before_gate=self.norm_before_gate, group_size=hidden_states.shape[-1] // self.n_groups)


_PROBES: list[tuple[Callable[..., Any], list[dict[str, Any]]]] = [
    (_before, [{"activation": "silu"}, {"activation": "sigmoid"}]),
    (_after, [{"group_size": 4}, {"group_size": 8}]),
    (_either, [{"n_groups": 2, "norm_before_gate": True}, {"n_groups": 1, "norm_before_gate": False}]),
]
"""Norms, and attributes of layers with which the code of a class must agree with them."""


def norm_of(layer: type, forward: Callable[..., Any]) -> Callable[..., Any] | None:
    """The norm that the forward function of a class computes, which is tried with a few numbers; None if it is another
    function."""
    if "RMSNormGated" not in layer.__name__:
        return None
    x, gate, weight = (torch.linspace(-2, shift, 16).view(2, 8).sin() for shift in (3.0, 5.0, 9.0))
    weight = weight[0]
    for norm, probes in _PROBES:
        try:
            with torch.no_grad():
                fits = [_agrees(norm, forward, SimpleNamespace(weight=weight, variance_epsilon=0.25, **each), x, gate)
                        for each in probes]
        except (AttributeError, TypeError):  # it needs other attributes or parameters
            continue
        if all(fits):
            return norm
    return None


def _agrees(norm: Callable[..., Any], forward: Callable[..., Any], layer: Any, x: torch.Tensor,
            gate: torch.Tensor) -> bool:
    return bool(torch.allclose(norm(layer, x, gate), forward(layer, x, gate), rtol=1e-4, atol=1e-5))


def norm_reason(layer: Any, hidden_states: torch.Tensor, gate: torch.Tensor | None) -> str | None:
    """Why PyTorch computes a call of a gated norm, or None."""
    if gate is None:
        return "the norm has no gate"
    if torch.promote_types(layer.weight.dtype, hidden_states.dtype) != hidden_states.dtype:
        return f"the weight of the norm is {layer.weight.dtype}, expected {hidden_states.dtype}, the type of its input"
    return _reason_of_types(hidden_states, gate, layer.weight)
