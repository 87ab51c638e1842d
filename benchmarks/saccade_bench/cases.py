"""What is measured: problems, as a line of text names them, and what each of them amounts to."""

import dataclasses
import re

TYPES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}  # with bytes an element
LAYOUTS = ("bhsd", "bshd")


class BadCase(ValueError):
    """A text that names no problem; the message says why."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """What makes another program: all else is known at run time only."""

    operation: str
    type: str
    depth: int = 0
    mask: str = "full"
    has_bias: bool = False
    layout: str = "bhsd"

    def __str__(self):
        if self.operation == "gemm":
            return f"{self.type}-gemm"
        words = [self.type, f"d{self.depth}", self.mask] + ["bias"] * self.has_bias
        return "-".join(words + [self.layout] * (self.layout != "bhsd"))


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention of `queries` × `keys` for each of batch × heads; key heads are shared evenly.

    `mask` is full, causal, or windowN: a query sees itself and the N − 1 keys before it. With `has_bias` a table
    [heads, queries, keys] is added to the scores.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    depth: int
    mask: str = "full"
    has_bias: bool = False
    layout: str = "bhsd"
    type: str = "f32"

    def __post_init__(self):
        if min(self.batch, self.heads, self.kv_heads, self.queries, self.keys, self.depth) < 1:
            raise BadCase(f"'{self}': sizes are 1 or more")
        if self.heads % self.kv_heads:
            raise BadCase(f"'{self}': {self.heads} heads cannot share {self.kv_heads} key heads evenly")
        if self.mask != "full" and self.queries != self.keys:
            raise BadCase(f"'{self}': with a mask there are as many keys as queries")

    def __str__(self):
        shared = f"({self.kv_heads})" if self.kv_heads != self.heads else ""
        lengths = f"{self.queries}" if self.queries == self.keys else f"{self.queries}x{self.keys}"
        words = [f"{self.batch}x{self.heads}{shared}x{lengths}x{self.depth}", self.mask]
        return " ".join(words + ["bias"] * self.has_bias + ["bshd"] * (self.layout == "bshd") + [self.type])

    @property
    def kind(self):
        return Kind("attention", self.type, self.depth, self.mask, self.has_bias, self.layout)

    @property
    def window(self):
        """How many keys a query sees at most, where the mask is a window; else None."""
        return int(self.mask[len("window"):]) if self.mask.startswith("window") else None

    def seen(self, query):
        """The range of keys that a query sees."""
        if self.mask == "full":
            return 0, self.keys
        return max(0, query + 1 - (self.window or self.keys)), query + 1

    @property
    def pairs(self):
        """Pairs of a query and a key that it sees, in one head: exactly under a window, half of all if causal."""
        if self.window:
            inside = min(self.window, self.keys)
            return inside * (inside + 1) // 2 + (self.queries - inside) * inside
        return self.queries * self.keys // (2 if self.mask == "causal" else 1)

    @property
    def flops(self):
        """Of the two matrix products."""
        return 4 * self.batch * self.heads * self.pairs * self.depth

    @property
    def is_decode(self):
        """With one query a head the reading of keys and values decides."""
        return self.queries == 1

    @property
    def work(self):
        """Bytes of keys and values in decode, else FLOPs."""
        if self.is_decode:
            return 2 * self.batch * self.kv_heads * self.keys * self.depth * TYPES[self.type]
        return self.flops

    @property
    def score_bytes(self):
        """Of all scores in f32, for those who write them down."""
        return 4 * self.batch * self.heads * self.queries * self.keys

    def arranged(self, heads, length):
        """The extents of a tensor with these heads and this length."""
        middle = (heads, length) if self.layout == "bhsd" else (length, heads)
        return (self.batch, *middle, self.depth)

    @property
    def input_shapes(self):
        table = [(self.heads, self.queries, self.keys)] if self.has_bias else []
        keys = self.arranged(self.kv_heads, self.keys)
        return [self.arranged(self.heads, self.queries), keys, keys, *table]

    @property
    def output_shape(self):
        return self.arranged(self.heads, self.queries)

    @property
    def rows(self):
        """Extents of the index (batch, head, query) of a row."""
        return self.batch, self.heads, self.queries

    def by_row(self, array):
        """A tensor of queries, keys or results as [b, h, s, d], whatever its layout."""
        return array if self.layout == "bhsd" else array.swapaxes(1, 2)


@dataclasses.dataclass(frozen=True)
class Product:
    """A projection with bias: `outer` rows of `inner` elements times inner × columns, plus a row."""

    outer: int
    inner: int
    columns: int
    type: str = "f32"

    is_decode = False

    def __post_init__(self):
        if min(self.outer, self.inner, self.columns) < 1:
            raise BadCase(f"'{self}': sizes are 1 or more")

    def __str__(self):
        return f"{self.outer}x{self.inner}x{self.columns} gemm {self.type}"

    @property
    def kind(self):
        return Kind("gemm", self.type)

    @property
    def flops(self):
        return 2 * self.outer * self.inner * self.columns

    work = flops

    @property
    def input_shapes(self):
        return [(self.outer, self.inner), (self.inner, self.columns), (self.columns,)]

    @property
    def output_shape(self):
        return self.outer, self.columns

    @property
    def rows(self):
        return (self.outer,)

    def by_row(self, array):
        return array


def parse(text):
    """"1x32(8)x2048x128 causal bf16": batch × heads (key heads) × length × head size; two lengths are those of
    queries and keys. Then in any order: causal or window512, bias, bshd, a type. "6272x768x3072 gemm": rows × inner ×
    columns."""
    shape, *words = re.sub(r"\bwindow +(?=\d)", "window", text).split() or [""]
    options, is_product = {}, False
    for word in words:
        if word in TYPES:
            options["type"] = word
        elif word == "gemm":
            is_product = True
        elif word in ("full", "causal") or re.fullmatch(r"window[1-9]\d*", word):
            options["mask"] = word
        elif word in LAYOUTS:
            options["layout"] = word
        elif word == "bias":
            options["has_bias"] = True
        else:
            raise BadCase(f"'{text}': what is '{word}'? A case is '1x32(8)x2048x128 causal bf16' or '6272x768x768 "
                          "gemm'")
    if is_product:
        match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", shape)
        if not match or options.keys() - {"type"}:
            raise BadCase(f"'{text}' is no product; one is '6272x768x3072 gemm bf16'")
        return Product(*map(int, match.groups()), **options)
    match = re.fullmatch(r"(\d+)x(\d+)(?:\((\d+)\))?x(\d+)(?:x(\d+))?x(\d+)", shape)
    if not match:
        raise BadCase(f"'{text}' is no case; one is '1x32(8)x2048x128 causal bf16'")
    batch, heads, kv_heads, queries, keys, depth = (int(size) if size else None for size in match.groups())
    return Attention(batch, heads, heads if kv_heads is None else kv_heads, queries,
                     queries if keys is None else keys, depth, **options)


def with_type(case, type):
    return dataclasses.replace(case, type=type)
