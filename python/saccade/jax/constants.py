"""Turns large constants of a lowered function into arguments, so the compiler does not process their elements."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from jaxlib.mlir import ir

SMALL = 64
"""Constants of at most this many elements stay in the program, larger ones become arguments."""

TYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
          "i32": "int32", "i64": "int64"}


def take_constants(module: Any, main: Any) -> list[Any]:
    """Turns large constants of `main`, and of functions that only `main` calls once, into arguments of `main`; returns
    them as arrays. (The @main of an export only calls a function with the whole body.)"""
    functions = {name(op): op for op in module.body.operations if op.operation.name == "func.func"}
    calls = [op for function in functions.values() for op in _walk(function) if op.name == "func.call"]
    callees = [ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op in calls]
    arrays = []
    for op in list(main.regions[0].blocks[0].operations):
        if op.operation.name != "func.call":
            continue
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        if callees.count(callee) == 1 and callee in functions:
            taken = _make_arguments(functions[callee], {})
            if taken:
                arrays += taken
                arguments = _add_arguments(main,
                                           [argument.type for argument in _arguments(functions[callee])[-len(taken):]],
                                           {"attn.constant": ir.UnitAttr.get()})
                _call_with(op, arguments)
    return arrays + _make_arguments(main, {"attn.constant": ir.UnitAttr.get()})


def name(function: Any) -> str:
    """The name of a function."""
    text: str = ir.StringAttr(function.attributes["sym_name"]).value
    return text


def _walk(op: Any) -> Any:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)


def _arguments(function: Any) -> list[Any]:
    return list(function.regions[0].blocks[0].arguments)


def _make_arguments(function: Any, attributes: dict[str, Any]) -> list[Any]:
    """Turns large constants in the body of a function into its last arguments."""
    taken, arrays = [], []
    for op in function.regions[0].blocks[0].operations:
        if op.operation.name != "stablehlo.constant":
            continue
        type = ir.RankedTensorType(op.results[0].type)
        # MLIR's Python bindings fail on complex attributes; the compiler reports the type.
        if str(type.element_type) not in TYPES or not isinstance(op.attributes["value"], ir.DenseElementsAttr):
            continue
        value = op.attributes["value"]
        if not value.is_splat and math.prod(type.shape) > SMALL and (array := _array(value, type)) is not None:
            taken.append(op.operation)
            arrays.append(array)
    for op, argument in zip(taken, _add_arguments(function, [op.results[0].type for op in taken], attributes)):
        op.results[0].replace_all_uses_with(argument)
        op.erase()
    return arrays


def _add_arguments(function: Any, types: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """Appends arguments to a function."""
    if not types:
        return []
    block = function.regions[0].blocks[0]
    declared = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    held = (list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes
            else [ir.DictAttr.get({})] * len(declared.inputs))
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(list(declared.inputs) + types, list(declared.results)))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(held + [ir.DictAttr.get(attributes)] * len(types))
    return [block.add_argument(type, function.location) for type in types]


def _call_with(call: Any, arguments: list[Any]) -> None:
    """Replaces a call by one with additional operands."""
    made = ir.Operation.create("func.call", results=[result.type for result in call.results],
                               operands=list(call.operands) + arguments,
                               attributes={"callee": call.attributes["callee"]}, loc=call.location,
                               ip=ir.InsertionPoint(call))
    for old, new in zip(call.results, made.results):
        old.replace_all_uses_with(new)
    call.operation.erase()


def _array(value: Any, type: Any) -> Any:
    """The elements of a constant; None if its text has an unsupported form."""
    found = TYPES[str(type.element_type)]
    # MLIR's Python bindings do not support bfloat16; the text contains all elements as hexadecimal bytes.
    text = re.match(r'dense<"0x([0-9A-Fa-f]*)">', str(value))
    if text is None:
        return None
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16 if found == "bfloat16" else found)
    return np.frombuffer(bytes.fromhex(text[1]), dtype=dtype).reshape(type.shape)
