"""The program of the gradients of `saccade.causal_conv1d`: @causal_conv1d_gradient."""

from __future__ import annotations

from saccade._conv_body import NAME, Body


class Gradient(Body):
    """Gradients by the positions that read an input, without those that a sequence does not have."""

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

    def later_sum(self, at: dict[str, str], position: str, end: str, is_before: bool, start: str | None = None) -> str:
        """In a body, the gradient of the input at a position by the convolution at the positions that read it.
        `is_before`: it is one before its sequence, whose first position is `start`."""
        form = self.form
        total = ""
        for j in range(form.width - is_before):
            reader = self.binary("addi", position, self.number(form.width - 1 - j))
            place = {**at, "s": self.clamped(reader, self.last)}
            value = self.read(self.entering, self.wide, form.layout, place, self.f)
            is_read = self.op(f"arith.cmpi slt, {reader}, {end} : index")
            if start is not None:
                is_after = self.op(f"arith.cmpi sge, {reader}, {start} : index")
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
        number, _, end = self.sequence(at, form.width)
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
