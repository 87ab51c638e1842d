"""Compiles a whole graph of Dynamo by Saccade's reader of exported programs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export.graph_signature import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

import saccade
from saccade import _log
from saccade.errors import NotServed
from saccade.torch import listed_graphs
from saccade.torch.fallback import requires_grad
from saccade.torch.graph_report import place
from saccade.torch.operators import decompositions
from saccade.torch.partition import divide, is_random
from saccade.torch.program import Result
from saccade.torch.reader import read_graph
from saccade.torch.rewriting import replace_attention
from saccade.torch.unsupported import explaining

_ADVICE = 'the option "partition": True leaves them to PyTorch and compiles the rest'


def compile_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, partition: bool = False,
                  require: bool = False) -> Callable[..., Any]:  # fmt: skip
    """The graph as one program. Its inputs, which include the parameters of modules, are arguments of the program.

    Args:
        partition: compiles the parts of the graph that Saccade supports; PyTorch runs the rest.
        require: raises saccade.NotServed if attention of the graph becomes no kernel of attention.

    Raises saccade.CompileError or saccade.torch.ExportError: an operator or a type that Saccade does not support,
    without `partition`; NotImplementedError: a gradient is required.
    """
    if requires_grad(*example_inputs):
        raise NotImplementedError("an input requires grad, which the option whole_graph does not support: call under "
                                  "torch.no_grad(), or train without the option")
    # What is kept is reported by the compiler.
    listing, reading, _ = listed_graphs.replace(graph, replace_attention, only_flex=True)
    calls = [node for node in graph.graph.nodes if node.target is torch.nn.functional.scaled_dot_product_attention]
    programs: list[saccade.Module] = []
    fw_compiler = functools.partial(_compile_parts if partition else _compile_whole, programs=programs)
    table = decompositions()
    if partition:  # PyTorch runs them, and draws the numbers that it draws for the model
        table = {op: each for op, each in table.items() if not is_random(op)}
    compile_aten = aot_autograd(fw_compiler=fw_compiler, decompositions=table)
    compiled: Callable[..., Any] = compile_aten(graph, example_inputs)
    if require and (served := sum(map(_count_attention, programs))) < len(calls):
        raise NotServed(f"{len(calls)} calls of scaled_dot_product_attention, the first at {place(calls[0])}, and "
                        f"{served} kernels of attention: dropout, or an operand that is not supported")
    return listing.checked(compiled, reading)


def _count_attention(module: saccade.Module) -> int:
    """The ops of attention that a program has kernels for."""
    return len(re.findall(r"^attention in ", module.explain(), re.MULTILINE))


def _compile_whole(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], programs: list[saccade.Module]
                   ) -> Callable[..., Any]:  # fmt: skip
    """Compiles a graph of aten operators without effects, and adds the program to `programs`."""
    call: _Program = explaining(graph.graph, lambda: _Program(graph), _ADVICE)
    programs.append(call.module)
    return call.run


def _compile_parts(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], programs: list[saccade.Module]
                   ) -> Callable[..., Any]:  # fmt: skip
    """Compiles what Saccade supports of a graph of aten operators, and adds the programs to `programs`."""
    with _log.step("dividing a graph of torch.compile") as step:
        divided, plan = divide(graph, _Program)
        step.done = str(plan)
    programs += [each.module for each in plan.programs]
    return lambda *arguments: divided(*arguments)


class _Program:
    """A compiled graph of aten operators."""

    def __init__(self, graph: torch.fx.GraphModule):
        with unset_fake_temporarily():  # for constants
            self._program = read_graph(_as_exported(graph), "graph of torch.compile")
            self._weights = [weight.tensor for _, weight in self._program.weights]
        self.module = saccade.compile(self._program.text)
        self._main, self._returned = self.module.main, self._program.returned

    def run(self, *arguments: Any) -> Any:
        """The results of the graph."""
        given = self._program.arguments(arguments)
        results = self._main(*[int(x) if isinstance(x, torch.SymInt) else x for x in given], *self._weights)
        if not isinstance(results, tuple):
            results = (results,)
        return [_as_tensor(results[leaf.number]) if isinstance(leaf, Result) else leaf for leaf in self._returned]


def _as_tensor(x: Any) -> torch.Tensor:
    """A result, which is an array if the program takes no tensors."""
    if isinstance(x, torch.Tensor):
        return x
    if x.dtype.name == "bfloat16":  # of ml_dtypes
        return torch.from_numpy(x.view("uint16")).view(torch.bfloat16)
    return torch.from_numpy(x)


def _as_exported(graph: torch.fx.GraphModule) -> Any:
    """The graph with the attributes of an exported program that the reader reads."""
    inputs, outputs, constants = [], [], _lift_constants(graph)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            is_size = not isinstance(node.meta.get("val"), torch.Tensor)
            argument = SymIntArgument(name=node.name) if is_size else TensorArgument(name=node.name)
            is_constant = node.name in constants
            kind = InputKind.CONSTANT_TENSOR if is_constant else InputKind.USER_INPUT
            inputs.append(InputSpec(kind=kind, arg=argument, target=node.name if is_constant else None))
        elif node.op == "output":
            for value in node.args[0]:
                if not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("val"), torch.Tensor):
                    raise NotImplementedError(f"the graph returns {value}, a number, expected tensors: Saccade "
                                              "compiles whole graphs only if all of their results are tensors; the "
                                              'option "partition": True returns numbers too')
                argument = TensorArgument(name=value.name)
                outputs.append(OutputSpec(kind=OutputKind.USER_OUTPUT, arg=argument, target=None))
    signature = SimpleNamespace(input_specs=inputs, output_specs=outputs)
    return SimpleNamespace(graph=graph.graph, graph_signature=signature, state_dict={}, constants=constants,
                           call_spec=SimpleNamespace(in_spec=None, out_spec=None))


def _lift_constants(graph: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    """Replaces the tensors that the graph has as attributes by inputs; returns them by the names of the inputs."""
    constants: dict[str, torch.Tensor] = {}
    first = next(iter(graph.graph.nodes))
    for node in graph.graph.find_nodes(op="get_attr"):
        tensor = functools.reduce(getattr, node.target.split("."), graph)
        if not isinstance(tensor, torch.Tensor):
            continue
        with graph.graph.inserting_before(first):
            given = graph.graph.placeholder(node.name)
        given.meta = dict(node.meta, val=node.meta.get("val", tensor))
        node.replace_all_uses_with(given)
        graph.graph.erase_node(node)
        constants[given.name] = tensor
    return constants
