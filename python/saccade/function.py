"""A compiled function: called with torch CPU tensors or NumPy arrays, in place and without copies."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from saccade import _arrays
from saccade._arrays import Array
from saccade._library import library, raise_error
from saccade._opaque import opaque

if TYPE_CHECKING:
    import tvm_ffi

    from saccade.binding import BoundFunction

Shape = tuple[int, ...]
_MAX_SHAPES = 1024


class Handle:
    """One reference to a compiled module, given back when nothing in Python holds it. `recipe` is what to compile where
    code does not travel to: the arguments of Module."""

    def __init__(self, pointer: ctypes.c_void_p, recipe: tuple):
        self.pointer, self.recipe = pointer, recipe
        weakref.finalize(self, library().saccade_module_release, pointer.value).atexit = False


class Value(NamedTuple):
    """An input or a result of a function."""

    name: str
    """As in the program, without '%'."""
    type: str
    """As MLIR writes it: "tensor<?x8xf32>", "index"."""
    dtype: str
    """Of its elements, as torch and NumPy name it: "float32", "bfloat16", "int64" (index too), "bool", ..."""
    shape: tuple[int | None, ...] | None
    """Extents, None where any will do; None for a scalar."""


class Function:
    """A function of a compiled program. It may be called from several threads at once, and releases the GIL. A copy is
    the same function; one that is pickled is compiled again where it arrives."""

    def __init__(self, handle: Handle, pointer: int):
        c = library()
        self._handle, self._pointer = handle, ctypes.c_void_p(pointer)
        self.name: str = c.saccade_function_name(pointer).decode()
        count = c.saccade_function_num_inputs(pointer)
        infos = [
            c.saccade_function_value(pointer, i) for i in range(count + c.saccade_function_num_results(pointer))
        ]
        values = tuple(map(_value, infos))
        self.inputs: tuple[Value, ...] = values[:count]
        """What it takes, in order."""
        self.results: tuple[Value, ...] = values[count:]
        """What it gives, in order; all are tensors."""
        self._names = [value.name for value in values]
        self._tensors = [(i, value.name) for i, value in enumerate(self.inputs) if value.shape is not None]
        self._scalars = [
            (i, value.name, value.type, (info.dtype.code, info.dtype.bits))
            for i, (value, info) in enumerate(zip(self.inputs, infos))
            if value.shape is None
        ]
        self._shapes: dict[tuple, tuple[Shape, ...]] = {}
        self._tvm_ffi: tvm_ffi.Function | None = None
        self._torch_dtypes: list[Any] = []

    @property
    def signature(self) -> str:
        """Such as "attend(q: tensor<?x64xf32>, n: index) -> tensor<?x64xf32>"."""
        inputs = ", ".join(f"{value.name}: {value.type}" for value in self.inputs)
        results = ", ".join(value.type for value in self.results)
        return f"{self.name}({inputs}) -> {results if len(self.results) == 1 else f'({results})'}"

    def __repr__(self) -> str:
        return f"<saccade.Function {self.signature}>"

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: dict) -> Function:
        return self

    def __reduce__(self):
        return _load, (self._handle.recipe, self.name)

    @property
    def tvm_ffi(self) -> tvm_ffi.Function:
        """The same function in TVM-FFI's form, the cheapest to call: inputs, then results, which are the caller's
        memory; nothing is allocated and None returned. It checks shapes, types, devices and strides, but not what only
        torch knows: a tensor that requires grad or has the negative bit set is read as it lies in memory."""
        if self._tvm_ffi is None:
            import tvm_ffi

            address = library().saccade_function_tvm_ffi(self._pointer)
            self._tvm_ffi = tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=self._handle)
        return self._tvm_ffi

    @opaque
    def __call__(self, /, *inputs: Any, out: Array | tuple[Array, ...] | None = None, **named: Any) -> Any:
        """Calls the function.

        Args:
            inputs, named: one for each of `self.inputs`, by position or by the program's name: torch CPU tensors and
                NumPy arrays with any strides for tensors, numbers for scalars.
            out: where to write the results, an array, or a tuple of arrays where there are several. They must have the
                shapes that `result_shapes` gives and overlap neither one another nor an input.

        Returns:
            `out`, or new arrays: torch tensors where any input is one, else NumPy arrays. One array for one result,
            else a tuple.

        Raises:
            TypeError: the number or kind of arguments, an element type, a number of dimensions, a device.
            ValueError: extents, a tensor that requires grad or has the negative bit set, a read-only `out`.
            MemoryError: what the call needs is more than there is.
        """
        if named or len(inputs) != len(self.inputs):
            inputs = self._bind(inputs, named)
        torch_tensors = 0
        for i, name in self._tensors:
            torch_tensors += _arrays.check_tensor(name, inputs[i])
        if torch_tensors and _arrays.torch_module()._C._is_tracing():
            raise TypeError(f"{self.name} is called in what torch.jit.trace traces, which cannot look into it: call it "
                            "outside")
        if self._scalars:
            inputs = self._with_numbers(inputs)
        results, is_torch = (None, True) if out is None else self._check_out(out)
        if is_torch and torch_tensors and torch_tensors == len(self._tensors):
            results = self._call_torch(inputs, results)
        else:
            results = self._call_described(inputs, results, torch_tensors > 0)
        return out if out is not None else results[0] if len(results) == 1 else results

    @opaque
    def into(self, *values: Any) -> None:
        """Calls it on inputs, then results, which are the caller's memory, as `tvm_ffi` does but for NumPy arrays too,
        and without importing tvm_ffi. Numbers, shapes, types and strides are checked, and that results may be written
        to; the rest is as in `tvm_ffi`."""
        names = self._names
        if len(values) == len(names):  # else the number is refused below
            values = self._with_numbers(values)
            for i in range(len(self.inputs), len(names)):
                _arrays.check_writable(names[i], values[i])
        else:
            names = [f"argument #{i}" for i in range(len(values))]
        self._run([_describe(name, value) for name, value in zip(names, values)])

    @opaque
    def result_shapes(self, /, *inputs: Any, **named: Any) -> tuple[Shape, ...]:
        """The shapes of the results for these inputs, which it checks; nothing is computed."""
        if named or len(inputs) != len(self.inputs):
            inputs = self._bind(inputs, named)
        for i, name in self._tensors:
            _arrays.check_tensor(name, inputs[i])
        return self._compute_shapes(self._describe_inputs(self._with_numbers(inputs)))

    def bind(self, /, **values: Any) -> BoundFunction:
        """The function with some arguments fixed, such as the weights of a model. What the program computes of its
        arguments marked `attn.constant` alone (packed weights, casts, transposes of them) is computed here, once, and
        by no call any more; all of those that such work needs must be given. Results are equal to the bit.

        The program is compiled once more for this, unless that was done with the option prepack=True. Arrays are not
        copied; their memory must not change afterwards, nor be resized in place. That which only the work here reads is
        not kept.

        Raises TypeError for an unknown name, a missing constant argument or another element type or number of
        dimensions, ValueError for other extents. Example:

            >>> call = saccade.compile(text, prepack=True).main.bind(**weights)
            >>> y = call(x)
        """
        from saccade.binding import bind

        return bind(self, values)

    # --- arguments

    def _bind(self, inputs: tuple, named: dict[str, Any]) -> tuple:
        """Arguments by position and by name, in order."""
        names = [value.name for value in self.inputs]
        if len(inputs) > len(names):
            raise TypeError(f"{self.name} takes {len(names)} arguments ({', '.join(names)}), found {len(inputs)}")
        bound = dict(zip(names, inputs))
        for name, value in named.items():
            if name not in names:
                raise TypeError(f"{self.name} has no argument {name!r}; it has: {', '.join(names)}")
            if name in bound:
                raise TypeError(f"{self.name} got two values for argument {name!r}")
            bound[name] = value
        missing = [name for name in names if name not in bound]
        if missing:
            raise TypeError(f"{self.name} takes {len(names)} arguments, missing: {', '.join(missing)}")
        return tuple(bound[name] for name in names)

    def _with_numbers(self, inputs: tuple) -> tuple:
        """The inputs (and what follows them) with Python's numbers as scalars."""
        converted = list(inputs)
        for i, name, type, encoded in self._scalars:
            converted[i] = _arrays.check_scalar(name, type, encoded, converted[i])
        return tuple(converted)

    def _check_out(self, out: Any) -> tuple[tuple[Array, ...], bool]:
        """The arrays to write to, and whether all are torch tensors."""
        results = out if isinstance(out, tuple) else (out,)
        if len(results) != len(self.results):
            raise TypeError(f"out has {len(results)} arrays, expected {len(self.results)}: one for each result")
        names = ["out"] if len(results) == 1 else [f"out[{i}]" for i in range(len(results))]
        return results, all([_arrays.check_result(name, result) for name, result in zip(names, results)])

    # --- shapes of results

    def _describe_inputs(self, inputs: tuple) -> list[Any]:
        described = list(inputs)
        for i, name in self._tensors:
            described[i] = _arrays.describe(name, inputs[i])
        return described

    def _compute_shapes(self, described: list[Any]) -> tuple[Shape, ...]:
        ranks = [len(value.shape) for value in self.results]
        sizes = (ctypes.c_int64 * sum(ranks))()
        memory, count = self._encode(described)
        compute = library().saccade_function_result_shapes
        if error := compute(self._pointer, ctypes.addressof(memory), count, sizes):
            raise_error(error)
        at = [sum(ranks[:i]) for i in range(len(ranks))]
        return tuple(tuple(sizes[start : start + rank]) for start, rank in zip(at, ranks))

    def _find_shapes(self, inputs: tuple, described: list[Any] | None = None) -> tuple[tuple[Shape, ...], tuple | None]:
        """The shapes of the results, and where they were found again their key."""
        key = (*[inputs[i].shape for i, _ in self._tensors], *[inputs[scalar[0]] for scalar in self._scalars])
        shapes = self._shapes.get(key)
        if shapes is not None:
            return shapes, key
        shapes = self._compute_shapes(described or self._describe_inputs(inputs))
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[key] = shapes
        return shapes, None

    def _retry(self, key: tuple | None, inputs: tuple, error: ValueError) -> tuple[Shape, ...]:
        """Extents may also depend on what integer tensors hold: a refused call with remembered shapes is tried with
        computed ones. Raises `error` where they are the same."""
        shapes = None if key is None else self._compute_shapes(self._describe_inputs(inputs))
        if shapes is None or shapes == self._shapes.get(key):
            raise error
        self._shapes[key] = shapes
        return shapes

    # --- calls

    def _call_torch(self, inputs: tuple, results: tuple | None) -> tuple:
        call = self._tvm_ffi or self.tvm_ffi
        try:
            if results is not None:
                call(*inputs, *results)
                _arrays.torch_module().autograd.graph.increment_version(results)
                return results
            shapes, key = self._find_shapes(inputs)
            results = self._empty_torch(inputs, shapes)
            try:
                call(*inputs, *results)
            except ValueError as error:
                results = self._empty_torch(inputs, self._retry(key, inputs, error))
                call(*inputs, *results)
            return results
        except RuntimeError:
            # torch itself refused to show its memory.
            for i, name in self._tensors:
                _arrays.check_torch(name, inputs[i])
            raise

    def _call_described(self, inputs: tuple, results: tuple | None, is_torch: bool) -> tuple:
        described = self._describe_inputs(inputs)
        if results is not None:
            self._run(described + [_describe(value.name, result) for value, result in zip(self.results, results)])
            if written := tuple(filter(_arrays.is_torch, results)):
                _arrays.torch_module().autograd.graph.increment_version(written)
            return results
        shapes, key = self._find_shapes(inputs, described)
        empty = self._empty_torch if is_torch else self._empty_numpy
        results = empty(inputs, shapes)
        try:
            self._run(described + [_describe("result", result) for result in results])
        except ValueError as error:
            results = empty(inputs, self._retry(key, inputs, error))
            self._run(described + [_describe("result", result) for result in results])
        return results

    def _run(self, described: list[Any]) -> None:
        memory, count = self._encode(described)
        if error := library().saccade_function_call(self._pointer, ctypes.addressof(memory), count):
            raise_error(error)

    def _encode(self, described: list[Any]) -> tuple[ctypes.Array, int]:
        """What the C API takes, and how many values that are."""
        return _arrays.encode_values(described), len(described)

    def _empty_torch(self, inputs: tuple, shapes: tuple[Shape, ...]) -> tuple:
        if not self._torch_dtypes:
            torch = _arrays.torch_module()
            self._torch_dtypes = [getattr(torch, value.dtype) for value in self.results]
        like = next(inputs[i] for i, _ in self._tensors if _arrays.is_torch(inputs[i]))
        return tuple([like.new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, self._torch_dtypes)])

    def _empty_numpy(self, inputs: tuple, shapes: tuple[Shape, ...]) -> tuple:
        return tuple([_arrays.empty_numpy(shape, value.dtype) for shape, value in zip(shapes, self.results)])


def _load(recipe: tuple, name: str) -> Function:
    """A pickled function."""
    from saccade.module import Module

    return Module(*recipe)[name]


def _value(info: Any) -> Value:
    dtype = _arrays.DTYPE_NAMES[info.dtype.code, info.dtype.bits]
    shape = None if info.rank < 0 else tuple(extent if extent >= 0 else None for extent in info.extents[: info.rank])
    return Value(info.name.decode(), info.type.decode(), dtype, shape)


def _describe(name: str, x: Any) -> Any:
    return x if isinstance(x, (int, float)) else _arrays.describe(name, x)
