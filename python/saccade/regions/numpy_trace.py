"""Traces a function over NumPy arrays: scalars of our own stand for the score and the positions.

They take part in operators and in NumPy's functions through its protocols. An array cannot be indexed by them, so that
the function runs with stand-ins in place of the arrays, too; see rebuild.py.
"""

from __future__ import annotations

import operator
from typing import Any, Iterable, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from saccade._arrays import dimensions
from saccade.regions import composite, names, operations
from saccade.regions.captures import Captures
from saccade.regions.expression import Builder, Node, Operand
from saccade.regions.rebuild import rebuild
from saccade.regions.traced_function import PARAMETERS, Subject, TraceError
from saccade.regions.dtypes import KIND


class Tracer:
    """One run of one function."""

    def __init__(self, subject: Subject, precision: str):
        self.subject = subject
        self.builder = Builder(precision, subject.error)
        self.captures = Captures(self.builder, subject)

    def run(self) -> Any:
        """What the function returns: a node, or whatever else it is."""
        arguments = []
        for number, name in enumerate(PARAMETERS[self.subject.role]):
            dtype = self.builder.precision if name in "sp" else "int64"
            arguments.append(Value(self, self.builder.argument(number, dtype)))
        function = rebuild(self.subject.function, np.ndarray, lambda array: Table(self, array))
        try:
            result = function(*arguments)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise self.subject.error(f"changes an array ({error}): it may only read what it captures", error) from error
        if isinstance(result, (Value, Table)):
            return self.operand(result)
        return result.item() if isinstance(result, np.generic) else result

    def operand(self, x: Any) -> Operand:
        """A node, or the Python number that `x` is."""
        if isinstance(x, Value):
            return x._node
        if isinstance(x, Table):
            return x._element()
        if isinstance(x, np.generic) or isinstance(x, np.ndarray) and x.ndim == 0:
            return x.item()
        if isinstance(x, (bool, int, float)):
            return x
        raise self.subject.error(f"computes with {_describe(x)}, expected numbers")

    def apply(self, name: str, inputs: Iterable[Any]) -> Value:
        """A function of NumPy on scalars."""
        operation = names.NUMPY.get(name)
        if operation is None:
            raise self.subject.error(
                f"calls np.{name} on positions or scores, which regions do not know: they are arithmetic, comparisons, "
                "np.where and reads of captured arrays, one element at a time")
        return Value(self, operation(self.builder, *[self.operand(x) for x in inputs]))

    def refuse_value(self) -> NoReturn:
        raise self.subject.error(
            "asks for the value of a position or a score, which no one number is: instead of if, and, or, not, min() "
            "and max() write np.where(condition, a, b), &, |, ~, np.minimum and np.maximum; instead of int(), float() "
            "and functions of math use .astype(dtype) and functions of NumPy; arrays to be indexed are to be captured by "
            "name, not made inside")


class Traced(NDArrayOperatorsMixin):
    """What stands in for a number or an array; operators are ufuncs, and these come to __array_ufunc__."""

    _tracer: Tracer

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        tracer = self._tracer
        if method == "at" and isinstance(inputs[0], Table) and not _real(inputs[0]).flags.writeable:
            inputs[0]._refuse_change()  # NumPy does not look
        if isinstance(self, Value) and options.keys() == {"out"} and options["out"][0] is inputs[0] is self:
            options = {}  # s += 1 gives s another value, as for NumPy's own scalars
        if not any(_is_scalar(x) for x in _flat((inputs, options))):
            return _computed(tracer, getattr(ufunc, method)(*_real(inputs), **_real(options)))
        if method != "__call__" or options:
            extra = ", ".join(options) or method
            raise tracer.subject.error(f"calls np.{ufunc.__name__} with {extra}, expected scalars only")
        return tracer.apply(ufunc.__name__, inputs)

    def __array_function__(self, function, types, args, kwargs):
        tracer, b = self._tracer, self._tracer.builder
        if not any(_is_scalar(x) for x in _flat((args, kwargs))):
            return _computed(tracer, function(*_real(args), **_real(kwargs)))
        if function not in _SCALAR_FUNCTIONS:
            return tracer.apply(function.__name__, ())
        options = {{"a_min": "min", "a_max": "max"}.get(name, name): x for name, x in kwargs.items()}
        dtype = np.dtype(options.pop("dtype", None) or getattr(args[0], "dtype", None)).name
        operands = [None if x is None else tracer.operand(x) for x in args]
        named = {name: None if x is None else tracer.operand(x) for name, x in options.items()}
        try:
            return Value(tracer, _SCALAR_FUNCTIONS[function](b, dtype, *operands, **named))
        except TraceError:
            raise
        except TypeError as error:
            raise tracer.subject.error(f"calls np.{function.__name__} with arguments for more than a number") from error

    __hash__ = object.__hash__


# With the type of the first argument, for those that make something like it.
_SCALAR_FUNCTIONS: dict[Any, Any] = {
    np.where: lambda b, dtype, condition, x, y: operations.where(b, condition, x, y),
    np.clip: lambda b, dtype, x, min=None, max=None: operations.clamp(b, x, min, max),
    np.round: lambda b, dtype, x: names.NUMPY["rint"](b, x),
    np.around: lambda b, dtype, x: names.NUMPY["rint"](b, x),
    np.full_like: lambda b, dtype, like, fill_value: b.to(fill_value, dtype),
    np.zeros_like: lambda b, dtype, like: b.number(0, dtype),
    np.ones_like: lambda b, dtype, like: b.number(1, dtype),
    np.nan_to_num: lambda b, dtype, x, copy=True, nan=0.0, posinf=None, neginf=None: composite.nan_to_num(
        b, x, nan, posinf, neginf),
}


class Value(Traced):
    """A number that depends on the position."""

    ndim, shape, size = 0, (), 1

    def __init__(self, tracer: Tracer, node: Node):
        self._tracer, self._node = tracer, node

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self._node.dtype)

    def astype(self, dtype: Any, **options: Any) -> Value:
        name = np.dtype(dtype).name
        if name not in KIND:
            raise self._tracer.subject.error(f"converts to {name}, expected one of {', '.join(KIND)}")
        return Value(self._tracer, self._tracer.builder.convert(self._node, name, rounds=True))

    def clip(self, min: Any = None, max: Any = None) -> Value:
        return np.clip(self, min, max)

    def __floor__(self) -> Value:
        return np.floor(self).astype(np.int64)

    def __ceil__(self) -> Value:
        return np.ceil(self).astype(np.int64)

    def __trunc__(self) -> Value:
        return np.trunc(self).astype(np.int64)

    def __round__(self, digits: int | None = None) -> Value:
        if digits:
            raise self._tracer.subject.error("rounds to digits, expected whole numbers")
        return np.rint(self).astype(np.int64)

    def __getitem__(self, index: Any) -> NoReturn:
        raise self._tracer.subject.error("indexes a number")

    def __repr__(self) -> str:
        number = self._node.attribute if self._node.op == "argument" else None
        return self._tracer.subject.describe(number, self._node.dtype)

    def __format__(self, spec: str) -> str:
        return repr(self)

    def item(self) -> Any:
        """The number, where it is one."""
        number = self._tracer.captures.number(self._node)
        if number is None:
            self._tracer.refuse_value()
        return number

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        self._tracer.refuse_value()

    __complex__ = __len__ = __iter__ = __array__ = tolist = __contains__ = _refuse


# Methods that change an array. Numbers have them, too, where they do nothing.
_CHANGING = {"fill", "itemset", "partition", "put", "resize", "setfield", "sort"}


class Table(Traced):
    """A captured array, with the indices of its first dimensions where it was indexed before."""

    def __init__(self, tracer: Tracer, array: np.ndarray, indices: tuple = (), is_made: bool = False):
        self._tracer, self._array, self._indices, self._is_made = tracer, array, indices, is_made

    def __getitem__(self, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        is_plain = all(type(item) is int for item in items)
        if not any(_is_scalar(item) for item in _flat(items)) and not is_plain:
            return _computed(self._tracer, _real(self)[index])
        table = Table(self._tracer, self._array, self._indices + tuple([self._item(x) for x in items]), self._is_made)
        if len(table._indices) > self._array.ndim:
            raise table._rank_error()
        return table if len(table._indices) < self._array.ndim else Value(self._tracer, table._element())

    def _item(self, item: Any) -> Node | int:
        subject = self._tracer.subject
        if isinstance(item, (Value, Table)):
            item = self._tracer.operand(item)
            if isinstance(item, Node) and (item.dtype == "bool" or item.dtype.startswith(("float", "bfloat"))):
                raise subject.error(f"indexes {subject.name_of(self._array)} with a {item.dtype}, expected an integer")
            return item
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            return int(item)
        raise self._tracer.captures.index_error(self._array, _describe(item))

    def _element(self) -> Node:
        if len(self._indices) != self._array.ndim:
            raise self._rank_error()
        nodes = [x if isinstance(x, Node) else self._tracer.builder.number(x, "int64") for x in self._indices]
        return self._tracer.captures.load(self._array, nodes, self._is_made, is_stale=self._is_made)

    def _rank_error(self) -> Exception:
        return self._tracer.captures.rank_error(self._array, len(self._indices))

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def ndim(self) -> int:
        return self._array.ndim - len(self._indices)

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGING and not self._is_made:
            self._refuse_change()
        found = getattr(_real(self), name)
        if not callable(found):
            if name == "base" and isinstance(found, np.ndarray):
                found = _read_only(found)  # may be the caller's own
            return _computed(self._tracer, found)
        return lambda *args, **options: _computed(self._tracer, found(*_real(args), **_real(options)))

    def __repr__(self) -> str:
        return f"<a part of {self._tracer.subject.name_of(self._array)}>" if self._indices else repr(_real(self))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(_real(self), dtype, copy=copy)

    def __len__(self) -> int:
        return len(_real(self))

    def __iter__(self) -> Any:
        return iter(_real(self))

    def __bool__(self) -> bool:
        return bool(_real(self))

    def __int__(self) -> int:
        return int(_real(self))

    def __float__(self) -> float:
        return float(_real(self))

    def __index__(self) -> int:
        return _real(self).__index__()

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self._refuse_change()

    def _refuse_change(self) -> NoReturn:
        subject = self._tracer.subject
        raise subject.error(f"changes {subject.name_of(self._array)}: it may only read what it captures")


def _computed(tracer: Tracer, result: Any) -> Any:
    """What NumPy computed from captured arrays alone: right for this call, but not for the next one."""
    tracer.captures.is_reusable = False
    return Table(tracer, result, is_made=True) if isinstance(result, np.ndarray) else result


def _is_scalar(x: Any) -> bool:
    """Whether `x` is to become part of the kernel: a value, or the number in a captured array without dimensions."""
    return isinstance(x, Value) or isinstance(x, Table) and x.ndim == 0 and not x._is_made


def _real(x: Any) -> Any:
    """`x` with arrays in place of what stands for them; those of the caller cannot be written to."""
    if isinstance(x, Table):
        x._tracer.captures.is_reusable = False
        if any(isinstance(index, Node) and index.constant is None for index in x._indices):
            raise x._rank_error()
        part = x._array[tuple([index.constant if isinstance(index, Node) else index for index in x._indices])]
        return part if x._is_made or not isinstance(part, np.ndarray) else _read_only(part)
    if isinstance(x, (tuple, list)):
        return type(x)([_real(item) for item in x])
    if isinstance(x, dict):
        return {key: _real(item) for key, item in x.items()}
    return x


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _flat(values: Any) -> list:
    """The leaves of nested tuples, lists and dicts."""
    leaves = []
    for value in values.values() if isinstance(values, dict) else values:
        leaves += _flat(value) if isinstance(value, (tuple, list, dict)) else [value]
    return leaves


def _describe(x: Any) -> str:
    if isinstance(x, slice):
        return "a slice"
    return f"an array of {dimensions(x.ndim)}" if isinstance(x, np.ndarray) else f"{x!r:.60}"
