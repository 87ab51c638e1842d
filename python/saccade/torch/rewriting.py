"""Replaces attention in a graph of Dynamo by the operator `saccade::attention`."""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from saccade.regions import Region, TraceError, trace
from saccade.torch import attention_operator, block_lists
from saccade.torch.attention_candidates import candidates
from saccade.torch.element_index import Unknown
from saccade.torch.listed_graphs import Listing
from saccade.torch.multi_head import expand_multi_head
from saccade.torch.raising import raise_attention
from saccade.torch.sdpa import mask_functions
from saccade.torch.traced_drop_ins import is_supported, layout_of, mask_dimensions
from saccade.torch.tracing import make_program

_SDPA = torch.nn.functional.scaled_dot_product_attention
_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward
_MULTI_HEAD_KEPT = ("it returns weights, or has dropout, bias_k, add_zero_attn, separate projections, other types than "
                    "its weights, or a mask that PyTorch reports")
_FUSED = (torch._transformer_encoder_layer_fwd, torch._native_multi_head_attention)
_FUSED_KEPT = ("it is one operator of PyTorch's fast path of inference: torch.backends.mha.set_fastpath_enabled(False) "
               "before the compilation turns it off")
_FLEX = torch.ops.higher_order.flex_attention
_SDPA_SIGNATURE = inspect.Signature([
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default) for name, default in (
        ("query", inspect.Parameter.empty), ("key", inspect.Parameter.empty), ("value", inspect.Parameter.empty),
        ("attn_mask", None), ("dropout_p", 0.0), ("is_causal", False), ("scale", None), ("enable_gqa", False))])


class Kept(Exception):
    """A node that stays PyTorch's, with the reason as its message."""


def replace_attention(graph: GraphModule, *, only_flex: bool = False,
                      listing: Listing | None = None) -> tuple[list[Node], list[tuple[Node, Kept]]]:
    """Replaces calls of F.scaled_dot_product_attention, flex_attention and multi_head_attention_forward in a graph of
    torch.compile, and attention written by hand (raising.py), or only flex_attention, also in one of torch.export.

    Args:
        listing: decides which lists of blocks are read. None reads none, as PyTorch's uncompiled operator, which is
            what an exported program calls.

    Returns:
        The nodes of the operator that replace others, and the nodes that stay PyTorch's, which Saccade does not
        compute, with the reasons.
    """
    if not only_flex:
        _ignore_unread_weights(graph)
        expand_multi_head(graph)
    targets = (_FLEX,) if only_flex else (_SDPA, _FLEX)
    replaced: list[Node] = []
    kept = []
    unread: set[Node] = set()
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target not in targets:
            continue
        ancestors = _ancestors([node]) - {node}
        try:
            with graph.graph.inserting_before(node):
                made = _replace_sdpa(graph, node) if node.target is _SDPA else _replace_flex(graph, node, listing)
            replaced.append(made)
            unread |= ancestors
        except Kept as reason:
            kept.append((node, reason))
    _drop_recorded(graph)
    if replaced:
        _drop_unused(graph, unread)
    if not only_flex:
        for node, first, second in candidates(graph):
            try:
                replaced.append(raise_attention(graph, node, first, second))
            except Unknown as reason:
                kept.append((node, Kept(str(reason))))
        kept += [(node, Kept(_MULTI_HEAD_KEPT)) for node in graph.graph.nodes if node.target is _MULTI_HEAD]
        kept += [(node, Kept(_FUSED_KEPT)) for node in graph.graph.nodes if node.target in _FUSED]
    graph.recompile()
    return replaced, kept


def _ignore_unread_weights(graph: GraphModule) -> None:
    """Lets calls of multi_head_attention_forward return no weights if nothing reads them, as modules ask for them by
    default."""
    for node in list(graph.graph.nodes):
        if node.target is not _MULTI_HEAD or node.kwargs.get("need_weights") is not True:
            continue
        readers = [user for user in node.users if user.target is operator.getitem and user.args[1] == 1]
        if any(user.users for user in readers):
            continue
        for user in readers:
            graph.graph.erase_node(user)
        node.kwargs = {**node.kwargs, "need_weights": False}


def _value(x: Any) -> Any:
    """What an argument of a node is at the compilation: a fake tensor, a symbolic number or a constant."""
    if not isinstance(x, Node):
        return x
    value = x.meta.get("example_value", x.meta.get("val"))  # of Dynamo, and of torch.export
    if value is None:
        raise Kept(f"'{x.name}' has no example value")
    return value


def _replace_sdpa(graph: GraphModule, node: Node) -> Node:
    given = _SDPA_SIGNATURE.bind(*node.args, **node.kwargs)
    given.apply_defaults()
    query, key, value, mask, dropout, is_causal, scale, enable_gqa = given.arguments.values()
    result = _value(node)
    if dropout != 0.0 or not isinstance(is_causal, bool) or not isinstance(enable_gqa, bool):
        raise Kept("dropout is not supported")
    # The result has the element type of autocast, which the operator does not apply.
    tensors = [_cast(graph, x, result.dtype) for x in (query, key, value)]
    _check(tensors, enable_gqa)
    rank = _value(query).dim()
    score = mask_region = None
    captures: list[Node] = []
    if mask is not None:
        example = _value(mask)
        if is_causal or example.dtype not in (torch.bool, torch.float32, result.dtype):
            raise Kept("the mask is one that PyTorch reports")
        dimensions = mask_dimensions(example, (*_value(query).shape[:-1], _value(key).shape[-2]))
        if dimensions is None:
            raise Kept("the mask does not broadcast to queries and keys")
        names, single = dimensions
        table = graph.graph.call_function(torch.squeeze, (mask, single)) if single else mask
        if single:
            table.meta["example_value"] = example.squeeze(single)
        stand_in = _stand_in(table)
        precision = "f64" if result.dtype == torch.float64 else "f32"
        for role, function in mask_functions(names, stand_in).items():
            region = _trace(function, role, precision)
            score, mask_region = (region, None) if role == "score" else (None, region)
        captures.append(table)
    return _insert(graph, node, tensors, captures, layout_of(rank), score, mask_region, scale,
                   causal="top_left" if is_causal else None)


def _replace_flex(graph: GraphModule, node: Node, listing: Listing | None) -> Node:
    given = dict(zip(("query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_buffers",
                      "mask_buffers"), node.args))
    given.update(node.kwargs)
    readers = {user.args[1] for user in node.users if user.target is operator.getitem}
    if len(readers) == 0 or not readers <= {0, 1}:
        raise Kept("the row maxima are read")
    tensors = [given[name] for name in ("query", "key", "value")]
    _check(tensors, True)
    precision = "f64" if _value(tensors[0]).dtype == torch.float64 else "f32"
    score, captures = _trace_subgraph(graph, given["score_mod"], given["score_buffers"], "score", precision)
    mask, read = _trace_subgraph(graph, given["block_mask"][-1], given["mask_buffers"], "mask", precision)
    *_, rows, columns, _ = given["block_mask"]
    if block_lists.has_lists((rows, columns)):
        if listing is None and mask is None:
            raise Kept("its mask is given by lists of blocks only")
        if listing is not None and not (mask is not None and listing.follows_mask(given, mask, read, precision)):
            table = _table(graph, given, tensors)
            mask, read = _trace_subgraph(graph, given["block_mask"][-1], given["mask_buffers"], "mask", precision,
                                         table)
    captures += read
    has_lse = 1 in readers
    call = _insert(graph, node, tensors, captures, "bhsd", score, mask, given["scale"], return_lse=has_lse)
    if has_lse:
        _scale_lse(graph, call)
    return call


def _scale_lse(graph: GraphModule, call: Node) -> None:
    """The higher-order operator returns the logarithm to base 2."""
    for user in list(call.users):
        if user.args[1] == 1:
            with graph.graph.inserting_after(user):
                scaled = graph.graph.call_function(operator.mul, (user, 1.0 / math.log(2.0)))
            scaled.meta["example_value"] = user.meta.get("example_value")
            user.replace_all_uses_with(scaled, delete_user_cb=lambda reader: reader is not scaled)


def _check(tensors: Sequence[Any], enable_gqa: bool) -> None:
    query, key, value = examples = [_value(x) for x in tensors]
    if not all(isinstance(x, torch.Tensor) for x in examples) or not is_supported(query, key, value, enable_gqa):
        shapes = ", ".join(str(tuple(getattr(x, "shape", ()))) for x in examples)
        raise Kept(f"query, key and value have shapes {shapes}, or types or devices that Saccade does not support")


def _cast(graph: GraphModule, x: Any, dtype: torch.dtype) -> Any:
    if not isinstance(x, Node) or _value(x).dtype == dtype:
        return x
    cast = graph.graph.call_method("to", (x, dtype))
    cast.meta["example_value"] = _value(x).to(dtype)
    return cast


def _stand_in(x: Any) -> torch.Tensor:
    """A tensor with the element type and rank of a node's value, which is all that tracing reads."""
    example = _value(x)
    return torch.empty((1,) * example.dim(), dtype=example.dtype)


def _trace(function: Callable[..., Any], role: str, precision: str) -> Region:
    with torch.no_grad():
        return trace(function, role, precision, bakes_numbers=True)  # the operator reads tensors


def _trace_subgraph(graph: GraphModule, function: Node, buffers: Sequence[Any], role: str, precision: str,
                    table: tuple[str, Node, Sequence[int]] | None = None) -> tuple[Region | None, list[Node]]:
    """The region of a function that Dynamo traced to a submodule, and the nodes of the tensors that it reads.

    Args:
        table: of lists of blocks that are read too: its dimensions, its node and the size of blocks.
    """
    submodule = graph.get_submodule(str(function.target))
    nodes = [_as_tensor(graph, buffer, precision) if isinstance(buffer, Node) else buffer for buffer in buffers]
    stand_ins = [_stand_in(x) if isinstance(x, Node) else x for x in nodes]

    def call(*arguments: Any) -> Any:
        return submodule(*arguments, *stand_ins)

    function_of_all, known = call, list(zip(stand_ins, nodes))
    if table is not None:
        names, made, block_size = table
        known.append((_stand_in(made), made))
        is_noop = _trace(call, role, precision).root.constant is True
        function_of_all = block_lists.mask_of_table(names, known[-1][0], block_size, None if is_noop else call)
    function_of_all.__name__ = f"{role}_mod"
    try:
        region = _trace(function_of_all, role, precision)
    except TraceError as error:
        raise Kept(str(error)) from None
    if region.root.op == "argument" if role == "score" else region.root.constant:  # it changes nothing
        return None, []
    read = []
    for capture in region.captures:
        node = next((node for stand_in, node in known if stand_in is capture), None)
        if node is None:
            raise Kept("a function reads a constant tensor of the graph")
        read.append(node)
    return region, read


def _table(graph: GraphModule, given: dict[str, Any], tensors: Sequence[Any]) -> tuple[str, Node, Sequence[int]]:
    """What the lists of blocks say: the dimensions, the node of the kinds of blocks, and the size of blocks."""
    block_size = [int(_value(x)) for x in given["block_mask"][-3:-1]]
    arguments = (*given["block_mask"][2:6], block_size[1], *tensors[:2])
    pair = graph.graph.call_function(block_lists.table_of, arguments)
    with getattr(_value(arguments[0]), "fake_mode", contextlib.nullcontext()):  # for the tensors that it creates
        try:
            names, example = block_lists.table_of(*map(_value, arguments))
        except ValueError as error:
            graph.graph.erase_node(pair)
            raise Kept(str(error)) from None
    table = graph.graph.call_function(operator.getitem, (pair, 1))
    pair.meta["example_value"], table.meta["example_value"] = (names, example), example
    return names, table, block_size


def _as_tensor(graph: GraphModule, number: Node, precision: str) -> Node:
    """A captured number that varies as a 0-d tensor; tensors as they are."""
    example = _value(number)
    if isinstance(example, torch.Tensor):
        return number
    is_integer = isinstance(example, (int, torch.SymInt))
    dtype = torch.int64 if is_integer else torch.float64 if precision == "f64" else torch.float32
    made = graph.graph.call_function(torch.full, ((), number), {"dtype": dtype})
    made.meta["example_value"] = torch.empty((), dtype=dtype, device="meta")
    return made


def _insert(graph: GraphModule, node: Node, tensors: Sequence[Any], captures: list[Node], layout: str,
            score: Region | None, mask: Region | None, scale: Any, *, causal: str | None = None,
            return_lse: bool = False) -> Node:
    """Inserts the operator and replaces the node by it."""
    query, value = _value(tensors[0]), _value(tensors[2])
    # Sizes that the program contains become static.
    head_dim, head_dim_v = int(query.shape[-1]), int(value.shape[-1])
    factor = _value(scale)
    if factor is not None:
        factor = float(factor)
        if math.isclose(factor, head_dim ** -0.5, rel_tol=1e-15):
            factor = None
    program = make_program(query.dtype, head_dim, head_dim_v, layout, score, mask, causal=causal,
                           scale=factor is not None, lse=return_lse)
    floats = [] if factor is None else [factor]
    call = graph.graph.call_function(attention_operator.overload(return_lse, False),
                                     ([*tensors, *captures], program, None, floats, layout))
    call.meta.update(node.meta)
    call.meta["saccade_function"] = getattr(node.target, "__name__", "flex_attention")
    if node.target is _FLEX and not return_lse:  # the results of the node are a tuple
        for user in list(node.users):
            user.replace_all_uses_with(call)
            graph.graph.erase_node(user)
        call.meta["example_value"] = _value(node)[0]
    else:
        node.replace_all_uses_with(call)
    graph.graph.erase_node(node)
    return call


# --- nodes that are not needed any more ------------------------------------------------------------------------------


def _ancestors(nodes: Sequence[Node]) -> set[Node]:
    """The nodes and all that they are computed from."""
    found: set[Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _drop_recorded(graph: GraphModule) -> None:
    """Removes what recording.py leaves: computations on tensors without elements that nothing reads."""
    for node in reversed(list(graph.graph.nodes)):
        example = node.meta.get("example_value")
        if node.op.startswith("call") and not node.users and isinstance(example, torch.Tensor) and example.is_meta:
            graph.graph.erase_node(node)


def _drop_unused(graph: GraphModule, unread: set[Node]) -> None:
    """Removes the nodes of `unread`, the former inputs of replaced nodes, that nothing else needs: submodules, and the
    lists of blocks that flex_attention computes with vmap."""
    nodes = list(graph.graph.nodes)
    for node in nodes:  # what is written to a tensor that is not read is not read either
        if _written(node) in unread:
            unread |= _ancestors([node])
    inputs = {node for node in nodes if node.op in ("placeholder", "get_attr")}

    def is_nesting(node: Node) -> bool:
        return getattr(node.target, "__module__", "") == "torch._functorch.predispatch"

    def may_drop(node: Node) -> bool:
        """Whether a node has no effect outside of `unread`: it writes at most to tensors that it made."""
        if node.op not in ("call_function", "call_method", "get_attr"):
            return False
        written = _written(node)
        return written is None or written in unread and not _ancestors([written]) & inputs

    # The levels of vmap are opened and closed by nodes without users, all of which go or stay.
    drops_nesting = all(node in unread or not node.all_input_nodes for node in nodes if is_nesting(node))
    droppable = {node for node in nodes
                 if (node in unread or is_nesting(node) and drops_nesting)
                 and may_drop(node)}
    live = _ancestors([node for node in nodes if node not in droppable])
    while True:  # a write to a tensor that is read keeps the tensor
        written = [node for node in droppable - live if _written(node) in live and _written(node) is not None]
        if not written:
            break
        live |= _ancestors(written)
    if any(is_nesting(node) for node in live):
        live |= _ancestors([node for node in nodes if is_nesting(node)])
    for node in reversed(nodes):
        if node in droppable and node not in live:
            graph.graph.erase_node(node)
    graph.delete_all_unused_submodules()


def _written(node: Node) -> Node | None:
    """The tensor that a node writes to."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_write = node.target is operator.setitem or name.endswith("_") and not name.endswith("__")
    return node.args[0] if is_write and node.args and isinstance(node.args[0], Node) else None
