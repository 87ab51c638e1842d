"""`scaled_dot_product_attention` and `flex_attention` as torch.compile and torch.export trace them: the operator
`saccade::attention`, or PyTorch's own function for a call that Saccade does not compute."""

from __future__ import annotations

from typing import Any

import torch

from saccade._opaque import call_untraced
from saccade.torch import block_lists, tracing
from saccade.torch.fallback import autocast
from saccade.torch.sdpa import mask_functions
from saccade.torch.tracing import plain


def layout_of(rank: int) -> str:
    """The layout of q, k and v with 2, 3 or 4 dimensions."""
    return "bhsd" if rank == 4 else "bsd" if rank == 3 else "sd"


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                                 attn_mask: torch.Tensor | None, dropout_p: float, is_causal: bool,
                                 scale: float | None, enable_gqa: bool) -> torch.Tensor:
    """The result of PyTorch's function. Dynamo traces this."""
    if query.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(query.device.type):
        query, key, value, attn_mask = autocast(query, key, value, attn_mask)
    if dropout_p or attn_mask is not None and is_causal or not is_supported(query, key, value, enable_gqa):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    causal = "top_left" if is_causal else None
    layout = layout_of(query.dim())
    if attn_mask is None and scale is None:
        return plain(query, key, value, causal, layout)
    score = mask = None
    if attn_mask is not None:
        kept = mask_dimensions(attn_mask, (*query.shape[:-1], key.shape[-2]))
        if kept is None or attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, scale=scale,
                                                                    enable_gqa=enable_gqa)
        names, single = kept
        functions = mask_functions(names, torch.squeeze(attn_mask, single))
        score, mask = functions.get("score"), functions.get("mask")
    options = tracing.options_of(score=score, mask=mask, scale=scale, causal=causal, layout=layout)
    result = tracing.attention(query, key, value, options, None)
    if isinstance(result, str):  # the eager call raises the error
        from saccade.torch.sdpa import _call

        return call_untraced(_call, f"scaled_dot_product_attention ({result})", query, key, value, attn_mask, dropout_p,
                             is_causal, scale, enable_gqa)
    return result


def flex_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any, block_mask: Any,
                   scale: float | None, enable_gqa: bool, return_lse: bool, kernel_options: Any,
                   return_aux: Any) -> Any:
    """The result of PyTorch's function. Dynamo traces this."""
    from torch.nn.attention import flex_attention as pytorch

    mask_mod = getattr(block_mask, "mask_mod", block_mask)
    is_sliced = getattr(mask_mod, "__name__", "") == "_sliced_mask_mod_error"
    has_blocks = isinstance(block_mask, pytorch.BlockMask) and block_lists.has_lists(block_mask.BLOCK_SIZE)
    is_other_length = has_blocks and (
        block_mask.shape[-2] != query.shape[-2] or block_mask.shape[-1] != key.shape[-2]
        or block_mask.kv_num_blocks.shape[-1] * block_mask.BLOCK_SIZE[0] < query.shape[-2])
    wants_max = return_aux is not None and return_aux.max_scores
    is_refused = query.dim() != 4 or is_sliced or is_other_length
    if is_refused or not is_supported(query, key, value, enable_gqa):
        if query.device.type == "cpu":  # PyTorch refuses gradients before it reports any other mistake
            query, key, value = query.detach(), key.detach(), value.detach()
        return pytorch.flex_attention(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse,
                                      kernel_options, return_aux=return_aux)
    if mask_mod is pytorch.noop_mask:
        mask_mod = None
    if has_blocks:  # a graph does not know whether create_block_mask made the lists, so they are always read
        mask_mod = block_lists.mask_of(block_lists.lists_of(block_mask), block_mask.BLOCK_SIZE, mask_mod,
                                       query, key)
    wants_lse = return_lse or return_aux is not None and return_aux.lse
    options = tracing.options_of(score=score_mod, mask=mask_mod, scale=scale, return_lse=wants_lse,
                                 return_max=wants_max)
    results = tracing.attention(query, key, value, options, None)
    if isinstance(results, str):  # the eager call raises the error, or gives the call to PyTorch
        from saccade.torch.flex import _call

        return call_untraced(_call, f"flex_attention ({results})", (query, key, value, score_mod, block_mask, scale,
                             enable_gqa, return_lse, kernel_options), return_aux)
    if not isinstance(results, tuple):
        results = (results,)
    lse = results[1] if wants_lse else None
    if return_aux is not None:
        return results[0], pytorch.AuxOutput(lse=lse, max_scores=results[-2] if wants_max else None)
    return (results[0], lse) if return_lse else results[0]


def is_supported(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> bool:
    """Whether Saccade computes a call with these tensors: without broadcasting, empty dimensions and mistakes."""
    rank = query.dim()
    # Not those of 8 bits. A table of the types would be guarded in every call of the compiled function.
    if not query.is_floating_point() or query.element_size() == 1:
        return False
    if rank not in (2, 3, 4) or key.dim() != rank or value.dim() != rank:
        return False
    for x in (query, key, value):
        if x.is_nested or x.dtype != query.dtype or x.device != query.device:
            return False
        for extent in x.shape:
            if extent == 0:
                return False
    if query.device.type not in ("cpu", "cuda"):
        return False
    if key.shape[:-1] != value.shape[:-1] or key.shape[-1] != query.shape[-1]:
        return False
    if rank > 2 and query.shape[0] != key.shape[0]:
        return False
    if rank < 4 or query.shape[1] == key.shape[1]:
        return True
    return enable_gqa and query.shape[1] % key.shape[1] == 0


def mask_dimensions(mask: torch.Tensor, full: tuple[int, ...]) -> tuple[str, tuple[int, ...]] | None:
    """The dimensions that a mask varies along, such as "bj", and its dimensions of extent 1; None if it does not
    broadcast to the extents `full`."""
    if not 0 < mask.dim() <= len(full):
        return None
    letters = {2: "ij", 3: "bij", 4: "bhij"}[len(full)][-mask.dim():]
    for extent, whole in zip(mask.shape, full[-mask.dim():]):
        if extent != 1 and extent != whole:
            return None
    names = "".join([letters[axis] for axis in range(mask.dim()) if mask.shape[axis] != 1])
    return names, tuple([axis for axis in range(mask.dim()) if mask.shape[axis] == 1])
