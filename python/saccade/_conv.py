"""Programs of `saccade.causal_conv1d` and of its gradients.

A position s of a sequence reads the positions s - width + 1 to s. Those before the sequence are in its state, whose
last one precedes the sequence. The body of one structured op reads the input and the state at these positions, which it
computes, so that ragged and padded batches need no copy. The loops are the dimensions of the input in their order, and
the last one is that of the lanes.
"""

from __future__ import annotations

import functools

from saccade._conv_body import LAYOUTS, NAME, Body, Form
from saccade._conv_gradient import Gradient


@functools.lru_cache(maxsize=512)
def program(form: Form) -> str:
    """The program @causal_conv1d(x, weight, bias, state, lengths) -> (output, final state) of the tensors of the form.
    With `has_gradient` also @causal_conv1d_gradient(arguments, results, gradients of results) -> gradients of x,
    weight, bias and state."""
    text = _Forward(form).forward()
    return text + Gradient(form).gradient() if form.has_gradient else text


class _Forward(Body):
    """The convolution."""

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

    def final_state(self) -> str:
        """The last inputs of each sequence, of which some may be those of the state before."""
        form = self.form
        extents = [self.extents["p" if dim == "s" else dim] for dim in self.of_state]
        result = self.generic(self.of_state, [], (self.empty(extents, self.state), self.of_state, self.state))
        at = self.positions(self.of_state)
        first, end = self.own_sequence(at["b"])
        # The position in the input, which is before the sequence if it is one of the state.
        position = self.binary("addi", self.binary("subi", end, self.extents["p"]), at["s"])
        own = self.element("%x", self.x, form.layout, {**at, "s": self.clamped(position, self.last)})
        place = self.clamped(self.binary("addi", self.binary("subi", end, first), at["s"]), self.last_of_state)
        before = self.element("%state", self.state, self.of_state, {**at, "s": place})
        is_own = self.op(f"arith.cmpi sge, {position}, {first} : index")
        self.close(self.op(f"arith.select {is_own}, {own}, {before} : {form.element}"), form.element, self.state)
        return result


__all__ = ["LAYOUTS", "NAME", "Form", "program"]
