"""Traces a function over NumPy arrays with proxies for the score and the positions.

The proxies implement NumPy's operator and function protocols. A NumPy array cannot be indexed with a proxy, so captured
arrays are replaced by proxies as well; see rebuild.py.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Iterable
from typing import Any, NoReturn, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from saccade._arrays import dimensions
from saccade.regions import composite, names, operations
from saccade.regions.captures import Captures
from saccade.regions.dtypes import KIND
from saccade.regions.expression import Builder, Node, Operand
from saccade.regions.lists import NumberList, is_list_of_numbers
from saccade.regions.numbers import Number
from saccade.regions.rebuild import rebuild
from saccade.regions.traced_function import NUMPY, PARAMETERS, TracedFunction, TraceError


class Tracer:
    """One run of a function."""

    def __init__(self, traced: TracedFunction, precision: str):
        self.traced = traced
        self.builder = Builder(precision, traced.error)
        self.captures = Captures(self.builder, traced)

    def run(self) -> Any:
        """The function's result, or each of a tuple: a node, or any other object."""
        arguments = []
        for number, name in enumerate(PARAMETERS[self.traced.role]):
            dtype = self.builder.precision if name in "sp" else "int64"
            arguments.append(Value(self, self.builder.argument(number, dtype)))
        function = rebuild(self.traced.traced, lambda x: isinstance(x, np.ndarray) or is_list_of_numbers(x),
                           lambda x: NumberList(x, self.read_list) if isinstance(x, list) else CapturedArray(self, x))
        try:
            result = function(*arguments)
        except ValueError as error:
            if "read-only" not in str(error):
                self.refuse_library(error)
                raise
            raise self.traced.error(f"changes an array ({error}): it may only read what it captures", error) from error
        except TypeError as error:
            if not isinstance(error, TraceError):
                self.refuse_library(error)
            raise
        return tuple([self.result(x) for x in result]) if type(result) is tuple else self.result(result)

    def result(self, x: Any) -> Any:
        """A node for what the function returned, if it is a value."""
        if isinstance(x, (Value, CapturedArray)):
            return self.operand(x)
        return x.item() if isinstance(x, np.generic) else x

    def refuse_library(self, error: Exception) -> None:
        """Raises an error with the function's line for one of a function of JAX, which gets proxies."""
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if (frame.f_globals.get("__name__") or "").partition(".")[0] == "jax":
            raise self.traced.error("calls a function of JAX on positions or scores, which regions do not support: use "
                                    "arithmetic, comparisons, functions of jax.numpy and reads of single elements of "
                                    "captured arrays", error) from error

    def read_list(self, numbers: NumberList, index: Any) -> Any:
        """An element of a list of numbers at a position."""
        if not isinstance(index, Value):
            return list(numbers)[index]
        table = np.array(numbers.values())
        if table.dtype.kind == "f":
            table = table.astype(self.builder.precision)
        return CapturedArray(self, table, is_made=True, is_stale=False)[index]

    def operand(self, x: Any) -> Operand:
        """The node or Python scalar that `x` represents."""
        if isinstance(x, Value):
            return x._node
        if type(x) is Number:
            return x
        if isinstance(x, CapturedArray):
            return x._element()
        if isinstance(x, np.generic) or isinstance(x, np.ndarray) and x.ndim == 0:
            number: Operand = x.item()
            return number
        if isinstance(x, (bool, int, float)):
            return x
        raise self.traced.error(f"computes with {_describe(x)}, expected numbers")

    def apply(self, name: str, inputs: Iterable[Any]) -> Value:
        """A NumPy function on scalars."""
        operation = names.NUMPY.get(name)
        if operation is None:
            prefix, _ = NUMPY.get()
            raise self.traced.error(
                f"calls {prefix}.{name} on positions or scores, which regions do not support: use arithmetic, "
                f"comparisons, {prefix}.where and reads of single elements of captured arrays")
        return Value(self, operation(self.builder, *[self.operand(x) for x in inputs]))

    def refuse_value(self) -> NoReturn:
        prefix, library = NUMPY.get()
        raise self.traced.error(
            "uses the value of a position or a score, which is unknown while it is traced: instead of if, and, or, "
            f"not, min() and max() write {prefix}.where(condition, a, b), &, |, ~, {prefix}.minimum and "
            f"{prefix}.maximum; instead of int(), float() and functions of math use .astype(dtype) and functions of "
            f"{library}; capture arrays that are indexed by name instead of creating them in the function; index an "
            "array, or a list of numbers, instead of a tuple or a range")


class Traced(NDArrayOperatorsMixin):  # type: ignore[misc]
    """Base class of proxies; operators are ufuncs, which NumPy dispatches to __array_ufunc__."""

    _tracer: Tracer

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        tracer = self._tracer
        if method == "at" and isinstance(inputs[0], CapturedArray) and not _real(inputs[0]).flags.writeable:
            inputs[0]._refuse_change()  # NumPy does not check this
        if isinstance(self, Value) and options.keys() == {"out"} and options["out"][0] is inputs[0] is self:
            options = {}  # s += 1 rebinds s, as for NumPy scalars
        if not any(_is_scalar(x) for x in _flat((inputs, options))):
            return _computed(tracer, getattr(ufunc, method)(*_real(inputs), **_real(options)))
        if method != "__call__" or options:
            extra = ", ".join(options) or method
            raise tracer.traced.error(f"calls {NUMPY.get()[0]}.{ufunc.__name__} with {extra}, expected scalars only")
        return tracer.apply(ufunc.__name__, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        tracer, b = self._tracer, self._tracer.builder
        if not any(_is_scalar(x) for x in _flat((args, kwargs))):
            return _computed(tracer, function(*_real(args), **_real(kwargs)))
        if function not in _SCALAR_FUNCTIONS:
            return tracer.apply(function.__name__, ())
        options = {{"a_min": "min", "a_max": "max"}.get(name, name): x for name, x in kwargs.items()}
        first = next(iter((*args, *kwargs.values())))  # also if all arguments are given by name
        dtype = np.dtype(options.pop("dtype", None) or getattr(first, "dtype", None)).name
        operands = [None if x is None else tracer.operand(x) for x in args]
        named = {name: None if x is None else tracer.operand(x) for name, x in options.items()}
        try:
            return Value(tracer, _SCALAR_FUNCTIONS[function](b, dtype, *operands, **named))
        except TraceError:
            raise
        except TypeError as error:
            raise tracer.traced.error(
                f"calls {NUMPY.get()[0]}.{function.__name__} with arguments that are not scalar") from error

    __hash__ = object.__hash__


# Functions of the builder, the dtype of the first argument, and the operands with the names that NumPy gives them.
_SCALAR_FUNCTIONS: dict[Any, Any] = {
    np.where: lambda b, dtype, condition, x, y: operations.where(b, condition, x, y),
    np.clip: lambda b, dtype, a, min=None, max=None: operations.clamp(b, a, min, max),
    np.round: lambda b, dtype, a: names.NUMPY["rint"](b, a),
    np.around: lambda b, dtype, a: names.NUMPY["rint"](b, a),
    np.full_like: lambda b, dtype, a, fill_value: b.to(fill_value, dtype),
    np.zeros_like: lambda b, dtype, a: b.number(0, dtype),
    np.ones_like: lambda b, dtype, a: b.number(1, dtype),
    np.nan_to_num: lambda b, dtype, x, copy=True, nan=0.0, posinf=None, neginf=None: composite.nan_to_num(
        b, x, nan, posinf, neginf),
}


class Value(Traced):
    """A scalar that depends on the position."""

    ndim, shape, size = 0, (), 1

    def __init__(self, tracer: Tracer, node: Node):
        self._tracer, self._node = tracer, node

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self._node.dtype)

    def astype(self, dtype: Any, **options: Any) -> Value:
        name = np.dtype(dtype).name
        if name not in KIND:
            raise self._tracer.traced.error(f"converts to {name}, expected one of {', '.join(KIND)}")
        return Value(self._tracer, self._tracer.builder.convert(self._node, name, rounds=True))

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} has no attribute {name!r}: use arithmetic, comparisons and functions of "
                             f"{NUMPY.get()[1]}, such as {NUMPY.get()[0]}.where")

    def clip(self, min: Any = None, max: Any = None) -> Value:
        return cast(Value, np.clip(self, min, max))

    def __floor__(self) -> Value:
        return cast(Value, np.floor(self).astype(np.int64))

    def __ceil__(self) -> Value:
        return cast(Value, np.ceil(self).astype(np.int64))

    def __trunc__(self) -> Value:
        return cast(Value, np.trunc(self).astype(np.int64))

    def __round__(self, digits: int | None = None) -> Value:
        if digits:
            raise self._tracer.traced.error("rounds to digits, expected whole numbers")
        return cast(Value, np.rint(self).astype(np.int64))

    def __getitem__(self, index: Any) -> NoReturn:
        raise self._tracer.traced.error("indexes a number")

    def __repr__(self) -> str:
        number = self._node.attribute if self._node.op == "argument" else None
        return self._tracer.traced.describe(number, self._node.dtype)

    def __format__(self, spec: str) -> str:
        return repr(self)

    def item(self) -> Any:
        """The value, if it is known."""
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


# Methods that change an array in place; NumPy scalars have them as no-ops.
_CHANGING = {"fill", "itemset", "partition", "put", "resize", "setfield", "sort"}


class CapturedArray(Traced):
    """A captured array with the indices of its leading dimensions, if it was indexed. `is_made`: the function made it;
    `is_stale`: of captured arrays, for this call only."""

    def __init__(self, tracer: Tracer, array: np.ndarray, indices: tuple[Any, ...] = (), is_made: bool = False,
                 is_stale: bool | None = None):
        self._tracer, self._array, self._indices, self._is_made = tracer, array, indices, is_made
        self._is_stale = is_made if is_stale is None else is_stale

    def __getitem__(self, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        is_plain = all(type(item) is int or type(item) is Number for item in items)
        if not any(_is_scalar(item) for item in _flat(items)) and not is_plain:
            return _computed(self._tracer, _real(self)[index])
        indices = self._indices + tuple([self._item(x) for x in items])
        table = CapturedArray(self._tracer, self._array, indices, self._is_made, self._is_stale)
        if len(table._indices) > self._array.ndim:
            raise table._rank_error()
        return table if len(table._indices) < self._array.ndim else Value(self._tracer, table._element())

    def _item(self, item: Any) -> Node | int:
        traced = self._tracer.traced
        if type(item) is Number and isinstance(item, int):
            return item._bake()  # extents are checked for constants and positions only
        if isinstance(item, (Value, CapturedArray)):
            item = self._tracer.operand(item)
            if isinstance(item, Node) and (item.dtype == "bool" or item.dtype.startswith(("float", "bfloat"))):
                raise traced.error(f"indexes {traced.name_of(self._array)} with a {item.dtype}, expected an integer")
            return cast("Node | int", item)
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            return int(item)
        raise self._tracer.captures.index_error(self._array, _describe(item))

    def _element(self) -> Node:
        if len(self._indices) != self._array.ndim:
            raise self._rank_error()
        nodes = [x if isinstance(x, Node) else self._tracer.builder.number(x, "int64") for x in self._indices]
        return self._tracer.captures.load(self._array, nodes, self._is_made, self._is_stale)

    def _rank_error(self) -> Exception:
        return self._tracer.captures.rank_error(self._array, len(self._indices))

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def ndim(self) -> int:
        return int(self._array.ndim) - len(self._indices)

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGING and not self._is_made:
            self._refuse_change()
        found = getattr(_real(self), name)
        if not callable(found):
            if name == "base" and isinstance(found, np.ndarray):
                found = _read_only(found)  # may be the caller's array
            return _computed(self._tracer, found)
        return lambda *args, **options: _computed(self._tracer, found(*_real(args), **_real(options)))

    def __repr__(self) -> str:
        return f"<a part of {self._tracer.traced.name_of(self._array)}>" if self._indices else repr(_real(self))

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
        return operator.index(_real(self))

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self._refuse_change()

    def _refuse_change(self) -> NoReturn:
        traced = self._tracer.traced
        raise traced.error(f"changes {traced.name_of(self._array)}: it may only read what it captures")


def _computed(tracer: Tracer, result: Any) -> Any:
    """A result that NumPy computed from captured arrays: valid for this call only."""
    tracer.captures.is_reusable = False
    return CapturedArray(tracer, result, is_made=True) if isinstance(result, np.ndarray) else result


def _is_scalar(x: Any) -> bool:
    """Whether `x` becomes part of the kernel: a Value, or a captured 0-d array."""
    return isinstance(x, Value) or isinstance(x, CapturedArray) and x.ndim == 0 and not x._is_made


def _real(x: Any) -> Any:
    """`x` with arrays in place of their proxies; captured arrays are read-only."""
    if isinstance(x, CapturedArray):
        x._tracer.captures.is_reusable = False
        if any(isinstance(index, Node) and index.constant is None and index.op != "number" for index in x._indices):
            raise x._rank_error()
        part = x._array[tuple([_place(x._tracer, index) for index in x._indices])]
        return part if x._is_made or not isinstance(part, np.ndarray) else _read_only(part)
    if isinstance(x, (tuple, list)):
        return type(x)([_real(item) for item in x])
    if isinstance(x, dict):
        return {key: _real(item) for key, item in x.items()}
    return x


def _place(tracer: Tracer, index: Node | int) -> int:
    """An index as an int. A captured number becomes a constant."""
    if not isinstance(index, Node):
        return index
    return cast(int, tracer.builder.numbers[index.attribute]._bake() if index.op == "number" else index.constant)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _flat(values: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    leaves = []
    for value in values.values() if isinstance(values, dict) else values:
        leaves += _flat(value) if isinstance(value, (tuple, list, dict)) else [value]
    return leaves


def _describe(x: Any) -> str:
    if isinstance(x, slice):
        return "a slice"
    return f"an array of {dimensions(x.ndim)}" if isinstance(x, np.ndarray) else f"{x!r:.60}"
