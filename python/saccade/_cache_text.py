"""The part of a program that computes keys and values from a cache: from pages of a pool, and from int8 elements."""

from __future__ import annotations


def scale_type(kind: str, layout: str) -> str:
    """The type of the scales of keys or values with dimensions `layout`. `kind`: "number", "head" or "position". Scales
    of positions have a depth of 1."""
    if kind == "number":
        return "f32"
    return "tensor<?xf32>" if kind == "head" else f"tensor<{''.join('1x' if d == 'd' else '?x' for d in layout)}f32>"


def paged(result: str, pool: str, type: str, layout: str, table_type: str) -> str:
    """The positions that the page table has."""
    return f"  %{result} = attn.paged %{pool}[{','.join(layout)}], %page_table : {type}, {table_type} -> {type}\n"


def dequantized(result: str, stored: str, stored_type: str, layout: str, scale: str, kind: str, element: str) -> str:
    """The elements times their scale, computed in f32, then converted to `element`."""
    type = f"{stored_type.removesuffix('xi8>')}x{element}>"
    extents = [f"{result}_{dim}" for dim in layout if dim != "d"]
    lines = []
    for i, dim in enumerate(layout):
        if dim != "d":
            lines += [f"%at_{result}_{dim} = arith.constant {i} : index",
                      f"%{result}_{dim} = tensor.dim %{stored}, %at_{result}_{dim} : {stored_type}"]
    lines.append(f"%{result}_empty = tensor.empty({', '.join(f'%{extent}' for extent in extents)}) : {type}")
    dims = ", ".join(layout)
    identity = f"affine_map<({dims}) -> ({dims})>"
    maps, inputs, types, arguments, factor = [identity], f"%{stored}", stored_type, "%x: i8", f"%{scale}"
    if kind != "number":
        scaled = "h" if kind == "head" else ", ".join("0" if dim == "d" else dim for dim in layout)
        maps.append(f"affine_map<({dims}) -> ({scaled})>")
        inputs, types = f"{inputs}, %{scale}", f"{types}, {scale_type(kind, layout)}"
        arguments, factor = f"{arguments}, %s: f32", "%s"
    iterators = ", ".join(['"parallel"'] * len(layout))
    all_maps = ", ".join([*maps, identity])
    lines += [
        f"%{result} = linalg.generic {{indexing_maps = [{all_maps}], iterator_types = [{iterators}]}}",
        f"    ins({inputs} : {types}) outs(%{result}_empty : {type}) {{",
        f"^bb0({arguments}, %_: {element}):",
        "  %f = arith.sitofp %x : i8 to f32",
        f"  %g = arith.mulf %f, {factor} : f32",
    ]
    if element != "f32":
        lines.append(f"  %r = arith.{'extf' if element == 'f64' else 'truncf'} %g : f32 to {element}")
    lines += [f"  linalg.yield %{'g' if element == 'f32' else 'r'} : {element}", f"}} -> {type}"]
    return "".join(f"  {line}\n" for line in lines)
