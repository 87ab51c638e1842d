"""Ordinary Python functions of index scalars as `score`, `mask` and `weight` regions of `attn.attention`.

`trace` runs a function once on stand-ins for the score and the positions and gives a Region, its arithmetic as MLIR
text. `fingerprint` tells without tracing whether two functions have the same one.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from saccade.regions.emit import lines, live
from saccade.regions.expression import Node
from saccade.regions.fingerprint import Fingerprint, fingerprint
from saccade.regions.traced_function import PARAMETERS, Subject, TraceError, variables
from saccade.regions.dtypes import BOOL, FLOAT, STORED, dtype_name

__all__ = ["Fingerprint", "Region", "TraceError", "fingerprint", "trace"]


@dataclass(frozen=True)
class Region:
    """What a score, mask or weight function computes, as one expression."""

    captures: tuple[Any, ...]
    """The tensors or arrays that the function reads elements of, each once, in the order of capture_types."""
    capture_types: tuple[str, ...]
    """Their MLIR types, with dynamic extents, e.g. "tensor<?x?xf32>"."""
    capture_sources: tuple[int | None, ...]
    """For each, which of the fingerprint's tensors it is; None for one that the function makes itself."""
    is_reusable: bool
    """Whether functions with an equal fingerprint have this region, too, with their own tensors (see captures_of). Not
    where the function has none, or computed something from numbers or extents of captured tensors while it was
    traced."""
    root: Node = field(repr=False)
    """The value that is yielded."""
    numbers: tuple[int, ...] = field(repr=False)
    """The numbers that loads have for the captures."""

    def body(self, arguments: Sequence[str], captures: Sequence[str], indent: str = "") -> str:
        """The region's block as MLIR, `attn.yield` its last line.

        `arguments` are the SSA names of the score or weight (unless it is a mask) and of b, h, i, j; `captures` those of
        the captured tensors inside of the region. All other values are named %x0, %x1, ...; positions are `index`
        values.
        """
        names, kinds = {}, {}
        for number, name, kind in zip(self.numbers, captures, self.capture_types, strict=True):
            names[number], kinds[number] = name, kind
        return "\n".join(indent + line for line in lines(self.root, arguments, names, kinds))

    def captures_of(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The captures of a function with an equal fingerprint, given that fingerprint's tensors."""
        return tuple([made if source is None else tensors[source]
                      for source, made in zip(self.capture_sources, self.captures)])


def trace(function: Callable, role: str, precision: str) -> Region:
    """The region of a Python function.

    Args:
        function: called once: (s, b, h, i, j) for a score, with the scaled score s of query i and key j in head h of
            batch b, (p, b, h, i, j) for a weight p, or (b, h, i, j) for a mask. It may compute with them, with numbers, and with elements of the
            tensors or arrays that it captures: `table[h, i - j]`; negative indices count from the end. Where it captures
            torch tensors or names torch, the arguments are torch tensors, else stand-ins that NumPy's functions take;
            with neither of them, torch tensors if torch is imported.
        role: "score", "mask" or "weight".
        precision: the type of the score, "f32" or "f64".

    Raises:
        TraceError (a TypeError): it takes other arguments, returns something else than a number (a mask: a boolean or
            an integer), asks for the value of an argument (if, int(), .item()), calls what regions do not know, reads a
            captured tensor with another number of indices than it has dimensions, or captures both torch's and NumPy's.
        TypeError, ValueError: a captured tensor is on another device, requires grad, or is not plain memory, as for the
            arguments of `saccade.attention`.

    Types combine as torch's do: integers are int64 (they wrap), a Python number takes the type of what it meets, and
    dividing integers gives a float, but one of the score's type, whatever torch's default is. Python numbers and all
    else that is no tensor become part of the result.
    """
    if role not in PARAMETERS or precision not in ("f32", "f64"):
        raise ValueError(f"got role {role!r} and precision {precision!r}, expected one of {', '.join(PARAMETERS)}, "
                         "'f32' or 'f64'")
    subject = Subject(function, role)
    subject.check_arity()
    floating = {"f32": "float32", "f64": "float64"}[precision]
    if _takes_torch(subject):
        from saccade.regions.torch_trace import Tracer
    else:
        from saccade.regions.numpy_trace import Tracer
    tracer = Tracer(subject, floating)
    root = _result(subject, tracer, _run(subject, tracer), floating)

    needed = {node.attribute if node.op == "load" else node.attribute[0] for node in live(root)
              if node.op in ("load", "extent")}
    numbers = tuple(sorted(needed))
    captures = tuple([tracer.captures.arrays[number] for number in numbers])
    found = fingerprint(function)
    tensors = found.tensors if found else ()
    sources = tuple([next((i for i, known in enumerate(tensors) if known is array), None) for array in captures])
    # What was there before but is not in the fingerprint may be another one next time.
    are_known = [source is not None or tracer.captures.are_made[number] for source, number in zip(sources, numbers)]
    is_reusable = found is not None and tracer.captures.is_reusable and all(are_known)
    return Region(captures, tuple(map(_type_of, captures)), sources, is_reusable, root, numbers)


def _run(subject: Subject, tracer: Any) -> Any:
    """What the function returns. What was refused while it ran stays refused, even if somebody caught it: the function,
    or torch, whose operators take any TypeError to mean that they do not apply."""
    try:
        result = tracer.run()
    except Exception:
        if subject.refused is not None:
            raise subject.refused from None
        raise
    if subject.refused is not None:
        raise subject.refused
    return result


def _type_of(array: Any) -> str:
    return f"tensor<{'?x' * array.ndim}{STORED[dtype_name(array)]}>"


def _result(subject: Subject, tracer: Any, result: Any, precision: str) -> Node:
    """What the function returned, as the value that its region yields."""
    expected = "a boolean or an integer" if subject.role == "mask" else "a number"
    builder = tracer.builder
    if isinstance(result, Node):
        node = result
    elif isinstance(result, (bool, int, float)):
        dtype = "bool" if isinstance(result, bool) else "int64" if isinstance(result, int) else precision
        node = builder.number(result, dtype)
    else:
        found = "None" if result is None else f"a {type(result).__name__}"
        raise subject.function_error(f"returns {found}, expected {expected}")
    if subject.role == "mask":
        if node.kind == FLOAT:
            hint = "what is added to scores is a score"
            raise subject.function_error(f"returns a {node.dtype}, expected {expected}: {hint}")
        return builder.convert(node, "bool")
    if node.kind == BOOL:
        raise subject.function_error(f"returns a boolean, expected {expected}: what hides keys is a mask")
    return builder.convert(node, precision)


def _takes_torch(subject: Subject) -> bool:
    """Whether the function computes with torch's tensors, or else with NumPy's arrays."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is None or not hasattr(torch, "Tensor"):
        return False
    if numpy is None or not hasattr(numpy, "ndarray"):
        return True
    found: dict[str, str] = {}
    named: set[str] = set()
    for name, value in variables(subject.function):
        if isinstance(value, (torch.Tensor, numpy.ndarray)):
            found.setdefault("torch" if isinstance(value, torch.Tensor) else "numpy", name)
        elif isinstance(value, types.ModuleType):
            named.add(value.__name__.partition(".")[0])
        elif callable(value):
            named.add((getattr(value, "__module__", None) or type(value).__module__).partition(".")[0])
    if len(found) == 2:
        raise TraceError(f"{subject.title} captures both the torch tensor '{found['torch']}' and the NumPy array "
                         f"'{found['numpy']}', expected one kind")
    if found:
        return "torch" in found
    return "torch" in named or "numpy" not in named
