"""Flags and truth values by which random graphs of attention differ from those that are raised."""

from graphs import Tensor

LOW = float("-inf")
WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


def compare_reals(form, x, y, predicates):
    return form.g.op("arith.cmpf", x, y, attribute=form.rng.choice(predicates) + ", ")[0], "i1"


def constant_table(form, letters, numbers, element="f32"):
    """A constant tensor with `letters`, whose elements are drawn from `numbers`."""
    extents = [form.extents[letter] for letter in letters]

    def dense(shape):
        if not shape:
            number = form.rng.choice(numbers)
            return "0xFF800000" if number == LOW else repr(number)
        return "[" + ", ".join(dense(shape[1:]) for _ in range(shape[0])) + "]"

    name = form.g.line(f"arith.constant dense<{dense(extents)}> : tensor<{'x'.join(map(str, extents))}x{element}>")
    return Tensor(name, extents, element), letters


def drawn_integer(form, x):
    """An integer computed from `x`: arithmetic with constants, shifts, and casts to other widths."""
    g, rng = form.g, form.rng
    width = WIDTHS[x[1]]

    def const(value):
        value = (value + (1 << width - 1)) % (1 << width) - (1 << width - 1)
        return g.line(f"arith.constant {value} : {x[1]}"), x[1]

    other = rng.choice([0, 1, 1, 2, 3, -1, rng.getrandbits(width), (1 << width - 1) - 1])
    kind = rng.choice(["arithmetic", "arithmetic", "reversed", "shift", "quotient", "cast", "cast", "select"])
    if width == 1 or kind == "cast":
        wider = [each for each in WIDTHS if WIDTHS[each] > width]
        narrower = [each for each in WIDTHS if 1 < WIDTHS[each] < width]
        to = rng.choice(wider + narrower)
        name = rng.choice(["arith.extsi", "arith.extui"]) if to in wider else "arith.trunci"
        return g.op(name, x, to=to)
    if kind == "select":
        test = g.op("arith.cmpi", x, const(other), attribute=rng.choice(PREDICATES) + ", ")[0], "i1"
        return g.select(test, const(rng.choice([0, 1, 2, -1])), const(rng.choice([0, 1, 2, -1])))
    if kind == "reversed":
        return g.op("arith.subi", const(other), x)
    if kind == "shift":
        return g.op(rng.choice(["arith.shli", "arith.shrsi", "arith.shrui"]), x, const(rng.randrange(width)))
    if kind == "quotient":
        return g.op(rng.choice(["arith.divsi", "arith.remsi", "arith.divui", "arith.remui"]), x, const(rng.choice([2, 3, 5])))
    names = ["addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi"]
    y = const(other)
    if rng.random() < 0.2:  # a constant that is computed
        y = g.op(rng.choice(["arith.addi", "arith.muli"]), y, const(rng.choice([1, 2, 3])))
    return g.op("arith." + rng.choice(names), x, y)


def integer_flags(form, s):
    """(1 − f) · −1e9 or f · −1e9, where f is computed from flags, truth values included."""
    g, rng = form.g, form.rng
    if rng.random() < 0.2:
        numbers = rng.choice([[0, 1], [0, 1, 1, 2], [0, 1, -1], [1, 3]])
        flags, letters = constant_table(form, "j", numbers, rng.choice(["i8", "i32"]))
    else:
        flags, letters = form.captured("j", rng.choice(["i1", "i1", "i8", "i32"]), "flags")
    low = rng.choice([-1e9, -10000.0, -1e5])

    def body(x):
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            x = drawn_integer(form, x)
        f = g.op(rng.choice(["arith.sitofp", "arith.uitofp"]), x, to="f32")
        if rng.random() < 0.15:
            f = rng.choice([g.add, g.mul, g.sub])(f, g.const(rng.choice([2.0, -1.0, 0.5])))
        return g.mul(g.sub(g.const(1.0), f) if rng.random() < 0.7 else f, g.const(low))

    unit = letters.replace("0", "u")
    return form.on_scores(s, g.add, [(g.pointwise([(flags, unit)], unit, body), letters)])


def real_flags(form, s):
    """(1 − f) · −1e9 or f · −1e9, where f is computed from floats, most of which are from 0 to 1."""
    g, rng = form.g, form.rng

    def source():
        kind = rng.choice(["argument", "argument", "constant", "constant", "truth"])
        if kind == "constant":
            return constant_table(form, "j", rng.choice([[0.0, 1.0], [0.0, 1.0, 0.5], [0.0, 1.0, 2.0], [1.0, -1.0]]))
        return form.captured("j", "f32" if kind == "argument" else "i1", "flags")

    def drawn(f, other):
        kind = rng.choice(["reversed", "two", "two", "number", "selected"])
        if kind == "reversed":
            return g.sub(g.const(1.0), f)
        if kind == "number":
            return rng.choice([g.add, g.sub, g.mul])(f, g.const(rng.choice([0.0, 1.0, -1.0, 0.5, 2.0])))
        if kind == "selected":
            test = compare_reals(form, other, g.const(rng.choice([0.0, 0.5, 1.0])), ["ogt", "oeq", "une"])
            return g.select(test, f, g.const(rng.choice([0.0, 1.0, 2.0])))
        return g.op("arith." + rng.choice(["mulf", "maximumf", "minimumf", "addf", "subf"]), f, other)

    sources = [source(), source()]
    # As they are, with a number that hides a key also where 1 − f is 2⁻²⁴; or changed.
    is_plain = rng.random() < 0.4
    low = -3.0e38 if is_plain else rng.choice([-1e9, -10000.0, -3.0e38])

    def body(x, *given):
        f, other = (g.op("arith.uitofp", each, to="f32") if each[1] == "i1" else each for each in given)
        for _ in range(0 if is_plain else rng.choice([0, 1, 1, 2])):
            f = drawn(f, other)
        return g.add(x, g.mul(g.sub(g.const(1.0), f) if rng.random() < 0.8 else f, g.const(low)))

    return form.on_scores(s, body, sources)


def drawn_truth(form, flag, depth):
    """A truth value computed from `flag`, constants and positions by `depth` conversions, comparisons and logic ops."""
    g, rng = form.g, form.rng
    if depth == 0:
        kind = rng.choice(["flag", "flag", "flag", "constant", "position"])
        if kind == "constant":
            return g.const(rng.random() < 0.5, "i1")
        return flag if kind == "flag" else g.compare(rng.choice(["sle", "sge", "ne"]), form.index("j"), form.index("i"))
    inner = drawn_truth(form, flag, depth - 1)
    kind = rng.choice(["integer", "integer", "real", "real", "joined", "chosen"])
    if kind == "joined":
        other = drawn_truth(form, flag, rng.randrange(depth))
        return g.op("arith." + rng.choice(["andi", "ori", "xori"]), inner, other)
    if kind == "chosen":
        return g.select(inner, drawn_truth(form, flag, rng.randrange(depth)), drawn_truth(form, flag, 0))
    equals = rng.random() < 0.7
    if kind == "integer":
        x = widened(form, inner)
        y = g.line(f"arith.constant {rng.choice([0, 0, 1, 1, -1, 2]) if x[1] != 'i1' else rng.choice([0, -1])} : {x[1]}"), x[1]
        pair = [x, y] if rng.random() < 0.7 else [y, x]
        predicate = rng.choice(["eq", "ne"] if equals else PREDICATES)
        return g.op("arith.cmpi", *pair, attribute=predicate + ", ")[0], "i1"
    pair = [number_of(form, inner), g.const(rng.choice([0.0, 0.0, 1.0, 1.0, -1.0, 0.5]))]
    if rng.random() < 0.3:
        pair.reverse()
    orders = ["oeq", "une", "one", "ueq"] if equals else ["ogt", "oge", "olt", "ole", "ugt", "uge", "ult", "ule"]
    return compare_reals(form, *pair, orders)


def widened(form, truth):
    """A truth value as an integer, once or twice extended."""
    for _ in range(form.rng.choice([0, 1, 1, 2])):
        wider = [each for each in WIDTHS if WIDTHS[each] > WIDTHS[truth[1]]]
        if wider:
            truth = form.g.op(form.rng.choice(["arith.extsi", "arith.extui"]), truth, to=form.rng.choice(wider))
    return truth


def number_of(form, truth):
    """A truth value as a float."""
    if form.rng.random() < 0.3:
        arms = [form.g.const(1.0), form.g.const(form.rng.choice([0.0, 0.0, -1.0]))]
        form.rng.shuffle(arms)
        return form.g.select(truth, *arms)
    return form.g.op(form.rng.choice(["arith.sitofp", "arith.uitofp"]), widened(form, truth), to="f32")


def truth_values(form, s):
    """A mask by truth values that were converted to numbers and compared."""
    g, rng = form.g, form.rng
    low = rng.choice([-1e9, -10000.0])
    kind = rng.choice(["select", "select", "add", "factor", "bias"])

    def body(x, c):
        truth = drawn_truth(form, c, rng.choice([0, 1, 1, 2, 2, 3]))
        if kind == "select":
            return g.select(truth, x, g.const(rng.choice([LOW, low])))
        if kind == "add":
            return g.add(x, g.select(truth, g.const(0.0), g.const(low)))
        number = number_of(form, truth)
        if kind == "bias":
            return g.add(x, number)
        return g.add(x, g.mul(g.sub(g.const(1.0), number) if rng.random() < 0.6 else number, g.const(low)))

    return form.on_scores(s, body, [form.captured("j", "i1", "flags")])
