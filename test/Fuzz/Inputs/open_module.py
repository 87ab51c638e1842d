"""A random module with open dimensions: its example inputs, its dynamic shapes, and inputs of other sizes."""

import random

import torch
from torch import nn
from torch.nn import functional as F

OPEN = torch.export.Dim.DYNAMIC
HEADS = (1, 2, 4)


class Attend(nn.Module):
    """A call of a module of PyTorch with masks by name."""

    def __init__(self, module, names, options):
        super().__init__()
        self.module, self.names, self.options = module, names, options

    def forward(self, inputs, masks):
        result = self.module(*inputs, **dict(zip(self.names, masks)), **self.options)
        return result[0] if isinstance(result, tuple) else result


class Split(nn.Module):
    """Attention by hand: tokens are joined or dropped before heads are split."""

    def __init__(self, draw):
        super().__init__()
        self.heads, self.width = draw.choice(HEADS), 4 * draw.choice((4, 8))
        self.before = draw.choices(("none", "cat token", "cat self", "pad", "pad both", "drop first", "drop last", "stride",
                                    "every second", "windows", "index copy", "scatter add", "topk", "sorted"),
                                   k=draw.choice((1, 1, 2)))
        self.turn = draw.choice((False, False, True))
        self.split = draw.choice(("view", "unflatten", "reshape", "chunk", "permute", "folded", "grouped"))
        self.attend = draw.choice(("sdpa", "sdpa causal", "softmax", "softmax bias", "channels", "channels sdpa"))
        self.merge = draw.choice(("reshape", "flatten", "view"))
        self.after = draw.choice(("none", "first", "mean", "drop", "residual"))
        self.token = nn.Parameter(torch.randn(1, 2, self.width))
        self.project = nn.Linear(self.width, 3 * self.width)

    def joined(self, x):
        for each in self.before:
            if each == "cat token":
                x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
            elif each == "cat self":
                x = torch.cat([x, x[:, :1], x], 1)
            elif each == "pad":
                x = F.pad(x, (0, 0, 0, 3))
            elif each == "pad both":
                x = F.pad(x, (0, 0, 1, 2))
            elif each == "drop first":
                x = x[:, 1:]
            elif each == "drop last":
                x = x[:, :-1]
            elif each == "stride":
                x = x.unflatten(-1, (2, -1)).flatten(2)
            elif each == "every second":
                x = torch.cat([x[:, ::2], x[:, 1::2] * 2], 1)
            elif each == "windows":
                x = F.pad(x, (0, 0, 2, 0)).unfold(1, 3, 1).mean(-1)
            elif each == "index copy":
                x = x.index_copy(1, torch.tensor([1, 0]), self.token.expand(x.shape[0], -1, -1))
            elif each == "scatter add":
                places = torch.arange(x.shape[1], device=x.device) // 2
                x = torch.zeros_like(x).scatter_add(1, places[:, None].expand(x.shape), x)
            elif each == "topk":
                places = (x + 0.01 * torch.arange(x.shape[-1], device=x.device)).topk(3, -1)[1]  # no two are equal
                x = x + torch.zeros_like(x).scatter(-1, places, 1.0)
            elif each == "sorted":
                x = x.sort(1, descending=True)[0]
        return x

    def turned(self, x):
        """Rotary positions by complex numbers, of tensors [..., n, d]."""
        angles = torch.arange(x.shape[-2], device=x.device)[:, None] * 0.3 ** torch.arange(x.shape[-1] // 2, device=x.device)
        factors = torch.polar(torch.ones_like(angles), angles).to(torch.complex128 if x.dtype == torch.float64 else torch.complex64)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * factors).flatten(-2)

    def parts(self, x):
        b, n, _ = x.shape
        y, h = self.project(x), self.heads
        if self.split == "chunk":
            return [each.view(b, n, h, -1).transpose(1, 2) for each in y.chunk(3, -1)]
        if self.split == "permute":
            return list(y.reshape(b, n, 3, h, -1).permute(2, 0, 3, 1, 4))
        q, k, v = y.split(self.width, -1)
        if self.split == "unflatten":
            return [each.unflatten(-1, (h, -1)).transpose(1, 2) for each in (q, k, v)]
        if self.split == "folded":
            return [each.transpose(0, 1).reshape(n, b * h, -1).transpose(0, 1) for each in (q, k, v)]
        if self.split == "grouped":
            k, v = (each.reshape(b, n, h, -1)[:, :, :1].transpose(1, 2).expand(b, h, n, self.width // h) for each in (k, v))
            return [q.view(b, n, h, -1).transpose(1, 2), k, v]
        form = torch.Tensor.view if self.split == "view" else torch.Tensor.reshape
        return [form(each.contiguous(), (b, -1, h, self.width // h)).transpose(1, 2) for each in (q, k, v)]

    def forward(self, x, bias):
        x = self.joined(x)
        b, n, _ = x.shape
        q, k, v = self.parts(x)
        if self.turn and self.split != "folded":
            q, k = self.turned(q), self.turned(k)
        if self.attend.startswith("channels"):
            q, k, v = (each.transpose(-1, -2) for each in (q, k, v))
        if "sdpa" in self.attend:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.attend.endswith("causal"))
        else:
            scores = q @ k.transpose(-1, -2) * 0.3
            if self.attend.endswith("bias"):
                scores = scores + bias * torch.arange(n, device=x.device, dtype=x.dtype)
            y = scores.softmax(-1) @ v
        if self.attend.startswith("channels"):
            y = y.transpose(-1, -2)
        if self.split == "folded":
            y = y.transpose(0, 1).reshape(n, b, -1).transpose(0, 1)
        elif self.merge == "flatten":
            y = y.transpose(1, 2).flatten(2)
        elif self.merge == "view":
            y = y.transpose(1, 2).contiguous().view(b, n, -1)
        else:
            y = y.transpose(1, 2).reshape(b, n, -1)
        return {"first": lambda: y[:, 0], "mean": lambda: y.mean(1), "drop": lambda: y[:, 1:], "residual": lambda: x + y,
                "none": lambda: y}[self.after]()


class Case:
    """The module of a seed; `inputs(sizes)` makes its arguments, `shapes` are its open dimensions."""

    def __init__(self, seed):
        draw = self.draw = random.Random(seed)
        self.kind = draw.choice(("attention", "encoder layer", "encoder", "decoder layer", "decoder", "transformer", "split",
                                 "split", "split", "split"))
        self.open = draw.choice((("b",), ("n",), ("b", "n"), ("b", "n"), ("n", "m"), ("b", "n", "m")))
        torch.manual_seed(seed)
        self.seed, self.features = seed, [self.kind, "open " + " ".join(self.open)]
        if self.kind == "split":
            self.module = Split(draw)
            self.layout, self.masks = [("b", "n", self.module.width), (1,)], []
            self.features += [*self.module.before, self.module.split, self.module.attend, self.module.after]
            self.features += ["turned"] * self.module.turn
        else:
            self._attention()
        self.module.eval()
        self.example = {"b": draw.randrange(2, 5), "n": draw.randrange(5, 12), "m": draw.randrange(5, 12)}
        while self.example["m"] in (self.example["n"], self.example["b"]):
            self.example["m"] += 1
        self.shapes = self._tree(lambda shape: {i: OPEN for i, size in enumerate(shape) if size in self.open})

    def _attention(self):
        draw, kind = self.draw, self.kind
        first, norm_first, width, heads = draw.random() < 0.5, draw.random() < 0.5, 4 * draw.choice((4, 8)), draw.choice(HEADS)
        options = {"nhead": heads, "dim_feedforward": 24, "batch_first": first, "norm_first": norm_first,
                   "activation": draw.choice(("relu", "gelu"))}
        row = lambda length: ("b", length, width) if first else (length, "b", width)
        source = [row("n")]
        if kind == "attention":
            module = nn.MultiheadAttention(width, heads, batch_first=first, add_bias_kv=draw.random() < 0.2,
                                           add_zero_attn=draw.random() < 0.2)
            crossed = draw.random() < 0.4
            source = [row("n"), *[row("m" if crossed else "n")] * 2]
            masks = {"key_padding_mask": ("b", "m" if crossed else "n"), "attn_mask": ("n", "m" if crossed else "n")}
        elif kind in ("encoder layer", "encoder"):
            module = nn.TransformerEncoderLayer(width, **options)
            masks = {"src_key_padding_mask": ("b", "n"), ("src_mask" if kind == "encoder layer" else "mask"): ("n", "n")}
            if kind == "encoder":
                module = nn.TransformerEncoder(module, 2, enable_nested_tensor=draw.random() < 0.5)
        elif kind in ("decoder layer", "decoder"):
            module = nn.TransformerDecoderLayer(width, **options)
            module = nn.TransformerDecoder(module, 2) if kind == "decoder" else module
            source.append(row("m"))
            masks = {"tgt_mask": ("n", "n"), "memory_mask": ("n", "m"), "tgt_key_padding_mask": ("b", "n"),
                     "memory_key_padding_mask": ("b", "m")}
        else:
            module = nn.Transformer(width, heads, 1, 1, 24, batch_first=first, norm_first=norm_first)
            source.append(row("m"))
            masks = {"src_mask": ("n", "n"), "tgt_mask": ("m", "m"), "memory_mask": ("m", "n"),
                     "src_key_padding_mask": ("b", "n"), "tgt_key_padding_mask": ("b", "m"),
                     "memory_key_padding_mask": ("b", "n")}
        chosen = {name: shape for name, shape in masks.items() if draw.random() < 0.4}
        is_float = draw.random() < 0.5
        self.layout, self.masks, self.is_float = source, list(chosen.items()), is_float
        self.features += ["batch_first"] * first + ["norm_first"] * norm_first + [*chosen] + (
            ["float masks" if is_float else "bool masks"] if chosen else [])
        # Whether a mask is causal is otherwise looked up in its elements, which cannot be exported.
        known = {"encoder": ("is_causal",), "decoder": ("tgt_is_causal",), "transformer": ("src_is_causal", "tgt_is_causal")}
        self.module = Attend(module, list(chosen), dict.fromkeys(known.get(kind, ()), False))

    def _tree(self, make):
        if self.kind == "split":
            return tuple(make(each) for each in self.layout)
        return tuple(make(each) for each in self.layout), tuple(make(shape) for _, shape in self.masks)

    def inputs(self, sizes):
        """Random arguments; every query sees a key."""
        sizes = {**self.example, **{name: size for name, size in sizes.items() if name in self.open}}
        make = lambda shape: torch.randn([sizes.get(each, each) for each in shape])

        def mask(shape):
            hidden = torch.rand([sizes[each] for each in shape]) < 0.3
            hidden[..., 0] = False
            return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf) if self.is_float else hidden

        if self.kind == "split":
            return tuple(make(each) for each in self.layout)
        return tuple(make(each) for each in self.layout), tuple(mask(shape) for _, shape in self.masks)

    def variants(self):
        """The sizes of the example, then others, among them a batch of one and short lengths."""
        draw = self.draw
        least = 4 if self.kind == "split" else 1
        drawn = lambda: {"b": draw.randrange(1, 6), "n": draw.randrange(least, 20), "m": draw.randrange(1, 20)}
        return [{}, {"b": 1}, {"n": least}, drawn(), drawn(), drawn()]

    def __str__(self):
        return f"{', '.join(self.features)}, example {self.example}"
