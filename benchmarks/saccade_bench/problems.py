"""The inputs of a case, and the float64 results that every implementation must agree with."""

import math

import numpy as np

# numpy has no bfloat16: such tensors are arrays of their bits.
NUMPY_TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}
# Largest absolute error of an output element, for results whose elements are about normal (some reach 4 and more) and
# sums of up to 1024 terms.
TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def aligned_empty(shape, dtype):
    """An array at a multiple of 64 bytes, as an application's tensors are."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
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
    """All inputs, compact and standard normal; the same in every process. The right side of a product is scaled so that
    its results are about normal, too."""
    random = np.random.default_rng(7)
    inputs = []
    for number, shape in enumerate(case.input_shapes):
        values = random.standard_normal(shape, np.float64 if case.type == "f64" else np.float32)
        if case.kind.operation == "gemm" and number == 1:
            values /= math.sqrt(case.inner)
        array = aligned_empty(shape, NUMPY_TYPES[case.type])
        array[...] = to_bf16(values) if case.type == "bf16" else values
        inputs.append(array)
    return inputs


def make_output(case):
    """Memory for the result, with all of its pages there."""
    output = aligned_empty(case.output_shape, NUMPY_TYPES[case.type])
    output[...] = 0
    return output


def allowed_error(case):
    """The largest absolute error that the type of a case explains. Partial sums of n random terms round by a sum of
    random steps, which grows with the root of n; weights of a softmax sum to one, whatever the number of keys."""
    terms = case.inner if case.kind.operation == "gemm" else 0
    return TOLERANCE[case.type] * math.sqrt(max(1, terms / 1024))


def sample_rows(case, count=48):
    """Indices of rows of the result to compare: the corners of the problem and some at random."""
    last = tuple(extent - 1 for extent in case.rows)
    random = np.random.default_rng(11)
    drawn = {tuple(int(random.integers(0, end + 1)) for end in last) for _ in range(count)}
    corners = {(0,) * len(last), (*(0,) * (len(last) - 1), last[-1]), (*last[:-1], 0), last}
    return sorted(drawn | corners)


def reference_rows(case, inputs, rows):
    """These rows of the result in float64."""
    if case.kind.operation == "gemm":
        left, right, bias = inputs
        return to_float64(left[[row for row, in rows]]) @ to_float64(right) + to_float64(bias)
    query, key, value = map(case.by_row, inputs[:3])
    expected = []
    for b, h, i in rows:
        shared = h * case.kv_heads // case.heads
        begin, end = case.seen(i)
        scores = to_float64(key[b, shared, begin:end]) @ to_float64(query[b, h, i]) / math.sqrt(case.depth)
        if case.has_bias:
            scores = scores + to_float64(inputs[3][h, i, begin:end])
        weights = np.exp(scores - scores.max())
        expected.append(weights @ to_float64(value[b, shared, begin:end]) / weights.sum())
    return np.array(expected)
