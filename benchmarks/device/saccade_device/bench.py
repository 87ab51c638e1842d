"""Interleaved timing of Saccade and its peers on one GPU with CUDA events; ratios are paired by round."""

import math
import statistics
import time

from . import peers
from .artifact import Artifact, describe

OURS = "saccade"


def flops(row):
    """FLOPs of Q·Kᵀ and P·V, or of the five matmuls of a gradient; of visible pairs under a causal mask."""
    pairs = row["queries"] * row["keys"]
    if row["mask"] == "causal":
        pairs -= row["queries"] * (row["queries"] - 1) // 2
    return 2 * (5 if row["gradient"] else 2) * row["batch"] * row["heads"] * pairs * row["depth"]


def bytes_moved(row):
    """Bytes of reading every input once and writing the output once."""
    element = 2
    return element * row["batch"] * row["depth"] * 2 * (row["heads"] * row["queries"] + row["kv_heads"] * row["keys"])


class Row:
    """One problem with its contenders."""

    def __init__(self, torch, folder, row, requested):
        self.torch, self.row, self.arguments = torch, row, None
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[row["dtype"]]

        def tensor(heads, length):
            return torch.randn(row["batch"], heads, length, row["depth"], device="cuda", dtype=dtype)

        q = tensor(row["heads"], row["queries"])
        k, v = (tensor(row["kv_heads"], row["keys"]) for _ in range(2))
        self.inputs, self.results = [q, k, v], [torch.full_like(q, math.nan)]
        artifact, contiguous = (Artifact(folder / row[name]) for name in ("artifact", "contiguous"))
        entry = "attend"
        if row["gradient"]:
            self.results.append(torch.empty(q.shape[:3], device="cuda"))
            self.call(artifact, entry)()
            self.inputs += self.results + [torch.randn_like(q)]
            self.results = [torch.full_like(each, math.nan) for each in (q, k, v)]
            entry = "attend_gradient"
        functions, self.missing = peers.make(torch, row, requested, *self.inputs)
        if row["page"]:
            functions["contiguous"] = self.call(contiguous, entry)
            self.arguments = [q, *self.in_pages()]
        self.functions = {OURS: self.call(artifact, entry), **functions}

    def call(self, artifact, entry):
        """A function that calls an entry of the library with the inputs, or with `arguments`, and the results."""
        names = {self.torch.float32: "f32", self.torch.int32: "i32"}
        tensors = [describe(each.data_ptr(), names.get(each.dtype, self.row["dtype"]), list(each.shape))
                   for each in (self.arguments or self.inputs) + self.results]
        function = artifact.function(entry, tensors)

        def call():
            artifact.set_stream(self.torch.cuda.current_stream().cuda_stream)
            function()

        return call

    def in_pages(self):
        """Keys and values in a pool of pages in random order, and the table of pages."""
        torch, row = self.torch, self.row
        table = torch.randperm(row["batch"] * row["keys"] // row["page"], device="cuda")
        pools = []
        for each in self.inputs[1:]:
            pages = each.unflatten(2, (-1, row["page"])).transpose(1, 2).flatten(0, 1)
            pools.append(torch.empty_like(pages, memory_format=torch.contiguous_format))
            pools[-1][table] = pages
        return [*pools, table.reshape(row["batch"], -1).int()]

    def error(self):
        """Relative error in norm of some heads against float64, the largest of all results."""
        self.functions[OURS]()
        self.torch.cuda.synchronize()
        row = self.row
        return max(self.error_of_head(batch, head) for batch, head in {(0, 0), (row["batch"] - 1, row["heads"] - 1)})

    def error_of_head(self, batch, head):
        torch, row = self.torch, self.row
        group = head * row["kv_heads"] // row["heads"]
        q, k, v = (each[batch, at].double() for each, at in zip(self.inputs, (head, group, group)))
        # All queries for a gradient, else a sample.
        positions = torch.arange(row["queries"], device="cuda")
        if not row["gradient"]:
            positions = torch.randint(row["queries"], (min(row["queries"], 128),), device="cuda")
        q = q[positions]
        scores = q @ k.T / math.sqrt(row["depth"])
        if row["mask"] == "causal":
            last = positions + (row["keys"] - row["queries"])
            scores.masked_fill_(torch.arange(row["keys"], device="cuda")[None] > last[:, None], -math.inf)
        weights = scores.softmax(-1)
        del scores
        if not row["gradient"]:
            return self.distance(self.results[0][batch, head, positions], weights @ v)
        output_gradient = self.inputs[5][batch, head].double()
        v_gradient = weights.T @ output_gradient
        delta = (output_gradient * (weights @ v)).sum(-1, keepdim=True)
        weights *= (output_gradient @ v.T - delta) / math.sqrt(row["depth"])
        return max(self.distance(result[batch, head], expected)
                   for result, expected in zip(self.results, (weights @ k, weights.T @ q, v_gradient)))

    @staticmethod
    def distance(found, expected):
        error = ((found.double() - expected).norm() / expected.norm()).item()
        return error if math.isfinite(error) else math.inf

    def time(self, rounds, seconds):
        """{name: [milliseconds of a call by round]}; every round runs all contenders in rotating order."""
        torch = self.torch
        counts = {}
        if self.row["queries"] <= 16:
            self.functions = {name: self.as_graph(function) for name, function in self.functions.items()}
        for name, function in self.functions.items():
            once = self.measure(function, 3)
            counts[name] = max(1, min(200, int(seconds / rounds / max(once, 1e-3) * 1e3)))
        names, figures = list(self.functions), {name: [] for name in self.functions}
        for i in range(rounds):
            for name in names[i % len(names):] + names[:i % len(names)]:
                figures[name].append(self.measure(self.functions[name], counts[name]))
        torch.cuda.synchronize()
        return figures

    def as_graph(self, function):
        """The function as a CUDA graph: short kernels take less time than the calls that launch them."""
        torch = self.torch
        function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        return graph.replay

    def measure(self, function, count):
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        function()  # keeps the GPU busy until the begin event is recorded
        begin.record()
        for _ in range(count):
            function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count


def run(torch, folder, rows, requested, rounds, seconds, deadline, log):
    """Yields a dictionary of row, times, ratios and error for each row, until the deadline."""
    for number, row in enumerate(rows, 1):
        if time.monotonic() > deadline:
            log(f"out of time: {len(rows) - number + 1} rows skipped")
            return
        start = f"[{number}/{len(rows)}] {row['name']}:"
        try:
            measured = Row(torch, folder, row, requested)
            error = measured.error()
            figures = measured.time(rounds, seconds)
        except RuntimeError as failure:
            words = " ".join(str(failure).split())[:200]
            log(f"{start} {words}")
            yield {"row": row, "failure": words}
            continue
        medians = {name: statistics.median(times) for name, times in figures.items()}
        ratios = {name: statistics.median(other / ours for other, ours in zip(times, figures[OURS]))
                  for name, times in figures.items() if name != OURS}
        shown = ", ".join(f"{name} {flops(row) / each / 1e9:.0f}" for name, each in medians.items())
        log(f"{start} TFLOP/s {shown}; error {error:.1e}")
        yield {"row": row, "milliseconds": medians, "ratios": ratios, "missing": measured.missing, "error": error}
        del measured
        torch.cuda.empty_cache()
