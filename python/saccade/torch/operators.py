"""The aten operators that the compiler supports, without overloads; PyTorch decomposes the others."""

from __future__ import annotations

from typing import Any

import torch

from saccade.torch.decompositions import own

OPERATORS = frozenset("""
    __and__ __or__ __xor__ _assert_async _assert_scalar _assert_tensor_metadata _conj _conj_physical _log_softmax
    _native_batch_norm_legit_no_training _safe_softmax _softmax _to_copy _unsafe_view abs adaptive_avg_pool1d
    adaptive_avg_pool2d add addcmul addmm alias all amax amin any arange argmax argmin as_strided baddbmm bitwise_and
    bitwise_or bitwise_xor bmm cat ceil chunk clamp clamp_max clamp_min clone complex constant_pad_nd contiguous
    conv2d convolution copy cos cumsum detach diagonal diff div dot dropout einsum elu embedding empty empty_like eq
    erf exp exp2 expand expand_as expm1 fill flatten flip floor floor_divide fmod full full_like gather ge gelu
    group_norm gt hardtanh index index_put index_select isinf isnan layer_norm le leaky_relu lift_fresh_copy
    linalg_vector_norm linear log log1p log2 log_softmax logical_and logical_not logical_or logical_xor logsumexp lt
    mT masked_fill matmul max maximum mean min minimum mm mul mv narrow native_dropout native_layer_norm ne neg
    new_empty new_full new_ones new_zeros ones ones_like outer pad permute polar pow prod reciprocal relu remainder
    repeat repeat_interleave reshape reshape_as rms_norm roll round rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add scatter_reduce select select_scatter sigmoid sign silu sin slice
    slice_scatter softmax sort split split_with_sizes sqrt square squeeze stack std std_mean sub sum
    sym_constrain_range sym_constrain_range_for_size sym_numel sym_size t tanh tile to topk transpose tril triu trunc
    type_as unbind unflatten unfold unsqueeze var var_mean view view_as view_as_complex view_as_real where zero zeros
    zeros_like
""".split())
"""In namespace aten; those of namespace saccade have their program as an argument."""

ALIASES = {"detach_": "detach"}
"""Operators that write to their operands, but no elements, and their forms that do not."""


def is_known(op: Any) -> bool:
    """Whether the compiler supports an operator; targets that are no torch operators count as supported."""
    if not isinstance(op, torch._ops.OpOverload):
        return True
    namespace, _, name = op._schema.name.partition("::")
    if namespace == "saccade":
        return name in ("append", "attention", "attention_forward", "attention_update")
    return namespace == "aten" and (ALIASES.get(name, name) in OPERATORS or name.startswith("sym_"))


def decompositions() -> dict[Any, Any]:
    """Decompositions of the operators that the compiler does not support, almost all of them PyTorch's."""
    table = torch.export.default_decompositions()
    return {op: table[op] for op in list(table.keys()) if not is_known(op)} | own()
