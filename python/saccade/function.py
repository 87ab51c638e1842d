"""Compiled functions: called with torch CPU tensors or NumPy arrays, or for a GPU with torch CUDA tensors or tensors of
other libraries by DLPack. All are read and written without copies."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from saccade import _arrays, _gpu, _served
from saccade._arrays import Array
from saccade._library import library, raise_error
from saccade._opaque import call_untraced, is_compiling, opaque

if TYPE_CHECKING:
    import tvm_ffi

    from saccade.binding import BoundFunction

Shape = tuple[int, ...]
_MAX_SHAPES = 1024


class Handle:
    """A reference to a compiled module, released with the last Python object that holds it. `recipe` contains the
    arguments of `Module`, for pickling."""

    def __init__(self, pointer: ctypes.c_void_p, recipe: tuple[Any, ...]):
        self.pointer, self.recipe = pointer, recipe
        weakref.finalize(self, library().saccade_module_release, pointer.value).atexit = False


class Value(NamedTuple):
    """An input or a result of a function."""

    name: str
    """The name in the program, without '%'."""
    type: str
    """The MLIR type: "tensor<?x8xf32>", "index"."""
    dtype: str
    """The element type in torch's and NumPy's terms: "float32", "bfloat16", "int64" (also for index), "bool", ..."""
    shape: tuple[int | None, ...] | None
    """The extents, None for a dynamic one; None for a scalar."""
    updated_by: int | None = None
    """For an input that a call updates (`attn.updated_by`): its place in what a call returns. None for all others."""


class Function:
    """A function of a compiled program. Calls are thread-safe and release the GIL. A copy is the same function;
    unpickling compiles the program again."""

    def __init__(self, handle: Handle, pointer: int | None):
        c = library()
        self._handle, self._pointer = handle, ctypes.c_void_p(pointer)
        count = c.saccade_function_num_inputs(pointer)
        infos = [
            c.saccade_function_value(pointer, i) for i in range(count + c.saccade_function_num_results(pointer))
        ]
        is_on_gpu = c.saccade_function_device_type(pointer) == _gpu.CUDA
        self._set_signature(c.saccade_function_name(pointer).decode(), infos, count, is_on_gpu)

    def _set_signature(self, name: str, infos: list[Any], count: int, is_on_gpu: bool) -> None:
        """Sets all attributes but those that refer to compiled code: `infos` are `ValueInfo` of `count` inputs, then of
        the results."""
        self.name: str = name
        values = tuple(map(_value, infos))
        self.inputs: tuple[Value, ...] = values[:count]
        """The inputs, in order."""
        self.results: tuple[Value, ...] = values[count:]
        """The results, in order, without those that update an input; all are tensors."""
        self.device: str = "cuda" if is_on_gpu else "cpu"
        """Where the tensors of a call are: "cpu" or "cuda"."""
        self._names = [value.name for value in values]
        self._tensors = [(i, value.name) for i, value in enumerate(self.inputs) if value.shape is not None]
        self._scalars = [
            (i, value.name, value.type, (info.dtype.code, info.dtype.bits))
            for i, (value, info) in enumerate(zip(self.inputs, infos))
            if value.shape is None
        ]
        self._updated = [(i, value.name) for i, value in enumerate(self.inputs) if value.updated_by is not None]
        self._shapes: dict[tuple[Any, ...], tuple[Shape, ...]] = {}
        self._tvm_ffi: tvm_ffi.Function | None = None
        self._torch_dtypes: list[Any] = []

    @property
    def signature(self) -> str:
        """For example "attend(q: tensor<?x64xf32>, n: index) -> tensor<?x64xf32>". What a call returns has names if it
        is several values. An input that the call updates is among them, by its name alone."""
        texts = [[f"{value.name}: {value.type}" for value in values] for values in (self.inputs, self.results)]
        if not self._updated and len(self.results) == 1:
            returned = self.results[0].type
        else:
            names = {self.inputs[i].updated_by: name for i, name in self._updated}
            parts = self._in_order(names, texts[1])
            returned = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        return f"{self.name}({', '.join(texts[0])}) -> {returned}"

    def __repr__(self) -> str:
        return f"<saccade.Function {self.signature}>"

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> Function:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (self._handle.recipe, self.name)

    @property
    def tvm_ffi(self) -> tvm_ffi.Function:
        """The function in TVM-FFI form, which has the lowest call overhead. It takes inputs, then results allocated by
        the caller, and returns None. It checks shapes, types, devices and strides, but no torch-specific state: a
        tensor that requires grad or has the negative bit set is read as stored, and the version of a result does not
        change, so a gradient that needs its old elements is wrong without an error."""
        if self._tvm_ffi is None:
            import tvm_ffi

            address = self._tvm_ffi_address()
            self._tvm_ffi = tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=self._handle)
        return self._tvm_ffi

    def _tvm_ffi_address(self) -> int | None:
        address: int | None = library().saccade_function_tvm_ffi(self._pointer)
        return address

    def __call__(self, /, *inputs: Any, out: Array | tuple[Array, ...] | None = None, stream: Any = None,
                 **named: Any) -> Any:
        """Calls the function.

        Args:
            inputs, named: the values of `self.inputs`, by position or by name, with any strides: torch CPU tensors and
                NumPy arrays for a program for the CPU; torch CUDA tensors and tensors of any other library with
                `__dlpack__`, all on one GPU, for a program for a GPU; Python scalars for scalars.
            out: the array to write the result to, or a tuple of arrays for several results. They have the shapes that
                `result_shapes` returns and overlap neither each other nor an input. Results that update an input are
                not among them.
            stream: for a GPU, the CUDA stream of the call: a stream object of torch, CuPy or CUDA Python, or its
                address. None: torch's current stream if a tensor is torch's, else the default stream. The call is
                asynchronous. A graph captured from it may be launched as long as this function exists.

        Returns:
            `out`, or new arrays: torch tensors if any input is one, otherwise NumPy arrays, or for a GPU tensors of the
            library of the first tensor; a tuple for several results. A result that updates an input is this input.

        Raises:
            TypeError: a wrong number or kind of arguments, element type, rank or device.
            ValueError: mismatched extents, a tensor that requires grad or has the negative bit set, a read-only `out`
                or updated input.
            MemoryError: the workspace of the call cannot be allocated.
            NotImplementedError: there is no NVIDIA driver, or its GPU cannot run the program.
            RuntimeError: the NVIDIA driver reports an error, possibly of earlier work.
        """
        if is_compiling():
            return call_untraced(Function.__call__, "Function.__call__", self, *inputs, out=out, stream=stream, **named)
        if (_served.is_on or _served.profiler._is_profiler_enabled) and _served.is_new_call():
            again = functools.partial(Function.__call__, self, *inputs, out=out, stream=stream, **named)
            return _served.observe_program(self.name, again, (*inputs, *named.values()))
        if named or len(inputs) != len(self.inputs):
            inputs = self._bind(inputs, named)
        check = _arrays.check_tensor if self.device == "cpu" else _gpu.check_tensor
        torch_tensors = 0
        for i, name in self._tensors:
            torch_tensors += check(name, inputs[i])
        if torch_tensors and _arrays.torch_module()._C._is_tracing():
            raise TypeError(f"{self.name} is called in what torch.jit.trace traces, which cannot trace it: call it "
                            "outside of the traced function")
        for i, name in self._updated:
            _arrays.check_writable(name, inputs[i])
        if self._scalars:
            inputs = self._with_numbers(inputs)
        results, is_torch = (None, True) if out is None else self._check_out(out)
        if is_torch and torch_tensors and torch_tensors == len(self._tensors) and stream is None:
            results = self._call_torch(inputs, results)
        else:
            results = self._call_described(inputs, results, torch_tensors > 0, stream)
        if self._updated:
            return self._with_updated(inputs, results)
        return out if out is not None else results[0] if len(results) == 1 else results

    def _with_updated(self, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> Any:
        """What a call returns: the results and the inputs that it updated, in the order of the program."""
        updated = {self.inputs[i].updated_by: inputs[i] for i, _ in self._updated}
        if tensors := tuple(filter(_arrays.is_torch, updated.values())):
            _arrays.torch_module().autograd.graph.increment_version(tensors)
        returned = tuple(self._in_order(updated, results))
        return returned[0] if len(returned) == 1 else returned

    @staticmethod
    def _in_order(updated: dict[int | None, Any], results: Sequence[Any]) -> list[Any]:
        """`results`, with each of `updated` at its place in what a call returns."""
        rest = iter(results)
        return [updated[i] if i in updated else next(rest) for i in range(len(updated) + len(results))]

    def into(self, *values: Any, stream: Any = None) -> None:
        """Calls the function on inputs, then results allocated by the caller: as `tvm_ffi`, but also for NumPy arrays
        and without importing tvm_ffi. It checks scalars, shapes, types and strides, and that results are writable.
        `stream` is that of a call. Autograd sees that torch tensors are written."""
        if is_compiling():
            return call_untraced(Function.into, "Function.into", self, *values, stream=stream)
        names, given = self._names, values
        handle = self._stream(stream, values)
        if len(values) != len(names):  # the call below reports the wrong count
            names = [f"argument #{i}" for i in range(len(values))]
        if handle is not None:
            values = tuple([_gpu.view(name, value, handle) for name, value in zip(names, values)])
        if names is self._names:
            values = self._with_numbers(values)
            for i in (*[i for i, _ in self._updated], *range(len(self.inputs), len(names))):
                _arrays.check_writable(names[i], values[i])
        self._run([_describe(name, value) for name, value in zip(names, values)], handle)
        places = (*[i for i, _ in self._updated], *range(len(self.inputs), len(names)))
        if written := tuple([given[i] for i in places if _arrays.is_torch(given[i])]):
            _arrays.torch_module().autograd.graph.increment_version(written)

    @opaque
    def result_shapes(self, /, *inputs: Any, **named: Any) -> tuple[Shape, ...]:
        """The shapes of the results for these inputs, which are checked; nothing is computed."""
        if named or len(inputs) != len(self.inputs):
            inputs = self._bind(inputs, named)
        for i, name in self._tensors:
            (_arrays.check_tensor if self.device == "cpu" else _gpu.check_tensor)(name, inputs[i])
        inputs = self._with_numbers(inputs)
        return self._compute_shapes(self._describe_inputs(self._views(inputs, self._stream(None, inputs))))

    def bind(self, /, **values: Any) -> BoundFunction:
        """Returns the function with some arguments bound, such as the weights of a model.

        Results that depend only on arguments marked `attn.constant` (prepacked weights, casts, transposes) are computed
        here once; all arguments they depend on must be given. The results of calls are bitwise equal. The program is
        compiled again unless it was compiled with prepack=True. Torch tensors are not copied: a call after they have
        changed in place, or got other memory, prepacks them again, and raises ValueError or TypeError with the name of
        one that was freed or has another shape or type. NumPy arrays and tensors of inference mode have no version, so
        elements are those of now; those that calls read in place are copied. docs/guides/weights.md has the limits.

        Raises:
            TypeError: an unknown name, a missing constant argument, or another element type or rank.
            ValueError: mismatched extents.

        Example:

            >>> call = saccade.compile(text, prepack=True).main.bind(**weights)
            >>> y = call(x)
        """
        from saccade.binding import bind

        return bind(self, values)

    # --- arguments

    def _bind(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in order, from those by position and by name."""
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

    def _with_numbers(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values with scalar inputs converted to Python scalars."""
        converted = list(inputs)
        for i, name, type, encoded in self._scalars:
            converted[i] = _arrays.check_scalar(name, type, encoded, converted[i])
        return tuple(converted)

    def _check_out(self, out: Any) -> tuple[tuple[Array, ...], bool]:
        """The arrays to write to, and whether all of them are torch tensors."""
        results = out if isinstance(out, tuple) else (out,)
        if len(results) != len(self.results):
            raise TypeError(f"out has {len(results)} arrays, expected {len(self.results)}: one for each result")
        names = ["out"] if len(results) == 1 else [f"out[{i}]" for i in range(len(results))]
        check = _arrays.check_result if self.device == "cpu" else _gpu.check_tensor
        return results, all([check(name, result) for name, result in zip(names, results)])

    # --- streams of a GPU

    def _stream(self, stream: Any, tensors: tuple[Any, ...]) -> int | None:
        """The stream of a call as a number; None for a program for the CPU."""
        if self.device == "cuda":
            return _gpu.current_stream(tensors) if stream is None else _gpu.stream_handle(stream)
        if stream is not None:
            raise TypeError(f"{self.name} has stream={stream!r:.80}, expected None: it is compiled for the CPU")
        return None

    def _views(self, inputs: tuple[Any, ...], handle: int | None) -> tuple[Any, ...]:
        """The inputs with tensors by DLPack as views of their memory."""
        if handle is None:
            return inputs
        viewed = list(inputs)
        for i, name in self._tensors:
            viewed[i] = _gpu.view(name, viewed[i], handle)
        return tuple(viewed)

    # --- shapes of results

    def _describe_inputs(self, inputs: tuple[Any, ...]) -> list[Any]:
        described = list(inputs)
        for i, name in self._tensors:
            described[i] = _arrays.describe(name, inputs[i])
        return described

    def _compute_shapes(self, described: list[Any]) -> tuple[Shape, ...]:
        ranks = [len(value.shape or ()) for value in self.results]
        sizes = (ctypes.c_int64 * sum(ranks))()
        self._query_sizes(described, sizes)
        at = [sum(ranks[:i]) for i in range(len(ranks))]
        return tuple(tuple(sizes[start : start + rank]) for start, rank in zip(at, ranks))

    def _query_sizes(self, described: list[Any], sizes: ctypes.Array[ctypes.c_int64]) -> None:
        """Writes the extents of all results for these inputs, one result after the other."""
        self._query_encoded(*self._encode(described), sizes)

    def _find_shapes(self, inputs: tuple[Any, ...],
                     described: list[Any] | None = None) -> tuple[tuple[Shape, ...], tuple[Any, ...] | None]:
        """The shapes of the results, and their key if they were cached."""
        key = (*[inputs[i].shape for i, _ in self._tensors], *[inputs[scalar[0]] for scalar in self._scalars])
        shapes = self._shapes.get(key)
        if shapes is not None:
            return shapes, key
        shapes = self._compute_shapes(described or self._describe_inputs(inputs))
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[key] = shapes
        return shapes, None

    def _retry(self, key: tuple[Any, ...] | None, inputs: tuple[Any, ...], error: ValueError) -> tuple[Shape, ...]:
        """Computes the shapes again after a call with cached shapes failed: extents may depend on the elements of
        integer tensors. Raises `error` if the shapes are the same."""
        if key is None:
            raise error
        shapes = self._compute_shapes(self._describe_inputs(inputs))
        if shapes == self._shapes.get(key):
            raise error
        self._shapes[key] = shapes
        return shapes

    # --- calls

    def _call_torch(self, inputs: tuple[Any, ...], results: tuple[Any, ...] | None) -> tuple[Any, ...]:
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
            # torch cannot access the memory of a tensor.
            for i, name in self._tensors:
                _arrays.check_torch(name, inputs[i], self.device)
            raise

    def _call_described(self, inputs: tuple[Any, ...], results: tuple[Any, ...] | None, is_torch: bool,
                        stream: Any = None) -> tuple[Any, ...]:
        handle = None
        if stream is not None or self.device == "cuda":
            handle = self._stream(stream, inputs)
            inputs = self._views(inputs, handle)
            for i, name in self._updated:
                _arrays.check_writable(name, inputs[i])
        described = self._describe_inputs(inputs)
        if results is not None:
            if handle is not None:
                views = tuple([_gpu.view(value.name, result, handle) for value, result in zip(self.results, results)])
                for value, view in zip(self.results, views):
                    _arrays.check_writable(value.name, view)
            else:
                views = results
            self._run(described + [_describe(value.name, view) for value, view in zip(self.results, views)], handle)
            if written := tuple(filter(_arrays.is_torch, results)):
                _arrays.torch_module().autograd.graph.increment_version(written)
            return results
        shapes, key = self._find_shapes(inputs, described)
        empty = self._empty_torch if is_torch else self._empty_numpy if handle is None else self._empty_on_gpu
        results = empty(inputs, shapes)
        try:
            self._run(described + [_describe("result", result) for result in results], handle)
        except ValueError as error:
            results = empty(inputs, self._retry(key, inputs, error))
            self._run(described + [_describe("result", result) for result in results], handle)
        return results if handle is None else tuple([_gpu.source_of(result) for result in results])

    def _run(self, described: list[Any], stream: int | None = None) -> None:
        self._run_encoded(*self._encode(described), stream)

    def _encode(self, described: list[Any]) -> tuple[ctypes.Array[Any], int]:
        """The values as the C API takes them, and their count."""
        return _arrays.encode_values(described), len(described)

    def _run_encoded(self, memory: ctypes.Array[Any], count: int, stream: int | None) -> None:
        """Calls the code with what `_encode` returns."""
        if stream is None:
            error = library().saccade_function_call(self._pointer, ctypes.addressof(memory), count)
        else:
            error = library().saccade_function_call_on_stream(self._pointer, ctypes.addressof(memory), count, stream)
        if error:
            raise_error(error)

    def _query_encoded(self, memory: ctypes.Array[Any], count: int, sizes: ctypes.Array[ctypes.c_int64]) -> None:
        """As `_run_encoded`, for `_query_sizes`."""
        compute = library().saccade_function_result_shapes
        if error := compute(self._pointer, ctypes.addressof(memory), count, sizes):
            raise_error(error)

    def _empty_torch(self, inputs: tuple[Any, ...], shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        if not self._torch_dtypes:
            torch = _arrays.torch_module()
            self._torch_dtypes = [getattr(torch, value.dtype) for value in self.results]
        like = next(inputs[i] for i, _ in self._tensors if _arrays.is_torch(inputs[i]))
        return tuple([like.new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, self._torch_dtypes)])

    def _empty_on_gpu(self, inputs: tuple[Any, ...], shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        if not self._tensors:
            raise TypeError(f"{self.name} has no tensor whose library could allocate the results: pass out=")
        like = inputs[self._tensors[0][0]]
        return tuple([like.empty(shape, value.dtype) for shape, value in zip(shapes, self.results)])

    def _empty_numpy(self, inputs: tuple[Any, ...], shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return tuple([_arrays.empty_numpy(shape, value.dtype) for shape, value in zip(shapes, self.results)])


def _load(recipe: tuple[Any, ...], name: str) -> Function:
    """Unpickles a function."""
    from saccade.module import Module

    return Module(*recipe)[name]


def _value(info: Any) -> Value:
    dtype = _arrays.DTYPE_NAMES[info.dtype.code, info.dtype.bits]
    shape = None if info.rank < 0 else tuple(extent if extent >= 0 else None for extent in info.extents[: info.rank])
    updated_by = info.updated_by if info.updated_by >= 0 else None
    return Value(info.name.decode(), info.type.decode(), dtype, shape, updated_by)


def _describe(name: str, x: Any) -> Any:
    return x if isinstance(x, (int, float)) else _arrays.describe(name, x)
