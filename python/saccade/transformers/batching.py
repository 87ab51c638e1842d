"""`generate_batch` (continuous batching) with attn_implementation="saccade".

Continuous batching takes attention implementations by name: "sdpa" and "paged|eager", which get an additive mask of
all ragged sequences, and FlashAttention. Two functions of it that compare names are wrapped, so that "saccade" is taken
like "sdpa", whether the model supports SDPA or not.
"""

from __future__ import annotations

import functools
from typing import Any

from transformers.generation.continuous_batching import continuous_api, input_outputs


def _is_ours(config: Any, name: str) -> bool:
    return (config._attn_implementation or "").removeprefix("paged|") == name


def admit(name: str) -> None:
    """Lets continuous batching run attention implementation `name` and prepare its masks."""
    manager: Any = continuous_api.ContinuousBatchingManager
    switch, is_needed = manager.switch_to_cb_friendly_attn, input_outputs.attn_mask_is_needed

    @functools.wraps(switch)
    def switch_to_cb_friendly_attn(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        if not _is_ours(model.config, name):
            switch(self, model, *args, **kwargs)

    @functools.wraps(is_needed)
    def attn_mask_is_needed(config: Any) -> bool:
        return _is_ours(config, name) or bool(is_needed(config))

    manager.switch_to_cb_friendly_attn = switch_to_cb_friendly_attn
    input_outputs.attn_mask_is_needed = attn_mask_is_needed
