"""`saccade.gated_rms_norm`: the RMS norm with a gate that ends layers of linear attention."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from saccade import _arrays, _layer, _linear, _operands, _parameters
from saccade._arrays import Array
from saccade._opaque import is_compiling

NAME = "gated_rms_norm"

ACTIVATIONS = ("silu", "sigmoid")


class Form(NamedTuple):
    """What the program of a call depends on. Element types are those of MLIR."""

    element: str
    gate: str
    weight: str
    size: int
    """The number of elements that are normalized together."""
    eps: float
    activation: str
    norm_before_gate: bool
    has_gradient: bool = False


def gated_rms_norm(
    x: Array,
    gate: Array,
    weight: Array,
    *,
    eps: float = 1e-6,
    activation: str = "silu",
    norm_before_gate: bool = True,
    group_size: int | None = None,
    out: Array | None = None,
) -> Any:
    """The RMS norm of x and the product with an activated gate, in one program:
    x / √(mean(x²) + eps) · weight · activation(gate), where the mean is over the last dimension or over groups of it.

    Args:
        x: [..., dim]: torch CPU tensors or NumPy arrays of float64, float32, float16 or bfloat16, with any strides.
        gate: of x's shape, and of any of the element types, float64 if and only if x is.
        weight: [dim], of such a type.
        eps: what is added to the mean of squares.
        activation: that of the gate: "silu" or "sigmoid".
        norm_before_gate: False normalizes x · activation(gate), as Mamba-2 does, and then multiplies by the weight.
        group_size: the number of consecutive elements that are normalized together, a divisor of dim, which is the
            default.
        out: the array to write the result to, of x's kind, shape and element type, not overlapping inputs.

    Returns:
        The result, of x's shape and element type, computed in float32 (float64 for float64).

    PyTorch records gradients of x, gate and weight. The call is an operator in graphs of torch.compile.

    Raises:
        ValueError: mismatched shapes, an unknown activation, `out` with a tensor that requires grad.
        TypeError: an element type that is not one of the above.
        NotImplementedError: a second derivative.
    """
    form = form_of(x, gate, weight, eps, activation, norm_before_gate, group_size)
    is_recorded = _layer.needs_gradient(x, gate, weight)
    if out is not None:
        if is_recorded:
            raise ValueError("out is given, expected None: an input requires grad, and gradients are recorded for new "
                             "results only")
        if not is_compiling():
            _arrays.check_result("out", out)
            if tuple(out.shape) != tuple(x.shape) or out.dtype != x.dtype:
                raise ValueError(f"out has shape {tuple(out.shape)} and element type {_operands.dtype_name(out)}, "
                                 f"expected {tuple(x.shape)} and {_operands.dtype_name(x)}")
            _arrays.check_writable("out", out)
    if 0 in x.shape:
        return _layer.copy_of(x) if out is None else out
    dim, size = x.shape[-1], form.size
    tensors = [x.reshape(-1, dim // size, size), gate.reshape(-1, dim // size, size), weight.reshape(dim // size, size)]
    program = _program_of(form._replace(has_gradient=is_recorded))
    if out is not None and not is_compiling() and _layer.is_contiguous(out):
        _layer.write(_layer.function_of(program, NAME), tensors, [out.reshape(tensors[0].shape)], ("out",))
        return out
    made = _layer.call(NAME, program, tensors, (0,), is_recorded)[0].reshape(x.shape)
    if out is None:
        return made
    if is_compiling():
        if not _arrays.copied((made,), (out,)):
            raise ValueError("out does not have the shape and element type of the result")
    else:
        out[...] = made
    return out


def form_of(x: Any, gate: Any, weight: Any, eps: Any, activation: Any, norm_before_gate: Any, group_size: Any) -> Form:
    """The form of a call, which is checked."""
    _parameters.flag("norm_before_gate", norm_before_gate)
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f'activation is {activation!r:.80}, expected "silu" or "sigmoid"')
    is_number = isinstance(eps, (int, float)) and not isinstance(eps, bool)
    if not is_number or not 0 <= eps < float("inf"):
        raise ValueError(f"eps is {eps!r:.80}, expected a number from 0, which is added to the mean of squares")
    rank = len(getattr(x, "shape", ())) or 1
    elements: list[Any] = []
    for name, each, expected in (("x", x, rank), ("gate", gate, rank), ("weight", weight, 1)):
        if is_compiling():
            elements.append(each.dtype)
            continue
        elements.append(_linear.element_of(name, each, expected))
        if _arrays.kind_of(each) != _arrays.kind_of(x):
            raise TypeError(f"{name} is {_arrays.kind_of(each)}, expected {_arrays.kind_of(x)}, as x is")
        _layer.check_width(name, each, elements[-1], x, elements[0])
    if tuple(gate.shape) != tuple(x.shape):
        raise ValueError(f"gate has shape {tuple(gate.shape)}, expected {tuple(x.shape)}")
    dim = x.shape[-1]
    if tuple(weight.shape) != (dim,):
        raise ValueError(f"weight has shape {tuple(weight.shape)}, expected {(dim,)}")
    size = dim if group_size is None else _parameters.integer("group_size", group_size, 1)
    if size and dim % size:
        raise ValueError(f"group_size is {size}, expected a divisor of {dim}, the last dimension of x")
    return Form(elements[0], elements[1], elements[2], int(size), float(eps), activation, bool(norm_before_gate))


def _program_of(form: Form) -> str:
    if not is_compiling():
        return program(form)
    from saccade.torch import layer_operator  # imported late: it imports torch

    found: str = layer_operator.norm_program_of(tuple(form))
    return found


@functools.lru_cache(maxsize=512)
def program(form: Form) -> str:
    """The program @gated_rms_norm(x, gate, weight), whose x and gate are [rows, groups, size]."""
    f = "f64" if form.element == "f64" else "f32"

    def widened(name: str, element: str) -> tuple[str, str]:
        """The name of a widened element, and the op that makes it."""
        if element == f:
            return f"%{name}", ""
        return f"%{name}_wide", f"    %{name}_wide = arith.extf %{name} : {element} to {f}\n"

    x, of_x = widened("e", form.element)
    z, of_z = widened("z", form.gate)
    w, of_w = widened("w", form.weight)
    gate = (f"{of_z}    %negated = arith.negf {z} : {f}\n    %power = math.exp %negated : {f}\n"
            f"    %sum = arith.addf %power, %one : {f}\n    %rate = arith.divf %one, %sum : {f}\n")
    rate = "%rate"
    if form.activation == "silu":
        gate, rate = f"{gate}    %active = arith.mulf {z}, %rate : {f}\n", "%active"
    entering, of_entering = (x, of_x) if form.norm_before_gate else (
        "%gated", f"{of_x}{gate}    %gated = arith.mulf {x}, {rate} : {f}\n")
    leaving = f"    %scaled = arith.mulf %normed, {w} : {f}\n"
    result = "%scaled"
    if form.norm_before_gate:
        leaving, result = f"{leaving}{gate}    %r = arith.mulf %scaled, {rate} : {f}\n", "%r"
    if form.element != f:
        leaving += f"    %narrow = arith.truncf {result} : {f} to {form.element}\n"
        result = "%narrow"
    attributes = " attributes {attn.gradient}" if form.has_gradient else ""
    return f"""#all = affine_map<(r, g, d) -> (r, g, d)>
#row = affine_map<(r, g, d) -> (r, g)>
#own = affine_map<(r, g, d) -> (g, d)>
!x = tensor<?x?x{form.size}x{form.element}>
!g = tensor<?x?x{form.size}x{form.gate}>
!w = tensor<?x{form.size}x{form.weight}>
!row = tensor<?x?x{f}>

func.func @{NAME}(%x: !x, %gate: !g, %weight: !w) -> !x{attributes} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : {f}
  %one = arith.constant 1.0 : {f}
  %eps = arith.constant {form.eps:.17e} : {f}
  %part = arith.constant {1 / max(form.size, 1):.17e} : {f}
  %rows = tensor.dim %x, %c0 : !x
  %groups = tensor.dim %x, %c1 : !x
  %empty = tensor.empty(%rows, %groups) : !row
  %none = linalg.fill ins(%zero : {f}) outs(%empty : !row) -> !row
  %squares = linalg.generic {{indexing_maps = [#all, #all, #row],
      iterator_types = ["parallel", "parallel", "reduction"]}} ins(%x, %gate : !x, !g) outs(%none : !row) {{
  ^bb0(%e: {form.element}, %z: {form.gate}, %o: {f}):
{of_entering}    %square = arith.mulf {entering}, {entering} : {f}
    %t = arith.addf %o, %square : {f}
    linalg.yield %t : {f}
  }} -> !row
  %out = tensor.empty(%rows, %groups) : !x
  %y = linalg.generic {{indexing_maps = [#all, #all, #own, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%x, %gate, %weight, %squares : !x, !g, !w, !row) outs(%out : !x) {{
  ^bb0(%e: {form.element}, %z: {form.gate}, %w: {form.weight}, %q: {f}, %o: {form.element}):
    %mean = arith.mulf %q, %part : {f}
    %shifted = arith.addf %mean, %eps : {f}
    %norm = math.rsqrt %shifted : {f}
{of_w}{of_entering}    %normed = arith.mulf {entering}, %norm : {f}
{leaving}    linalg.yield {result} : {form.element}
  }} -> !x
  return %y : !x
}}
"""
