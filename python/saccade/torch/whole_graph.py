"""Compiles a whole graph of Dynamo by Saccade's reader of exported programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.export.graph_signature import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

import saccade
from saccade.torch import listed_graphs
from saccade.torch.fallback import requires_grad
from saccade.torch.operators import decompositions
from saccade.torch.program import Result
from saccade.torch.reader import read_graph
from saccade.torch.rewriting import replace_attention


def compile_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph as one program. Its inputs, which include the parameters of modules, are arguments of the program.

    Raises saccade.CompileError or saccade.torch.ExportError: an operator or a type that Saccade does not support;
    NotImplementedError: a gradient is required.
    """
    if requires_grad(*example_inputs):
        raise NotImplementedError("an input requires grad, which the option whole_graph does not support: call under "
                                  "torch.no_grad(), or train without the option")
    # What is kept is reported by the compiler.
    listing, reading, _ = listed_graphs.replace(graph, replace_attention, only_flex=True)
    compiled: Callable[..., Any] = aot_autograd(fw_compiler=_compile, decompositions=decompositions())(
        graph, example_inputs)
    return listing.checked(compiled, reading)


def _compile(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a graph of aten operators without effects."""
    program = read_graph(_as_exported(graph), "graph of torch.compile")
    main = saccade.compile(program.text).main
    returned = program.returned

    def call(*arguments: Any) -> Any:
        given = program.arguments(arguments)
        results = main(*[int(x) if isinstance(x, torch.SymInt) else x for x in given])
        if not isinstance(results, tuple):
            results = (results,)
        return [results[leaf.number] if isinstance(leaf, Result) else leaf for leaf in returned]

    return call


def _as_exported(graph: torch.fx.GraphModule) -> Any:
    """The graph with the attributes of an exported program that the reader reads."""
    inputs, outputs = [], []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            is_size = not isinstance(node.meta.get("val"), torch.Tensor)
            argument = SymIntArgument(name=node.name) if is_size else TensorArgument(name=node.name)
            inputs.append(InputSpec(kind=InputKind.USER_INPUT, arg=argument, target=None))
        elif node.op == "output":
            for value in node.args[0]:
                if not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("val"), torch.Tensor):
                    raise NotImplementedError(f"the graph returns {value}, expected tensors: Saccade compiles whole "
                                              "graphs only if all of their results are tensors")
                argument = TensorArgument(name=value.name)
                outputs.append(OutputSpec(kind=OutputKind.USER_OUTPUT, arg=argument, target=None))
    signature = SimpleNamespace(input_specs=inputs, output_specs=outputs)
    return SimpleNamespace(graph=graph.graph, graph_signature=signature, state_dict={}, constants={},
                           call_spec=SimpleNamespace(in_spec=None, out_spec=None))
