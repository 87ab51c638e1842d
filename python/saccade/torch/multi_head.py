"""Expands torch.nn.functional.multi_head_attention_forward in a graph of Dynamo: projections around
F.scaled_dot_product_attention, as PyTorch computes it."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward
_SIGNATURE = inspect.signature(_MULTI_HEAD)
# Arguments with other values than these change the computation.
_FIXED = {"bias_k": None, "bias_v": None, "add_zero_attn": False, "need_weights": False, "static_k": None,
          "static_v": None, "use_separate_proj_weight": False}  # fmt: skip


def expand_multi_head(graph: GraphModule) -> None:
    """Expands the nodes that return no weights and have no dropout. The others stay as they are."""
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target is not _MULTI_HEAD:
            continue
        bound = _SIGNATURE.bind(*node.args, **node.kwargs)
        bound.apply_defaults()
        if _is_supported(node, bound.arguments):
            with graph.graph.inserting_before(node):
                result = _expand(graph, bound.arguments)
            for user in list(node.users):
                user.replace_all_uses_with(result)
                graph.graph.erase_node(user)
            graph.graph.erase_node(node)


def _is_supported(node: Node, given: dict[str, Any]) -> bool:
    if any(given[name] is not value and given[name] != value for name, value in _FIXED.items()):
        return False
    if given["training"] and given["dropout_p"] or given["in_proj_weight"] is None:
        return False
    if given["is_causal"] and given["attn_mask"] is None:  # PyTorch reports it
        return False
    is_output = all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
    examples = node.meta.get("example_value"), given["query"].meta.get("example_value")
    weight = given["in_proj_weight"].meta.get("example_value")
    if not is_output or None in (*examples, weight) or examples[1].dim() != 3:
        return False
    # Other types mean autocast, which the expanded ops would not apply.
    return bool(examples[0][0].dtype == examples[1].dtype == weight.dtype)


def _expand(graph: GraphModule, given: dict[str, Any]) -> Node:
    """The output [L, B, E] for query [L, B, E], key and value [S, B, E]."""

    def emit(target: Any, *args: Any) -> Node:
        node = graph.graph.call_function(target, args)
        node.meta["example_value"] = target(*torch.fx.map_arg(args, lambda x: x.meta["example_value"]))
        return node

    query, key, value, heads = given["query"], given["key"], given["value"], given["num_heads"]
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    if query is key and key is value:
        packed = emit(torch.chunk, emit(torch.nn.functional.linear, query, weight, bias), 3, -1)
        projected = [emit(operator.getitem, packed, i) for i in range(3)]
    else:
        weights = emit(torch.chunk, weight, 3)
        biases = None if bias is None else emit(torch.chunk, bias, 3)
        projected = [emit(torch.nn.functional.linear, x, emit(operator.getitem, weights, i),
                          None if biases is None else emit(operator.getitem, biases, i))
                     for i, x in enumerate((query, key, value))]
    # [L, B, E] to [B, H, L, D]
    parts = [emit(torch.permute, emit(torch.unflatten, x, -1, (heads, -1)), (1, 2, 0, 3)) for x in projected]
    output = emit(torch.nn.functional.scaled_dot_product_attention, *parts, _mask(emit, given, heads))
    joined = emit(torch.flatten, emit(torch.permute, output, (2, 0, 1, 3)), -2)
    return emit(torch.nn.functional.linear, joined, given["out_proj_weight"], given["out_proj_bias"])


def _mask(emit: Any, given: dict[str, Any], heads: int) -> Node | None:
    """The sum of the masks, broadcastable to [B, H, L, S]: numbers added to the scores."""

    def added(mask: Node) -> Node:
        """Booleans say what to hide."""
        example = mask.meta["example_value"]
        if example.dtype != torch.bool:
            return mask
        return emit(torch.where, mask, float("-inf"), 0.0)

    padding, mask = given["key_padding_mask"], given["attn_mask"]
    total = None
    if mask is not None:
        total = added(mask)
        if total.meta["example_value"].dim() == 3:  # [B * H, L, S]
            total = emit(torch.unflatten, total, 0, (-1, heads))
    if padding is not None:  # [B, S]
        padding = emit(torch.unflatten, added(padding), 0, (-1, 1, 1))
        total = padding if total is None else emit(operator.add, total, padding)
    return total
