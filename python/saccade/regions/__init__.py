"""Traces Python functions of index scalars to `score`, `mask` and `weight` regions of `attn.attention`.

`trace` runs a function once on proxies of the score and the positions and returns a Region, its arithmetic as MLIR
text. `fingerprint` computes a key that is equal for functions with the same region, without tracing.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.regions.dtypes import BOOL, FLOAT, STORED, dtype_name
from saccade.regions.emit import lines, live
from saccade.regions.expression import Builder, Node
from saccade.regions.fingerprint import Fingerprint, fingerprint, numbers_of
from saccade.regions.numbers import Number, evaluator, is_variable, slot
from saccade.regions.rebuild import rebuild_numbers
from saccade.regions.traced_function import PARAMETERS, TracedFunction, TraceError, variables

__all__ = ["Fingerprint", "Region", "TraceError", "fingerprint", "trace"]


@dataclass(frozen=True)
class Region:
    """The expression that a score, mask or weight function computes."""

    captures: tuple[Any, ...]
    """The captured tensors or arrays that elements are read from, without duplicates, then Python numbers, in the order
    of capture_types."""
    capture_types: tuple[str, ...]
    """Their MLIR types, with dynamic extents, e.g. "tensor<?x?xf32>", "index", "f32"."""
    capture_sources: tuple[int | None, ...]
    """The index of each captured tensor in the fingerprint's tensors; None for one that the function creates."""
    number_sources: tuple[Callable[[Sequence[int | float]], Any], ...] = field(repr=False)
    """Functions of the fingerprint's numbers that compute the captured numbers."""
    baked: frozenset[int]
    """The fingerprint's numbers that are constants of the region."""
    is_reusable: bool
    """Whether functions with an equal fingerprint and equal baked numbers have this region with their own tensors and
    other numbers (see captures_of). False without a fingerprint, or if tracing read elements or extents of captured
    tensors."""
    root: Node = field(repr=False)
    """The yielded value."""
    names: tuple[Any, ...] = field(repr=False)
    """The attributes of the nodes that read each capture."""
    bin: Node | None = field(default=None, repr=False)
    """Of a tally: the bin that `root` is added to."""

    def body(self, arguments: Sequence[str], captures: Sequence[str], indent: str = "") -> str:
        """The block of the region as MLIR, ending with `attn.yield`.

        Args:
            arguments: SSA names of the score or weight (not for a mask) and of b, h, i, j, which are `index` values.
            captures: SSA names of the captures inside the region.
            indent: prefix of each line.

        Other values are named %x0, %x1, ...
        """
        names, kinds = {}, {}
        for attribute, name, kind in zip(self.names, captures, self.capture_types, strict=True):
            names[attribute], kinds[attribute] = name, kind
        roots = [self.root] if self.bin is None else [self.bin, self.root]
        return "\n".join(indent + line for line in lines(roots, arguments, names, kinds))

    def captures_of(self, tensors: Sequence[Any], numbers: Sequence[int | float]) -> tuple[Any, ...]:
        """The captures of a function with an equal fingerprint, given that fingerprint's tensors and numbers."""
        computed = [compute(numbers) for compute in self.number_sources]
        if not self.capture_sources:
            return tuple(computed)
        return tuple([made if source is None else tensors[source]
                      for source, made in zip(self.capture_sources, self.captures)] + computed)


def trace(function: Callable[..., Any], role: str, precision: str, device: str = "cpu", *,
          bakes_numbers: bool = False, prefers_torch: bool | None = None) -> Region:
    """Traces a Python function to a region.

    Args:
        function: called once with (s, b, h, i, j) for a score, the scaled score s of query i and key j in head h of
            batch b, (p, b, h, i, j) for a weight p, or (b, h, i, j) for a mask; a normalizer takes the arguments of a
            score and returns a weight; a tally takes them and returns a pair, the bin and the value that is added to
            it. It may compute with them, with Python scalars, and with elements of captured tensors or arrays:
            `table[h, i - j]`; negative indices count from the end. The arguments are torch tensors if it captures torch
            tensors or names torch, otherwise proxies for NumPy functions; if it captures and names neither,
            `prefers_torch` decides. NumPy arrays beside torch tensors are read as tensors. A captured list of numbers,
            nested or not, may be indexed as well.
        role: "score", "mask", "weight", "normalizer" or "tally".
        precision: the type of the score, "f32" or "f64".
        device: where captured tensors must be, "cpu" or "cuda".
        bakes_numbers: whether all captured numbers are constants, for callers whose programs take tensors only.
        prefers_torch: whether the arguments are torch tensors in a function that computes with neither torch nor NumPy
            by name; None: if torch is imported.

    Raises:
        TraceError: (a TypeError) the function has another signature, returns no number (a mask: no boolean),
            uses the value of an argument (if, int(), .item()), calls an unsupported function, or indexes a captured
            tensor with another rank.
        TypeError, ValueError: a captured tensor is rejected as an argument of `saccade.attention` would be.

    Types promote as in torch: integers are int64 (and wrap), a Python scalar takes the type of the other operand, and
    integer division returns a float, of the type of the score instead of torch's default. Tensors, and the Python ints
    and floats that the function captures, become captures of the region if its ops only compute with them. A number is
    a constant instead if the function uses its value (if, range, the index of a list), if it is a divisor, a shift or
    a factor of a position, or the bound of one in minimum, maximum and clamp, which are fast or analyzed for constants
    only, or if it is too large for a position. All other objects are constants.
    """
    if role not in PARAMETERS or precision not in ("f32", "f64"):
        raise ValueError(f"found role {role!r} and precision {precision!r}, expected one of {', '.join(PARAMETERS)}, "
                         "'f32' or 'f64'")
    TracedFunction(function, role, device).check_arity()
    takes_torch = _takes_torch(function, prefers_torch)
    found = fingerprint(function)
    baked = set(range(len(found.numbers))) if found and (bakes_numbers or found.reads_types()) else set()
    while True:
        used: set[int] = set()
        traced = TracedFunction(function, role, device)
        if found is not None and len(baked) < len(found.numbers):
            traced.traced = _with_numbers(function, found, baked, used)
        try:
            region = _trace(traced, {"f32": "float32", "f64": "float64"}[precision], found, baked, takes_torch)
        except Exception:
            # The error may be due to a captured number that is no int or float.
            if found is None or len(baked) == len(found.numbers):
                raise
            used = set(range(len(found.numbers)))
        if used <= baked:
            return region
        baked |= used


def _with_numbers(function: Callable[..., Any], found: Fingerprint, baked: set[int],
                  used: set[int]) -> Callable[..., Any]:
    """A copy of the function with Numbers in the places of the captured numbers that are not baked. Numbers that the
    copy cannot replace are added to `used`."""
    # Copying visits numbers in another order than the fingerprint: a first copy shows where each of them is.
    marks: list[Number] = []

    def mark(value: int | float) -> Any:
        marks.append(slot(len(marks), value, set()))
        return marks[-1] if is_variable(value) else value

    places = numbers_of(rebuild_numbers(function, mark))
    if len(places) != len(found.numbers):
        used.update(range(len(found.numbers)))
        return function
    slots: dict[int, int] = {}
    for number, place in enumerate(places):
        if type(place) is Number:
            slots.setdefault(id(place), number)
        else:
            used.add(number)
    order = iter(marks)

    def replace(value: int | float) -> Any:
        number = slots.get(id(next(order)))
        return value if number is None or number in baked else slot(number, value, used)

    return rebuild_numbers(function, replace)


def _trace(traced: TracedFunction, floating: str, found: Fingerprint | None, baked: set[int],
           takes_torch: bool) -> Region:
    """One run of the function. `floating` is the type of the score."""
    tracer: Any
    if takes_torch:
        from saccade.regions import torch_trace

        tracer = torch_trace.Tracer(traced, floating)
    else:
        from saccade.regions import numpy_trace

        tracer = numpy_trace.Tracer(traced, floating)
    result, bin = _run(traced, tracer), None
    if traced.role == "tally":
        result, bin = _pair(traced, tracer, result)
    root = _result(traced, tracer, result, floating)

    nodes = live(root) if bin is None else live(bin, root)
    loads = sorted({node.attribute if node.op == "load" else node.attribute[0] for node in nodes
                    if node.op in ("load", "extent")})
    names = [node.attribute for node in nodes if node.op == "number"]
    arrays = [tracer.captures.arrays[number] for number in loads]
    arrays = [traced.originals.get(id(array), (None, array))[1] for array in arrays]
    numbers = [tracer.builder.numbers[name] for name in names]
    tensors = found.tensors if found else ()
    sources = tuple([next((i for i, known in enumerate(tensors) if known is array), None) for array in arrays])
    # A captured array without a fingerprint entry may be another one in the next call.
    are_known = [source is not None or tracer.captures.are_made[number] for source, number in zip(sources, loads)]
    is_reusable = found is not None and tracer.captures.is_reusable and all(are_known)
    computed = tuple([evaluator(number._expression, kind != "index" and isinstance(number, int))
                      for number, (kind, _) in zip(numbers, names)])
    captures = (*arrays, *[compute(found.numbers) for compute in computed if found])
    types = (*map(_type_of, arrays), *[kind for kind, _ in names])
    return Region(captures, types, sources, computed, frozenset(baked), is_reusable, root, (*loads, *names), bin)


def _run(traced: TracedFunction, tracer: Any) -> Any:
    """The function's result. An error recorded while it ran is raised even if it was caught, by the function or by
    torch, whose operators interpret any TypeError as NotImplemented."""
    try:
        result = tracer.run()
    except Exception:
        if traced.refused is not None:
            raise traced.refused from None
        raise
    if traced.refused is not None:
        raise traced.refused
    return result


def _type_of(array: Any) -> str:
    return f"tensor<{'?x' * array.ndim}{STORED[dtype_name(array)]}>"


def _pair(traced: TracedFunction, tracer: Any, result: Any) -> tuple[Any, Node]:
    """The value of a tally, and the node of its bin."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise traced.function_error(f"returns a {type(result).__name__}, expected a pair (bin, value)")
    bin, value = result
    if type(bin) is Number:
        bin = tracer.builder.to(bin, tracer.builder.result_type(bin))
    if isinstance(bin, int) and not isinstance(bin, bool):
        bin = tracer.builder.number(bin, "int64")
    if not isinstance(bin, Node) or bin.kind == BOOL or bin.kind == FLOAT:
        raise traced.function_error("returns a bin that is no integer")
    return value, tracer.builder.convert(bin, "int64")


def _result(traced: TracedFunction, tracer: Any, result: Any, precision: str) -> Node:
    """Converts the function's result to the value that the region yields."""
    expected = "a boolean" if traced.role == "mask" else "a number"
    builder: Builder = tracer.builder
    if type(result) is Number:
        result = builder.to(result, builder.result_type(result))
    if isinstance(result, Node):
        node = result
    elif isinstance(result, (bool, int, float)):
        dtype = "bool" if isinstance(result, bool) else "int64" if isinstance(result, int) else precision
        node = builder.number(result, dtype)
    else:
        found = "None" if result is None else f"a {type(result).__name__}"
        raise traced.function_error(f"returns {found}, expected {expected}")
    if traced.role == "mask":
        if node.kind != BOOL:
            found = f"{'an' if node.dtype.startswith('i') else 'a'} {node.dtype}"
            hint = "use a score function to add to scores" if node.kind == FLOAT else "compare it, as by != 0"
            raise traced.function_error(f"returns {found}, expected {expected}: {hint}")
        return node
    if node.kind == BOOL:
        raise traced.function_error(f"returns a boolean, expected {expected}: use a mask function to mask out keys")
    return builder.convert(node, precision)


def _takes_torch(function: Callable[..., Any], prefers_torch: bool | None) -> bool:
    """Whether the function computes with torch tensors (otherwise with NumPy arrays)."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is None or not hasattr(torch, "Tensor"):
        return False
    if numpy is None or not hasattr(numpy, "ndarray"):
        return True
    found: set[str] = set()
    named: set[str] = set()
    for _, value in variables(function):
        if isinstance(value, (torch.Tensor, numpy.ndarray)):
            found.add("torch" if isinstance(value, torch.Tensor) else "numpy")
        elif isinstance(value, types.ModuleType):
            named.add(value.__name__.partition(".")[0])
        elif callable(value):
            named.add((getattr(value, "__module__", None) or type(value).__module__).partition(".")[0])
    if found:
        return "torch" in found
    if "torch" in named or "numpy" in named:
        return "torch" in named
    return prefers_torch is not False
