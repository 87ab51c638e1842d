"""A random call of scaled_dot_product_attention that PyTorch accepts."""

import random

import torch
import torch.nn.functional as F
from drop_ins import CALLS_OF_A_FORM, STRIDES, Extremes, tensor, with_gradients
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


class Call:
    """The arguments that follow from a seed, and what they are in words."""

    def __init__(self, seed, shifts=True, calls_of_a_form=CALLS_OF_A_FORM):
        self.shifts = shifts
        self.draw = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        number = seed // calls_of_a_form
        draw, form = self.draw, random.Random(f"form {number}")
        self.type = form.choice(list(TYPES))
        self.rank = draw.choice([2, 3, 3, 4, 4, 4, 4, 4, 5, 5])
        self.has_gqa = self.rank > 2 and draw.random() < 0.3
        self.width = form.choice([8, 8, 8, 16, 16, 1])
        self.value_width = self.width if form.random() < 0.6 else 5
        self.queries = draw.choice([1, 2, 7, 16, 33])
        self.keys = self.queries if draw.random() < 0.4 else draw.choice([1, 3, 9, 20, 70])
        self.mask_kind = form.choice(["none", "bool", "same type", "f32"])
        self.is_causal = self.mask_kind == "none" and form.random() < 0.6
        self.scale = draw.choice([0.3, -0.5, 0.0, 2]) if form.random() < 0.5 else None
        self.mask_axes = form.random(), [form.random() < 0.6 for _ in range(5)]
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
        self.extremes = Extremes(seed, number, shifts)
        self.features += self.extremes.features
        self.query, self.key, self.value = self.extremes.apply(self.query, self.key, self.value)
        if self.mask_kind != "bool" and not self.is_causal:
            self._shift()

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
        return tensor(self.generator, shape, strides, type or TYPES[self.type])

    def _shift(self):
        """Adds the constants of rows to the mask."""
        mask = torch.zeros(1, 1, dtype=TYPES[self.type]) if self.mask is None else self.mask
        shifts = self.extremes.shifts_of(1 if mask.shape[-2] == 1 and self.mask is not None else self.query.shape[-2], mask.dtype)
        if shifts is not None:
            self.mask = (mask + shifts).clamp(min=torch.finfo(mask.dtype).min).masked_fill(mask == -torch.inf, -torch.inf)

    def _make_mask(self):
        draw = self.draw
        full = [*self.lead(), self.query.shape[-2], self.key.shape[-2]]
        share, axes = self.mask_axes
        rank = 2 + int(share * (len(full) - 1))
        shape = [extent if is_whole else 1 for extent, is_whole in zip(full[len(full) - rank:], axes[-rank:])]
        self.features.append("mask " + "".join("1" if extent == 1 else "n" for extent in shape))
        type = {"bool": torch.float32, "f32": torch.float32}.get(self.mask_kind, TYPES[self.type])
        mask = self._tensor(shape, draw.choice(["contiguous", "swapped", "every second"]), type)
        if self.mask_kind == "bool":
            mask = mask > draw.choice([-1.0, 0.0, 1.0])
        elif draw.random() < 0.5:
            self.features.append("-inf")
            least = draw.choice([-torch.inf, torch.finfo(type).min])
            mask = mask.masked_fill(mask < 0, least if self.shifts else -torch.inf)
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

    @property
    def tensors(self):
        return self.query, self.key, self.value, self.mask

    def __call__(self, function, tensors=None):
        """The result of a function with PyTorch's signature."""
        query, key, value, mask = tensors or self.tensors
        return function(query, key, value, attn_mask=mask, is_causal=self.is_causal, scale=self.scale,
                        enable_gqa=self.has_gqa)

    def needs(self):
        """Which of the tensors have gradients."""
        return [x is not None and x.is_floating_point() and is_needed
                for x, is_needed in zip(self.tensors, self.extremes.needs)]

    def weight(self, shape):
        """The gradient of the output."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(TYPES[self.type])

    def gradients(self, function):
        """The output and the gradients of a function with PyTorch's signature."""
        return with_gradients(lambda *x: self(function, x), self.tensors, self.needs(), self.weight)

    def sizes(self):
        """How large the terms are that the gradients of query, key, value and mask are sums of."""
        query, key, value, mask = [None if x is None else x.double().abs() for x in self.tensors]
        weight = self.weight((*self.lead(), self.query.shape[-2], self.value.shape[-1])).double().abs()
        scale = self.scale if self.scale is not None else self.query.shape[-1] ** -0.5
        largest = lambda x: x.max().item() if x.numel() else 0.0
        of_scores = largest(weight) * largest(value) * value.shape[-1] ** 0.5
        rows = max(1, weight[..., 0].numel()) ** 0.5
        # The gradient of a mask is computed from an output in the type of the query.
        coarser = 1 if mask is None else torch.finfo(self.query.dtype).eps / min(
            torch.finfo(x.dtype).eps for x in (self.query, self.mask) if x.is_floating_point())
        return [of_scores * abs(scale) * largest(key), of_scores * abs(scale) * largest(query) * rows,
                largest(weight) * rows, 0 if mask is None else coarser * of_scores * (rows if mask.shape[-2] == 1 or mask.dim() < 4 else 1)]

    def sees(self):
        """Whether a row sees a key: [..., L, 1]."""
        full = (*self.lead(), self.query.shape[-2], self.key.shape[-2])
        shown = torch.ones(full, dtype=torch.bool)
        if self.is_causal:
            shown = shown.tril()
        if self.mask is not None:
            shown = shown & (self.mask if self.mask.dtype == torch.bool else self.mask != -torch.inf)
        return shown.any(-1, keepdim=True)

    def by_math(self, is_exact, order=None, tensors=None):
        """PyTorch's result without fused kernels, in float64 or in the call's type. `order` is that in which the products
        of a score are added."""
        query, key, value, mask = tensors or self.tensors
        convert = lambda x: x.double() if is_exact and x is not None and x.is_floating_point() else x
        ordered = lambda x: convert(x if order is None else x[..., order])
        exact_mask = convert(mask)
        if mask is not None and mask.is_floating_point() and is_exact and self.mask_kind != "bool":
            # The least number of a narrower type is finite in float64, but all scores are as small.
            exact_mask = exact_mask.clamp(min=-1e38).masked_fill(mask == -torch.inf, -torch.inf)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                ordered(query), ordered(key), convert(value), attn_mask=exact_mask, is_causal=self.is_causal,
                scale=self.scale, enable_gqa=self.has_gqa)

    def gradients_by_math(self, is_exact, order=None):
        """As `gradients`, of `by_math`."""
        return with_gradients(lambda *x: self.by_math(is_exact, order, x), self.tensors, self.needs(), self.weight)
