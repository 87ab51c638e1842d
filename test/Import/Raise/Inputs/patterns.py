"""The attention patterns that are raised. A user may set SIZES before this module runs."""

import numpy

# Batches, heads, queries, keys and head size. Some patterns need 4 heads.
B, H, N, M, D = globals().get("SIZES", (2, 4, 9, 13, 16))
QUERY, KEY = ((B, H, None, D), "f32"), ((B, H, None, D), "f32")
PATTERNS = {}


def pattern(arguments, expects=(), forbids=(), sizes=None):
    """Registers a pattern: the argument types, and text that the op must and must not contain."""
    def register(build):
        PATTERNS[build.__name__] = (arguments, expects, forbids, sizes or {}, build)
        return build
    return register


def scores(g, scale=0.25):
    s = g.einsum("bhid,bhjd->bhij", g.arguments[0], g.arguments[1])
    return g.pointwise([(s, "bhij")], "bhij", lambda x: g.mul(x, g.const(scale))) if scale else s


def weigh(g, s, kind="stable"):
    return g.einsum("bhij,bhjd->bhid", g.softmax(s, "bhij", kind), g.arguments[2])


def pattern_of_softmax(kind):
    def build(g):
        return weigh(g, scores(g), kind)
    build.__name__ = f"softmax_{kind}"
    pattern([QUERY, KEY, KEY], ["scale(2.500000e-01) :"])(build)


for kind in ["op", "stable", "unstable", "logarithm", "reciprocal"]:
    pattern_of_softmax(kind)


@pattern([QUERY, KEY, KEY], ["scale(2.500000e-01) :"])
def scale_split_between_query_and_key(g):
    halves = [g.pointwise([(t, "bhid")], "bhid", lambda x: g.mul(x, g.const(0.5))) for t in g.arguments[:2]]
    return weigh(g, g.einsum("bhid,bhjd->bhij", *halves), "op")


@pattern([QUERY, KEY, KEY], ["scale(2.500000e-01) :"])
def scale_as_a_division_of_queries(g):
    q = g.pointwise([(g.arguments[0], "bhid")], "bhid", lambda x: g.div(x, g.const(4.0)))
    return weigh(g, g.einsum("bhid,bhjd->bhij", q, g.arguments[1]))


def causal(g, s, masked):
    def body(x):
        visible = g.compare("sle", g.index(3), g.index(2))
        return g.select(visible, x, g.const(masked))
    return g.pointwise([(s, "bhij")], "bhij", body)


@pattern([QUERY, KEY, KEY], ["mask(", "arith.cmpi sle", "scale(2.500000e-01)"], ["score(", "captures"])
def causal_by_select(g):
    return weigh(g, causal(g, scores(g), float("-inf")))


@pattern([QUERY, KEY, KEY], ["mask(", "arith.cmpi sle"], ["score(", "captures"])
def causal_before_the_scale(g):
    s = causal(g, scores(g, None), -10000.0)
    return weigh(g, g.pointwise([(s, "bhij")], "bhij", lambda x: g.mul(x, g.const(0.25))), "op")


@pattern([QUERY, KEY, KEY], ["mask(", "arith.cmpi sle"], ["score(", "captures"])
def causal_from_integers(g):
    # tril as models write it: a table of 32-bit positions, then a number added to the score.
    s = scores(g)

    def body():
        i, j = (g.op("arith.index_cast", g.index(loop), to="i32") for loop in (0, 1))
        return g.select(g.compare("sge", i, j), g.const(0.0), g.const(-1e9))
    table = g.pointwise([], "ij", body, like=[(s, "bhij")])
    return weigh(g, g.pointwise([(s, "bhij"), (table, "ij")], "bhij", g.add))


@pattern([QUERY, KEY, KEY, ((B, None), "f32")], ["mask(", "captures(", "arith.cmpf oge"], ["score("],
      {3: lambda random: (random.random((B, M)) < 0.7).astype("float32") + 0 * numpy.eye(B, M, dtype="float32")})
def padding_as_one_minus_flags(g):
    flags = g.arguments[3]
    added = g.pointwise([(flags, "bj")], "bj", lambda m: g.mul(g.sub(g.const(1.0), m), g.const(-3.4e38)))
    return weigh(g, g.pointwise([(scores(g), "bhij"), (added, "bj")], "bhij", g.add), "op")


@pattern([QUERY, KEY, KEY, ((B, None), "i64")], ["mask(", "captures(", "arith.cmpi ne"], ["score("],
      {3: lambda random: (random.random((B, M)) < 0.7).astype("int64")})
def padding_as_integers(g):
    def body(m):
        return g.mul(g.sub(g.const(1.0), g.op("arith.sitofp", m, to="f32")), g.const(-1e9))
    added = g.pointwise([(g.arguments[3], "bj")], "bj", body)
    return weigh(g, g.pointwise([(scores(g), "bhij"), (added, "bj")], "bhij", g.add))


@pattern([QUERY, KEY, KEY, ((B, 1, 1, None), "i1")], ["mask(", "captures(", "tensor<2x1x1x?xi1>"], ["score("],
      {3: lambda random: random.random((B, 1, 1, M)) < 0.7})
def padding_as_truth_values(g):
    s, m = scores(g), g.arguments[3]
    flat = g.reshape(m, "[[0, 1, 2], [3]]", [B, None], expands=False)
    return weigh(g, g.pointwise([(s, "bhij"), (flat, "bj")], "bhij", lambda x, c: g.select(c, x, g.const(-1e9))))


@pattern([QUERY, KEY, KEY, ((H, None, None), "f32")], ["score(", "captures(", "tensor.extract"], ["mask("],
      {3: lambda random: random.standard_normal((H, N, M)).astype("float32")})
def bias_of_a_head(g):
    s = g.pointwise([(scores(g), "bhij"), (g.arguments[3], "hij")], "bhij", g.add)
    return weigh(g, s)


@pattern([QUERY, KEY, KEY, ((H,), "f32")], ["score(", "mask(", "captures(%arg3 : tensor<4xf32>)"], [],
      {3: lambda random: random.random(H).astype("float32")})
def alibi_and_causal(g):
    def body(x, slope):
        i, j = (g.op("arith.index_cast", g.index(loop), to="i32") for loop in (2, 3))
        distance = g.op("arith.sitofp", g.op("arith.subi", j, i), to="f32")
        return g.add(x, g.mul(distance, slope))
    s = g.pointwise([(scores(g), "bhij"), (g.arguments[3], "h")], "bhij", body)
    return weigh(g, causal(g, s, -1e9))


@pattern([QUERY, KEY, KEY], ["score(", "math.tanh"], ["mask(", "captures"])
def soft_cap(g):
    def body(x):
        return g.mul(g.op("math.tanh", g.mul(x, g.const(0.05))), g.const(20.0))
    return weigh(g, g.pointwise([(scores(g), "bhij")], "bhij", body))


@pattern([QUERY, ((B, 2, None, D), "f32"), ((B, 2, None, D), "f32")],
      ["%arg1[b,h,s,d], %arg2[b,h,s,d]", "tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32>)"], ["linalg.generic"])
def keys_repeated_for_groups(g):
    repeated = []
    for t in g.arguments[1:]:
        wide = g.pointwise([(t, "bhjd")], "bhgjd", lambda x: x, like=[(g.arguments[0], "b_h_"), (TWO, "_g")])
        repeated.append(g.reshape(wide, "[[0], [1, 2], [3], [4]]", [B, H, None, D], expands=False))
    s = g.einsum("bhid,bhjd->bhij", g.arguments[0], repeated[0])
    return g.einsum("bhij,bhjd->bhid", g.softmax(s, "bhij"), repeated[1])


class Two:
    shape = [None, 2]


TWO = Two()


@pattern([((B, None, 2, 2, D), "f32"), ((B, None, 2, D), "f32"), ((B, None, 2, D), "f32")],
      ["[b,s,h,d]", "tensor<2x?x4x16xf32>, tensor<2x?x2x16xf32>"], ["linalg.generic"])
def groups_as_a_dimension(g):
    q, k, v = g.arguments
    s = g.einsum("bikgd,bjkd->bkgij", q, k)
    return g.einsum("bkgij,bjkd->bikgd", g.softmax(s, "bkgij"), v)


@pattern([((B, None, H, D), "f32"), ((B, None, H, D), "f32"), ((B, None, H, D), "f32")], ["[b,s,h,d]", "out"],
      ["linalg.transpose"])
def einsum_layout(g):
    q, k, v = g.arguments
    s = g.einsum("bihd,bjhd->bhij", q, k)
    return g.einsum("bhij,bjhd->bhid", g.softmax(s, "bhij", "op"), v)


@pattern([((B, None, H * D), "f32")] * 3, ["tensor<2x?x4x16xf32>, tensor<2x?x4x16xf32>, tensor<2x?x4x16xf32>"])
def heads_split_from_the_width(g):
    heads = [g.reshape(t, "[[0], [1], [2, 3]]", [B, None, H, D], True, [(t, 1)]) for t in g.arguments]
    transposed = [g.pointwise([(t, "bihd")], "bhid", lambda x: x) for t in heads]
    s = g.einsum("bhid,bhjd->bhij", transposed[0], transposed[1])
    return g.einsum("bhij,bhjd->bhid", g.softmax(s, "bhij"), transposed[2])


@pattern([((B * H, None, D), "f32")] * 3 + [((B, 1, None, None), "f32")], ["score(", "arith.floordivsi"], [],
      {3: lambda random: random.standard_normal((B, 1, N, N)).astype("float32")})
def batches_and_heads_as_one(g):
    # As a batched matmul; only the softmax has four dimensions.
    s = g.einsum("nid,njd->nij", g.arguments[0], g.arguments[1])
    four = g.reshape(s, "[[0, 1], [2], [3]]", [B, H, None, None], True, [(s, 1), (s, 2)])
    mask = g.reshape(g.arguments[3], "[[0, 1], [2], [3]]", [B, None, None], expands=False)
    p = g.softmax(g.pointwise([(four, "bhij"), (mask, "bij")], "bhij", g.add), "bhij")
    three = g.reshape(p, "[[0, 1], [2], [3]]", [B * H, None, None], expands=False)
    return g.einsum("nij,njd->nid", three, g.arguments[2])


@pattern([((N, D), "f32"), ((M, D), "f32"), ((M, D), "f32")], ["%arg0[s,d], %arg1[s,d], %arg2[s,d]"])
def two_dimensions(g):
    s = g.einsum("id,jd->ij", g.arguments[0], g.arguments[1])
    return g.einsum("ij,jd->id", g.softmax(s, "ij"), g.arguments[2])


@pattern([((N, D), "f32"), ((M, D), "f32"), ((M, D), "f32")], ["scale(1.000000e+00) :"])
def transposed_scores(g):
    s = g.einsum("jd,id->ji", g.arguments[1], g.arguments[0])
    transposed = g.pointwise([(s, "ji")], "ij", lambda x: x)
    return g.einsum("jd,ij->id", g.arguments[2], g.softmax(transposed, "ij"))


@pattern([((B, H, None, D), "f16")] * 3, ["tensor<2x4x?x16xf16>) -> tensor<2x4x?x16xf32>"],
         ["arith.extf", "arith.truncf"])
def half_precision(g):
    # Mixed precision: f16 matmuls with a softmax in f32. Queries and keys are widened, weights rounded.
    q, k = (g.pointwise([(t, "bhid")], "bhid", lambda x: g.op("arith.extf", x, to="f32")) for t in g.arguments[:2])
    p = g.softmax(g.einsum("bhid,bhjd->bhij", q, k), "bhij")
    rounded = g.pointwise([(p, "bhij")], "bhij", lambda x: g.op("arith.truncf", x, to="f16"), "f16")
    return g.einsum("bhij,bhjd->bhid", rounded, g.arguments[2])


@pattern([QUERY, KEY, KEY], ["mask("], ["weight(", "score("])
def guard_against_nan(g):
    s = causal(g, scores(g), float("-inf"))
    p = g.softmax(s, "bhij")

    def body(x):
        isNaN = g.op("arith.cmpf", x, x, attribute="uno, ")[0], "i1"
        return g.select(isNaN, g.const(0.0), x)
    return g.einsum("bhij,bhjd->bhid", g.pointwise([(p, "bhij")], "bhij", body), g.arguments[2])


@pattern([QUERY, KEY, KEY, ((B, H, None, None), "f32")], ["weight(", "captures("], ["score("],
      {3: lambda random: random.random((B, H, N, M)).astype("float32")})
def weights_gated(g):
    p = g.pointwise([(g.softmax(scores(g), "bhij"), "bhij"), (g.arguments[3], "bhij")], "bhij", g.mul)
    return g.einsum("bhij,bhjd->bhid", p, g.arguments[2])


@pattern([((B, None, D), "f32")] * 3, ["[b,s,d]"])
def one_query_without_a_dimension(g):
    q = g.reduce(g.arguments[0], "bid", "bd", 0.0, g.add)
    s = g.einsum("bd,bjd->bj", q, g.arguments[1])
    return g.einsum("bj,bjd->bd", g.softmax(s, "bj"), g.arguments[2])
