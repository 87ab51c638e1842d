"""A random call of flex_attention: functions of lambdas.py, a BlockMask whose lists may differ from its mask_mod, and the same
evaluated on all pairs from the lists."""

import pathlib
import random
import sys

import lambdas
import torch
from drop_ins import CALLS_OF_A_FORM, STRIDES, Extremes, tensor, with_gradients
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "Python" / "Inputs"))
from dense_lists import dense_lists

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
LISTS = ["none", "function", "created", "created", "cut", "random", "random alone"]


class Call:
    """The arguments that follow from a seed."""

    def __init__(self, seed, shifts=True, calls_of_a_form=CALLS_OF_A_FORM):
        self.seed = seed
        number = seed // calls_of_a_form
        form, draw = random.Random(f"form {number}"), random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.type = form.choice(["f32", "f32", *TYPES])
        self.width, self.value_width = form.choice([8, 8, 16]), form.choice([0, 0, 5])
        self.value_width = self.value_width or self.width
        self.lists = form.choice(LISTS)
        self.has_score = form.random() < 0.6
        self.scale = draw.choice([0.3, -0.5]) if form.random() < 0.3 else None
        self.batch, self.kv_heads, self.group = draw.choice([1, 2]), draw.choice([1, 2]), draw.choice([1, 1, 2, 3])
        self.queries = draw.choice([1, 7, 16, 33, 65])
        self.keys = self.queries if draw.random() < 0.4 else draw.choice([1, 9, 32, 70])
        self.block_size = draw.choice([(8, 8), (16, 4), (4, 16), (128, 128)])
        self.strides = [draw.choice(STRIDES) for _ in range(3)]
        self.extremes = Extremes(seed, number, shifts)
        heads = self.kv_heads * self.group
        make = lambda heads, length, width, strides: tensor(
            self.generator, [self.batch, heads, length, width], strides, TYPES[self.type])
        self.query = make(heads, self.queries, self.width, self.strides[0])
        self.key = make(self.kv_heads, self.keys, self.width, self.strides[1])
        self.value = make(self.kv_heads, self.keys, self.value_width, self.strides[2])
        self.query, self.key, self.value = self.extremes.apply(self.query, self.key, self.value)
        # Functions of a form have the same code; their tensors differ by the sizes.
        sizes = lambdas.Sizes(self.batch, heads, self.queries, self.keys)
        drawn = lambda role: lambdas.draw(random.Random(f"{role} {number}"), role, sizes)
        self.mask = None if self.lists in ("none", "random alone") else drawn("mask")
        self.score = drawn("score") if self.has_score else None
        self.captures = [] if self.score is None else [
            x for x in self.score.tensors.values() if x.is_floating_point()]
        self.shift = None
        if self.score is None:
            self._shift()
        self.block_mask = self._make_block_mask(draw, heads)

    def _shift(self):
        """A score function that adds the constants of rows."""
        shifts = self.extremes.shifts_of(self.queries, torch.float64 if self.type == "f64" else torch.float32)
        if shifts is not None:
            self.shift = shifts = shifts[:, 0]
            self.shift_mod = lambda s, b, h, i, j: s + shifts[i]

    @property
    def features(self):
        return [self.type, f"lists {self.lists}", *self.strides, *self.extremes.features,
                *(["score"] if self.has_score else []), *(["gqa"] if self.group > 1 else []),
                *(["scale"] if self.scale is not None else []), f"blocks {self.block_size}",
                *(["other value size"] if self.value_width != self.width else [])]

    def _make_block_mask(self, draw, heads):
        if self.lists == "none":
            return None
        function = None if self.mask is None else self.mask.function
        if self.lists == "function":
            return function
        batch, made_heads = draw.choice([1, self.batch]), draw.choice([1, heads])
        rows, columns = self.block_size
        if self.lists in ("created", "cut"):
            made = create_block_mask(function, batch, made_heads, self.queries, self.keys, device="cpu",
                                     BLOCK_SIZE=self.block_size, separate_full_blocks=draw.random() < 0.8)
            if self.lists == "cut":
                made.kv_num_blocks.clamp_(max=draw.choice([0, 1, 2]))
                if made.full_kv_num_blocks is not None and draw.random() < 0.5:
                    made.full_kv_num_blocks = made.full_kv_num_blocks.clamp(max=1)
            return made
        shape = batch, made_heads, -(-self.queries // rows), -(-self.keys // columns)
        kinds = torch.randint(0, 3, shape, generator=self.generator)  # hidden, partial, full
        order = torch.rand(shape, generator=self.generator)
        lists = []
        for kind in (1, 2):
            listed = kinds == kind
            indices = torch.where(listed, order, order + 1).argsort(-1)  # those that are listed first, in any order
            lists += [listed.sum(-1).int(), indices.int()]
        if draw.random() < 0.3:
            lists[2:] = [None, None]
        return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=self.block_size, mask_mod=function,
                                        seq_lengths=(self.queries, self.keys))

    @property
    def tensors(self):
        return self.query, self.key, self.value, *self.captures

    def needs(self):
        return [*self.extremes.needs[:3], *[self.extremes.needs[3]] * len(self.captures)]

    def weight(self, shape):
        """The gradient of the output."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(TYPES[self.type])

    def __call__(self, function):
        """The output, and the gradients if this call has them."""
        score = self.score.function if self.score is not None else self.shift_mod if self.shift is not None else None
        call = lambda q, k, v: function(q, k, v, score, self.block_mask, self.scale, True)
        if not self.extremes.has_gradients:
            return call(self.query, self.key, self.value), []
        # Functions read their tensors by name.
        for x, is_needed in zip(self.captures, self.needs()[3:]):
            x.requires_grad_(is_needed)
        found = self._recorded(call)
        for x in self.captures:
            x.requires_grad_(False)
        return found

    def _recorded(self, call):
        leaves = [x.detach().requires_grad_(is_needed) for x, is_needed in zip(self.tensors[:3], self.needs())]
        output = call(*leaves)
        requested = [x for x in (*leaves, *self.captures) if x.requires_grad]
        gradients = iter(torch.autograd.grad(output, requested, self.weight(output.shape).to(output.dtype),
                                             allow_unused=True))
        return output.detach(), [next(gradients) if x.requires_grad else None for x in (*leaves, *self.captures)]

    def shown(self):
        """The visible pairs [B, Hq, L, S]."""
        heads = self.kv_heads * self.group
        full = self.batch, heads, self.queries, self.keys
        if self.block_mask is None:
            return torch.ones(full, dtype=torch.bool)
        if isinstance(self.block_mask, BlockMask):
            return dense_lists(self.block_mask, self.batch, heads)
        return self.mask.evaluate(True, *self._grids()).expand(full)

    def _grids(self):
        heads = self.kv_heads * self.group
        return (torch.arange(self.batch).view(-1, 1, 1, 1), torch.arange(heads).view(1, -1, 1, 1),
                torch.arange(self.queries).view(1, 1, -1, 1), torch.arange(self.keys))

    def by_math(self, is_exact, order=None):
        """The output and the gradients, evaluated on all pairs in float64, or as PyTorch does in float32."""
        shown = self.shown()

        def call(query, key, value, *captures):
            precision = torch.float64 if is_exact or self.type == "f64" else torch.float32
            key, value = [x.to(precision).repeat_interleave(self.group, 1) for x in (key, value)]
            query = query.to(precision)
            if order is not None:
                query, key = query[..., order], key[..., order]
            scores = query @ key.mT * (self.width ** -0.5 if self.scale is None else self.scale)
            if self.score is not None:
                scores = self._scored(scores, captures, is_exact)
            elif self.shift is not None:
                shift = self.shift.to(precision)
                scores = scores + (shift.clamp(min=-1e38) if is_exact else shift)[:, None]
            scores = scores.to(precision).masked_fill(~shown, -torch.inf)
            if not is_exact:
                scores = scores.clamp(max=torch.finfo(precision).max)
            weights = torch.softmax(scores, -1).nan_to_num()
            return weights.masked_fill(~shown, 0) @ value

        return with_gradients(call, self.tensors, self.needs() if self.extremes.has_gradients else [False] * 9,
                              self.weight) if self.extremes.has_gradients else (call(*self.tensors), [])

    def _scored(self, scores, captures, is_exact):
        given = iter(captures)
        before = self.score.tensors
        self.score.tensors = {name: next(given) if x.is_floating_point() else x for name, x in before.items()}
        try:
            return self.score.evaluate(is_exact, scores, *self._grids())
        finally:
            self.score.tensors = before

    def sizes(self):
        """How large the terms are that the gradients are sums of."""
        largest = lambda x: x.double().abs().max().item() if x.numel() else 0.0
        rows = (self.query[..., 0].numel()) ** 0.5
        of_scores = largest(self.weight((*self.query.shape[:3], self.value_width))) * largest(self.value) * self.value_width
        scale = abs(self.width ** -0.5 if self.scale is None else self.scale)
        coarser = lambda x: max(1, torch.finfo(self.query.dtype).eps / torch.finfo(x.dtype).eps)
        return [of_scores * scale * largest(self.key), of_scores * scale * largest(self.query) * rows, 3 * rows,
                *[coarser(x) * of_scores * rows for x in self.captures]]

    def __str__(self):
        shapes = " ".join(f"{tuple(x.shape)}/{x.stride()}" for x in self.tensors)
        return f"{', '.join(dict.fromkeys(self.features))}: {shapes} scale={self.scale}\n    mask {self.mask}\n    score {self.score}"
