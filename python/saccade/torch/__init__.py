"""Compiles PyTorch modules through torch.export.

`compile` takes a module or an exported program and returns a callable on torch tensors. `read` returns only the
program: one op `torch.aten.*` in generic form per node of the exported graph. Nothing is computed here; the compiler
implements the operators (docs/guides/torch.md).

The import registers the operators `saccade::attention` in PyTorch, so that graphs that contain them can be loaded.
"""

from typing import TYPE_CHECKING, Any

from saccade import _served

# Saved graphs contain the operators.
from saccade.torch import attention_operator, gradients, layer_operator, linear_operator  # noqa: F401
from saccade.torch.compiled import Compiled, compile
from saccade.torch.errors import ExportError
from saccade.torch.program import Program, Weight
from saccade.torch.reader import load, read

if TYPE_CHECKING:
    from saccade.torch.cache_memory import cache
    from saccade.torch.compiled_gradients import Differentiable, differentiable
    from saccade.torch.flex import flex_attention
    from saccade.torch.overrides import disable, enable, enabled, register_flash_impl
    from saccade.torch.sdpa import scaled_dot_product_attention
    from saccade.torch.serving import append_kvcache, flash_attn_with_kvcache

_served.finds_profiler()

# Modules of the drop-in functions, which are imported when they are used.
_LAZY = {"Differentiable": "compiled_gradients", "differentiable": "compiled_gradients", "disable": "overrides",
         "enable": "overrides", "enabled": "overrides", "register_flash_impl": "overrides", "flex_attention": "flex",
         "scaled_dot_product_attention": "sdpa", "append_kvcache": "serving",
         "cache": "cache_memory", "flash_attn_with_kvcache": "serving"}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'saccade.torch' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"saccade.torch.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Compiled",
    "Differentiable",
    "ExportError",
    "Program",
    "Weight",
    "append_kvcache",
    "cache",
    "compile",
    "differentiable",
    "disable",
    "enable",
    "enabled",
    "flash_attn_with_kvcache",
    "flex_attention",
    "load",
    "read",
    "register_flash_impl",
    "scaled_dot_product_attention",
]
