"""Steps by which random graphs of attention differ from those that are raised. Each takes the RandomForm that is built.

Nothing need be raised: most results differ from attention, and some are equal by chance.
"""

from graphs import Tensor

LOW = float("-inf")
WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


def compare_reals(form, x, y, predicates):
    return form.g.op("arith.cmpf", x, y, attribute=form.rng.choice(predicates) + ", ")[0], "i1"


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


def positions(form, s):
    """A mask or a bias of positions in narrow integers, which overflow."""
    g, rng = form.g, form.rng

    def position(letter, element):
        index = g.index(form.pair.index(letter))
        x = g.op(rng.choice(["arith.index_cast", "arith.index_cast", "arith.index_castui"]), index, to=element)
        for _ in range(rng.choice([0, 1, 2])):
            x = drawn_integer(form, x)
        return x

    def body(x):
        element = rng.choice(["i8", "i8", "i16", "i32", "i64"])
        j, other = position("j", element), position("i", element)
        if j[1] != other[1]:
            names = {-1: "arith.trunci", 1: rng.choice(["arith.extsi", "arith.extui"])}
            other = g.op(names[1 if WIDTHS[other[1]] < WIDTHS[j[1]] else -1], other, to=j[1])
        if rng.random() < 0.5:
            j = g.op(rng.choice(["arith.addi", "arith.subi", "arith.muli", "arith.xori"]), j, other)
            for _ in range(rng.choice([0, 1])):
                j = drawn_integer(form, j)
            other = g.line(f"arith.constant {rng.choice([0, 1, 2, -1, 100])} : {j[1]}"), j[1]
        if rng.random() < 0.25:
            number = g.op(rng.choice(["arith.sitofp", "arith.uitofp"]), j, to="f32")
            return g.add(x, g.mul(number, g.const(2.0 ** -WIDTHS[j[1]])))
        if WIDTHS[j[1]] != WIDTHS[other[1]]:
            return x
        test = g.op("arith.cmpi", j, other, attribute=rng.choice(PREDICATES) + ", ")[0], "i1"
        return g.select(test, x, g.const(rng.choice([LOW, -1e9])))

    return form.on_scores(s, body)


def table_of_positions(form, s):
    """As `positions`, but from a constant sequence of narrow integers that may wrap around."""
    g, rng = form.g, form.rng
    element = rng.choice(["i8", "i8", "i16", "i32", "i64", "index"])
    width = WIDTHS.get(element, 64)

    def table(letter):
        first, step = rng.choice([0, 0, (1 << width - 1) - rng.randint(1, 4), rng.randint(-5, 5)]), rng.choice([1, 1, 2, -1])
        half = 1 << width - 1
        values = [(first + step * i + half) % (2 * half) - half for i in range(form.extents[letter])]
        shape = f"tensor<{len(values)}x{element}>"
        return Tensor(g.line(f"arith.constant dense<{values}> : {shape}"), [len(values)], element), letter

    def body(x, j, i):
        test = g.op("arith.cmpi", j, i, attribute=rng.choice(PREDICATES) + ", ")[0], "i1"
        return g.select(test, x, g.const(rng.choice([LOW, -1e9])))

    return form.on_scores(s, body, [table("j"), table("i")])


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
    """Scores that are NaN where a key is hidden, before a guard against NaN."""
    g, rng = form.g, form.rng
    others, test, _ = form.condition()
    hidden = form.on_scores(s, lambda x, *c: g.select(test(*c), x, g.const(LOW)), others)
    kind = rng.choice(["difference", "product", "quotient"])
    if kind == "difference":
        return form.on_scores(hidden, g.sub, [(hidden if rng.random() < 0.5 else s, form.pair)])
    if kind == "product":
        return form.on_scores(hidden, lambda x: g.mul(x, g.const(rng.choice([0.0, -1.0]))))
    return form.on_scores(hidden, lambda x, y: g.div(x, y), [(hidden, form.pair)])


def constant_numbers(form, s):
    """A bias or factor computed from constants, of which some may be −∞ or hide a key, before a guard against NaN."""
    g, rng = form.g, form.rng
    special = rng.choice([[], [], [LOW], [20000.0], [-20000.0]])

    def constant():
        letters = rng.choice(["j", "ij", form.pair])
        extents = [form.extents[letter] for letter in letters]

        def dense(shape):
            if not shape:
                number = rng.choice([0.0, 0.0, 1.0, 3.0] + special)
                return "0xFF800000" if number == LOW else repr(number)
            return "[" + ", ".join(dense(shape[1:]) for _ in range(shape[0])) + "]"

        name = g.line(f"arith.constant dense<{dense(extents)}> : tensor<{'x'.join(map(str, extents))}xf32>")
        return Tensor(name, extents), letters

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


def part_of_a_result(form, s):
    """A bias that an op writes in part, into a tensor of numbers: a diagonal, or one index of a dimension."""
    g, rng, pair = form.g, form.rng, form.pair
    others = [each for each in pair if each != "j"]
    other = rng.choice([each for each in others if form.extents[each] == form.extents["j"]] or ["2"])
    if other == "2" or rng.random() < 0.5:
        # [j] -> [j, n] at index 0; all of it if n is 1.
        n = rng.choice([1, 2, 3])
        into = g.filled("jn", [(Tensor(None, [form.extents["j"], n]), "jn")], "f32", rng.choice([0.0, 1.0, LOW]))
        source = form.argument("j")
        written = g.generic([(source, "j")], "j0", into, ["j"], set(), lambda x, c: x)
        at = str(rng.randrange(n))
        like = [(Tensor(None, [form.extents["j"]]), "j")]
        read = g.pointwise([(written, "j" + at)], "j", lambda x: x, like=like)
        return form.on_scores(s, g.add, [(read, "j")])
    into = g.filled("ij", [(Tensor(None, [form.extents["j"]] * 2), "ij")], "f32", rng.choice([0.0, 1.0, LOW]))
    written = g.generic([(form.argument("j"), "j")], "jj", into, ["j"], set(), lambda x, c: x)
    return form.on_scores(s, g.add, [(written, other + "j")])


def readings(form, letter):
    """Ways to read a part of a dimension that is twice as long, as subscripts."""
    n = form.extents[letter]
    return [f"{letter} mod {n}", f"{letter} floordiv 2", f"{letter} + {n}", f"{letter} * 2"]


def part(form, letters, at, how, element):
    """A tensor with `letters`, read from one that is twice as long along position `at`."""
    g = form.g
    extents = [form.extents[letter] for letter in letters]
    like = [(Tensor(None, [extent]), letter) for extent, letter in zip(extents, letters)]
    if how >= 8:
        return repeated_or_diagonal(form, letters, at, how, element, like)
    wide = [extent * (1 + (i == at)) for i, extent in enumerate(extents)]
    source = g.argument(wide, wide, element)
    subscript = list(letters)
    if how < 4:
        # [2n] -> [2, n] or [n, 2], of which the index 0 or 1 is read.
        split = extents[:at] + ([2, extents[at]] if how < 2 else [extents[at], 2]) + extents[at + 1:]
        groups = [[i + (i > at)] + [i + 1] * (i == at) for i in range(len(letters))]
        source = g.reshape(source, str(groups), split, True)
        subscript.insert(at + (how >= 2), str(how % 2))
    else:
        subscript[at] = readings(form, letters[at])[how - 4]
    return g.pointwise([(source, subscript)], letters, lambda x: x, element, like=like)


def repeated_or_diagonal(form, letters, at, how, element, like):
    """A tensor of which the elements along position `at` are repeated, or are a diagonal of two dimensions."""
    extents = [form.extents[letter] for letter in letters]
    n, subscript = extents[at], list(letters)
    group = next(each for each in (2, 3, 5, n) if n % each == 0)
    if how < 10:
        extents[at] = n // group
        subscript[at] = f"{letters[at]} floordiv {group}" if how == 8 else f"{letters[at]} mod {n // group}"
    else:
        extents.insert(at, n)
        subscript.insert(at, letters[at])
    source = form.g.argument(extents, extents, element)
    return form.g.pointwise([(source, subscript)], letters, lambda x: x, element, like=like)


def split_keys(letters):
    """The reassociation of a tensor in which the keys of `letters` are two dimensions."""
    at = letters.index("j")
    return str([[i + (i > at)] + [i + 1] * (i == at) for i in range(len(letters))])


def repeated(form, e):
    """The exponentials twice, along the keys."""
    g, pair = form.g, form.pair
    letters = pair.replace("j", "tj" if form.rng.random() < 0.5 else "jt")
    wide = g.pointwise([(e, pair)], letters, lambda x: x, like=[(Tensor(None, [2]), "t")])
    return g.reshape(wide, split_keys(pair), None, False)


def half(form, e):
    """The exponentials of one half of the keys."""
    g, pair, extents = form.g, form.pair, form.extents
    n = extents["j"] // 2
    split = [extent for letter in pair for extent in ([2, n] if letter == "j" else [extents[letter]])]
    subscript = [each for letter in pair for each in ([form.rng.choice("01"), "j"] if letter == "j" else [letter])]
    like = [(Tensor(None, [n if letter == "j" else extents[letter]]), letter) for letter in pair]
    return g.pointwise([(g.reshape(e, split_keys(pair), split, True), subscript)], pair, lambda x: x, like=like)
