"""Random Python functions of index scalars, as users write score and mask functions, and their plain evaluation.

A function is drawn as text over `xp` (torch or NumPy), its tensors and its numbers. `Drawn.function` closes over
them; `Drawn.evaluate` runs the same text on whole index grids in the precision asked for.
"""

import dataclasses

import numpy as np
import torch

Sizes = dataclasses.make_dataclass("Sizes", ["batch", "heads", "queries", "keys"])
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


@dataclasses.dataclass
class Drawn:
    """`text` reads its tensors by name; `grid_text` is the same for index grids instead of scalars."""

    role: str
    text: str
    grid_text: str
    tensors: dict
    numpy: bool
    as_global: bool

    def __post_init__(self):
        tensors = {name: tensor.numpy() if self.numpy else tensor for name, tensor in self.tensors.items()}
        self.function = build(self.role, self.text, np if self.numpy else torch, tensors, self.as_global)

    def evaluate(self, exact, *arguments):
        """Evaluates on broadcast grids. `exact`: with float tables and intermediate results in float64,
        else in the types that PyTorch gives them."""
        tensors = self.tensors
        if exact:
            tensors = {name: tensor.double() if tensor.dtype in FLOATS else tensor for name, tensor in tensors.items()}
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64 if exact else torch.float32)
        try:
            return build(self.role, self.grid_text, torch, tensors, False)(*arguments)
        finally:
            torch.set_default_dtype(before)

    def __repr__(self):
        held = ", ".join(f"{name}: {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in self.tensors.items())
        return f"lambda {ARGUMENTS[self.role]}: {self.text}" + (f"  # {held}" if held else "")


ARGUMENTS = {"score": "s, b, h, i, j", "mask": "b, h, i, j"}


def build(role, text, xp, tensors, as_global):
    """The function, with its tensors in closure cells or among its globals."""
    names = ", ".join(["xp", *tensors])
    body = f"lambda {ARGUMENTS[role]}: {text}"
    if as_global:
        return eval(body, {"xp": xp, **tensors})
    return eval(f"lambda {names}: ({body})", {})(xp, *tensors.values())


class Drawer:
    def __init__(self, rng, sizes, numpy):
        self.rng, self.sizes, self.numpy = rng, sizes, numpy
        self.tensors = {}
        self.generator = torch.Generator().manual_seed(rng.getrandbits(40))

    def tensor(self, shape, dtype=None, low=None, high=None):
        """The name of a new captured tensor: normal floats, or integers in [low, high)."""
        if low is not None:
            dtype = dtype or self.rng.choice([torch.int32, torch.int64])
            values = torch.randint(low, high, shape, generator=self.generator).to(dtype)
        else:
            choices = [torch.float32] * 3 + [torch.float16, torch.float64] + ([] if self.numpy else [torch.bfloat16])
            values = torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype or self.rng.choice(choices))
        if len(shape) > 1 and self.rng.random() < 0.3:  # a strided table
            values = values.mT.contiguous().mT
        name = f"t{len(self.tensors)}"
        self.tensors[name] = values
        return name

    def number(self, low, high):
        return self.rng.randint(low, high)

    # --- scores -----------------------------------------------------------------------------------------------------

    def score(self, depth=0):
        if depth == 2 or self.rng.random() < 0.15:
            return "s"
        inner = self.score(depth + 1)
        return self.rng.choice([self.alibi, self.soft_cap, self.bias, self.relative, self.chosen, self.scaled, self.buckets,
                                self.smooth, self.temperature])(f"({inner})")  # fmt: skip

    def alibi(self, s):
        return f"{s} - {self.tensor([self.sizes.heads])}[h] * xp.abs(i - j)"

    def soft_cap(self, s):
        cap = self.rng.choice(["20.0", "5", "50.0"])
        return f"{cap} * xp.tanh({s} / {cap})"

    def bias(self, s):
        rows, columns = max(1, self.sizes.queries), max(1, self.sizes.keys)
        shape, index = self.rng.choice([([self.sizes.heads, rows, columns], "h, i, j"), ([rows, columns], "i, j"),
                                        ([columns], "j"), ([self.sizes.batch, columns], "b, j")])  # fmt: skip
        name = self.tensor(shape)
        if "," in index and not self.numpy and self.rng.random() < 0.3:  # chained: one index after the other
            first, rest = index.split(", ", 1)
            return f"{s} + CHAIN({name}[{first}][{rest}])"
        return f"{s} + {name}[{index}]"

    def relative(self, s):
        span = self.number(1, 20)
        name = self.tensor([2 * span + 1, self.sizes.heads])
        clipped = f"xp.clip(j - i, -{span}, {span})" if self.rng.random() < 0.5 else f"(j - i) % {2 * span + 1} - {span}"
        return f"{s} + {name}[{clipped} + {span}, h]"

    def chosen(self, s):
        return f"xp.where({self.condition()}, {s}, {s} * {self.rng.choice(['0.5', '-1.0', '2'])})"

    def scaled(self, s):
        return f"{s} * {self.rng.choice(['0.7', '-0.5', '1', '(1 + h) / 4', '1.0 / (1 + xp.abs(i - j))'])}"

    def buckets(self, s):
        name = self.tensor([8])
        return f"{s} + {name}[xp.minimum(xp.abs(i - j) // {self.number(1, 9)}, xp.abs(7 - 0 * i))]"

    def smooth(self, s):
        return self.rng.choice([f"{s} + xp.exp(-xp.abs(i - j) / 7)", f"{s} * xp.sqrt(1.0 + j / 50)",
                                f"xp.maximum({s}, {s} * 0.2)", f"{s} + xp.log(2.0 + xp.abs(i - j))",
                                f"{s} + xp.sin(i * 0.1) * xp.cos(j * 0.1)", f"{s} - (0.05 * (i - j)) ** 2"])  # fmt: skip

    def temperature(self, s):
        return f"{s} * {self.tensor([])}" if not self.numpy else f"{s} * {self.tensor([self.sizes.heads])}[h]"

    # --- masks ------------------------------------------------------------------------------------------------------

    def condition(self, depth=0):
        draw = self.rng.random()
        if depth < 2 and draw < 0.35:
            return f"({self.condition(depth + 1)}) {self.rng.choice('&|^')} ({self.condition(depth + 1)})"
        if depth < 2 and draw < 0.45:
            return f"~({self.condition(depth + 1)})"
        return self.rng.choice([self.causal, self.window, self.documents, self.dilated, self.blocks, self.flags,
                                self.lengths, self.by_head, self.prefix])()  # fmt: skip

    def causal(self):
        return f"{self.rng.choice(['j <= i', 'i >= j', 'j < i'])} + {self.number(-4, 12)}"

    def window(self):
        return f"xp.abs(i - j) <= {self.number(0, 40)}" if self.rng.random() < 0.5 else f"i - j < {self.number(1, 50)}"

    def documents(self):
        longest = max(1, self.sizes.queries, self.sizes.keys)
        name = self.tensor([longest], low=0, high=4)
        return f"{name}[i] == {name}[j]"

    def dilated(self):
        step = self.number(1, 5)
        return f"(i - j) % {step} == {self.number(0, step - 1)}"

    def blocks(self):
        size = self.number(1, 20)
        return f"i // {size} {self.rng.choice(['==', '>=', '!='])} j // {size}"

    def flags(self):
        name = self.tensor([self.sizes.batch, max(1, self.sizes.keys)], torch.bool, low=0, high=2)
        return f"{name}[b, j]"

    def lengths(self):
        return f"j < {self.tensor([self.sizes.batch], low=0, high=self.sizes.keys + 1)}[b]"

    def by_head(self):
        return "(j + h) % 2 == 0" if self.rng.random() < 0.5 else "j <= i + 3 * h"

    def prefix(self):
        return f"(j < {self.number(0, 30)}) | (j <= i)"


def draw(rng, role, sizes, numpy=False):
    """A random function of a role; `numpy`: over NumPy and arrays instead of torch and tensors."""
    drawer = Drawer(rng, sizes, numpy)
    text = drawer.score() if role == "score" else drawer.condition()
    grid = text
    while "CHAIN(" in grid:  # t[x][y, z] as t[x, y, z]
        before, _, rest = grid.partition("CHAIN(")
        inside, _, after = rest.partition(")")
        grid = before + inside.replace("][", ", ") + after
        text = text.replace(f"CHAIN({inside})", inside)
    return Drawn(role, text, grid, drawer.tensors, numpy, rng.random() < 0.3)
