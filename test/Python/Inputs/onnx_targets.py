"""The operators of ONNX that the frontend claims, in each version, as targets of `drawn_operators`.

The oracle is ONNX's reference evaluator, but for what it does otherwise than its specification (ORACLES).
"""

import dataclasses

import numpy as np
from drawn_operators import Case, NotAccepted, Target
from onnx.reference import ReferenceEvaluator
from onnx_drawn import RECIPES, draw, model_of, schemas, types_of

from saccade.onnx.conformance import OPERATORS, SUPPORTED
from saccade.onnx.reader import read_model

# Claimed operators with tests of their own: with subgraphs, and those whose cases the suite runs.
ELSEWHERE = {"If", "Loop", "Scan", "CausalConvWithState", "FlexAttention", "LinearAttention"}
REFUSALS = {
    "integers of Erf": (r"Erf-9", "expected floating point"),
    "old LogSoftmax": (r"LogSoftmax-(1|11)", "expected floating point in version 13"),
    "modes of Pad": (r"Pad-.*", "the mode '(edge|reflect)' is not supported"),
    "real Range": (r"Range-.*", "expected integers"),
    "norms of integers": (r"Reduce(L2|LogSum|LogSumExp)-.*", "expected floating point"),
    "scatters with a reduction": (r"Scatter.*", "the reduction '(add|mul)' is not supported"),
    "training": (r"Dropout-.*", "dropout in training is not supported"),
    "statistics of a batch": (r"BatchNormalization-.*", "'training_mode' is 1, expected 0|'spatial' is 0"),
}
LIMITED = {"BatchNormalization": {"training_mode", "spatial"}, "Pad": {"mode"}, "Dropout": {"training_mode"}, "ScatterElements": {"reduction"}, "ScatterND": {"reduction"}}  # fmt: skip
WEIGHTS = {"Attention": 4, "Slice": 2, "Pad": 2, "Gemm": 2, "Einsum": 2, "Softmax": 2, "LayerNormalization": 2, "GatherND": 2,
           "RotaryEmbedding": 3}  # fmt: skip
# Attributes without an effect here: rounding of formats that are not supported, the seed and the probability of a mask
# that is not drawn, the precision of an accumulator that is at least as precise, and what a shape says already.
WITHOUT_EFFECT = {("BatchNormalization", "momentum"), ("Cast", "saturate"), ("Cast", "round_mode"), ("CastLike", "saturate"), ("CastLike", "round_mode"),
                  ("Dropout", "seed"), ("Dropout", "ratio"), ("Range", "stash_type"), ("Gemm", "broadcast"),
                  ("LogSoftmax-1", "axis"), ("LogSoftmax-11", "axis"),
                  ("LayerNormalization", "stash_type"), ("RMSNormalization", "stash_type")}  # fmt: skip


def softmax(node, opset):
    axis = node.attributes.get("axis", -1 if opset >= 13 else 1)
    x = node.inputs[0].astype(np.float64)
    flat = x if opset >= 13 else x.reshape(*x.shape[: axis % x.ndim], -1)
    axis = axis if opset >= 13 else -1
    powers = np.exp(flat - flat.max(axis, keepdims=True))
    return [(powers / powers.sum(axis, keepdims=True)).reshape(x.shape).astype(node.inputs[0].dtype)]


def layer_norm(node, _):
    x, scale, *bias = [each.astype(np.float64) for each in node.inputs]
    axes = tuple(range(node.attributes.get("axis", -1) % x.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + np.float64(np.float32(node.attributes.get("epsilon", 1e-5))))
    result = (x - mean) * inverse * scale + (bias[0] if bias else 0)
    kind = node.inputs[0].dtype
    stash = np.float64 if kind == np.float64 else np.float32
    return [result.astype(kind), mean.astype(stash), inverse.astype(stash)]


def sum_of_squares(node, _):
    x, axes = node.inputs[0], node.attributes.get("axes")
    if len(node.inputs) > 1:
        axes = node.inputs[1].tolist()
    if not axes:
        axes = [] if node.attributes.get("noop_with_empty_axes") else range(x.ndim)
    squares = np.square(x.astype(np.float64 if x.dtype.kind != "i" else np.int64))
    return [np.sum(squares, tuple(axes), keepdims=bool(node.attributes.get("keepdims", 1))).astype(x.dtype)]


def shape(node, _):
    found = np.array(node.inputs[0].shape, np.int64)
    bound = lambda value: min(max(value + len(found) if value < 0 else value, 0), len(found))
    return [found[bound(node.attributes.get("start", 0)) : bound(node.attributes.get("end", len(found)))]]


def unsqueeze(node, _):
    axes = node.attributes.get("axes") or node.inputs[1].tolist()
    return [np.expand_dims(node.inputs[0], tuple(axes))]


def batch_norm(node, _):
    x, *vectors = [each.astype(np.float64) for each in node.inputs]
    scale, bias, mean, variance = [each.reshape(-1, *[1] * (x.ndim - 2)) for each in vectors]
    inverse = 1 / np.sqrt(variance + np.float64(np.float32(node.attributes.get("epsilon", 1e-5))))
    return [((x - mean) * inverse * scale + bias).astype(node.inputs[0].dtype)]


ORACLES = {"BatchNormalization": batch_norm, "Softmax": softmax, "LayerNormalization": layer_norm,
           "ReduceSumSquare": sum_of_squares, "Shape": shape, "Unsqueeze": unsqueeze}  # fmt: skip


TOLERANCE = {"bfloat16": 4e-2, "float16": 8e-3, "float32": 2e-5, "float64": 2e-5}


def roughly(found, expected):
    """For operators that the reference evaluator computes in less than the type of their elements."""
    x, y = found.astype(np.float64), expected.astype(np.float64)
    limit = TOLERANCE.get(expected.dtype.name, 0) * max(1, np.abs(y[np.isfinite(y)]).max(initial=0))
    is_same = (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if is_same and np.allclose(x, y, rtol=0, atol=limit, equal_nan=True):
        return ""
    return f"found {found.dtype}{x.tolist()}, expected {expected.dtype}{y.tolist()}"


ROUNDED = {"Attention", "RotaryEmbedding", "Erf", "Gelu", "RMSNormalization"}


def in_float32(schema, node, opset):
    """What the evaluator gives for 16-bit inputs if it computes in float32."""
    halves = [each is not None and each.dtype.itemsize == 2 and each.dtype.kind != "i" for each in node.inputs]
    wide = [each.astype(np.float32) if half else each for each, half in zip(node.inputs, halves)]
    model, given = model_of(schema, dataclasses.replace(node, inputs=wide), opset)
    found = ReferenceEvaluator(model).run(None, given)
    return [each.astype(node.inputs[0].dtype) if each.dtype == np.float32 else each for each in found]


def maker(schema, first, last):
    def make(random, dtype):
        opset = random.choice([first, last])
        node = draw(schema, opset, random, dtype)
        model, given = model_of(schema, node, opset)
        try:
            if schema.name in ORACLES:
                expected = ORACLES[schema.name](node, opset)
            elif schema.name in ROUNDED and "float16" in dtype:
                expected = in_float32(schema, node, opset)
            else:
                expected = ReferenceEvaluator(model).run(None, given)
        except Exception:  # the evaluator raises what NumPy does
            raise NotAccepted from None
        # Inputs count as given or not; attributes by their values.
        arguments = dict(node.attributes) | {schema.inputs[min(i, len(schema.inputs) - 1)].name: each
                                             for i, each in enumerate(node.inputs) if each is not None}  # fmt: skip
        return Case(arguments, read_model(model, "model.onnx").text, [*given.values()], expected[: node.outputs])

    return make


def targets():
    for schema, first, last in schemas():
        name = schema.name
        key = f"{name}-{schema.since_version}"
        arguments = {each: not attribute.required for each, attribute in schema.attributes.items()
                     if not {(name, each), (key, each)} & WITHOUT_EFFECT}  # fmt: skip
        for each in schema.inputs:
            arguments[each.name] = each.option.name == "Optional"
        yield Target(key, arguments, types_of(schema), maker(schema, first, last), frozenset(LIMITED.get(name, ())),
                     roughly if name in ROUNDED else None, WEIGHTS.get(name, 1))  # fmt: skip


def unknown():
    """Claimed operators that are neither drawn nor tested elsewhere."""
    return {*SUPPORTED, *OPERATORS} - set(RECIPES) - ELSEWHERE
