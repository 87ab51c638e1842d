"""The parts of a program that write new keys and values into a cache, and that compute keys and values from it: from
pages of a pool, and from elements of 8 and of 4 bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

# MLIR's names of the element types of a cache, and the op that converts them to f32. Words of 32 bits have eight codes
# of 4 bits, the lowest bits first; their zero point is 8 ("int4") or given ("uint4").
STORED = {"int8": ("i8", "sitofp"), "float8_e4m3fn": ("f8E4M3FN", "extf"), "float8_e5m2": ("f8E5M2", "extf"),
          "int4": ("i32", "sitofp"), "uint4": ("i32", "sitofp")}  # fmt: skip
CODES_OF_WORD, ZERO_POINT = 8, 8


def is_packed(stored: str) -> bool:
    """Whether elements are codes in words."""
    return stored in ("int4", "uint4")


def stored_depth(stored: str, depth: int) -> int:
    """The extent of a cache with head size `depth`."""
    return depth // CODES_OF_WORD if is_packed(stored) else depth


class Append(NamedTuple):
    """New rows of caches, the same number for all caches. In text, caches are pairs of a name and a type. A cache with
    one dimension less than `layout` has no depth."""

    element: str  # the element type of lengths, "i32" or "i64"
    has_count: bool = False  # whether the number of new rows of each sequence is given
    ring: int | None = None  # the first positions that a ring keeps; None: the caches are no rings
    is_ragged: bool = False  # the new rows of all sequences are one after another; the numbers are given

    def inputs(self, caches: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The new rows of each cache, the lengths before the call, the numbers of new rows and the first one of each
        sequence."""
        rows = [(f"new_{name}", self._rows(type)) for name, type in caches]
        names = ("at", "count", "from")[: 1 + self.has_count + self.is_ragged]
        return rows + [(name, f"tensor<?x{self.element}>") for name in names]

    def _rows(self, type: str) -> str:
        """The type of new rows of a cache, whose first dimension is that of batches."""
        return type.replace("?x", "", 1) if self.is_ragged else type

    def text(self, caches: list[tuple[str, str]], layout: str, table_type: str | None) -> str:
        """Ops that append the new rows of each cache %NAME, which makes %NAME_updated. Caches have the dimensions
        `layout`, or are pools of pages of `table_type`."""
        pages = f" pages(%page_table : {table_type})" if table_type else ""
        names = ("count", "from")[: self.has_count + self.is_ragged]
        numbers = "".join(f" {name}(%{name} : tensor<?x{self.element}>)" for name in names)
        ring = "" if self.ring is None else f" ring<{self.ring}>"
        lines = ""
        for name, type in caches:
            dims = ",".join(_named(layout, type))
            of_rows = dims.removeprefix("b,") if self.is_ragged else dims
            lines += (f"  %{name}_updated = attn.append %new_{name}[{of_rows}] to %{name}[{dims}]{pages} "
                      f"at(%at : tensor<?x{self.element}>){numbers}{ring} : ({self._rows(type)}, {type}) -> {type}\n")
        return lines

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
        return [f"q_len(%count : tensor<?x{self.element}>)"] if self.has_count and not self.is_ragged else []


def scale_type(kind: str | int, layout: str) -> str:
    """The type of the scales of keys or values with dimensions `layout`. `kind`: "number"; "head"; "position", one for
    each position of a head; or a number of them, each of a block of successive elements."""
    if kind == "number":
        return "f32"
    if kind == "head":
        return "tensor<?xf32>"
    if kind == "position":
        return f"tensor<{'?x' * (len(layout) - 1)}f32>"
    return f"tensor<{''.join(f'{kind}x' if dim == 'd' else '?x' for dim in layout)}f32>"


def is_cached(kind: str | int) -> bool:
    """Whether scales of this kind are those of positions, which a cache has."""
    return kind not in ("number", "head")


def paged(result: str, pool: str, type: str, layout: str, table_type: str) -> str:
    """The positions that the page table has."""
    dims = ",".join(_named(layout, type))
    return f"  %{result} = attn.paged %{pool}[{dims}], %page_table : {type}, {table_type} -> {type}\n"


def _named(layout: str, type: str) -> str:
    """The names of the dimensions of a cache. In one without a depth the heads are the elements of a row."""
    return layout if type.count("x") == len(layout) else layout.replace("d", "").replace("h", "d")


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scales of quantized elements, and the zero points."""

    stored: str  # the element type, a key of STORED
    name: str
    kind: str | int  # as for `scale_type`
    zero: str = ""  # the name of the zero points of "uint4", which have the kind of the scales


class Rotation(NamedTuple):
    """Rotary positions of keys that are rotated when they are read: pair n of the key at position i by the angle whose
    cosine and sine are %rotary_cos[i, n] and %rotary_sin[i, n]."""

    pairs: int  # the first 2 · pairs elements are rotated
    interleaved: bool  # pairs are elements 2n and 2n + 1; else n and n + pairs
    element: str  # of cosines and sines

    @property
    def type(self) -> str:
        return f"tensor<?x{self.pairs}x{self.element}>"

    def partner(self, depth: int) -> list[str]:
        """Ops that find for element %d its pair, the other element of the pair, and whether %d is the first one; for
        elements that are not rotated %is_rotated is false."""
        lines = [f"%rotated_depth = arith.constant {2 * self.pairs} : index",
                 "%is_rotated = arith.cmpi ult, %d, %rotated_depth : index"]
        if self.interleaved:
            lines += ["%one = arith.constant 1 : index", "%zero = arith.constant 0 : index",
                      "%partner = arith.xori %d, %one : index", "%pair = arith.shrui %d, %one : index",
                      "%parity = arith.andi %d, %one : index", "%is_first = arith.cmpi eq, %parity, %zero : index"]
        else:
            lines += [f"%half = arith.constant {self.pairs} : index", "%is_first = arith.cmpi ult, %d, %half : index",
                      "%after = arith.addi %d, %half : index", "%before = arith.subi %d, %half : index",
                      "%partner = arith.select %is_first, %after, %before : index",
                      "%pair = arith.select %is_first, %d, %before : index"]
        if depth > 2 * self.pairs:  # Indices must be within the cache, although the elements are not used.
            renamed = [line.replace("%partner =", "%any_partner =").replace("%pair =", "%any_pair =") for line in lines]
            lines = [*renamed, "%partner = arith.select %is_rotated, %any_partner, %d : index",
                     f"%last_pair = arith.constant {self.pairs - 1} : index",
                     "%pair = arith.minui %any_pair, %last_pair : index"]  # fmt: skip
        return lines


def _code(name: str, at: str, read: Callable[[str], str]) -> list[str]:
    """Ops that find the code %NAME of element `at`, in i32. `read` is the op that reads a word."""
    return [f"%{name}_three = arith.constant 3 : index", f"%{name}_at = arith.shrui {at}, %{name}_three : index",
            f"%{name}_word = {read(f'%{name}_at')}", f"%{name}_seven = arith.constant 7 : index",
            f"%{name}_in = arith.andi {at}, %{name}_seven : index",
            f"%{name}_n = arith.index_cast %{name}_in : index to i32", f"%{name}_two = arith.constant 2 : i32",
            f"%{name}_shift = arith.shli %{name}_n, %{name}_two : i32",
            f"%{name}_low = arith.shrui %{name}_word, %{name}_shift : i32",
            f"%{name}_mask = arith.constant 15 : i32", f"%{name} = arith.andi %{name}_low, %{name}_mask : i32"]


def computed(result: str, cache: str, layout: str, depth: int, element: str, scale: Scale | None,
             rotation: Rotation | None = None) -> str:
    """Ops that compute keys or values %result of type `element` from a cache with dimensions `layout`, in f32 or f64:
    elements of 8 bits, or codes of 4 bits without their zero point, times their scale, then rotated."""
    def shape(depth: int) -> str:
        return "".join(f"{depth}x" if dim == "d" else "?x" for dim in layout)

    stored, conversion = STORED[scale.stored] if scale else (element, "extf")
    packed = scale is not None and is_packed(scale.stored)
    wide = "f64" if element == "f64" else "f32"
    computed_in = "f32" if scale else wide
    cache_type = f"tensor<{shape(stored_depth(scale.stored, depth) if scale else depth)}{stored}>"
    type = f"tensor<{shape(depth)}{element}>"
    lines = []
    for i, dim in enumerate(layout):
        if dim != "d":
            lines += [f"%at_{result}_{dim} = arith.constant {i} : index",
                      f"%{result}_{dim} = tensor.dim %{cache}, %at_{result}_{dim} : {cache_type}"]
    lines.append(f"%{result}_empty = tensor.empty({', '.join(f'%{result}_{d}' for d in layout if d != 'd')}) : {type}")
    dims, kind = ", ".join(layout), scale.kind if scale else None
    is_blocks = isinstance(kind, int) and kind > 1
    identity = f"affine_map<({dims}) -> ({dims})>"
    maps, inputs, types, arguments = [identity], [f"%{cache}"], [cache_type], [f"%x: {stored}"]
    if packed:  # words are no operand of elements
        maps, inputs, types, arguments = [], [], [], []

    def of_position(name: str, argument: str) -> str:
        """A number, or an argument of the body for scales or zero points %name of this kind."""
        if kind == "number":
            return f"%{name}"
        per_position = [dim if dim != "d" else "0" for dim in layout if dim != "d" or kind == 1]
        scaled = "h" if kind == "head" else ", ".join(per_position)
        maps.append(f"affine_map<({dims}) -> ({scaled})>")
        inputs.append(f"%{name}")
        types.append(scale_type(kind, layout))  # type: ignore[arg-type]
        arguments.append(f"%{argument}: f32")
        return f"%{argument}"

    factor = None if scale is None or is_blocks else of_position(scale.name, "factor")
    zero = of_position(scale.zero, "zero_point") if scale and scale.zero and not is_blocks else None
    has_indices = rotation or is_blocks or packed
    body = [f"%{dim} = linalg.index {i} : index" for i, dim in enumerate(layout)] if has_indices else []

    def place(depth_index: str) -> str:
        return ", ".join(depth_index if dim == "d" else f"%{dim}" for dim in layout)

    def number(name: str, at: str) -> str:
        """Converts element %NAME at depth `at`, and multiplies it by the scale of its block."""
        if packed:
            body.extend(_code(name, at, lambda word: f"tensor.extract %{cache}[{place(word)}] : {cache_type}"))
        if stored != computed_in:
            body.append(f"%{name}_wide = arith.{conversion} %{name} : {stored} to {computed_in}")
            name += "_wide"
        if scale and is_blocks:
            size = depth // kind  # type: ignore[operator]
            block = f"%{name}_block"
            body.extend([f"%{name}_bits = arith.constant {size.bit_length() - 1} : index",
                         f"{block} = arith.shrui {at}, %{name}_bits : index"])

        def of_block(numbers: str, what: str) -> str:
            body.append(f"{block}_{what} = tensor.extract %{numbers}[{place(block)}] : "
                        f"{scale_type(kind, layout)}")  # type: ignore[arg-type]
            return f"{block}_{what}"

        if scale and packed:
            own_zero = zero or (of_block(scale.zero, "zero") if scale.zero else f"%{name}_zero")
            if not scale.zero:
                body.append(f"{own_zero} = arith.constant {ZERO_POINT}.0 : f32")
            body.append(f"%{name}_moved = arith.subf %{name}, {own_zero} : f32")
            name += "_moved"
        if scale and is_blocks:
            factor_of_block = of_block(scale.name, "scale")
            body.append(f"%{name}_scaled = arith.mulf %{name}, {factor_of_block} : f32")
            name += "_scaled"
        return f"%{name}"

    value = number("x", "%d")
    if rotation:
        body += rotation.partner(depth)
        if not packed:
            body.append(f"%y = tensor.extract %{cache}[{place('%partner')}] : {cache_type}")
        other = number("y", "%partner")
        for name in ("cos", "sin"):
            body.append(f"%{name} = tensor.extract %rotary_{name}[%s, %pair] : {rotation.type}")
            if rotation.element != computed_in:
                body[-1] = body[-1].replace(f"%{name} =", f"%{name}_stored =")
                body.append(f"%{name} = arith.extf %{name}_stored : {rotation.element} to {computed_in}")
        body += [f"%negative = arith.negf %sin : {computed_in}",
                 f"%signed = arith.select %is_first, %negative, %sin : {computed_in}",
                 f"%of_own = arith.mulf {value}, %cos : {computed_in}",
                 f"%of_other = arith.mulf {other}, %signed : {computed_in}",
                 f"%turned = arith.addf %of_own, %of_other : {computed_in}",
                 f"%rotated = arith.select %is_rotated, %turned, {value} : {computed_in}"]
        value = "%rotated"
    if factor:  # last, so that kernels may multiply a score or a weight by it
        body.append(f"%product = arith.mulf {value}, {factor} : f32")
        value = "%product"
    if element != computed_in:
        body.append(f"%r = arith.{'extf' if element == 'f64' else 'truncf'} {value} : {computed_in} to {element}")
        value = "%r"
    iterators = ", ".join(['"parallel"'] * len(layout))
    lines += [f"%{result} = linalg.generic {{indexing_maps = [{', '.join([*maps, identity])}], "
              f"iterator_types = [{iterators}]}}",
              (f"    ins({', '.join(inputs)} : {', '.join(types)})" if inputs else "   ")
              + f" outs(%{result}_empty : {type}) {{",
              f"^bb0({', '.join([*arguments, f'%_: {element}'])}):", *(f"  {line}" for line in body),
              f"  linalg.yield {value} : {element}", f"}} -> {type}"]
    return "".join(f"  {line}\n" for line in lines)
