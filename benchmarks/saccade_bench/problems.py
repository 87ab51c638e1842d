"""Inputs of a case, and the float64 reference for sampled rows of the result."""

import math

import numpy as np

# NumPy has no bfloat16, so bf16 tensors are uint16 arrays of their bits.
NUMPY_TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}
# Maximum absolute error of an output element, for standard normal results and sums of up to 1024 terms.
TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def aligned_empty(shape, dtype):
    """An uninitialized array aligned to 64 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def to_bf16(values):
    """The bits of the nearest bfloat16, ties to even; finite values only."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float64(array):
    """The values of an array as float64; uint16 arrays hold bf16 bits."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def make_inputs(case):
    """All inputs, contiguous and standard normal, equal in every process. The RHS of a GEMM is scaled such that its
    results have unit variance."""
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
    """Memory for the result, with all pages mapped."""
    output = aligned_empty(case.output_shape, NUMPY_TYPES[case.type])
    output[...] = 0
    return output


def allowed_error(case):
    """The maximum absolute error for the type of a case. The rounding error of a sum of n random terms grows with √n;
    softmax weights sum to one, so that attention does not depend on the number of keys."""
    terms = case.inner if case.kind.operation == "gemm" else 0
    return TOLERANCE[case.type] * math.sqrt(max(1, terms / 1024))


def sample_rows(case, count=48):
    """Indices of the rows to compare: the corners of the problem and random rows."""
    last = tuple(extent - 1 for extent in case.rows)
    random = np.random.default_rng(11)
    drawn = {tuple(int(random.integers(0, end + 1)) for end in last) for _ in range(count)}
    corners = {(0,) * len(last), (*(0,) * (len(last) - 1), last[-1]), (*last[:-1], 0), last}
    return sorted(drawn | corners)


def reference_rows(case, inputs, rows):
    """These rows of the result, computed in float64."""
    if case.kind.operation == "gemm":
        lhs, rhs, bias = inputs
        return to_float64(lhs[[row for row, in rows]]) @ to_float64(rhs) + to_float64(bias)
    query, key, value = map(case.by_row, inputs[:3])
    expected = []
    for b, h, i in rows:
        shared = h * case.kv_heads // case.heads
        begin, end = case.visible_keys(i)
        scores = to_float64(key[b, shared, begin:end]) @ to_float64(query[b, h, i]) / math.sqrt(case.depth)
        if case.has_bias:
            scores = scores + to_float64(inputs[3][h, i, begin:end])
        weights = np.exp(scores - scores.max())
        expected.append(weights @ to_float64(value[b, shared, begin:end]) / weights.sum())
    return np.array(expected)
