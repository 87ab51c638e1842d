"""The benchmark rows of the bundle: problems with the libraries that compute them, side by side.

A row lists tensors, random or in a file, and contenders: a library, an entry, and the tensors that it takes. Rows of
the group "rows" are one for each kernel; "variants" compares libraries or operands of one problem; "lengths" repeats
kernels with other sizes; "flex" has masks that PyTorch's fused attention lacks.
"""

import dataclasses
import zlib

import numpy as np

from checks import documents
from kinds import Kind, Linear

TARGETS = ("sm_80", "sm_90a")
SDPA = ("torch flash", "torch cudnn")
ELEMENT = 2  # bytes of f16 and bf16
SHORT = 16  # queries of a row that is bound by memory, at most
WORDS = {"keys32": "steps of 32 keys", "keys64": "steps of 64 keys", "rows64": "tasks of 64 rows",
         "simt": "without tensor cores"}


class Row:
    """The entry of the manifest of a row, as it is put together."""

    def __init__(self, group, name, folder, flops, moved, unit, peers=(), peer=None):
        self.folder, self.tensors, self.contenders, self.kinds = folder, [], [], []
        self.entry = {"group": group, "name": name, "flops": flops, "bytes": moved, "unit": unit, "peers": list(peers),
                      "peer": peer, "tensors": self.tensors, "contenders": self.contenders}

    def tensor(self, dtype, *shape, content=None, **more):
        """The number of a tensor of random normals, or of a file with `content`."""
        if content is not None:
            file = f"row-{zlib.crc32(content.tobytes()):08x}.bin"
            (self.folder / file).write_bytes(content.astype({"i32": np.int32, "f32": np.float32}[dtype]).tobytes())
            more["file"] = file
        self.tensors.append({"dtype": dtype, "shape": list(shape), **more})
        return len(self.tensors) - 1

    def add(self, kind, entry, inputs, results, targets=TARGETS, note=""):
        """A contender for each target that has a library of this kind."""
        self.kinds.append(kind)
        for target in targets:
            label = f"{target}{', ' * bool(note)}{note}"
            self.contenders.append({"name": label, "target": target, "kind": kind.name, "entry": entry,
                                    "inputs": inputs, "results": results})


def pairs_of(kind, queries, keys, ids):
    if kind.mask == "documents":
        return int((np.bincount(ids).astype(np.int64) ** 2).sum())
    if kind.mask == "causal":  # closed form: masks of long rows do not fit in memory
        hidden = np.maximum(0, queries - 1 - np.arange(queries, dtype=np.int64))
        return int((np.maximum(0, keys - hidden)).sum())
    if kind.window is not None:
        last = np.arange(queries, dtype=np.int64) + keys - queries
        first = np.maximum(0, np.arange(queries, dtype=np.int64) - kind.window)
        return int(np.maximum(0, last - first + 1).sum())
    return queries * keys


def attention_row(group, folder, kind, batch, heads, kv_heads, queries, keys, page=0, peers=SDPA):
    """Attention, or its gradients, with 16-bit operands."""
    rng = np.random.default_rng(batch * keys)
    ids = documents(rng, keys) if kind.mask == "documents" else None
    pairs = pairs_of(kind, queries, keys, ids)
    flops = 2 * (5 if kind.gradient else 2) * batch * heads * pairs * kind.depth
    moved = ELEMENT * batch * kind.depth * 2 * (heads * queries + kv_heads * keys)
    grouped, longer = f"({kv_heads})" if heads != kv_heads else "", f"x{keys}" if keys != queries else ""
    words = [kind.dtype, f"d{kind.depth}", kind.mask, kind.score, "sink" if kind.sink else "",
             "tally" if kind.tally else "", "gradient" if kind.gradient else "", f"pages of {page}" if page else ""]
    name = " ".join(filter(None, [*words, f"{batch}x{heads}{grouped}x{queries}{longer}"]))
    # PyTorch's causal mask is aligned top left.
    is_plain = not (kind.score or kind.sink or kind.tally or kind.is_causal and queries != keys)
    is_fused = is_plain and kind.mask in ("full", "causal")
    row = Row(group, name, folder, flops, moved, "TB/s" if queries <= SHORT else "TFLOP/s",
              [peer for peer in peers if is_fused or peer == "flex"],
              {"op": "attention", "mask": kind.mask, "gradient": kind.gradient, "grouped": heads != kv_heads})
    q = row.tensor(kind.dtype, batch, heads, queries, kind.depth)
    k, v = (row.tensor(kind.dtype, batch, kv_heads, keys, kind.depth) for _ in "kv")
    row.entry["peer"]["inputs"] = [q, k, v]
    output = row.tensor(kind.dtype, batch, heads, queries, kind.depth, result=True)
    results = [output]
    results += [row.tensor("f32", batch, heads, queries, result=True)] * (kind.lse or kind.gradient)
    # What the rounding of the log-sum-exp took.
    results += [row.tensor("f32", batch, heads, queries, result=True)] * kind.gradient
    results += [row.tensor("f32", batch, heads, queries, 8, result=True)] * kind.tally
    inputs = [q, k, v]
    if page:
        pool = [row.tensor(kind.dtype, batch * keys // page, kv_heads, page, kind.depth) for _ in "kv"]
        table = rng.permutation(batch * keys // page).reshape(batch, -1)
        inputs = [q, *pool, row.tensor("i32", *table.shape, content=table)]
    for clause in kind.reads:
        if clause == "documents":
            inputs.append(row.tensor("i32", keys, content=ids))
            row.entry["peer"]["ids"] = inputs[-1]
        else:
            inputs.append(row.tensor("f32", heads, content=2.0 ** -np.arange(1, heads + 1, dtype=np.float64)))
    if not kind.gradient:
        row.add(kind, kind.name, inputs, results)
        if page:
            contiguous = Kind(kind.dtype, kind.depth)
            row.add(contiguous, contiguous.name, [q, k, v], results, note="contiguous")
        elif not (kind.score or kind.sink or kind.mask == "documents" or kind.window is not None):
            row.entry["sample"] = {"causal": kind.mask == "causal"}
        return row
    row.entry["setup"] = {"entry": kind.name, "inputs": inputs, "results": results}
    gradient = row.tensor(kind.dtype, batch, heads, queries, kind.depth)
    row.entry["peer"]["output_gradient"] = gradient
    grads = [row.tensor(kind.dtype, *row.tensors[x]["shape"], result=True) for x in (q, k, v)]
    row.add(kind, f"{kind.name}_gradient", inputs + results + [gradient], grads)
    return row


def linear_row(folder, kind, rows, columns, depth):
    row = Row("rows", f"{kind.dtype} linear {rows}x{columns}x{depth}", folder, 2 * rows * columns * depth,
              ELEMENT * (rows * depth + columns * depth + rows * columns), "TFLOP/s", ["torch linear"],
              {"op": "linear"})
    x, w, bias = (row.tensor(kind.dtype, *shape) for shape in ((rows, depth), (columns, depth), (columns,)))
    row.entry["peer"]["inputs"] = [x, w, bias]
    row.add(kind, kind.name, [x, w, bias], [row.tensor(kind.dtype, rows, columns, result=True)])
    return row


def copies_row(folder, kind, batch, heads, length):
    """Copies of 16 bytes (cp.async, or bulk copies) beside those of operands at odd addresses, element by element."""
    row = attention_row("variants", folder, kind, batch, heads, heads, length, length, peers=())
    row.entry["name"] = f"copies: {row.entry['name']}"
    shape = row.tensors[0]["shape"]
    odd = [row.tensor(kind.dtype, *shape, offset=ELEMENT) for _ in "qkv"]
    row.add(kind, kind.name, odd, row.contenders[0]["results"], note="odd addresses")
    return row


def kernels_row(folder, kind, variants, batch, heads, length):
    """What the compiler chooses, beside other families of kernels, keys of a step and rows of a task."""
    row = attention_row("variants", folder, kind, batch, heads, heads, length, length, peers=())
    row.entry["name"] = f"kernels: {row.entry['name']}"
    first = row.contenders[0]
    for variant in variants:
        other = dataclasses.replace(kind, variant=variant)
        row.add(other, other.name, first["inputs"], first["results"], ["sm_80"], WORDS[variant])
    return row


def benchmark(tiny, folder):
    """Yields the rows in the order of their value."""
    wide, narrow = Kind("bf16", 128, "causal"), Kind("bf16", 64, "causal")
    if tiny:
        document = Kind("bf16", 64, "documents")
        yield attention_row("rows", folder, narrow, 1, 2, 2, 140, 140)
        yield attention_row("rows", folder, Kind("bf16", 64, "causal", gradient=True), 1, 1, 1, 40, 40)
        yield attention_row("rows", folder, Kind("bf16", 64, paged=True), 1, 2, 1, 1, 64, 16)
        yield linear_row(folder, Linear("bf16"), 40, 40, 64)
        yield kernels_row(folder, narrow, ("rows64", "keys32"), 1, 1, 140)
        yield copies_row(folder, narrow, 1, 1, 40)
        yield attention_row("lengths", folder, narrow, 1, 1, 1, 300, 300)
        yield attention_row("flex", folder, document, 1, 1, 1, 70, 70, peers=["flex"])
        return
    for kind, *sizes in [
            (wide, 4, 16, 16, 4096, 4096), (Kind("bf16", 128), 4, 16, 16, 4096, 4096),
            (narrow, 4, 32, 32, 4096, 4096), (Kind("bf16", 64), 4, 32, 32, 4096, 4096),
            (Kind("bf16", 128), 32, 32, 8, 1, 4096), (Kind("bf16", 128, "causal", gradient=True), 4, 16, 16, 4096, 4096),
            (Kind("bf16", 256, "causal"), 4, 8, 8, 4096, 4096), (Kind("bf16", 192, "causal"), 4, 8, 8, 4096, 4096),
            (Kind("bf16", 128, "documents"), 4, 16, 16, 4096, 4096),
            (Kind("bf16", 128, "causal", "softcap"), 4, 16, 16, 4096, 4096),
            (Kind("bf16", 128, "causal", "alibi"), 4, 16, 16, 4096, 4096),
            (Kind("bf16", 64, "causal", sink=True), 4, 32, 8, 4096, 4096),
            (Kind("bf16", 128, "causal"), 2, 32, 8, 4096, 4096), (Kind("f16", 128, "causal"), 4, 16, 16, 4096, 4096),
            (Kind("bf16", 128, paged=True), 8, 32, 8, 1, 4096, 16), (Kind("bf16", 128), 1, 32, 8, 1, 32768),
            (Kind("bf16", 128, paged=True), 4, 32, 8, 1024, 4096, 16),
            # Eight tokens of eight heads of a KV head, such as those of speculative decoding.
            (Kind("bf16", 128, "causal"), 32, 64, 8, 8, 4096), (Kind("bf16", 128, paged=True), 32, 64, 8, 8, 4096, 16),
            (Kind("bf16", 128), 8, 32, 8, 1, 4096), (Kind("bf16", 64, "causal", gradient=True), 4, 32, 32, 4096, 4096),
            (Kind("bf16", 128, tally=True), 4, 16, 16, 4096, 4096)]:
        yield attention_row("rows", folder, kind, *sizes)
    # A large matmul, and the short sums of a feed-forward layer.
    for sizes in ((4096, 4096, 4096), (8192, 4096, 1024)):
        yield linear_row(folder, Linear("bf16"), *sizes)
    for mask in ("full", "causal"):
        kind = Kind("bf16", 128, mask)
        yield kernels_row(folder, kind, ("keys32", "rows64"), 4, 16, 4096)
        yield copies_row(folder, kind, 4, 16, 4096)
    yield kernels_row(folder, Kind("bf16", 64), ("keys32", "rows64", "simt"), 4, 32, 4096)
    yield kernels_row(folder, Kind("bf16", 256, "causal"), ("keys64",), 4, 8, 4096)
    for length in (16384, 1024, 512):
        for depth in (128, 64):
            for mask in ("causal", "full"):
                yield attention_row("lengths", folder, Kind("bf16", depth, mask), 16384 // length, 2048 // depth,
                                    2048 // depth, length, length)
    for page in (1, 64):
        yield attention_row("lengths", folder, Kind("bf16", 128, paged=True), 8, 32, 8, 1, 4096, page)
    yield attention_row("lengths", folder, Kind("bf16", 128, "causal", gradient=True), 1, 16, 16, 16384, 16384)
    for mask in ("documents", "window31", "causal"):
        yield attention_row("flex", folder, Kind("bf16", 128, mask), 4, 16, 16, 4096, 4096, peers=["flex"])

