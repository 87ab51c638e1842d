"""Positions, and tensors read in part, by which random graphs of attention differ from those that are raised."""

import itertools
import math

from graphs import Tensor
from raising_flags import PREDICATES, WIDTHS, drawn_integer

LOW = float("-inf")


def positions(form, s):
    """A mask or a bias of positions in narrow integers, which overflow, also as an index again."""
    g, rng = form.g, form.rng

    def position(letter, element):
        x = g.index(form.pair.index(letter))
        if rng.random() < 0.3:
            other = g.index(form.pair.index(rng.choice(form.pair)))
            if rng.random() < 0.5:
                other = g.line(f"arith.constant {rng.choice([1, 2, 127, 200, -1])} : index"), "index"
            x = g.op(rng.choice(["arith.addi", "arith.subi", "arith.muli"]), x, other)
        x = g.op(rng.choice(["arith.index_cast", "arith.index_cast", "arith.index_castui"]), x, to=element)
        for _ in range(rng.choice([0, 0, 1, 2])):
            x = drawn_integer(form, x)
        return x

    def body(x):
        element = rng.choice(["i8", "i8", "i16", "i32", "i64"])
        j, other = position("j", element), position("i", element)
        if rng.random() < 0.3:
            j, other = (g.op(rng.choice(["arith.index_cast", "arith.index_castui"]), each, to="index") for each in (j, other))
        elif j[1] != other[1]:
            names = {-1: "arith.trunci", 1: rng.choice(["arith.extsi", "arith.extui"])}
            other = g.op(names[1 if WIDTHS[other[1]] < WIDTHS[j[1]] else -1], other, to=j[1])
        if rng.random() < 0.5:
            j = g.op(rng.choice(["arith.addi", "arith.subi", "arith.muli", "arith.xori"]), j, other)
            if j[1] != "index" and rng.random() < 0.5:
                j = drawn_integer(form, j)
            other = g.line(f"arith.constant {rng.choice([0, 1, 2, -1, 100])} : {j[1]}"), j[1]
        if j[1] != "index" and rng.random() < 0.25:
            number = g.op(rng.choice(["arith.sitofp", "arith.uitofp"]), j, to="f32")
            return g.add(x, g.mul(number, g.const(2.0 ** -WIDTHS[j[1]])))
        test = g.op("arith.cmpi", j, other, attribute=rng.choice(PREDICATES) + ", ")[0], "i1"
        return g.select(test, x, g.const(rng.choice([LOW, -1e9])))

    return form.on_scores(s, body)


def table_of_positions(form, s):
    """As `positions`, but from a constant sequence of narrow integers that may wrap around or have another element."""
    g, rng = form.g, form.rng
    element = rng.choice(["i8", "i8", "i16", "i32", "i64", "index"])
    width = WIDTHS.get(element, 64)

    def table(letter):
        first, step = rng.choice([0, 0, (1 << width - 1) - rng.randint(1, 4), rng.randint(-5, 5)]), rng.choice([1, 1, 2, -1])
        half = 1 << width - 1
        values = [(first + step * i + half) % (2 * half) - half for i in range(form.extents[letter])]
        if rng.random() < 0.4:
            values[rng.choice([-1, rng.randrange(len(values))])] += rng.choice([1, -1]) if abs(values[0]) < half - 99 else 0
        shape = f"tensor<{len(values)}x{element}>"
        return Tensor(g.line(f"arith.constant dense<{values}> : {shape}"), [len(values)], element), letter

    def body(x, j, i):
        test = g.op("arith.cmpi", j, i, attribute=rng.choice(PREDICATES) + ", ")[0], "i1"
        return g.select(test, x, g.const(rng.choice([LOW, -1e9])))

    return form.on_scores(s, body, [table("j"), table("i")])


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


PARTS = 14  # ways to read a part of a tensor


def part(form, letters, at, how, element):
    """A tensor with `letters`, read from one that is twice as long along position `at`; `how` is below PARTS."""
    g, rng = form.g, form.rng
    extents = [form.extents[letter] for letter in letters]
    like = [(Tensor(None, [extent]), letter) for extent, letter in zip(extents, letters)]
    if 8 <= how < 12:
        return repeated_or_diagonal(form, letters, at, how, element, like)
    wide = [extent * (1 + (i == at)) for i, extent in enumerate(extents)]
    source = g.argument([None if i == at and rng.random() < 0.6 else n for i, n in enumerate(wide)], wide, element)
    if how >= 12:
        return sliced(form, source, at, rng.choice([0, 0, 1, extents[at]]), rng.choice([1, 1, 2]), extents)
    subscript = list(letters)
    if how < 4:
        # [2n] -> [2, n] or [n, 2], of which the index 0 or 1 is read.
        split = extents[:at] + ([2, extents[at]] if how < 2 else [extents[at], 2]) + extents[at + 1:]
        groups = [[i + (i > at)] + [i + 1] * (i == at) for i in range(len(letters))]
        source = expanded(form, source, groups, split, at)
        subscript.insert(at + (how >= 2), str(how % 2))
    else:
        subscript[at] = readings(form, letters[at])[how - 4]
    return g.pointwise([(source, subscript)], letters, lambda x: x, element, like=like)


def expanded(form, source, groups, split, at):
    """An expand_shape; the first extent of a dynamic dimension `at` is dynamic."""
    g, is_dynamic = form.g, source.shape[at] is None
    sizes = [g.line(f"arith.constant {n} : index") if i == at and is_dynamic else str(n) for i, n in enumerate(split)]
    result = Tensor(None, [None if i == at and is_dynamic else n for i, n in enumerate(split)], source.element)
    result.name = g.line(f"tensor.expand_shape {source.name} {groups} output_shape [{', '.join(sizes)}]"
                         f" : {source.type} into {result.type}")  # fmt: skip
    return result


def sliced(form, source, at, offset, step, extents):
    """Every `step`th element of `source` along dimension `at`, from `offset`; all of the other dimensions."""
    starts, steps = ([value if i == at else other for i in range(len(extents))] for value, other in ((offset, 0), (step, 1)))
    if offset + (extents[at] - 1) * step >= 2 * extents[at]:
        steps[at] = 1
        starts[at] = min(offset, extents[at])
    result = Tensor(None, extents, source.element)
    result.name = form.g.line(f"tensor.extract_slice {source.name}{starts}{extents}{steps} : {source.type} to {result.type}")
    return result


def repeated_or_diagonal(form, letters, at, how, element, like):
    """A tensor of which the elements along position `at` are repeated, chosen, or are a diagonal of two dimensions."""
    extents = [form.extents[letter] for letter in letters]
    n, subscript = extents[at], list(letters)
    group = next(each for each in (2, 3, 5, n) if n % each == 0)
    if how < 10:
        extents[at] = n // group
        subscript[at] = f"{letters[at]} floordiv {group}" if how == 8 else f"{letters[at]} mod {n // group}"
    elif how == 10 and letters[at] in form.pair:
        subscript[at], largest = drawn_subscript(form, letters[at], form.rng.choice([1, 2]))
        extents[at] = largest + 1
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


def drawn_subscript(form, letters, depth):
    """A position that is computed from loops by `depth` sums, products, quotients and remainders, and is not negative.

    Gives the text for an affine map, and the largest value."""
    rng = form.rng
    text, value = drawn_position(form, letters, depth)
    loops = sorted(set(letters))
    values = [value(dict(zip(loops, at))) for at in itertools.product(*(range(form.extents[loop]) for loop in loops))]
    low = min(values) - rng.choice([0, 0, 0, 1])
    return (f"{text} + {-low}" if low < 0 else text), max(values) - min(low, 0)


def drawn_position(form, letters, depth):
    """The text of a position, and a function that gives its value for positions of the loops."""
    rng = form.rng
    if depth == 0:
        letter = rng.choice(letters)
        return letter, lambda at: at[letter]
    text, value = drawn_position(form, letters, depth - 1)
    kind = rng.choice(["sum", "sum", "difference", "quotient", "quotient", "remainder", "remainder", "product", "digits"])
    if kind in ("sum", "difference"):
        other, added = drawn_position(form, letters, rng.randrange(depth))
        if rng.random() < 0.3:
            number = rng.choice([1, 2, 3])
            other, added = str(number), lambda at: number
        sign = 1 if kind == "sum" else -1
        return f"({text} {'+' if sign == 1 else '-'} {other})", lambda at: value(at) + sign * added(at)
    if kind == "product":
        factor = rng.choice([2, 3])
        return f"({text} * {factor})", lambda at: value(at) * factor
    largest = max(form.extents[letter] for letter in letters)
    divisor = rng.choice([2, 3, max(largest - 1, 1), largest, largest + 1])
    if kind == "digits":
        factor, whole = rng.choice([1, 2]), rng.choice([divisor, divisor, divisor + 1])
        return (f"(({text} floordiv {divisor}) * {factor * whole} + ({text} mod {divisor}) * {factor})",
                lambda at: value(at) // divisor * factor * whole + value(at) % divisor * factor)  # fmt: skip
    if kind == "quotient":
        return f"({text} floordiv {divisor})", lambda at: value(at) // divisor
    return f"({text} mod {divisor})", lambda at: value(at) % divisor


def subscripts(form, s):
    """A bias or a mask from a tensor that is read at sums, quotients and remainders of positions, perhaps after a reshape."""
    g, rng = form.g, form.rng
    letters = [rng.choice("ij"), rng.choice(form.pair)]
    drawn = [drawn_subscript(form, letters, rng.choice([0, 1, 1, 2])) for _ in range(rng.choice([1, 1, 2]))]
    extents = [largest + 1 if text not in form.pair else form.extents[text] for text, largest in drawn]
    element, values = rng.choice([("f32", "normal"), ("f32", "normal"), ("i1", "flags")])
    how, inner = rng.choice(["plain", "plain", "expanded", "collapsed"]), rng.choice([1, 2, 3])
    if how == "expanded":
        # [n · m] -> [n, m]
        wide = [*extents, inner] if len(extents) == 1 else extents
        drawn = [*drawn, (str(rng.randrange(inner)), 0)] if len(extents) == 1 else drawn
        table = g.reshape(g.argument([math.prod(wide)], [math.prod(wide)], element, values), "[[0, 1]]", wide, True)
    elif how == "collapsed" and all(text not in form.pair for text, _ in drawn[:1]):
        # [a, b] -> [a · b]; the last elements may not be read.
        split = [-(-extents[0] // inner), inner, *extents[1:]]
        groups = "[[0, 1], [2]]" if len(extents) == 2 else "[[0, 1]]"
        table = g.reshape(g.argument(split, split, element, values), groups, None, False)
    else:
        shape = [None if rng.random() < 0.2 else extent for extent in extents]
        table = g.argument(shape, extents, element, values)

    def body(x, c):
        return g.add(x, c) if element == "f32" else g.select(c, x, g.const(rng.choice([LOW, -1e9])))

    return form.on_scores(s, body, [(table, [text for text, _ in drawn])])


def slice_of_positions(form):
    """Whether a key is visible, from a table of positions that is longer than the sequences."""
    g, rng = form.g, form.rng
    letters = "".join(rng.sample("ij", 2))
    # [.., ..], or an index of a third dimension.
    planes = rng.choice([1, 1, 3])
    plane, steps = rng.randrange(planes), [rng.choice([1, 1, 1, 2]) for _ in letters]
    starts = [rng.choice([0, 0, 1, 3]) for _ in letters]
    shape = [start + (form.extents[letter] - 1) * step + 1 + rng.choice([0, 2])
             for letter, start, step in zip(letters, starts, steps)]  # fmt: skip
    predicate, shift = rng.choice(["sle", "sge"]), rng.choice([0, 0, 1, -1])

    def body(*unused):
        i, j = (g.op("arith.index_cast", g.index(letters.index(letter)), to="i32") for letter in "ij")
        shifted = g.op("arith.addi", i, (g.line(f"arith.constant {shift} : i32"), "i32"))
        if planes > 1:
            shifted = g.op("arith.addi", shifted, g.op("arith.index_cast", g.index(2), to="i32"))
        return g.compare(predicate, j, shifted)

    whole = [*shape, planes] if planes > 1 else shape
    into = g.empty("ijp"[: len(whole)], [(Tensor(None, whole), "ijp"[: len(whole)])], "i1")
    table = g.generic([], "ijp"[: len(whole)], into, "ijp"[: len(whole)], set(), body)
    result = Tensor(None, [form.extents[letter] for letter in letters], "i1")
    last = planes > 1
    result.name = g.line(f"tensor.extract_slice {table.name}{starts + [plane] * last}{result.shape + [1] * last}"
                         f"{steps + [1] * last} : {table.type} to {result.type}")  # fmt: skip
    return result, letters
