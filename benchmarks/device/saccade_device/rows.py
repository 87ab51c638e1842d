"""Timing of the contenders of a row in alternation, on one GPU by CUDA events; ratios are paired by round."""

import math
import random
import statistics
import struct

from .artifact import Artifact, bytes_of, describe
from .cases import distance, numbers

# Values of a block of random numbers; a prime, so that no two rows of a tensor are alike.
BLOCK = 65521
# Elements of results that are compared: chunks from the first to the last element.
CHUNKS, CHUNK = 32, 1024


def normals(dtype, size, seed):
    """`size` bytes of random normals."""
    rng = random.Random(seed)
    block = [rng.gauss(0, 1) for _ in range(BLOCK)]
    if dtype == "bf16":
        words = struct.unpack(f"<{BLOCK}I", struct.pack(f"<{BLOCK}f", *block))
        content = struct.pack(f"<{BLOCK}H", *(word + 0x8000 >> 16 for word in words))
    else:
        letter = {"f16": "e", "f32": "f"}[dtype]
        content = struct.pack(f"<{BLOCK}{letter}", *block)
    return (content * (size // len(content) + 1))[:size]


class Row:
    """The tensors of a problem in GPU memory, and its contenders as functions."""

    def __init__(self, folder, row, libraries, driver):
        self.driver, self.row, self.folder, self.addresses = driver, row, folder, []
        for number, spec in enumerate(row["tensors"]):
            size, offset = bytes_of(spec["dtype"], spec["shape"]), spec.get("offset", 0)
            if "file" in spec:
                content = (folder / spec["file"]).read_bytes()
            else:
                content = b"\xff" * size if spec.get("result") else normals(spec["dtype"], size, number)
            address = driver.allocate(size + offset) + offset
            driver.write(address, content)
            self.addresses.append(address)
        self.artifacts, self.functions, self.inputs, self.results = {}, {}, {}, {}
        self.setup_library, self.sampled = None, {}
        for each in row["contenders"]:
            library = libraries[each["kind"]][each["target"]]
            if row.get("setup") and not self.setup_library:
                self.setup_library = library
                self.function(library, row["setup"])()
            self.functions[each["name"]] = self.function(library, each)
            self.inputs[each["name"]], self.results[each["name"]] = each["inputs"], each["results"]

    def function(self, library, call):
        """A function that calls an entry of a library with tensors of the row."""
        if library not in self.artifacts:
            self.artifacts[library] = Artifact(self.folder / library)
        artifact, specs = self.artifacts[library], self.row["tensors"]
        tensors = [describe(self.addresses[i], specs[i]["dtype"], specs[i]["shape"])
                   for i in call["inputs"] + call["results"]]
        function = artifact.function(call["entry"], tensors)

        def run():
            artifact.set_stream(self.driver.stream)
            function()

        return run

    def clear_results(self, name):
        for i in self.results[name]:
            spec = self.row["tensors"][i]
            self.driver.write(self.addresses[i], b"\xff" * bytes_of(spec["dtype"], spec["shape"]))

    def read(self, i, first, count):
        """Elements of a tensor as floats."""
        dtype = self.row["tensors"][i]["dtype"]
        element = bytes_of(dtype, [1])
        return numbers(dtype, self.driver.get(self.addresses[i] + first * element, count * element))

    def difference(self, name):
        """Relative difference in norm of some results from those of the first contender with the same inputs, or None."""
        key = tuple(self.inputs[name])
        size = math.prod(self.row["tensors"][self.results[name][0]]["shape"])
        count = min(size, CHUNK)
        starts = [i * (size - count) // (CHUNKS - 1) for i in range(CHUNKS)]
        found = [number for start in starts for number in self.read(self.results[name][0], start, count)]
        if key in self.sampled:
            return distance(found, self.sampled[key])
        self.sampled[key] = found
        return None

    def error(self, name):
        """Relative error in norm of some rows of attention against sums in float64; None if the row has no sample."""
        sample, inputs, result = self.row.get("sample"), self.inputs[name], self.results[name][0]
        if not sample:
            return None
        shapes = [self.row["tensors"][i]["shape"] for i in inputs]
        (batch, heads, queries, depth), (_, kv_heads, keys, _) = shapes[:2]
        above = below = 0.0
        # The first head from the front, the last one from the end: rows of first, inner and last tiles.
        for b, h, i in {(0, 0, 0), (0, 0, queries // 2 + 3 if queries > 8 else 0), (batch - 1, heads - 1, queries - 1)}:
            row, group = (b * heads + h) * queries + i, b * kv_heads + h * kv_heads // heads
            seen = max(0, min(keys, i + keys - queries + 1)) if sample["causal"] else keys
            q = self.read(inputs[0], row * depth, depth)
            k, v = (self.read(each, group * keys * depth, seen * depth) for each in inputs[1:3])
            scores = [sum(map(float.__mul__, q, k[j * depth:(j + 1) * depth])) / math.sqrt(depth) for j in range(seen)]
            largest = max(scores, default=0.0)
            weights = [math.exp(score - largest) for score in scores]
            total = sum(weights) or 1.0
            found = self.read(result, row * depth, depth)
            for d in range(depth):
                expected = sum(map(float.__mul__, weights, v[d::depth])) / total
                above += (found[d] - expected) ** 2
                below += expected**2
        error = math.sqrt(above / below) if below else math.sqrt(above)
        return error if math.isfinite(error) else math.inf


def measure(row, peers, rounds, seconds, begin):
    """{name: [milliseconds by round]}: graphs of ours, of ours by calls, and the peers; in rotating order.

    `peers` are functions on the stream. `begin(name)` is called before the first call of each.
    """
    driver, functions, notes = row.driver, {}, {}
    for name, function in row.functions.items():
        begin(name)
        function()
        driver.synchronize()
        try:
            functions[name] = driver.as_graph(function)
        except RuntimeError as error:
            functions[name], notes[name] = function, f"not as a graph: {error}"
    first = next(iter(row.functions), None)
    if first:
        functions[f"{first} by calls"] = row.functions[first]
    functions.update(peers)
    counts = {}
    for name, function in functions.items():
        begin(name)
        once = driver.milliseconds(function, 3)
        counts[name] = max(1, min(200, int(seconds / rounds / once * 1e3)))
    names, figures = list(functions), {name: [] for name in functions}
    for i in range(rounds):
        for name in names[i % len(names):] + names[:i % len(names)]:
            figures[name].append(driver.milliseconds(functions[name], counts[name]))
    driver.synchronize()
    return figures, notes


def summary(figures):
    """({name: median milliseconds}, {name: median over rounds of its time over that of the first})."""
    first = next(iter(figures))
    medians = {name: statistics.median(times) for name, times in figures.items()}
    ratios = {name: statistics.median(other / one for other, one in zip(times, figures[first]))
              for name, times in figures.items()}
    return medians, ratios
