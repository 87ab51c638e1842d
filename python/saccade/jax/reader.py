"""Reads lowered JAX functions as programs: StableHLO in generic form, and nothing is computed."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any

import jax
import numpy as np
from jax import export
from jax.interpreters import mlir as jax_mlir
from jax.tree_util import keystr, tree_flatten_with_path
from jaxlib.mlir import ir

from saccade.jax.constants import take_constants
from saccade.jax.errors import LoweringError
from saccade.jax.program import Program, Value


def read(lowered: Any, name: str = "jax") -> Program:
    """The program of `jax.jit(f).lower(...)` or `jax.export.export(...)(...)`. `name` is the file in diagnostics.
    Raises LoweringError."""
    if isinstance(lowered, export.Exported):
        return _read_exported(lowered, name)
    if not isinstance(lowered, jax.stages.Lowered):
        raise TypeError(f"found a {type(lowered).__name__}, expected jax.jit(f).lower(...) or jax.export.export(...)")
    inputs = _values(lowered.args_info)
    return _program(lowered.compiler_ir("stablehlo"), lowered.in_tree, lowered.out_tree, inputs, None,
                    _values(lowered.out_info), name)


def read_file(path: str | os.PathLike[str]) -> Program:
    """The program of a file with a serialized `jax.export.Exported`. Raises LoweringError, or OSError if it cannot be
    read."""
    path = os.fspath(path)
    with open(path, "rb") as file:
        data = file.read()
    try:
        exported = export.deserialize(bytearray(data))
    except Exception as error:  # deserialization raises arbitrary exceptions for invalid files
        raise LoweringError(f"{path}: not an exported JAX function, or truncated: {error}") from None
    return _read_exported(exported, path)


def _read_exported(exported: Any, name: str) -> Program:
    if "cpu" not in exported.platforms or len(exported.platforms) != 1:
        raise LoweringError(f"{name}: lowered for {', '.join(exported.platforms)}, expected cpu alone")
    if exported.nr_devices != 1:
        raise LoweringError(f"{name}: lowered for {exported.nr_devices} devices, expected one")
    if exported.ordered_effects or exported.unordered_effects:
        raise LoweringError(f"{name}: the function has side effects: {exported.unordered_effects}")
    inputs = _values(jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals))
    outputs = _values(jax.tree_util.tree_unflatten(exported.out_tree, exported.out_avals))
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        program = _program(module, exported.in_tree, exported.out_tree, inputs, list(exported.module_kept_var_idx),
                           outputs, name)
    if any(extent is None for each in inputs for extent in each.shape):
        program.exported = dataclasses.replace(exported, mlir_module_serialized=b"")
    return program


def _values(tree: Any) -> list[Value]:
    """The leaves of a pytree of shapes."""
    leaves = tree_flatten_with_path(tree, is_leaf=lambda leaf: hasattr(leaf, "shape"))[0]
    return [Value(keystr(path), np.dtype(leaf.dtype),
                  tuple(extent if isinstance(extent, int) else None for extent in leaf.shape)) for path, leaf in leaves]


def _program(module: Any, in_tree: Any, out_tree: Any, inputs: list[Value], kept: list[int] | None,
             outputs: list[Value], name: str) -> Program:
    with module.context, ir.Location.unknown(module.context):
        main = next((op for op in module.body.operations if op.operation.name == "func.func" and
                     ir.StringAttr(op.attributes["sym_name"]).value == "main"), None)
        if main is None:
            raise LoweringError(f"{name}: the module has no function @main")
        count = len(main.regions[0].blocks[0].arguments)
        if kept is None:
            # JAX drops unused arguments and does not report which.
            if count != len(inputs):
                raise LoweringError(f"{name}: JAX dropped {len(inputs) - count} of {len(inputs)} arguments that the "
                                    "function does not read; lower jax.jit(f, keep_unused=True)")
            kept = list(range(count))
        if count != len(kept):
            raise LoweringError(f"{name}: @main takes {count} arguments, expected {len(kept)}")
        constants = take_constants(module, main)
        # Locations contain the Python source lines of ops.
        text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    # The printer assigns argument names. @main's block follows its name attribute.
    head = re.search(r'sym_name = "main".*?\^bb0\((.*?)\):\n', text, re.S)
    arguments = re.findall(r"%(\w+): tensor<", head[1]) if head else []
    if len(arguments) != len(kept) + len(constants):
        raise LoweringError(f"{name}: @main takes {len(arguments)} tensors, expected {len(kept) + len(constants)}")
    return Program(text, in_tree, out_tree, inputs, kept, outputs, constants, arguments)
