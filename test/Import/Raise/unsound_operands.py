# Matmuls over other dimensions, operands that are read in part or from other positions, and biases that a region cannot
# read, are not raised, or stay tensors of their own. Each has a twin that is raised without them.
# RUN: %python %s %S/Inputs

import subprocess
import sys

sys.path.insert(0, sys.argv[1])
from graphs import Graph, Tensor, function

PIPELINE = "builtin.module(func.func(attn-raise-attention,canonicalize,cse))"
EXTENTS = {"b": 2, "g": 4, "h": 4, "i": 3, "j": 5, "d": 8, "e": 8, "f": 8}
PLAIN = "id,jd->ij", "ij,je->ie"
RAISED, REFUSED = (["attn.attention"], ["linalg."]), ([], ["attn.attention"])
KEPT = (["attn.attention", "linalg.generic"], [])
CASES = {}


def shape(letters):
    return [EXTENTS[letter] for letter in letters]


def operands_of(*equations):
    """The letters of queries, keys and values."""
    scores, values = (equation.split("->")[0].split(",") for equation in equations)
    return [*scores, values[1]]


def weigh(g, q, k, v, equations=PLAIN, bias=None, softmax="op"):
    s = g.einsum(equations[0], q, k)
    pair = equations[0].split("->")[1]
    if bias:
        s = g.pointwise([(s, pair), bias], pair, g.add)
    return g.einsum(equations[1], g.softmax(s, pair, softmax), v)


def case(name, arguments, build, expected):
    g = Graph(name, [(each if isinstance(each, tuple) else (each, "f32")) for each in arguments])
    CASES[name] = (g.text(build(g, *g.arguments)), *expected)


# The dimensions of the matmuls.
for name, (scores, values, is_raised) in {
    "plain": (*PLAIN, True), "heads": ("hid,hjd->hij", "hij,hje->hie", True), "transposed": ("di,dj->ij", "ij,ej->ie", True),
    "shared_keys": ("hid,jd->hij", "hij,je->hie", True),
    "sums_of_both_depths": ("id,jf->ij", "ij,je->ie", False), "two_depths": ("idf,jdf->ij", "ij,je->ie", False),
    "queries_without_depth": ("i,jd->ij", "ij,je->ie", False), "keys_without_depth": ("id,j->ij", "ij,je->ie", False),
    "queries_of_each_key": ("ijd,jd->ij", "ij,je->ie", False), "values_of_each_query": ("id,jd->ij", "ij,ije->ie", False),
    "values_without_keys": ("id,jd->ij", "ij,e->ie", False), "values_without_depth": ("id,jd->ij", "ij,j->i", False),
    "sum_of_values": ("id,jd->ij", "ij,je->i", False), "sum_over_heads": ("hid,hjd->hij", "hij,hje->ie", False),
    "sum_of_weights_of_heads": ("hid,hjd->hij", "hij,je->ie", False), "keys_of_two_heads": ("hid,gjd->hgij", "hgij,hje->hgie", False),
    "diagonal_keys": ("id,jjd->ij", "ij,je->ie", False), "diagonal_depth": ("idd,jd->ij", "ij,je->ie", False),
}.items():  # fmt: skip
    case(name, [shape(letters) for letters in operands_of(scores, values)],
         lambda g, q, k, v, equations=(scores, values): weigh(g, q, k, v, equations), RAISED if is_raised else REFUSED)  # fmt: skip


# A factor of the products of queries and keys is the scale only if they are not used without it.
def scaled(is_used_again):
    def build(g, q, k, v):
        m = g.einsum("id,jd->ij", q, k)
        s = g.pointwise([(m, "ij")], "ij", lambda x: g.mul(x, g.const(0.5)))
        if is_used_again:
            s = g.pointwise([(s, "ij"), (m, "ij")], "ij", lambda half, x: g.add(half, g.op("math.tanh", x)))
        return g.einsum("ij,je->ie", g.softmax(s, "ij", "op"), v)

    return [shape("id"), shape("jd"), shape("je")], build


case("factor_of_the_only_use", *scaled(False), (["attn.attention", "scale(5.0"], ["linalg.", "arith.mulf"]))
case("factor_of_one_use_of_two", *scaled(True), (["attn.attention", "scale(1.0", "arith.mulf", "math.tanh"], ["linalg.", "scale(5.0"]))


# Elements at computed positions of a longer tensor, which is not the operand.
def extracted(g, source, letters):
    like = [(Tensor(None, [EXTENTS[letter]]), letter) for letter in letters]

    def body(*unused):
        at = [g.index(loop)[0] for loop in range(len(letters))]
        return g.line(f"tensor.extract {source.name}[{', '.join(at)}] : {source.type}"), source.element

    return g.generic([], letters, g.empty(letters, like, source.element), letters, set(), body)


for operand, letters in enumerate(("id", "jd", "je")):
    for longer in (None, 0, 1):
        shapes = [shape(each) for each in ("id", "jd", "je")]
        if longer is not None:
            shapes[operand][longer] *= 2

        def build(g, *tensors, operand=operand, letters=letters):
            tensors = list(tensors)
            tensors[operand] = extracted(g, tensors[operand], letters)
            return weigh(g, *tensors)

        case(f"part_{longer}_of_operand_{operand}" if longer is not None else f"whole_operand_{operand}", shapes, build,
             RAISED if longer is None else KEPT)  # fmt: skip


# Heads that are repeated.
def repeated(g, q, k, v, scores, values, subscript):
    query, key, value = operands_of(scores, values)
    # The extents of the heads are those of the queries.
    k, v = (g.pointwise([(each, [*subscript, *letters[-2:]])], letters, lambda x: x, like=[(q, query)])
            for each, letters in ((k, key), (v, value)))  # fmt: skip
    return weigh(g, q, k, v, (scores, values))


TWO = "ghid,ghjd->ghij", "ghij,ghje->ghie"
ONE = "hid,hjd->hij", "hij,hje->hie"
for name, equations, heads, kv_heads, subscript, expected in (
    ("repeated_heads", ONE, [4], [2], ["h floordiv 2"], RAISED),
    ("repeated_heads_of_any_number", ONE, [None], [2], ["h floordiv 2"], KEPT),
    ("repeated_heads_of_each_group", TWO, [4, 4], [4, 2], ["g", "h floordiv 2"], RAISED),
    ("repeated_heads_and_groups", TWO, [4, 4], [2, 2], ["g floordiv 2", "h floordiv 2"], KEPT),
):
    shapes = [[*heads, *shape("id")], [*kv_heads, *shape("jd")], [*kv_heads, *shape("je")]]
    case(name, shapes, lambda g, q, k, v, e=equations, s=subscript: repeated(g, q, k, v, *e, s), expected)


# Operands of other types: attention has one.
def widened(g, *tensors):
    def wide(tensor, letters):
        return g.pointwise([(tensor, letters)], letters, lambda x: g.op("arith.extf", x, to="f32")) if tensor.element == "f16" else tensor

    return weigh(g, *(wide(tensor, letters) for tensor, letters in zip(tensors, ("id", "jd", "je"))))


for types in ("fff", "hff", "fhf", "ffh", "hhf", "hfh", "fhh"):
    arguments = [(shape(letters), {"f": "f32", "h": "f16"}[each]) for letters, each in zip(("id", "jd", "je"), types)]
    case(f"types_{types}", arguments, widened, KEPT if "h" in types else RAISED)


# Biases that are reshaped, whose inner extents are known or not.
def reshaped(given, groups, into, expands, subscript, queries, keys):
    def build(g, q, k, v, bias, *like):
        sizes = [(like[0], 0)] * (None in into)
        return weigh(g, q, k, v, bias=(g.reshape(bias, groups, into, expands, sizes), subscript))

    return [[queries, 8], [keys, 8], [keys, 8], given, [None]], build


for name, form, stays in (
    ("collapsed_bias_of_known_inner_extent", ([None, 2], "[[0, 1]]", [None], False, "j", 3, None), False),
    ("collapsed_bias_of_any_inner_extent", ([2, None], "[[0, 1]]", [None], False, "j", 3, None), True),
    ("expanded_bias_of_known_inner_extent", ([None], "[[0, 1]]", [None, 5], True, "ij", None, 5), False),
    ("expanded_bias_of_any_inner_extent", ([None], "[[0, 1]]", [3, None], True, "ij", 3, None), True),
):
    reshape = "tensor.expand_shape" if form[3] else "tensor.collapse_shape"
    case(name, *reshaped(*form), (["attn.attention", "captures("] + [reshape] * stays, [] if stays else [reshape]))


# A bias that is written in part is a tensor, and so is one of several scalars.
def written(n, at):
    def build(g, q, k, v, bias):
        into = g.filled("jn", [(Tensor(None, [5, n]), "jn")], "f32", 1.0)
        return weigh(g, q, k, v, bias=(g.generic([(bias, "j")], "j0", into, ["j"], set(), lambda x, c: x), ["j", at]))

    return [shape("id"), shape("jd"), shape("je"), [5]], build


case("bias_written_as_a_column", *written(1, "0"), (["attn.attention", "captures("], ["linalg."]))
case("bias_written_at_another_column", *written(2, "1"), KEPT)


def of_scalars(numbers):
    def build(g, q, k, v):
        scalars = ", ".join(g.const(number)[0] for number in numbers)
        bias = Tensor(None, [len(numbers)])
        bias.name = g.line(f"tensor.from_elements {scalars} : {bias.type}")
        return weigh(g, q, k, v, bias=(bias, "j" if len(numbers) > 1 else "0"))

    return [shape("id"), shape("jd"), shape("je")], build


case("bias_of_one_scalar", *of_scalars([2.0]), (["attn.attention"], ["captures("]))
case("bias_of_scalars", *of_scalars([2.0, 1.0, 0.5, 4.0, 3.0]), (["attn.attention", "captures("], []))


# A softmax or a sum over other keys.
def part_of_softmax(keys):
    """The keys are of any number, cast to `keys`, of which the weights of 5 are read."""
    def build(g, q, k, v):
        cast = Tensor(None, [keys, 8])
        cast.name = g.line(f"tensor.cast {k.name} : {k.type} to {cast.type}")
        p = g.softmax(g.einsum("id,jd->ij", q, cast), "ij", "op")
        return g.einsum("ij,je->ie", extracted(g, p, "ij"), v)

    return [shape("id"), [None, 8], shape("je")], build


case("softmax_of_all_keys", *part_of_softmax(5), (["attn.attention"], []))
case("softmax_of_more_keys", *part_of_softmax(10), REFUSED)


def diagonal_of_softmaxes(subscript):
    """Softmaxes of the scores with a bias for each pair of keys, of which each key reads one element."""
    def build(g, q, k, v, bias):
        s = g.einsum("id,jd->ij", q, k)
        each = g.pointwise([(s, "ij"), (bias, "fj")], "ifj", g.add)
        return g.einsum("ij,je->ie", g.pointwise([(g.softmax(each, "ifj", "op"), subscript)], "ij", lambda x: x), v)

    return [shape("id"), shape("jd"), shape("je"), [5, 5]], build


case("softmax_of_one_bias", *diagonal_of_softmaxes("i0j"), (["attn.attention"], []))
case("diagonal_of_softmaxes", *diagonal_of_softmaxes("ijj"), REFUSED)


def over_sum(reads):
    """Exponentials of any number of keys over the sum of all of them, or of the first two."""
    def build(g, q, k, v, like):
        e = g.pointwise([(g.einsum("id,jd->ij", q, k), "ij")], "ij", g.exp)
        reduced = e
        if reads == "two":
            two = g.reshape(e, "[[0], [1, 2]]", [3, None, 2], True, [(like, 0)])
            reduced = g.pointwise([(two, "i0j")], "ij", lambda x: x)
        total = g.reduce(reduced, "ij", "i", 0.0, g.add)
        return g.einsum("ij,je->ie", g.pointwise([(e, "ij"), (total, "i")], "ij", g.div), v)

    return [shape("id"), [None, 8], [None, 8], [None]], build


case("sum_of_all_exponentials", *over_sum("all"), RAISED)
case("sum_of_two_exponentials", *over_sum("two"), REFUSED)


# Heads h of groups g, which are one dimension of attention. A region can compute their positions if the inner extent is
# known; else it computes the bias anew rather than read that of each head and group.
def bias_of_heads(groups):
    def build(g, q, k, v, bias):
        grown = g.pointwise([(bias, "ij")], "hgij", g.exp, like=[(q, "hgid")])
        s = g.einsum("hgid,hjd->hgij", q, k)
        s = g.pointwise([(s, "hgij"), (grown, "hgij")], "hgij", g.add)
        return g.einsum("hgij,hje->hgie", g.softmax(s, "hgij", "op"), v)

    return [[4, groups, None, 8], [4, 5, 8], [4, 5, 8], [None, 5]], build


case("bias_of_known_groups", *bias_of_heads(2), KEPT)
case("bias_of_any_groups", *bias_of_heads(None), (["attn.attention", "captures(%arg3"], ["linalg."]))

text = "module {\n" + "".join(text for text, *_ in CASES.values()) + "}\n"
done = subprocess.run(["saccade-opt", f"--pass-pipeline={PIPELINE}"], input=text, capture_output=True, text=True)
assert done.returncode == 0, done.stderr
failures = []
for name, (_, expects, forbids) in CASES.items():
    raised = function(done.stdout, name)
    failures += [f"{name}: no '{each}' in\n{raised}" for each in expects if each not in raised]
    failures += [f"{name}: '{each}' in\n{raised}" for each in forbids if each in raised]
assert not failures, "\n".join(failures)
