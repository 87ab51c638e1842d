"""Compiled JAX functions: called with JAX arrays, in the pytrees of the original function."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from saccade import _log
from saccade.jax.errors import LoweringError
from saccade.jax.program import Program, Value
from saccade.jax.reader import read
from saccade.module import compile_model


def compile(fn: Any, *example_args: Any, **options: Any) -> Compiled:
    """Compiles a JAX function for this machine's CPU.

    The function is lowered once, for the shapes and types of the example arguments. Values that it closes over become
    part of the program, so weights may be passed as arguments or closed over.

    Args:
        fn: a function for `jax.jit`, or its result.
        example_args: the arguments of the function: arrays, pytrees of them, or `jax.ShapeDtypeStruct`s with symbolic
            extents (`jax.export.symbolic_shape`) for dynamic ones.
        options: those of `saccade.compile`.

    Raises:
        LoweringError: the lowered function cannot be read.
        saccade.CompileError: an unsupported op or type, named in the message.

    Exceptions of JAX's tracing are propagated.
    """
    if not callable(fn):
        raise TypeError(f"found a {type(fn).__name__}, expected a function")
    jitted = fn if hasattr(fn, "lower") else jax.jit(fn, keep_unused=True)
    leaves = jax.tree_util.tree_leaves(example_args)
    is_symbolic = any(not isinstance(extent, int) for leaf in leaves for extent in np.shape(leaf))
    if not is_symbolic:
        with contextlib.suppress(LoweringError):
            with _log.step("lowering by JAX"):
                program = read(jitted.lower(*example_args))
            return Compiled(program, **options)
    # An export records which arguments JAX dropped, and supports dynamic extents.
    with _log.step("exporting by JAX"):
        program = read(export.export(jitted, platforms=["cpu"])(*example_args))
    return Compiled(program, **options)


class Compiled:
    """A compiled function with the arguments and results of the original."""

    def __init__(self, program: Program, **options: Any):
        """Compiles a program; `options` are those of `saccade.compile`. Raises saccade.CompileError, and
        ValueError for a GPU target."""
        self.program = program
        fixed = dict(zip(program.arguments[len(program.kept):], program.constants, strict=True))
        # Prepacking: results that depend only on constants are computed here.
        self.module = compile_model(program.text, bool(fixed), **options)
        self._checked: set[tuple[tuple[int, ...], ...]] = set()
        with _log.step(f"packing {len(fixed)} constants"):
            self._main = self.module.main.bind(**fixed) if fixed else self.module.main

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function. Raises TypeError for another pytree or data type, ValueError for extents that the
        function was not lowered for."""
        program = self.program
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        if tree != program.in_tree:
            raise TypeError(f"found arguments in the tree {tree}, expected {program.in_tree}")
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        if shapes not in self._checked:
            program.check_extents(shapes)
            self._checked.add(shapes)
        inputs = [_array(leaves[i], program.inputs[i]) for i in program.kept]
        results = self._main(*inputs)
        arrays = results if isinstance(results, tuple) else (results,)
        return jax.tree_util.tree_unflatten(program.out_tree, [jnp.asarray(each) for each in arrays])

    def __repr__(self) -> str:
        return f"<saccade.jax.Compiled {self._main.signature}>"


def _array(leaf: Any, expected: Value) -> np.ndarray:
    """A leaf as a NumPy array, without a copy for JAX arrays in CPU memory."""
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(f"argument {expected.path} is traced by JAX: call a compiled function outside of jit and grad")
    # Python scalars take the type that the function was lowered for.
    array = np.asarray(leaf, dtype=expected.dtype) if isinstance(leaf, (bool, int, float)) else np.asarray(leaf)
    if array.dtype != expected.dtype:
        raise TypeError(f"argument {expected.path} is of {array.dtype}, expected {expected.dtype}")
    return array
