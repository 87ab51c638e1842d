"""Builds graphs of linalg ops as text, each in two variants: as written, and with commuted operands and other names."""

import itertools
import re


class Tensor:
    def __init__(self, name, shape, element="f32"):
        self.name, self.shape, self.element = name, list(shape), element

    @property
    def type(self):
        extents = "".join(f"{'?' if extent is None else extent}x" for extent in self.shape)
        return f"tensor<{extents}{self.element}>"


class Graph:
    """One function. Extents are numbers, or None if dynamic."""

    def __init__(self, name, arguments, commuted=False):
        self.name, self.commuted = name, commuted
        self.lines, self.counter = [], itertools.count()
        self.prefix = "twin" if commuted else "v"
        self.arguments = [Tensor(f"%{self.prefix}_in{i}", shape, element)
                          for i, (shape, element) in enumerate(arguments)]

    def fresh(self):
        return f"%{self.prefix}{next(self.counter)}"

    def line(self, text):
        name = self.fresh()
        self.lines.append(f"    {name} = {text}")
        return name

    # Scalars, for the bodies of `pointwise`: pairs of a name and a type.
    def const(self, value, element="f32"):
        if element == "i1":
            return self.line(f"arith.constant {str(bool(value)).lower()}"), element
        special = {float("-inf"): "0xFF800000"}
        text = special.get(value, repr(value))
        if "." not in text and "x" not in text:
            text = text.replace("e", ".0e")
        return self.line(f"arith.constant {text} : {element}"), element

    def op(self, name, *operands, commutes=False, to=None, attribute=""):
        if commutes and self.commuted:
            operands = operands[::-1]
        names = ", ".join(operand[0] for operand in operands)
        element = operands[-1][1]
        types = f"{element} to {to}" if to else element
        return self.line(f"{name} {attribute}{names} : {types}"), to or element

    def add(self, a, b):
        return self.op("arith.addf", a, b, commutes=True)

    def sub(self, a, b):
        return self.op("arith.subf", a, b)

    def mul(self, a, b):
        return self.op("arith.mulf", a, b, commutes=True)

    def div(self, a, b):
        return self.op("arith.divf", a, b)

    def exp(self, a):
        return self.op("math.exp", a)

    def compare(self, predicate, a, b):
        swapped = {"sle": "sge", "sge": "sle", "slt": "sgt", "sgt": "slt", "eq": "eq", "ne": "ne"}
        if self.commuted:
            predicate, a, b = swapped[predicate], b, a
        return self.op("arith.cmpi", a, b, attribute=f"{predicate}, ")[0], "i1"

    def select(self, condition, a, b):
        if self.commuted:
            true = self.line("arith.constant true")
            condition = (self.line(f"arith.xori {condition[0]}, {true} : i1"), "i1")
            a, b = b, a
        return self.line(f"arith.select {condition[0]}, {a[0]}, {b[0]} : {a[1]}"), a[1]

    def index(self, loop):
        return self.line(f"linalg.index {loop} : index"), "index"

    # Tensors.
    def sizes(self, letters, operands):
        extents = {}
        for tensor, subscript in operands:
            for position, letter in enumerate(subscript):
                if letter not in extents or extents[letter][0] is None and tensor.shape[position] is not None:
                    extents[letter] = (tensor.shape[position], tensor, position)
        return [extents[letter] for letter in letters]

    def empty(self, letters, operands, element):
        shape, dynamic = [], []
        for extent, tensor, position in self.sizes(letters, operands):
            shape.append(extent)
            if extent is None:
                c = self.line(f"arith.constant {position} : index")
                dynamic.append(self.line(f"tensor.dim {tensor.name}, {c} : {tensor.type}"))
        result = Tensor(None, shape, element)
        result.name = self.line(f"tensor.empty({', '.join(dynamic)}) : {result.type}")
        return result

    def filled(self, letters, operands, element, value):
        empty = self.empty(letters, operands, element)
        number = self.const(value, element)[0]
        outs = f"outs({empty.name} : {empty.type}) -> {empty.type}"
        return Tensor(self.line(f"linalg.fill ins({number} : {element}) {outs}"), empty.shape, element)

    def generic(self, inputs, out, into, loops, reduced, body):
        maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(subscript)})>"
                         for subscript in [subscript for _, subscript in inputs] + [out])
        kinds = ", ".join('"reduction"' if loop in reduced else '"parallel"' for loop in loops)
        name = self.fresh()
        self.lines.append(
            f"    {name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f" ins({', '.join(t.name for t, _ in inputs)} : {', '.join(t.type for t, _ in inputs)})"
            f" outs({into.name} : {into.type}) {{" if inputs else
            f"    {name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f" outs({into.name} : {into.type}) {{")
        arguments = [(self.fresh(), tensor.element) for tensor, _ in inputs] + [(self.fresh(), into.element)]
        self.lines.append("    ^bb0(" + ", ".join(f"{n}: {t}" for n, t in arguments) + "):")
        result = body(*arguments)
        self.lines.append(f"    linalg.yield {result[0]} : {result[1]}\n    }} -> {into.type}")
        return Tensor(name, into.shape, into.element)

    def einsum(self, equation, a, b, element="f32"):
        inputs, out = equation.split("->")
        lhs, rhs = inputs.split(",")
        operands = [(a, lhs), (b, rhs)]
        if self.commuted:
            operands.reverse()
        loops = sorted(set(lhs + rhs), key=lambda l: (l not in out, out.find(l), l))
        into = self.filled(out, operands, element, 0.0)

        def body(x, y, c):
            if element != x[1]:
                x, y = (self.op("arith.extf", each, to=element) for each in (x, y))
            return self.add(c, self.mul(x, y))

        return self.generic(operands, out, into, loops, set(loops) - set(out), body)

    def pointwise(self, operands, out, body, element="f32", like=()):
        """`operands` are (tensor, subscript); `body` takes one element of each."""
        into = self.empty(out, list(operands) + list(like), element)
        return self.generic(list(operands), out, into, list(out), set(), lambda *args: body(*args[:-1]))

    def reduce(self, tensor, subscript, out, start, combine):
        into = self.filled(out, [(tensor, subscript)], tensor.element, start)
        return self.generic([(tensor, subscript)], out, into, list(subscript), set(subscript) - set(out), combine)

    def softmax(self, scores, subscript, variant="stable"):
        """Along the last dimension."""
        rows, pair = subscript[:-1], [(scores, subscript)]
        if variant == "op":
            into = self.empty(subscript, pair, scores.element)
            return Tensor(self.line(f"linalg.softmax dimension({len(rows)}) ins({scores.name} : {scores.type})"
                                    f" outs({into.name} : {into.type}) -> {into.type}"), scores.shape)
        shifted = scores
        if variant != "unstable":
            maximum = self.reduce(scores, subscript, rows, float("-inf"),
                                  lambda x, c: self.op("arith.maximumf", x, c, commutes=True))
            shifted = self.pointwise([(scores, subscript), (maximum, rows)], subscript, self.sub)
        exponentials = self.pointwise([(shifted, subscript)], subscript, self.exp)
        total = self.reduce(exponentials, subscript, rows, 0.0, self.add)
        if variant == "logarithm":
            return self.pointwise([(shifted, subscript), (total, rows)], subscript,
                                  lambda s, t: self.exp(self.sub(s, self.op("math.log", t))))
        if variant == "reciprocal":
            inverse = self.pointwise([(total, rows)], rows, lambda t: self.div(self.const(1.0), t))
            return self.pointwise([(exponentials, subscript), (inverse, rows)], subscript, self.mul)
        return self.pointwise([(exponentials, subscript), (total, rows)], subscript, self.div)

    def reshape(self, tensor, groups, shape, expands, sizes=()):
        """`groups` such as [[0], [1, 2]]; `sizes` are the sources of dynamic extents: (tensor, position)."""
        result = Tensor(None, shape, tensor.element)
        if not expands:
            result.name = self.line(f"tensor.collapse_shape {tensor.name} {groups} : {tensor.type} into {result.type}")
            return result
        extents = []
        given = iter(sizes)
        for extent in shape:
            if extent is None:
                source, position = next(given)
                c = self.line(f"arith.constant {position} : index")
                extents.append(self.line(f"tensor.dim {source.name}, {c} : {source.type}"))
            else:
                extents.append(str(extent))
        result.name = self.line(f"tensor.expand_shape {tensor.name} {groups} output_shape [{', '.join(extents)}]"
                                f" : {tensor.type} into {result.type}")
        return result

    def text(self, result):
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self.arguments)
        body = "\n".join(self.lines)
        return (f"  func.func @{self.name}({arguments}) -> {result.type} {{\n{body}\n"
                f"    return {result.name} : {result.type}\n  }}\n")


def function(module, name):
    """The text of one function of a printed module."""
    return re.search(rf"  func\.func @{name}\(.*?\n  }}\n", module, re.S).group(0)
