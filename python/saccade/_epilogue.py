"""What follows attention in its program: output gates, and the second map of differential attention.

The compiler computes an elementwise op on the output of attention in the tasks of the attention. Where PyTorch records
gradients or traces a graph, the same is computed by PyTorch on the results of `saccade.attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from saccade import _arrays, _operands, _parameters
from saccade._form import Epilogue

ACTIVATIONS = ("sigmoid", "softplus", "none")
Values = list[tuple[str, str]]
"""Names and MLIR types."""


def stored(epilogue: Epilogue | None) -> Epilogue | None:
    """The properties with MLIR's name of the element type."""
    if epilogue is None:
        return None
    (dims, element), activation, (is_normalized, of_weight) = epilogue
    if dims:
        element = _operands.element_of(element, "lam" if activation is None else "gate")
    if of_weight is not None:
        of_weight = _operands.element_of(of_weight, "norm_weight")
    return Epilogue((dims, element), activation, (is_normalized, of_weight))


class Difference(NamedTuple):
    """In place of a gate: the output is that of q and k minus λ times that of these."""

    q: Any
    k: Any
    lam: Any
    norm_eps: float | None  # None: no norm
    norm_weight: Any
    factor: float


# --- reading ----------------------------------------------------------------------------------------------------------


def read(gate: Any, activation: Any, layout: Any) -> tuple[Epilogue, dict[str, Any]]:
    """The properties and the operands of a gate or a `Difference`."""
    if isinstance(gate, Difference):
        operands = {"other_q": gate.q, "other_k": gate.k, "lam": gate.lam}
        of_weight = None
        if gate.norm_eps is not None:
            operands |= {"norm_eps": gate.norm_eps, "norm_factor": gate.factor}
        if gate.norm_weight is not None:
            operands["norm_weight"], of_weight = gate.norm_weight, gate.norm_weight.dtype
        return Epilogue(_factor("lam", gate.lam, layout), None, (gate.norm_eps is not None, of_weight)), operands
    check_activation(activation)
    return Epilogue(_factor("gate", gate, layout), activation), {"gate": gate}


def check_activation(activation: Any) -> None:
    if not isinstance(activation, str):
        raise TypeError(f"gate_activation is {activation!r:.80}, expected one of {', '.join(ACTIVATIONS)}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"gate_activation is {activation!r:.80}, expected one of {', '.join(ACTIVATIONS)}")


def _factor(name: str, x: Any, layout: Any) -> tuple[str, Any]:
    if name == "lam" and not _parameters.is_data(x):
        return "", None
    if not _arrays.kind_of(x) and not hasattr(x, "__dlpack__"):
        raise TypeError(f"{name} is {x!r:.80}, expected an array")
    return dims_of(name, x, layout), x.dtype


def dims_of(name: str, x: Any, layout: str) -> str:
    """The dimensions of a gate or λ, by its rank. Raises TypeError."""
    rank, rows = len(x.shape), layout.replace("d", "")
    if rank == len(layout):
        return layout
    if rank == len(rows):
        return rows
    if rank == 1 and "h" in layout:
        return "h"
    heads = ' or 1 ("h")' if "h" in layout and len(rows) > 1 else ""
    raise TypeError(f'{name} has {_arrays.dimensions(rank)}, expected {len(layout)} ("{layout}"), {len(rows)} '
                    f'("{rows}"){heads}')


def check(operands: dict[str, Any], q: Any, v: Any, layout: str, key_layout: str,
          kind: _operands.Kind | None) -> None:
    """Checks the kinds and shapes of the operands of an epilogue. `kind` is that of q, None if operators of PyTorch
    read them."""
    extents = dict(zip(layout, q.shape)) | {"d": v.shape[key_layout.index("d")]}
    for name in ("gate", "lam", "norm_weight"):
        x = operands.get(name)
        if x is not None and _parameters.is_data(x):
            if kind is not None:
                _operands.check_kind(name, x, kind)
            elif not _arrays.is_torch(x) or x.device != q.device:
                raise TypeError(f"{name} is no torch tensor on {q.device}, as q is")
            if name == "norm_weight":
                check_weight(x, extents["d"])
            else:
                check_shape(name, x, extents, layout)


def check_weight(weight: Any, depth: int) -> None:
    """Checks the shape of the weight of a norm."""
    if tuple(weight.shape) != (depth,):
        raise ValueError(f"norm_weight has shape {tuple(weight.shape)}, expected {(depth,)}, the head size of v")


def check_shape(name: str, x: Any, output: dict[str, int], layout: str) -> None:
    """Checks the shape of a gate or λ against the extents of the output."""
    dims = dims_of(name, x, layout)
    expected = tuple([output[dim] for dim in dims])
    if tuple(x.shape) != expected:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {expected}, the extents of the output in "
                         f'"{dims}"')


# --- programs ---------------------------------------------------------------------------------------------------------


def text(epilogue: Epilogue, layout: str, output: str, precision: str, factor: str) -> str:
    """The ops that compute %out of %attended, and for a difference of %second, the output of the other map.

    Args:
        output: the type of the output.
        factor: the type of the gate or λ.
    """
    (dims, element), activation, (is_normalized, of_weight) = epilogue
    result = "%difference" if is_normalized else "%out"
    stored = output.rstrip(">").rpartition("x")[2]
    name = "gate" if activation else "lam"
    loops = ", ".join(layout)
    whole, of_factor = f"affine_map<({loops}) -> ({loops})>", f"affine_map<({loops}) -> ({', '.join(dims)})>"
    axes = [(i, dim) for i, dim in enumerate(layout) if dim != "d"]
    before = "".join(f"  %out_axis_{dim} = arith.constant {i} : index\n"
                     f"  %out_extent_{dim} = tensor.dim %attended, %out_axis_{dim} : {output}\n" for i, dim in axes)
    sizes = ", ".join(f"%out_extent_{dim}" for _, dim in axes)
    factor_element = element if dims else precision
    ins, types, maps = ["%attended"], [output], [whole]
    arguments = [("x", stored)]
    if activation is None:
        ins, types, maps, arguments = ins + ["%second"], types + [output], maps + [whole], arguments + [("y", stored)]
    ins, types, maps, arguments = (ins + [f"%{name}"], types + [factor], maps + [of_factor],
                                   arguments + [("f", factor_element)])
    lines = [_widened(each, type, precision) for each, type in arguments]
    lines += _ACTIVATED[activation](precision) if activation else [
        f"%scaled = arith.mulf %f_wide, %y_wide : {precision}",
        f"%result = arith.subf %x_wide, %scaled : {precision}"]  # fmt: skip
    lines.append(_narrowed(precision, stored))
    body = "\n".join(f"    {line}" for line in lines)
    parallel = ", ".join(['"parallel"'] * len(layout))
    declared = ", ".join(f"%{each}: {type}" for each, type in [*arguments, ("unused", stored)])
    return (f"{before}  %out_space = tensor.empty({sizes}) : {output}\n"
            f"  {result} = linalg.generic {{indexing_maps = [{', '.join([*maps, whole])}],\n"
            f"      iterator_types = [{parallel}]}}\n"
            f"      ins({', '.join(ins)} : {', '.join(types)}) outs(%out_space : {output}) {{\n"
            f"  ^bb0({declared}):\n{body}\n    linalg.yield %stored : {stored}\n  }} -> {output}\n"
            + (_norm(layout, output, precision, stored, sizes, of_weight) if is_normalized else ""))


def _norm(layout: str, output: str, precision: str, stored: str, sizes: str, of_weight: str | None) -> str:
    """The ops that compute %out, the rows of %difference divided by the root of their mean square, times the weight and
    the factor."""
    depth = output.partition("<")[2].split("x")[layout.index("d")]
    rows = layout.replace("d", "")
    loops, row_type = ", ".join(layout), f"tensor<{'?x' * len(rows)}{precision}>"
    maps = {dims: f"affine_map<({loops}) -> ({', '.join(dims)})>" for dims in (layout, rows, "d")}
    kinds = ", ".join('"reduction"' if dim == "d" else '"parallel"' for dim in layout)
    parallel = ", ".join(['"parallel"'] * len(layout))
    weighted = (f", %norm_weight : {output}, {row_type}, tensor<{depth}x{of_weight}>" if of_weight
                else f" : {output}, {row_type}")
    arguments = f"%x: {stored}, %s: {precision}, " + (f"%w: {of_weight}, " if of_weight else "")
    lines = [_widened("x", stored, precision), f"%depth = arith.constant {depth}.0 : {precision}",
             f"%mean = arith.divf %s, %depth : {precision}", f"%moved = arith.addf %mean, %norm_eps : {precision}",
             f"%root = math.sqrt %moved : {precision}", f"%unit = arith.divf %x_wide, %root : {precision}",
             f"%scaled = arith.mulf %unit, %norm_factor : {precision}"]
    if of_weight:
        lines += [_widened("w", of_weight, precision), f"%result = arith.mulf %scaled, %w_wide : {precision}"]
    else:
        lines.append(f"%result = arith.bitcast %scaled : {precision} to {precision}")
    lines.append(_narrowed(precision, stored))
    body = "\n".join(f"    {line}" for line in lines)
    of_weights = f", {maps['d']}" if of_weight else ""
    return f"""  %norm_zero = arith.constant 0.0 : {precision}
  %norm_space = tensor.empty({sizes}) : {row_type}
  %norm_zeros = linalg.fill ins(%norm_zero : {precision}) outs(%norm_space : {row_type}) -> {row_type}
  %squares = linalg.generic {{indexing_maps = [{maps[layout]}, {maps[rows]}], iterator_types = [{kinds}]}}
      ins(%difference : {output}) outs(%norm_zeros : {row_type}) {{
  ^bb0(%x: {stored}, %sum: {precision}):
    {_widened("x", stored, precision)}
    %square = arith.mulf %x_wide, %x_wide : {precision}
    %next = arith.addf %sum, %square : {precision}
    linalg.yield %next : {precision}
  }} -> {row_type}
  %norm_out = tensor.empty({sizes}) : {output}
  %out = linalg.generic {{indexing_maps = [{maps[layout]}, {maps[rows]}{of_weights}, {maps[layout]}],
      iterator_types = [{parallel}]}}
      ins(%difference, %squares{weighted}) outs(%norm_out : {output}) {{
  ^bb0({arguments}%unused: {stored}):
{body}
    linalg.yield %stored : {stored}
  }} -> {output}
"""


def _widened(name: str, type: str, precision: str) -> str:
    """Converts an element to the precision of scores."""
    if type == precision:
        # A bitcast to the same type is no op of the compiled program.
        return f"%{name}_wide = arith.bitcast %{name} : {type} to {type}"
    op = "truncf" if type == "f64" else "extf"
    return f"%{name}_wide = arith.{op} %{name} : {type} to {precision}"


def _narrowed(precision: str, stored: str) -> str:
    if precision == stored:
        return f"%stored = arith.bitcast %result : {stored} to {stored}"
    return f"%stored = arith.truncf %result : {precision} to {stored}"


def _sigmoid(type: str) -> list[str]:
    return [f"%one = arith.constant 1.0 : {type}", f"%negative = arith.negf %f_wide : {type}",
            f"%power = math.exp %negative : {type}", f"%divisor = arith.addf %power, %one : {type}",
            f"%result = arith.divf %x_wide, %divisor : {type}"]  # fmt: skip


def _softplus(type: str) -> list[str]:
    """max(f, 0) + log(1 + exp(-|f|)), which does not overflow."""
    return [f"%zero = arith.constant 0.0 : {type}", f"%size = math.absf %f_wide : {type}",
            f"%negative = arith.negf %size : {type}", f"%power = math.exp %negative : {type}",
            f"%rest = math.log1p %power : {type}", f"%positive = arith.maximumf %f_wide, %zero : {type}",
            f"%factor = arith.addf %positive, %rest : {type}",
            f"%result = arith.mulf %x_wide, %factor : {type}"]  # fmt: skip


def _none(type: str) -> list[str]:
    return [f"%result = arith.mulf %x_wide, %f_wide : {type}"]


_ACTIVATED: dict[str, Callable[[str], list[str]]] = {"sigmoid": _sigmoid, "softplus": _softplus, "none": _none}


# --- by PyTorch -------------------------------------------------------------------------------------------------------


class IsRecorded(Exception):
    """A call with a gate whose gradients PyTorch records."""


def compose(attention: Callable[..., Any], q: Any, k: Any, v: Any, named: dict[str, Any]) -> Any:
    """A call of `attention` whose gradients PyTorch records, by one without a gate."""
    if named["out"] is not None or named["stream"] is not None:
        raise ValueError(f"{'stream' if named['out'] is None else 'out'} is given, expected None: an input requires "
                         "grad, and gradients are recorded for new results on the current stream only")
    gate, layout = named["gate"], layout_of(named)
    epilogue, operands = read(gate, named["gate_activation"], layout)
    stored(epilogue)
    check(operands, q.detach(), v.detach(), layout, layout, None)
    plain = {**named, "gate": None, "gate_activation": "sigmoid"}
    first = attention(q, k, v, **plain)
    if isinstance(gate, Difference):
        return difference(first, attention(gate.q, gate.k, v, **plain), gate, layout)
    return applied(first, named)


def layout_of(named: dict[str, Any]) -> str:
    return named["layout"] or ("bhsd" if named["cu_seqlens_q"] is None else "shd")


def without_gate(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The options of `_options.read` without the gate."""
    return (*given[:-3], None, "sigmoid", given[-1])


def applied(results: Any, named: dict[str, Any]) -> Any:
    """The results of attention with a gate on the output."""
    check_activation(named["gate_activation"])
    output, *others = results if isinstance(results, tuple) else (results,)
    output = apply(output, named["gate"], named["gate_activation"], layout_of(named))
    return (output, *others) if isinstance(results, tuple) else output


def apply(output: Any, gate: Any, activation: str, layout: str) -> Any:
    """The output times the activated gate, by PyTorch, computed in float32 (float64 for float64)."""
    torch = _arrays.torch_module()
    precision = torch.float64 if output.dtype == torch.float64 else torch.float32
    factor = aligned("gate", gate, output, layout).to(precision)
    if activation == "sigmoid":
        factor = torch.sigmoid(factor)
    elif activation == "softplus":
        factor = torch.logaddexp(factor, torch.zeros_like(factor))
    return (output.to(precision) * factor).to(output.dtype)


def difference(first: Any, second: Any, given: Difference, layout: str) -> Any:
    """The first output minus λ times the second, with the norm, by PyTorch."""
    torch = _arrays.torch_module()
    precision = torch.float64 if first.dtype == torch.float64 else torch.float32
    lam = given.lam
    factor = aligned("lam", lam, first, layout).to(precision) if _parameters.is_data(lam) else lam
    found = first.to(precision) - factor * second.to(precision)
    if given.norm_eps is not None:
        found, axis = found.to(first.dtype).to(precision), layout.index("d")
        mean = (found * found).mean(axis, keepdim=True)
        found = found / torch.sqrt(mean + given.norm_eps) * given.factor
        if given.norm_weight is not None:
            shape = [-1 if dim == "d" else 1 for dim in layout]
            found = found * given.norm_weight.to(precision).reshape(shape)
    return found.to(first.dtype)


def aligned(name: str, x: Any, output: Any, layout: str) -> Any:
    """A gate or λ as a tensor that PyTorch broadcasts to the output, of which it has dimensions."""
    dims = dims_of(name, x, layout)
    check_shape(name, x, dict(zip(layout, output.shape)), layout)
    shape = [output.shape[i] if dim in dims else 1 for i, dim in enumerate(layout)]
    return x.reshape(shape)
