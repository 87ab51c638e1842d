"""The form of a call of `saccade.causal_conv1d`, and what its programs share (saccade._conv)."""

from __future__ import annotations

from typing import NamedTuple

NAME = "causal_conv1d"
"""The function of the program; its gradient function is NAME_gradient."""

LAYOUTS = {"bds": "bsd", "bsd": "bds", "ds": "sd", "sd": "ds"}
"""The orders of dimensions, each with the one of a transposed view: batch, channel d, position s. Without b the
sequences of a ragged batch are stored one after another."""


class Form(NamedTuple):
    """What the program of a call depends on. Element types are those of MLIR."""

    element: str
    layout: str
    width: int
    weight: str
    bias: str | None
    activation: str | None
    has_state: bool
    returns_state: bool
    lengths: str | None
    """The element type of `kv_len`, or of `cu_seqlens` if the layout has no b."""
    has_gradient: bool = False

    @property
    def precision(self) -> str:
        """The type that is computed in."""
        return "f64" if self.element == "f64" else "f32"

    @property
    def is_ragged(self) -> bool:
        """Whether sequences are stored one after another."""
        return "b" not in self.layout


class Body:
    """The text of one function: what the convolution and its gradient share."""

    def __init__(self, form: Form):
        self.form = form
        self.lines: list[str] = []
        self.count = 0
        self.f = form.precision
        rank = len(form.layout)
        self.of_state = form.layout if "b" in form.layout else "b" + form.layout
        """The dimensions of states."""
        self.x = f"tensor<{'?x' * rank}{form.element}>"
        self.wide = f"tensor<{'?x' * rank}{self.f}>"
        self.state = f"tensor<?x?x?x{form.element}>"
        self.row = f"tensor<?x{self.f}>"
        self.taps = f"tensor<{form.width}x?x{self.f}>"
        self.integers = f"tensor<?x{form.lengths}>"

    # --- text ---------------------------------------------------------------------------------------------------------

    def op(self, text: str) -> str:
        """Adds an op with one result, which is returned."""
        self.count += 1
        self.lines.append(f"  %{self.count} = {text}")
        return f"%{self.count}"

    def number(self, value: float, type: str = "index") -> str:
        """A constant."""
        return self.op(f"arith.constant {value} : {type}")

    def binary(self, name: str, a: str, b: str, type: str | None = None) -> str:
        """An op of two operands; of indices by default."""
        return self.op(f"arith.{name} {a}, {b} : {type or 'index'}")

    def widened(self, value: str, element: str) -> str:
        """A value as one of the type that is computed in."""
        if element == self.f:
            return value
        return self.op(f"arith.{'truncf' if element == 'f64' else 'extf'} {value} : {element} to {self.f}")

    def narrowed(self, value: str, element: str) -> str:
        """A value of the type that is computed in as one of another type."""
        if element == self.f:
            return value
        return self.op(f"arith.{'extf' if element == 'f64' else 'truncf'} {value} : {self.f} to {element}")

    def generic(self, loops: str, inputs: list[tuple[str, str, str]], out: tuple[str, str, str],
                reduced: str = "") -> str:
        """Opens a structured op: its result. Inputs and the output are a value, its dimensions and its type; elements
        are %in0, %in1, … and %out."""
        self.count += 1
        domain = ", ".join(loops)
        maps = [f"affine_map<({domain}) -> ({', '.join(dims)})>" for _, dims, _ in (*inputs, out)]
        kinds = [f'"{"reduction" if dim in reduced else "parallel"}"' for dim in loops]
        types = [type[type.rindex("x") + 1:-1] for _, _, type in (*inputs, out)]
        names = [*[f"%in{i}" for i in range(len(inputs))], "%out"]
        ins = f"ins({', '.join([x for x, _, _ in inputs])} : {', '.join([t for _, _, t in inputs])}) " if inputs else ""
        self.lines += [f"  %{self.count} = linalg.generic {{indexing_maps = [{', '.join(maps)}],",
                       f"      iterator_types = [{', '.join(kinds)}]}} {ins}outs({out[0]} : {out[2]}) {{",
                       f"  ^bb0({', '.join([f'{name}: {type}' for name, type in zip(names, types)])}):"]
        return f"%{self.count}"

    def close(self, value: str, element: str, type: str) -> None:
        """Ends a structured op whose element is `value`."""
        self.lines += [f"  linalg.yield {value} : {element}", f"  }} -> {type}"]

    def positions(self, loops: str) -> dict[str, str]:
        """The positions of the loops in a body."""
        return {dim: self.op(f"linalg.index {i} : index") for i, dim in enumerate(loops)}

    def dim(self, tensor: str, type: str, axis: int) -> str:
        return self.op(f"tensor.dim {tensor}, {self.number(axis)} : {type}")

    def empty(self, extents: list[str], type: str) -> str:
        return self.op(f"tensor.empty({', '.join(extents)}) : {type}")

    def zeros(self, extents: list[str], type: str) -> str:
        empty = self.empty(extents, type)
        return self.op(f"linalg.fill ins({self.zero} : {self.f}) outs({empty} : {type}) -> {type}")

    # --- what both functions share ------------------------------------------------------------------------------------

    def begin(self) -> list[str]:
        """Starts a function; the texts of the arguments."""
        form = self.form
        arguments = [f"%x: {self.x}", f"%weight: tensor<?x{form.width}x{form.weight}>"]
        arguments += [f"%bias: tensor<?x{form.bias}>"] if form.bias else []
        arguments += [f"%state: {self.state}"] if form.has_state else []
        arguments += [f"%lengths: {self.integers}"] if form.lengths else []
        self.zero, self.one = self.number(0.0, self.f), self.number(1.0, self.f)
        self.c0, self.c1 = self.number(0), self.number(1)
        self.extents = {dim: self.dim("%x", self.x, i) for i, dim in enumerate(form.layout)}
        self.last = self.binary("subi", self.extents["s"], self.c1)
        if form.has_state:
            self.extents["b"] = self.dim("%state", self.state, 0)
            self.extents["p"] = self.dim("%state", self.state, self.of_state.index("s"))
            self.last_of_state = self.binary("subi", self.extents["p"], self.c1)
        self.weights()
        if form.is_ragged:
            self.sequences()
        return arguments

    def weights(self) -> None:
        """The weights [width, channel], widened, and the row of each tap."""
        form = self.form
        channels, type = self.extents["d"], f"tensor<?x{form.width}x{form.weight}>"
        empty = self.empty([channels], self.taps)
        found = self.generic("jd", [("%weight", "dj", type)], (empty, "jd", self.taps))
        self.close(self.widened("%in0", form.weight), self.f, self.taps)
        self.tap_weights = [
            self.op(f"tensor.extract_slice {found}[{j}, 0] [1, {channels}] [1, 1] : {self.taps} to {self.row}")
            for j in range(form.width)]

    def sequences(self) -> None:
        """For each position of a ragged batch the number of its sequence, the sequence's first position and its end.
        Positions after the last sequence have the number of sequences, and an end that is not after them."""
        extent, type = self.extents["s"], "tensor<?xi64>"
        offsets = self.dim("%lengths", self.integers, 0)
        self.sequence_count = self.binary("subi", offsets, self.c1)
        rest = self.op(f"tensor.extract_slice %lengths[1] [{self.sequence_count}] [1] : {self.integers} to "
                       f"{self.integers}")
        zero, one = self.number(0, "i64"), self.number(1, "i64")
        start = self.op(f"linalg.fill ins({zero} : i64) outs({self.empty([extent], type)} : {type}) -> {type}")
        numbers = self.generic("sn", [(rest, "n", self.integers)], (start, "s", type), "n")
        at = self.positions("sn")["s"]
        end = self.op(f"arith.index_cast %in0 : {self.form.lengths} to index")
        is_after = self.op(f"arith.cmpi sle, {end}, {at} : index")
        step = self.op(f"arith.select {is_after}, {one}, {zero} : i64")
        self.close(self.op(f"arith.addi %out, {step} : i64"), "i64", type)
        self.bounds = [(numbers, "s", type)]
        for shift in (0, 1):
            empty = self.empty([extent], type)
            found = self.generic("s", [(numbers, "s", type)], (empty, "s", type))
            number = self.op("arith.index_cast %in0 : i64 to index")
            if shift:
                number = self.binary("minsi", self.binary("addi", number, self.c1), self.sequence_count)
            offset = self.op(f"tensor.extract %lengths[{number}] : {self.integers}")
            offset = self.op(f"arith.index_cast {offset} : {self.form.lengths} to index")
            offset = self.binary("minsi", self.binary("maxsi", offset, self.c0), extent)
            self.close(self.op(f"arith.index_cast {offset} : index to i64"), "i64", type)
            self.bounds.append((found, "s", type))

    def bound_inputs(self) -> list[tuple[str, str, str]]:
        """The inputs of a structured op from which its body has the sequence of its position."""
        if self.form.is_ragged:
            return self.bounds
        return [("%lengths", "b", self.integers)] if self.form.lengths else []

    def sequence(self, at: dict[str, str], before: int) -> tuple[str, str, str]:
        """In a body, the sequence of the position, its first position and its end, from the inputs after `before`."""
        if self.form.is_ragged:
            found = [self.op(f"arith.index_cast %in{before + i} : i64 to index") for i in range(3)]
            return found[0], found[1], found[2]
        if self.form.lengths:
            return at["b"], self.c0, self.op(f"arith.index_cast %in{before} : {self.form.lengths} to index")
        return at["b"], self.c0, self.extents["s"]

    def own_sequence(self, number: str) -> tuple[str, str]:
        """In a body without such inputs, the first position and the end of a sequence."""
        form = self.form

        def offset(i: str) -> str:
            found = self.op(f"tensor.extract %lengths[{i}] : {self.integers}")
            return self.op(f"arith.index_cast {found} : {form.lengths} to index")

        if form.is_ragged:
            return offset(number), offset(self.binary("addi", number, self.c1))
        return self.c0, offset(number) if form.lengths else self.extents["s"]

    def element(self, tensor: str, type: str, dims: str, at: dict[str, str]) -> str:
        """In a body, an element of a tensor."""
        return self.op(f"tensor.extract {tensor}[{', '.join([at[dim] for dim in dims])}] : {type}")

    def read(self, tensor: str, type: str, dims: str, at: dict[str, str], element: str) -> str:
        """In a body, an element of a tensor, widened."""
        return self.widened(self.element(tensor, type, dims, at), element)

    def clamped(self, position: str, last: str) -> str:
        return self.binary("minsi", self.binary("maxsi", position, self.c0), last)

    def input_at(self, at: dict[str, str], number: str, first: str, position: str) -> str:
        """In a body, the input at a position that is not after that of the loop: of the state if it is before its
        sequence."""
        form = self.form
        place = self.binary("maxsi", position, self.c0)
        own = self.read("%x", self.x, form.layout, {**at, "s": place}, form.element)
        before = self.zero
        if form.has_state:
            place = self.binary("addi", self.binary("subi", position, first), self.extents["p"])
            before = self.read("%state", self.state, self.of_state,
                               {**at, "b": number, "s": self.clamped(place, self.last_of_state)}, form.element)
        is_own = self.op(f"arith.cmpi sge, {position}, {first} : index")
        return self.op(f"arith.select {is_own}, {own}, {before} : {self.f}")

    def convolved(self, at: dict[str, str], number: str, first: str, taps: int) -> str:
        """In a body, the convolution at a position. `taps` is the number of the input that has the weights of the first
        tap; the bias follows those of the last."""
        form = self.form
        total = self.widened(f"%in{taps + form.width}", form.bias) if form.bias else ""
        for j in range(form.width):
            back = form.width - 1 - j
            if back:
                position = self.binary("subi", at["s"], self.number(back))
                value = self.input_at(at, number, first, position)
            else:
                value = self.read("%x", self.x, form.layout, at, form.element)
            product = self.binary("mulf", value, f"%in{taps + j}", self.f)
            total = self.binary("addf", total, product, self.f) if total else product
        return total

    def sigmoid(self, x: str) -> str:
        power = self.op(f"math.exp {self.op(f'arith.negf {x} : {self.f}')} : {self.f}")
        return self.binary("divf", self.one, self.binary("addf", power, self.one, self.f), self.f)

    def tap_inputs(self) -> list[tuple[str, str, str]]:
        """The weights of taps and the bias as inputs of a structured op."""
        bias = [("%bias", "d", f"tensor<?x{self.form.bias}>")] if self.form.bias else []
        return [*[(row, "d", self.row) for row in self.tap_weights], *bias]

    def or_zero(self, at: dict[str, str], end: str, value: str) -> str:
        """In a body, 0 for positions after the end of their sequence."""
        if self.form.lengths is None:
            return value
        is_inside = self.op(f"arith.cmpi slt, {at['s']}, {end} : index")
        return self.op(f"arith.select {is_inside}, {value}, {self.zero} : {self.f}")

    def end(self, name: str, arguments: list[str], results: list[tuple[str, str]]) -> str:
        types = ", ".join([type for _, type in results])
        return (f"func.func @{name}({', '.join(arguments)})\n    -> ({types}) {{\n" + "\n".join(self.lines)
                + f"\n  return {', '.join([value for value, _ in results])} : {types}\n}}\n")
