"""Benchmark cases: their text form, shapes, FLOPs and bytes."""

import dataclasses
import re

TYPES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}  # bytes per element
LAYOUTS = ("bhsd", "bshd")


class BadCase(ValueError):
    """A text that is not a valid case; the message gives the reason."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """The compile-time properties of a case. All other sizes are dynamic."""

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
    """Attention of `queries` × `keys` for each batch and head; heads / kv_heads query heads share a KV head.

    `mask` is full, causal, or windowN: a query attends to itself and the N − 1 keys before it. With `has_bias` a bias
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
            raise BadCase(f"'{self}': found a size of 0, expected sizes of 1 or more")
        if self.heads % self.kv_heads:
            raise BadCase(f"'{self}': found {self.heads} heads and {self.kv_heads} KV heads, expected a multiple")
        if self.mask != "full" and self.queries != self.keys:
            raise BadCase(f"'{self}': found a mask with {self.queries} queries and {self.keys} keys, expected equal lengths")

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
        """The number of keys in the window, or None if the mask is not a window."""
        return int(self.mask[len("window"):]) if self.mask.startswith("window") else None

    def visible_keys(self, query):
        """The half-open range of keys that a query attends to."""
        if self.mask == "full":
            return 0, self.keys
        return max(0, query + 1 - (self.window or self.keys)), query + 1

    @property
    def pairs(self):
        """Visible query-key pairs of one head: exact under a window, half of all pairs under a causal mask."""
        if self.window:
            width = min(self.window, self.keys)
            return width * (width + 1) // 2 + (self.queries - width) * width
        return self.queries * self.keys // (2 if self.mask == "causal" else 1)

    @property
    def flops(self):
        """FLOPs of Q·Kᵀ and P·V."""
        return 4 * self.batch * self.heads * self.pairs * self.depth

    @property
    def is_decode(self):
        """Whether there is one query per head, so that reading keys and values is the bottleneck."""
        return self.queries == 1

    @property
    def work(self):
        """Bytes of K and V in decode, else FLOPs."""
        if self.is_decode:
            return 2 * self.batch * self.kv_heads * self.keys * self.depth * TYPES[self.type]
        return self.flops

    @property
    def score_bytes(self):
        """Bytes of the whole score matrix in f32."""
        return 4 * self.batch * self.heads * self.queries * self.keys

    def arranged(self, heads, length):
        """The shape of a tensor in the layout of the case."""
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
        """Extents of the index (batch, head, query) of an output row."""
        return self.batch, self.heads, self.queries

    def by_row(self, array):
        """A tensor in the layout of the case as a [b, h, s, d] view."""
        return array if self.layout == "bhsd" else array.swapaxes(1, 2)


@dataclasses.dataclass(frozen=True)
class Gemm:
    """A projection with bias: [outer, inner] × [inner, columns] + [columns]."""

    outer: int
    inner: int
    columns: int
    type: str = "f32"

    is_decode = False

    def __post_init__(self):
        if min(self.outer, self.inner, self.columns) < 1:
            raise BadCase(f"'{self}': found a size of 0, expected sizes of 1 or more")

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
    """Parses "1x32(8)x2048x128 causal bf16": batch × heads (KV heads) × length × head_dim, or two lengths, those of
    queries and keys. Options in any order: causal or window512, bias, bshd, a type. "6272x768x3072 gemm" is outer ×
    inner × columns. Raises BadCase."""
    shape, *words = re.sub(r"\bwindow +(?=\d)", "window", text).split() or [""]
    options, is_gemm = {}, False
    for word in words:
        if word in TYPES:
            options["type"] = word
        elif word == "gemm":
            is_gemm = True
        elif word in ("full", "causal") or re.fullmatch(r"window[1-9]\d*", word):
            options["mask"] = word
        elif word in LAYOUTS:
            options["layout"] = word
        elif word == "bias":
            options["has_bias"] = True
        else:
            raise BadCase(f"'{text}': found '{word}', expected a case such as '1x32(8)x2048x128 causal bf16' or "
                          "'6272x768x768 gemm'")
    if is_gemm:
        match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", shape)
        if not match or options.keys() - {"type"}:
            raise BadCase(f"'{text}' is not a GEMM, expected a case such as '6272x768x3072 gemm bf16'")
        return Gemm(*map(int, match.groups()), **options)
    match = re.fullmatch(r"(\d+)x(\d+)(?:\((\d+)\))?x(\d+)(?:x(\d+))?x(\d+)", shape)
    if not match:
        raise BadCase(f"'{text}' is not a case, expected one such as '1x32(8)x2048x128 causal bf16'")
    batch, heads, kv_heads, queries, keys, depth = (int(size) if size else None for size in match.groups())
    return Attention(batch, heads, heads if kv_heads is None else kv_heads, queries,
                     queries if keys is None else keys, depth, **options)


def with_type(case, type):
    return dataclasses.replace(case, type=type)
