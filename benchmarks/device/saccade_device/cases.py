"""Checks of the bundled cases against float64 results: twice, on another stream, and as a CUDA graph."""

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
    """Relative error in norm; infinite if the lengths differ or a value of one of them is not finite, except equal infinities."""
    if len(found) != len(expected):
        return math.inf
    above = below = 0.0
    for one, other in zip(found, expected):
        if one == other:  # infinities too
            continue
        if not (math.isfinite(one) and math.isfinite(other)):  # a NaN would be lost in a maximum
            return math.inf
        above += (one - other) ** 2
    below = sum(other * other for other in expected if math.isfinite(other))
    return math.sqrt(above / below) if below else math.sqrt(above)


class Case:
    """A bundled case, with its tensors in GPU memory."""

    def __init__(self, folder, case, library, driver):
        self.folder, self.case, self.driver = folder, case, driver
        self.artifact = Artifact(folder / library)
        self.contents = [(folder / value["file"]).read_bytes() for value in case["inputs"]]
        self.inputs = [driver.put(content) for content in self.contents]
        self.outputs = [driver.reserve(bytes_of(value["dtype"], value["shape"])) for value in case["outputs"]]
        self.tensors = [describe(address, value["dtype"], value["shape"])
                        for address, value in zip(self.inputs + self.outputs, case["inputs"] + case["outputs"])]
        self.function = self.artifact.function(case["entry"], self.tensors)

    def call(self):
        self.artifact.set_stream(self.driver.stream)
        self.function()

    def results(self):
        return [self.driver.get(address) for address in self.outputs]

    def poison(self):
        for address, value in zip(self.outputs, self.case["outputs"]):
            self.driver.write(address, b"\xff" * bytes_of(value["dtype"], value["shape"]))

    def error(self, contents):
        """(maximum error of an output relative to the allowed error, description)."""
        worst, words = 0.0, []
        for value, content in zip(self.case["outputs"], contents):
            expected = numbers("f32", (self.folder / value["expected"]).read_bytes())
            error = distance(numbers(value["dtype"], content), expected)
            worst = max(worst, error / value["allowed"])
            words.append(f"{value['name']} {error:.1e} of {value['allowed']:.0e}")
        return worst, ", ".join(words)

    def on_stream(self):
        """The results of a call on a stream of its own."""
        kept, self.driver.stream = self.driver.stream, self.driver.new_stream()
        try:
            self.call()
            return self.results()
        finally:
            self.driver.stream = kept

    def as_graph(self):
        """The results of a CUDA graph, captured with zeros as inputs and replayed with the inputs."""
        for address, content in zip(self.inputs, self.contents):
            self.driver.write(address, bytes(len(content)))
        replay = self.driver.as_graph(self.call)
        for address, content in zip(self.inputs, self.contents):
            self.driver.write(address, content)
        replay()
        return self.results()


def check(folder, entry, library, driver):
    """(passed, largest error relative to the allowed one, description) of a case."""
    driver.release()  # of the case before, which may have failed
    case = Case(folder, entry, library, driver)
    case.call()
    first = case.results()
    worst, words = case.error(first)
    different = []
    for name, function in (("a second call", lambda: case.call() or case.results()),
                           ("a call on another stream", case.on_stream), ("a CUDA graph", case.as_graph)):
        case.poison()
        if function() != first:
            different.append(name)
    if different:
        words += f"; other bits from {', '.join(different)}"
    return worst <= 1 and not different, worst, words
