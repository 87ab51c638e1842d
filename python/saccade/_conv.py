"""Programs of `saccade.causal_conv1d` and of its gradients.

A position s of a sequence reads the positions s - width + 1 to s. Those before the sequence are in its state, whose
last one precedes the sequence. The body of one structured op reads the input and the state at these positions, which it
computes, so that ragged and padded batches need no copy. The loops are the dimensions of the input in their order, and
the last one is that of the lanes.
"""

from __future__ import annotations

import functools
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


@functools.lru_cache(maxsize=512)
def program(form: Form) -> str:
    """The program @causal_conv1d(x, weight, bias, state, lengths) -> (output, final state) of the tensors of the form.
    With `has_gradient` also @causal_conv1d_gradient(arguments, results, gradients of results) -> gradients of x,
    weight, bias and state."""
    text = _Function(form).forward()
    return text + _Function(form).gradient() if form.has_gradient else text


class _Function:
    """The text of one function."""

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

    def generic(self, loops: str, inputs: list[tuple[str, str, str]], out: tuple[str, str, str], reduced: str = "") -> str:
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
        """For each position of a ragged batch the number of its sequence, the sequence's first position and its end. The
        number of positions after the last sequence is that of the sequences, and their end is not after them."""
        extent, type = self.extents["s"], "tensor<?xi64>"
        offsets = self.dim("%lengths", self.integers, 0)
        self.sequence_count = self.binary("subi", offsets, self.c1)
        rest = self.op(f"tensor.extract_slice %lengths[1] [{self.sequence_count}] [1] : {self.integers} to {self.integers}")
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

    def read(self, tensor: str, type: str, dims: str, at: dict[str, str], element: str) -> str:
        """In a body, an element of a tensor."""
        return self.widened(self.op(f"tensor.extract {tensor}[{', '.join([at[dim] for dim in dims])}] : {type}"), element)

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

    # --- functions ----------------------------------------------------------------------------------------------------

    def forward(self) -> str:
        form = self.form
        arguments = self.begin()
        out = self.empty([self.extents[dim] for dim in form.layout], self.x)
        if form.layout[-1] == "s" and not form.is_ragged and form.width > 1:
            result = self.in_two_parts(out)
        else:
            result = self.by_positions(out)
        results = [(result, self.x)]
        if form.returns_state:
            results.append((self.final_state(), self.state))
        return self.end(NAME, arguments, results)

    def by_positions(self, out: str) -> str:
        """The convolution of all positions of `out`, which read the input at positions that they compute."""
        form = self.form
        result = self.generic(form.layout, [*self.tap_inputs(), *self.bound_inputs()], (out, form.layout, self.x))
        at = self.positions(form.layout)
        number, first, end = self.sequence(at, len(self.tap_inputs()))
        self.close_activated(self.convolved(at, number, first, 0), at, end)
        return result

    def close_activated(self, value: str, at: dict[str, str], end: str) -> None:
        """Ends a structured op whose element is the activation of a value."""
        if self.form.activation:
            value = self.binary("mulf", value, self.sigmoid(value), self.f)
        self.close(self.narrowed(self.or_zero(at, end, value), self.form.element), self.form.element, self.x)

    def in_two_parts(self, out: str) -> str:
        """The convolution for lanes that are positions: those that read the state, and the others, whose inputs are
        slices of x, so that each of them is one load."""
        form = self.form
        back = self.number(form.width - 1)
        head = self.binary("minsi", self.extents["s"], back)
        main = self.binary("subi", self.extents["s"], head)

        def part(of: str, start: str, size: str) -> str:
            offsets = ", ".join([start if dim == "s" else "0" for dim in form.layout])
            sizes = ", ".join([size if dim == "s" else self.extents[dim] for dim in form.layout])
            return f"{of}[{offsets}] [{sizes}] [{', '.join(['1'] * len(form.layout))}]"

        def placed(made: str, into: str, start: str, size: str) -> str:
            return self.op(f"tensor.insert_slice {made} into {part(into, start, size)} : {self.x} into {self.x}")

        first = self.by_positions(self.op(f"tensor.extract_slice {part(out, '0', head)} : {self.x} to {self.x}"))
        out = placed(first, out, "0", head)
        starts = [self.binary("minsi", self.number(j), head) for j in range(form.width)]
        inputs = [(self.op(f"tensor.extract_slice {part('%x', start, main)} : {self.x} to {self.x}"), form.layout,
                   self.x) for start in starts]
        rest = self.op(f"tensor.extract_slice {part(out, head, main)} : {self.x} to {self.x}")
        found = self.generic(form.layout, [*inputs, *self.tap_inputs(), *self.bound_inputs()],
                             (rest, form.layout, self.x))
        at = self.positions(form.layout)
        at["s"] = self.binary("addi", at["s"], head)
        _, _, end = self.sequence(at, form.width + len(self.tap_inputs()))
        total = self.widened(f"%in{2 * form.width}", form.bias) if form.bias else ""
        for j in range(form.width):
            product = self.binary("mulf", self.widened(f"%in{j}", form.element), f"%in{form.width + j}", self.f)
            total = self.binary("addf", total, product, self.f) if total else product
        self.close_activated(total, at, end)
        return placed(found, out, head, main)

    def end(self, name: str, arguments: list[str], results: list[tuple[str, str]]) -> str:
        types = ", ".join([type for _, type in results])
        return (f"func.func @{name}({', '.join(arguments)})\n    -> ({types}) {{\n" + "\n".join(self.lines)
                + f"\n  return {', '.join([value for value, _ in results])} : {types}\n}}\n")

    def final_state(self) -> str:
        """The last inputs of each sequence, of which some may be those of the state before."""
        form = self.form
        extents = [self.extents["p" if dim == "s" else dim] for dim in self.of_state]
        result = self.generic(self.of_state, [], (self.empty(extents, self.state), self.of_state, self.state))
        at = self.positions(self.of_state)
        first, end = self.own_sequence(at["b"])
        # The position in the input, which is before the sequence if it is one of the state.
        position = self.binary("addi", self.binary("subi", end, self.extents["p"]), at["s"])
        own = self.op(f"tensor.extract %x[{', '.join([{**at, 's': self.clamped(position, self.last)}[dim] for dim in form.layout])}]"
                      f" : {self.x}")
        place = self.clamped(self.binary("addi", self.binary("subi", end, first), at["s"]), self.last_of_state)
        before = self.op(f"tensor.extract %state[{', '.join([{**at, 's': place}[dim] for dim in self.of_state])}]"
                         f" : {self.state}")
        is_own = self.op(f"arith.cmpi sge, {position}, {first} : index")
        self.close(self.op(f"arith.select {is_own}, {own}, {before} : {form.element}"), form.element, self.state)
        return result

    def gradient(self) -> str:
        form = self.form
        arguments = self.begin()
        names = [("output", self.x), *[("final_state", self.state)] * form.returns_state]
        arguments += [f"%{name}{suffix}: {type}" for suffix in ("", "_gradient") for name, type in names]
        self.before_activation()
        results = [(self.input_gradient(), self.x), self.weight_gradient()]
        if form.bias:
            results.append(self.bias_gradient())
        if form.has_state:
            results.append((self.state_gradient(), self.state))
        return self.end(f"{NAME}_gradient", arguments, results)

    def before_activation(self) -> None:
        """The gradient of what enters the activation, as a tensor."""
        form = self.form
        taps = self.tap_inputs()
        inputs = [("%output_gradient", form.layout, self.x), *taps, *self.bound_inputs()]
        out = self.empty([self.extents[dim] for dim in form.layout], self.wide)
        self.entering = self.generic(form.layout, inputs, (out, form.layout, self.wide))
        at = self.positions(form.layout)
        number, first, end = self.sequence(at, 1 + len(taps))
        value = self.widened("%in0", form.element)
        if form.activation:
            z = self.convolved(at, number, first, 1)
            rate = self.sigmoid(z)  # silu'(z) = σ(z)·(1 + z·(1 − σ(z)))
            rest = self.binary("mulf", z, self.binary("subf", self.one, rate, self.f), self.f)
            slope = self.binary("mulf", rate, self.binary("addf", self.one, rest, self.f), self.f)
            value = self.binary("mulf", value, slope, self.f)
        self.close(self.or_zero(at, end, value), self.f, self.wide)

    def later_sum(self, at: dict[str, str], position: str, end: str, is_before: bool, last: str | None = None) -> str:
        """In a body, the gradient of the input at a position by the convolution at the positions that read it. `is_before`:
        it is one before its sequence, whose first position is `last`."""
        form = self.form
        total = ""
        for j in range(form.width - is_before):
            reader = self.binary("addi", position, self.number(form.width - 1 - j))
            value = self.read(self.entering, self.wide, form.layout, {**at, "s": self.clamped(reader, self.last)}, self.f)
            is_read = self.op(f"arith.cmpi slt, {reader}, {end} : index")
            if last is not None:
                is_after = self.op(f"arith.cmpi sge, {reader}, {last} : index")
                is_read = self.binary("andi", is_read, is_after, "i1")
            value = self.op(f"arith.select {is_read}, {value}, {self.zero} : {self.f}")
            product = self.binary("mulf", value, f"%in{j}", self.f)
            total = self.binary("addf", total, product, self.f) if total else product
        return total or self.zero

    def input_gradient(self) -> str:
        form = self.form
        rows = [(row, "d", self.row) for row in self.tap_weights]
        out = self.empty([self.extents[dim] for dim in form.layout], self.x)
        result = self.generic(form.layout, [*rows, *self.bound_inputs()], (out, form.layout, self.x))
        at = self.positions(form.layout)
        number, first, end = self.sequence(at, form.width)
        value = self.later_sum(at, at["s"], end, False)
        if form.returns_state:
            place = self.binary("addi", self.binary("subi", at["s"], end), self.extents["p"])
            kept = self.read("%final_state_gradient", self.state, self.of_state,
                             {**at, "b": number, "s": self.clamped(place, self.last_of_state)}, form.element)
            is_kept = self.op(f"arith.cmpi sge, {place}, {self.c0} : index")
            kept = self.op(f"arith.select {is_kept}, {kept}, {self.zero} : {self.f}")
            value = self.binary("addf", value, kept, self.f)
        self.close(self.narrowed(self.or_zero(at, end, value), form.element), form.element, self.x)
        return result

    def weight_gradient(self) -> tuple[str, str]:
        form = self.form
        # The loops over channels are parallel; the last loop is that of the lanes.
        loops = form.layout[:-1] + "j" + form.layout[-1]
        type = f"tensor<{form.width}x?x{self.f}>"
        sums = self.generic(loops, [(self.entering, form.layout, self.wide), *self.bound_inputs()],
                            (self.zeros([self.extents["d"]], type), "jd", type), "bs")
        at = self.positions(loops)
        number, first, _ = self.sequence(at, 1)
        back = self.binary("subi", self.number(form.width - 1), at["j"])
        value = self.input_at(at, number, first, self.binary("subi", at["s"], back))
        product = self.binary("mulf", value, "%in0", self.f)
        self.close(self.binary("addf", "%out", product, self.f), self.f, type)
        narrow = f"tensor<?x{form.width}x{form.weight}>"
        result = self.generic("dj", [(sums, "jd", type)], (self.empty([self.extents["d"]], narrow), "dj", narrow))
        self.close(self.narrowed("%in0", form.weight), form.weight, narrow)
        return result, narrow

    def bias_gradient(self) -> tuple[str, str]:
        form = self.form
        sums = self.generic(form.layout, [(self.entering, form.layout, self.wide)],
                            (self.zeros([self.extents["d"]], self.row), "d", self.row), "bs")
        self.close(self.binary("addf", "%out", "%in0", self.f), self.f, self.row)
        narrow = f"tensor<?x{form.bias}>"
        result = self.generic("d", [(sums, "d", self.row)], (self.empty([self.extents["d"]], narrow), "d", narrow))
        self.close(self.narrowed("%in0", str(form.bias)), str(form.bias), narrow)
        return result, narrow

    def state_gradient(self) -> str:
        form = self.form
        rows = [(row, "d", self.row) for row in self.tap_weights]
        extents = [self.extents["p" if dim == "s" else dim] for dim in self.of_state]
        result = self.generic(self.of_state, rows, (self.empty(extents, self.state), self.of_state, self.state))
        at = self.positions(self.of_state)
        first, end = self.own_sequence(at["b"])
        position = self.binary("addi", self.binary("subi", first, self.extents["p"]), at["s"])
        value = self.later_sum(at, position, end, True, first)
        if form.returns_state:
            place = self.binary("subi", at["s"], self.binary("subi", end, first))
            kept = self.read("%final_state_gradient", self.state, self.of_state,
                             {**at, "s": self.clamped(place, self.last_of_state)}, form.element)
            is_kept = self.op(f"arith.cmpi sge, {place}, {self.c0} : index")
            kept = self.op(f"arith.select {is_kept}, {kept}, {self.zero} : {self.f}")
            value = self.binary("addf", value, kept, self.f)
        self.close(self.narrowed(value, form.element), form.element, self.state)
        return result
