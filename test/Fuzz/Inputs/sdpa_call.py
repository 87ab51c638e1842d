"""A random call of scaled_dot_product_attention that PyTorch accepts."""

import random

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
STRIDES = ["contiguous", "contiguous", "swapped", "sliced", "every second"]


class Call:
    """The arguments that follow from a seed, and what they are in words."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        draw = self.draw
        self.type = draw.choice(list(TYPES))
        self.rank = draw.choice([2, 3, 3, 4, 4, 4, 4, 4, 5, 5])
        self.has_gqa = self.rank > 2 and draw.random() < 0.3
        self.width = draw.choice([8, 8, 8, 16, 16, 1])  # few sizes, because each is a kernel
        self.value_width = self.width if draw.random() < 0.6 else 5
        self.queries = draw.choice([1, 2, 7, 16, 33])
        self.keys = self.queries if draw.random() < 0.4 else draw.choice([1, 3, 9, 20, 70])
        self.mask_kind = draw.choice(["none", "bool", "same type", "f32"])
        self.is_causal = self.mask_kind == "none" and draw.random() < 0.4
        self.scale = draw.choice([None, None, 0.3, -0.5, 0.0, 2])
        self.broadcast = draw.choice(["none", "none", "none", "kv batch", "kv heads", "query", "ranks"])
        self.strides = [draw.choice(STRIDES) for _ in range(3)]
        self.features = [self.type, f"{self.rank}-D", f"mask {self.mask_kind}", self.broadcast, *self.strides,
                         *(["gqa"] if self.has_gqa else []), *(["causal"] if self.is_causal else []),
                         *(["scale"] if self.scale is not None else []),
                         *(["other value size"] if self.value_width != self.width else []),
                         "queries = keys" if self.queries == self.keys else "queries != keys"]
        self._make_tensors()
        if draw.random() < 0.04:
            self._make_empty()
        self.mask = None if self.mask_kind == "none" else self._make_mask()

    def _make_tensors(self):
        draw = self.draw
        lead = [draw.choice([1, 2, 3]) for _ in range(self.rank - 2)]
        kv_lead = list(lead)
        query_lead = list(lead)
        if self.has_gqa:
            kv_heads = draw.choice([1, 2])
            kv_lead[-1], query_lead[-1] = kv_heads, kv_heads * draw.choice([1, 2, 3])
        last = len(lead) - (1 if self.has_gqa else 0)  # the dimensions that broadcast
        if self.broadcast == "kv batch" and last:
            kv_lead[0] = 1
        elif self.broadcast == "kv heads" and lead and not self.has_gqa:
            kv_lead[-1] = 1
        elif self.broadcast == "query" and last:
            query_lead[draw.randrange(last)] = 1
        elif self.broadcast == "ranks" and last:
            kv_lead = kv_lead[1:]
        value_lead = kv_lead
        if self.broadcast != "none" and last and kv_lead and draw.random() < 0.3:
            value_lead = [1 if i < last and draw.random() < 0.5 else extent for i, extent in enumerate(kv_lead)]
        self.query = self._tensor([*query_lead, self.queries, self.width], self.strides[0])
        self.key = self._tensor([*kv_lead, self.keys, self.width], self.strides[1])
        self.value = self._tensor([*value_lead, self.keys, self.value_width], self.strides[2])

    def _make_empty(self):
        """One of the dimensions is empty."""
        what = self.draw.choice(["queries", "keys", "value size", *(["batch"] if self.rank > 3 else [])])
        self.features.append("empty")
        if what == "queries":
            self.query = self.query[..., :0, :]
        elif what == "keys":
            self.key, self.value = self.key[..., :0, :], self.value[..., :0, :]
        elif what == "value size":
            self.value = self.value[..., :0]
        elif self.broadcast == "none":
            self.query, self.key, self.value = self.query[:0], self.key[:0], self.value[:0]

    def _tensor(self, shape, strides, type=None):
        """A tensor of normal numbers whose memory is laid out in one of the ways of STRIDES."""
        type = type or TYPES[self.type]
        make = lambda extents: torch.randn(extents, generator=self.generator).to(type)
        if strides == "swapped" and len(shape) > 2:
            return make([*shape[:-3], shape[-2], shape[-3], shape[-1]]).transpose(-2, -3)
        if strides == "sliced":
            return make([*shape[:-1], 3 * shape[-1] + 1])[..., shape[-1]: 2 * shape[-1]]
        if strides == "every second":
            return make([*shape[:-1], 2 * shape[-1]])[..., ::2]
        return make(shape)

    def _make_mask(self):
        draw = self.draw
        full = [*self.lead(), self.query.shape[-2], self.key.shape[-2]]
        rank = draw.randint(2, len(full))
        shape = [extent if draw.random() < 0.6 else 1 for extent in full[len(full) - rank:]]
        self.features.append("mask " + "".join("1" if extent == 1 else "n" for extent in shape))
        type = {"bool": torch.float32, "f32": torch.float32}.get(self.mask_kind, TYPES[self.type])
        mask = self._tensor(shape, draw.choice(["contiguous", "swapped", "every second"]), type)
        if self.mask_kind == "bool":
            mask = mask > draw.choice([-1.0, 0.0, 1.0])
        elif draw.random() < 0.5:
            self.features.append("-inf")
            mask = mask.masked_fill(mask < 0, draw.choice([-torch.inf, torch.finfo(type).min]))
        if draw.random() < 0.2:
            self.features.append("expanded")
            mask = mask.expand(full)
        return mask

    def lead(self):
        """The leading dimensions of the output."""
        if not self.has_gqa:
            return torch.broadcast_shapes(*(x.shape[:-2] for x in (self.query, self.key, self.value)))
        batch = torch.broadcast_shapes(*(x.shape[:-3] for x in (self.query, self.key, self.value)))
        return (*batch, self.query.shape[-3])

    def __str__(self):
        tensors = (self.query, self.key, self.value, *(() if self.mask is None else (self.mask,)))
        shapes = " ".join(f"{tuple(x.shape)}/{x.stride()}" for x in tensors)
        return f"{', '.join(dict.fromkeys(self.features))}: {shapes} scale={self.scale}"

    def __call__(self, function):
        """The result of a function with PyTorch's signature."""
        return function(self.query, self.key, self.value, attn_mask=self.mask, is_causal=self.is_causal,
                        scale=self.scale, enable_gqa=self.has_gqa)

    def by_math(self, is_exact, order=None):
        """PyTorch's result without fused kernels, in float64 or in the call's type. `order` is that in which the products
        of a score are added."""
        convert = lambda x: x.double() if is_exact and x is not None and x.is_floating_point() else x
        ordered = lambda x: convert(x if order is None else x[..., order])
        mask = convert(self.mask)
        if mask is not None and mask.is_floating_point() and is_exact and self.mask_kind != "bool":
            # The least number of a narrower type is finite in float64, but all scores are as small.
            mask = mask.clamp(min=-1e38).masked_fill(self.mask == -torch.inf, -torch.inf)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                ordered(self.query), ordered(self.key), convert(self.value), attn_mask=mask, is_causal=self.is_causal,
                scale=self.scale, enable_gqa=self.has_gqa)
