"""Ops of StableHLO drawn with every attribute of their builders, as text in generic form.

`draw(name, random, element)` gives an Op. Attributes that are None are left out. StableHLO's own interpreter evaluates
the text (`stablehlo.eval_module`); it has no ops of chlo, which NumPy and math stand in for.
"""

import dataclasses
import math

import ml_dtypes
import numpy as np

TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i64": np.int64,
         "i32": np.int32, "i16": np.int16, "i8": np.int8, "i1": np.bool_}  # fmt: skip
REALS, INTEGERS, BITS = ["f32", "f64", "bf16", "f16"], ["i64", "i32", "i16", "i8"], ["i64", "i32", "i16", "i8", "i1"]
NUMBERS, ANY = REALS + INTEGERS, list(TYPES)
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0]


@dataclasses.dataclass
class Op:
    name: str
    operands: list  # arrays; of a pair (array, True) is the array a constant
    attributes: dict
    results: list  # (extents, element)
    region: str = ""
    expected: object = None  # the results, if StableHLO's interpreter does not have the op


class Rng:
    def __init__(self, random, element):
        self.random, self.element = random, element
        self.numbers = np.random.default_rng(random.getrandbits(40))

    def choice(self, values):
        return self.random.choice(list(values))

    def chance(self, probability):
        return self.random.random() < probability

    def shape(self, least=0, most=3, empty=True):
        extents = [1, 2, 3, 4, 0] if empty and self.chance(0.15) else [1, 2, 3, 4]
        return [self.choice(extents) for _ in range(self.random.randint(least, most))]

    def tensor(self, shape, element=None, low=-4, high=4, special=False):
        element = element or self.element
        if element == "i1":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if element in INTEGERS:
            return np.asarray(self.numbers.integers(low, high + 1, shape)).astype(TYPES[element])
        made = np.array(self.numbers.uniform(low, high, shape))
        if special and made.size and self.chance(0.25):
            made.reshape(-1)[self.random.randrange(made.size)] = self.choice(SPECIAL)
        return made.astype(TYPES[element])

    def whole(self, shape, low=-2, high=2):
        """Numbers whose products and sums are exact in 16 bits; StableHLO's interpreter rounds every sum."""
        if self.element not in ("bf16", "f16"):
            return self.tensor(shape)
        return self.tensor(shape, "i32", low, high).astype(TYPES[self.element])

    def permutation(self, rank):
        order = list(range(rank))
        self.random.shuffle(order)
        return order


def i64s(values):
    values = list(values)
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def dense(pairs):
    return f"dense<{[list(each) for each in pairs]}> : tensor<{len(pairs)}x2xi64>"


def unary(name, low=-4, result=None, accuracy=False):
    def recipe(r):
        shape = r.shape()
        mode, attributes = r.choice([None, "DEFAULT", "HIGHEST"]), {}
        if accuracy and mode:
            attributes["result_accuracy"] = f"#stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<{mode}>>"
        return Op(name, [r.tensor(shape, low=low, special=True)], attributes, [(shape, result or r.element)])

    return recipe


def of_chlo(name, function):
    def recipe(r):
        shape = r.shape(empty=False)
        x = r.tensor(shape)
        expected = np.vectorize(function, otypes=[float])(x.astype(float)).astype(x.dtype)
        return Op(f"chlo.{name}", [x], {}, [(shape, r.element)], expected=expected)

    return recipe


def binary(name, low=-4, high=4):
    def recipe(r):
        shape = r.shape()
        return Op(name, [r.tensor(shape, special=True), r.tensor(shape, low=low, high=high, special=True)], {}, [(shape, r.element)])

    return recipe


def power(r):
    shape = r.shape()
    return Op("power", [r.tensor(shape, low=0), r.tensor(shape, low=0, high=3)], {}, [(shape, r.element)])


def compare(r):
    shape = r.shape()
    kinds = [None, "FLOAT", "TOTALORDER"] if r.element in REALS else [None, "UNSIGNED" if r.element == "i1" else "SIGNED"]
    kind = r.choice(kinds)
    attributes = {"comparison_direction": f"#stablehlo<comparison_direction {r.choice(['EQ', 'NE', 'LT', 'LE', 'GT', 'GE'])}>",
                  "compare_type": kind and f"#stablehlo<comparison_type {kind}>"}  # fmt: skip
    return Op("compare", [r.tensor(shape, special=True), r.tensor(shape, high=1)], attributes, [(shape, "i1")])


def clamp(r):
    shape = r.shape()
    low, high = r.choice([shape, []]), r.choice([shape, []])
    return Op("clamp", [r.tensor(low, high=0), r.tensor(shape, special=True), r.tensor(high, low=0)], {}, [(shape, r.element)])


def select(r):
    shape = r.shape()
    return Op("select", [r.tensor(r.choice([shape, []]), "i1"), r.tensor(shape), r.tensor(shape)], {}, [(shape, r.element)])


def convert(r):
    shape = r.shape()
    return Op("convert", [r.tensor(shape)], {}, [(shape, r.choice(ANY))])


def reduce_precision(r):
    shape = r.shape()
    exponent, mantissa = r.choice([(8, 7), (5, 10), (8, 23), (4, 3)])
    return Op("reduce_precision", [r.tensor(shape)], {"exponent_bits": f"{exponent} : i32", "mantissa_bits": f"{mantissa} : i32"},
              [(shape, r.element)])  # fmt: skip


def iota(r, dynamic=False):
    shape = r.shape(1, 3)
    attributes = {"iota_dimension": f"{r.random.randrange(len(shape))} : i64"}
    operands = [(np.array(shape, np.int64), True)] if dynamic else []
    return Op("dynamic_iota" if dynamic else "iota", operands, attributes, [(shape, r.element)])


def reshape(r, dynamic=False):
    shape = r.shape()
    to = [shape[i] for i in r.permutation(len(shape))]
    if len(to) > 1 and r.chance(0.5):
        to[:2] = [to[0] * to[1]]
    if r.chance(0.4):
        to.insert(r.random.randint(0, len(to)), 1)
    operands = [r.tensor(shape)] + ([(np.array(to, np.int64), True)] if dynamic else [])
    return Op("dynamic_reshape" if dynamic else "reshape", operands, {}, [(to, r.element)])


def broadcast(r, dynamic=False):
    to = r.shape(0, 4)
    dims = r.permutation(len(to))[: r.random.randint(0, len(to))]
    shape = [1 if r.chance(0.3) else to[dim] for dim in dims]
    attributes = {"broadcast_dimensions": i64s(dims)}
    operands = [r.tensor(shape)]
    if dynamic:
        operands.append((np.array(to, np.int64), True))
        known = [i for i, dim in enumerate(dims) if shape[i] != to[dim]]
        attributes["known_expanding_dimensions"] = r.choice([None, i64s(known)])
        attributes["known_nonexpanding_dimensions"] = r.choice([None, i64s(i for i in range(len(dims)) if i not in known)])
    return Op("dynamic_broadcast_in_dim" if dynamic else "broadcast_in_dim", operands, attributes, [(to, r.element)])


def transpose(r):
    shape = r.shape(0, 4)
    order = r.permutation(len(shape))
    return Op("transpose", [r.tensor(shape)], {"permutation": i64s(order)}, [([shape[i] for i in order], r.element)])


def slicing(r):
    shape = r.shape(1, 4)
    starts = [r.random.randint(0, extent) for extent in shape]
    limits = [r.random.randint(start, extent) for start, extent in zip(starts, shape)]
    steps = [r.choice([1, 1, 2, 3]) for _ in shape]
    result = [-(-(limit - start) // step) for start, limit, step in zip(starts, limits, steps)]
    return Op("slice", [r.tensor(shape)], {"start_indices": i64s(starts), "limit_indices": i64s(limits), "strides": i64s(steps)},
              [(result, r.element)])  # fmt: skip


def real_dynamic_slice(r):
    shape = r.shape(1, 3)
    starts = [r.random.randint(0, extent) for extent in shape]
    limits = [r.random.randint(start, extent) for start, extent in zip(starts, shape)]
    constants = [(np.array(each, np.int64), True) for each in (starts, limits, [1] * len(shape))]
    x = r.tensor(shape)
    expected = x[tuple(slice(a, b) for a, b in zip(starts, limits))]
    return Op("real_dynamic_slice", [x, *constants], {}, [(expected.shape, r.element)], expected=expected)


def starts_of(r, shape):
    """A start for each dimension, of which some are out of range; all are constants from time to time."""
    is_known = r.chance(0.3)
    return [(np.array(each), True) if is_known else each for each in r.tensor([len(shape)], r.choice(["i32", "i64"]), -2, 5)]


def dynamic_slice(r):
    shape = r.shape(1, 3, empty=False)
    sizes = [r.random.randint(0 if r.chance(0.1) else 1, extent) for extent in shape]
    return Op("dynamic_slice", [r.tensor(shape), *starts_of(r, shape)], {"slice_sizes": i64s(sizes)}, [(sizes, r.element)])


def dynamic_update_slice(r):
    shape = r.shape(1, 3, empty=False)
    sizes = [r.random.randint(0 if r.chance(0.1) else 1, extent) for extent in shape]
    return Op("dynamic_update_slice", [r.tensor(shape), r.tensor(sizes), *starts_of(r, shape)], {}, [(shape, r.element)])


def concatenate(r):
    shape = r.shape(1, 3)
    dim = r.random.randrange(len(shape))
    parts = []
    for _ in range(r.random.randint(1, 3)):
        parts.append(list(shape))
        parts[-1][dim] = r.choice([0, 1, 2])
    result = list(shape)
    result[dim] = sum(part[dim] for part in parts)
    return Op("concatenate", [r.tensor(part) for part in parts], {"dimension": f"{dim} : i64"}, [(result, r.element)])


def pad(r, dynamic=False):
    shape = r.shape(0, 3)
    low = [r.random.randint(0 if dynamic else -extent, 2) for extent in shape]
    high = [r.random.randint(0 if dynamic else -extent - min(before, 0), 2) for before, extent in zip(low, shape)]
    inner = [r.choice([0, 1]) for _ in shape] if r.chance(0.1) else [0] * len(shape)
    result = [a + b + extent + max(extent - 1, 0) * c for a, b, c, extent in zip(low, high, inner, shape)]
    if any(extent < 0 for extent in result):
        return pad(r, dynamic)
    names = ["edge_padding_low", "edge_padding_high", "interior_padding"]
    if dynamic:
        constants = [(np.array(each, np.int64), True) for each in (low, high, inner)]
        return Op("dynamic_pad", [r.tensor(shape), r.tensor([]), *constants], {}, [(result, r.element)])
    return Op("pad", [r.tensor(shape), r.tensor([])], dict(zip(names, map(i64s, (low, high, inner)))), [(result, r.element)])


def reverse(r):
    shape = r.shape(0, 3)
    dims = r.permutation(len(shape))[: r.random.randint(0, len(shape))]
    return Op("reverse", [r.tensor(shape)], {"dimensions": i64s(dims)}, [(shape, r.element)])


def dot_general(r):
    """Batch and contracting dimensions in any number, order and place."""
    batches, contracted = r.shape(0, 2), r.shape(0, 2)
    sides, dims = [], []
    for _ in range(2):
        free = r.shape(0, 2)
        extents = [*((extent, "batch", i) for i, extent in enumerate(batches)),
                   *((extent, "contract", i) for i, extent in enumerate(contracted)), *((extent, "free", 0) for extent in free)]  # fmt: skip
        r.random.shuffle(extents)
        sides.append([extent for extent, _, _ in extents])
        dims.append({kind: [place for _, place in sorted((i, at) for at, (_, own, i) in enumerate(extents) if own == kind)]
                     for kind in ("batch", "contract")})  # fmt: skip
        dims[-1]["free"] = [extent for extent, kind, _ in extents if kind == "free"]
    lhs, rhs = dims
    numbers = (f"#stablehlo.dot<lhs_batching_dimensions = {lhs['batch']}, rhs_batching_dimensions = {rhs['batch']}, "
               f"lhs_contracting_dimensions = {lhs['contract']}, rhs_contracting_dimensions = {rhs['contract']}>")  # fmt: skip
    precision = r.choice([None, "DEFAULT", "HIGHEST"])
    attributes = {"dot_dimension_numbers": numbers,
                  "precision_config": precision and f"[#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]"}  # fmt: skip
    result = r.choice([r.element, "f32"]) if r.element in ("bf16", "f16") else r.element
    shape = [*batches, *lhs["free"], *rhs["free"]]
    # StableHLO's interpreter aborts on a sum of no terms.
    expected = np.zeros(shape, TYPES[result]) if 0 in contracted else None
    return Op("dot_general", [r.whole(side) for side in sides], attributes, [(shape, result)], expected=expected)


def convolved(x, y, strides, padding, dilation, groups):
    """The convolution of x [b, f, ...] and y [o, i, ...] by its definition, in float64."""
    x = np.pad(x.astype(float), [(0, 0), (0, 0), *padding])
    result = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], y.shape[2:], strides, dilation)]
    total = np.zeros([x.shape[0], y.shape[0], *result])
    x = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    y = y.astype(float).reshape(groups, -1, *y.shape[1:])
    for at in np.ndindex(*y.shape[3:]):
        window = [slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(at, dilation, result, strides)]
        part = np.einsum("bgi...,goi->bgo...", x[(..., *window)], y[(..., *at)])
        total += part.reshape(total.shape)
    return total


def convolution(r):
    rank, groups = r.choice([1, 2, 2]), r.choice([1, 1, 2])
    each = lambda *numbers: [r.choice(numbers) for _ in range(rank)]
    kernel, strides, dilation = each(1, 2, 3), each(1, 1, 2), each(1, 1, 2)
    padding = [(r.choice([0, 0, 1]), r.choice([0, 0, 2])) for _ in range(rank)]
    if r.chance(0.2):
        strides, dilation, padding = kernel, [1] * rank, [(0, 0)] * rank
    batch, inner, outer = r.choice([1, 2]), groups * r.choice([1, 2]), groups * r.choice([1, 2])
    image = [(n - 1) * d + r.choice([1, 2, n, n + 3]) for n, d in zip(kernel, dilation)]
    layouts = [r.permutation(rank + 2) for _ in range(3)]
    spatial = "".join(map(str, range(rank)))
    name = lambda layout, names: "[" + ", ".join((names + spatial)[i] for i in layout) + "]"
    numbers = f"#stablehlo.conv<{name(layouts[0], 'bf')}x{name(layouts[1], 'oi')}->{name(layouts[2], 'bf')}>"
    x, y = r.tensor([batch, inner, *image]), r.tensor([outer, inner // groups, *kernel])
    # StableHLO's interpreter aborts for some layouts.
    expected = convolved(x, y, strides, padding, dilation, groups)
    # What is refused is never compared.
    odd, reversal, widened = r.random.randint(0, 15), None, None
    if odd == 0:
        reversal = f"array<i1: {', '.join(['true'] + ['false'] * (rank - 1))}>"
    elif odd == 1 and image[0] > 1:
        widened = [2] + [1] * (rank - 1)
        shape = (2 * image[0] - 1, *image[1:])
        expected = convolved(np.zeros((batch, inner, *shape)), y, strides, padding, dilation, groups)
    precision = r.choice([None, "DEFAULT", "HIGHEST"])
    optional = lambda given, plain, text: text(given) if given != plain or r.chance(0.5) else None
    attributes = {
        "dimension_numbers": numbers, "feature_group_count": f"{groups} : i64", "batch_group_count": "1 : i64",
        "window_strides": optional(strides, [1] * rank, i64s), "padding": optional(padding, [(0, 0)] * rank, dense),
        "lhs_dilation": optional(widened or [1] * rank, [1] * rank, i64s), "rhs_dilation": optional(dilation, [1] * rank, i64s),
        "window_reversal": reversal or r.choice([None, f"array<i1: {', '.join(['false'] * rank)}>"]),
        "precision_config": precision and f"[#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]"}  # fmt: skip
    moved = np.ascontiguousarray(expected.transpose(layouts[2])).astype(x.dtype)
    operands = [np.ascontiguousarray(x.transpose(layouts[0])), np.ascontiguousarray(y.transpose(layouts[1]))]
    return Op("convolution", operands, attributes, [(list(moved.shape), r.element)], expected=moved)


def region_of(body, elements):
    names = [f"%a{i}" for i in range(2 * len(elements))]
    typed = ", ".join(f"{name}: tensor<{element}>" for name, element in zip(names, elements * 2))
    lines, returned = [], []
    for i, (kind, element) in enumerate(zip(body, elements)):
        lines.append(f'%b{i} = "stablehlo.{kind}"(%a{i}, %a{i + len(elements)}) : (tensor<{element}>, tensor<{element}>) -> tensor<{element}>')
        returned.append(f"%b{i}")
    types = ", ".join(f"tensor<{element}>" for element in elements)
    lines.append(f'"stablehlo.return"({", ".join(returned)}) : ({types}) -> ()')
    return "({ ^bb0(" + typed + "):\n" + "\n".join(lines) + "\n})"


def reduce(r):
    shape = r.shape(1, 4)
    dims = r.permutation(len(shape))[: r.random.randint(0, len(shape))]
    kinds = ["and", "or", "add", "multiply", "maximum"] if r.element == "i1" else ["add", "multiply", "maximum", "minimum"]
    count = r.choice([1, 1, 2])
    body = [r.choice(kinds) for _ in range(count)]
    result = [extent for i, extent in enumerate(shape) if i not in dims]
    operands = [r.whole(shape, 1) for _ in range(count)] + [r.whole([]) if r.chance(0.7) else (r.whole([]), True) for _ in range(count)]
    return Op("reduce", operands, {"dimensions": i64s(sorted(dims))}, [(result, r.element)] * count, region_of(body, [r.element] * count))


def reduce_window(r):
    shape = r.shape(1, 3, empty=False)
    rank, axis = len(shape), r.random.randrange(len(shape))
    window, padding = [1] * rank, [(0, 0)] * rank
    window[axis] = shape[axis]
    padding[axis] = r.choice([(shape[axis] - 1, 0), (0, shape[axis] - 1)])
    result, ones = list(shape), [1] * rank
    odd = r.random.randint(0, 9)
    strides, base, dilations = list(ones), list(ones), list(ones)
    if odd == 0:
        strides[axis] = 2
        result[axis] = (shape[axis] - 1) // 2 + 1
    elif odd == 1 and shape[axis] > 1:
        padding[axis], result[axis] = (0, 0), 1
    elif odd == 2 and shape[axis] > 1:
        base[axis], result[axis] = 2, 2 * shape[axis] - 1
    elif odd == 3 and shape[axis] == 2:
        dilations[axis], padding[axis] = 2, r.choice([(2, 0), (0, 2)])
    listed = lambda values: i64s(values) if values != ones or r.chance(0.5) else None
    attributes = {"window_dimensions": i64s(window), "window_strides": listed(strides), "base_dilations": listed(base),
                  "window_dilations": listed(dilations), "padding": dense(padding) if any(map(any, padding)) else None}  # fmt: skip
    zero = (np.zeros([], TYPES[r.element]), True)
    return Op("reduce_window", [r.whole(shape), zero], attributes, [(result, r.element)], region_of(["add"], [r.element]))


def gather(r, dynamic=False):
    """Dimension numbers of every form: batches in any order, an index vector anywhere."""
    shape = r.shape(1, 4, empty=False)
    rank = len(shape)
    order = r.permutation(rank)
    batches = sorted(order[: r.choice([0, 0, 1, min(2, rank - 1)])]) if rank > 1 else []
    rest = [dim for dim in order if dim not in batches]
    starts = rest[: r.random.randint(0 if r.chance(0.1) else 1, len(rest))]
    collapsed = sorted(dim for dim in rest if r.chance(0.4))
    sizes = [1 if i in collapsed or i in batches else r.random.randint(1, extent) for i, extent in enumerate(shape)]
    outer = [shape[dim] for dim in batches] + r.shape(0, 2, empty=False)
    places = r.permutation(len(outer))
    outer = [outer[i] for i in places]
    index_batches = [places.index(i) for i in range(len(batches))]
    vector = len(outer) if len(starts) == 1 and r.chance(0.3) else r.random.randint(0, len(outer))
    is_implied = len(starts) == 1 and vector == len(outer) and r.chance(0.5)
    indices = list(outer)
    if not is_implied:
        indices.insert(vector, len(starts))
        index_batches = [dim + (dim >= vector) for dim in index_batches]
    kept = [dim for dim in range(rank) if dim not in collapsed and dim not in batches]
    total = len(outer) + len(kept)
    offsets = sorted(r.random.sample(range(total), len(kept)))
    result, own, other = [], iter(kept), iter(outer)
    for i in range(total):
        result.append(sizes[next(own)] if i in offsets else next(other))
    numbers = (f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = {collapsed}, operand_batching_dims = {batches}, "
               f"start_indices_batching_dims = {index_batches}, start_index_map = {starts}, index_vector_dim = {vector}>")  # fmt: skip
    attributes = {"dimension_numbers": numbers, "indices_are_sorted": r.choice([None, "false"])}
    operands = [r.tensor(shape), r.tensor(indices, r.choice(["i32", "i64"]), -2, 5)]
    if dynamic:
        return Op("dynamic_gather", [*operands, (np.array(sizes, np.int64), True)], attributes, [(result, r.element)])
    return Op("gather", operands, attributes | {"slice_sizes": i64s(sizes)}, [(result, r.element)])


def get_dimension_size(r):
    shape = r.shape(1, 3)
    return Op("get_dimension_size", [r.tensor(shape)], {"dimension": f"{r.random.randrange(len(shape))} : i64"}, [([], "i32")])


RECIPES = {
    **{name: (unary(name, accuracy=True), REALS) for name in "cbrt cosine exponential exponential_minus_one logistic sine tanh tan".split()},
    **{name: (unary(name, low=0, accuracy=True), REALS) for name in "log log_plus_one rsqrt sqrt".split()},
    **{name: (unary(name), REALS) for name in "ceil floor round_nearest_afz round_nearest_even".split()},
    **{name: (unary(name), NUMBERS) for name in "abs negate sign".split()}, "not": (unary("not"), BITS),
    "is_finite": (unary("is_finite", result="i1"), REALS), "optimization_barrier": (unary("optimization_barrier"), ANY),
    **{name: (binary(name), ANY) for name in "add maximum minimum multiply".split()}, "subtract": (binary("subtract"), NUMBERS),
    "divide": (binary("divide", low=1), NUMBERS), "remainder": (binary("remainder", low=1), NUMBERS),
    "atan2": (binary("atan2"), REALS), "power": (power, NUMBERS), **{name: (binary(name), BITS) for name in "and or xor".split()},
    **{name: (binary(name, low=0, high=9), INTEGERS) for name in "shift_left shift_right_arithmetic shift_right_logical".split()},
    "compare": (compare, ANY), "clamp": (clamp, NUMBERS), "select": (select, ANY), "convert": (convert, ANY),
    "reduce_precision": (reduce_precision, REALS), "iota": (iota, NUMBERS), "dynamic_iota": (lambda r: iota(r, True), NUMBERS),
    "reshape": (reshape, ANY), "dynamic_reshape": (lambda r: reshape(r, True), ANY), "broadcast_in_dim": (broadcast, ANY),
    "dynamic_broadcast_in_dim": (lambda r: broadcast(r, True), ANY), "transpose": (transpose, ANY), "slice": (slicing, ANY),
    "real_dynamic_slice": (real_dynamic_slice, ANY), "dynamic_slice": (dynamic_slice, ANY), "reverse": (reverse, ANY),
    "dynamic_update_slice": (dynamic_update_slice, ANY), "concatenate": (concatenate, ANY), "pad": (pad, ANY),
    "dynamic_pad": (lambda r: pad(r, True), ANY), "dot_general": (dot_general, NUMBERS), "convolution": (convolution, REALS),
    "reduce": (reduce, ANY), "reduce_window": (reduce_window, NUMBERS), "gather": (gather, ANY),
    "dynamic_gather": (lambda r: gather(r, True), ANY), "get_dimension_size": (get_dimension_size, ANY),
    "chlo.erf": (of_chlo("erf", math.erf), REALS), "chlo.erfc": (of_chlo("erfc", math.erfc), REALS),
    "chlo.square": (of_chlo("square", lambda x: x * x), REALS), "chlo.tan": (of_chlo("tan", math.tan), REALS),
}  # fmt: skip


def draw(name, random, element):
    return RECIPES[name][0](Rng(random, element))


# --- text -------------------------------------------------------------------------------------------------------------


def type_of(shape, element):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def element_of(array):
    return next(name for name, dtype in TYPES.items() if array.dtype == dtype)


def literal(array):
    """An array as an MLIR attribute; floats by their bits."""
    array = np.asarray(array)
    element, kind = element_of(array), {2: np.uint16, 4: np.uint32, 8: np.uint64}
    if element in REALS:
        bits = array.view(kind[array.dtype.itemsize]) if array.ndim else array.reshape(1).view(kind[array.dtype.itemsize])[0]
        digits = 2 * array.dtype.itemsize
        shown = np.vectorize(lambda x: f"0x{int(x):0{digits}X}", otypes=[object])(bits).tolist() if array.size else []
    else:
        shown = array.tolist()
    text = str(shown).replace("'", "").replace("True", "true").replace("False", "false")
    return f"dense<{text if array.size else ''}> : {type_of(array.shape, element)}"


def text_of(op, widen=False):
    """A module with the op alone, and the arrays of its arguments. With `widen` its results are of f64 and i64."""
    name = op.name if "." in op.name else f"stablehlo.{op.name}"
    arguments, lines, operands, types, given = [], [], [], [], []
    for i, each in enumerate(op.operands):
        is_constant = isinstance(each, tuple)
        array = np.asarray(each[0] if is_constant else each)
        types.append(type_of(array.shape, element_of(array)))
        if is_constant:
            lines.append(f'%c{i} = "stablehlo.constant"() {{value = {literal(array)}}} : () -> {types[-1]}')
            operands.append(f"%c{i}")
        else:
            arguments.append(f"%x{i}: {types[-1]}")
            operands.append(f"%x{i}")
            given.append(array)
    attributes = ", ".join(f"{key} = {value}" for key, value in op.attributes.items() if value is not None)
    results = [type_of(*each) for each in op.results]
    lines.append(f"%r:{len(results)} = \"{name}\"({', '.join(operands)}) {op.region} {{{attributes}}} : ({', '.join(types)}) -> "
                 f"({', '.join(results)})")  # fmt: skip
    returned = [f"%r#{i}" for i in range(len(results))]
    if widen:
        wide = [type_of(shape, "f64" if element in REALS else "i64") for shape, element in op.results]
        for i, (own, to) in enumerate(zip(results, wide)):
            lines.append(f'%w{i} = "stablehlo.convert"(%r#{i}) : ({own}) -> {to}')
        returned, results = [f"%w{i}" for i in range(len(results))], wide
    body = "\n".join(lines)
    return (f"func.func public @main({', '.join(arguments)}) -> ({', '.join(results)}) {{\n{body}\n"
            f"func.return {', '.join(returned)} : {', '.join(results)}\n}}"), given  # fmt: skip
