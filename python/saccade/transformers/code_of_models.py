"""What the code of a model does with its attention mask, which decides what it is given.

A StructuredMask converts itself where code uses it as a tensor, but it cannot answer that it is one. Code that asks,
and code that computes attention itself, gets a tensor. Sources are read as Transformers does in
`PreTrainedModel._can_set_attn_implementation`.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

# Code that asks for the type of a mask: isinstance(attention_mask, torch.Tensor), torch.is_tensor(mask), type(mask).
ASKS_FOR_TENSOR = re.compile(
    r"isinstance\(\s*[\w.\[\]\"']*mask\w*\s*,[^)]*\bTensor\b"
    r"|is_tensor\(\s*\w*mask"
    r"|type\(\s*\w*mask\w*\s*\)"
)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def uses_of_mask(config_class: type) -> tuple[bool, bool]:
    """(is_boolean, is_structured) for the models of a configuration class: whether their masks are boolean tensors, as
    for "sdpa", and whether they may have a StructuredMask in place of a tensor. A model that does not call the
    AttentionInterface has the masks of "eager": its code for "sdpa" asks for that name, as Falcon's does."""
    return _uses_of_mask(config_class)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_code_for_sdpa(config_class: type) -> bool:
    """Whether all models of a configuration class have SDPA, and with it a meaning for calls without a mask."""
    return _has_code_for_sdpa(config_class)


@functools.cache
def _has_code_for_sdpa(config_class: type) -> bool:
    return all(each._supports_sdpa for each in _models_of(config_class))


@functools.cache
def _uses_of_mask(config_class: type) -> tuple[bool, bool]:
    models = list(_models_of(config_class))
    is_boolean = all(each._supports_sdpa and each._can_set_attn_implementation() for each in models)
    is_structured = all(_passes_mask_on(each) for each in models)
    return is_boolean, is_structured


def _models_of(config_class: type) -> Iterator[type[PreTrainedModel]]:
    """The model classes that take the configuration, of those that are imported."""
    pending: list[type[PreTrainedModel]] = [PreTrainedModel]
    while pending:
        model = pending.pop()
        pending += model.__subclasses__()
        if model.config_class is config_class:
            yield model


def _passes_mask_on(model: type[PreTrainedModel]) -> bool:
    """Whether the model calls the AttentionInterface and does not ask for the type of its mask."""
    if not model._can_set_attn_implementation():  # also if there is no source
        return False
    return not ASKS_FOR_TENSOR.search(_source(model.__module__))


@functools.cache
def _source(module: str) -> str:
    return inspect.getsource(sys.modules[module])
