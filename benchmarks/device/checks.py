"""The checks of the bundle: cases with inputs, and their results in float64."""

import dataclasses
import math

import numpy as np

from kinds import Kind, Linear

# Maximum relative error in norm; inputs, softmax weights and outputs are rounded to the type.
ALLOWED = {"f32": 2e-5, "f16": 2e-3, "bf16": 1e-2}
ALLOWED_LSE, ALLOWED_TALLY = 1e-5, 1e-4  # of results that are never rounded


@dataclasses.dataclass(frozen=True)
class Case:
    """One check: a kind of attention with sizes."""

    kind: Kind
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    page: int = 0  # positions of a page

    @property
    def name(self):
        heads = f"{self.heads}({self.kv_heads})" if self.heads != self.kv_heads else str(self.heads)
        pages = f", pages of {self.page}" if self.page else ""
        return f"{self.kind.name} {self.batch}x{heads}x{self.queries}x{self.keys}{pages}"


def cases(tiny):
    """[(group, case)] in the order of their value: head sizes, types, masks, partial tiles, one query, many chunks of
    keys, fully masked rows, grouped heads, regions, gradients."""
    def plain(dtype, depth):
        return Case(Kind(dtype, depth), 1, 2, 1, 37, 50)

    if tiny:
        yield "forward bf16 d64", Case(Kind("bf16", 64, "causal", lse=True), 1, 2, 2, 70, 40)
        yield "head sizes 192, 256", Case(Kind("bf16", 192), 1, 1, 1, 37, 50)
        yield "documents", Case(Kind("bf16", 64, "documents"), 1, 1, 1, 70, 70)
        yield "soft-cap, ALiBi", Case(Kind("bf16", 64, score="softcap"), 1, 2, 1, 37, 50)
        yield "sinks", Case(Kind("bf16", 64, sink=True), 1, 2, 1, 37, 50)
        yield "tallies", Case(Kind("bf16", 64, tally=True), 1, 1, 1, 37, 50)
        yield "f32", Case(Kind("f32", 64, "window31"), 1, 2, 1, 70, 70)
        return
    for dtype, depth in (("bf16", 128), ("bf16", 64), ("f16", 128), ("f16", 64), ("bf16", 80)):
        group, lse = f"forward {dtype} d{depth}", Kind(dtype, depth, "causal", lse=True)
        yield group, plain(dtype, depth)
        yield group, Case(lse, 2, 4, 2, 131, 197)
        yield group, Case(lse, 1, 2, 2, 70, 40)
        yield group, Case(Kind(dtype, depth), 2, 4, 4, 1, 300)
        yield group, Case(Kind(dtype, depth), 1, 1, 1, 256, 192)
        yield group, Case(Kind(dtype, depth), 1, 1, 1, 200, 1300)
        if dtype == "bf16":
            yield group, Case(Kind(dtype, depth, "window31"), 1, 2, 2, 150, 150)
        if (dtype, depth) == ("bf16", 128):
            yield group, Case(Kind("bf16", 128, "causal"), 1, 2, 1, 700, 700)
            yield group, Case(Kind("bf16", 128), 1, 4, 1, 1, 2500)
    for depth in (192, 256):
        for mask in ("full", "causal"):
            yield "head sizes 192, 256", Case(Kind("bf16", depth, mask), 1, 2, 1, 131, 397)
    yield "head sizes 192, 256", Case(Kind("f16", 256), 1, 2, 1, 37, 50)
    for depth in (128, 64, 192):
        yield "documents", Case(Kind("bf16", depth, "documents"), 1, 1, 1, 400, 400)
        yield "documents", Case(Kind("bf16", depth, "documents"), 2, 2, 2, 131, 131)
    for depth in (128, 64, 256):
        yield "soft-cap, ALiBi", Case(Kind("bf16", depth, "causal", "softcap"), 1, 2, 1, 131, 397)
    for depth in (128, 64):
        yield "soft-cap, ALiBi", Case(Kind("bf16", depth, "causal", "alibi"), 1, 4, 2, 131, 197)
        yield "sinks", Case(Kind("bf16", depth, "causal", sink=True), 1, 4, 2, 131, 197)
        yield "sinks", Case(Kind("bf16", depth, "causal", sink=True), 2, 4, 2, 1, 300)
        yield "tallies", Case(Kind("bf16", depth, tally=True), 1, 2, 1, 131, 197)
        yield "tallies", Case(Kind("bf16", depth, tally=True), 1, 2, 1, 1, 300)
    for dtype, depth in (("bf16", 128), ("bf16", 64), ("f32", 64)):
        kind = Kind(dtype, depth, "causal", gradient=True)
        yield "gradients", Case(kind, 1, 4, 2, 131, 197)
        yield "gradients", Case(kind, 2, 2, 2, 70, 40)
    for queries, page in ((1, 16), (1, 1), (70, 16)):
        yield "pages", Case(Kind("bf16", 128, paged=True), 2, 4, 2, queries, 272, page)
    yield "f32", plain("f32", 64)
    yield "f32", Case(Kind("f32", 64, "causal", lse=True), 2, 4, 2, 131, 197)
    yield "f32", Case(Kind("f32", 64, "window31"), 1, 2, 2, 150, 150)
    yield "f32", Case(Kind("f32", 64), 2, 4, 4, 1, 300)
    yield "f32", Case(Kind("f32", 64, score="softcap"), 1, 4, 2, 65, 129)


def linear_cases(tiny):
    """[(group, kind, rows, columns, depth)] of projections."""
    for sizes in [(37, 40, 72)] if tiny else [(130, 72, 200), (300, 256, 512), (3, 65, 77)]:
        yield ("16-bit GEMM", Linear("bf16"), *sizes)


def encode(dtype, array):
    """The bytes of an array rounded to a type, and the rounded values in float64."""
    if dtype == "bf16":
        bits = array.astype(np.float32).view(np.uint32)
        halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        return halves.tobytes(), (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    rounded = array.astype({"f16": np.float16, "f32": np.float32, "i32": np.int32}[dtype])
    return rounded.tobytes(), rounded.astype(np.float64)


def documents(rng, tokens):
    """The document of each token: lengths from 1 to a third of the tokens."""
    lengths = []
    while sum(lengths) < tokens:
        lengths.append(int(rng.integers(1, max(2, tokens // 3))))
    return np.repeat(np.arange(len(lengths)), lengths)[:tokens]


def in_pages(array, table, page):
    """A pool with the positions of a tensor [b, h, s, d]; page i of sequence n is page table[n, i] of the pool."""
    batch, heads, _, depth = array.shape
    pages = array.reshape(batch, heads, -1, page, depth).swapaxes(1, 2)
    pool = np.empty((table.size, heads, page, depth))
    pool[table.reshape(-1)] = pages.reshape(pool.shape)
    return pool


def visible(kind, queries, keys, ids=None):
    """The pairs [queries, keys] that the mask keeps."""
    i, j = np.arange(queries)[:, None], np.arange(keys)[None]
    if kind.mask == "documents":
        return ids[i] == ids[j]
    pairs = np.ones((queries, keys), bool)
    if kind.is_causal:
        pairs &= j <= i + keys - queries
    if kind.window is not None:
        pairs &= j >= i - kind.window
    return pairs


class Reference:
    """Results of a case in float64. `values` are the inputs by name; keys and values have the heads of the KV cache."""

    def __init__(self, case, values):
        self.case, self.values, kind = case, values, case.kind
        group = case.heads // case.kv_heads
        self.q, (self.k, self.v) = values["q"], (np.repeat(values[x], group, axis=1) for x in "kv")
        scores = self.q @ self.k.swapaxes(-1, -2) / math.sqrt(kind.depth)
        if kind.score == "alibi":
            distance = np.arange(case.keys)[None] - np.arange(case.queries)[:, None]
            scores = scores + values["slope"][:, None, None] * distance
        if kind.score == "softcap":
            scores = 20 * np.tanh(scores / 20)
        scores[..., ~visible(kind, case.queries, case.keys, values.get("ids"))] = -np.inf
        row_max = np.maximum(scores.max(axis=-1, keepdims=True), -1e30)
        if kind.sink:
            row_max = np.maximum(row_max, values["sink"][:, None, None])
        weights = np.exp(scores - row_max)
        row_sum = weights.sum(axis=-1, keepdims=True)
        if kind.sink:
            row_sum += np.exp(values["sink"][:, None, None] - row_max)
        self.weights = weights / np.maximum(row_sum, 1e-300)
        self.output = self.weights @ self.v
        with np.errstate(divide="ignore"):
            self.lse = (np.log(row_sum) + row_max)[..., 0]

    def results(self):
        """[(name, type, array, allowed error)] of the entry."""
        kind = self.case.kind
        found = [("output", kind.dtype, self.output, ALLOWED[kind.dtype])]
        found += [("lse", "f32", self.lse, ALLOWED_LSE)] * kind.lse
        if kind.tally:
            bins = np.arange(self.case.keys) % 8
            sums = np.stack([self.weights[..., bins == each].sum(axis=-1) for each in range(8)], axis=-1)
            found.append(("tally", "f32", sums, ALLOWED_TALLY))
        return found

    def gradients(self, output, lse, output_gradient):
        """[(name, type, array, allowed error)]: gradients of queries, keys and values (FlashAttention-2, algorithm 2)."""
        case, kind = self.case, self.case.kind
        delta = (output_gradient * output).sum(axis=-1, keepdims=True)
        scores = self.weights * (output_gradient @ self.v.swapaxes(-1, -2) - delta) / math.sqrt(kind.depth)

        def of_group(x):
            return x.reshape(case.batch, case.kv_heads, case.heads // case.kv_heads, *x.shape[2:]).sum(axis=2)

        arrays = (scores @ self.k, of_group(scores.swapaxes(-1, -2) @ self.q),
                  of_group(self.weights.swapaxes(-1, -2) @ output_gradient))
        return [(f"{name}_gradient", kind.dtype, array, 3 * ALLOWED[kind.dtype]) for name, array in zip("qkv", arrays)]


class Writer:
    """Writes the tensors of a case to files of the bundle."""

    def __init__(self, folder, number):
        self.folder, self.number, self.entries = folder, number, []

    def input(self, name, dtype, array):
        """Writes an input; its values rounded to the type, in float64."""
        content, value = encode(dtype, array)
        file = f"case-{self.number}-{name}.bin"
        (self.folder / file).write_bytes(content)
        self.entries.append({"file": file, "dtype": dtype, "shape": list(array.shape)})
        return value

    def check(self, group, kind, name, entry, results):
        """The entry of the manifest, after the expected results are written."""
        outputs = []
        for result, dtype, array, allowed in results:
            file = f"case-{self.number}-{result}-expected.bin"
            (self.folder / file).write_bytes(array.astype("<f4").tobytes())
            outputs.append({"name": result, "expected": file, "dtype": dtype, "shape": list(array.shape),
                            "allowed": allowed})
        return {"group": group, "kind": kind, "name": name, "entry": entry, "inputs": self.entries, "outputs": outputs}


def bundle_case(group, case, number, folder):
    """Writes inputs and expected outputs of a case; its entry of the manifest."""
    rng, kind, writer = np.random.default_rng(number), case.kind, Writer(folder, number)
    rows = {"q": (case.heads, case.queries), "k": (case.kv_heads, case.keys), "v": (case.kv_heads, case.keys)}
    arrays = {name: rng.standard_normal((case.batch, *sizes, kind.depth)) for name, sizes in rows.items()}
    values = {name: encode(kind.dtype, array)[1] for name, array in arrays.items()}
    if kind.paged:
        table = rng.permutation(case.batch * case.keys // case.page).reshape(case.batch, -1)
        arrays.update((x, in_pages(arrays[x], table, case.page)) for x in "kv")
    for name in "qkv":
        writer.input(name, kind.dtype, arrays[name])
    if kind.paged:
        writer.input("table", "i32", table)
    if kind.score == "alibi":
        values["slope"] = writer.input("slope", "f32", 2.0 ** -np.arange(1, case.heads + 1))
    if kind.mask == "documents":
        values["ids"] = writer.input("ids", "i32", documents(rng, max(case.queries, case.keys)))
    if kind.sink:
        values["sink"] = writer.input("sink", "f32", rng.standard_normal(case.heads))
    reference = Reference(case, values)
    if not kind.gradient:
        return writer.check(group, kind.name, case.name, kind.name, reference.results())
    output = writer.input("output", kind.dtype, reference.output)
    lse = writer.input("lse", "f32", reference.lse)
    writer.input("lse_low", "f32", reference.lse - lse)
    output_gradient = writer.input("output_gradient", kind.dtype, rng.standard_normal(reference.output.shape))
    return writer.check(group, kind.name, case.name, f"{kind.name}_gradient",
                        reference.gradients(output, lse, output_gradient))


def bundle_linear(group, kind, rows, columns, depth, number, folder):
    """The same for a projection."""
    rng, writer = np.random.default_rng(number), Writer(folder, number)
    x, w, bias = (writer.input(name, kind.dtype, rng.standard_normal(shape)) for name, shape in
                  (("x", (rows, depth)), ("w", (columns, depth)), ("bias", (columns,))))
    return writer.check(group, kind.name, f"{kind.name} {rows}x{columns}x{depth}", kind.name,
                        [("output", kind.dtype, x @ w.T + bias, ALLOWED[kind.dtype])])
