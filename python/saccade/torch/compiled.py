"""A module of PyTorch, compiled: called with torch tensors, in the trees that the module takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import saccade
from saccade.torch.errors import ExportError
from saccade.torch.program import Program, Result
from saccade.torch.reader import read


def compile(module: torch.nn.Module | ExportedProgram, args: tuple[Any, ...] | None = None,
            kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
            **options: Any) -> Compiled:
    """Compiles a module for this processor.

    Args:
        module: a module, in the mode that it is to run in: call `eval()` on it first; or what `torch.export.export`
            gave, then without the other arguments.
        args, kwargs: what the module is exported with, as `torch.export.export` takes them.
        dynamic_shapes: which extents calls may choose, as `torch.export.export` takes it.
        strict: how the module is exported.
        options: those of `saccade.compile`.

    Weights are read here: what is computed of them alone is computed now, others are kept where they are, without
    copies; buffers of at most 64 elements are part of the program. They must not change afterwards. What was compiled has no gradients.

    Raises:
        ExportError: a graph that cannot be read.
        saccade.CompileError: an operator or a type is not supported; the node and its line of Python are named.
        Whatever PyTorch raises as it exports the module.
    """
    if isinstance(module, ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise TypeError("an exported program has its arguments already: give none")
        return Compiled(read(module), **options)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"found a {type(module).__name__}, expected a torch.nn.Module or an ExportedProgram")
    # PyTorch takes arguments that are one tensor for one argument.
    args, kwargs = _apart((args or (), kwargs))
    with torch.no_grad():
        exported = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
    return Compiled(read(exported, type(module).__name__), **options)


def _apart(arguments: Any) -> Any:
    """The same arguments, where a tensor that comes again is another view of its memory."""
    leaves, tree = pytree.tree_flatten(arguments)
    seen: set[int] = set()
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[i] = leaf.detach() if id(leaf) in seen else leaf
            seen.add(id(leaf))
    return pytree.tree_unflatten(leaves, tree)


class Compiled:
    """A compiled module. It takes arguments in the tree that the module was exported with, and gives what it gives."""

    def __init__(self, program: Program, **options: Any):
        """Compiles a program; `options` are those of `saccade.compile`. Raises saccade.CompileError."""
        self.program = program
        self.module = saccade.compile(program.text, **{"prepack": True, **options})
        self.main = self.module.main.bind(**{value.argument: weight.tensor for value, weight in program.weights})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it. Raises TypeError for arguments in another tree, of other types or with numbers other than those of
        the export, ValueError for extents that it was not exported for."""
        program = self.program
        if kwargs:
            kwargs = self._in_order(kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if tree != program.in_spec:
            raise TypeError(f"found arguments in the tree {tree}, expected {program.in_spec}")
        for i, expected in program.fixed_inputs.items():
            if leaves[i] is not expected and leaves[i] != expected:
                raise TypeError(f"argument {i} is {leaves[i]!r:.60}, and the module was exported with {expected!r:.60}")
        if program.fixed_inputs:
            leaves = [leaf for i, leaf in enumerate(leaves) if i not in program.fixed_inputs]
        results = self.main(*leaves)
        if not isinstance(results, tuple):
            results = (results,)
        returned = [results[leaf.number] if isinstance(leaf, Result) else leaf for leaf in program.returned]
        return pytree.tree_unflatten(returned, program.out_spec)

    def _in_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name in the order that the module was exported with."""
        expected = self.program.in_spec.child(1).context if hasattr(self.program.in_spec, "child") else \
            self.program.in_spec.children_specs[1].context
        if set(expected) != set(kwargs):
            raise TypeError(f"found the arguments {', '.join(kwargs)}, expected {', '.join(expected)}")
        return {name: kwargs[name] for name in expected}

    def __repr__(self) -> str:
        return f"<saccade.torch.Compiled {self.module.main.signature}>"


__all__ = ["Compiled", "ExportError", "compile"]
