"""Builds the MLIR text that `saccade.attention` compiles: one attn.attention op. docs/reference/language.md defines the
language.

The text contains only element types, head dimensions and regions. Lengths, batch, heads, the scale, the offset of a
causal mask and the bounds of a window are arguments, so one kernel serves all of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from saccade import _cache_text
from saccade._merge import merge
from saccade.regions import Region
from saccade.regions.traced_function import PARAMETERS


@dataclasses.dataclass
class Spec:
    """The properties that one kernel is compiled for."""

    element: str  # "f32"
    head_dim: int  # of q and k
    head_dim_v: int
    layout: str  # "bhsd"
    causal: str | None = None  # "top_left", "bottom_right" or "offset", which is a run-time scalar
    left: bool = False  # whether the window is bounded on this side
    right: bool = False
    scale: bool = False  # given as an argument, otherwise 1/√head_dim
    kv_len: str | None = None  # "index" for a scalar, "i32" or "i64" for a tensor [batch]
    ragged: tuple[str, str | None] | None = None  # element types of cu_seqlens_q and cu_seqlens_k, "i32" or "i64"
    pages: str | None = None  # the element type of the page table, "i32" or "i64"; k and v are page pools
    # Of quantized k and v: the element type, a key of `_cache_text.STORED`, and the kind of `_cache_text.scale_type`.
    scales: tuple[tuple[str, str | int], tuple[str, str | int]] | None = None
    qk_type: str | None = None  # "int8": queries and keys may be rounded to it for their dot products
    rotation: _cache_text.Rotation | None = None  # keys are rotated when they are read
    sink: str | None = None  # the element type, "f32" ...; with is_sink_number one scalar for all heads
    is_sink_number: bool = False
    lse: bool = False
    max: bool = False  # and argmax
    dropout: str | None = None  # the type of the seed, "i64" or "tensor<1xi64>"
    score: Region | None = None
    mask: Region | None = None
    weight: Region | None = None
    are_numbers_tensors: bool = False  # scalar inputs are tensors without dimensions: XLA has no other operands
    is_part: bool = False  # the operands begin at positions that are given, and the results are merged with others
    append: _cache_text.Append | None = None  # k and v are caches, to which new rows are appended first
    tree: bool = False  # the last keys are those of the queries, and a tensor says which of them a query attends to

    @property
    def precision(self) -> str:
        """The type of scores and sums."""
        return "f64" if self.element == "f64" else "f32"

    @property
    def key_layout(self) -> str:
        """The dimensions of k and v. Page pools always have a dimension of pages."""
        return key_layout(self.layout, self.pages is not None)


def program(spec: Spec) -> str:
    """The module, with one function @attention. Its inputs, in order: q, k, v, new rows and their places, the captures
    of score, mask and weight, the tree, then those of scale, causal, left, right, kv_len, sink, cu_seqlens_q,
    cu_seqlens_k, page_table, rate and seed of dropout, k_scale and v_scale, cosines and sines that the spec has. Its
    results: the output, the log-sum-exp, max and argmax. A part also takes the positions of the first query and key and
    the results of other parts, and its results are those over the keys of all, in the precision of scores: the output,
    the log-sum-exp and its low part."""
    operands = [(name, _tensor(spec, head_dim, layout=layout)) for name, head_dim, layout in
                (("q", spec.head_dim, spec.layout), ("k", spec.head_dim, spec.key_layout),
                 ("v", spec.head_dim_v, spec.key_layout))]
    tensors = operands.copy()
    for i, (stored, _) in enumerate(spec.scales or ()):
        element = _cache_text.STORED[stored][0]
        tensors[i + 1] = "kv"[i], _tensor(spec, (spec.head_dim, spec.head_dim_v)[i], element, spec.key_layout)
    regions = [(role, region) for role, region in (("score", spec.score), ("mask", spec.mask), ("weight", spec.weight))
               if region is not None]
    captures = [(f"{role}_{i}", type) for role, region in regions for i, type in enumerate(region.capture_types)]
    bounds = [(name, "index") for name, is_given in
              (("causal", spec.causal == "offset"), ("left", spec.left), ("right", spec.right)) if is_given]
    scale = [("scale", spec.precision)] if spec.scale else []
    length = [("kv_len", "index" if spec.kv_len == "index" else f"tensor<?x{spec.kv_len}>")] if spec.kv_len else []
    sink = [("sink", spec.sink if spec.is_sink_number else f"tensor<?x{spec.sink}>")] if spec.sink else []

    offsets = [(name, f"tensor<?x{element}>") for name, element in
               zip(("cu_seqlens_q", "cu_seqlens_k"), spec.ragged or ()) if element]
    pages = [("page_table", f"tensor<?x?x{spec.pages}>")] if spec.pages else []

    dropout = [("rate", "f32"), ("seed", spec.dropout)] if spec.dropout else []
    scales = [(f"{name}_scale", _cache_text.scale_type(kind, spec.key_layout))
              for name, (_, kind) in zip("kv", spec.scales or ())]

    output = _tensor(spec, spec.head_dim_v, spec.precision if spec.is_part else spec.element)
    results = [("out", output)]
    rows = f"tensor<{'?x' * (len(spec.layout) - 1)}"
    more = [("lse", f"{rows}{spec.precision}")] if spec.lse else []
    more += [("lse_low", f"{rows}{spec.precision}")] if spec.is_part else []
    more += [("max", f"{rows}{spec.precision}"), ("argmax", f"{rows}i64")] if spec.max else []
    results += [(name, f"{type}>") for name, type in more]
    before, after, returned = "", "", [name for name, _ in results]
    new: list[tuple[str, str]] = []
    caches: list[tuple[str, str]] = []
    keys, scale_names = ["k", "v"], [name for name, _ in scales]
    if spec.append:
        caches = tensors[1:] + [scale for scale, (_, kind) in zip(scales, spec.scales or ())
                                if _cache_text.is_cached(kind)]
        new = spec.append.inputs(caches)
        before += spec.append.text(caches, spec.key_layout, pages[0][1] if spec.pages else None)
        updated = {name for name, _ in caches}
        keys, scale_names = ([f"{name}_updated" if name in updated else name for name in names]
                             for names in (keys, scale_names))
    for i, (_, type) in enumerate(tensors[1:]) if spec.pages else ():
        before += _cache_text.paged(f"{keys[i]}_paged", keys[i], type, spec.key_layout, pages[0][1])
        keys[i] += "_paged"
    for i, (name, _) in enumerate(tensors[1:]):
        scale_of, rotation = None, spec.rotation if name == "k" else None
        if spec.scales:
            scale_name, (element, kind) = scale_names[i], spec.scales[i]
            if spec.pages and _cache_text.is_cached(kind):
                before += _cache_text.paged(f"{scale_name}_paged", scale_name, scales[i][1], spec.key_layout,
                                            pages[0][1])  # fmt: skip
                scale_name += "_paged"
            scale_of = _cache_text.Scale(element, scale_name, kind)
        if scale_of or rotation:
            before += _cache_text.computed(f"{name}_float", keys[i], spec.key_layout,
                                           (spec.head_dim, spec.head_dim_v)[i], spec.element, scale_of, rotation)
            keys[i] = f"{name}_float"
    dims, key_dims = (f"[{','.join(layout)}]" for layout in (spec.layout, spec.key_layout))
    clauses = [f"%q{dims}, {', '.join(f'%{name}{key_dims}' for name in keys)}"]
    captures += [("tree", "tensor<?x?x?xi1>")] if spec.tree else []
    read = captures + bounds
    if read:
        clauses.append(f"captures({_names(read)} : {_types(read)})")
    clauses += spec.append.clauses() if spec.append else []
    clauses += [f"{name}(%{name} : {type})" for name, type in length + scale + sink]
    clauses += [f"{name}(%{name} : {type})" for name, type in offsets]
    clauses += ["qk_type(i8)"] if spec.qk_type else []
    clauses += ["at(%zero, %zero, %first_query, %first_key)"] if spec.is_part else []
    clauses += [f"dropout({_names(dropout)} : {_types(dropout)})"] if dropout else []
    clauses += _masks(spec, captures, bounds)
    clauses += [_region(role, spec, captures, bounds) for role, _ in regions if role != "mask"]
    clauses += [name for name, _ in more]

    joined = "\n    ".join(clauses)
    rotary = [(f"rotary_{name}", spec.rotation.type) for name in ("cos", "sin")] if spec.rotation else []
    inputs = tensors + new + captures + scale + bounds + length + sink + offsets + pages + dropout + scales + rotary
    if spec.is_part:
        before += "  %zero = arith.constant 0 : index\n"
        inputs += [("first_query", "index"), ("first_key", "index")]
        inputs += [(f"other_{name}", type) for name, type in results]
        after = merge(spec.layout, output, results[1][1], has_low=True)
        returned = ["merged_out", "merged_lse", "merged_low"]
    if spec.are_numbers_tensors:
        before += "".join(_unpacked(name, type) for name, type in inputs if not type.startswith("tensor"))
        inputs = [(name, type) if type.startswith("tensor") else (f"{name}_operand", f"tensor<{_stored(type)}>")
                  for name, type in inputs]
    returned += [f"{name}_updated" for name, _ in caches]
    number = {name: len(results) + i for i, (name, _) in enumerate(caches)}
    declared = [f"%{name}: {type}" + (f" {{attn.updated_by = {number[name]}}}" if name in number else "")
                for name, type in inputs]
    return (f"func.func @attention({', '.join(declared)})\n"
            f"    -> ({_types(results + caches)}) {{\n{before}"
            f"  {_names(results)} = attn.attention {joined}\n"
            f"    : ({_types(operands)}) -> ({_types(results)})\n{after}"
            f"  return {', '.join(f'%{name}' for name in returned)} : {_types(results + caches)}\n"
            f"}}\n")


_ARGUMENT = re.compile(r"%\w+: ([^,{)]+?)( \{attn\.no_gradient\})?(?=[,)])")


def arguments(program: str) -> list[tuple[str, bool]]:
    """The types of the arguments of a program, and whether each has a gradient, or a tangent, if the program is
    differentiated."""
    header = program[: program.index("\n")]
    return [(type, is_float(type) and not attribute) for type, attribute in _ARGUMENT.findall(header)]


def differentiated(program: str, needed: Sequence[bool], attribute: str = "attn.gradient") -> str:
    """The program with a gradient function, which returns gradients of the `needed` arguments with float elements. It
    takes the arguments of @attention, its results, the log-sum-exp if it is none of them, and the gradients of the
    results. With the attribute `attn.jvp`, the program with a function of tangents: it takes the arguments of
    @attention and tangents of the needed ones, and returns the results of @attention and their tangents."""
    header, _, rest = program.partition("\n")
    flags = iter(needed)

    def mark(found: re.Match[str]) -> str:
        is_needed = next(flags)
        return found[0] if is_needed or not is_float(found[1]) else f"{found[0]} {{attn.no_gradient}}"

    results, _, body = rest.partition(" {\n")
    return f"{_ARGUMENT.sub(mark, header)}\n{results} attributes {{{attribute}}} {{\n{body}"


def is_differentiated(program: str) -> bool:
    """Whether the program is a result of `differentiated`."""
    return " attributes {attn." in program[: program.index(" {\n")]


def is_float(type: str) -> bool:
    """Whether a type has float elements."""
    return type.rpartition("x")[2].rpartition("<")[2].rstrip(">") in ("f64", "f32", "f16", "bf16")


ARGUMENTS = {role: [f"%{name}" for name in names] for role, names in PARAMETERS.items()}


def region_key(role: str, region: Region) -> str:
    """A text that is equal for regions with the same computation and capture types."""
    names = [f"%{i}" for i in range(len(region.captures))]
    return f"{', '.join(region.capture_types)}\n{region.body(ARGUMENTS[role], names)}"


def key_layout(layout: str, is_paged: bool) -> str:
    """The dimensions of k and v for those of q."""
    return f"b{layout}" if is_paged and "b" not in layout else layout


def _tensor(spec: Spec, head_dim: int, element: str | None = None, layout: str | None = None) -> str:
    extents = "x".join(str(head_dim) if dim == "d" else "?" for dim in layout or spec.layout)
    return f"tensor<{extents}x{element or spec.element}>"


def _stored(type: str) -> str:
    """The element type of a scalar in a tensor. JAX has no 64-bit integers by default."""
    return "i32" if type == "index" else type


def _unpacked(name: str, type: str) -> str:
    """Reads a scalar from a tensor without dimensions."""
    stored = _stored(type)
    element = name if stored == type else f"{name}_{stored}"
    read = f"  %{element} = tensor.extract %{name}_operand[] : tensor<{stored}>\n"
    return read if stored == type else f"{read}  %{name} = arith.index_cast %{element} : {stored} to {type}\n"


def _names(values: list[tuple[str, str]]) -> str:
    return ", ".join(f"%{name}" for name, _ in values)


def _types(values: list[tuple[str, str]]) -> str:
    return ", ".join(type for _, type in values)


def _region(role: str, spec: Spec, captures: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> str:
    """A traced function as a clause. The entry block of every region takes all captures of the op."""
    region = {"score": spec.score, "mask": spec.mask, "weight": spec.weight}[role]
    assert region is not None
    arguments = ARGUMENTS[role] + [f"%c_{name}" for name, _ in captures + bounds]
    if role != "mask":
        arguments[0] += f": {spec.precision}"
    mine = [f"%c_{name}" for name, _ in captures if name.startswith(f"{role}_")]
    return f"{role}({', '.join(arguments)}) {{\n{region.body(ARGUMENTS[role], mine, '      ')}\n    }}"


def _masks(spec: Spec, captures: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> list[str]:
    """The mask clauses, which are combined by conjunction; conditions on run-time scalars need a region."""
    clauses = []
    if spec.causal in ("top_left", "bottom_right"):
        clauses.append(f"mask causal<{spec.causal}>")
    if bounds:
        clauses.append(_bounds(spec, captures, bounds))
    if spec.tree:
        clauses.append(_tree(captures, bounds))
    if spec.mask is not None:
        clauses.append(_region("mask", spec, captures, bounds))
    return clauses


def _tree(captures: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> str:
    """Query i attends to all keys before those of the queries, and to that of query n if element [b, i, n] is true."""
    lines = ["%keys = attn.length key", "%queries = attn.length query", "%first = arith.subi %keys, %queries : index",
             "%n = arith.subi %j, %first : index", "%zero = arith.constant 0 : index",
             "%is_before = arith.cmpi slt, %n, %zero : index", "%own = arith.maxsi %n, %zero : index",
             "%is_in_tree = tensor.extract %c_tree[%b, %i, %own] : tensor<?x?x?xi1>",
             "%holds = arith.ori %is_before, %is_in_tree : i1", "attn.yield %holds : i1"]  # fmt: skip
    return _mask_text(lines, captures, bounds)


def _mask_text(lines: list[str], captures: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> str:
    arguments = ARGUMENTS["mask"] + [f"%c_{name}" for name, _ in captures + bounds]
    return f"mask({', '.join(arguments)}) {{\n" + "\n".join(f"      {line}" for line in lines) + "\n    }"


def _bounds(spec: Spec, captures: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> str:
    """Run-time bounds around the query's own key, which the alignment of the causal mask determines."""
    own, lines, conditions = "%i", [], []
    if spec.causal == "offset":
        own = "%own"
        lines.append("%own = arith.addi %i, %c_causal : index")
    elif spec.causal == "bottom_right":
        own = "%own"
        lines += ["%keys = attn.length key", "%queries = attn.length query",
                  "%shift = arith.subi %keys, %queries : index", "%own = arith.addi %i, %shift : index"]

    def require(name: str, comparison: str, limit: str) -> None:
        lines.append(f"%{name} = arith.cmpi {comparison}, %j, {limit} : index")
        conditions.append(f"%{name}")

    if spec.causal == "offset":
        require("is_before", "sle", own)
    if spec.left:
        lines.append(f"%first = arith.subi {own}, %c_left : index")
        require("is_from_first", "sge", "%first")
    if spec.right:
        lines.append(f"%last = arith.addi {own}, %c_right : index")
        require("is_to_last", "sle", "%last")
    holds = conditions[0]
    for i, condition in enumerate(conditions[1:]):
        lines.append(f"%all_{i} = arith.andi {holds}, {condition} : i1")
        holds = f"%all_{i}"
    lines.append(f"attn.yield {holds} : i1")
    return _mask_text(lines, captures, bounds)
