"""Random graphs of attention in plain ops, all of which are raised to one op."""

import ast
import math
import random

import raising_misses as misses
from graphs import Graph, Tensor

LOW = float("-inf")


class Form(Graph):
    """A function whose arguments carry the extents and the kind of their values."""

    def __init__(self, name, commuted=False):
        super().__init__(name, [], commuted)
        self.notes = []

    def argument(self, shape, extents, element="f32", values="normal"):
        tensor = Tensor(f"%{self.prefix}_in{len(self.arguments)}", shape, element)
        self.arguments.append(tensor)
        self.notes.append((extents, values))
        return tensor

    def reshape(self, tensor, groups, shape, expands, sizes=()):
        """Extents that the source has are static in the result, too."""
        given = iter(sizes)
        if expands:
            known = [next(given) if extent is None else None for extent in shape]
            sizes = [each for each in known if each and each[0].shape[each[1]] is None]
            shape = [each[0].shape[each[1]] if each else extent for each, extent in zip(known, shape)]
        else:
            sources = [[tensor.shape[dim] for dim in group] for group in ast.literal_eval(groups)]
            shape = [None if None in source else math.prod(source) for source in sources]
        return super().reshape(tensor, groups, shape, expands, sizes)

    def text(self, result):
        arguments = ", ".join(
            f"{tensor.name}: {tensor.type} {{test.shape = array<i64{':' if extents else ''} "
            f"{', '.join(map(str, extents))}>, test.values = \"{values}\"}}"
            for tensor, (extents, values) in zip(self.arguments, self.notes)
        )
        body = "\n".join(self.lines)
        return (f"  func.func @{self.name}({arguments}) -> {result.type} {{\n{body}\n"
                f"    return {result.name} : {result.type}\n  }}\n")  # fmt: skip


def of_pattern(name, pattern, sizes, suffix, commuted):
    """A pattern of attention_patterns.py; `sizes` are (N, M), the extents of its dynamic dimensions."""
    arguments, _, _, values, build = pattern
    form = Form(f"{name}__{suffix}", commuted)
    isStatic = not suffix.startswith("dynamic")
    n, m = sizes
    for i, (shape, element) in enumerate(arguments):
        square = name == "batches_and_heads_as_one"
        free = sum(extent is None for extent in shape)
        long = [n] + [n if square else m] if free == 2 else [n if i == 0 or square else m] * free
        extents = [extent if extent is not None else long.pop(0) for extent in shape]
        kind = "flags" if name.startswith("padding") and i in values else "normal"
        form.argument(extents if isStatic else shape, extents, element, kind)
    return form.text(build(form))


class RandomForm:
    """One graph; all of it follows from the seed. `commuted` gives its twin with other names and commuted operands. `miss`
    names a step by which the graph differs from one that is raised."""

    MISSES = misses.KINDS

    def __init__(self, name, seed, commuted=False, miss=None):
        self.miss = miss
        self.rng = rng = random.Random(seed)
        self.g = g = Form(name, commuted)
        rows = rng.choice(["", "b", "h", "bh", "bh", "bh"])
        if miss in ("keys of more heads", "order of groups"):
            rows = rng.choice(["h", "bh"])
        elif miss == "rows of any extent":
            rows = rng.choice(["bh", "bch", "bc"])
        self.isOrdered = miss == "rows of any extent" and rng.random() < 0.7
        self.grouping = rng.choice(["", "", "", "repeated", "mapped", "group", "shared"]) if "h" in rows else ""
        if miss in ("keys of more heads", "order of groups"):
            self.grouping = "mapped"
        elif miss == "another contraction":
            self.grouping = ""
        even = rng.choice([2, 3, 4])
        isEqual = rng.random() < 0.35 or miss == "another contraction"
        self.extents = {letter: even if isEqual else rng.choice([1, 2, 3, 4, 5]) for letter in "bchgijde"}
        self.extents["j"] = max(self.extents["j"], 2)
        if self.grouping == "mapped":
            # Query heads are x; `groups` of them share a head of keys and values.
            self.groups = rng.choice([2, 3])
            self.extents["h"] = max(self.extents["h"], 1 + (miss == "order of groups"))
            self.extents["x"] = self.extents["h"] * self.groups
            self.extents["h"] += miss == "keys of more heads"
        if miss == "part of the sum":
            self.extents["j"] = rng.choice([2, 4])
        # Groups of heads and dynamic queries look alike in some layouts.
        self.dynamic = set(rng.choice(["", "", "", "j"] + ["i", "ij", "bij"] * (self.grouping != "group")))
        if miss == "rows of any extent":
            self.dynamic = {letter for letter in "bchgij" if rng.random() < 0.4}
        elif miss in misses.STATIC:
            self.dynamic = set()
        self.element = rng.choice(["f32"] * 5 + ["f16"])
        # Heads of keys and values: h; of queries: h and g, where several share one.
        self.rows = rows + ("g" if self.grouping in ("repeated", "group") else "")
        self.query_heads = "hg" if "g" in self.rows else "x" if self.grouping == "mapped" else "h"
        self.row = self.shuffled(rows + "i").replace("h", self.query_heads)
        self.pair = self.row + "j" if rng.random() < 0.7 else self.insert(self.row, "j")
        self.inverts = False  # whether a bias of −∞ may become ∞
        self.text = g.text(self.build())

    def shuffled(self, letters):
        drawn = self.rng.sample(letters, len(letters))
        return "".join(sorted(drawn, key="bchgxijde0".index) if self.isOrdered else drawn)

    def insert(self, letters, letter):
        at = self.rng.randrange(len(letters) + 1)
        return letters[:at] + letter + letters[at:]

    def argument(self, letters, element="f32", values="normal"):
        extents = [1 if letter == "0" else self.extents[letter] for letter in letters]
        shape = [None if letter in self.dynamic else extent for letter, extent in zip(letters, extents)]
        return self.g.argument(shape, extents, element, values)

    def einsum(self, operands, out, init=None, lost=None):
        g = self.g
        if g.commuted:
            operands = operands[::-1]
        letters = operands[0][1] + operands[1][1]
        loops = sorted(set(letters), key=lambda letter: (letter not in out, out.find(letter), letter))
        into = init or g.filled(out, operands, "f32", 0.0)

        def body(x, y, c):
            x, y = (g.op("arith.extf", each, to="f32") if each[1] == "f16" else each for each in (x, y))
            return g.add(c, g.mul(x, y))

        reduced = set(loops) - set(out)
        if lost:
            out = out.replace(lost, "d")
        return g.generic(operands, out, into, loops, reduced, body)

    def on_scores(self, s, body, others=()):
        """A pointwise op on the scores and other tensors."""
        return self.g.pointwise([(s, self.pair), *others], self.pair, body)

    def captured(self, needs, element="f32", values="normal"):
        """An argument that is indexed by `needs` and by some of the other rows."""
        letters = needs + "".join(each for each in self.row if each not in needs and self.rng.random() < 0.4)
        letters = self.shuffled(letters)
        if self.rng.random() < 0.3:
            letters = self.insert(letters, "0")
        return self.argument(letters, element, values), letters

    def index(self, letter, to=None):
        index = self.g.index(self.pair.index(letter))
        return self.g.op("arith.index_cast", index, to=to) if to else index

    # Operands.
    def heads(self, t, last):
        """Keys or values, repeated for the groups of heads; gives the tensor and its letters."""
        g = self.g
        if self.grouping == "mapped":
            # [.., h, ..] -> [.., x, ..], by a quotient.
            letters, divides = t[1].replace("h", "x"), self.miss != "order of groups"
            position = f"x floordiv {self.groups}" if divides else f"x mod {self.extents['h']}"
            subscript = [position if letter == "x" else letter for letter in letters]
            return g.pointwise([(t[0], subscript)], letters, lambda x: x, t[0].element,
                               like=[(Tensor(None, [self.extents["x"]]), "x")]), letters  # fmt: skip
        if self.grouping != "repeated":
            return t[0], t[1]
        # [.., h, ..] -> [.., h, g, ..], as a broadcast.
        letters = t[1].replace("h", "hg")
        shape = Tensor(None, [self.extents["g"]])
        wide = g.pointwise([t], letters, lambda x: x, t[0].element, like=[(shape, "g")])
        return wide, letters

    def operand(self, letters, part=None):
        if part and part[0] in letters:
            return misses.part(self, letters, letters.index(part[0]), part[1], self.element), letters
        t = self.argument(letters, self.element)
        if self.rng.random() < 0.15 and self.element == "f32":
            t = self.scaled(t, letters, self.rng.choice([0.5, 2.0, -0.25]))
        return t, letters

    def scaled(self, t, letters, factor):
        """`t` times or divided by a number, which may be an argument."""
        combine = self.g.div if self.rng.random() < 0.3 else self.g.mul
        if self.rng.random() < 0.3:
            self.inverts = True
            return self.g.pointwise([(t, letters), (self.argument(""), "")], letters, combine)
        return self.g.pointwise([(t, letters)], letters, lambda x: combine(x, self.g.const(factor)))

    # Scores.
    def condition(self):
        """How to tell that a key is visible: other operands, and a body that gives a truth value from their elements."""
        g, rng = self.g, self.rng
        kind = rng.choice(["position", "position", "flags", "integers", "window", "either"] + ["table"] * (not self.dynamic))
        if kind == "either":
            # All of two conditions, or "not any of their opposites".
            (others, test, _), (more, test_more, _) = self.condition(), self.condition()

            def both(*c):
                tests = test(*c[: len(others)]), test_more(*c[len(others) :])
                if is_all:
                    return g.op("arith.andi", *tests, commutes=True)
                true = g.line("arith.constant true"), "i1"
                return g.op("arith.xori", g.op("arith.ori", *(g.op("arith.xori", t, true) for t in tests)), true)

            is_all = rng.random() < 0.5
            return others + more, both, kind
        if kind == "position":
            predicate = rng.choice(["sle", "sge"])
            to = rng.choice([None, "i32", "i64"])
            return [], lambda: g.compare(predicate, self.index("j", to), self.index("i", to)), kind
        if kind == "window":
            bound = rng.choice([1, 2])

            def body():
                i, j = self.index("i", "i32"), self.index("j", "i32")
                return g.compare("sle", g.op("arith.subi", i, j), (g.line(f"arith.constant {bound} : i32"), "i32"))

            return [], body, kind
        if kind == "table":
            return [misses.slice_of_positions(self)], lambda c: c, kind
        if kind == "flags":
            return [self.captured("j", "i1", "flags")], lambda c: c, kind
        element = rng.choice(["i32", "i64", "i8"])

        def body(c):
            return g.compare("ne", c, (g.line(f"arith.constant 0 : {element}"), element))

        return [self.captured("j", element, "flags")], body, kind

    def masked(self, s):
        g, rng = self.g, self.rng
        low = rng.choice([LOW, -1e9, -10000.0, -3.0e38])
        how = rng.choice(["select", "select", "add", "float", "integer", "set"])
        if how == "float":
            flags, letters = self.captured("j", "f32", "flags")
            low = rng.choice([-1e9, -3.0e38])
            unit = letters.replace("0", "u")
            hide = g.pointwise([(flags, unit)], unit,
                               lambda m: g.mul(g.sub(g.const(1.0), m), g.const(low)))  # fmt: skip
            return self.on_scores(s, g.add, [(hide, letters)])
        if how in ("integer", "set"):
            flags, letters = self.captured("j", "i32", "hidden" if how == "set" else "flags")
            low = rng.choice([-1e9, -10000.0])

            def hidden(m):
                if how == "set":  # 1 hides a key
                    return g.mul(g.op("arith.sitofp", m, to="f32"), g.const(low))
                return g.mul(g.sub(g.const(1.0), g.op("arith.sitofp", m, to="f32")), g.const(low))

            unit = letters.replace("0", "u")
            hide = g.pointwise([(flags, unit)], unit, hidden)
            return self.on_scores(s, g.add, [(hide, letters)])
        others, test, _ = self.condition()
        if how == "select":
            return self.on_scores(s, lambda x, *c: g.select(test(*c), x, g.const(low)), others)
        return self.on_scores(s, lambda x, *c: g.add(x, g.select(test(*c), g.const(0.0), g.const(low))), others)

    def scored(self, s):
        g, rng = self.g, self.rng
        kind = rng.choice(["scale", "scale", "scale", "bias", "bias", "cap", "distance", "lows"])
        if kind == "scale":
            return self.scaled(s, self.pair, rng.choice([0.5, 0.25, 2.0]))
        if kind in ("bias", "lows"):
            bias = self.captured("j" if rng.random() < 0.8 else "", values="lows" if kind == "lows" else "normal")
            combine = rng.choice([g.add, g.add, g.sub]) if kind == "bias" else g.add
            self.inverts |= combine == g.sub
            return self.on_scores(s, combine, [bias])
        if kind == "cap":
            return self.on_scores(s, lambda x: g.mul(g.op("math.tanh", g.mul(x, g.const(0.5))), g.const(2.0)))

        def body(x):
            distance = g.op("arith.subi", self.index("j", "i32"), self.index("i", "i32"))
            return g.add(x, g.mul(g.op("arith.sitofp", distance, to="f32"), g.const(0.5)))

        return self.on_scores(s, body)

    # Softmax.
    def softmax(self, s):
        g, rng, pair, row = self.g, self.rng, self.pair, self.pair.replace("j", "")
        kind = rng.choice(["op", "stable", "stable", "unstable", "logarithm", "reciprocal", "exp2", "masked", "masked"])
        if self.miss:
            isUnmasked = self.miss in ("shift of the sum", "repeated sum", "part of the sum")
            kind = rng.choice(["stable", "logarithm"]) if isUnmasked else rng.choice(["masked", "stable"])
            if self.miss in ("mask of the sum", "mask of the numerator", "guard of the sum"):
                kind = "masked"
        if kind == "op":
            into = g.empty(pair, [(s, pair)], "f32")
            name = g.line(f"linalg.softmax dimension({pair.index('j')}) ins({s.name} : {s.type})"
                          f" outs({into.name} : {into.type}) -> {into.type}")  # fmt: skip
            return Tensor(name, s.shape), False
        exp = g.exp
        if kind == "exp2":
            s = self.on_scores(s, lambda x: g.mul(x, g.const(1.4426950408889634)))
            exp = lambda x: g.op("math.exp2", x)
        shifted = s
        if kind != "unstable":
            start = rng.choice([LOW, LOW, -3.0e38] + [-3.0e38] * (2 * (self.miss == "guard of the sum")))
            combiner = rng.choice(["arith.maximumf", "arith.maximumf", "arith.maxnumf"])
            maximum = g.reduce(s, pair, row, start, lambda x, c: g.op(combiner, x, c, commutes=True))
            shifted = self.on_scores(s, g.sub, [(maximum, row)])
        e = self.on_scores(shifted, exp)
        hidden = False
        if kind == "masked":
            others, test, _ = self.condition()
            hidden, whole = True, e
            if rng.random() < 0.5:
                e = self.on_scores(e, lambda x, *c: g.select(test(*c), x, g.const(0.0)), others)
            else:
                e = self.on_scores(e, lambda x, *c: g.mul(x, g.op("arith.uitofp", test(*c), to="f32")), others)
        reduced = e
        if self.miss == "mask of the numerator":
            e = whole
        elif self.miss == "mask of the sum":
            reduced = whole
        elif self.miss == "shift of the sum":
            reduced = self.on_scores(self.on_scores(shifted, lambda x, m: g.sub(x, m), [(maximum, row)]), exp)
        elif self.miss == "part of the sum":
            reduced = misses.half(self, e)
        elif self.miss == "repeated sum":
            reduced = misses.repeated(self, e)
        combine = g.add
        if self.miss == "maximum for the sum":
            combine = lambda x, c: g.op("arith.maximumf", x, c, commutes=True)
        total = g.reduce(reduced, pair, row, 0.0, combine)
        guard = 0.0 if self.miss == "guard of the sum" else rng.random()
        if kind in ("stable", "reciprocal") and guard < 0.3:
            small = rng.choice([1e-9, 1e-6])
            total = g.pointwise([(total, row)], row, lambda t: g.add(t, g.const(small)) if guard < 0.15 else
                                g.op("arith.maximumf", t, g.const(small), commutes=True))  # fmt: skip
        elif kind == "masked" and guard < 0.5:
            def body(t):
                if self.miss == "guard of the sum":
                    return misses.guard_of_the_sum(self, t)
                isZero = g.op("arith.cmpf", t, g.const(0.0), attribute="oeq, ")[0], "i1"
                return g.select(isZero, g.const(1.0), t)
            total = g.pointwise([(total, row)], row, body)  # fmt: skip
        if kind == "logarithm":
            return self.on_scores(shifted, lambda x, t: g.exp(g.sub(x, g.op("math.log", t))), [(total, row)]), hidden
        if kind == "reciprocal":
            inverse = g.pointwise([(total, row)], row, lambda t: g.div(g.const(1.0), t))
            return self.on_scores(e, g.mul, [(inverse, row)]), hidden
        return self.on_scores(e, g.div, [(total, row)]), hidden

    def build(self):
        g, rng = self.g, self.rng
        rows = self.rows.replace("g", "")
        kv = "".join(each for each in self.rows if each != "g" and (each != "h" or self.grouping != "shared"))
        part = None
        if self.miss == "part of the operands":
            part = rng.choice("jjd" + "".join(each for each in kv)), rng.randrange(misses.PARTS)
        q = self.operand(self.shuffled(rows + "id").replace("h", self.query_heads), part)
        k = self.heads(self.operand(self.shuffled(kv + "jd"), part), "d")
        v = self.heads(self.operand(self.shuffled(kv + "je"), part), "e")
        contracted = rng.choice("qkps") if self.miss == "another contraction" else ""
        if contracted in ("q", "k"):
            tensor, letters = q if contracted == "q" else k
            other = tensor, self.swapped(letters, "d")
            q, k = (other, k) if contracted == "q" else (q, other)
        init = self.argument(self.pair) if rng.random() < 0.08 else None
        if contracted == "s":
            # A loop that the result has is contracted, and one that it lacks is not.
            s = self.einsum([q, k], self.pair, init, rng.choice(self.pair))
        else:
            s = self.einsum([q, k], self.pair, init)
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            s = self.masked(s) if rng.random() < 0.4 else self.scored(s)
        if self.miss == "guard of the sum" and rng.random() < 0.4:
            s = self.on_scores(s, g.add, [self.captured("", values="lows")])
        guardsRows = self.miss == "guard of the row"
        if hasattr(misses, (self.miss or "").replace(" ", "_")) and not guardsRows and self.miss != "guard of the sum":
            s = getattr(misses, self.miss.replace(" ", "_"))(self, s)
        elif guardsRows or (not self.miss and rng.random() < 0.1):
            others, test, _ = self.condition()
            number = rng.choice([0.0, -1.0, 1.0, -5.0, -500.0, -1e9]) if guardsRows else LOW
            s = self.on_scores(s, lambda x, *c: g.select(test(*c), x, g.const(number)), others)
        p, _ = self.softmax(s)
        if guardsRows:
            p = misses.guard_of_the_row(self, s, p, number)
        # Only if a bias becomes ∞ would the guard find NaN in other rows than those without keys.
        isGuarded = rng.random() < 0.15 and not self.inverts
        if self.miss == "guard of the weights":
            p = self.on_scores(p, lambda x: misses.replaced_nan(self, x))
        elif isGuarded or self.miss in ("not a number", "constant numbers"):
            p = self.on_scores(p, lambda x: g.select((g.op("arith.cmpf", x, x, attribute="uno, ")[0], "i1"), g.const(0.0), x))
        if rng.random() < 0.2:
            p = self.on_scores(p, g.mul, [self.captured("j" if rng.random() < 0.7 else "")])
        pair = self.swapped(self.pair, "j") if contracted == "p" else self.pair
        return self.einsum([(p, pair), v], self.insert(self.row, "e"))

    def swapped(self, letters, letter):
        """`letters` with `letter` in the place of another."""
        other = self.rng.choice(letters)
        return letters.translate(str.maketrans({letter: other, other: letter}))
