"""The attention function of attn_implementation="saccade"."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from saccade import _served, scores
from saccade.attention import attention
from saccade.torch.fallback import autocast, requires_grad, warn_once
from saccade.torch.sdpa import draw_dropout
from saccade.transformers import own_code, reference, weights
from saccade.transformers.code_of_models import has_code_for_sdpa
from saccade.transformers.masks import StructuredMask, window_of

NAME = "saccade"
"""The name of the attention implementation. Transformers gives names that contain "sdpa" or "flex" other meanings."""
FUNCTION = f'attn_implementation="{NAME}"'
"""What reports call the attention function."""


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sliding_window: int | None = None,
    cache: Any = None,
    indices: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a Transformers module, with the parameters of its attention functions.

    Args:
        module: the module; `is_causal` is read if it is not an argument.
        query: [batch, heads, queries, head_dim], any strides.
        key, value: [batch, KV heads, keys, head_dim or head_dim_v], not repeated for the query heads.
        attention_mask: a StructuredMask, a boolean (true: attends) or additive tensor that broadcasts to [batch, heads,
            queries, keys] and may have more keys, or None. With None, attention is causal if `is_causal` is set and
            there is more than one query: query i attends to the keys up to i.
        dropout: the dropout probability of the weights, 0 except in training. Each call draws its seed from PyTorch's
            default generator. PyTorch computes calls with dropout in functions that it compiles.
        scaling: the factor of scores, 1/sqrt(head_dim) by default.
        position_bias: added to the scores, broadcasts to [batch, heads, queries, keys].
        softcap: scores become softcap * tanh(score / softcap) before biases and masks.
        s_aux: [heads], one more score of each row, without a value (attention sinks).
        sliding_window: the number of keys of a window. Only used without a mask: masks include it.
        indices: [batch, queries, n], the keys that each query attends to (DeepSeek sparse attention), within the mask.
        sinks: [batch, heads, queries, 1], one more score of each query, without a value.
        cache: the cache of continuous batching, which takes key and value first.

    Returns:
        (output [batch, queries, heads, head_dim_v], None), or with `output_attentions=True` the weights [batch, heads,
        queries, keys] without dropout, which PyTorch's operators compute.

    Raises:
        NotImplementedError: block-sparse attention by block indices, or sinks of each query in an export.
        Others: as `saccade.attention`.
    """
    if not torch.compiler.is_compiling() and (
            _served.is_on or _served.profiler._is_profiler_enabled) and _served.is_new_call():
        compute = functools.partial(
            attention_forward, module, query, key, value, attention_mask, dropout, scaling, is_causal, position_bias,
            softcap, s_aux, sliding_window, cache, indices, sinks, **kwargs)
        own_code.called()
        return _served.observe(  # type: ignore[no-any-return]
            FUNCTION, compute, (query, key, value), module, arguments=(compute.args, kwargs))
    has_weights = kwargs.pop("output_attentions", None)
    if weights.are_recorded() if has_weights is None else has_weights:
        return _with_weights(module, (query, key, value), attention_mask, dropout, scaling, is_causal, position_bias,
                             softcap, s_aux, sliding_window, cache, indices, sinks, **kwargs)
    if kwargs.get("block_indices") is not None:
        raise NotImplementedError(f"{type(module).__name__} passes block_indices, which {FUNCTION} does not support, "
                                  'expected "eager" for this model')
    if isinstance(cache, PagedAttentionCache):
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs)
    if is_causal is None:
        is_causal = is_causal_module(module)
    # Whole-graph compilation takes attention from PyTorch's operators. Dynamo takes is_exporting for true.
    is_exporting = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
    is_exporting = is_exporting or torch.jit.is_tracing()
    is_compiled_dropout = dropout > 0 and torch.compiler.is_compiling()
    if sliding_window is not None and attention_mask is None and (
            is_exporting or is_compiled_dropout or indices is not None):  # fmt: skip
        attention_mask = _window_table(sliding_window, bool(is_causal), query.shape[2], key)
    if is_exporting or is_compiled_dropout:
        _note_reference(module, is_exporting, sinks is not None)
        attention_mask = _fitting(attention_mask, (*query.shape[:3], key.shape[2]))
        if indices is not None:
            attention_mask = _select(indices, attention_mask, key.shape[2], bool(is_causal))
        elif isinstance(attention_mask, StructuredMask):
            attention_mask = attention_mask.dense()
        return reference.attention(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                   is_causal=is_causal, position_bias=position_bias, softcap=softcap, s_aux=s_aux), None

    is_recorded = requires_grad(query, key, value, attention_mask, position_bias, s_aux, sinks)
    query, key, value, options = call_of(query, key, value, attention_mask, scaling, is_causal, position_bias, softcap,
                                         s_aux, sliding_window, indices, is_recorded)
    if (drawn := draw_dropout(dropout)) is not None:
        options["dropout_p"], options["seed"] = drawn
    if sinks is not None:
        result: Any = attention(query, key, value, return_lse=True, **options)
        return _with_sinks(result[0], result[1], sinks).transpose(1, 2).contiguous(), None
    if is_recorded or torch.compiler.is_compiling():
        result = attention(query, key, value, **options)
        return result.transpose(1, 2).contiguous(), None
    batch, heads, queries, _ = query.shape
    output = query.new_empty((batch, queries, heads, value.shape[3]))
    attention(query, key, value, out=output.transpose(1, 2), **options)
    return output, None


def call_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, scaling: float | None,
            is_causal: bool, position_bias: torch.Tensor | None, softcap: float | None, s_aux: torch.Tensor | None,
            sliding_window: int | None, indices: torch.Tensor | None,
            is_recorded: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Query, key and value and the options of `saccade.attention` with the meaning of these arguments, dropout and
    `sinks` apart."""
    query, key, value = autocast(query, key, value)
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if key.shape[0] != batch:  # as PyTorch's function, which broadcasts learned queries
        batch = max(batch, key.shape[0])
        query, key, value = (x.expand(batch, *x.shape[1:]) for x in (query, key, value))
    extents = batch, heads, queries, keys
    attention_mask = _fitting(attention_mask, extents)
    if indices is not None:
        attention_mask = _select(indices, attention_mask, keys, bool(is_causal))
    options: dict[str, Any] = {}
    biases = []
    if position_bias is not None:
        _check_extents("position bias", position_bias, extents)
        biases.append(_table(position_bias, extents))
    if attention_mask is None:
        if is_causal and queries > 1:
            options["causal"] = "top_left"
        if sliding_window is not None:
            options |= window_options(sliding_window, bool(is_causal), queries, keys)
    elif isinstance(attention_mask, StructuredMask):
        options |= attention_mask.options(batch)
    elif attention_mask.dtype == torch.bool:
        options["mask"] = _from_table(_table(attention_mask, extents))
    else:
        biases.append(_table(attention_mask, extents))
    if softcap is not None or biases:
        options["score"] = _score(softcap, biases)
    if s_aux is not None:
        sink = s_aux if is_recorded else s_aux.detach()
        options["sink"] = sink if sink.dtype == query.dtype else sink.float()
    if scaling is not None:
        options["scale"] = scaling
    return query, key, value, options


def _note_reference(module: torch.nn.Module, is_exporting: bool, has_sinks: bool) -> None:
    """Says that PyTorch's operators compute a call; raises if they cannot."""
    if has_sinks:
        raise NotImplementedError(f"{type(module).__name__} passes sinks, which {FUNCTION} does not support in "
                                  'exports and with dropout under torch.compile, expected "eager"')
    if not is_exporting:
        _fall_back("dropout is not supported under torch.compile: eval() avoids it")
    elif _served.is_on:
        _served.refused(None)


# Dynamo calls this, and does not propagate its exceptions.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _fall_back(reason: str) -> None:
    warn_once(FUNCTION, reason)


def _with_weights(module: Any, operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], mask: Any, dropout: float,
                  scaling: float | None, is_causal: bool | None, position_bias: torch.Tensor | None,
                  softcap: float | None, s_aux: torch.Tensor | None, sliding_window: int | None, cache: Any,
                  indices: torch.Tensor | None, sinks: torch.Tensor | None,
                  **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The output and the weights that it would have without dropout."""
    query, key, value = operands
    if cache is not None or sinks is not None:
        what = "a paged cache" if cache is not None else "sinks of each query"
        raise NotImplementedError(f'{FUNCTION} has no weights for {what}: use "eager" for output_attentions')
    weights.check_size(query, key)
    output, _ = attention_forward(module, query, key, value, mask, dropout, scaling, is_causal, position_bias, softcap,
                                  s_aux, sliding_window, None, indices, None, output_attentions=False, **kwargs)
    is_causal = is_causal_module(module) if is_causal is None else is_causal
    if sliding_window is not None and mask is None:
        mask = _window_table(sliding_window, bool(is_causal), query.shape[2], key)
    mask = _fitting(mask, (*query.shape[:3], key.shape[2]))
    if indices is not None:
        mask = _select(indices, mask, key.shape[2], bool(is_causal))
    elif isinstance(mask, StructuredMask):
        mask = mask.dense()
    made = weights.weights(query, key, mask, scaling=scaling, is_causal=bool(is_causal), position_bias=position_bias,
                           softcap=softcap, s_aux=s_aux)
    return output, weights.visible(made, mask)


def _with_sinks(output: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """The output [batch, heads, queries, head_dim_v] with one more score of each query in the sum of its weights."""
    share = torch.sigmoid(lse.unsqueeze(-1) - sinks.to(lse.dtype))
    return (output * share).to(output.dtype)


def is_causal_module(module: Any) -> bool:
    """Whether a call without a mask is causal. The attribute is for "sdpa"; the code of "eager", the only one of models
    without SDPA, does not read it (BridgeTower's image layers have it and are not causal)."""
    config = getattr(module, "config", None)
    if config is not None and not has_code_for_sdpa(type(config)):
        return False
    return bool(getattr(module, "is_causal", True))


def _fitting(mask: Any, extents: tuple[int, ...]) -> Any:
    """A mask of this call: a StructuredMask of these batches, queries and keys, or a tensor that broadcasts to extents
    [batch, heads, queries, keys]. A tensor may have more keys, as in Transformers' own functions."""
    if isinstance(mask, StructuredMask) and (changed := mask.changed()) is not None:
        mask = changed
    if isinstance(mask, StructuredMask):
        batch, _, queries, keys = extents
        if mask.kv_length > keys:
            mask = mask[..., :keys]
        if (mask.batch_size, mask.q_length, mask.kv_length) == (batch, queries, keys):
            return mask
        mask = mask.tensor()
    if mask is not None:
        _check_extents("attention mask", mask, extents)
    return mask


def _check_extents(name: str, x: torch.Tensor, extents: tuple[int, ...]) -> None:
    """Raises ValueError unless x broadcasts to [batch, heads, queries, keys], where it may have more keys."""
    axes = "batches", "heads", "queries", "keys"
    for axis, found, expected in zip(axes[-x.ndim :], x.shape, extents[-x.ndim :]):
        if found not in (1, expected) and not (axis == "keys" and found > expected):
            shape = ", ".join(map(str, x.shape))
            raise ValueError(f"the {name} [{shape}] is for {found} {axis}, the call has {expected}")


def _table(x: torch.Tensor, extents: tuple[int, ...]) -> torch.Tensor:
    """A mask or bias broadcast to [batch, heads, queries, keys], without a copy. As in Transformers' own functions, it
    may have more keys. A tensor that requires grad keeps its dimensions of extent 1."""
    if requires_grad(x):
        return x[..., : extents[3]]
    return x.detach()[..., : extents[3]].expand(extents)


def _select(indices: torch.Tensor, mask: Any, keys: int, is_causal: bool) -> torch.Tensor:
    """The mask of the keys at `indices` [batch, queries, n], joined with a boolean or additive mask, or with a causal
    mask if there is none. Models make a score for each query and key to choose the indices, so this mask is no larger
    than what they have."""
    selected = indices.new_zeros((*indices.shape[:2], keys), dtype=torch.bool).scatter(-1, indices.long(), True)
    selected = selected.unsqueeze(1)
    if mask is None:
        return selected.tril() if is_causal and indices.shape[1] > 1 else selected
    if isinstance(mask, StructuredMask):
        mask = mask.dense()
    if mask.dtype == torch.bool:
        return mask & selected
    return mask.masked_fill(~selected, torch.finfo(mask.dtype).min)


def _from_table(table: torch.Tensor) -> Callable[..., Any]:
    return lambda b, h, i, j: table[b, h, i, j]


def _score(softcap: float | None, biases: list[torch.Tensor]) -> Any:
    """The score function of a soft cap and of tables [batch, heads, queries, keys] that are added after it."""
    first = biases[0] if biases else None
    if any(map(requires_grad, biases)):
        return _recorded_score(softcap, biases)
    if len(biases) == 2:
        second = biases[1]
        add: Any = lambda s, b, h, i, j: s + first[b, h, i, j] + second[b, h, i, j]  # type: ignore[index]
    elif first is not None:
        add = lambda s, b, h, i, j: s + first[b, h, i, j]
    else:
        return scores.soft_cap(softcap)
    return add if softcap is None else scores.soft_cap(softcap) >> add


def _recorded_score(softcap: float | None, biases: list[torch.Tensor]) -> Any:
    """`_score` of tables with dimensions of extent 1."""
    axes = [[axis for axis, extent in enumerate(x.shape) if extent != 1] for x in biases]
    tables = [x.squeeze() for x in biases]
    (first, *rest), (read, *others) = tables, axes

    def add(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        index = (b, h, i, j)
        s = s + first[tuple([index[axis] for axis in read])]
        return s + rest[0][tuple([index[axis] for axis in others[0]])] if rest else s

    return add if softcap is None else scores.soft_cap(softcap) >> add


def window_options(size: int, is_causal: bool, queries: int, keys: int) -> dict[str, Any]:
    """The window of a call without a mask: `size` keys up to the query's own and, if not causal, after it, as the
    FlashAttention functions of Transformers take it. A single query owns the last key."""
    size = window_of(size)
    if is_causal:
        return {"causal": "top_left" if queries > 1 else keys - 1, "window": size}
    return {"window": (size - 1, size - 1)}


def _window_table(size: int, is_causal: bool, queries: int, key: torch.Tensor) -> torch.Tensor:
    """The mask of `window_options` as a table [1, 1, queries, keys]."""
    size, keys = window_of(size), key.shape[2]
    first = keys - 1 if is_causal and queries == 1 else 0
    distance = first + torch.arange(queries, device=key.device)[:, None] - torch.arange(keys, device=key.device)
    return ((distance < size) & (distance >= (0 if is_causal else 1 - size)))[None, None]
