"""Attention with one mistake each, and attention without any, as a user of PyTorch writes them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

import saccade

B, H, S, D = 2, 4, 10, 16
E = H * D
LOWEST = float("-inf")


def tokens(length=S, width=E, batch=B):
    return torch.randn(batch, length, width, generator=torch.Generator().manual_seed(length))


class Heads(nn.Module):
    """Projections around `attend`, which takes queries, keys and values [batch, heads, positions, d]."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def split(self, x):
        return x.view(*x.shape[:2], H, D).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.shape[0], -1, E)

    def forward(self, x):
        q, k, v = (self.split(part) for part in self.qkv(x).chunk(3, dim=-1))
        return self.out(self.merge(self.attend(q, k, v)))


def model(attend, **methods):
    """A module of heads whose methods are these."""
    made = type("Model", (Heads,), {"attend": staticmethod(attend), **methods})
    return lambda: made().eval()(tokens())


def call(function, *shapes):
    """A call of `function` with random tensors of these shapes."""
    return lambda: function(*(torch.randn(shape) for shape in shapes))


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def by_hand(q, k, v):
    return (q @ k.mT / math.sqrt(D)).softmax(-1) @ v


def both(q, k, v):
    """Queries attend to keys and keys to queries, with one product."""
    scores = q @ k.mT / math.sqrt(D)
    one, other = scores.softmax(-1), scores.mT.softmax(-1)
    return one @ v + other @ v


def hidden_last(length=S):
    return torch.arange(length) >= torch.tensor([[length - 3], [length]])


def causal(length=S):
    return torch.ones(length, length, dtype=torch.bool).tril()


def some_rows():
    """The keys that a mask hides, which are all in one row."""
    return ~causal() | (torch.arange(S)[:, None] == 3)


def filled(mask, value, q, k, v):
    return (q @ k.mT / math.sqrt(D)).masked_fill(mask, value).softmax(-1) @ v


def keys_of(length):
    return lambda q, k, v: filled(torch.ones(q.shape[2], length).tril()[:, :k.shape[2]] == 0, LOWEST, q, k, v)


class OneHead(nn.Module):
    """The head of the source documents, with `tril(head_size)` where `is_cut` says how the mask is used."""

    def __init__(self, is_cut):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(32, D, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(D, D)))
        self.is_cut = is_cut

    def forward(self, x):
        positions = x.shape[1]
        k, q, v = self.key(x), self.query(x), self.value(x)
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        mask = self.tril[:positions, :positions] if self.is_cut else self.tril
        return F.softmax(scores.masked_fill(mask == 0, LOWEST), dim=-1) @ v


class EmbedSize(nn.Module):
    """The layer of the source documents that divides by the square root of the embedding's size."""

    def __init__(self, size=E, heads=H):
        super().__init__()
        self.heads, self.head_dim, self.size = heads, size // heads, size
        self.values, self.keys, self.queries = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(self, x):
        n, length, _ = x.shape
        v, k, q = (layer(x).view(n, length, self.heads, self.head_dim)
                   for layer in (self.values, self.keys, self.queries))
        energy = torch.einsum("nqhd,nkhd->nhqk", [q, k])
        attention = F.softmax(energy / self.size ** (1 / 2), dim=3)
        return torch.einsum("nhql,nlhd->nqhd", [attention, v]).reshape(n, length, self.size)


class Padded(nn.Module):
    """An embedding with padding, and attention with or without a mask."""

    def __init__(self, is_masked, is_causal=False):
        super().__init__()
        self.embedding = nn.Embedding(20, E, padding_idx=0)
        self.is_masked, self.is_causal = is_masked, is_causal

    def forward(self, ids):
        x = self.embedding(ids).view(B, S, H, D).transpose(1, 2)
        mask = (ids != 0)[:, None, None, :] if self.is_masked else None
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask, is_causal=self.is_causal)


def padded_ids():
    ids = torch.randint(1, 20, (B, S))
    ids[0, -3:] = 0
    return ids


def training_dropout(**options):
    class Dropped(nn.Module):
        def forward(self, q):
            if options:
                return F.scaled_dot_product_attention(q, q, q, **options)
            return F.dropout((q @ q.mT / math.sqrt(D)).softmax(-1), 0.1) @ q

    return lambda: Dropped().eval()(torch.randn(B, H, S, D))


def decoded(length):
    return lambda: saccade.attention(torch.randn(1, H, length, D), *torch.randn(2, 1, H, 32, D), causal="top_left")


class Calls(nn.Module):
    """Calls of one place whose lengths vary."""

    def forward(self, shapes):
        for shape in shapes:
            x = torch.randn(shape)
            F.scaled_dot_product_attention(x, x, x)


MISTAKES = {
    # layout
    "heads not moved": ("layout", model(sdpa, split=lambda self, x: x.view(B, S, H, D),
                                        merge=lambda self, x: x.reshape(B, S, E))),
    "heads not moved by hand": ("layout", model(by_hand, split=lambda self, x: x.view(B, S, H, D),
                                                merge=lambda self, x: x.reshape(B, S, E))),
    "lengths vary as heads": ("layout", lambda: Calls()([(2, 12, 8, D), (2, 15, 8, D)])),
    "more heads than positions": ("layout", call(sdpa, *[(2, 512, 8, D)] * 3)),
    "heads not moved in saccade.attention": ("layout", model(saccade.attention,
                                                             split=lambda self, x: x.view(B, S, H, D),
                                                             merge=lambda self, x: x.reshape(B, S, E))),
    "reshaped to heads directly": ("head-split", model(sdpa, split=lambda self, x: x.reshape(B, H, S, D))),
    "reshaped to heads by hand": ("head-split", model(by_hand, split=lambda self, x: x.reshape(B, H, S, D))),
    "merged without a transpose": ("head-split", model(sdpa, merge=lambda self, x: x.reshape(B, S, E))),
    "merged by hand without a transpose": ("head-split", model(by_hand, merge=lambda self, x: x.reshape(B, S, E))),
    "keys not transposed": ("transposed-keys", lambda: Square()(tokens(D))),
    # alignment
    "one query, first key": ("alignment", decoded(1)),
    "last queries, first keys": ("alignment", decoded(8)),
    "is_causal while decoding": ("alignment", call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (1, H, 1, D), *[(1, H, 9, D)] * 2)),
    "tril of fewer queries": ("alignment", call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(3, 9, dtype=torch.bool).tril()),
        (1, H, 3, D), *[(1, H, 9, D)] * 2)),
    "tril of fewer queries by hand": ("alignment", call(keys_of(9), (1, H, 3, D), *[(1, H, 9, D)] * 2)),
    "tril of one query": ("alignment", call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(1, 9, dtype=torch.bool).tril()),
        (1, H, 1, D), *[(1, H, 9, D)] * 2)),
    "added for one query": ("alignment", call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.full((1, 9), LOWEST).triu(1)),
        (1, H, 1, D), *[(1, H, 9, D)] * 2)),
    "tril of one query by hand": ("alignment", call(keys_of(9), (1, H, 1, D), *[(1, H, 9, D)] * 2)),
    "added for one query by hand": ("alignment", call(
        lambda q, k, v: (q @ k.mT / D**0.5 + torch.full((1, 9), LOWEST).triu(1)).softmax(-1) @ v,
        (1, H, 1, D), *[(1, H, 9, D)] * 2)),
    # scale
    "not scaled": ("scale-missing", model(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)),
    "scaled by the embedding": ("scale-width", lambda: EmbedSize()(tokens())),
    "scaled by the embedding in a call": ("scale-width", model(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=E**-0.5))),
    "scaled by the input of one head": ("scale-width", lambda: InputWidth()(tokens(S, 48))),
    "no root": ("scale-root", model(lambda q, k, v: (q @ k.mT / D).softmax(-1) @ v)),
    "no root in saccade.attention": ("scale-root", call(lambda q, k, v: saccade.attention(q, k, v, scale=1 / D),
                                                        *[(B, H, S, D)] * 3)),
    "multiplied by the root": ("scale-root", model(lambda q, k, v: (q @ k.mT * math.sqrt(D)).softmax(-1) @ v)),
    "queries scaled before a call": ("scale-twice", model(lambda q, k, v: sdpa(q * D**-0.5, k, v))),
    "queries scaled before saccade.attention": ("scale-twice", model(
        lambda q, k, v: saccade.attention(q / math.sqrt(D), k, v))),
    "queries and scores scaled": ("scale-twice", model(
        lambda q, k, v: (q / D**0.5 @ k.mT / D**0.5).softmax(-1) @ v)),
    "both scaled by the fourth root": ("scale-twice", model(lambda q, k, v: sdpa(q * D**-0.25, k * D**-0.25, v))),
    # softmax
    "softmax over queries": ("softmax-axis", model(lambda q, k, v: (q @ k.mT / D**0.5).softmax(-2) @ v)),
    "softmax over heads": ("softmax-axis", model(lambda q, k, v: F.softmax(q @ k.mT / D**0.5, dim=1) @ v)),
    "weights transposed": ("softmax-axis", model(lambda q, k, v: (q @ k.mT / D**0.5).softmax(-1).mT @ v)),
    "no maximum": ("softmax-maximum", lambda: Exponentials()(tokens())),
    # masks
    "masked by -1e9": ("sentinel", model(lambda q, k, v: filled(~causal(), -1e9, q, k, v))),
    "masked by the lowest number": ("sentinel", model(lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, torch.zeros(S, S).masked_fill(~causal(), torch.finfo(torch.float32).min)))),
    "lowered by 1e4": ("sentinel", model(
        lambda q, k, v: (q @ k.mT / D**0.5 + (1.0 - causal().float()) * -1e4).softmax(-1) @ v)),
    "chosen by where": ("sentinel", model(
        lambda q, k, v: torch.where(causal(), q @ k.mT / D**0.5, -1e9).softmax(-1) @ v)),
    "a row of -inf": ("empty-row", model(
        lambda q, k, v: filled(torch.arange(S)[:, None].expand(S, S) == 3, LOWEST, q, k, v))),
    "tril hides": ("inverted-mask", model(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ~causal()))),
    "padding kept": ("inverted-mask", model(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, hidden_last()[:, None, None]))),
    "padding kept by nn.MultiheadAttention": ("inverted-mask", lambda: nn.MultiheadAttention(
        E, H, batch_first=True).eval()(*[tokens()] * 3, key_padding_mask=~hidden_last())),
    "tril hides in nn.MultiheadAttention": ("inverted-mask", lambda: nn.MultiheadAttention(
        E, H, batch_first=True).eval()(*[tokens()] * 3, attn_mask=causal())),
    "a number for each query": ("mask-axis", model(lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, torch.randn(B, 1, S, 1)))),
    "a bias for each query by hand": ("mask-axis", model(
        lambda q, k, v: (q @ k.mT / D**0.5 + torch.randn(S, 1)).softmax(-1) @ v)),
    "padding read as queries": ("mask-axis", call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ~hidden_last(9).flip(0)), (2, H, 2, D),
        *[(2, H, 9, D)] * 2)),
    "padding read as heads": ("mask-axis", call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ~hidden_last()[:, None]), *[(2, 2, S, D)] * 3)),
    "tril(head_size)": ("mask-size", lambda: OneHead(is_cut=True)(tokens(S, 32))),
    "tril(head_size), longer": ("mask-size", lambda: OneHead(is_cut=False)(tokens(S, 32))),
    "masked after the softmax": ("mask-late", model(
        lambda q, k, v: (q @ k.mT / D**0.5).softmax(-1).masked_fill(~causal(), 0) @ v)),
    "multiplied after the softmax": ("mask-late", model(
        lambda q, k, v: (q @ k.mT / D**0.5).softmax(-1) * causal() @ v)),
    "tril after the softmax": ("mask-late", model(
        lambda q, k, v: (q @ k.mT / D**0.5).softmax(-1).tril() @ v)),
    "torch.tril after the softmax": ("mask-late", model(
        lambda q, k, v: torch.tril((q @ k.mT / D**0.5).softmax(-1)) @ v)),
    "chosen after the softmax": ("mask-late", model(
        lambda q, k, v: torch.where(causal().float().bool(), (q @ k.mT / D**0.5).softmax(-1), 0.0) @ v)),
    "padding without a mask": ("padding", lambda: Padded(is_masked=False)(padded_ids())),
    "padding in nn.TransformerEncoderLayer": ("padding", lambda: nn.Sequential(
        nn.Embedding(20, E, padding_idx=0), nn.TransformerEncoderLayer(E, H, batch_first=True)).eval()(padded_ids())),
    # initial values
    "zeros": ("zero-weights", lambda: constant(EmbedSize(E, 1), 0.0)(tokens())),
    "equal weights before a call": ("zero-weights", lambda: constant(InputWidth(None), 0.5)(tokens(S, 48))),
    # dropout
    "dropout of a call": ("dropout", training_dropout(dropout_p=0.1)),
    "dropout of weights": ("dropout", training_dropout()),
}


class Square(nn.Module):
    """As many positions as features, so that a missing transpose is no error."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(E, D) for _ in range(3))

    def forward(self, x):
        return (self.q(x) @ self.k(x) / math.sqrt(D)).softmax(-1) @ self.v(x)


def constant(module, value):
    """The module with one weight in all of the layer of queries."""
    nn.init.constant_((module.queries if hasattr(module, "queries") else module.q).weight, value)
    return module


class InputWidth(nn.Module):
    def __init__(self, scale=48**-0.5):
        super().__init__()
        self.scale = scale
        self.q, self.k, self.v = (nn.Linear(48, D) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), scale=self.scale)


class Exponentials(Heads):
    def attend(self, q, k, v):
        exponentials = torch.exp(q @ k.mT / math.sqrt(D))
        return exponentials / exponentials.sum(-1, keepdim=True) @ v


class Shifted(Heads):
    def attend(self, q, k, v):
        scores = q @ k.mT / math.sqrt(D)
        exponentials = torch.exp(scores - scores.amax(-1, keepdim=True))
        return exponentials / exponentials.sum(-1, keepdim=True) @ v


class Joined(Heads):
    """Positions come first, and batches and heads are one axis, as in fairseq."""

    def forward(self, x):
        q, k, v = (part.reshape(S, B * H, D).transpose(0, 1) for part in self.qkv(x).chunk(3, dim=-1))
        weights = torch.bmm(q * D**-0.5, k.transpose(1, 2)).softmax(-1)
        return self.out(torch.bmm(weights, v).transpose(0, 1).reshape(S, B, E))


class Slots(Heads):
    """Slot attention: slots compete for positions, and weights are divided by their sum."""

    def attend(self, q, k, v):
        weights = (q @ k.mT * D**-0.5).softmax(-2)
        return weights / (weights.sum(-1, keepdim=True) + 1e-8) @ v


def slopes(q):
    return torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None] * (torch.arange(S) - torch.arange(S)[:, None])


CORRECT = {
    "SDPA": model(sdpa),
    "by hand": model(by_hand),
    "einsum": lambda: EmbedSize(E, 1)(tokens()),
    "causal": model(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "causal by hand": model(lambda q, k, v: filled(~causal(), LOWEST, q, k, v)),
    "window by hand": model(lambda q, k, v: filled(~causal().triu(-3), LOWEST, q, k, v)),
    "scaled queries": model(lambda q, k, v: (q * D**-0.5 @ k.mT).softmax(-1) @ v),
    "fourth roots": model(lambda q, k, v: ((q * D**-0.25) @ (k * D**-0.25).mT).softmax(-1) @ v),
    "scaled queries, scale 1": model(lambda q, k, v: F.scaled_dot_product_attention(q * D**-0.5, k, v, scale=1.0)),
    "normalised queries and keys": model(lambda q, k, v: F.scaled_dot_product_attention(
        F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, scale=10.0)),
    "normalised by hand, no scale": model(
        lambda q, k, v: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1) @ v),
    "temperatures of heads": model(lambda q, k, v: (q * torch.rand(H, 1, 1) @ k.mT).softmax(-1) @ v),
    "a mask as long as a table of positions": lambda: OneHead(is_cut=True)(
        tokens(S, 32) + nn.Embedding(D, 32)(torch.arange(S))),
    "T5's bias, no scale": model(lambda q, k, v: (q @ k.mT + torch.randn(1, H, S, S)).softmax(-1) @ v),
    "padding": model(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ~hidden_last()[:, None, None])),
    "padding at the left": model(lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, ~hidden_last().flip(1)[:, None, None])),
    "padding and causal": model(lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, ~hidden_last()[:, None, None] & causal())),
    "padded queries": model(lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, ~hidden_last()[:, None, None] & ~hidden_last()[:, None, :, None])),
    "additive -inf": model(lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, torch.zeros(S, S).masked_fill(~causal(), LOWEST))),
    "ALiBi": model(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, slopes(q))),
    "soft cap": model(lambda q, k, v: (torch.tanh(q @ k.mT / D**0.5 / 30) * 30).softmax(-1) @ v),
    "own softmax": lambda: Shifted()(tokens()),
    "slot attention": lambda: Slots()(tokens()),
    "transposed scores": model(lambda q, k, v: (k @ q.mT / D**0.5).softmax(-2).mT @ v),
    "sigmoid with thresholds": model(lambda q, k, v: torch.sigmoid(q @ k.mT / D**0.5 + torch.randn(S, 1)) @ v),
    "guarded rows": model(lambda q, k, v: (q @ k.mT / D**0.5).masked_fill(
        torch.arange(S)[:, None].expand(S, S) == 3, LOWEST).softmax(-1).nan_to_num(0) @ v),
    "masked before and after": model(lambda q, k, v: (q @ k.mT / D**0.5).masked_fill(
        ~causal(), LOWEST).softmax(-1).masked_fill(~causal(), 0) @ v),
    "masked before, tril after": model(lambda q, k, v: filled(~causal(), LOWEST, q, k, torch.eye(S)).tril() @ v),
    "hidden rows are zero": model(lambda q, k, v: (q @ k.mT / D**0.5).masked_fill(
        some_rows(), LOWEST).softmax(-1).masked_fill(some_rows().all(-1, keepdim=True), 0) @ v),
    "one of one key": call(keys_of(1), *[(1, H, 1, D)] * 3),
    "both directions": model(both),
    "batches and heads joined": lambda: Joined()(tokens().transpose(0, 1)),
    "fewer and wider heads": model(sdpa, split=lambda self, x: x.view(B, S, H, D).view(B, S, 2, 2 * D).transpose(1, 2)),
    "linear attention": model(lambda q, k, v: (F.elu(q) + 1) @ ((F.elu(k) + 1).mT @ v)),
    "decoding": call(sdpa, (1, 32, 1, D), *[(1, 32, 9, D)] * 2),
    "decoding, bottom right": call(lambda q, k, v: saccade.attention(q, k, v, causal="bottom_right"), (1, H, 1, D),
                                   *[(1, H, 9, D)] * 2),
    "saccade.attention of another layout": model(
        lambda q, k, v: saccade.attention(*(x.transpose(1, 2) for x in (q, k, v)), layout="bshd").transpose(1, 2)),
    "nn.MultiheadAttention": lambda: nn.MultiheadAttention(E, H, batch_first=True).eval()(
        *[tokens()] * 3, key_padding_mask=hidden_last(), attn_mask=~causal()),
    "nn.TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(E, H, batch_first=True)(tokens()),
    "nn.Transformer": lambda: nn.Transformer(E, H, 1, 1, 64, batch_first=True).eval()(
        tokens(), tokens(7), tgt_mask=nn.Transformer.generate_square_subsequent_mask(7)),
    "masked padding": lambda: Padded(is_masked=True)(padded_ids()),
    "ids of one type": lambda: Padded(is_masked=False)(torch.zeros(B, S, dtype=torch.int64)),
    "causal padding": lambda: Padded(is_masked=False, is_causal=True)(padded_ids()),
    "varying lengths": lambda: Calls()([(2, 8, 12, D), (2, 8, 15, D)]),
    "one position": lambda: [module().eval()(tokens(1)) for module in [
        type("One", (Heads,), {"attend": staticmethod(sdpa), "split": lambda self, x: x.view(B, H, 1, D)})]],
    "classification": call(lambda x, y: (x @ y.mT).softmax(-1).sum(), (8, D), (5, D)),
}
