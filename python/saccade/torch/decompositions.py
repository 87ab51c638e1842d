"""Decompositions of aten operators that PyTorch does not decompose: pooling and fused layers of `torch.nn`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import get_decompositions

from saccade.torch import quantizing

_aten = torch.ops.aten


def _eye(n: int, m: int | None = None, *, dtype: torch.dtype | None = None, device: Any = None,
         **_: Any) -> Tensor:
    """torch.eye. PyTorch's decomposition counts in unsigned integers, which programs cannot have."""
    rows, columns = (torch.arange(size, device=device) for size in (n, n if m is None else m))
    return (rows.unsqueeze(-1) == columns).to(dtype or torch.get_default_dtype())


# --- pooling ----------------------------------------------------------------------------------------------------------


def _each(values: Sequence[int], rank: int) -> list[int]:
    """One value for each pooled dimension."""
    return list(values) * rank if len(values) == 1 else list(values)


def _count(n: Any, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> Any:
    """The number of windows along a dimension of n elements. A window that only `ceil_mode` adds starts at an element
    or in the padding in front of the elements."""
    reach = n + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return reach // stride + 1
    count = (reach + stride - 1) // stride + 1
    return count - 1 if (count - 1) * stride >= n + padding else count


def _offsets(x: Tensor, dim: int, kernel: int, stride: int, dilation: int, count: Any) -> list[Tensor]:
    """The elements at one place of all windows along a dimension, for each place."""
    return [_aten.slice.Tensor(x, dim, i * dilation, i * dilation + (count - 1) * stride + 1, stride)
            for i in range(kernel)]  # fmt: skip


def _padded(x: Tensor, dim: int, kernel: int, stride: int, padding: int, dilation: int, count: Any,
            value: Any) -> Tensor:
    """The tensor with padding along a dimension, such that all windows are in it."""
    after = (count - 1) * stride + dilation * (kernel - 1) + 1 - x.shape[dim] - padding
    if padding == 0 and isinstance(after, int) and after <= 0:
        return x
    return _aten.constant_pad_nd(x, [0, 0] * (x.dim() - 1 - dim) + [padding, after], value)


def _max_pool(rank: int) -> Callable[..., Any]:
    def pool(x: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
             dilation: Sequence[int] = (1,), ceil_mode: bool = False) -> Any:
        """The maxima of windows and their positions, one dimension after the other, the last one first: of equal
        maxima the first one is taken, of NaN the last one."""
        kernel = _each(kernel_size, rank)
        lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
        shape = x.shape[-rank:]
        position = torch.arange(math.prod(shape), device=x.device).view(*[1] * (x.dim() - rank), *shape).expand(x.shape)
        best = x
        for k, s, p, d, dim in reversed(list(zip(kernel, _each(stride, rank) or kernel, _each(padding, rank),
                                                 _each(dilation, rank), range(x.dim() - rank, x.dim())))):  # fmt: skip
            count = _count(x.shape[dim], k, s, p, d, ceil_mode)
            values = _offsets(_padded(best, dim, k, s, p, d, count, lowest), dim, k, s, d, count)
            places = _offsets(_padded(position, dim, k, s, p, d, count, -1), dim, k, s, d, count)
            best, position = values[0], places[0]
            for value, place in zip(values[1:], places[1:]):
                # Padding is no position: a maximum that is the lowest number replaces it.
                later = (value > best) | (value != value) | (position < 0)
                best, position = torch.where(later, value, best), torch.where(later, place, position)
        return best, position

    return pool


def _avg_pool(rank: int) -> Callable[..., Tensor]:
    def pool(x: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
             ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
        kernel = _each(kernel_size, rank)
        strides, paddings = _each(stride, rank) or kernel, _each(padding, rank)
        total = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        divisor: Any = divisor_override or 1
        for k, s, p, dim in zip(kernel, strides, paddings, range(x.dim() - rank, x.dim())):
            n = x.shape[dim]
            count = _count(n, k, s, p, 1, ceil_mode)
            parts = _offsets(_padded(total, dim, k, s, p, 1, count, 0), dim, k, s, 1, count)
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            if divisor_override is not None:
                continue
            if not ceil_mode and (count_include_pad or p == 0):
                divisor = divisor * k
                continue
            first = torch.arange(count, device=x.device) * s - p
            last = (first + k).clamp(max=n + p)
            size = last - first if count_include_pad else last.clamp(max=n) - first.clamp(min=0)
            divisor = divisor * size.to(total.dtype).view(-1, *[1] * (x.dim() - 1 - dim))
        return (total / divisor).to(x.dtype)

    return pool


def _adaptive(rank: int, reduce: Callable[[Tensor, int], Tensor]) -> Callable[..., Any]:
    def pool(x: Tensor, output_size: Sequence[int]) -> Any:
        """Windows from floor(i n / m) to ceil((i + 1) n / m), one dimension after the other."""
        out = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        for dim, m in zip(range(x.dim() - rank, x.dim()), output_size):
            n = x.shape[dim]
            if m == 1:
                out = reduce(out, dim)
            elif not isinstance(n, int) or not isinstance(m, int) or n == 0:
                return NotImplemented
            elif n % m == 0:
                out = reduce(out.unflatten(dim, (m, n // m)), dim + 1).squeeze(dim + 1)
            else:
                out = torch.cat([reduce(out.narrow(dim, i * n // m, -((-(i + 1) * n) // m) - i * n // m), dim)
                                 for i in range(m)], dim)  # fmt: skip
        return out.to(x.dtype)

    return pool


def _mean(x: Tensor, dim: int) -> Tensor:
    return x.mean(dim, keepdim=True)


# --- layers -----------------------------------------------------------------------------------------------------------


def _batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
                ) -> Any:  # fmt: skip
    """aten._native_batch_norm_legit.no_stats: by the statistics of the batch, which nothing keeps."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    dims = [0, *range(2, x.dim())]
    variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    factor = (variance + eps).rsqrt()
    y = (wide - mean) * factor
    shape = (-1, *[1] * (x.dim() - 2))
    if weight is not None:
        y = y * weight.view(shape)
    if bias is not None:
        y = y + bias.view(shape)
    return y.to(x.dtype), mean.flatten(), factor.flatten()


def _cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Any:
    """Distances of rows: sums of differences, which do not cancel as norms less products do."""
    if p not in (1.0, 2.0):
        return NotImplemented
    differences = a.unsqueeze(-2) - b.unsqueeze(-3)
    return differences.abs().sum(-1) if p == 1.0 else differences.square().sum(-1).sqrt()


def _vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Norms of other orders than 2, which the compiler has."""
    if ord == 2 or x.is_complex():
        return NotImplemented
    result = dtype or x.dtype
    size = x.to(torch.float32 if result in (torch.float16, torch.bfloat16) else result).abs()
    if ord in (math.inf, -math.inf):
        dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        return (size.amax if ord > 0 else size.amin)(list(dims), keepdim).to(result)
    powers = size if ord == 1 else (size != 0).to(size.dtype) if ord == 0 else size.pow(ord)
    total = powers.sum(dim, keepdim)
    return (total if ord in (0, 1) else total.pow(1 / ord)).to(result)


def _diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    dim1, dim2 = dim1 % x.dim(), dim2 % x.dim()
    rows, columns = (torch.arange(x.shape[dim], device=x.device) for dim in (dim1, dim2))
    first = dim1 < dim2
    chosen = (rows.unsqueeze(-1) + offset == columns) if first else (rows + offset == columns.unsqueeze(-1))
    shape = [x.shape[dim] if dim in (dim1, dim2) else 1 for dim in range(x.dim())]
    # The diagonal at its row; a row whose element is outside of the tensor takes any.
    inner = src.index_select(-1, (rows + min(offset, 0)).clamp(0, max(src.shape[-1] - 1, 0)))
    placed = inner.movedim(-1, min(dim1, dim2) if first else max(dim1, dim2) - 1)
    return torch.where(chosen.view(shape), placed.unsqueeze(dim2), x)


def _multi_head(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
                qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
                need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None) -> Any:
    """The fused `nn.MultiheadAttention`. A mask of type 0 is [queries, keys], of type 1 [batches, keys], of type 2
    [batches, heads, queries, keys]. One of bools hides what is True, another is added to the scores, as `nn.Module`s
    document it; PyTorch's fused kernel hides whatever is not 0."""
    if need_weights or query.is_nested or embed_dim % num_head:
        return NotImplemented
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (F.linear(x, w, b).unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2)
               for x, w, b in zip((query, key, value), weights, biases))  # fmt: skip
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask.to(q.dtype)
        mask = mask.view(mask.shape[0], 1, 1, mask.shape[1]) if mask_type == 1 else mask
    out = F.scaled_dot_product_attention(q, k, v, mask)
    return F.linear(out.transpose(1, 2).flatten(-2), proj_weight, proj_bias), None


def _encoder_layer(src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
                   proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
                   norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
                   ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
                   mask: Tensor | None = None, mask_type: int | None = None) -> Any:
    """The fused `nn.TransformerEncoderLayer`."""
    if src.is_nested:
        return NotImplemented

    def normalized(x: Tensor, number: int) -> Tensor:
        weight, bias = ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))[number]
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = normalized(src, 0) if norm_first else src
    attended = _multi_head(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False,
                           True, mask_type)  # fmt: skip
    x = attended[0] + src
    x = x if norm_first else normalized(x, 0)
    inner = F.linear(normalized(x, 1) if norm_first else x, ffn_weight_1, ffn_bias_1)
    x = x + F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)
    return x if norm_first else normalized(x, 1)


def own() -> dict[Any, Callable[..., Any]]:
    """The decompositions by operator."""
    table: dict[Any, Callable[..., Any]] = {
        torch.ops.saccade.quantize_rows.default: quantizing.unchecked,
        _aten.eye.default: _eye, _aten.eye.m: _eye,
        _aten.max_pool2d_with_indices.default: _max_pool(2), _aten.max_pool3d_with_indices.default: _max_pool(3),
        _aten.avg_pool1d.default: _avg_pool(1), _aten.avg_pool2d.default: _avg_pool(2),
        _aten.avg_pool3d.default: _avg_pool(3),
        _aten._adaptive_avg_pool2d.default: _adaptive(2, _mean),
        _aten._adaptive_avg_pool3d.default: _adaptive(3, _mean),
        _aten._native_batch_norm_legit.no_stats: _batch_norm,
        _aten._cdist_forward.default: _cdist, _aten.diagonal_scatter.default: _diagonal_scatter,
        _aten.linalg_vector_norm.default: _vector_norm,
        _aten._native_multi_head_attention.default: _multi_head,
        _aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }  # fmt: skip
    return {**get_decompositions([_aten.native_group_norm]), **table}
