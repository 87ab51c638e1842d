"""Compiled PyTorch modules: called with torch tensors, in the pytrees of the original module."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from saccade import _log
from saccade.module import compile_model
from saccade.torch.caches import register_caches
from saccade.torch.errors import ExportError
from saccade.torch.program import Program, Result
from saccade.torch.reader import read


def compile(module: torch.nn.Module | ExportedProgram, args: tuple[Any, ...] | None = None,
            kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
            **options: Any) -> Compiled:
    """Compiles a module for this machine's CPU.

    Weights are read here, without copies: results that depend only on weights are computed once, and weights must not
    change afterwards. Buffers of at most 64 elements become constants of the program. The result does not support
    autograd.

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
        return Compiled(read(module), **options)
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
    return Compiled(program, **options)


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

    def __init__(self, program: Program, **options: Any):
        """Compiles a program; `options` are those of `saccade.compile`. Raises saccade.CompileError, and
        ValueError for a GPU target."""
        self.program = program
        self.module = compile_model(program.text, True, **options)
        with _log.step(f"packing {len(program.weights)} weights"):
            self.main = self.module.main.bind(**{value.argument: weight.tensor for value, weight in program.weights})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module. Raises TypeError for another pytree, other types, or non-tensor arguments that differ from
        those of the export, and ValueError for extents outside of the exported ones."""
        program = self.program
        if kwargs:
            kwargs = self._in_order(kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if tree != program.in_spec:
            raise TypeError(f"found arguments in the tree {tree}, expected {program.in_spec}")
        for i, expected in program.fixed_inputs.items():
            if leaves[i] is not expected and leaves[i] != expected:
                raise TypeError(f"argument {i} is {leaves[i]!r:.60}, expected {expected!r:.60} as exported")
        if program.fixed_inputs:
            leaves = [leaf for i, leaf in enumerate(leaves) if i not in program.fixed_inputs]
        results = self.main(*leaves)
        if not isinstance(results, tuple):
            results = (results,)
        returned = [results[leaf.number] if isinstance(leaf, Result) else leaf for leaf in program.returned]
        return pytree.tree_unflatten(returned, program.out_spec)

    def _in_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments in the order of the export."""
        expected = self.program.in_spec.child(1).context if hasattr(self.program.in_spec, "child") else \
            self.program.in_spec.children_specs[1].context
        if set(expected) != set(kwargs):
            raise TypeError(f"found the arguments {', '.join(kwargs)}, expected {', '.join(expected)}")
        return {name: kwargs[name] for name in expected}

    def __repr__(self) -> str:
        return f"<saccade.torch.Compiled {self.module.main.signature}>"


__all__ = ["Compiled", "ExportError", "compile"]
