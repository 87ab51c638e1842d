"""The backend of torch.compile: `torch.compile(model, backend="saccade")`."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch
from torch._dynamo import lookup_backend, register_backend

from saccade import _parameters, _served
from saccade._operands import did_you_mean
from saccade.errors import NotServed
from saccade.torch import listed_graphs
from saccade.torch.graph_report import calls_of, reporting
from saccade.torch.rewriting import replace_attention

_INNER = ("inductor", "eager")


def saccade(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *,
            options: dict[str, Any] | None = None, mode: str | None = None) -> Callable[..., Any]:
    """Compiles a graph of Dynamo.

    Calls of F.scaled_dot_product_attention and flex_attention become the operator `saccade::attention`, which has no
    fixed lengths and batch sizes; `saccade.attention` already is one. The other nodes are compiled by another backend.
    In training, the forward and the backward graph call operators of Saccade.

    Args:
        options: of torch.compile:
            "inner": the backend of the other nodes: "inductor", its default if there is a C++ compiler, "eager", or
            the name of any other backend.
            "whole_graph": True compiles all nodes with Saccade. An operator that it does not support is a
            saccade.CompileError.
            "partition": with "whole_graph", True leaves such operators to PyTorch and compiles the parts between them.
            "require": True raises saccade.NotServed at the compilation if attention of the graph stays PyTorch's.
            "explain": True prints the report of all calls of attention (`saccade.served`) at the end of the process.
            All other options are those of Inductor.
        mode: of torch.compile, which stands for options of Inductor.

    Raises:
        ValueError, TypeError: an invalid option.
    """
    if options is not None and (not isinstance(options, dict) or any(not isinstance(name, str) for name in options)):
        raise TypeError(f"options is {options!r:.80}, expected a dict from names to values")
    options = {name.replace("-", "_"): value for name, value in (options or {}).items()}  # as Inductor reads names
    options = {**_options_of(mode), **options}
    require, explain = (_flag(options, name) for name in ("require", "explain"))
    inner = options.pop("inner", None)
    whole_graph, partition = (_flag(options, name) for name in ("whole_graph", "partition"))
    if inner is not None and not isinstance(inner, str):
        raise TypeError(f'option inner is {inner!r:.80}, expected the name of a backend: "inductor" or "eager"')
    if whole_graph:
        _check_names(options)
        if inner is not None or options:
            found = ", ".join([*["inner"] * (inner is not None), *options])
            raise ValueError("the option whole_graph compiles all nodes with Saccade, expected no other options than "
                             f"partition, require and explain: found {found}")
        from saccade.torch.whole_graph import compile_graph

        return compile_graph(graph, example_inputs, partition=partition, require=require)
    if partition:
        raise ValueError("the option partition divides a graph that whole_graph compiles, expected whole_graph=True")
    listing, reading, replaced = listed_graphs.replace(graph, replace_attention)
    calls = [calls_of(*each) for each in replaced]
    for call in itertools.chain(*calls):
        if require and not call.is_served:
            raise NotServed(_served.describe(call))
    if explain:
        _served.report_everywhere()
    if inner is None:
        inner = "inductor" if has_compiler(example_inputs) else "eager"
    _check_options(options, inner)
    if inner == "inductor":
        patches = {"config_patches": options} if options else {}
        compiled: Callable[..., Any] = lookup_backend("inductor")(graph, example_inputs, **patches)
    else:
        compiled = lookup_backend(inner)(graph, example_inputs)
    if reading is not None:
        return listing.checked(reporting(compiled, calls[0]), reporting(reading, calls[1]))
    return reporting(compiled, calls[0])


def _options_of(mode: Any) -> dict[str, Any]:
    """Inductor's options of a mode of torch.compile."""
    if mode is None:
        return {}
    modes: dict[str, Any] = torch._inductor.list_mode_options()
    if not isinstance(mode, str) or mode not in modes:
        hint = did_you_mean(mode, modes) if isinstance(mode, str) else ""
        raise ValueError(f"mode is {mode!r:.80}{hint}: expected one of {', '.join(map(repr, modes))}")
    return {name.replace("-", "_"): value for name, value in modes[mode].items()}


def _flag(options: dict[str, Any], name: str) -> bool:
    """Takes an option that is True or False."""
    return _parameters.flag(f"option {name}", options.pop(name, False))


_OWN = ("inner", "whole_graph", "partition", "require", "explain")


def _check_options(options: dict[str, Any], inner: str) -> None:
    """Refuses options that neither Saccade nor Inductor has, and those of Inductor for another backend."""
    _check_names(options)
    if options and inner != "inductor":
        raise ValueError(f"the options {', '.join(options)} are those of Inductor, found inner={inner!r}; the options "
                         f"of Saccade are {_listed(_OWN)}")


def _check_names(options: dict[str, Any]) -> None:
    """Refuses options that neither Saccade nor Inductor has."""
    if not options:
        return
    of_inductor = torch._inductor.config.get_config_copy()
    for name in options:
        if name not in of_inductor:
            hint = did_you_mean(name, _OWN) or did_you_mean(name, of_inductor)
            raise ValueError(f'backend="saccade" has no option {name!r}{hint}: its options are {_listed(_OWN)}, '
                             "and those of Inductor")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


# PyTorch registers what an entry point loads; a source tree has none.
if not entry_points(group="torch_dynamo_backends", name="saccade"):
    register_backend(saccade, name="saccade")


def has_compiler(example_inputs: Sequence[Any]) -> bool:
    """Whether Inductor can compile: for the CPU it needs a C++ compiler."""
    on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in example_inputs)
    return on_gpu or any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))
