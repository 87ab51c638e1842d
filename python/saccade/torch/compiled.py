"""Compiled PyTorch modules: called with torch tensors, in the pytrees of the original module."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from saccade import _log
from saccade._watched import Owner, Watched, check_storage, is_versioned
from saccade.binding import bind
from saccade.module import compile_model
from saccade.torch.caches import register_caches
from saccade.torch.errors import ExportError
from saccade.torch.program import Program, Result
from saccade.torch.reader import read
from saccade.torch.unsupported import PARTITION, explaining


def compile(module: torch.nn.Module | ExportedProgram, args: tuple[Any, ...] | None = None,
            kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
            **options: Any) -> Compiled:
    """Compiles a module for this machine's CPU.

    Weights are read without copies, and results that depend only on them are computed once. A call after a weight has
    changed (the step of an optimizer, `load_state_dict`, `module.weight.data = ...`, another parameter in its place)
    computes them again; writes to `weight.data` and to NumPy arrays that share the memory are not seen. Buffers of at
    most 64 elements become constants of the program, which is compiled again if they change. The result does not
    support autograd.

    Args:
        module: a module in the mode it is to run in (call `eval()` first), or the result of `torch.export.export`, then
            without the other arguments.
        args, kwargs: example inputs, as `torch.export.export` takes them.
        dynamic_shapes: dynamic extents, as `torch.export.export` takes them.
        strict: the export mode.
        options: those of `saccade.compile`.

    Raises:
        ExportError: a graph that cannot be read.
        saccade.CompileError: an unsupported operator or type; the message contains the node and its Python source line.

    Exceptions of PyTorch's export are propagated.
    """
    if isinstance(module, ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise TypeError("an exported program has its arguments already: give none")
        return Compiled(read(module), _Source(module, "exported program", {}), **options)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"found a {type(module).__name__}, expected a torch.nn.Module or an ExportedProgram")
    register_caches(module)
    # torch.export merges arguments that are the same tensor.
    args, kwargs = _apart((() if args is None else args, kwargs))
    name = type(module).__name__
    with torch.no_grad(), _log.step(f"exporting {name} by torch.export"):
        exported = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
    with _log.step(f"reading the graph of {name}"):
        program = read(exported, name)
    owners = {name: owner for name, owner in _owners_of(module).items()
              if exported.state_dict.get(name) is owner[0][owner[1]]}  # fmt: skip
    return Compiled(program, _Source(exported, name, owners), **options)


def _owners_of(module: torch.nn.Module) -> dict[str, Owner]:
    """The dictionaries of submodules that have the parameters and buffers, by name."""
    return {f"{prefix}.{key}" if prefix else key: (held, key)
            for prefix, each in module.named_modules(remove_duplicate=False)
            for held in (each._parameters, each._buffers) for key in held if held[key] is not None}  # fmt: skip


@dataclasses.dataclass
class _Source:
    """What a program was read from."""

    exported: ExportedProgram
    name: str
    owners: dict[str, Owner]
    ties: dict[str, str] = dataclasses.field(init=False)
    """Further names of a tensor, and the first one."""

    def __post_init__(self) -> None:
        first: dict[int, str] = {}
        names = {name: first.setdefault(id(held[key]), name) for name, (held, key) in self.owners.items()}
        self.ties = {name: other for name, other in names.items() if name != other}

    def read_again(self) -> Program:
        """The program with the tensors that the module has now. Raises ValueError for other types and shapes."""
        known, ties = self.exported.state_dict, self.ties
        for name, (held, key) in self.owners.items():
            x = held.get(key)
            if x is None:
                raise ValueError(f"{name} is no longer in the module: compile again")
            if x.dtype != known[name].dtype or x.shape != known[name].shape:
                old = known[name]
                raise ValueError(f"{name} is now of {x.dtype} and shape {tuple(x.shape)}, expected {old.dtype} and "
                                 f"shape {tuple(old.shape)} as exported")  # fmt: skip
            check_storage(name, x)
            known[name] = x
        for name, other in ties.items():
            if known[name] is not known[other]:
                raise ValueError(f"{other} and {name} were one tensor at the export, and are two now: compile again")
        return read(self.exported, self.name)


def _apart(arguments: Any) -> Any:
    """The arguments with repeated tensors replaced by views."""
    leaves, tree = pytree.tree_flatten(arguments)
    seen: set[int] = set()
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[i] = leaf.detach() if id(leaf) in seen else leaf
            seen.add(id(leaf))
    return pytree.tree_unflatten(leaves, tree)


class Compiled:
    """A compiled module. It takes and returns the pytrees that the module was exported with."""

    def __init__(self, program: Program, source: _Source | None = None, /, **options: Any):
        """Compiles a program; `options` are those of `saccade.compile`. Raises saccade.CompileError, and
        ValueError for a GPU target."""
        self._source, self._options, self._lock = source, options, threading.Lock()
        self._compile(program)

    def _compile(self, program: Program) -> None:
        owners = self._source.owners if self._source else {}
        constants = {name: x for name, x in program.constants.items() if is_versioned(x)}
        ties = {name: owners[name][0][owners[name][1]] for name in (self._source.ties if self._source else ())}
        watched = Watched({**ties, **constants}, set(constants), owners) if constants or ties else None
        module = explaining(program.graph, lambda: compile_model(program.text, True, **self._options),
                            f"{PARTITION} leaves them to PyTorch and compiles the rest")  # fmt: skip
        weights = {value.argument: weight.source for value, weight in program.weights}
        titles = {value.argument: value.name for value, _ in program.weights}
        held = {argument: owners[name] for argument, name in titles.items()
                if name in owners and name not in program.constants}  # complex ones are read again
        with _log.step(f"packing {len(weights)} weights"), torch.no_grad():
            main = bind(module.main, weights, titles, held)
        self.program, self.module, self.main, self._constants = program, module, main, watched

    def _compile_again(self) -> None:
        """Compiles the program again with the buffers as they are now."""
        with self._lock:
            if self._constants is None or not self._constants.is_changed():  # another thread was first
                return
            if self._source is None:
                raise ValueError("a buffer of at most 64 elements has changed, which is a constant of the program: "
                                 f"{', '.join(self.program.constants)}; compile again")  # fmt: skip
            self._compile(self._source.read_again())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module. Raises TypeError for another pytree, other types, or non-tensor arguments that differ from
        those of the export, and ValueError for extents outside of the exported ones, or a weight that has been freed or
        has another type or shape."""
        if self._constants is not None and self._constants.is_changed():
            self._compile_again()
        program = self.program
        if kwargs:
            kwargs = self._in_order(args, kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if tree != program.in_spec:
            raise _tree_error(program, args, kwargs)
        for i, expected in program.fixed_inputs.items():
            if leaves[i] is not expected and leaves[i] != expected:
                raise TypeError(f"{_places(program.in_spec)[i]} is {leaves[i]!r:.60}, expected {expected!r:.60} as "
                                "exported")  # fmt: skip
        if program.fixed_inputs:
            leaves = [leaf for i, leaf in enumerate(leaves) if i not in program.fixed_inputs]
        results = self.main(*program.arguments(leaves))
        if not isinstance(results, tuple):
            results = (results,)
        returned = [results[leaf.number] if isinstance(leaf, Result) else leaf for leaf in program.returned]
        return pytree.tree_unflatten(returned, program.out_spec)

    def _in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments in the order of the export."""
        expected = self.program.in_spec.child(1).context if hasattr(self.program.in_spec, "child") else \
            self.program.in_spec.children_specs[1].context
        if set(expected) != set(kwargs):
            raise _tree_error(self.program, args, kwargs)
        return {name: kwargs[name] for name in expected}

    def __repr__(self) -> str:
        return f"<saccade.torch.Compiled {self.module.main.signature}>"


# --- errors of calls --------------------------------------------------------------------------------------------------


def _places(spec: Any) -> list[str]:
    """Where the leaves of the arguments are: "args[0]", "kwargs['cache'][1]"."""
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten([0] * spec.num_leaves, spec))
    return [("args" if path[0].idx == 0 else "kwargs") + pytree.keystr(path[1:]) for path, _ in paths]


def _tree_error(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    """The error for arguments in another pytree than that of the export, in terms of the arguments."""
    names = iter([value.name for value in program.inputs])
    labels = [f"{value!r:.40}" if (value := program.fixed_inputs.get(i, names)) is not names else next(names)
              for i in range(program.in_spec.num_leaves)]  # fmt: skip
    try:
        takes, takes_named = pytree.tree_unflatten(labels, program.in_spec)
    except Exception:  # a class of arguments that takes tensors only
        return TypeError("found arguments of another structure than those of the export")
    if len(args) != len(takes) or set(kwargs) != set(takes_named):
        listed = [x if isinstance(x, str) else f"a {type(x).__name__}" for x in takes] + [f"{x}=" for x in takes_named]
        found = [f"{len(args)} positional"] + [f"{x}=" for x in kwargs]
        return TypeError(f"found the arguments {', '.join(found)}, expected {len(takes)} positional"
                         f"{' and ' + str(len(takes_named)) + ' by name' if takes_named else ''}: {', '.join(listed)}")
    for place, x, y in [*((f"args[{i}]", x, y) for i, (x, y) in enumerate(zip(args, takes))),
                        *((f"{name}=", kwargs[name], y) for name, y in takes_named.items())]:  # fmt: skip
        if pytree.tree_structure(x) != pytree.tree_structure(y):
            expected = f"a tensor ({y})" if isinstance(y, str) else _described(y)
            return TypeError(f"{place} is {_described(x)}, expected {expected} as exported")
    return TypeError("found arguments of another structure than those of the export")


def _described(x: Any) -> str:
    """The kind of an argument, with its parts if it is a container of Python."""
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"
    if isinstance(x, dict):
        return f"a dict of {', '.join(map(str, x)) or 'nothing'}"
    return "a tensor" if isinstance(x, torch.Tensor) else "None" if x is None else f"a {type(x).__name__}"


__all__ = ["Compiled", "ExportError", "compile"]
