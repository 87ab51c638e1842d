"""Builds the MLIR text that `saccade.attention` compiles, one attn.attention op, and that of
`saccade.attention_weights`. docs/reference/language.md defines the language.

The text contains only element types, head dimensions and regions. Lengths, batch, heads, the scale, the offset of a
causal mask and the bounds of a window are arguments, so one kernel serves all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from saccade import _cache_text, _epilogue
from saccade._form import Form
from saccade._merge import merge
from saccade._normalizers import STICK_BREAKING
from saccade.regions import Region
from saccade.regions.traced_function import PARAMETERS


def program(form: Form) -> str:
    """The module, with one function @attention. Its inputs, in order: q, k, v, new rows and their places, the captures
    and the operands of the form. Its results: the output, the log-sum-exp, max, argmax and tallies. A part also takes
    the positions of the first query and key and the results of other parts, and its results are those over the keys of
    all, in the precision of scores: the output, the log-sum-exp and its low part."""
    operands = [(name, _tensor(form, head_dim, layout=layout)) for name, head_dim, layout in
                (("q", form.head_dim, form.layout), ("k", form.head_dim, form.key_layout),
                 ("v", form.head_dim_v, form.key_layout))]
    tensors = operands[:1] + caches_of(form)[:2]
    captures, others = form.captures(), form.operands()
    types = dict(others)

    output = _tensor(form, form.head_dim_v, form.precision if form.is_part else form.element)
    results = [("out", output)]
    rows = f"tensor<{'?x' * (len(form.layout) - 1)}"
    more = [("lse", f"{rows}{form.precision}")] if form.lse else []
    more += [("lse_low", f"{rows}{form.precision}")] if form.is_part else []
    more += [("max", f"{rows}{form.precision}")] if form.max else []
    more += [("argmax", f"{rows}i64")] if form.argmax else []
    results += [(name, f"{type}>") for name, type in more]
    results += [(f"tally_{i}", f"{rows}{bins}x{form.precision}>") for i, (bins, _) in enumerate(form.tallies)]
    after, returned = "", [name for name, _ in results]
    before, keys, new, caches = _keys(form, tensors[1:], types)

    clauses = _read_clauses(form)
    clauses += form.append.clauses() if form.append else []
    clauses += _operand_clauses(types, ("kv_len", "scale", "sink", "cu_seqlens_q", "cu_seqlens_k"))
    clauses += ["qk_type(i8)"] if form.qk_type else []
    clauses += ["at(%zero, %zero, %first_query, %first_key)"] if form.is_part else []
    clauses += [f"dropout(%rate, %seed : {types['rate']}, {types['seed']})"] if form.dropout else []
    clauses += _region_clauses(form) + [name for name, _ in more]

    inputs = tensors + new + captures + others
    if form.is_part:
        before += "  %zero = arith.constant 0 : index\n"
        inputs += [("first_query", "index"), ("first_key", "index")]
        inputs += [(f"other_{name}", type) for name, type in results]
        after = merge(form.layout, output, results[1][1], has_low=True)
        returned = ["merged_out", "merged_lse", "merged_low"]
    if form.are_numbers_tensors:
        before += "".join(_unpacked(name, type) for name, type in inputs if not type.startswith("tensor"))
        inputs = [(name, type) if type.startswith("tensor") else (f"{name}_operand", f"tensor<{_stored(type)}>")
                  for name, type in inputs]
    first, second = results, ""
    if form.epilogue:
        first = [("attended", output), *results[1:]]
        if form.epilogue[1] is None:
            second = _attention(form, [("second", output)], ["other_q", "other_k", "v"], clauses, operands)
        after = _epilogue.text(form.epilogue, form.layout, output, form.precision,
                               types.get("gate") or types["lam"])
    returned += [f"{name}_updated" for name, _ in caches]
    number = {name: len(results) + i for i, (name, _) in enumerate(caches)}
    declared = [f"%{name}: {type}" + (f" {{attn.updated_by = {number[name]}}}" if name in number else "")
                for name, type in inputs]
    return (f"func.func @attention({', '.join(declared)})\n"
            f"    -> ({_types(results + caches)}) {{\n{before}"
            f"{second}{_attention(form, first, ['q', *keys], clauses, operands)}{after}"
            f"  return {', '.join(f'%{name}' for name in returned)} : {_types(results + caches)}\n"
            f"}}\n")


_STREAM = "#attn.split_kv<queries = 8, rows = 12, cols = 256, all = true>"
"""The schedule of split-KV on CPUs for caches whose heads are adjacent, for any number of queries."""


def _attention(form: Form, results: _Values, operands: list[str], clauses: list[str], types: _Values) -> str:
    """The op with these results, operands and clauses."""
    schedule = f" {{split_kv = {_STREAM}}}" if form.is_stream else ""
    return (f"  {_names(results)} = attn.attention {_joined([_tensors(form, operands), *clauses])}{schedule}\n"
            f"    : ({_types(types)}) -> ({_types(results)})\n")


def weights_program(form: Form) -> str:
    """The module of `saccade.attention_weights`, with one function @attention_weights. Its inputs, in order: q, k, the
    log-sum-exp if it is given, the captures and the operands of the form, the positions of the first batch, head and
    query, and the number of queries of the whole attention. Its result has the dimensions b and h of the layout, then
    queries, then keys."""
    query, key = _tensor(form, form.head_dim), _tensor(form, form.head_dim, layout=form.key_layout)
    dims = "?x" * (len(form.layout) - 1)
    rows, result = f"tensor<{dims}{form.precision}>", f"tensor<{dims}?x{form.precision}>"
    others = form.operands()
    types = dict(others)
    positions = [(name, "index") for name in ("first_batch", "first_head", "first_query", "queries")]
    before = "  %zero = arith.constant 0 : index\n"
    lse = ["lse(%lse : " + rows + ")"]
    common = [*_read_clauses(form), "q_len(%queries : index)", *_operand_clauses(types, ("kv_len", "scale")),
              "at(%first_batch, %first_head, %first_query, %zero)"]
    regions = _region_clauses(form)
    inputs = [("q", query), ("k", key)]
    if form.weights == "given":
        inputs.append(("lse", rows))
    else:
        # The log-sum-exp does not depend on the values, of which the first column of the keys takes the place.
        column, extents = _tensor(form, 1, layout=form.key_layout), form.key_layout.replace("d", "")
        for dim in extents:
            before += (f"  %axis_{dim} = arith.constant {form.key_layout.index(dim)} : index\n"
                       f"  %extent_{dim} = tensor.dim %k, %axis_{dim} : {key}\n")
        offsets, ones = (", ".join(number * len(form.key_layout)) for number in ("0", "1"))
        sizes = ", ".join("1" if dim == "d" else f"%extent_{dim}" for dim in form.key_layout)
        before += f"  %v = tensor.extract_slice %k[{offsets}] [{sizes}] [{ones}] : {key} to {column}\n"
        clauses = [_tensors(form, ["q", "k", "v"]), *common, *_operand_clauses(types, ("sink",)), *regions, "lse",
                   "lse_low"]  # fmt: skip
        output = _tensor(form, 1)
        before += (f"  %out, %lse, %lse_low = attn.attention {_joined(clauses)}\n"
                   f"    : ({query}, {key}, {column}) -> ({output}, {rows}, {rows})\n")
        lse.append(f"lse_low(%lse_low : {rows})")
    clauses = [_tensors(form, ["q", "k"]), *common, *lse, *regions]
    declared = ", ".join(f"%{name}: {type}" for name, type in inputs + form.captures() + others + positions)
    return (f"func.func @attention_weights({declared}) -> {result} {{\n{before}"
            f"  %weights = attn.weights {_joined(clauses)}\n    : ({query}, {key}) -> {result}\n"
            f"  return %weights : {result}\n}}\n")


_Values = list[tuple[str, str]]


def _joined(clauses: list[str]) -> str:
    return "\n    ".join(clauses)


def _tensors(form: Form, names: Sequence[str]) -> str:
    """The operands `names`, q and those of keys, with their dimensions."""
    dims, key_dims = (f"[{','.join(layout)}]" for layout in (form.layout, form.key_layout))
    return ", ".join(f"%{name}{key_dims if i else dims}" for i, name in enumerate(names))


def _read(form: Form) -> _Values:
    """What the regions read: captures, and operands of masks."""
    return form.captures() + [(name, type) for name, type in form.operands()
                              if name in ("tree", "causal", "left", "right")]


def _read_clauses(form: Form) -> list[str]:
    read = _read(form)
    return [f"captures({_names(read)} : {_types(read)})"] if read else []


def _operand_clauses(types: dict[str, str], names: Sequence[str]) -> list[str]:
    return [f"{name}(%{name} : {types[name]})" for name in names if name in types]


def _region_clauses(form: Form) -> list[str]:
    read = _read(form)
    regions = [_region(role, text, form, read) for role, text in form.functions() if role != "mask"]
    sticks = [f"normalizer {STICK_BREAKING}"] if form.normalizer == STICK_BREAKING else []
    return _masks(form, read) + regions + sticks


def caches_of(form: Form) -> list[tuple[str, str]]:
    """The arguments k and v, and their scales and zero points of positions: the caches that new rows are appended
    to."""
    depths, elements = [form.head_dim, form.head_dim_v], [form.element] * 2
    if form.scales:
        depths = [_cache_text.stored_depth(stored, depth) for (stored, _), depth in zip(form.scales, depths)]
        elements = [_cache_text.STORED[stored][0] for stored, _ in form.scales]
    types = dict(form.operands())
    return [(name, _tensor(form, depth, element, form.key_layout))
            for name, depth, element in zip("kv", depths, elements)] + [
        (f"{name}_{what}", types[f"{name}_{what}"]) for what in ("scale", "zero")
        for name, (_, kind) in zip("kv", form.scales or ())
        if _cache_text.is_cached(kind) and f"{name}_{what}" in types]  # fmt: skip


def _keys(form: Form, tensors: _Values, types: dict[str, str]) -> tuple[str, list[str], _Values, _Values]:
    """The ops that make keys and values of the arguments k and v, `tensors`: they append, read pages, and convert. Also
    the names of keys and values, the arguments of new rows, and the caches that are updated. `types` are those of the
    operands."""
    before, keys, updated = "", ["k", "v"], set[str]()
    caches = caches_of(form) if form.append else []
    new = form.append.inputs(caches) if form.append else []
    table = types.get("page_table", "")
    if form.append:
        before += form.append.text(caches, form.key_layout, table or None)
        updated = {name for name, _ in caches}
        keys = [f"{name}_updated" for name in keys]

    def of_positions(name: str, kind: str | int) -> str:
        """The name of scales or zero points, after an append and in pages."""
        nonlocal before
        result = f"{name}_updated" if name in updated else name
        if form.pages and _cache_text.is_cached(kind):
            before += _cache_text.paged(f"{result}_paged", result, types[name], form.key_layout, table)
            result += "_paged"
        return result

    for i, (_, type) in enumerate(tensors) if form.pages else ():
        before += _cache_text.paged(f"{keys[i]}_paged", keys[i], type, form.key_layout, table)
        keys[i] += "_paged"
    for i, (name, _) in enumerate(tensors):
        scale_of, rotation = None, form.rotation if name == "k" else None
        if form.scales:
            stored, kind = form.scales[i]
            zero = of_positions(f"{name}_zero", kind) if f"{name}_zero" in types else ""
            scale_of = _cache_text.Scale(stored, of_positions(f"{name}_scale", kind), kind, zero)
        if scale_of or rotation:
            before += _cache_text.computed(f"{name}_float", keys[i], form.key_layout,
                                           (form.head_dim, form.head_dim_v)[i], form.element, scale_of, rotation)
            keys[i] = f"{name}_float"
    return before, keys, new, caches


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
    @attention and tangents of the needed ones, and returns the results of @attention and their tangents. A program that
    is differentiated already becomes one with the new function only."""
    header, _, rest = program.partition("\n")
    header = header.replace(" {attn.no_gradient}", "")
    flags = iter(needed)

    def mark(found: re.Match[str]) -> str:
        is_needed = next(flags)
        return found[0] if is_needed or not is_float(found[1]) else f"{found[0]} {{attn.no_gradient}}"

    results, _, body = rest.partition(" {\n")
    results = results.partition(" attributes {attn.")[0]
    return f"{_ARGUMENT.sub(mark, header)}\n{results} attributes {{{attribute}}} {{\n{body}"


def is_differentiated(program: str) -> bool:
    """Whether the program is a result of `differentiated`."""
    return " attributes {attn." in program[: program.index(" {\n")]


def result_count(program: str) -> int:
    """The number of results of the program, without those that it returns to its gradient function only."""
    results, _, _ = program.partition("\n")[2].partition(" {\n")
    return results.count("tensor<")


def has_normalizer(program: str) -> bool:
    """Whether the weights of the program @attention are those of a normalizer, which have no log-sum-exp."""
    return "\n    normalizer(" in program or f"\n    normalizer {STICK_BREAKING}" in program


def is_float(type: str) -> bool:
    """Whether a type has float elements."""
    return type.rpartition("x")[2].rpartition("<")[2].rstrip(">") in ("f64", "f32", "f16", "bf16")


ARGUMENTS = {role: [f"%{name}" for name in names] for role, names in PARAMETERS.items()}


def region_text(role: str, region: Region) -> str:
    """A traced function as a text, which is equal for those with the same computation and capture types: the types,
    then the block, in which capture n is called %n."""
    names = [f"%{i}" for i in range(len(region.captures))]
    return f"{', '.join(region.capture_types)}\n{region.body(ARGUMENTS[role], names)}"


def region_texts(**regions: Region | None) -> dict[str, Any]:
    """The fields of a Form for traced functions by their roles."""
    return {role: region_text(role, region) for role, region in regions.items() if region is not None}


def _tensor(form: Form, head_dim: int, element: str | None = None, layout: str | None = None) -> str:
    return form.tensor(layout or form.layout, head_dim, element)


def _stored(type: str) -> str:
    """The element type of a scalar in a tensor. JAX has no 64-bit integers by default."""
    return "i32" if type == "index" else type


def _unpacked(name: str, type: str) -> str:
    """Reads a scalar from a tensor without dimensions."""
    stored = _stored(type)
    element = name if stored == type else f"{name}_{stored}"
    read = f"  %{element} = tensor.extract %{name}_operand[] : tensor<{stored}>\n"
    return read if stored == type else f"{read}  %{name} = arith.index_cast %{element} : {stored} to {type}\n"


def _names(values: _Values) -> str:
    return ", ".join(f"%{name}" for name, _ in values)


def _types(values: _Values) -> str:
    return ", ".join(type for _, type in values)


def _region(role: str, text: str, form: Form, read: _Values) -> str:
    """A traced function as a clause. The entry block of every region takes all captures of the op."""
    kind, _, number = role.partition("_")
    arguments = ARGUMENTS[kind] + [f"%c_{name}" for name, _ in read]
    if kind != "mask":
        arguments[0] += f": {form.precision}"
    block = re.sub(r"%(\d+)", rf"%c_{role}_\1", text.partition("\n")[2])
    name = f"tally<{form.tallies[int(number)][0]}>" if kind == "tally" else kind
    return _clause(name, arguments, block.split("\n"))


def _clause(role: str, arguments: list[str], lines: list[str]) -> str:
    return f"{role}({', '.join(arguments)}) {{\n" + "\n".join(f"      {line}" for line in lines) + "\n    }"


def _masks(form: Form, read: _Values) -> list[str]:
    """The mask clauses, which are combined by conjunction; conditions on run-time scalars need a region."""
    clauses = []
    arguments = ARGUMENTS["mask"] + [f"%c_{name}" for name, _ in read]
    if form.causal in ("top_left", "bottom_right"):
        clauses.append(f"mask causal<{form.causal}>")
    if form.causal == "offset" or form.sides:
        clauses.append(_clause("mask", arguments, _bounds(form)))
    if form.tree:
        clauses.append(_clause("mask", arguments, _TREE))
    if form.mask is not None:
        clauses.append(_region("mask", form.mask, form, read))
    return clauses


# Query i attends to all keys before those of the queries, and to that of query n if element [b, i, n] is true.
_TREE = ["%keys = attn.length key", "%queries = attn.length query", "%first = arith.subi %keys, %queries : index",
         "%n = arith.subi %j, %first : index", "%zero = arith.constant 0 : index",
         "%is_before = arith.cmpi slt, %n, %zero : index", "%own = arith.maxsi %n, %zero : index",
         "%is_in_tree = tensor.extract %c_tree[%b, %i, %own] : tensor<?x?x?xi1>",
         "%holds = arith.ori %is_before, %is_in_tree : i1", "attn.yield %holds : i1"]  # fmt: skip


def _bounds(form: Form) -> list[str]:
    """Run-time bounds around the query's own key, which the alignment of the causal mask determines."""
    own, lines, conditions = "%i", [], []
    if form.causal == "offset":
        own = "%own"
        lines.append("%own = arith.addi %i, %c_causal : index")
    elif form.causal == "bottom_right":
        own = "%own"
        lines += ["%keys = attn.length key", "%queries = attn.length query",
                  "%shift = arith.subi %keys, %queries : index", "%own = arith.addi %i, %shift : index"]

    def require(name: str, comparison: str, limit: str) -> None:
        lines.append(f"%{name} = arith.cmpi {comparison}, %j, {limit} : index")
        conditions.append(f"%{name}")

    if form.causal == "offset":
        require("is_before", "sle", own)
    if "l" in form.sides:
        lines.append(f"%first = arith.subi {own}, %c_left : index")
        require("is_from_first", "sge", "%first")
    if "r" in form.sides:
        lines.append(f"%last = arith.addi {own}, %c_right : index")
        require("is_to_last", "sle", "%last")
    holds = conditions[0]
    for i, condition in enumerate(conditions[1:]):
        lines.append(f"%all_{i} = arith.andi {holds}, {condition} : i1")
        holds = f"%all_{i}"
    lines.append(f"attn.yield {holds} : i1")
    return lines
