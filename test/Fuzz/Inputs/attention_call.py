"""Random calls of `saccade.attention`, and their reference in plain PyTorch."""

import dataclasses
import math
import random

import lambdas
import numpy as np
import torch

TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
LAYOUTS = ["bhsd", "bhsd", "bshd", "sbhd", "hsd", "shd", "bsd", "sd"]
# The strides of a tensor.
VIEWS = ["compact", "compact", "compact", "slice", "transposed", "padded", "reversed"]


def strided(tensor, view, rng):
    """The same values with other strides."""
    if view == "slice":  # every second element of the innermost dimension
        wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), math.nan)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if view == "transposed":
        order = rng.sample(range(tensor.dim()), tensor.dim())
        back = [order.index(i) for i in range(tensor.dim())]
        return tensor.permute(order).contiguous().permute(back)
    if view == "padded":  # rows and an offset as in a cut-out
        wide = tensor.new_full([extent + 3 for extent in tensor.shape], math.nan)
        inner = wide[tuple(slice(1, 1 + extent) for extent in tensor.shape)]
        inner.copy_(tensor)
        return inner
    return tensor


@dataclasses.dataclass
class Call:
    """One call: `arguments` and `options` go to saccade.attention, `exact` and `plain` are what it should give."""

    seed: int
    other_sizes: bool = False  # the same types, head sizes, options and functions with other batch, heads and lengths

    def __post_init__(self):
        rng = random.Random(self.seed)  # what a kernel depends on
        self.values = random.Random(f"{self.seed} {self.other_sizes}")  # what it must not depend on
        self.features = []
        self.numpy = rng.random() < 0.25
        self.type = rng.choice(["f32"] * 4 + ["bf16", "bf16", "f16", "f64"])
        if self.numpy and self.type == "bf16":
            self.type = "f32"
        self.layout = rng.choice(LAYOUTS)
        kv_heads = rng.choice([1, 1, 2, 3]) if "h" in self.layout else 1
        group = rng.choice([1, 1, 2, 4]) if "h" in self.layout else 1
        batch = rng.choice([1, 2, 3]) if "b" in self.layout else 1
        self.queries = rng.choice([0, 1, 1, 2, 5, 13, 49, 64, 97, rng.randint(1, 150)])
        self.keys = rng.choice([0, 1, 2, 7, 31, 64, 77, 128, rng.randint(1, 600), self.queries, self.queries])
        if self.other_sizes:
            self.queries, self.keys = 2 * self.queries + 3, self.keys + self.values.randint(1, 70)
            batch, kv_heads = (batch + 1 if "b" in self.layout else 1), (kv_heads + 1 if "h" in self.layout else 1)
        self.draw_ragged()
        self.depth = rng.choice([1, 5, 16, 16, 32, 40, 64, 64])
        self.value_depth = rng.choice([self.depth] * 3 + [3, 24, 48])
        batch = len(self.lengths[0]) if self.lengths else batch
        self.batch, self.heads, self.kv_heads = batch, kv_heads * group, kv_heads
        generator = torch.Generator().manual_seed(self.values.getrandbits(40))
        spread = rng.choice([0.1, 1, 1, 1, 3])
        normal = lambda *shape: (torch.randn(shape, generator=generator, dtype=torch.float64) * spread).to(TYPES[self.type])
        self.canonical = [
            normal(batch, self.heads, self.queries, self.depth),
            normal(batch, kv_heads, self.keys, self.depth),
            normal(batch, kv_heads, self.keys, self.value_depth),
        ]
        if "b" in self.layout and rng.random() < 0.1:  # one head of keys for the whole batch, at stride 0
            self.canonical[1] = self.canonical[1][:1].expand(batch, -1, -1, -1)
        self.options = {"layout": self.layout} if self.layout != "bhsd" or rng.random() < 0.5 else {}
        if self.lengths:
            self.options["layout"] = self.layout
        self.draw_options(rng)
        self.arguments = [self.present(tensor, rng) for tensor in self.canonical]
        self.features += [self.type, self.layout, "numpy" if self.numpy else "torch", f"group {group}"]

    def draw_ragged(self):
        """Draws whether the batch is ragged, and its query and key lengths; `queries` and `keys` are the longest ones.
        `canonical` tensors are padded batches; `ragged` concatenates their sequences."""
        ragged_rng = random.Random(f"{self.seed} packed")
        self.lengths = None
        if "b" in self.layout or ragged_rng.random() < 0.6:
            return
        self.offset_type = ragged_rng.choice([torch.int32, torch.int64])
        draw = lambda size: self.values.choice([0, 1, size, size, self.values.randint(0, size)])
        self.lengths = [tuple(min(n, longest) for n in lengths) for lengths, longest in
                        zip(zip(*[(draw(self.queries), draw(self.keys)) for _ in range(self.values.randint(1, 5))]),
                            (self.queries, self.keys))]
        self.features.append("ragged")

    def ragged(self, tensor, side):
        """A batch × head × position (× depth) tensor as one × head × the positions of all sequences (× depth)."""
        return torch.cat([tensor[i, :, :n] for i, n in enumerate(self.lengths[side])], 1)[None]

    def draw_options(self, rng):
        if rng.random() < 0.3:
            self.options["scale"] = self.values.choice([0.125, 1.0, 0.3, -0.25, 0.0])
        if rng.random() < 0.4:
            self.options["causal"] = rng.choice(["top_left", "bottom_right", self.values.randint(-5, 80)])
        if rng.random() < 0.25:
            distance = lambda: self.values.randint(0, 40)
            self.options["window"] = rng.choice([1 + distance(), (distance(), distance())])
        if rng.random() < 0.25:
            lengths = [self.values.randint(0, self.keys) for _ in range(self.batch)]
            if self.lengths:  # a number beyond all rows of a ragged batch is refused
                lengths = [min(length, sum(self.lengths[1])) for length in lengths]
            self.options["kv_len"] = lengths[0]
            if self.lengths:  # and a tensor with a length beyond its sequence
                lengths = [min(length, own) for length, own in zip(lengths, self.lengths[1])]
            if ("b" in self.layout or self.lengths) and rng.random() < 0.7:
                dtype = rng.choice([torch.int32, torch.int64])
                values = torch.tensor(lengths, dtype=dtype)
                self.options["kv_len"] = values.numpy() if self.numpy else values
        if rng.random() < 0.3:
            self.options["return_lse"] = True
        if self.lengths:
            for name, lengths in zip(("cu_seqlens_q", "cu_seqlens_k"), self.lengths):
                offsets = torch.tensor([0, *lengths]).cumsum(0).to(self.offset_type)
                self.options[name] = offsets.numpy() if self.numpy else offsets
        sizes = lambdas.Sizes(self.batch, self.heads, self.queries, self.keys)
        for role, chance in (("score", 0.5), ("mask", 0.4)):
            if rng.random() < chance:
                self.options[role] = lambdas.draw(rng, role, sizes, self.numpy)
        self.features += [name for name in self.options if name != "layout"]

    def present(self, tensor, rng):
        """A canonical batch × head × position × depth tensor as the call gets it."""
        if self.lengths:
            tensor = self.ragged(tensor, 0 if tensor is self.canonical[0] else 1)
        tensor = self.laid_out(tensor, self.layout)
        view = rng.choice(VIEWS)
        self.features.append(view)
        tensor = strided(tensor.contiguous(), view, rng)
        if not self.numpy:
            return tensor
        array = tensor.numpy()
        return np.ascontiguousarray(array[::-1])[::-1] if view == "reversed" and array.ndim else array

    @staticmethod
    def laid_out(tensor, layout):
        """A view of a batch × head × position (× depth) tensor with the dimensions of the layout, in its order."""
        for letter, position in (("h", 1), ("b", 0)):
            if letter not in layout:
                tensor = tensor.select(position, 0)
        kept = [letter for letter in "bhsd" if letter in layout]
        return tensor.permute([kept.index(letter) for letter in layout])

    def with_other_sizes(self):
        return Call(self.seed, other_sizes=True)

    def keyword_arguments(self):
        return {name: value.function if isinstance(value, lambdas.Drawn) else value for name, value in self.options.items()}

    def __str__(self):
        shapes = " ".join("×".join(map(str, tensor.shape)) for tensor in self.canonical)
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.type} {shapes} {'NumPy' if self.numpy else 'torch'} {options}"

    # --- reference --------------------------------------------------------------------------------------------------

    def visible(self, grids):
        """The mask of visible pairs: batch × head × query × key."""
        batch, head, query, key = grids
        queries, keys = self.lengths or (self.queries, self.keys)
        queries, keys = (torch.as_tensor(n).to(torch.int64).reshape(-1, 1, 1, 1) for n in (queries, keys))
        lengths = torch.as_tensor(self.options["kv_len"]).to(torch.int64).reshape(-1, 1, 1, 1) if "kv_len" in self.options else keys
        seen = (key < lengths) & (key < keys)
        causal = self.options.get("causal")
        own = query + {"bottom_right": lengths - queries}.get(causal, causal if isinstance(causal, int) else 0)
        if causal is not None:
            seen = seen & (key <= own)
        if "window" in self.options:
            window = self.options["window"]
            left, right = window if isinstance(window, tuple) else (window - 1, 0)
            seen = seen & (key >= own - left) & (key <= own + right)
        if "mask" in self.options:
            seen = seen & self.options["mask"].evaluate(True, batch, head, query, key)
        return seen.expand(self.batch, self.heads, self.queries, self.keys)

    def evaluate(self, exact=True, backwards=False):
        """(output, log-sum-exp) of plain attention: exact, or with scores and sums in float32 (float64 for float64
        inputs) and probabilities rounded to the input's type. `backwards` takes every sum from its last term, and
        divides by the sum of the softmax at the end: it rounds weights that are not divided yet."""
        flip = (lambda tensor, *dims: tensor.flip(dims)) if backwards else (lambda tensor, *dims: tensor)
        scores = self.scores(exact, backwards)
        precision = scores.dtype
        value = self.canonical[2].to(precision).repeat_interleave(self.heads // self.kv_heads, 1)
        if self.keys == 0:
            shape = (self.batch, self.heads, self.queries)
            return torch.zeros(*shape, self.value_depth, dtype=precision), torch.full(shape, -math.inf, dtype=precision)
        lse = torch.logsumexp(flip(scores, 3), 3)
        lse_or_zero = torch.where(lse.isinf(), 0.0, lse)[..., None]
        subtracted = torch.where(lse.isinf()[..., None], 0.0, scores.amax(3, keepdim=True)) if backwards else lse_or_zero
        weights = torch.exp(scores - subtracted)
        if not exact:
            weights = weights.to(TYPES[self.type]).to(precision)
        return flip(weights, 3) @ flip(value, 2) / torch.exp(lse_or_zero - subtracted), lse

    def scores(self, exact=True, backwards=False):
        """The scores, batch × head × query × key, -inf for masked pairs."""
        precision = torch.float64 if exact or self.type == "f64" else torch.float32
        query, key = (tensor.to(precision) for tensor in self.canonical[:2])
        key = key.repeat_interleave(self.heads // self.kv_heads, 1)
        flip = (lambda tensor: tensor.flip(3)) if backwards else (lambda tensor: tensor)
        along = lambda extent, position: torch.arange(extent).reshape([-1 if i == position else 1 for i in range(4)])
        grids = [along(extent, i) for i, extent in enumerate((self.batch, self.heads, self.queries, self.keys))]
        scores = flip(query) @ flip(key).mT * self.options.get("scale", 1 / math.sqrt(self.depth))
        if "score" in self.options:
            scores = self.options["score"].evaluate(exact, scores, *grids).to(precision).expand_as(scores)
        return scores.masked_fill(~self.visible(grids), -math.inf)
