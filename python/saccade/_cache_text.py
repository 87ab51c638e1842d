"""The parts of a program that write new keys and values into a cache, and that compute keys and values from it: from
pages of a pool, and from elements of 8 bits."""

from __future__ import annotations

import dataclasses

# MLIR's names of the element types of a cache, and the op that converts them to f32.
STORED = {"int8": ("i8", "sitofp"), "float8_e4m3fn": ("f8E4M3FN", "extf"), "float8_e5m2": ("f8E5M2", "extf")}


@dataclasses.dataclass(frozen=True)
class Append:
    """New rows of caches, the same number for all caches. In text, caches are pairs of a name and a type."""

    index: str  # the element type of lengths, "i32" or "i64"
    count: bool = False  # whether the number of new rows of each sequence is given
    ring: int | None = None  # the first positions that a ring keeps; None: the caches are no rings

    def inputs(self, caches: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The new rows of each cache, the lengths before the call, and the numbers of new rows."""
        rows = [(f"new_{name}", type) for name, type in caches]
        return rows + [(name, f"tensor<?x{self.index}>") for name in ("at", "count")[: 1 + self.count]]

    def text(self, caches: list[tuple[str, str]], layout: str, table_type: str | None) -> str:
        """Ops that append the new rows of each cache %NAME, which makes %NAME_updated. Caches have the dimensions
        `layout`, or are pools of pages of `table_type`."""
        dims = f"[{','.join(layout)}]"
        pages = f" pages(%page_table : {table_type})" if table_type else ""
        count = f" count(%count : tensor<?x{self.index}>)" if self.count else ""
        ring = "" if self.ring is None else f" ring<{self.ring}>"
        return "".join(f"  %{name}_updated = attn.append %new_{name}{dims} to %{name}{dims}{pages} "
                       f"at(%at : tensor<?x{self.index}>){count}{ring} : ({type}, {type}) -> {type}\n"
                       for name, type in caches)

    def program(self, caches: list[tuple[str, str]], layout: str, table_type: str | None) -> str:
        """A module that only appends, with one function @append. Its inputs are the caches, `inputs`, and the page
        table."""
        inputs = [(name, f"{type} {{attn.updated_by = {i}}}") for i, (name, type) in enumerate(caches)]
        inputs += self.inputs(caches) + ([("page_table", table_type)] if table_type else [])
        types = ", ".join(type for _, type in caches)
        return (f"func.func @append({', '.join(f'%{name}: {type}' for name, type in inputs)}) -> ({types}) {{\n"
                f"{self.text(caches, layout, table_type)}"
                f"  return {', '.join(f'%{name}_updated' for name, _ in caches)} : {types}\n}}\n")

    def clauses(self) -> list[str]:
        """The clauses of the attention over the caches: queries after the new rows are padding, too."""
        return [f"q_len(%count : tensor<?x{self.index}>)"] if self.count else []


def scale_type(kind: str, layout: str) -> str:
    """The type of the scales of keys or values with dimensions `layout`. `kind`: "number", "head" or "position". Scales
    of positions have a depth of 1."""
    if kind == "number":
        return "f32"
    return "tensor<?xf32>" if kind == "head" else f"tensor<{''.join('1x' if d == 'd' else '?x' for d in layout)}f32>"


def paged(result: str, pool: str, type: str, layout: str, table_type: str) -> str:
    """The positions that the page table has."""
    return f"  %{result} = attn.paged %{pool}[{','.join(layout)}], %page_table : {type}, {table_type} -> {type}\n"


def dequantized(result: str, stored: str, stored_type: str, stored_element: str, layout: str, scale: str, kind: str,
                element: str) -> str:
    """The elements, of a type of `STORED`, times their scale, computed in f32, then converted to `element`."""
    own, conversion = STORED[stored_element]
    type = f"{stored_type.removesuffix(f'x{own}>')}x{element}>"
    extents = [f"{result}_{dim}" for dim in layout if dim != "d"]
    lines = []
    for i, dim in enumerate(layout):
        if dim != "d":
            lines += [f"%at_{result}_{dim} = arith.constant {i} : index",
                      f"%{result}_{dim} = tensor.dim %{stored}, %at_{result}_{dim} : {stored_type}"]
    lines.append(f"%{result}_empty = tensor.empty({', '.join(f'%{extent}' for extent in extents)}) : {type}")
    dims = ", ".join(layout)
    identity = f"affine_map<({dims}) -> ({dims})>"
    maps, inputs, types, arguments, factor = [identity], f"%{stored}", stored_type, f"%x: {own}", f"%{scale}"
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
        f"  %f = arith.{conversion} %x : {own} to f32",
        f"  %g = arith.mulf %f, {factor} : f32",
    ]
    if element != "f32":
        lines.append(f"  %r = arith.{'extf' if element == 'f64' else 'truncf'} %g : f32 to {element}")
    lines += [f"  linalg.yield %{'g' if element == 'f32' else 'r'} : {element}", f"}} -> {type}"]
    return "".join(f"  {line}\n" for line in lines)
