"""Linear attention of Transformers models with attn_implementation="saccade".

Layers of Gated DeltaNet, Kimi Delta Attention and Mamba-2 call functions of their module, such as
`torch_chunk_gated_delta_rule`. These functions are replaced in the module of a model when its first model is made, and
ask which layer calls them: the forward function of the classes that call one says so. A layer whose configuration does
not ask for Saccade gets the function that the module had. Lightning attention and gated norms have no such function, so
their classes get another forward function.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from saccade import _served, errors
from saccade.torch import fla, mamba
from saccade.torch.fallback import warn_once
from saccade.transformers import own_code, short_layers

NAME = "saccade"
_CONFIG = "_saccade_config"
"""The attribute of a layer for the configuration of its model."""


class _Calling(threading.local):
    layer: Any = None
    """The layer of linear attention that this thread is in, if its configuration asks for Saccade."""


class _Traced:
    layer: Any = None


_calling = _Calling()
_traced = _Traced()  # Dynamo traces one function at a time, and follows no thread-local numbers


def _state() -> Any:
    return _traced if torch.compiler.is_compiling() else _calling


def is_ours(layer: Any) -> bool:
    """Whether the configuration of a layer's model asks for Saccade."""
    config = getattr(layer, _CONFIG, None)
    return config is not None and getattr(config, "_attn_implementation", None) == NAME


# --- functions of modules ---------------------------------------------------------------------------------------------


def _delta_rule(name: str) -> Callable[..., Any]:
    """The gated delta rule with gates of heads or of rows, with the parameters of Transformers' functions."""
    def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, g: torch.Tensor, beta: torch.Tensor,
             chunk_size: int = 64, initial_state: torch.Tensor | None = None, output_final_state: bool = False,
             use_qk_l2norm_in_kernel: bool = False, cu_seqlens: torch.Tensor | None = None, **kwargs: Any) -> Any:
        return fla.compute(name, query, key, value, g, beta, None, initial_state, output_final_state,
                           use_qk_l2norm_in_kernel, False, cu_seqlens)

    return call


def _scan(hidden_states: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor,
          chunk_size: int, D: torch.Tensor | None = None, z: torch.Tensor | None = None,
          dt_bias: torch.Tensor | None = None, initial_states: torch.Tensor | None = None,
          seq_idx: torch.Tensor | None = None, dt_softplus: bool = False,
          dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False,
          **kwargs: Any) -> Any:
    found = mamba.scan(hidden_states, dt, A, B, C, D=D, z=z, dt_bias=dt_bias, initial_states=initial_states,
                       seq_idx=seq_idx, dt_softplus=dt_softplus, dt_limit=(dt_limit[0], dt_limit[1]),
                       returns_state=return_final_states)
    return found if return_final_states else found[0]


def _update(state: torch.Tensor, hidden_states: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor,
            C: torch.Tensor, D: torch.Tensor | None = None, z: torch.Tensor | None = None,
            dt_bias: torch.Tensor | None = None, dt_softplus: bool = False, **kwargs: Any) -> torch.Tensor:
    return mamba.update(state, hidden_states, dt, A, B, C, D, z, dt_bias, dt_softplus)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch_chunk_gated_delta_rule": _delta_rule("chunk_gated_delta_rule"),
    "torch_recurrent_gated_delta_rule": _delta_rule("fused_recurrent_gated_delta_rule"),
    "chunk_kimi_delta_attention": _delta_rule("chunk_kda"),
    "recurrent_kimi_delta_attention": _delta_rule("fused_recurrent_kda"),
    "mamba2_chunk_scan": _scan,
    "mamba2_selective_state_update": _update,
    "causal_conv1d_fn": short_layers.convolve,
    "causal_conv1d_update": short_layers.convolve_step,
}
"""By the name that they have in modules of models."""

OTHERS = {
    "mamba_selective_scan": "Mamba-1 decays each element of its state in its own way, expected Mamba-2",
    "mamba_selective_state_update": "Mamba-1 decays each element of its state in its own way, expected Mamba-2",
}
"""Functions that are left to the model, with the reason."""


def _replaced(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a module that serves layers whose configuration asks for Saccade."""
    function = FUNCTIONS.get(name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        layer = _state().layer
        if layer is None:
            return original(*args, **kwargs)
        reason = OTHERS[name] if function is None else _reason(args, kwargs)
        if reason is None and name in short_layers.REASONS:
            reason = short_layers.REASONS[name](*args, **kwargs)
        return _observed(name, layer, function, functools.partial(original, *args, **kwargs), reason, args, kwargs)

    replaced._saccade_original = original  # type: ignore[attr-defined]
    return replaced


def _reason(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Why PyTorch computes a call; None if Saccade does."""
    if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling() or torch.jit.is_tracing():
        return "an export has PyTorch's operators"
    for x in (*args, *kwargs.values()):
        if isinstance(x, torch.Tensor) and x.device.type != "cpu":
            return f"a tensor is on {x.device}, expected the CPU"
    return None


def _observed(name: str, layer: Any, function: Callable[..., Any] | None, original: Callable[[], Any],
              reason: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call, by Saccade unless there is a reason."""
    if torch.compiler.is_compiling():
        return original() if function is None or reason is not None else function(*args, **kwargs)
    result = None
    if function is not None and reason is None:
        try:
            result = function(*args, **kwargs)
        except errors.CompileError as error:  # a gradient that the compiler does not have
            reason = str(error).partition("error: ")[2].partition("\n")[0] or str(error)
    own_code.called()
    if reason is not None:
        result = original()
        if function is not None:
            warn_once(name, reason)
    if _served.is_on:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        _served.note(name, tensors[:3], reason, layer)
    return result


# --- layers -----------------------------------------------------------------------------------------------------------


def _gated_norm(forward: Callable[..., Any], norm: Callable[..., Any]) -> Callable[..., Any]:
    """The forward function of a gated RMS norm."""
    @functools.wraps(forward)
    def served(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor | None = None) -> Any:
        if not is_ours(self):
            return forward(self, hidden_states, gate)
        reason = _reason((hidden_states,), {}) or short_layers.norm_reason(self, hidden_states, gate)
        return _observed("gated RMS norm", self, norm, functools.partial(forward, self, hidden_states, gate), reason,
                         (self, hidden_states, gate), {})

    return served


def _marking(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward function that says which layer calls the functions of its module."""
    @functools.wraps(forward)
    def marked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_ours(self):
            return forward(self, *args, **kwargs)
        state = _state()
        before, state.layer = state.layer, self
        try:
            return forward(self, *args, **kwargs)
        finally:
            state.layer = before

    return marked


def _lightning(forward: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """The forward function of MiniMax's lightning attention: S ← e^(−slope)·S + k ⊗ v, o = Sᵀ q."""
    @functools.wraps(forward)
    def served(self: Any, hidden_states: torch.Tensor, position_embeddings: Any = None, attention_mask: Any = None,
               past_key_values: Any = None, **kwargs: Any) -> Any:
        reason = _reason((hidden_states,), {})
        if not is_ours(self) or reason is not None:
            return forward(self, hidden_states, position_embeddings, attention_mask, past_key_values, **kwargs)
        batch, length, _ = hidden_states.shape
        mixed = module.apply_mask_to_padding_states(self.act_fn(self.qkv_proj(hidden_states)), attention_mask)
        q, k, v = mixed.view(batch, length, self.num_attention_heads, 3 * self.head_dim).split(self.head_dim, -1)
        state = None if past_key_values is None else past_key_values.get_linear_cache(self.layer_idx)
        rates = -self.slope_rate.flatten()
        output, last = fla.compute("lightning attention", q, k, v, rates, None, 1.0, state, True)
        if _served.is_on and not torch.compiler.is_compiling():
            _served.note("lightning attention", (q, k, v), None, self)
        own_code.called()
        last = last.to(v.dtype)  # type: ignore[union-attr]  # it is returned
        gate = torch.sigmoid(self.output_gate(hidden_states))
        output = self.out_proj(gate * self.norm(output.reshape(batch, length, -1)))
        if past_key_values is not None:
            past_key_values.set_linear_cache(self.layer_idx, last)
        return output, last

    return served


_LIGHTNING = ("qkv_proj", "output_gate", "slope_rate", "get_linear_cache", "set_linear_cache")
"""Names in the code of a layer of lightning attention."""


@functools.cache
def serve(name: str) -> None:
    """Replaces the functions of a module, and the forward functions of the classes that call them."""
    module = sys.modules[name]
    known = [each for each in (*FUNCTIONS, *OTHERS) if callable(getattr(module, each, None))]
    for each in known:
        setattr(module, each, _replaced(each, getattr(module, each)))
    layers: list[Any] = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == name]
    for layer in layers:
        forward: Any = vars(layer).get("forward") if issubclass(layer, torch.nn.Module) else None
        code = getattr(inspect.unwrap(forward), "__code__", None) if callable(forward) else None
        if code is None:
            continue
        if any(each in code.co_names for each in known):
            layer.forward = _marking(forward)
        elif all(each in code.co_names for each in _LIGHTNING):
            layer.forward = _lightning(forward, module)
        elif norm := short_layers.norm_of(layer, forward):
            layer.forward = _gated_norm(forward, norm)
        else:
            continue
        layer._saccade_is_linear = True


def _mark(model: Any) -> None:
    """Serves the modules of a model's classes, and gives its layers of linear attention the configuration."""
    for each in type(model).__mro__:
        if issubclass(each, PreTrainedModel) and each is not PreTrainedModel and each.__module__ in sys.modules:
            serve(each.__module__)
    for layer in model.modules():
        if getattr(type(layer), "_saccade_is_linear", False) and getattr(layer, _CONFIG, None) is None:
            setattr(layer, _CONFIG, model.config)


def admit() -> None:
    """Lets models that are made from now on, and those that `set_attn_implementation` is called of, be served."""
    base: Any = PreTrainedModel
    post_init, set_implementation = base.post_init, base.set_attn_implementation

    @functools.wraps(post_init)
    def marking_post_init(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = post_init(self, *args, **kwargs)
        _mark(self)
        return result

    @functools.wraps(set_implementation)
    def marking_set_implementation(self: Any, *args: Any, **kwargs: Any) -> Any:
        for each in reversed([module for module in self.modules() if isinstance(module, PreTrainedModel)]):
            _mark(each)
        return set_implementation(self, *args, **kwargs)

    base.post_init, base.set_attn_implementation = marking_post_init, marking_set_implementation
