"""Attention of Transformers models: importing this package registers attn_implementation="saccade".

    >>> import saccade.transformers
    >>> model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="saccade")

The attention function and the mask function are registered under the same name. A name that is registered in the
AttentionInterface only gets no mask, not even for padding.
"""

from transformers import AttentionInterface, AttentionMaskInterface

from saccade import _served
from saccade.transformers import linear_layers, own_code
from saccade.transformers.batching import admit
from saccade.transformers.caches import GrowingCache
from saccade.transformers.interface import NAME, attention_forward
from saccade.transformers.masks import StructuredMask, make_mask

AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, make_mask)
admit(NAME)
linear_layers.admit()
_served.add_watcher(own_code.watch)

__all__ = ["NAME", "GrowingCache", "StructuredMask", "attention_forward", "make_mask"]
