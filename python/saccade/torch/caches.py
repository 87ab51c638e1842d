"""Caches of Transformers models as pytrees, so that `torch.export` takes modules with them."""

from __future__ import annotations

import sys

import torch


def register_caches(module: torch.nn.Module) -> None:
    """Registers the cache classes of Transformers as pytrees, by Transformers' own functions, if `module` contains a
    model of it: such models return a cache by default. Transformers registers none before its first export."""
    modeling = sys.modules.get("transformers.modeling_utils")
    if modeling is None:
        return
    models = [each for each in module.modules() if isinstance(each, modeling.PreTrainedModel)]
    if not models:
        return
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    # First, because the general form of all caches has their lengths in the tree, so that no other length fits.
    register_dynamic_cache_export_support()
    try:
        from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model
    except ImportError:  # an older Transformers
        return
    for model in models:
        register_cache_pytrees_for_model(model)
