"""Merging attention over disjoint sets of keys, such as a prefix that sequences share and the rest of each."""

from __future__ import annotations

from typing import Any

from saccade import _arrays, _merge, _operands
from saccade._arrays import Array
from saccade._opaque import call_untraced, is_compiling
from saccade.module import compile


def merge_state(out: Array, lse: Array, other_out: Array, other_lse: Array, *, layout: str = "bhsd") -> Any:
    """The attention over the keys of two calls of `saccade.attention` with `return_lse`, for the same queries.

    The order of the two does not matter, and any number of results can be merged in any grouping, up to rounding. The
    result without keys, 0 and -inf, is the identity. The keys must be disjoint, and a sink must be in one call only.

    Args:
        out: an output, with the dimensions of `layout`: a torch CPU tensor or a NumPy array of float64, float32,
            float16 or bfloat16.
        lse: its log-sum-exp, float32 (float64 for float64 outputs), with the dimensions b, h, s that the layout has.
        other_out, other_lse: the other output and log-sum-exp, of the same shapes and types.
        layout: the dimensions of the outputs.

    Returns:
        (output, log-sum-exp), of the types of the arguments.

    Raises:
        TypeError: an argument of another kind, element type or rank.
        ValueError: outputs or log-sum-exps of different shapes.

    Example:
        >>> prefix = saccade.attention(q, k[:, :, :n], v[:, :, :n], return_lse=True)
        >>> suffix = saccade.attention(q, k[:, :, n:], v[:, :, n:], return_lse=True, causal="bottom_right")
        >>> out, lse = saccade.merge_state(*prefix, *suffix)

    Under torch.compile and torch.export, a merge of torch tensors is in the graph, as operators of PyTorch.
    """
    if is_compiling():
        if _arrays.are_torch(out, lse, other_out, other_lse):
            from saccade.torch.traced_merge import merge  # imported late: it imports torch

            return merge(out, lse, other_out, other_lse, layout)
        return call_untraced(merge_state, "merge_state", out, lse, other_out, other_lse, layout=layout)
    axis = _operands.check_layout(layout, False)
    kind = _operands.kind_of(out, "out")
    element = _operands.element_of(out.dtype, "out")
    precision = "f64" if element == "f64" else "f32"
    size = dict(zip(layout, out.shape))
    rows = tuple(size.get(dim, 1) for dim in "bhs" if dim in layout)
    expected = {"out": (out, len(layout), tuple(out.shape), _operands.dtype_name(out)),
                "lse": (lse, len(rows), rows, "float64" if precision == "f64" else "float32")}
    expected["other_out"] = (other_out, *expected["out"][1:])
    expected["other_lse"] = (other_lse, *expected["lse"][1:])
    for name, (x, rank, shape, dtype) in expected.items():
        _operands.check_kind(name, x, kind, "out")
        if len(x.shape) != rank:
            raise TypeError(f"{name} has {_arrays.dimensions(len(x.shape))}, expected {rank}")
        if _operands.dtype_name(x) != dtype:
            raise TypeError(f"{name} has element type {_operands.dtype_name(x)}, expected {dtype}")
        if tuple(x.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {shape}")
    return compile(_program(layout, element, precision, out.shape[axis])).merge_state(out, lse, other_out, other_lse)


def _program(layout: str, element: str, precision: str, head_dim: int) -> str:
    def tensor(element: str) -> str:
        return f"tensor<{''.join(f'{head_dim}x' if dim == 'd' else '?x' for dim in layout)}{element}>"

    given, wide = tensor(element), tensor(precision)
    rows = f"tensor<{'?x' * (len(layout) - 1)}{precision}>"
    names, before, after, result = ("out", "other_out"), "", "", "merged_out"
    if element != precision:
        before = "".join(f"  %{name} = arith.extf %{name}_given : {given} to {wide}\n" for name in names)
        after = f"  %rounded = arith.truncf %merged_out : {wide} to {given}\n"
        names, result = ("out_given", "other_out_given"), "rounded"
    return (f"func.func @merge_state(%{names[0]}: {given}, %lse: {rows}, %{names[1]}: {given}, %other_lse: {rows})\n"
            f"    -> ({given}, {rows}) {{\n{before}{_merge.merge(layout, wide, rows)}{after}"
            f"  return %{result}, %merged_lse : {given}, {rows}\n}}\n")
