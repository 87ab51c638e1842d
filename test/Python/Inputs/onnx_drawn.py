"""Nodes of ONNX drawn from the schemas of its operators: every version at which one changed, every attribute.

`draw(schema, random, dtype)` gives a Node, or None where the type does not fit. Attributes that are left out take their
defaults. Values come from recipes by operator; every attribute that a recipe gives is left out from time to time.
"""

import dataclasses
import itertools
import math

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

DTYPES = {"float": np.float32, "double": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16,
          "int64": np.int64, "int32": np.int32, "int16": np.int16, "int8": np.int8, "bool": np.bool_}  # fmt: skip
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0]


@dataclasses.dataclass
class Node:
    """A node to be made: its inputs, None if omitted; which of them are constants of the model."""

    inputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    constants: set = dataclasses.field(default_factory=set)
    outputs: int = 1
    required: tuple = ()  # attributes that are never left out, as inputs depend on them


class Rng:
    def __init__(self, random, dtype, schema):
        self.random, self.dtype, self.version = random, np.dtype(dtype), schema.since_version
        self.numbers = np.random.default_rng(random.getrandbits(40))

    @property
    def is_real(self):
        return self.dtype.kind == "f" or self.dtype == ml_dtypes.bfloat16

    def choice(self, values):
        return self.random.choice(list(values))

    def chance(self, probability):
        return self.random.random() < probability

    def shape(self, least=0, most=4):
        extents = [1, 2, 3, 4, 2, 3, 0] if self.chance(0.15) else [1, 2, 3, 4, 2, 3]
        return [self.choice(extents) for _ in range(self.random.randint(least, most))]

    def filled(self, least=0, most=4):
        return [max(each, 1) for each in self.shape(least, most)]

    def tensor(self, shape, dtype=None, low=-4, high=4, special=False):
        dtype = np.dtype(dtype or self.dtype)
        if dtype == np.bool_:
            return self.numbers.random(shape) < 0.5
        if dtype.kind == "i":
            return np.asarray(self.numbers.integers(low, high + 1, shape)).astype(dtype)
        made = np.array(self.numbers.uniform(low, high, shape))
        if special and made.size and self.chance(0.25):
            made.reshape(-1)[self.random.randrange(made.size)] = self.choice(SPECIAL)
        return made.astype(dtype)

    def broadcast(self, shape):
        kept = shape[self.random.randint(0, len(shape)):] if self.chance(0.5) else list(shape)
        return [1 if self.chance(0.3) else extent for extent in kept]

    def dim(self, rank):
        return self.random.randint(-rank, rank - 1) if self.has_negative else self.random.randint(0, rank - 1)

    # Axes count from the end since version 11.
    @property
    def has_negative(self):
        return self.opset >= 11

    def dims(self, rank, least=0):
        chosen = self.random.sample(range(rank), self.random.randint(min(least, rank), rank))
        return [each - rank if self.has_negative and self.chance(0.5) else each for each in chosen]


def ints(values):
    return np.array(values, np.int64)


def unary(r, **attributes):
    return Node([r.tensor(r.shape(), special=True)], attributes)


def binary(r, **attributes):
    shape = r.shape()
    return Node([r.tensor(shape, special=True), r.tensor(r.broadcast(shape), special=True)][:: r.choice([1, -1])], attributes)


def variadic(r):
    shape = r.shape()
    return Node([r.tensor(r.broadcast(shape) if r.version >= 8 else shape) for _ in range(r.random.randint(1, 3))])


def reduction(r, axes_are_inputs):
    shape = r.filled(1, 4) if r.chance(0.8) else r.shape(0, 3)
    axes = r.dims(len(shape), 0 if axes_are_inputs else 1)
    attributes = {"keepdims": r.choice([0, 1])}
    node = Node([r.tensor(shape, low=0 if "Log" in r.name else -4)], attributes)
    if not axes_are_inputs:
        attributes["axes"] = axes
        return node
    attributes["noop_with_empty_axes"] = r.choice([0, 1])
    if r.chance(0.75):
        node.inputs.append(ints(axes))
        node.constants = {1}
    return node


def softmax(r):
    shape = r.filled(1 if r.opset >= 13 else 2, 4)
    return Node([r.tensor(shape)], {"axis": r.dim(len(shape))})


def gemm(r):
    m, k, n = r.filled(3, 3)
    ta, tb = r.choice([0, 1]), r.choice([0, 1])
    inputs = [r.tensor([k, m] if ta else [m, k]), r.tensor([n, k] if tb else [k, n])]
    if r.version < 11 or r.chance(0.7):
        inputs.append(r.tensor(r.broadcast([m, n])))
    numbers = [0.5, 2.0, -1.5, 0.0] if r.is_real else [2.0, -1.0]
    attributes = {"alpha": r.choice(numbers), "beta": r.choice(numbers)}
    attributes |= {"transA": ta} if ta else r.choice([{}, {"transA": 0}])
    attributes |= {"transB": tb} if tb else r.choice([{}, {"transB": 0}])
    return Node(inputs, attributes, required=("transA", "transB"))


def matmul(r):
    m, k, n = r.filled(3, 3)
    batch = r.filled(0, 2)
    left, right = r.choice([([k], [k]), ([m, k], [k]), ([k], [k, n]), ([*batch, m, k], [*r.broadcast(batch), k, n])])
    return Node([r.tensor(left), r.tensor(right)])


def norm(r, has_bias):
    shape = r.filled(1, 4)
    axis = r.choice([-1, r.dim(len(shape))])
    kept = shape[axis:]
    inputs = [r.tensor(shape), r.tensor(kept)] + ([r.tensor(kept)] if has_bias and r.chance(0.6) else [])
    attributes = {"epsilon": r.choice([0.1, 1e-3]), "stash_type": 1}
    if axis % len(shape) != len(shape) - 1 or r.chance(0.5):
        attributes["axis"] = axis
    return Node(inputs, attributes, outputs=r.choice([1, 3]) if has_bias else 1, required=("axis",))


def clip(r):
    low, high = sorted([r.choice([-2, 0, 1, -1]), r.choice([2, 1, 0, 3])])
    data = r.tensor(r.shape(), special=True)
    if r.version < 11:
        return Node([data], {"min": float(low), "max": float(high)})
    given = [np.array(each, r.dtype) if r.chance(0.7) else None for each in (low, high)]
    return Node([data, *given], constants={1, 2} if r.chance(0.5) else set())


def cast(r):
    names = list(DTYPES)
    to = r.choice(names)
    low = 0 if DTYPES[to] == np.bool_ else -4
    return Node([r.tensor(r.shape(), low=low)], {"to": getattr(TensorProto, to.upper()), "saturate": r.choice([0, 1]),
                                                 "round_mode": r.choice(["up", "down"])}, required=("to",))  # fmt: skip


def cast_like(r):
    return Node([r.tensor(r.shape()), r.tensor([1], r.choice(DTYPES.values()))],
                {"saturate": r.choice([0, 1]), "round_mode": r.choice(["up", "down"])})  # fmt: skip


def concat(r):
    shape = r.shape(1, 4)
    axis, parts = r.dim(len(shape)), []
    for _ in range(r.random.randint(1, 3)):
        own = list(shape)
        own[axis] = r.choice([0, 1, 2])
        parts.append(r.tensor(own))
    return Node(parts, {"axis": axis}, required=("axis",))


def split(r):
    shape = r.filled(1, 4)
    has_axis = r.chance(0.7)
    axis = r.dim(len(shape)) if has_axis else 0
    parts = r.choice([1, 2, 3])
    given = r.chance(0.5)
    sizes = [r.choice([0, 1, 2]) for _ in range(parts)]
    shape[axis] = sum(sizes) if given else parts * r.choice([1, 2])
    attributes = {"axis": axis} if has_axis else {}
    node = Node([r.tensor(shape)], attributes, {1}, parts, ("axis", "split", "num_outputs"))
    if given and r.version < 13:
        attributes["split"] = sizes
    elif given:
        node.inputs.append(ints(sizes))
    elif r.version >= 18:
        attributes["num_outputs"] = parts
        shape[axis] = max(1, parts * 2 - r.choice([0, 1]))
        node.inputs[0] = r.tensor(shape)
    return node


def slicing(r):
    shape = r.shape(1, 4)
    axes = r.dims(len(shape), 1) if r.chance(0.7) else list(range(r.random.randint(1, len(shape))))
    starts, ends, steps = [], [], []
    for axis in axes:
        extent, back = shape[axis], r.version >= 10 and r.chance(0.3)
        steps.append(-r.choice([1, 2]) if back else r.choice([1, 1, 2]))
        starts.append(r.random.randint(-extent - 2, extent + 2))
        ends.append(r.choice([r.random.randint(-extent - 2, extent + 2), (1 << 31) - 1 if not back else -(1 << 31)]))
    data = r.tensor(shape)
    is_plain = axes == list(range(len(axes)))
    if r.version < 10:
        attributes = {"starts": starts, "ends": ends} | ({} if is_plain and r.chance(0.5) else {"axes": axes})
        return Node([data], attributes, required=tuple(attributes))
    inputs = [data, ints(starts), ints(ends), None if is_plain and r.chance(0.5) else ints(axes)]
    has_steps = any(step != 1 for step in steps) or r.chance(0.5)
    return Node(inputs + ([ints(steps)] if has_steps else []), constants={1, 2, 3, 4})


def pad(r):
    shape = r.filled(1, 4)
    attributes = {"mode": r.choice(["constant", "constant", "constant", "constant", "edge", "reflect"])}
    low = -1 if r.chance(0.3) else 0
    if r.version < 11:
        pads = [r.random.randint(0, 2) for _ in range(2 * len(shape))]
        return Node([r.tensor(shape)], attributes | {"pads": pads, "value": r.choice([1.5, -2.0])}, required=("pads",))
    axes = r.dims(len(shape), 1) if r.version >= 18 and r.chance(0.6) else list(range(len(shape)))
    if "edge" in attributes.values() or "reflect" in attributes.values():
        low = 0
    pads = [max(r.random.randint(low, 2), 1 - shape[axes[i % len(axes)]]) if low else r.random.randint(0, 1)
            for i in range(2 * len(axes))]  # fmt: skip
    value = r.tensor([]) if r.chance(0.6) else None
    own = ints(axes) if axes != list(range(len(shape))) or (r.version >= 18 and r.chance(0.3)) else None
    inputs = [r.tensor([each + 1 for each in shape]), ints(pads), value] + ([own] if own is not None else [])
    return Node(inputs, attributes, {1, 3})


def squeeze(r, inserts):
    shape = [1 if r.chance(0.4) else each for each in r.filled(1, 4)]
    if inserts:
        axes = r.dims(len(shape) + 2, 1)[:2] or [0]
        total = len(shape) + len(axes)
        axes = [axis % total if axis >= 0 else axis for axis in axes if -total <= axis < total] or [0]
        if len({axis % (len(shape) + len(axes)) for axis in axes}) != len(axes):
            axes = axes[:1]
        if not -len(shape) - 1 <= axes[0] <= len(shape):
            axes = [0]
    else:
        axes = [i - len(shape) if r.has_negative and r.chance(0.5) else i for i, e in enumerate(shape) if e == 1 and r.chance(0.7)]
        r.random.shuffle(axes)
    given = inserts or (axes and r.chance(0.7))
    if r.version < 13:
        return Node([r.tensor(shape)], {"axes": axes} if given else {}, required=("axes",))
    return Node([r.tensor(shape)] + ([ints(axes)] if given else []), constants={1})


def reshape(r):
    shape = r.shape(1, 4)
    sizes = list(shape)
    zero_is_zero = r.version >= 14 and 0 in shape
    if len(sizes) > 1 and r.chance(0.6) and 0 not in sizes:
        at = r.random.randrange(len(sizes) - 1)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    if 0 not in shape and r.chance(0.5):
        sizes[r.random.randrange(len(sizes))] = -1
    elif r.chance(0.5) and 0 not in shape and sizes == shape:
        sizes[r.random.randrange(len(sizes))] = 0  # kept
    attributes = {"allowzero": 1} if zero_is_zero and -1 not in sizes else {"allowzero": 0}
    return Node([r.tensor(shape), ints(sizes)], attributes, {1}, required=("allowzero",) if zero_is_zero else ())


def gather(r):
    shape = r.filled(1, 4)
    has_axis = r.chance(0.7)
    axis = r.dim(len(shape)) if has_axis else 0
    low = -shape[axis] if r.has_negative else 0
    indices = r.tensor(r.shape(0, 2), r.choice([np.int64, np.int32]), low, shape[axis] - 1)
    return Node([r.tensor(shape), indices], {"axis": axis} if has_axis else {}, required=("axis",))


def gather_elements(r, is_scatter=False):
    shape = r.filled(1, 3)
    has_axis = r.chance(0.7)
    axis = r.dim(len(shape)) if has_axis else 0
    own = [r.random.randint(1, extent) for extent in shape]
    if not is_scatter:
        own[axis] = r.choice([1, 3, 5])
    if is_scatter:
        indices = np.argsort(r.numbers.random(shape), axis=axis)[tuple(slice(each) for each in own)]
        indices = np.where(r.numbers.random(own) < 0.3, indices - shape[axis], indices).astype(np.int64)
    else:
        indices = r.tensor(own, np.int64, -shape[axis], shape[axis] - 1)
    attributes = {"axis": axis} if has_axis else {}
    inputs = [r.tensor(shape), indices]
    if is_scatter:
        inputs.append(r.tensor(own))
        if r.version >= 16 and r.chance(0.3):
            attributes["reduction"] = r.choice(["none", "none", "add", "mul"])
    return Node(inputs, attributes, required=("axis",))


def gather_nd(r):
    shape = r.filled(2, 4)
    batches = r.choice([0, 1]) if r.version >= 12 else 0
    count = r.random.randint(1, len(shape) - batches)
    outer = shape[:batches] + r.filled(0, 1)
    columns = [r.tensor(outer, np.int64, -shape[batches + i], shape[batches + i] - 1) for i in range(count)]
    attributes = {"batch_dims": batches} if batches or r.chance(0.5) else {}
    return Node([r.tensor(shape), np.stack(columns, -1)], attributes, required=("batch_dims",))


def scatter_nd(r):
    shape = r.filled(1, 3)
    count = r.random.randint(1, len(shape))
    places = list(itertools.product(*(range(extent) for extent in shape[:count])))
    chosen = r.random.sample(places, r.random.randint(1, min(3, len(places))))
    attributes = {"reduction": r.choice(["none", "none", "add"])} if r.version >= 16 else {}
    indices = np.array([[each - shape[i] if r.chance(0.3) else each for i, each in enumerate(place)] for place in chosen], np.int64)
    return Node([r.tensor(shape), indices, r.tensor([len(chosen), *shape[count:]])], attributes)


def trilu(r):
    k = np.array(r.random.randint(-3, 3))
    inputs = [r.tensor(r.shape(2, 4))] + r.choice([[], [k], [k.reshape(1)]])
    return Node(inputs, {"upper": r.choice([0, 1])}, {1})


def expand(r):
    shape = r.filled(0, 3)
    return Node([r.tensor(r.broadcast(shape)), ints([*r.filled(0, 1), *shape] if r.chance(0.7) else r.broadcast(shape))], constants={1})


def tile(r):
    shape = r.filled(0, 3)
    return Node([r.tensor(shape), ints([r.choice([0, 1, 2, 3]) for _ in shape])], constants={1})


def cumsum(r):
    shape = r.filled(1, 3)
    axis = np.array(r.dim(len(shape)), r.choice([np.int32, np.int64]))
    return Node([r.tensor(shape), axis], {"exclusive": r.choice([0, 1]), "reverse": r.choice([0, 1])}, {1})


def conv(r):
    rank, groups = r.choice([1, 2, 2]), r.choice([1, 1, 2, 3])
    each = lambda *numbers: [r.choice(numbers) for _ in range(rank)]
    kernel, strides, dilations = each(1, 2, 3), each(1, 1, 2), each(1, 1, 2)
    if r.chance(0.2):
        strides, dilations = kernel, [1] * rank
    image = [(n - 1) * d + r.choice([1, 2, n, n + 3]) for n, d in zip(kernel, dilations)]
    inner, filters = groups * r.choice([1, 2]), groups * r.choice([1, 2])
    inputs = [r.tensor([r.choice([1, 2]), inner, *image]), r.tensor([filters, inner // groups, *kernel])]
    inputs += [r.tensor([filters])] if r.chance(0.5) else []
    padding = r.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    attributes = {"strides": strides, "kernel_shape": kernel, "dilations": dilations, "group": groups, "auto_pad": padding}
    if padding == "NOTSET":
        attributes["pads"] = each(0, 0, 1, 2) + each(0, 0, 1)
    if padding.startswith("SAME") and r.chance(0.7):
        attributes["strides"] = [1] * rank
    required = [name for name, plain in (("group", 1),) if attributes[name] != plain]
    return Node(inputs, attributes, required=tuple(required))


def batch_norm(r):
    shape = r.filled(2, 4)
    vectors = [r.tensor([shape[1]]) for _ in range(4)]
    vectors[3] = abs(vectors[3]) + np.asarray(0.5, vectors[3].dtype)
    attributes = {"epsilon": r.choice([1e-5, 0.1, 2.0]), "momentum": r.choice([0.9, 0.5])}
    if r.version >= 14:
        attributes["training_mode"] = r.choice([0, 0, 0, 1])
    if r.version < 9:
        attributes["spatial"] = r.choice([1, 1, 1, 0])
    return Node([r.tensor(shape), *vectors], attributes)


def einsum(r):
    i, j, k = r.filled(3, 3)
    equation, *shapes = r.choice([("ij,jk->ik", [i, j], [j, k]), ("ij,jk", [i, j], [j, k]), ("bij,bjk->bki", [2, i, j], [2, j, k]),
                                  ("...ij,jk->...ik", [2, i, j], [j, k]), ("ij->ji", [i, j]), ("ijk->j", [i, j, k])])  # fmt: skip
    return Node([r.tensor(shape) for shape in shapes], {"equation": equation}, required=("equation",))


def rotary(r):
    batch, heads, count, depth = r.choice([1, 2]), r.choice([1, 3]), r.choice([1, 4]), r.choice([4, 8])
    part = r.choice([0, 0, depth // 2])
    half, has_positions = (part or depth) // 2, r.chance(0.5)
    cache = [6, half] if has_positions else [batch, count, half]
    is_flat = r.chance(0.5)
    inputs = [r.tensor([batch, count, heads * depth] if is_flat else [batch, heads, count, depth]), r.tensor(cache), r.tensor(cache)]
    inputs += [r.tensor([batch, count], np.int64, 0, 5)] if has_positions else []
    attributes = {"interleaved": r.choice([0, 1]), "rotary_embedding_dim": part}
    attributes |= {"num_heads": heads} if is_flat else r.choice([{}, {"num_heads": heads}])
    return Node(inputs, attributes, required=("num_heads", "rotary_embedding_dim") if part else ("num_heads",))


def attention(r):
    batch, group, heads, n, m, depth, width = r.choice([1, 2]), r.choice([1, 2]), r.choice([1, 2]), r.choice([1, 3]), r.choice([2, 4]), r.choice([2, 4]), r.choice([2, 3])  # fmt: skip
    is_flat = r.chance(0.5)
    shape = lambda count, h, d: [batch, count, h * d] if is_flat else [batch, h, count, d]
    inputs = [r.tensor(shape(n, heads * group, depth)), r.tensor(shape(m, heads, depth)), r.tensor(shape(m, heads, width))]
    outputs = 1
    past = r.choice([0, 0, 2])
    if r.chance(0.5):
        inputs.append(r.tensor(r.choice([[n, m + past], [batch, 1, n, m + past]]), r.choice([r.dtype, np.bool_])))
    if past:
        inputs += [None] * (4 - len(inputs)) + [r.tensor([batch, heads, past, depth]), r.tensor([batch, heads, past, width])]
        outputs = 3
    elif r.version >= 24 and r.chance(0.3):
        inputs += [None] * (6 - len(inputs)) + [r.tensor([batch], np.int64, n, m)] if n <= m else []
    attributes = {"is_causal": r.choice([0, 1]), "scale": r.choice([0.3, 1.0]), "softcap": r.choice([0.0, 2.0]),
                  "left_window_size": r.choice([-1, 0, 2]), "right_window_size": r.choice([-1, 0, 1]),
                  "softmax_precision": r.choice([1, 11]), "qk_matmul_output_mode": r.choice([0, 1, 2, 3])}  # fmt: skip
    if is_flat:
        attributes |= {"q_num_heads": heads * group, "kv_num_heads": heads}
    # ONNX's evaluator caps the scores that mode 0 is to give as they are.
    has_scores = r.chance(0.3) and not (attributes["softcap"] and attributes["qk_matmul_output_mode"] == 0)
    required = ("q_num_heads", "kv_num_heads", *(["softcap", "qk_matmul_output_mode"] if has_scores else []))
    if has_scores and not attributes["softcap"] and r.chance(0.5):
        required = required[:2]
    return Node(inputs, attributes, outputs=4 if has_scores else outputs, required=required)


def shape_of(r):
    return Node([r.tensor(r.shape(0, 4))], {"start": r.random.randint(-5, 5), "end": r.random.randint(-5, 5)})


def flatten(r):
    shape = r.filled(1, 4)
    return Node([r.tensor(shape)], {"axis": r.random.randint(-len(shape) if r.has_negative else 0, len(shape))})


def transpose(r):
    order = list(range(r.random.randint(0, 4)))
    r.random.shuffle(order)
    return Node([r.tensor([r.choice([1, 2, 3]) for _ in order])], {"perm": order})


def where(r):
    shape = r.shape()
    return Node([r.tensor(r.broadcast(shape), np.bool_), r.tensor(shape), r.tensor(r.broadcast(shape))])


def power(r):
    shape = r.shape()
    return Node([r.tensor(shape, low=0), r.tensor(r.broadcast(shape), low=0, high=3)])


def ranges(r):
    if r.is_real:
        return Node([np.array(each, r.dtype) for each in (0, 3, 0.5)], constants={0, 1, 2})
    step = r.choice([1, 2, -1, -3])
    low, high = sorted([r.random.randint(-5, 5), r.random.randint(-5, 5)])
    return Node([np.array(each, r.dtype) for each in ((low, high, step) if step > 0 else (high, low, step))], constants={0, 1, 2})


def constant_of_shape(r):
    return Node([ints(r.shape(0, 3))], {"value": numpy_helper.from_array(r.tensor([1]), "value")}, {0})


def dropout(r):
    if r.version < 12:
        return Node([r.tensor(r.shape())], {"ratio": r.choice([0.1, 0.7])}, outputs=r.choice([1, 2]))
    ratios = [np.array(0.3, np.float32), np.array(0.3, np.float64), None]
    inputs = [r.tensor(r.shape())] + r.choice([[], [r.choice(ratios)], [r.choice(ratios), np.array(r.chance(0.3))]])
    return Node(inputs, {"seed": r.choice([1, 5])}, {1, 2}, outputs=r.choice([1, 2]))


def mod(r):
    node = binary(r, fmod=1 if r.is_real else r.choice([0, 1]))
    node.inputs[1] = np.where(node.inputs[1] == 0, np.array(3, r.dtype), node.inputs[1])
    return dataclasses.replace(node, required=("fmod",) if r.is_real else ())


def divide(r):
    node = binary(r)
    return node if r.is_real else Node([node.inputs[0], np.where(node.inputs[1] == 0, np.array(3, r.dtype), node.inputs[1])])


UNARY = """Abs Ceil Cos Erf Exp Floor IsNaN Log Neg Not Reciprocal Relu Round Sigmoid Sign Sin Softplus Sqrt Tanh Identity
           Size""".split()
BINARY = """Add And BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Mul Or Sub Xor""".split()
AXES_SINCE = {"ReduceSum": 13}  # other reductions take their axes as an input since version 18
REDUCTIONS = [f"Reduce{each}" for each in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()]
RECIPES = {
    **dict.fromkeys(UNARY, unary), **dict.fromkeys(BINARY, binary), **dict.fromkeys(["Max", "Min", "Sum"], variadic),
    **{name: lambda r: reduction(r, r.version >= AXES_SINCE.get(r.name, 18)) for name in REDUCTIONS},
    "Elu": lambda r: unary(r, alpha=r.choice([0.5, 2.0])), "LeakyRelu": lambda r: unary(r, alpha=r.choice([0.3, -0.5])),
    "Swish": lambda r: unary(r, alpha=r.choice([0.5, 2.0])), "Gelu": lambda r: unary(r, approximate=r.choice(["none", "tanh"])),
    "Div": divide, "Mod": mod, "Softmax": softmax, "LogSoftmax": softmax, "Gemm": gemm, "MatMul": matmul,
    "LayerNormalization": lambda r: norm(r, True), "RMSNormalization": lambda r: norm(r, False), "Clip": clip, "Cast": cast,
    "CastLike": cast_like, "Concat": concat, "Split": split, "Slice": slicing, "Pad": pad, "Squeeze": lambda r: squeeze(r, False),
    "Unsqueeze": lambda r: squeeze(r, True), "Reshape": reshape, "Gather": gather, "GatherElements": gather_elements,
    "GatherND": gather_nd, "ScatterElements": lambda r: gather_elements(r, True), "ScatterND": scatter_nd, "Trilu": trilu,
    "Expand": expand, "Tile": tile, "CumSum": cumsum, "Conv": conv, "BatchNormalization": batch_norm, "Einsum": einsum, "RotaryEmbedding": rotary, "Attention": attention,
    "Shape": shape_of, "Flatten": flatten, "Transpose": transpose, "Where": where, "Pow": power, "Range": ranges,
    "ConstantOfShape": constant_of_shape, "Dropout": dropout,
}  # fmt: skip


def schemas(first=7):
    """Each version of each operator with a recipe: its schema and the operator sets it is of, first and last."""
    history = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in RECIPES:
            history.setdefault(schema.name, []).append(schema)
    for name in sorted(history):
        versions = sorted(history[name], key=lambda each: each.since_version)
        for schema, after in zip(versions, [*versions[1:], None]):
            last = after.since_version - 1 if after else defs.onnx_opset_version()
            if last >= first and not schema.deprecated:
                yield schema, max(schema.since_version, first), last


def types_of(schema):
    """The types of the first input that the schema allows and that are supported, by name."""
    allowed = schema.inputs[0].type_str
    for constraint in schema.type_constraints:
        if constraint.type_param_str == allowed:
            return [name for name in DTYPES if f"tensor({name})" in constraint.allowed_type_strs]
    return [name for name in DTYPES if f"tensor({name})" == allowed] or ["float"]


def draw(schema, opset, random, dtype):
    r = Rng(random, DTYPES[dtype], schema)
    r.name, r.opset = schema.name, opset
    node = RECIPES[schema.name](r)
    known = {name: value for name, value in node.attributes.items() if name in schema.attributes}
    node.attributes = {name: value for name, value in known.items()
                       if name in node.required or schema.attributes[name].required or random.random() > 0.35}  # fmt: skip
    while node.inputs and node.inputs[-1] is None:
        node.inputs.pop()
    return node


def model_of(schema, node, opset):
    """A model of the node alone, and the arrays of its inputs by name."""
    names = [f"x{i}" if each is not None else "" for i, each in enumerate(node.inputs)]
    outputs = [f"y{i}" for i in range(node.outputs)]
    values, weights, given = [], [], {}
    for i, (name, each) in enumerate(zip(names, node.inputs)):
        if each is None:
            continue
        array = np.asarray(each)
        if i in node.constants:
            weights.append(numpy_helper.from_array(array, name))
            continue
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        values.append(helper.make_tensor_value_info(name, kind, array.shape))
        given[name] = array
    made = helper.make_node(schema.name, names, outputs)
    for name, value in node.attributes.items():
        kind = defs.OpSchema.AttrType
        types = {kind.INTS: onnx.AttributeProto.INTS, kind.FLOAT: onnx.AttributeProto.FLOAT}
        made.attribute.append(helper.make_attribute(name, value, attr_type=types.get(schema.attributes[name].type)))
    graph = helper.make_graph([made], "g", values, [helper.make_empty_tensor_value_info(name) for name in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), given
