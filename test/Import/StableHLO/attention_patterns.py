"""Attention as JAX exports it to StableHLO is raised to one op, and so is its twin with commuted operands, mirrored
comparisons and other names.

RUN: %python %s %S/../Inputs %t.mlir
"""

import sys

sys.path.insert(0, sys.argv[1])
from attention_patterns import Patterns, Text

B, H, G, N, M, D = 2, 2, 3, 9, 13, 16


class Graph(Text):
    """StableHLO in generic form."""

    def op(self, name, operands, shape, element, attributes="", region="", commutes=False):
        if commutes and self.twin:
            operands = operands[::-1]
        result = self.type((None, shape, element))
        given = f" <{{{attributes}}}>" if attributes else ""
        return self.emit(f'"stablehlo.{name}"({", ".join(x[0] for x in operands)}){given}{region}'
                         f' : ({", ".join(map(self.type, operands))}) -> {result}', shape, element)

    def both(self, name, x, y):
        return self.op(name, [x, y], x[1], x[2], commutes=name in ("add", "multiply", "maximum", "and", "or"))

    def one(self, name, x):
        return self.op(name, [x], x[1], x[2])

    def constant(self, text, shape=(), element="f32"):
        return self.op("constant", [], shape, element, f"value = dense<{text}> : {self.type((None, shape, element))}")

    def broadcast(self, x, shape, dims, like=None):
        """`like` provides the dynamic extents."""
        dims = f"broadcast_dimensions = array<i64{': ' if dims else ''}{', '.join(map(str, dims))}>"
        if None not in shape:
            return self.op("broadcast_in_dim", [x], shape, x[2], dims)
        parts = []
        for i, extent in enumerate(shape):
            size = (self.op("get_dimension_size", [like], (), "i32", f"dimension = {i} : i64") if extent is None
                    else self.constant(extent, (), "i32"))
            parts.append(self.op("reshape", [size], (1,), "i32"))
        whole = self.op("concatenate", parts, (len(parts),), "i32", "dimension = 0 : i64")
        return self.op("dynamic_broadcast_in_dim", [x, whole], shape, x[2], dims)

    def fill(self, text, like, element=None):
        return self.broadcast(self.constant(text, (), element or like[2]), like[1], (), like)

    def dot(self, x, y, batches, contracting, element=None):
        """`batches` and `contracting` are pairs of lists."""
        if self.twin:
            x, y, batches, contracting = y, x, batches[::-1], contracting[::-1]
        numbers = (f"lhs_batching_dimensions = {batches[0]}, rhs_batching_dimensions = {batches[1]}, "
                   f"lhs_contracting_dimensions = {contracting[0]}, rhs_contracting_dimensions = {contracting[1]}")
        own = [[extent for i, extent in enumerate(t[1]) if i not in b + s]
               for t, b, s in zip((x, y), batches, contracting)]
        common = [x[1][i] for i in batches[0]]
        result = self.op("dot_general", [x, y], common + own[0] + own[1], element or x[2],
                         f"dot_dimension_numbers = #stablehlo.dot<{numbers}>, "
                         "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]")
        if not self.twin:
            return result
        # Swapped operands swap their dimensions in the result.
        first, count = len(common), len(common) + len(own[0])
        order = [*range(first), *range(count, len(result[1])), *range(first, count)]
        return self.transpose(result, order)

    def transpose(self, x, order):
        return self.op("transpose", [x], [x[1][i] for i in order], x[2],
                       f"permutation = array<i64: {', '.join(map(str, order))}>")

    def compare(self, direction, x, y, kind="SIGNED"):
        if self.twin:
            direction, x, y = {"GE": "LE", "LE": "GE", "GT": "LT", "LT": "GT"}[direction], y, x
        return self.op("compare", [x, y], x[1], "i1",
                       f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
                       f"compare_type = #stablehlo<comparison_type {kind}>")

    def select(self, condition, x, y):
        if self.twin:
            condition, x, y = self.one("not", condition), y, x
        return self.op("select", [condition, x, y], x[1], x[2])

    def iota(self, shape, dim):
        return self.op("iota", [], shape, "i32", f"iota_dimension = {dim} : i64")

    def reduce(self, x, start, combine):
        """Along the last dimension."""
        region = Graph(self.twin, "inner")
        a, b = ("%a", (), x[2]), ("%b", (), x[2])
        region.both(combine, a, b)
        body = (f" ({{\n  ^bb0(%a: tensor<{x[2]}>, %b: tensor<{x[2]}>):\n  {region.lines[-1]}\n"
                f'    "stablehlo.return"({region.lines[-1].split()[0]}) : (tensor<{x[2]}>) -> ()\n  }})')
        return self.op("reduce", [x, self.constant(start, (), x[2])], x[1][:-1], x[2],
                       f"dimensions = array<i64: {len(x[1]) - 1}>", body)

    def softmax(self, s):
        rows = list(range(len(s[1]) - 1))

        def spread(x):
            column = self.broadcast(x, (*x[1], 1), rows, s)
            return self.broadcast(column, s[1], (*rows, len(rows)), s)

        maximum = self.reduce(s, "0xFF800000" if s[2] == "f32" else "0xFF80", "maximum")
        maximum = self.both("maximum", self.fill("0xFF800000", maximum), maximum)
        e = self.one("exponential", self.both("subtract", s, spread(maximum)))
        return self.both("divide", e, spread(self.reduce(e, "0.0", "add")))

    def scaled(self, s, text="2.5e-01"):
        return self.both("multiply", s, self.fill(text, s))

    def call(self, name, operands, shape, element, build):
        """A call of an outlined function, as JAX emits for helpers."""
        inner = Graph(self.twin)
        given = [inner.argument(*x[1], element=x[2]) for x in operands]
        inner.result = build(inner, *given)
        name = f"{name}_{'twin' if self.twin else 'one'}{len(self.lines)}"
        text = inner.text().removeprefix("module {\n").removesuffix("}\n")
        text = text.replace("func.func @pattern", f"func.func private @{name}")
        self.more.append(text)
        types = ", ".join(map(self.type, operands))
        given, result = ", ".join(x[0] for x in operands), self.type((None, shape, element))
        return self.emit(f"func.call @{name}({given}) : ({types}) -> {result}", shape, element)


patterns = Patterns(Graph)
FOUR = [f"{B}x{H}x{N}x{D}:f32", f"{B}x{H}x{M}x{D}:f32", f"{B}x{H}x{M}x{D}:f32"]
PAIRS = ([0, 1], [0, 1])


def inputs(g, element="f32", n=N, m=M):
    return [g.argument(B, H, extent, D, element=element) for extent in (n, m, m)]


def weigh(g, p, v, element=None):
    g.result = g.dot(p, v, PAIRS, ([3], [2]), element)


@patterns.pattern(FOUR, ["scale(2.500000e-01)"], ["mask(", "score("])
def plain(g):
    q, k, v = inputs(g)
    weigh(g, g.softmax(g.scaled(g.dot(q, k, PAIRS, ([3], [3])))), v)


@patterns.pattern(FOUR, ["mask(", "arith.cmpi sle"], ["captures(", "score("])
def causal_by_functions(g):
    q, k, v = inputs(g)
    s = g.both("divide", g.dot(q, k, PAIRS, ([3], [3])), g.fill("4.0", (None, (B, H, N, M), "f32")))
    ones = g.broadcast(g.constant("true", (), "i1"), (N, M), ())

    def tril(f, x):
        rows = f.both("add", f.iota((N, M), 0), f.broadcast(f.constant("0", (), "i32"), (N, M), ()))
        visible = f.compare("GE", rows, f.iota((N, M), 1))
        return f.select(visible, x, f.broadcast(f.constant("false", (), "i1"), (N, M), ()))

    def where(f, visible, x, hidden):
        return f.select(f.broadcast(visible, x[1], (2, 3)), x, f.broadcast(hidden, x[1], ()))

    visible = g.call("tril", [ones], (N, M), "i1", tril)
    s = g.call("_where", [visible, s, g.constant("0xFF800000")], s[1], "f32", where)
    weigh(g, g.softmax(s), v)


@patterns.pattern([f"{B}x{N}x{H}x{G}x{D}:f32", f"{B}x{M}x{H}x{D}:f32", f"{B}x{M}x{H}x{D}:f32"], ["mask("], ["score("])
def grouped_in_five_dimensions(g):
    q, k, v = g.argument(B, N, H, G, D), g.argument(B, M, H, D), g.argument(B, M, H, D)
    s = g.scaled(g.dot(q, k, ([0, 2], [0, 2]), ([4], [3])))  # [B,H,N,G,M]
    s = g.transpose(s, (3, 0, 1, 2, 4))  # [G,B,H,N,M]
    rows, keys = g.constant(list(range(N)), (N,), "i32"), g.constant(list(range(M)), (M,), "i32")
    last = g.both("add", g.broadcast(rows, (N, 1), (0,)), g.broadcast(g.constant("1", (), "i32"), (N, 1), ()))
    visible = g.compare("GE", g.broadcast(last, (N, M), (0, 1)), g.broadcast(keys, (N, M), (1,)))
    s = g.select(g.broadcast(visible, s[1], (3, 4)), s, g.fill("-2.38197633E+38", s))
    p = g.softmax(s)
    o = g.dot(v, p, ([0, 2], [1, 2]), ([1], [4]))  # [B,H,D,G,N]
    o = g.transpose(g.transpose(o, (3, 0, 4, 1, 2)), (1, 2, 3, 0, 4))  # [B,N,H,G,D]
    g.result = g.op("reshape", [o], (B, N, H * G, D), "f32")


@patterns.pattern(["2x9x4x16:f32", "2x13x4x16:f32", "2x13x4x16:f32"], ["[b,s,h,d]"], ["mask(", "score("])
def groups_of_one(g):
    q, k, v = g.argument(B, N, 4, D), g.argument(B, M, 4, D), g.argument(B, M, 4, D)
    q = g.op("reshape", [q], (B, N, 4, 1, D), "f32")
    s = g.transpose(g.scaled(g.dot(q, k, ([0, 2], [0, 2]), ([4], [3]))), (3, 0, 1, 2, 4))  # [1,B,H,N,M]
    o = g.dot(v, g.softmax(s), ([0, 2], [1, 2]), ([1], [4]))
    o = g.transpose(g.transpose(o, (3, 0, 4, 1, 2)), (1, 2, 3, 0, 4))
    g.result = g.op("reshape", [o], (B, N, 4, D), "f32")


@patterns.pattern(FOUR, ["score(", "math.tanh"], ["mask("])
def soft_cap(g):
    q, k, v = inputs(g)
    s = g.scaled(g.dot(q, k, PAIRS, ([3], [3])))
    s = g.both("multiply", g.one("tanh", g.both("divide", s, g.fill("5.0", s))), g.fill("5.0", s))
    weigh(g, g.softmax(s), v)


@patterns.pattern(FOUR, ["mask("], ["score(", "captures("])
def local_window(g):
    q, k, v = inputs(g)
    s = g.scaled(g.dot(q, k, PAIRS, ([3], [3])))
    i, j = g.iota((N, M), 0), g.iota((N, M), 1)
    low = g.compare("GE", j, g.both("subtract", i, g.broadcast(g.constant("3", (), "i32"), (N, M), ())))
    high = g.compare("LE", j, g.both("add", i, g.broadcast(g.constant("2", (), "i32"), (N, M), ())))
    visible = g.broadcast(g.both("and", low, high), s[1], (2, 3))
    weigh(g, g.softmax(g.select(visible, s, g.fill("-1.0e+10", s))), v)


@patterns.pattern([f"{each.removesuffix('f32')}bf16" for each in FOUR], ["scale(2.500000e-01)"], ["score("])
def sixteen_bits(g):
    q, k, v = inputs(g, "bf16")
    s = g.scaled(g.dot(q, k, PAIRS, ([3], [3]), "f32"))
    p = g.op("convert", [g.softmax(s)], s[1], "bf16")
    weigh(g, p, v)


@patterns.pattern(FOUR, ["scale(2.500000e-01)", "mask("], ["score("])
def dynamic_lengths(g):
    q, k, v = inputs(g, n=None, m=None)
    s = g.dot(q, k, PAIRS, ([3], [3]))
    s = g.scaled(s)
    parts = [g.op("reshape", [g.op("get_dimension_size", [s], (), "i32", f"dimension = {i} : i64")], (1,),
                  "i32") for i in (2, 3)]
    square = g.op("concatenate", parts, (2,), "i32", "dimension = 0 : i64")
    rows, keys = (g.op("dynamic_iota", [square], (None, None), "i32", f"iota_dimension = {i} : i64") for i in (0, 1))
    visible = g.broadcast(g.compare("GE", rows, keys), s[1], (2, 3), s)
    weigh(g, g.softmax(g.select(visible, s, g.fill("0xFF800000", s))), v)


@patterns.pattern([*FOUR, f"{B}x{H}x{N}x{M}:f32"], ["score(", "captures("], ["mask("])
def added_table(g):
    q, k, v = inputs(g)
    bias = g.argument(B, H, N, M)
    weigh(g, g.softmax(g.both("add", g.scaled(g.dot(q, k, PAIRS, ([3], [3]))), bias)), v)


patterns.check(sys.argv[2])
