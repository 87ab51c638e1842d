"""Attention in TOSA ops is raised to one op, and so is its twin with commuted operands and other names.

RUN: %python %s %S/../Inputs %t.mlir
"""

import sys

sys.path.insert(0, sys.argv[1])
from attention_patterns import Patterns, Text

B, H, N, M, D = 2, 4, 9, 13, 16


class Graph(Text):
    """TOSA, whose matmul has one batch dimension."""

    def op(self, name, operands, shape, element, attributes="", commutes=False):
        first = operands[:2][::-1] if commutes and self.twin else operands[:2]
        operands = [*first, *operands[2:]]
        return self.emit(f"tosa.{name} {', '.join(x[0] for x in operands)}{attributes} : "
                         f"({', '.join(map(self.type, operands))}) -> {self.type((None, shape, element))}", shape,
                         element)

    def const(self, text, shape=(1,), element="f32"):
        type = self.type((None, shape, element))
        return self.emit(f'"tosa.const"() {{values = dense<{text}> : {type}}} : () -> {type}', shape, element)

    def reshape(self, x, shape):
        extents = ", ".join("-1" if extent is None else str(extent) for extent in shape)
        count = len(shape)
        shaped = f"!tosa.shape<{count}>"
        values = f"{{values = dense<[{extents}]> : tensor<{count}xindex>}}"
        name = self.emit(f"tosa.const_shape {values} : () -> {shaped}", (), "")[0]
        result = self.type((None, shape, x[2]))
        return self.emit(f"tosa.reshape {x[0]}, {name} : ({self.type(x)}, {shaped}) -> {result}", shape, x[2])

    def transpose(self, x, order):
        return self.op("transpose", [x], [x[1][i] for i in order], x[2],
                       f" {{perms = array<i32: {', '.join(map(str, order))}>}}")

    def matmul(self, x, y, element=None):
        zero = self.const("0.0", element=x[2])
        return self.op("matmul", [x, y, zero, zero], (x[1][0], x[1][1], y[1][2]), element or x[2])

    def both(self, name, x, y):
        shape = tuple(b if a == 1 else a for a, b in zip(x[1], y[1]))
        return self.op(name, [x, y], shape, x[2], commutes=name in ("add", "maximum"))

    def mul(self, x, y):
        shape = tuple(b if a == 1 else a for a, b in zip(x[1], y[1]))
        return self.op("mul", [x, y, self.const("0", element="i8")], shape, x[2], commutes=True)

    def one(self, name, x, attributes="", shape=None):
        return self.op(name, [x], shape or x[1], x[2], attributes)

    def softmax(self, s):
        rows = (*s[1][:-1], 1)
        axis = f" {{axis = {len(rows) - 1} : i32}}"
        e = self.one("exp", self.both("sub", s, self.one("reduce_max", s, axis, rows)))
        return self.mul(e, self.one("reciprocal", self.one("reduce_sum", e, axis, rows)))


patterns = Patterns(Graph)
THREE = [f"{B * H}x{N}x{D}:f32", f"{B * H}x{M}x{D}:f32", f"{B * H}x{M}x{D}:f32"]
FOUR = [f"{B}x{H}x{N}x{D}:f32", f"{B}x{H}x{M}x{D}:f32", f"{B}x{H}x{M}x{D}:f32"]


def scores(g, q, k, element="f32"):
    scale = g.const("0.25", (1, 1, 1), element)
    return g.mul(g.matmul(q, g.transpose(k, (0, 2, 1)), element), scale)


@patterns.pattern(THREE, ["scale(2.500000e-01)"], ["mask(", "score("])
def three_dimensions(g):
    q, k, v = g.argument(B * H, N, D), g.argument(B * H, M, D), g.argument(B * H, M, D)
    g.result = g.matmul(g.softmax(scores(g, q, k)), v)


@patterns.pattern(FOUR, ["scale(2.500000e-01)"], ["mask(", "score("])
def reshaped(g):
    q, k, v = g.argument(B, H, N, D), g.argument(B, H, M, D), g.argument(B, H, M, D)
    q, k, v = (g.reshape(x, (B * H, *x[1][2:])) for x in (q, k, v))
    s = g.reshape(scores(g, q, k), (B, H, N, M))
    p = g.reshape(g.softmax(s), (B * H, N, M))
    g.result = g.reshape(g.matmul(p, v), (B, H, N, D))


@patterns.pattern([f"{B}x{N}x{H * D}:f32", f"{B}x{M}x{H * D}:f32", f"{B}x{M}x{H * D}:f32"], ["scale(2.500000e-01)"],
            ["mask("])
def heads_split_from_rows(g):
    operands = [g.argument(B, extent, H * D) for extent in (N, M, M)]
    q, k, v = (g.reshape(g.transpose(g.reshape(x, (B, x[1][1], H, D)), (0, 2, 1, 3)),
                         (B * H, x[1][1], D)) for x in operands)
    o = g.reshape(g.matmul(g.softmax(scores(g, q, k)), v), (B, H, N, D))
    g.result = g.reshape(g.transpose(o, (0, 2, 1, 3)), (B, N, H * D))


@patterns.pattern([*THREE, f"1x{N}x{M}:i1"], ["mask(", "captures("], ["score("])
def selected_by_a_table(g):
    q, k, v, visible = g.argument(B * H, N, D), g.argument(B * H, M, D), g.argument(B * H, M, D), g.argument(1, N, M,
                                                                                                          element="i1")
    s, hidden = scores(g, q, k), g.const("-1.0e+09", (1, 1, 1))
    if g.twin:
        s = g.op("select", [g.one("logical_not", visible), hidden, s], s[1], "f32")
    else:
        s = g.op("select", [visible, s, hidden], s[1], "f32")
    g.result = g.matmul(g.softmax(s), v)


@patterns.pattern([*THREE, f"1x{N}x{M}:f32"], ["score(", "captures("], ["mask("])
def added_table(g):
    q, k, v = g.argument(B * H, N, D), g.argument(B * H, M, D), g.argument(B * H, M, D)
    g.result = g.matmul(g.softmax(g.both("add", scores(g, q, k), g.argument(1, N, M))), v)


@patterns.pattern(THREE, ["score(", "math.tanh"], ["mask("])
def soft_cap(g):
    q, k, v = g.argument(B * H, N, D), g.argument(B * H, M, D), g.argument(B * H, M, D)
    s = g.mul(scores(g, q, k), g.const("0.2", (1, 1, 1)))
    g.result = g.matmul(g.softmax(g.mul(g.one("tanh", s), g.const("5.0", (1, 1, 1)))), v)


@patterns.pattern([f"{each.removesuffix('f32')}bf16" for each in THREE], ["scale(2.500000e-01)"], ["score("])
def sixteen_bits(g):
    q, k, v = (g.argument(B * H, extent, D, element="bf16") for extent in (N, M, M))
    p = g.softmax(scores(g, q, k, "f32"))
    p = g.op("cast", [p], p[1], "bf16")
    g.result = g.matmul(p, v, "f32")


@patterns.pattern(THREE, ["scale(2.500000e-01)"], ["mask("])
def dynamic_lengths(g):
    q, k, v = g.argument(None, None, D), g.argument(None, None, D), g.argument(None, None, D)
    g.result = g.matmul(g.softmax(scores(g, q, k)), v)


patterns.check(sys.argv[2])
