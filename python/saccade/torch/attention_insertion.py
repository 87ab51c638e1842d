"""Inserts the operator `saccade::attention` into a graph of Dynamo in place of attention that is written by hand."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import has_static_value

from saccade.module import compile
from saccade.regions import Region, trace
from saccade.torch import attention_operator
from saccade.torch.attention_dims import Letters, Operand
from saccade.torch.differentiated import differentiated, function_of
from saccade.torch.element_index import Dim, Piece, Unknown
from saccade.torch.element_trees import Score, Value
from saccade.torch.products import Product, shape_of
from saccade.torch.traced_drop_ins import is_supported, layout_of
from saccade.torch.tracing import make_program


class Insertion:
    """The nodes that replace attention, whose weights are those of a "softmax", "sigmoid", or "hard"
    (hard_weights.py)."""

    def __init__(self, graph: GraphModule, letters: Letters, score: Score, value: Value, second: Product, kind: str):
        self.graph, self.letters, self.score, self.second = graph, letters, score, second
        self.value = _log_sigmoid(value) if kind == "sigmoid" else value
        self.kind = kind
        self.made: list[Node] = []

    def insert(self, q: Operand, k: Operand, v: Operand, chain: set[Node]) -> Node:
        node = self.second.node
        result = node.meta["example_value"]
        try:
            with self.graph.graph.inserting_before(node):
                call = self._insert(q, k, v, result)
        except (Unknown, TypeError, ValueError, RuntimeError) as error:  # of the tracer and the compiler
            for made in reversed(self.made):
                self.graph.graph.erase_node(made)
            raise Unknown(str(error).split("\n")[0]) from None
        node.replace_all_uses_with(self.made[-1])
        self.graph.graph.erase_node(node)
        for old in reversed(list(self.graph.graph.nodes)):
            if old in chain and not old.users:
                self.graph.graph.erase_node(old)
        return call

    def _insert(self, q: Operand, k: Operand, v: Operand, result: torch.Tensor) -> Node:
        letters = self.letters
        lead = [letters.piece(letter) for letter in letters.lead]
        queries, keys, width = (letters.piece(x) for x in (letters.queries, letters.keys, letters.width))
        # One dimension of heads that keys and values lack is that of grouped heads.
        is_shared = len(lead) > 1 and lead[-1] not in _pieces(k) and lead[-1] not in _pieces(v)
        tensors = [self._arranged(x, [*lead, own, last], is_shared and x is not q, result.dtype)
                   for x, own, last in ((q, queries, "e"), (k, keys, "e"), (v, keys, width))]
        examples = [x.meta["example_value"] for x in tensors]
        q_like, k_like, v_like = examples
        if not is_supported(q_like, k_like, v_like, True):
            raise Unknown(f"query, key and value have shapes {', '.join(str(tuple(x.shape)) for x in examples)}, or "
                          "types or devices that Saccade does not support")
        region, tables = self._region(examples, lead)
        if self.kind == "hard":
            call, output = self._hard(tensors, tables, region, is_shared)
        else:
            call = self._call(tensors, tables, region, return_lse=self.kind == "sigmoid")
            output = call if self.kind == "softmax" else self._sum(call, result.dtype)
        if len(lead) > 2:
            output = self._apply("reshape", output, *[self._extent(x.letter) for x in (*lead, queries, width)])
        order = [*letters.lead, letters.queries, letters.width]
        axes = [order.index(letter) for letter in self.second.result if letter in order]
        if len(axes) != len(order):
            raise Unknown("a dimension of the result is broadcast")
        if axes != sorted(axes):
            output = self._apply("permute", output, *axes)
        if result.dim() != len(axes):
            raise Unknown("a dimension of the result has extent 1 in both operands")
        self._apply("contiguous", output)  # readers may take it for a product, which is contiguous
        return call

    def _call(self, tensors: list[Node], tables: list[Node], region: Region | None, *, return_lse: bool = False,
              return_max: bool = False) -> Node:
        """The operator, which returns the output, and then the log-sum-exp or the row maximum and its key."""
        examples = [x.meta["example_value"] for x in tensors]
        q, _, v = examples
        layout = layout_of(q.dim())
        program = make_program(q.dtype, int(q.shape[-1]), int(v.shape[-1]), layout, region, None, scale=True,
                               lse=return_lse, max=return_max, argmax=return_max)
        _check_compiles(program, examples, tables)
        output = q.new_empty((*q.shape[:-1], v.shape[-1]))
        row = q.new_empty(q.shape[:-1], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
        results = (output, row) if return_lse else (output, row, row.to(torch.int64)) if return_max else output
        return self._add(self.graph.graph.call_function(
            attention_operator.overload(return_lse, return_max), ([*tensors, *tables], program, None, [1.0], layout)),
            results)

    def _hard(self, tensors: list[Node], tables: list[Node], region: Region | None,
              is_shared: bool) -> tuple[Node, Node]:
        """The operator, and the values at the keys with the greatest scores, whose gradient of queries, keys and tables
        is that of a softmax. A row without keys gives 0."""
        read = [self._apply("detach", x) for x in (*tensors, *tables)]  # the row maximum has no gradient
        call = self._call(read[:3], read[3:], region, return_max=True)
        soft, _, place = self._parts(call)
        *others, values = tensors
        if any(x.meta["example_value"].requires_grad for x in (*others, *tables)):
            # The gradient of these values is 0. Without any, a second derivative would be wrong and not an error.
            fixed = self._apply("lerp", read[2], values, 0.0)
            soft = self._call([*others, fixed], tables, region)
        if is_shared:
            values = self._apply("expand", values, -1, self._extent(self.letters.lead[-1]), -1, -1)
        place = self._apply("unsqueeze", place, -1)
        rest = [-1] * (len(place.meta["example_value"].shape) - 1)
        key = self._apply("expand", self._apply("clamp", place, 0), *rest, self._extent(self.letters.width))
        taken = self._apply("masked_fill", self._apply("gather", values, -2, key), self._apply("lt", place, 0), 0.0)
        return call, self._apply("add", taken, self._apply("sub", soft, self._apply("detach", soft)))

    def _parts(self, call: Node) -> list[Node]:
        """The results of an operator."""
        return [self._add(self.graph.graph.call_function(operator.getitem, (call, number)), example)
                for number, example in enumerate(call.meta["example_value"])]

    def _sum(self, call: Node, dtype: torch.dtype) -> Node:
        """The sum of the values times the exponentials of scores: the output without the division by their sum."""
        parts = self._parts(call)
        factor = self._apply("unsqueeze", self._apply("exp", parts[1]), -1)
        return self._apply("to", self._apply("mul", parts[0], factor), dtype)

    def _region(self, examples: list[torch.Tensor], lead: list[Piece]) -> tuple[Region | None, list[Node]]:
        """The score function, and the nodes that it reads."""
        precision = "f64" if examples[0].dtype == torch.float64 else "f32"
        nodes = [self._table(node, index, precision) for node, index in self.score.captures]
        stand_ins: dict[Node, torch.Tensor] = {}
        for node in nodes:
            example = node.meta["example_value"]
            stand_ins.setdefault(node, torch.empty((1,) * example.dim(), dtype=example.dtype))
        letters, value = self.letters, self.value
        extents = {f"#{letter}": extent for letter, extent in letters.extents.items()}

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            at = {letters.queries: i, letters.keys: j} | extents
            at |= _lead_positions(lead, b, h)
            return value(s, at, [stand_ins[node] for node in nodes])

        with torch.no_grad():
            region: Region | None = trace(score, "score", precision, bakes_numbers=True)
        if region is not None and region.root.op == "argument":
            region = None
        read = []
        for capture in () if region is None else region.captures:
            made = next((node for node, known in stand_ins.items() if known is capture), None)
            if made is None:
                raise Unknown("scores are computed with a constant tensor")
            read.append(made)
        return region, read

    def _table(self, node: Node, index: list[Dim], precision: str) -> Node:
        """A tensor that scores are computed with, without the dimensions of extent 1; a 0-d tensor for a number."""
        example = node.meta["example_value"]
        if not isinstance(example, torch.Tensor):
            is_integer = isinstance(example, (int, torch.SymInt))
            dtype = torch.int64 if is_integer else torch.float64 if precision == "f64" else torch.float32
            made = self.graph.graph.call_function(torch.full, ((), node), {"dtype": dtype})
            return self._add(made, torch.empty((), dtype=dtype, device="meta"))
        single = tuple(axis for axis, dim in enumerate(index) if not dim)
        if len(index) != example.dim():
            raise Unknown("a tensor that scores are computed with has more dimensions than they have")
        return self._apply("squeeze", node, single) if single else node

    def _arranged(self, x: Operand, order: list[Any], is_shared: bool, dtype: torch.dtype) -> Node:
        """A tensor as a view with the dimensions of `order`: at most two before the last two."""
        node = x.node
        if node.meta["example_value"].dtype != dtype:
            node = self._apply("to", node, dtype)
        dims: list[Any] = []
        shape: list[Any] = []
        for dim, extent in zip(x.dims, shape_of(x.node) or ()):
            parts = list(dim) if isinstance(dim, tuple) and not isinstance(dim, Piece) else [dim]
            dims += parts
            shape += [extent] if len(parts) == 1 else [part.extent for part in parts]
        if len(dims) != len(x.dims):
            node = self._apply("reshape", node, *shape)
        if unneeded := [axis for axis, dim in enumerate(dims) if dim is None]:
            node = self._apply("squeeze", node, tuple(unneeded))
            dims = [dim for dim in dims if dim is not None]
        present = [dim for dim in order if dim in dims]
        if len(present) != len(dims):
            raise Unknown("a product has a dimension that the other has not")
        axes = [dims.index(dim) for dim in present]
        if axes != sorted(axes):
            node = self._apply("permute", node, *axes)
        missing = [dim for dim in order if dim not in dims]
        for axis, dim in enumerate(order):
            if dim in missing:
                node = self._apply("unsqueeze", node, axis)
        last_lead = len(order) - 3
        broadcast = [dim for axis, dim in enumerate(order) if dim in missing and not (is_shared and axis == last_lead)]
        if "e" in broadcast:
            raise Unknown("a product has a dimension that the other has not")
        if broadcast:
            node = self._apply("expand", node, *[self._extent(dim.letter) if dim in broadcast else -1
                                                 for dim in order])
        if len(order) > 4:
            whole = node.meta["example_value"].shape
            node = self._apply("reshape", node, math.prod(int(extent) for extent in whole[:-3]), *map(int, whole[-3:]))
        return node

    def _extent(self, letter: str) -> int:
        extent = self.letters.extents[letter]
        if not has_static_value(extent):
            raise Unknown("a dimension of dynamic extent is broadcast or joined")
        return int(extent)

    def _apply(self, method: str, node: Node, *arguments: Any) -> Node:
        with torch.no_grad():
            example = getattr(node.meta["example_value"], method)(
                *[x.meta["example_value"] if isinstance(x, Node) else x for x in arguments])
        needs_grad = method != "detach" and any(x.meta["example_value"].requires_grad for x in (node, *arguments)
                                                if isinstance(x, Node))
        if example.requires_grad != needs_grad:
            example.requires_grad_(needs_grad)
        return self._add(self.graph.graph.call_method(method, (node, *arguments)), example)

    def _add(self, node: Node, example: Any) -> Node:
        node.meta["example_value"] = example
        if "stack_trace" in self.second.node.meta:
            for name in ("stack_trace", "nn_module_stack", "source_fn_stack"):
                if name in self.second.node.meta:
                    node.meta[name] = self.second.node.meta[name]
        self.made.append(node)
        return node


def _pieces(x: Operand) -> list[Any]:
    return [piece for dim in x.dims for piece in (dim if isinstance(dim, tuple) and not isinstance(dim, Piece)
                                                  else (dim,))]


def _log_sigmoid(value: Value) -> Value:
    """The logarithm of the weights of sigmoid attention, which have no sum to be divided by."""
    return lambda s, at, read: -torch.nn.functional.softplus(-value(s, at, read))


def _lead_positions(lead: Sequence[Piece], b: Any, h: Any) -> dict[str, Any]:
    """The positions of the dimensions before queries, from the operator's batch and head."""
    if len(lead) == 1:
        return {lead[0].letter: b}
    if not lead:
        return {}
    *outer, last = lead
    found = {last.letter: h}
    stride = 1
    for number, piece in reversed(list(enumerate(outer))):
        digit = b if stride == 1 else b // stride
        found[piece.letter] = digit if number == 0 else digit % int(piece.extent)
        if number:
            stride *= int(piece.extent)
    return found


def _check_compiles(program: str, examples: Sequence[torch.Tensor], tables: Sequence[Node]) -> None:
    """Raises what the compiler reports of the program or of its gradient."""
    if any(x.device.type != "cpu" for x in examples):
        return
    needs = tuple(bool(x.requires_grad) for x in (*examples, *[node.meta["example_value"] for node in tables]))
    if torch.is_grad_enabled() and any(needs):
        function_of(differentiated(program, needs, "attn.gradient"), "host", "attention_gradient")
    else:
        compile(program)
