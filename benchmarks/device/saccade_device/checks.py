"""Checks of the bundled cases against float64 results; with PyTorch also on streams and in CUDA graphs."""

import array
import math
import struct

from .artifact import Artifact, bytes_of, describe


def numbers(dtype, content):
    """The elements of a buffer as Python floats."""
    if dtype == "f16":
        return struct.unpack(f"<{len(content) // 2}e", content)
    if dtype == "bf16":
        halves = array.array("H", content)
        return struct.unpack(f"<{len(halves)}f", b"".join(struct.pack("<I", half << 16) for half in halves))
    return array.array({"f32": "f", "f64": "d", "i32": "i"}[dtype], content)


def distance(found, expected):
    """Relative error in norm; infinite if the lengths differ or a value is unexpectedly not finite."""
    if len(found) != len(expected):
        return math.inf
    above = below = 0.0
    for one, other in zip(found, expected):
        if one == other:  # infinities too
            continue
        if not math.isfinite(one):
            return math.inf
        above += (one - other) ** 2
    below = sum(other * other for other in expected if math.isfinite(other))
    return math.sqrt(above / below) if below else math.sqrt(above)


class Case:
    """A bundled case, with its tensors in GPU memory."""

    def __init__(self, folder, case, memory):
        self.folder, self.case, self.memory = folder, case, memory
        self.artifact = Artifact(folder / case["artifact"])
        self.contents = [(folder / value["file"]).read_bytes() for value in case["inputs"]]
        self.inputs = [memory.put(content) for content in self.contents]
        self.outputs = [memory.reserve(bytes_of(value["dtype"], value["shape"])) for value in case["outputs"]]
        self.tensors = [describe(address, value["dtype"], value["shape"])
                        for address, value in zip(self.inputs + self.outputs, case["inputs"] + case["outputs"])]
        self.function = self.artifact.function(case["entry"], self.tensors)

    def call(self):
        self.artifact.set_stream(self.memory.stream)
        self.function()

    def results(self):
        return [self.memory.get(address) for address in self.outputs]

    def poison(self):
        for address, value in zip(self.outputs, self.case["outputs"]):
            self.memory.write(address, b"\xff" * bytes_of(value["dtype"], value["shape"]))

    def error(self):
        """(maximum error of an output relative to the allowed error, description)."""
        worst, words = 0.0, []
        for value, content in zip(self.case["outputs"], self.results()):
            expected = numbers("f32", (self.folder / value["expected"]).read_bytes())
            error = distance(numbers(value["dtype"], content), expected)
            worst = max(worst, error / value["allowed"])
            words.append(f"{value['name']} {error:.1e} of {value['allowed']:.0e}")
        return worst, ", ".join(words)


def run(folder, manifest, memory, torch, log):
    """Runs all checks; [(name, passed, description)]."""
    outcomes = []

    def note(name, passed, words):
        outcomes.append((name, passed, words))
        log(f"{'ok  ' if passed else 'FAIL'} {name}: {words}")

    for entry in manifest["checks"]:
        name = entry["name"]
        try:
            case = Case(folder, entry, memory)
            case.call()
            worst, words = case.error()
            note(name, worst <= 1, words)
            first = case.results()
            case.poison()
            case.call()
            note(name + ", again", case.results() == first, "bit-identical")
            if torch:
                note(name + ", on another stream", *on_stream(case, torch, first))
                note(name + ", as a graph", *as_graph(case, torch, first))
        except RuntimeError as error:
            note(name, False, str(error))
        memory.release()
    return outcomes


def on_stream(case, torch, expected):
    stream = torch.cuda.Stream()
    case.poison()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        case.call()
    stream.synchronize()
    return case.results() == expected, "bit-identical"


def as_graph(case, torch, expected):
    """Captures the call in a CUDA graph with zero inputs, then replays it with the real inputs."""
    case.poison()
    for address, content in zip(case.inputs, case.contents):
        case.memory.write(address, bytes(len(content)))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.call()
    for address, content in zip(case.inputs, case.contents):
        case.memory.write(address, content)
    graph.replay()
    torch.cuda.synchronize()
    return case.results() == expected, "bit-identical"
