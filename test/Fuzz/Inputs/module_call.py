"""A random module with attention of PyTorch, with inputs and masks, and the same module in float64."""

import copy
import random

import torch
from drop_ins import SHIFTS
from torch import nn

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
KINDS = ["attention", "attention", "attention", "encoder layer", "decoder layer"]
WIDTH, HEADS = 16, 2


class Call:
    """The module and the inputs that follow from a seed."""

    def __init__(self, seed, shifts=True):
        draw = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.type = draw.choice(["f32", "f32", "f64", "bf16"])
        self.kind, self.is_training = draw.choice(KINDS), draw.random() < 0.7
        self.batch_first = draw.random() < 0.5
        self.batch, self.queries = draw.choice([1, 2, 3]), draw.choice([1, 2, 7, 16, 33])
        self.is_self = self.kind == "encoder layer" or draw.random() < 0.4
        self.keys = self.queries if self.is_self else draw.choice([1, 3, 9, 20])
        self.padding, self.mask = [draw.choice(["none", "none", "bool", "float"]) for _ in range(2)]
        self.mask_rank = draw.choice([2, 3])
        self.is_causal = self.mask == "none" and draw.random() < 0.3 and self.keys == self.queries
        self.options = {}
        self.is_batched, self.needs_weights = True, False
        if self.kind == "attention":
            self.is_batched = draw.random() < 0.8
            self.needs_weights = draw.random() < 0.15
            self.options = {"bias": draw.random() < 0.7, "add_bias_kv": draw.random() < 0.2,
                            "add_zero_attn": draw.random() < 0.2}
            if not self.is_self and draw.random() < 0.3:
                self.options |= {"kdim": 12, "vdim": 20}
        else:
            self.options = {"norm_first": draw.random() < 0.5, "activation": draw.choice(["relu", "gelu"])}
            if self.type == "bf16":  # a rounding that changes the sign of a number jumps the derivative of relu
                self.options["activation"] = "gelu"
        self.has_shift = shifts and draw.random() < 0.5
        self.shift = draw.choice(SHIFTS)
        self.features = [self.type, self.kind, f"padding {self.padding}", f"mask {self.mask}",
                         *[name for name, value in self.options.items() if value],
                         *[name for name in ("is_training", "batch_first", "is_self", "is_causal", "is_batched",
                                             "needs_weights", "has_shift") if vars(self)[name]]]
        torch.manual_seed(seed)
        dtype = TYPES[self.type]
        if self.kind == "attention":
            self.module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=self.batch_first, **self.options)
        else:
            layer = nn.TransformerEncoderLayer if self.kind == "encoder layer" else nn.TransformerDecoderLayer
            self.module = layer(WIDTH, HEADS, 24, dropout=0.0, batch_first=self.batch_first, **self.options)
        self.module = self.module.to(dtype).train(self.is_training)
        self.query = self._input(self.queries, WIDTH)
        self.key = self.query if self.is_self else self._input(self.keys, self.options.get("kdim", WIDTH))
        self.value = self.key
        if self.options.get("vdim"):
            self.value = self._input(self.keys, self.options["vdim"])
        self.masks = self._masks(draw)

    def _input(self, length, width):
        shape = [self.batch, length, width] if self.batch_first else [length, self.batch, width]
        if not self.is_batched:
            shape = [length, width]
        return torch.randn(shape, generator=self.generator).to(TYPES[self.type])

    def _masks(self, draw):
        """The padding and the mask. Some rows of the mask are shifted; one padded sequence may be empty."""
        dtype = TYPES[self.type]
        padding = torch.rand((self.batch, self.keys) if self.is_batched else (self.keys,), generator=self.generator) < 0.3
        if not self.is_batched or draw.random() < 0.7:
            padding[..., 0] = False
        heads = HEADS * (self.batch if self.is_batched else 1)
        shape = (self.queries, self.keys) if self.mask_rank == 2 else (heads, self.queries, self.keys)
        hidden = torch.rand(shape, generator=self.generator) < 0.3
        hidden[..., 0] = False
        floats = torch.randn(shape, generator=self.generator).to(dtype).masked_fill(hidden, -torch.inf)
        number = torch.finfo(dtype).min if self.shift == "lowest" else self.shift
        if self.has_shift and abs(number) <= torch.finfo(dtype).max:
            floats[..., ::2, :] = (floats[..., ::2, :] + number).clamp(min=torch.finfo(dtype).min)
            floats = floats.masked_fill(hidden, -torch.inf)
        given = {"padding": {"none": None, "bool": padding, "float": torch.zeros_like(padding, dtype=dtype).masked_fill(
            padding, -torch.inf)}[self.padding], "mask": {"none": None, "bool": hidden, "float": floats}[self.mask]}
        if self.is_causal:
            given["mask"] = nn.Transformer.generate_square_subsequent_mask(self.queries, dtype=dtype)
        return given

    def results(self, dtype=None, wrap=lambda module: module):
        """The output and the gradients of the inputs and the parameters, computed in a type."""
        dtype = dtype or TYPES[self.type]
        module = copy.deepcopy(self.module).to(dtype)
        shared: dict[int, torch.Tensor] = {}
        inputs = [shared.setdefault(id(x), x.detach().to(dtype).clone().requires_grad_())
                  for x in (self.query, self.key, self.value)]
        masks = {name: x.clamp(min=-1e38).masked_fill(x == -torch.inf, -torch.inf).to(dtype)
                 if x is not None and x.is_floating_point() else x for name, x in self.masks.items()}
        called = wrap(module)
        if self.kind == "attention":
            output, weights = called(*inputs, key_padding_mask=masks["padding"], attn_mask=masks["mask"],
                                     need_weights=self.needs_weights, is_causal=self.is_causal)
        elif self.kind == "encoder layer":
            output, weights = called(inputs[0], src_mask=masks["mask"], src_key_padding_mask=masks["padding"],
                                     is_causal=self.is_causal), None
        else:
            output, weights = called(inputs[0], inputs[1], memory_mask=masks["mask"],
                                     memory_key_padding_mask=masks["padding"], memory_is_causal=self.is_causal), None
        weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(TYPES[self.type]).to(dtype)
        leaves = {"query": inputs[0], "key": inputs[1], "value": inputs[2], **dict(module.named_parameters())}
        gradients = torch.autograd.grad(output, list(leaves.values()), weight, allow_unused=True)
        found = {"the output": output.detach(), "the weights": None if weights is None else weights.detach(),
                 **{f"the gradient of {name}": x for name, x in zip(leaves, gradients)}}
        return {name: x for name, x in found.items() if x is not None}

    def __str__(self):
        shapes = ", ".join(f"{tuple(x.shape)}" for x in (self.query, self.key, self.value))
        return f"{', '.join(self.features)}: {shapes} shift {self.shift if self.has_shift else None}"
