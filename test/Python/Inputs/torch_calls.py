"""The program of one call of a PyTorch operator, without an export: the reader is given a graph of that call alone."""

import types
from operator import getitem

import torch
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from saccade.torch.reader import _Reader


def program_of(overload, given, results):
    """The text of `overload(**given)`, whose results PyTorch has computed, and its tensors in order."""
    graph, inputs = torch.fx.Graph(), []

    def replaced(value):
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder(f"x{len(inputs)}")
        node.meta["val"] = value
        inputs.append((node, value))
        return node

    flat, tree = pytree.tree_flatten(given)
    arguments = pytree.tree_unflatten([replaced(each) for each in flat], tree)
    # As an export writes it: the first arguments by position.
    first = []
    for argument in overload._schema.arguments:
        if argument.kwarg_only or argument.name not in arguments:
            break
        first.append(arguments.pop(argument.name))
    call = graph.call_function(overload, tuple(first), arguments)
    call.meta["val"] = results
    returned = [call]
    if isinstance(results, (tuple, list)):
        returned = []
        for i, each in enumerate(results):
            part = graph.call_function(getitem, (call, i))
            part.meta["val"] = each
            returned.append(part)
    graph.output(tuple(returned))
    signature = types.SimpleNamespace(
        input_specs=[InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None) for node, _ in inputs],
        output_specs=[OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in returned])
    exported = types.SimpleNamespace(graph=graph, graph_signature=signature, state_dict={}, constants={},
                                     call_spec=types.SimpleNamespace(in_spec=None, out_spec=None))  # fmt: skip
    return _Reader(exported, "call").program().text, [value for _, value in inputs]
