"""Writes expressions as MLIR text: the body of a region."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saccade.regions.dtypes import COMPUTED, FLOAT, STORED
from saccade.regions.expression import Node

_CASTS = {"arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.index_cast",
          "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci"}  # fmt: skip


def live(*roots: Node) -> list[Node]:
    """The nodes that `roots` depend on, operands first."""
    order: list[Node] = []
    seen: set[int] = set()
    todo: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            todo.append((node, True))
            todo += [(operand, False) for operand in reversed(node.operands)]
    return order


def lines(roots: Sequence[Node], arguments: Sequence[str], captures: Mapping[Any, str],
          capture_types: Mapping[Any, str]) -> Iterable[str]:
    """One line of MLIR per op, `attn.yield` last. Values are named %x0, %x1, ... Captures are found by the attributes
    of the nodes that read them."""
    names: dict[int, str] = {}
    count = 0
    for node in live(*roots):
        operands = [names[id(operand)] for operand in node.operands]
        if node.op == "argument":
            names[id(node)] = arguments[node.attribute]
            continue
        if node.op == "number":
            names[id(node)] = captures[node.attribute]
            continue
        if node.op == "relabel":
            names[id(node)] = operands[0]
            continue
        name = names[id(node)] = f"%x{count}"
        count += 1
        yield from _write(node, name, operands, captures, capture_types)
    yielded = ", ".join(names[id(root)] for root in roots)
    yield f"attn.yield {yielded} : {', '.join(COMPUTED[root.dtype] for root in roots)}"


def _write(node: Node, name: str, operands: list[str], captures: Mapping[Any, str],
           types: Mapping[Any, str]) -> Iterable[str]:
    op, type = node.op, COMPUTED[node.dtype]
    listed = ", ".join(operands)
    if op == "constant":
        yield f"{name} = arith.constant {_literal(node)}"
    elif op == "extent":
        capture, axis = node.attribute
        yield f"{name}_axis = arith.constant {axis} : index"
        yield f"{name} = tensor.dim {captures[capture]}, {name}_axis : {types[capture]}"
    elif op == "load":
        stored = STORED[node.dtype]
        element = name if stored == type else f"{name}_{stored}"
        yield f"{element} = tensor.extract {captures[node.attribute]}[{listed}] : {types[node.attribute]}"
        if stored != type:
            yield f"{name} = arith.{'index_cast' if stored == 'i64' else 'extf'} {element} : {stored} to {type}"
    elif op == "round":
        stored = STORED[node.dtype]
        yield f"{name}_{stored} = arith.truncf {listed} : f32 to {stored}"
        yield f"{name} = arith.extf {name}_{stored} : {stored} to f32"
    elif op == "widen":
        yield f"{name}_i64 = arith.index_cast {listed} : index to i64"
        yield f"{name} = arith.sitofp {name}_i64 : i64 to {type}"
    elif op == "narrow":
        # Via i64: canonicalization folds a pair of index casts that only changes the width.
        yield f"{name}_i64 = arith.index_cast {listed} : index to i64"
        yield f"{name} = arith.trunci {name}_i64 : i64 to {type}"
    elif op == "arith.fptosi" and type == "index":
        yield f"{name}_i64 = arith.fptosi {listed} : {COMPUTED[node.operands[0].dtype]} to i64"
        yield f"{name} = arith.index_cast {name}_i64 : i64 to index"
    elif op in _CASTS:
        yield f"{name} = {op} {listed} : {COMPUTED[node.operands[0].dtype]} to {type}"
    elif op in ("arith.cmpi", "arith.cmpf"):
        yield f"{name} = {op} {node.attribute}, {listed} : {COMPUTED[node.operands[0].dtype]}"
    else:
        yield f"{name} = {op} {listed} : {type}"


def _literal(node: Node) -> str:
    type, number = COMPUTED[node.dtype], node.attribute
    if type == "i1":
        return "true" if number else "false"
    if node.kind != FLOAT:
        # An unsigned byte is written as the signed byte with the same bits.
        return f"{number - 256 if number > 127 and type == 'i8' else number} : {type}"
    if type == "f32":
        try:
            bits = struct.pack(">f", number)
        except OverflowError:
            bits = struct.pack(">f", math.copysign(math.inf, number))
    else:
        bits = struct.pack(">d", number)
    if math.isfinite(number) and float(f"{number:.6g}") == number and abs(number) < 1e30:
        mantissa, _, exponent = f"{number:.6g}".partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{f'e{exponent}' if exponent else ''} : {type}"
    return f"0x{bits.hex().upper()} : {type}"
