"""A cache of Transformers that is not copied at each step."""

from __future__ import annotations

from typing import Any

import torch
from transformers import cache_utils

_SPARE = 256  # positions that are free in the memory of a layer after it has grown, at least


class GrowingLayer(cache_utils.DynamicLayer):  # type: ignore[misc]
    """Keys and values in memory with free positions: new ones are written behind the old ones. Memory that is full is
    replaced by one with half as many positions in addition, so that all copies take time in proportion to the length.
    `keys` and `values` are views of it."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._memory: dict[str, torch.Tensor] = {}

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,
               **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """As DynamicLayer.update. Gradients and torch.compile need copies."""
        tensors = [key_states, value_states]
        if self.is_initialized:
            tensors += [self.keys, self.values]
        is_recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if is_recorded or torch.compiler.is_compiling() or not self._continues(key_states, value_states):
            updated: tuple[torch.Tensor, torch.Tensor] = super().update(key_states, value_states, *args, **kwargs)
            return updated
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._append("keys", self.keys, key_states)
        self.values = self._append("values", self.values, value_states)
        return self.keys, self.values

    def reset(self) -> None:
        """As DynamicLayer.reset."""
        self._memory.clear()
        super().reset()

    def _continues(self, key_states: torch.Tensor, value_states: torch.Tensor) -> bool:
        """Whether the new rows have the type and, except for their number, the extents of those before."""
        if not self.is_initialized:
            return True

        def properties(x: torch.Tensor) -> Any:
            return x.dtype, x.device, x.shape[:-2], x.shape[-1]

        return all(not old.numel() or properties(old) == properties(new)
                   for old, new in ((self.keys, key_states), (self.values, value_states)))  # fmt: skip

    def _append(self, name: str, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        start = old.shape[-2] if old.numel() else 0
        end = start + new.shape[-2]
        memory = self._memory.get(name)
        is_writable = memory is not None and (torch.is_inference_mode_enabled() or not memory.is_inference())
        if memory is None or not is_writable or memory.shape[-2] < end or not _is_start(old, memory):
            memory = new.new_empty((*new.shape[:-2], end + max(_SPARE, end // 2), new.shape[-1]))
            if start:
                memory[..., :start, :] = old
            self._memory[name] = memory
        memory[..., start:end, :] = new
        return memory[..., :end, :]


def _is_start(x: torch.Tensor, memory: torch.Tensor) -> bool:
    """Whether x are the first positions of the memory; operations such as a reordering of beams replace x."""
    found, expected = ((each.data_ptr(), each.stride(), each.shape[:-2], each.dtype) for each in (x, memory))
    return found == expected


class GrowingCache(cache_utils.DynamicCache):  # type: ignore[misc]
    """A DynamicCache that is not copied at each step.

        model.generate(prompts, past_key_values=saccade.transformers.GrowingCache(config=model.config))

    Layers with a sliding window are those of DynamicCache. Under torch.compile, a StaticCache needs no copies.
    """

    layers: list[Any]
    layer_class_to_replicate: Any

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.layers = [GrowingLayer() if type(layer) is cache_utils.DynamicLayer and not layer.is_initialized else layer
                       for layer in self.layers]
        if self.layer_class_to_replicate is cache_utils.DynamicLayer:
            self.layer_class_to_replicate = GrowingLayer
