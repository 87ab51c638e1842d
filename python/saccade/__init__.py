"""Python API of the Saccade compiler: attention on torch tensors and NumPy arrays, and compiled MLIR programs.

Importing this package imports neither torch nor NumPy and loads no shared library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from saccade import builders, masks, scores, stats
from saccade._library import (
    CacheInfo,
    cache_clear,
    cache_info,
    disk_cache,
    num_threads,
    set_disk_cache,
    set_num_threads,
)
from saccade._served import served
from saccade.approximations import linformer, orthogonal_features, performer
from saccade.artifact import Artifact, LoadedFunction, load
from saccade.attention import attention
from saccade.binding import BoundFunction
from saccade.conv import causal_conv1d
from saccade.differential import differential_attention
from saccade.errors import CompileError, Diagnostic, NotServed, Warning
from saccade.function import Function, Value
from saccade.linear import linear_attention
from saccade.merging import merge_state
from saccade.module import Module, compile
from saccade.norms import gated_rms_norm
from saccade.regions import TraceError
from saccade.runner import ToolError, run, tool
from saccade.weights import attention_weights

__version__: str
"""The version of the installed package."""

if TYPE_CHECKING:
    from saccade.linting import lint
    from saccade.observe.session import observe
    from saccade.profiling import profile
else:
    # Functions whose modules are imported when they are used.
    _LATE = {"lint": "saccade.linting", "profile": "saccade.profiling"}

    def __getattr__(name: str) -> Any:
        if name == "observe":
            return import_module("saccade.observe")
        if name in _LATE:
            value = globals()[name] = getattr(import_module(_LATE[name]), name)
            return value
        if name != "__version__":
            raise AttributeError(f"module 'saccade' has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version  # imported late: it is slow to import

        try:
            return version("saccade")
        except PackageNotFoundError:
            raise AttributeError("saccade.__version__ needs an installed package") from None


__all__ = [
    "Artifact",
    "BoundFunction",
    "CacheInfo",
    "CompileError",
    "Diagnostic",
    "Function",
    "LoadedFunction",
    "Module",
    "NotServed",
    "ToolError",
    "TraceError",
    "Value",
    "Warning",
    "attention",
    "attention_weights",
    "builders",
    "cache_clear",
    "cache_info",
    "causal_conv1d",
    "compile",
    "differential_attention",
    "disk_cache",
    "gated_rms_norm",
    "linear_attention",
    "linformer",
    "lint",
    "load",
    "masks",
    "merge_state",
    "num_threads",
    "observe",
    "orthogonal_features",
    "performer",
    "profile",
    "run",
    "scores",
    "served",
    "set_disk_cache",
    "set_num_threads",
    "stats",
    "tool",
]
