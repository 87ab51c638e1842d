"""Calls of `saccade.linear_attention` as programs: the options of a call as a Form, and its program.

A Form has what a program depends on: element types, head dimensions, the layout and the clauses. Extents are checked
here in terms of the caller's arguments, for eager calls; calls that torch.compile traces leave them to the program.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from saccade import _arrays, _operands, _parameters

NAME = "linear_attention"
"""The function of the program."""

FEATURE_MAPS = {
    "identity": "",
    "relu": "feature(%x: F) {\n      %zero = arith.constant 0.0 : F\n      %r = arith.maximumf %x, %zero : F\n"
            "      attn.yield %r : F\n    }",
    "elu+1": "feature(%x: F) {\n      %zero = arith.constant 0.0 : F\n      %one = arith.constant 1.0 : F\n"
             "      %e = math.exp %x : F\n      %y = arith.addf %x, %one : F\n      "
             "%p = arith.cmpf ogt, %x, %zero : F\n"
             "      %r = arith.select %p, %y, %e : F\n      attn.yield %r : F\n    }",
}  # fmt: skip
"""The feature map clauses; F is replaced by the type of the state."""

OPERANDS = ("decay", "beta", "erase", "state", "cu_seqlens", "kv_len")
"""The tensors after q, k and v, in the order of the program."""


class Form(NamedTuple):
    """What the program of a call depends on. `element` and those of operands are MLIR element types, or torch's in a
    function that Dynamo traces."""

    element: Any
    head_dim: int
    head_dim_v: int
    layout: str
    feature_map: str
    causal: bool
    normalize: bool
    scale: float | None
    l2norm: float | None
    return_state: bool
    operands: tuple[tuple[str, Any, int], ...]
    """Name, element type and number of dimensions."""
    heads: tuple[int, int, int] | None = None
    """Those of q, k and v in programs for these numbers only, whose kernels need not provide for others."""
    updates_state: bool = False
    """Whether the final state replaces the initial one in its memory."""

    @property
    def precision(self) -> str:
        """The type of the state."""
        return "f64" if self.element == "f64" else "f32"

    @property
    def state_columns(self) -> int:
        """The columns of a state: those of values, and one for the sum of keys."""
        return self.head_dim_v + self.normalize


@functools.lru_cache(maxsize=1024)
def program(form: Form) -> str:
    """The program @linear_attention(q, k, v, *operands) of the tensors of the form."""
    layout, element, d, e = form.layout, form.element, form.head_dim, form.head_dim_v

    def tensor(dims: str, type: str, **extents: int | None) -> str:
        known = {dim: str(extent) for dim, extent in extents.items() if extent is not None}
        return f"tensor<{'x'.join([*[known.get(dim, '?') for dim in dims], type])}>"

    of_q, of_k, of_v = form.heads or (None, None, None)
    arguments = [(name, tensor(layout, element, d=extent, h=count))
                 for name, extent, count in (("q", d, of_q), ("k", d, of_k), ("v", e, of_v))]
    types = ", ".join([type for _, type in arguments])
    clauses = ["causal"] * form.causal + ["normalize"] * form.normalize
    for name, number in (("scale", form.scale), ("l2norm", form.l2norm)):
        if number is not None:
            clauses.append(f"{name}({number:.17e})")  # MLIR float literals need a decimal point
    is_ragged = any([name == "cu_seqlens" for name, _, _ in form.operands])
    rows = layout.replace("d", "")
    heads = "b" * is_ragged + "".join([dim for dim in "bh" if dim in layout])
    def state(type: str) -> str:
        return tensor(heads + "de", type, d=d, e=form.state_columns, h=of_v)

    for name, own_type, rank in form.operands:
        if name in ("state", "cu_seqlens", "kv_len"):
            type = state(own_type) if name == "state" else f"tensor<?x{own_type}>"
            arguments.append((name, type))
            clauses.append(f"{name}(%{name} : {type})")
            continue
        dims = layout if rank == len(layout) else rows if rank == len(rows) else "h"
        arguments.append((name, tensor(dims, own_type, d=d, h=of_v)))
        clauses.append(f"{name}(%{name}[{','.join(dims)}] : {arguments[-1][1]})")
    clauses.append(FEATURE_MAPS[form.feature_map].replace(": F", f": {form.precision}"))
    of_output = max(form.heads[0], form.heads[2]) if form.heads else None
    results = [tensor(layout, element, d=e, h=of_output)] + [state(form.precision)] * form.return_state
    names = ", ".join([f"%r{i}" for i in range(len(results))])
    updated = {"state": " {attn.updated_by = 1}"} if form.updates_state else {}
    inputs = ", ".join([f"%{name}: {type}{updated.get(name, '')}" for name, type in arguments])
    index = ",".join(layout)
    return (f"func.func @{NAME}({inputs})\n    -> ({', '.join(results)}) {{\n"
            f"  {names} = attn.linear %q[{index}], %k[{index}], %v[{index}] {' '.join(clauses)}\n"
            f"    : ({types}) -> ({', '.join(results)})\n  return {names} : {', '.join(results)}\n}}\n")  # fmt: skip


# --- options ----------------------------------------------------------------------------------------------------------


def is_causal(causal: Any) -> bool:
    """Whether `causal`, with the words of `attention`, is a causal mask of as many queries as keys."""
    if causal is None or isinstance(causal, bool):
        return bool(causal)
    if not isinstance(causal, str):
        offset = _operands.check_causal(causal)
        if offset:
            raise ValueError(f"causal is {offset}, expected True or False: linear attention has no offsets but 0")
    elif causal not in ("top_left", "bottom_right"):
        raise ValueError(f'causal is {causal!r:.80}, expected True, False, "top_left" or "bottom_right"')
    return True


def check_options(feature_map: Any, causal: bool, normalize: Any, scale: Any, return_state: Any, l2norm: Any,
                  given: dict[str, Any]) -> float | None:
    """Checks the options that are no tensors, and which go together; returns the scale."""
    if not isinstance(feature_map, str) or feature_map not in FEATURE_MAPS:
        raise ValueError(f"feature_map is {feature_map!r:.80}, expected one of {', '.join(FEATURE_MAPS)}")
    _parameters.flag("normalize", normalize)
    _parameters.flag("return_state", return_state)
    if normalize and scale is not None:
        raise ValueError("scale is given with normalize=True, expected None: the scale would cancel")
    for name in ("beta", "erase", "decay"):
        if not causal and given[name] is not None:
            raise ValueError(f"{name} is given, expected causal=True: it applies to the state at each position")
        if normalize and name != "decay" and given[name] is not None:
            raise ValueError(f"{name} is given with normalize=True, expected None: weights of the delta rule have no "
                             "sum")
    if given["cu_seqlens"] is not None and given["kv_len"] is not None:
        raise ValueError("kv_len is given with cu_seqlens, expected None: lengths are differences of cu_seqlens")
    if l2norm is not None:
        is_number = isinstance(l2norm, (int, float)) and not isinstance(l2norm, bool)
        if not is_number or not 0 <= l2norm < float("inf"):
            raise ValueError(f"l2norm is {l2norm!r:.80}, expected None or a number from 0, which is added to the sum "
                             "of squares")
    return None if scale is None else float(_operands.check_finite_scale(scale))


# --- tensors ----------------------------------------------------------------------------------------------------------


def element_of(name: str, x: Any, *ranks: int) -> str:
    """The MLIR element type of an argument with one of these numbers of dimensions."""
    if _arrays.kind_of(x) is None and not hasattr(x, "ndim"):
        _arrays.check_tensor(name, x)  # raises
    if x.ndim not in ranks:
        expected = " or ".join([str(rank) for rank in sorted(set(ranks))])
        raise TypeError(f"{name} has {_arrays.dimensions(x.ndim)}, expected {expected}")
    return _operands.element_of(x.dtype, name)


def other_type(name: str, x: Any, q: Any) -> TypeError:
    """The error of an array of another element type than q."""
    found, expected = _operands.dtype_name(x), _operands.dtype_name(q)
    return TypeError(f"{name} has elements of type {found}, expected {expected}, that of q")


def check_operands(q: Any, k: Any, v: Any, layout: str = "bhsd", causal: bool = False) -> str:
    """Checks q, k and v; returns the MLIR element type."""
    rank = len(layout)
    element = element_of("q", q, rank)
    for name, x in (("k", k), ("v", v)):
        if element_of(name, x, rank) != element:
            raise other_type(name, x, q)
    checks: list[tuple[str, Any, str, str, str, Any]] = [
        ("v", v, "s", "length", "k", k), ("k", k, "d", "head size", "q", q)]  # fmt: skip
    if "b" in layout:
        checks = [("k", k, "b", "batch size", "q", q), ("v", v, "b", "batch size", "q", q), *checks]
    if causal:
        checks.append(("k", k, "s", "length", "q", q))
    for name, x, dim, what, whose, other in checks:
        axis = layout.index(dim)
        if x.shape[axis] != other.shape[axis]:
            raise ValueError(f"{name} has {what} {x.shape[axis]}, expected {other.shape[axis]}, that of {whose}")
    check_heads(*[x.shape[layout.index("h")] if "h" in layout else 1 for x in (q, k, v)])
    return element


def check_heads(heads: int, key_heads: int, value_heads: int) -> None:
    """Checks the numbers of heads. A head of keys may belong to several of values, and one of either to the other of
    queries and values."""
    if (value_heads % key_heads or not value_heads) if key_heads else value_heads:
        raise ValueError(f"v has head count {value_heads}, expected a multiple of the {key_heads} heads of k")
    fits = heads == value_heads or bool(heads and value_heads) and (not heads % value_heads or not value_heads % heads)
    if not fits:
        raise ValueError(f"q has {heads} heads, expected a multiple or a divisor of the {value_heads} heads of v")


def _check_lengths_of(kv_len: Any, k: Any, layout: Any) -> None:
    axis = layout.find("s") if isinstance(layout, str) else 2
    if not 0 <= axis < len(k.shape) or 0 in kv_len.shape:
        return  # reported elsewhere
    check_length_values(kv_len, k.shape[axis], "k")


def check_length_values(kv_len: Any, length: int, of: str) -> None:
    """Refuses lengths beyond that of the operand `of`. At least one is given."""
    _operands.integer_type("kv_len", kv_len)
    for each in (int(kv_len.min()), int(kv_len.max())):
        if not 0 <= each <= length:
            raise ValueError(f"kv_len has the element {each}, expected 0 to {length}, the length of {of}")


def layout_of(layout: Any, cu_seqlens: Any) -> str:
    """The layout of a call, which is checked."""
    layout = ("bhsd" if cu_seqlens is None else "shd") if layout is None else layout
    _operands.check_layout(layout, False)
    if cu_seqlens is not None and "b" in layout:
        raise ValueError(f"layout is {layout!r}, expected one without b: with cu_seqlens the sequences of a batch are "
                         'concatenated along s, as in "shd"')
    return str(layout)


def check_lengths(given: dict[str, Any], layout: str, batch: int) -> list[tuple[str, str, int]]:
    """Checks offsets and lengths, whose values the program checks, and returns those of the Form."""
    found: list[tuple[str, str, int]] = []
    for name in ("cu_seqlens", "kv_len"):
        x = given[name]
        if x is None:
            continue
        if name == "kv_len" and "b" not in layout:
            raise ValueError(f"kv_len is given with layout {layout!r}, expected one with b: a length for each batch")
        if not hasattr(x, "ndim"):
            _arrays.check_tensor(name, x)  # raises
        if x.ndim != 1:
            raise TypeError(f"{name} has {_arrays.dimensions(x.ndim)}, expected 1")
        found.append((name, _operands.integer_type(name, x), 1))
        if name == "kv_len" and x.shape[0] != batch:
            raise ValueError(f"kv_len has {x.shape[0]} elements, expected {batch}, the batch size")
        if name == "cu_seqlens" and not x.shape[0]:
            raise ValueError("cu_seqlens is empty, expected the offset of each sequence and the total")
    return found


def check_factors(given: dict[str, Any], q: Any, k: Any, v: Any, layout: str, element: str,
                  columns: int) -> tuple[tuple[str, str, int], ...]:
    """Checks the operands after q, k and v, and returns those of the Form."""
    rank = len(layout)
    heads = v.shape[layout.index("h")] if "h" in layout else 1
    depth = k.shape[layout.index("d")]
    by_dim = {dim: heads if dim == "h" else k.shape[layout.index(dim)] for dim in layout}
    of_keys = tuple([by_dim[dim] for dim in layout])
    of_rows = tuple([by_dim[dim] for dim in layout if dim != "d"])
    sequences = () if given["cu_seqlens"] is None else (given["cu_seqlens"].shape[0] - 1,)
    of_state = (*sequences, *[by_dim[dim] for dim in "bh" if dim in layout], depth, columns)
    shapes = {"decay": {rank: of_keys, 1: (heads,), rank - 1: of_rows}, "beta": {rank - 1: of_rows},
              "erase": {rank: of_keys}, "state": {len(of_state): of_state}}
    lengths = check_lengths(given, layout, by_dim.get("b", 1))
    found: list[tuple[str, str, int]] = []
    for name in OPERANDS[:4]:
        x = given[name]
        if x is None:
            continue
        own = element_of(name, x, *shapes[name])
        if own not in (element, "f32", "f64") or (own == "f64") != (element == "f64"):
            wide = "float64" if element == "f64" else "float32"
            raise TypeError(f"{name} has elements of type {_operands.dtype_name(x)}, expected {wide} or that of q")
        if tuple(x.shape) != shapes[name][x.ndim]:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {shapes[name][x.ndim]}")
        found.append((name, own, x.ndim))
    return (*found, *lengths)


def check_values(given: dict[str, Any], k: Any, layout: Any) -> None:
    """Refuses gates that would make the state NaN or infinite for ever, and lengths beyond that of k. Decays above 1
    are valid."""
    if given.get("kv_len") is not None:
        _check_lengths_of(given["kv_len"], k, layout)
    for name in ("decay", "beta"):
        x = given.get(name)
        if x is None or 0 in x.shape:
            continue
        _operands.element_of(x.dtype, name)
        largest = float((x.detach() if _arrays.is_torch(x) else x).max())  # NaN if an element is
        if not largest < float("inf"):
            raise ValueError(f"{name} has an element that is {'NaN' if largest != largest else 'infinite'}, expected "
                             f"{'logarithms of decays' if name == 'decay' else 'finite rates'}")


def result_shapes(layout: str, q: Any, v: Any, columns: int,
                  cu_seqlens: Any = None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shapes of the output and of the final state, from those of q and v, the columns of states and the offsets of
    a ragged batch."""
    heads, extents = {}, dict(zip(layout, q))
    if "h" in layout:
        axis = layout.index("h")
        heads = {"h": v[axis]}
        extents["h"] = max(q[axis], v[axis])
    extents["d"] = v[layout.index("d")]
    outer = [{**extents, **heads}[dim] for dim in "bh" if dim in layout]
    sequences = () if cu_seqlens is None else (cu_seqlens.shape[0] - 1,)
    return tuple([extents[dim] for dim in layout]), (*sequences, *outer, q[layout.index("d")], columns)


def form_of(q: Any, k: Any, v: Any, given: dict[str, Any], options: tuple[Any, ...]) -> Form:
    """The Form of a call, which is checked."""
    feature_map, causal, normalize, scale, return_state, l2norm, layout = options
    causal = is_causal(causal)
    scale = check_options(feature_map, causal, normalize, scale, return_state, l2norm, given)
    layout = layout_of(layout, given["cu_seqlens"])
    axis = layout.index("d")
    element = check_operands(q, k, v, layout, causal)
    width = v.shape[axis]
    operands = check_factors(given, q, k, v, layout, element, width + normalize)
    return Form(element, q.shape[axis], width, layout, feature_map, causal, bool(normalize), scale,
                None if l2norm is None else float(l2norm), bool(return_state), operands)


# --- results ----------------------------------------------------------------------------------------------------------


def is_recorded(*values: Any) -> bool:
    """Whether PyTorch records the gradient of one of the values."""
    torch = _arrays.torch_module()
    return torch is not None and torch.is_grad_enabled() and any([getattr(x, "requires_grad", False) for x in values])


def state_type(q: Any) -> Any:
    """torch's element type of states for a tensor of queries."""
    torch = _arrays.torch_module()
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def out_of(out: Any, return_state: bool) -> Sequence[Any]:
    """The arrays of `out` for the output and the state; empty for new ones."""
    if out is None:
        return ()
    if not isinstance(out, tuple):
        if return_state:
            raise TypeError("out is one array with return_state=True, expected the tuple (output, state)")
        return (out,)
    if not return_state:
        raise TypeError("out is a tuple, expected one array; with return_state=True it is (output, state)")
    if len(out) != 2:
        raise TypeError(f"out has {_arrays_count(len(out))}, expected 2: (output, state)")
    return out


def _arrays_count(count: int) -> str:
    return f"{count} array{'' if count == 1 else 's'}"
