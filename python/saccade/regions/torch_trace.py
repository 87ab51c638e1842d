"""Traces a function of torch scalars.

The function runs once on 0-d proxy tensors for the score and the positions. A function mode intercepts `table[h]`, a
dispatch mode every aten op below it: ops on proxies become expression nodes and are not computed, all other ops run as
usual. This detects a Python `if` on a position where it occurs, and evaluates constants.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from saccade._arrays import dimensions
from saccade.regions import names
from saccade.regions.captures import Captures
from saccade.regions.dtypes import KIND, dtype_name
from saccade.regions.expression import Builder, Node, Operand
from saccade.regions.lists import NumberList, is_list_of_numbers
from saccade.regions.numbers import Number, plain
from saccade.regions.rebuild import rebuild
from saccade.regions.torch_grad import is_recording, is_transformed
from saccade.regions.traced_function import PARAMETERS, TracedFunction, TraceError, variables

try:  # A private module of torch.
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:
    raise NotImplementedError(f"torch {torch.__version__} has no TorchDispatchMode: functions of its tensors cannot be "
                              "traced; NumPy arrays can") from error

# Properties of a captured tensor that a region may depend on: element type and rank are part of the kernel's key,
# elements and extents are not.
_HARMLESS = {"dtype", "device", "ndim", "dim", "ndimension", "is_floating_point", "is_complex", "is_signed", "layout",
             "requires_grad", "is_cuda", "is_cpu", "type", "__hash__", "is_sparse"}  # fmt: skip
# Functions that read the memory of a proxy without an aten op.
_READS_MEMORY = {"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "__reduce_ex__", "__deepcopy__",
                 "untyped_storage", "storage"}  # fmt: skip
_AS_THEY_ARE = {"clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "contiguous", "positive"}
# Functions that make a tensor of a number.
_TENSOR_OF = {torch.tensor, torch.as_tensor, torch.asarray}
# Views that are supported if a 0-d tensor stays 0-d.
_VIEWS = {"view", "reshape", "expand", "squeeze", "_unsafe_view"}


class Tracer:
    """One run of a function."""

    def __init__(self, traced: TracedFunction, precision: str):
        self.traced = traced
        self.builder = Builder(precision, traced.error)
        self.captures = Captures(self.builder, traced, torch.is_grad_enabled())
        self.is_busy = False  # interception is suspended
        # By id; the tensors are kept alive so that ids stay unique. A Number has a tensor in calls of torch only.
        self.nodes: dict[int, tuple[torch.Tensor, Operand]] = {}
        self.rows: dict[int, tuple[torch.Tensor, torch.Tensor, tuple[Any, ...]]] = {}  # placeholder, table, indices
        self.made: dict[int, tuple[torch.Tensor, bool]] = {}  # computed here; whether from captured elements
        self.views: set[int] = set()  # views among `made`

    def run(self) -> Any:
        """The function's result, or each of a tuple: a node, or any other object."""
        self.traced.traced = rebuild_captures(self.traced, self.read_list)
        # Composite ops such as `to` are made of others above autograd, which inference mode and kernels below autograd
        # leave out.
        with torch.inference_mode(False), torch.no_grad():
            arguments = []
            for number, name in enumerate(PARAMETERS[self.traced.role]):
                dtype = self.builder.precision if name in "sp" else "int64"
                arguments.append(self.proxy(self.builder.argument(number, dtype)))
            with _Functions(self), _Ops(self):
                result = self.traced.traced(*arguments)
            return tuple([self.result(x) for x in result]) if type(result) is tuple else self.result(result)

    def result(self, x: Any) -> Any:
        """A node for what the function returned, if it is a tensor."""
        if not isinstance(x, torch.Tensor):
            return x
        if x.dim() != 0 and id(x) not in self.rows:
            raise self.traced.function_error(f"returns a tensor of {dimensions(x.dim())}, expected a number")
        return self.node(x)

    # --- tensors and nodes ----------------------------------------------------------------------------------------

    def proxy(self, node: Operand) -> torch.Tensor:
        """A tensor that represents a node or a captured number for the function. Its memory is never read."""
        dtype = node.dtype if isinstance(node, Node) else "int64" if isinstance(node, int) else self.builder.precision
        tensor = torch.empty((), dtype=getattr(torch, dtype))
        self.nodes[id(tensor)] = (tensor, node)
        return tensor

    def is_traced(self, x: object) -> bool:
        return isinstance(x, torch.Tensor) and id(x) in self.nodes

    def is_captured(self, x: object) -> bool:
        """Whether `x` is a tensor that existed before tracing."""
        return isinstance(x, torch.Tensor) and not (id(x) in self.nodes or id(x) in self.made or id(x) in self.rows)

    def node(self, x: torch.Tensor) -> Node:
        """The node of a 0-d tensor of any origin."""
        operand = self.scalar(x)
        return operand if isinstance(operand, Node) else self.builder.to(operand, dtype_name(x))

    def scalar(self, x: torch.Tensor) -> Operand:
        """The node or the captured number of a 0-d tensor of any origin."""
        if id(x) in self.nodes:
            return self.nodes[id(x)][1]
        if id(x) in self.rows:
            raise self._row_error(x)
        dtype = dtype_name(x)
        if self.is_captured(x):
            if x.dim() != 0:
                raise self.traced.whole_error(x)
            return self.captures.load(x, [])
        if x.dim() != 0:
            raise self.traced.error(f"computes with a tensor of {dimensions(x.dim())}: read an element of it")
        if dtype not in KIND:
            raise self.traced.error(f"computes with {dtype}, which regions do not support")
        if x.requires_grad:
            return self.captures.load(x, [], is_made=True, is_stale=True)
        if self.made[id(x)][1]:
            self.captures.is_reusable = False
        return self.builder.number(x.item(), dtype)

    # --- reads ----------------------------------------------------------------------------------------------------

    def index(self, table: torch.Tensor, index: Any) -> torch.Tensor | None:
        """`table[index]` if the index depends on positions or has constant integers only, otherwise None."""
        items = index if isinstance(index, tuple) else (index,)
        if id(table) in self.nodes:
            raise self.traced.error("indexes a number")
        depends = any(self.is_traced(item) or type(item) is Number for item in _flat(items))
        is_plain = all(type(item) is int for item in items) and (id(table) in self.rows or self.is_captured(table))
        if not depends and not is_plain:
            return None
        source, before = table, ()
        if id(table) in self.rows:
            _, source, before = self.rows[id(table)]
        indices = before + tuple([self._index_item(source, item) for item in items])
        if len(indices) > source.dim():
            raise self.captures.rank_error(source, len(indices))
        if len(indices) < source.dim():
            row = torch.empty((), dtype=source.dtype).expand(source.shape[len(indices):])
            self.rows[id(row)] = (row, source, indices)
            return row
        nodes = [self.builder.number(item, "int64") if isinstance(item, int) else item for item in indices]
        if id(source) in self.made:
            return self.proxy(self.captures.load(source, nodes, is_made=True, is_stale=self.made[id(source)][1]))
        return self.proxy(self.captures.load(source, nodes))

    def read_list(self, numbers: NumberList, index: Any) -> Any:
        """An element of a list of numbers at a position."""
        if not isinstance(index, torch.Tensor):
            return list(numbers)[index]
        values = numbers.values()
        with self.suspended():
            table = torch.tensor(values, device=self.traced.device)
            if table.is_floating_point():
                table = torch.tensor(values, dtype=getattr(torch, self.builder.precision), device=self.traced.device)
            self.made[id(table)] = (table, False)
        return table[index]

    def _read(self, op: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
        """Ops that are equivalent to indexing; None for any other op."""
        name = _name(op)
        if name == "embedding" and args[1].dim() == 0:
            return self.index(args[0], args[1])
        if name == "take" and args[0].dim() == 1 and args[1].dim() == 0:
            return self.index(args[0], args[1])
        return None

    def _index_item(self, table: torch.Tensor, item: Any) -> Node | int:
        if type(item) is int:
            return item
        if type(item) is Number and isinstance(item, int):
            return item._bake()  # extents are checked for constants and positions only
        if isinstance(item, torch.Tensor) and item.dim() == 0 and id(item) not in self.rows:
            node = self.node(item)
            if node.dtype in ("int8", "int16", "int32", "int64"):
                return node
            raise self.traced.error(f"indexes {self.traced.name_of(table)} with a {node.dtype}, expected an integer")
        found = f"a tensor of {dimensions(item.dim())}" if isinstance(item, torch.Tensor) else repr(item)
        raise self.captures.index_error(table, "a slice" if isinstance(item, slice) else found)

    def _text_of(self, x: torch.Tensor) -> str:
        """The printed form of a proxy."""
        if id(x) in self.rows:
            return f"<a part of {self.traced.name_of(self.rows[id(x)][1])}>"
        node = self.node(x)
        return self.traced.describe(node.attribute if node.op == "argument" else None, node.dtype)

    def _row_error(self, row: torch.Tensor) -> Exception:
        _, table, indices = self.rows[id(row)]
        return self.captures.rank_error(table, len(indices))

    # --- interception ---------------------------------------------------------------------------------------------

    def on_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Intercepts a torch function, method or property."""
        if self.is_busy:
            return function(*args, **kwargs)
        if function is torch.Tensor.__getitem__:
            with self.suspended():
                read = self.index(*args)
            if read is not None:
                return read
        if any(type(x) is Number for x in _flat((args, kwargs))):
            if function in _TENSOR_OF and len(args) == 1 and type(args[0]) is Number and kwargs.keys() <= {"dtype"}:
                return self._tensor_of(args[0], **kwargs)
            args, kwargs = self._with_numbers(args, kwargs)
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = function.__self__.__name__
        tensors = [x for x in _flat((args, kwargs)) if isinstance(x, torch.Tensor)]
        if name in ("__repr__", "__format__") and (id(args[0]) in self.nodes or id(args[0]) in self.rows):
            return self._text_of(args[0])
        if name == "__array__":
            raise self._numpy_error(args[0])
        if name in _READS_MEMORY and any(id(x) in self.nodes for x in tensors):
            raise self._value_error()
        result = self._call(function, args, kwargs, tensors)
        # Scalars and extents of captured tensors are valid for this call only.
        if name not in _HARMLESS and not isinstance(result, torch.Tensor) and any(
                id(x) not in self.nodes and (id(x) not in self.made or self.made[id(x)][1]) for x in tensors):
            self.captures.is_reusable = False
        return result

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[Any, Any], tensors: list[torch.Tensor]) -> Any:
        """Calls a function. Gradients of what is computed from captured tensors only are recorded if the caller
        records gradients."""
        if not is_recording() or not any(x.requires_grad for x in tensors) or any(
                id(x) in self.nodes or id(x) in self.rows for x in tensors):
            return function(*args, **kwargs)
        with torch.enable_grad():
            result = function(*args, **kwargs)
        for x in _flat((result,)):
            if isinstance(x, torch.Tensor) and x.requires_grad and not any(x is given for given in tensors):
                self.made[id(x)] = (x, True)  # autograd returns views as other objects
        return result

    def _tensor_of(self, number: Number, dtype: torch.dtype | None = None) -> torch.Tensor:
        """torch.tensor(number)."""
        default = torch.int64 if isinstance(number, int) else torch.get_default_dtype()
        with self.suspended():
            name = str(dtype or default).removeprefix("torch.")
            exact = self.builder.to(number, "int64" if isinstance(number, int) else name if name in KIND else "float64")
            return self.proxy(self._convert(exact, name))

    def _with_numbers(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[tuple[Any, ...], dict[Any, Any]]:
        """The arguments with captured numbers as tensors next to positions or scores, otherwise as their values."""
        if not any(self.is_traced(x) or id(x) in self.rows for x in _flat((args, kwargs))):
            return plain(args), plain(kwargs)
        with self.suspended():
            return (tuple([self.proxy(x) if type(x) is Number else plain(x) for x in args]),
                    {key: self.proxy(x) if type(x) is Number else plain(x) for key, x in kwargs.items()})

    def on_op(self, op: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Intercepts an aten op."""
        if self.is_busy:
            return op(*args, **kwargs)
        with self.suspended():
            tensors = [x for x in _flat((args, kwargs)) if isinstance(x, torch.Tensor)]
            if (read := self._read(op, args)) is not None:
                return read
            if _name(op) == "lift_fresh" and self.is_captured(tensors[0]):
                self.made[id(tensors[0])] = (tensors[0], False)  # created by torch.tensor()
            given = [x for x in tensors if self.is_captured(x)]
            for x in given:
                self.captures.check(x)
            if op._schema.is_mutable and tensors:
                self._check_change(tensors[0])
            if not any(id(x) in self.nodes or id(x) in self.rows for x in tensors):
                return self._compute(op, args, kwargs, tensors, bool(given))
            if _name(op) == "_local_scalar_dense":
                known = self.scalar(args[0])
                number = self.captures.number(known) if isinstance(known, Node) else plain(known)
                if number is None:
                    raise self._value_error()
                return number
            if op._schema.is_mutable and id(args[0]) not in self.nodes:
                self._check_place(args[0])
            recorded = self._record(op, args, kwargs)
            node = recorded if isinstance(recorded, Node) else self.builder.to(recorded, dtype_name(args[0]))
            if not op._schema.is_mutable:
                return self.proxy(node)
            self.nodes[id(args[0])] = (args[0], self.builder.convert(node, dtype_name(args[0])))
            return args[0]

    def _check_change(self, x: torch.Tensor) -> None:
        """Rejects in-place changes of a captured tensor or a view of one."""
        if id(x) in self.nodes:
            return
        for given in self.captures.checked:
            if given.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and x.numel():
                raise self.traced.error(f"changes {self.traced.name_of(given)}: it may only read what it captures")

    def _check_place(self, x: torch.Tensor) -> None:
        """Rejects writing a node into elements of a tensor: only a 0-d tensor can become a node."""
        if x.dim() or id(x) in self.views:
            raise self.traced.error("writes a position or a score into an element of a tensor, expected constants "
                                    "only: use torch.where")

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspends interception for the tracer's own tensor ops."""
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False

    def _compute(self, op: Any, args: tuple[Any, ...], kwargs: dict[Any, Any], tensors: list[Any],
                 is_captured: bool) -> Any:
        """Runs an op that involves no proxy."""
        if torch.Tag.nondeterministic_seeded in op.tags:
            raise self.traced.error(f"draws random numbers ('{_name(op)}'): they would be the same for all positions")
        is_stale = is_captured or any(self.made[id(x)][1] for x in tensors)
        if is_stale and is_transformed():
            raise self.traced.error(f"computes '{_name(op)}' of a captured tensor in a transform of torch.func or "
                                    "in forward mode, expected reads of elements: compute it before the call")
        result = op(*args, **kwargs)
        returns = [given.alias_info for given in op._schema.returns]
        is_view = any(alias and not alias.is_write for alias in returns) and _name(op) not in _AS_THEY_ARE
        for x in _flat((result,)):
            if isinstance(x, torch.Tensor) and not (self.is_captured(x) and any(x is other for other in tensors)):
                self.made[id(x)] = (x, is_stale)
                self.views.update({id(x)} if is_view else ())
        return result

    def _record(self, op: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Operand:
        """The node of an op on proxies."""
        name, b = _name(op), self.builder
        if name == "index" and len(args) == 2 and None not in args[1]:
            read = self.index(args[0], tuple(args[1]))
            return self.nodes[id(read)][1]
        dtype = str(kwargs["dtype"]).removeprefix("torch.") if kwargs.get("dtype") is not None else None
        if name in ("new_ones", "new_zeros", "new_full", "ones_like", "zeros_like", "full_like"):
            return self._constant(op, name, args, dtype)
        operands = [self.scalar(x) if isinstance(x, torch.Tensor) else x for x in args]
        if name == "_to_copy":
            return operands[0] if dtype is None else self._convert(operands[0], dtype)
        if name in _AS_THEY_ARE or name in _VIEWS and all(size == [] for size in args[1:] if isinstance(size, list)):
            return operands[0]
        if name == "copy_":
            return operands[1]
        function = names.ATEN.get(name if name in names.ATEN else name.removesuffix("_"))
        if function is None:
            raise self._unknown(op)
        named = {key: self.scalar(x) if isinstance(x, torch.Tensor) else x for key, x in kwargs.items()}
        try:
            return function(b, *operands, **named)
        except TraceError:
            raise
        except TypeError as error:
            raise self._unknown(op) from error

    def _constant(self, op: Any, name: str, args: tuple[Any, ...], dtype: str | None) -> Node:
        if name.startswith("new_") and list(args[1]) != []:
            raise self._unknown(op)
        value = {"o": 1, "z": 0}.get(name.removeprefix("new_")[0])
        if value is None:
            value = args[2 if name == "new_full" else 1]
        return self._convert_number(value, dtype or dtype_name(args[0]))

    def _convert_number(self, value: Any, dtype: str) -> Node:
        if isinstance(value, torch.Tensor):
            return self._convert(self.node(value), dtype)
        self._check_type(dtype)
        return self.builder.number(value, dtype)

    def _convert(self, operand: Operand, dtype: str) -> Node:
        self._check_type(dtype)
        node = operand if isinstance(operand, Node) else self.builder.to(operand, self.builder.result_type(operand))
        return self.builder.convert(node, dtype, rounds=True)

    def _check_type(self, dtype: str) -> None:
        if dtype not in KIND:
            raise self.traced.error(f"converts to {dtype}, expected one of {', '.join(KIND)}")

    def _unknown(self, op: Any) -> Exception:
        return self.traced.error(
            f"calls '{_name(op)}' ({op}) on positions or scores, which regions do not support: use "
            "arithmetic, comparisons, torch.where and reads of single elements of captured tensors")

    def _numpy_error(self, x: torch.Tensor) -> Exception:
        found = "a torch tensor" if id(x) in self.made else f"{self.traced.name_of(x)}, a torch tensor,"
        if id(x) in self.nodes or id(x) in self.rows:
            found = self._text_of(x)
        return self.traced.error(f"passes {found} to NumPy, expected functions of torch: torch.tanh instead of np.tanh")

    def _value_error(self) -> Exception:
        return self.traced.error(
            "uses the value of a position or a score, which is unknown while it is traced: instead of if, and, or, "
            "not, min() and max() write torch.where(condition, a, b), &, |, ~, torch.minimum and torch.maximum; "
            "instead of int(), float(), .item() and functions of math use the tensor itself, .to(dtype) and functions "
            "of torch; index a tensor, or a list of numbers, instead of a tuple or a range")


def rebuild_captures(traced: TracedFunction, read: Any) -> Any:
    """The function with lists of numbers that can be indexed with positions and, if it captures torch tensors as well,
    NumPy arrays as torch tensors that share their memory."""
    numpy: Any = sys.modules.get("numpy")
    held = [value for _, value in variables(traced.function)]
    function = traced.traced
    if any(map(is_list_of_numbers, held)):
        function = rebuild(function, is_list_of_numbers, lambda x: NumberList(x, read))
    if numpy is None or not any(isinstance(x, numpy.ndarray) for x in held):
        return function

    def share(array: Any) -> torch.Tensor:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of read-only arrays: regions do not write
                tensor = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise traced.error(f"captures the NumPy array {traced.name_of(array)} beside torch tensors, and torch "
                               f"cannot read it ({error}): convert it") from None
        traced.originals[id(tensor)] = tensor, array
        return tensor

    return rebuild(function, lambda x: isinstance(x, numpy.ndarray), share)


def _name(op: Any) -> str:
    name: str = op._schema.name.partition("::")[2]
    return name


def _flat(values: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(values, dict):
        values = list(values.values())
    leaves = []
    for value in values:
        if isinstance(value, (tuple, list, dict)):
            leaves += _flat(value)
        else:
            leaves.append(value)
    return leaves


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, tracer: Tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.tracer.on_function(function, args, kwargs or {})


class _Ops(TorchDispatchMode):  # type: ignore[misc]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch (2.9 and later) imports torch._dynamo at the first op, which takes seconds. Frames of a trace
        are below `saccade.attention`, which Dynamo skips. Other versions do not call this."""
        return False

    def __init__(self, tracer: Tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.tracer.on_op(op, args, kwargs or {})
