"""Steps by which random graphs of attention differ from those that are raised. Each takes the RandomForm that is built.

Nothing need be raised: most results differ from attention, and some are equal by chance.
"""

from raising_flags import LOW, compare_reals, constant_table, integer_flags, real_flags, truth_values  # noqa: F401
from raising_positions import (  # noqa: F401
    PARTS,
    half,
    part,
    part_of_a_result,
    positions,
    repeated,
    slice_of_positions,
    subscripts,
    table_of_positions,
)

# Kinds of near misses; those that matter in more ways are drawn more often.
KINDS = ("mask of the sum", "mask of the numerator", "shift of the sum", "guard of the sum", "guard of the sum",
         "guard of the weights", "maximum for the sum", "mask by the score", "guard of the row", "guard of the row",
         "integer flags", "integer flags", "integer flags", "real flags", "real flags", "truth values",
         "truth values", "truth values", "positions", "positions", "positions", "positions", "table of positions",
         "table of positions", "subscripts", "subscripts", "subscripts", "keys of more heads", "order of groups",
         "rows of any extent", "rows of any extent", "part of the operands", "part of the operands",
         "part of the operands", "repeated sum", "part of the sum", "another contraction", "another contraction",
         "numbers that cancel", "numbers that cancel", "not a number", "not a number", "part of a result",
         "constant numbers", "constant numbers", "bounded scores")
# Kinds that need static extents.
STATIC = ("part of the operands", "repeated sum", "part of the sum", "another contraction", "table of positions",
          "part of a result", "constant numbers", "integer flags", "real flags")


def mask_by_the_score(form, s):
    """A key is hidden by its score: by a comparison, by flags, by another product, or by the largest score."""
    g, rng, pair = form.g, form.rng, form.pair
    kind = rng.choice(["compared", "flags", "integers", "largest", "square"])
    low = rng.choice([LOW, -1e9])
    orders = ["ogt", "oge", "olt", "ole", "ugt", "one"]
    if kind == "largest":
        row = pair.replace("j", "")
        largest = g.reduce(s, pair, row, LOW, lambda x, c: g.op("arith.maximumf", x, c, commutes=True))
        margin = rng.choice([0.0, 0.5])
        return form.on_scores(s, lambda x, m: g.select(compare_reals(form, x, g.sub(m, g.const(margin)), orders),
                                                      x, g.const(low)), [(largest, row)])  # fmt: skip

    def body(x):
        if kind == "compared":
            return g.select(compare_reals(form, x, g.const(rng.choice([0.0, 0.1, -0.5])), orders), x, g.const(low))
        flag = g.mul(x, x) if kind == "square" else x
        if kind == "integers":
            flag = g.op("arith.sitofp", g.op("arith.fptosi", x, to=rng.choice(["i8", "i32"])), to="f32")
        return g.add(x, g.mul(g.sub(g.const(1.0), flag), g.const(rng.choice([-1e9, -3.0e38]))))

    return form.on_scores(s, body)


def guard_of_the_sum(form, t):
    """A select between the sum and a number, by a comparison of the sum with a number."""
    g, rng = form.g, form.rng
    equals = ["oeq", "oeq", "ueq", "une", "one", "ogt", "ugt"]
    others = ["olt", "ole", "oge", "ult", "ule", "uge", "uno", "ord"]
    number = g.const(rng.choice([0.0] * 6 + [1.0, -1.0, 1.5]))
    test = compare_reals(form, t, number, rng.choice([equals, equals, equals, others]))
    arms = [t, g.const(rng.choice([1.0, 0.0, -1.0, 2.0, 1e-9]))]
    rng.shuffle(arms)
    return g.select(test, *arms)


def guard_of_the_row(form, s, p, number):
    """0 or another number in place of the weights of a row, if all scores or some are a number."""
    g, rng, pair = form.g, form.rng, form.pair
    row = pair.replace("j", "")
    is_all = rng.random() < 0.8
    inverted = rng.random() < 0.4
    combine = {True: "arith.andi", False: "arith.ori"}[is_all != inverted]
    predicates = (["une", "one"] if inverted else ["oeq", "ueq"]) + ["ole"] * (rng.random() < 0.1)
    predicate = rng.choice(predicates)

    def test(x):
        return g.op("arith.cmpf", x, g.const(number), attribute=predicate + ", ")[0], "i1"

    flags = g.pointwise([(s, pair)], pair, test, "i1")
    start = combine == "arith.andi"
    found = g.reduce(flags, pair, row, start, lambda x, c: g.op(combine, x, c, commutes=True))
    # As models write it, "not any visible" in place of "all hidden".
    instead = 0.0 if rng.random() < 0.8 else 1.0

    def body(x, c):
        if inverted:
            c = g.op("arith.xori", c, (g.line("arith.constant true"), "i1"))
        return g.select(c, g.const(instead), x)

    return form.on_scores(p, body, [(found, row)])


def numbers_that_cancel(form, s):
    """Two keys are hidden by numbers, and shown by others, or by a number that the scale makes small."""
    g, rng = form.g, form.rng
    low = rng.choice([-1e9, -10000.0])
    if rng.random() < 0.3:
        others, test, _ = form.condition()
        s = form.on_scores(s, lambda x, *c: g.select(test(*c), x, g.const(-10000.0)), others)
        return form.on_scores(s, lambda x: g.mul(x, g.const(rng.choice([0.0005, 0.001]))))
    for sign in (1.0, rng.choice([-1.0, -1.0, -2.0])):
        others, test, _ = form.condition()
        how, number = rng.choice(["select", "add", "sub"]), low * sign

        def body(x, *c):
            hidden = g.select(test(*c), g.const(0.0), g.const(number if how == "add" else -number))
            return g.select(test(*c), x, g.const(number)) if how == "select" else getattr(g, how)(x, hidden)

        s = form.on_scores(s, body, others)
    return s


def not_a_number(form, s):
    """Scores that are NaN where a key is hidden, or a function of them, before a guard against NaN."""
    g, rng = form.g, form.rng
    others, test, _ = form.condition()
    hidden = form.on_scores(s, lambda x, *c: g.select(test(*c), x, g.const(LOW)), others)
    kind = rng.choice(["difference", "product", "quotient", "none"])
    if kind == "difference":
        made = form.on_scores(hidden, g.sub, [(hidden if rng.random() < 0.5 else s, form.pair)])
    elif kind == "product":
        made = form.on_scores(hidden, lambda x: g.mul(x, g.const(rng.choice([0.0, -1.0]))))
    elif kind == "quotient":
        made = form.on_scores(hidden, lambda x, y: g.div(x, y), [(hidden, form.pair)])
    else:
        made = hidden
    if rng.random() < 0.5:
        return made
    function = rng.choice(["tanh", "tanh", "erf", "exp", "absf", "sin", "sqrt", "log"])
    return form.on_scores(made, lambda x: g.mul(g.op("math." + function, x), g.const(2.0)))


def constant_numbers(form, s):
    """A bias or factor computed from constants, of which some may be −∞, hide a key, or show one that a number hides, before
    a guard against NaN."""
    g, rng = form.g, form.rng
    if rng.random() < 0.4:
        others, test, _ = form.condition()
        s = form.on_scores(s, lambda x, *c: g.select(test(*c), x, g.const(-10000.0)), others)
    special = rng.choice([[], [], [LOW], [20000.0], [-20000.0]])

    def constant():
        return constant_table(form, rng.choice(["j", "ij", form.pair]), [0.0, 0.0, 1.0, 3.0, *special])

    how = rng.choice(["labels", "labels", "difference", "add", "sub", "factor"])

    def body(x, a, b):
        if how == "factor":
            return g.mul(x, g.add(a, b))
        d = a if how in ("add", "sub") else g.sub(a, b)
        if how == "labels":  # windows: other labels are hidden
            zero, low = g.const(0.0), g.const(rng.choice([-100.0, -100.0, LOW]))
            d = g.select(compare_reals(form, d, zero, ["oeq"]), zero, g.select(compare_reals(form, d, zero, ["une"]), low, d))
        return g.sub(x, d) if how == "sub" else g.add(x, d)

    return form.on_scores(s, body, [constant(), constant()])


def bounded_scores(form, s):
    """Scores with a lower bound, of which only a number that hides keys is no part of the result; integer flags times a
    number that a scale makes too small to hide a key."""
    g, rng = form.g, form.rng
    if rng.random() < 0.5:
        return form.on_scores(s, lambda x: g.op("arith.maximumf", x, g.const(rng.choice([-1.0, 0.0, -3.0e38])), commutes=True))
    flags = form.captured("j", rng.choice(["i1", "i32"]), "flags")  # as a signed integer, a truth value is -1
    reverses = rng.random() < 0.5

    def body(x, m):
        low = g.const(-10000.0)
        f = g.op("arith.sitofp", m, to="f32")
        return g.add(x, g.mul(g.sub(g.const(1.0), f) if reverses else f, low))

    return form.on_scores(form.on_scores(s, body, [flags]), lambda x: g.mul(x, g.const(rng.choice([0.0005, 1.0]))))


def replaced_nan(form, x):
    """A weight that is a number where the softmax `x` is NaN."""
    g, rng = form.g, form.rng
    number = g.const(rng.choice([1.0, 1.0, 0.25, 0.0]))
    kind = rng.choice(["uno", "uno", "ord", "oge", "maxnumf", "minnumf"])
    if kind == "minnumf" or kind == "maxnumf":
        return g.op("arith." + kind, x, number, commutes=True)
    test = compare_reals(form, x, g.const(0.0) if kind == "oge" else x, [kind])
    return g.select(test, number, x) if kind == "uno" else g.select(test, x, number)
