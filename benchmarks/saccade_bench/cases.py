"""What is measured: sizes, inputs, and the float64 results that every implementation must agree with."""

import dataclasses
import re

import numpy as np

# numpy has no bfloat16: such tensors are arrays of their bits.
NUMPY_TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}
# Largest absolute error of an output element for standard normal inputs. Values reach 4 where a row sees few keys.
TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


@dataclasses.dataclass(frozen=True)
class Kind:
    """What makes another program: everything else is known at run time only."""

    type: str
    depth: int
    mask: str

    def __str__(self):
        return f"{self.type}-d{self.depth}-{self.mask}"


@dataclasses.dataclass(frozen=True)
class Case:
    """One problem: `length` queries and keys for each of batch × heads; key heads are shared evenly."""

    batch: int
    heads: int
    key_heads: int
    length: int
    depth: int
    mask: str = "full"
    type: str = "f32"

    @classmethod
    def parse(cls, text):
        """"1x32(8)x2048x128 causal bf16": batch × heads (key heads) × length × head size, mask, type."""
        shape, *words = text.split()
        match = re.fullmatch(r"(\d+)x(\d+)(?:\((\d+)\))?x(\d+)x(\d+)", shape)
        options = {}
        for word in words:
            options["type" if word in NUMPY_TYPES else "mask"] = word
        sizes = [int(size) for size in match.groups(default=0)] if match else []
        if not all(sizes[:2] + sizes[3:]) or options.get("mask", "full") not in ("full", "causal"):
            raise ValueError(f"'{text}' is no case; one is '1x32(8)x2048x128 causal bf16'")
        batch, heads, key_heads, length, depth = sizes
        if heads % (key_heads or heads):
            raise ValueError(f"'{text}': {heads} heads cannot share {key_heads} key heads evenly")
        return cls(batch, heads, key_heads or heads, length, depth, **options)

    @property
    def shape(self):
        shared = f"({self.key_heads})" if self.key_heads != self.heads else ""
        return f"{self.batch}x{self.heads}{shared}x{self.length}x{self.depth}"

    def __str__(self):
        return f"{self.shape} {self.mask} {self.type}"

    @property
    def kind(self):
        return Kind(self.type, self.depth, self.mask)

    @property
    def flops(self):
        """Of the two matrix products; under a causal mask half of them."""
        full = 4 * self.batch * self.heads * self.length**2 * self.depth
        return full // 2 if self.mask == "causal" else full

    def output_shape(self):
        return (self.batch, self.heads, self.length, self.depth)


# No row of a schedule may name one of these; the last one is there to catch cliffs at odd sizes.
CPU_CASES = [
    Case.parse(text)
    for text in (
        "32x12x196x64 full",
        "16x12x512x64 full",
        "1x8x8192x64 causal",
        "1x32(8)x2048x128 causal",
        "16x12x509x64 full",
    )
]
QUICK_CASES = CPU_CASES[:3]


def aligned_empty(shape, dtype):
    """An array at a multiple of 64 bytes, as an application's tensors are."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def to_bf16(values):
    """The bits of the nearest bfloat16, ties to even; finite values only."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float64(array):
    """The values of an array, whose bits may be those of bfloat16."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def make_inputs(case):
    """Query, key and value as [b, h, s, d], compact; the same in every process."""
    random = np.random.default_rng(7)
    inputs = []
    for heads in (case.heads, case.key_heads, case.key_heads):
        array = aligned_empty((case.batch, heads, case.length, case.depth), NUMPY_TYPES[case.type])
        values = random.standard_normal(array.shape, np.float64 if case.type == "f64" else np.float32)
        array[...] = to_bf16(values) if case.type == "bf16" else values
        inputs.append(array)
    return inputs


def sample_rows(case, count=48):
    """Indices (b, h, query) of rows to compare: the corners of the problem and some at random."""
    last = (case.batch - 1, case.heads - 1, case.length - 1)
    random = np.random.default_rng(11)
    drawn = {tuple(int(random.integers(0, end + 1)) for end in last) for _ in range(count)}
    return sorted(drawn | {(0, 0, 0), (0, 0, last[2]), (last[0], last[1], 0), last})


def reference_rows(case, inputs, rows):
    """The output's rows in float64."""
    query, key, value = inputs
    expected = []
    for b, h, i in rows:
        shared = h * case.key_heads // case.heads
        seen = i + 1 if case.mask == "causal" else case.length
        scores = to_float64(key[b, shared, :seen]) @ to_float64(query[b, h, i]) / np.sqrt(case.depth)
        weights = np.exp(scores - scores.max())
        expected.append(weights @ to_float64(value[b, shared, :seen]) / weights.sum())
    return np.array(expected)
