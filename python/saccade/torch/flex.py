"""`flex_attention` with PyTorch's signature and semantics.

The `mask_mod` of a BlockMask becomes the mask of a kernel, which finds empty tiles by itself. Its lists of blocks are
read if they may hide or show other pairs (block_lists.py), as PyTorch's compiled kernels read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

import saccade
from saccade import _served
from saccade._operands import did_you_mean
from saccade.regions.traced_function import variables
from saccade.torch import block_lists
from saccade.torch.fallback import (
    Kind,
    Refused,
    autocast,
    check_visible,
    may_record,
    readable,
    records_grad,
    resolve,
    suspended,
)
from saccade.torch.sdpa import _DTYPES

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import AuxRequest, BlockMask, FlexKernelOptions

NAME = "flex_attention"
_Result = Any  # torch.Tensor | tuple[torch.Tensor, torch.Tensor] | tuple[torch.Tensor, AuxOutput]


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | Callable[..., Any] | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> _Result:
    """`torch.nn.attention.flex_attention.flex_attention`, computed by Saccade; it requires no torch.compile.

    Arguments, result (strides included) and exceptions are those of PyTorch, except where noted. Functions are traced
    once (docs/guides/python.md, Functions); one that cannot be is a `saccade.TraceError`, a TypeError.

    Args:
        query: [B, Hq, L, E], of float64, float32, float16 or bfloat16, on the CPU or an NVIDIA GPU.
        key: [B, Hkv, S, E]; B may be 1.
        value: [B, Hkv, S, Ev].
        score_mod: (score, b, h, q_idx, kv_idx) -> score, for the scaled score in float32 (float64 for float64 inputs).
        block_mask: a `BlockMask`, or a function (b, h, q_idx, kv_idx) -> bool, which PyTorch does not take. As in
            PyTorch's compiled kernels, keys in full blocks of the lists are visible, `mask_mod` decides in partial
            blocks, and all others are hidden; PyTorch's uncompiled function ignores the lists.
        scale: the factor of the scores; None uses 1/sqrt(E).
        enable_gqa: allows Hq to be a multiple of Hkv.
        return_lse: also returns the log-sum-exp [B, Hq, L], the natural logarithm.
        kernel_options: checked as PyTorch does; it has no effect.
        return_aux: returns (output, AuxOutput) with the requested log-sum-exp and row maxima. PyTorch has no row maxima
            on CPUs.

    Returns:
        [B, Hq, L, Ev], alone or with the requested auxiliary outputs. A query without keys gives 0 and a log-sum-exp
        of -inf.

    Raises:
        NotImplementedError: as `saccade.torch.scaled_dot_product_attention`.

    All other exceptions are PyTorch's.
    """
    arguments = (query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options)
    if torch.compiler.is_compiling():
        from saccade.torch import traced_drop_ins  # imported late: it imports this module

        return traced_drop_ins.flex_attention(*arguments, return_aux)
    if (_served.is_on or _served.profiler._is_profiler_enabled) and _served.is_new_call():
        return _served.observe(NAME, lambda: _call(arguments, return_aux), (query, key, value),
                               arguments=(arguments, {}))
    return _call(arguments, return_aux)


def _call(arguments: tuple[Any, ...], return_aux: Any) -> _Result:
    try:
        return compute(*arguments, return_aux=return_aux)
    except Refused as refused:

        def by_pytorch() -> _Result:
            from torch.nn.attention.flex_attention import flex_attention as original

            with suspended():
                return original(*detached(arguments), return_aux=return_aux)

        return resolve(NAME, refused, by_pytorch, is_replaced=False)


def detached(arguments: Any) -> Any:
    """The arguments without gradients: on CPUs, PyTorch refuses gradients before it reports any other mistake."""
    return [x.detach() if isinstance(x, torch.Tensor) and x.is_cpu else x for x in arguments]


def compute(query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: Any = None,
            enable_gqa: Any = False, return_lse: Any = False, kernel_options: Any = None, *,
            return_aux: Any = None) -> _Result:
    """The result of `flex_attention`. Raises Refused for a call that PyTorch has to compute or to report."""
    check_visible(query, key, value)
    for x in (query, key, value):
        if not isinstance(x, torch.Tensor):
            raise Refused(Kind.INPUT, f"found a {type(x).__name__}, expected a torch.Tensor")
    mask_mod = getattr(block_mask, "mask_mod", block_mask)
    is_recorded = may_record() and records_grad(
        query, key, value, *_captured(score_mod), *_captured(mask_mod))
    query, key, value = autocast(query, key, value)
    query, key, value = readable("query", query), readable("key", key), readable("value", value)
    _check_shapes(query, key, value, enable_gqa)
    _check_options(scale, kernel_options, return_lse, return_aux)
    if block_mask is not None:
        mask_mod = _mask(block_mask, query, key)
    wants_lse = return_lse or return_aux is not None and return_aux.lse
    wants_max = return_aux is not None and return_aux.max_scores

    output = _empty(query, value.shape[3])
    lse = largest = None
    if output.numel() and key.shape[2]:
        if key.shape[0] != query.shape[0]:
            key, value = [x.expand(query.shape[0], -1, -1, -1) for x in (key, value)]
        results = saccade.attention(
            query, key, value, score=score_mod, mask=mask_mod, scale=None if scale is None else float(scale),
            return_lse=wants_lse, return_max=wants_max, out=None if is_recorded else output)
        output, *rows = results if isinstance(results, tuple) else (results,)
        if wants_lse:
            lse = rows.pop(0)
        if wants_max:
            largest = rows[0]
    else:
        output.zero_()
        if is_recorded:  # the gradients are zeros
            output = output + sum(x[..., :0].sum() for x in (query, key, value))
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        if output.shape[:3].numel():
            lse = query.new_full(output.shape[:3], -torch.inf, dtype=dtype)
            largest = lse.clone()
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput

        return output, AuxOutput(lse=lse if wants_lse else None, max_scores=largest if wants_max else None)
    return (output, lse) if return_lse else output


def _captured(function: Any) -> list[torch.Tensor]:
    """The tensors that a function closes over."""
    return [value for _, value in variables(function) if isinstance(value, torch.Tensor)] if function else []


def _check_shapes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: Any) -> None:
    shapes = tuple(query.shape), tuple(key.shape), tuple(value.shape)
    problem = f"query, key and value have shapes {', '.join(map(str, shapes))}"
    if any(len(shape) != 4 for shape in shapes):
        raise Refused(Kind.INPUT, problem)
    (batch, heads, _, width), (key_batch, kv_heads, *_, key_width), _ = shapes
    if shapes[1][:3] != shapes[2][:3] or key_width != width or not width or key_batch not in (1, batch):
        raise Refused(Kind.INPUT, problem)
    if heads != kv_heads and (not enable_gqa or not kv_heads or heads % kv_heads):
        raise Refused(Kind.INPUT, problem)
    if key.dtype is not query.dtype or value.dtype is not query.dtype or query.dtype not in _DTYPES:
        raise Refused(Kind.INPUT, f"query, key and value have types {query.dtype}, {key.dtype}, {value.dtype}")
    if key.device != query.device or value.device != query.device:
        raise Refused(Kind.INPUT, f"query is on {query.device}, key on {key.device} and value on {value.device}")


def _check_options(scale: Any, options: Any, return_lse: Any, return_aux: Any) -> None:
    """Refuses options that PyTorch reports."""
    if scale is not None and (not isinstance(scale, (int, float)) or isinstance(scale, bool)):
        raise Refused(Kind.INPUT, f"scale is {scale!r:.80}")
    if return_lse and return_aux is not None:
        raise Refused(Kind.INPUT, "return_lse and return_aux are given")
    if options is not None:
        from torch.nn.attention.flex_attention import FlexKernelOptions

        if not isinstance(options, dict):
            raise Refused(Kind.INPUT, f"kernel_options is {options!r:.80}, expected a dict")
        for name in options:
            if name not in FlexKernelOptions.__annotations__:
                hint = did_you_mean(str(name), FlexKernelOptions.__annotations__)
                raise Refused(Kind.INPUT, f"kernel_options has {name!r}{hint}: expected options of PyTorch "
                                          "(torch.nn.attention.flex_attention.FlexKernelOptions)")
        is_twice = "BACKEND" in options and options.get("FORCE_USE_FLEX_ATTENTION")
        if is_twice or options.get("BACKEND", "AUTO") not in ("AUTO", "TRITON", "FLASH", "TRITON_DECODE"):
            raise Refused(Kind.INPUT, f"kernel_options is {options!r:.80}")


def _empty(query: torch.Tensor, head_dim_v: int) -> torch.Tensor:
    """The output, with the query's order of strides and the last dimension innermost."""
    shape = (*query.shape[:3], head_dim_v)
    steps = query.stride()
    if steps[0] >= steps[1] >= steps[2]:
        return query.new_empty(shape)
    order = sorted(range(3), key=lambda axis: -steps[axis])
    memory = query.new_empty([shape[axis] for axis in (*order, 3)])
    return memory.permute(*[order.index(axis) for axis in range(3)], 3)


# --- masks ------------------------------------------------------------------------------------------------------------


def _mask(block_mask: Any, query: torch.Tensor, key: torch.Tensor) -> Callable[..., Any] | None:
    """The mask function of a BlockMask or of a function; None if it hides nothing."""
    from torch.nn.attention import flex_attention as pytorch

    if not isinstance(block_mask, pytorch.BlockMask):
        if not callable(block_mask):
            raise Refused(Kind.INPUT, f"block_mask is a {type(block_mask).__name__}, expected a BlockMask")
        return block_mask  # type: ignore[no-any-return]
    if block_mask.kv_num_blocks.device != query.device:
        raise Refused(Kind.INPUT, f"block_mask is on {block_mask.kv_num_blocks.device}, expected {query.device}")
    is_sliced = getattr(block_mask.mask_mod, "__name__", "") == "_sliced_mask_mod_error"
    has_lists = block_lists.has_lists(block_mask.BLOCK_SIZE)
    lengths = tuple(block_mask.shape[-2:])
    if is_sliced or has_lists and lengths != (query.shape[2], key.shape[2]):
        raise Refused(Kind.INPUT, f"block_mask is for lengths {lengths}, query and key have {query.shape[2]} and "
                                  f"{key.shape[2]}")
    function: Callable[..., Any] | None = None if block_mask.mask_mod is pytorch.noop_mask else block_mask.mask_mod
    if not has_lists or function is not None and block_lists.follows_mask(block_mask, *query.shape[:2]):
        return function
    rows, most = block_mask.BLOCK_SIZE[0], block_mask.kv_num_blocks.shape[-1]
    if rows * most < query.shape[2]:
        raise Refused(Kind.INPUT, f"block_mask has {most} rows of blocks of {rows}, query has {query.shape[2]} rows")
    try:
        return block_lists.mask_of(block_lists.lists_of(block_mask), block_mask.BLOCK_SIZE, function, query, key)
    except ValueError as error:
        raise Refused(Kind.INPUT, str(error)) from None
