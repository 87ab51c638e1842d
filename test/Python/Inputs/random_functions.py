"""Random score and mask functions, as Python text, and what they compute on whole grids of positions in float64.

    functions = RandomFunctions(seed, (batches, heads, queries, keys))
    score, mask = functions.make(torch)        # or numpy; None where there is none; captures are in their closure
    scores, allowed = functions.on_grid(s)     # s: float64 scores [batches, heads, queries, keys], a torch tensor

The text follows from the seed. It uses what torch and NumPy call the same, through the variable `x`. Values of scores stay
within a few units, and nothing jumps where a float is rounded.
"""

import random
import re

import numpy as np


class RandomFunctions:
    """One pair of functions; `text` is the source of a function `make` that returns them, `captures` its arguments."""

    def __init__(self, seed, shape, wants_score=None, wants_mask=None, floats=(np.float32, np.float64)):
        """`floats` are the types of captured tables: where one is float32, some of a float64 score is rounded to it."""
        self.floats, self.shape, self.random, self.captures = floats, shape, random.Random(seed), {}
        self.numbers = np.random.default_rng(seed)
        kinds = self.random.choice(["both", "both", "score", "mask"])
        score = self.score() if (wants_score if wants_score is not None else kinds != "mask") else None
        mask = self.boolean(self.random.randint(1, 3)) if (wants_mask if wants_mask is not None else kinds != "score") else None
        helper = self.random.random() < 0.3
        if helper and mask:  # a function that calls another one
            mask = f"only({mask}, i, j)"
        reach = self.random.randint(3, 12)
        # Options that were not taken have left captures behind.
        names = re.findall(r"\w+", f"{score} {mask}")
        self.captures = {name: value for name, value in self.captures.items() if name in names}
        lines = [f"def make({', '.join(['x', *self.captures])}):"]
        if helper and mask:
            lines.append(f"    def only(condition, i, j):\n        return condition & (abs(i - j) <= {reach})")
        if score and self.random.random() < 0.5:  # with statements
            lines.append(f"    def score(s, b, h, i, j):\n        distance = j - i\n        s = {score}\n        return s")
        elif score:
            lines.append(f"    score = lambda s, b, h, i, j: {score.replace('distance', '(j - i)')}")
        else:
            lines.append("    score = None")
        lines.append(f"    mask = {f'lambda b, h, i, j: {mask}' if mask else None}")
        self.text = "\n".join([*lines, "    return score, mask\n"])

    # --- the functions --------------------------------------------------------------------------------------------

    def make(self, library):
        """(score, mask) over tensors or arrays of `library`, which is the module torch or numpy."""
        captures = {name: library.tensor(value) if library.__name__ == "torch" and isinstance(value, np.ndarray) else value
                    for name, value in self.captures.items()}
        return self._make(library, captures)

    def _make(self, x, captures):
        names = {}
        exec(compile(self.text, "random_functions", "exec"), names)
        return names["make"](x, **captures)

    def on_grid(self, s):
        """(scores, allowed) for the scaled scores `s`: float64, and booleans."""
        import torch

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            tables = {name: Table(value) if isinstance(value, np.ndarray) else value for name, value in self.captures.items()}
            score, mask = self._make(torch, tables)
            b, h, i, j = [torch.arange(extent).reshape([-1 if axis == at else 1 for axis in range(4)])
                          for at, extent in enumerate(self.shape)]
            scores = score(s, b, h, i, j) if score else s
            allowed = mask(b, h, i, j) != 0 if mask else torch.ones((), dtype=torch.bool)
            return scores.expand(self.shape), allowed.expand(self.shape)
        finally:
            torch.set_default_dtype(before)

    # --- expressions ----------------------------------------------------------------------------------------------

    def choose(self, *options):
        option = self.random.choice(options)
        return option() if callable(option) else option

    def capture(self, kind, value):
        name = f"{kind}{len(self.captures)}"
        self.captures[name] = value
        return name

    def table(self, *extents):
        """A captured table of floats, sometimes longer than it must be."""
        extents = [extent + self.random.choice([0, 0, 3]) for extent in extents]
        return self.capture("table", (self.numbers.random(extents) - 0.5).astype(self.random.choice(self.floats)))

    def words(self, extent, kinds=(np.int32, np.int64, np.int16, np.uint8)):
        """A captured table of integers from 0 to 3."""
        kind = self.random.choice(kinds)
        return self.capture("words", np.sort(self.numbers.integers(0, 4, extent)).astype(kind))

    def score(self):
        text = "s"
        for _ in range(self.random.randint(1, 3)):
            text = self.choose(lambda: f"{text} + {self.bias()}", lambda: f"{text} + {self.bias()}",
                               lambda: self.capped(text), lambda: f"({text}) * {self.real()}",
                               lambda: f"x.where({self.boolean(1)}, {text}, {self.bias()})",
                               lambda: f"x.maximum({text}, ({text}) * 0.1)")
        return text

    def capped(self, text):
        cap = self.choose("3.0", lambda: self.capture("cap", round(self.random.uniform(2, 20), 3)))
        return f"{cap} * x.tanh(({text}) / {cap})"

    def bias(self):
        batches, heads, queries, keys = self.shape
        reach = self.random.randint(2, 9)
        return self.choose(
            lambda: f"{self.table(heads)}[h] * distance * 0.1",
            lambda: f"{self.table(heads, keys)}[h, j]",
            lambda: f"{self.table(heads, queries)}[h][i]",
            lambda: f"{self.table(batches, queries, keys)}[b, i, j]",
            lambda: f"{self.table(heads, 2 * reach + 1)}[h, x.clip(distance, -{reach}, {reach}) + {reach}]",
            lambda: f"{self.table(2 * reach + 1)}[x.clip(distance, -{reach}, {reach})]",  # from the end
            lambda: f"{self.table(heads, reach)}[h][distance % {reach}]",
            lambda: f"{self.table(4, heads)}[{self.words(keys, (np.int32, np.int64))}[j], h]",
            lambda: f"-0.05 * abs({self.integer(1)})", lambda: f"x.log(abs({self.integer(1)}) + 1.0) * 0.3",
            lambda: "x.exp(-0.1 * abs(distance))", lambda: f"x.sin({self.integer(1)} * 0.3)",
            lambda: f"({self.integer(2)}) % {reach} * 0.2", lambda: f"2.0 ** (-{self.real()} * (h + 1)) * distance",
            lambda: f"x.cos(s) * {self.real()}", lambda: f"{self.words(keys)}[j] * 0.25", lambda: f"{self.table()} * (h + 1)",
            lambda: f"x.sqrt({self.integer(0)} + 1.0) / {reach}", lambda: "x.square(s) * 0.1", lambda: f"(j < i + {reach})",
        )  # fmt: skip

    def real(self):
        return self.choose(lambda: f"{self.random.uniform(0.1, 1.5):.3f}",
                           lambda: self.capture("factor", round(self.random.uniform(0.1, 1.5), 3)))

    def integer(self, depth):
        """An integer; not negative where depth is 0."""
        if depth == 0:
            return self.choose("i", "j", "h", "b", "(3 + 0 * i)", lambda: f"{self.words(self.shape[3])}[j]",
                               lambda: f"{self.words(self.shape[2])}[i]", lambda: f"{self.words(self.shape[0])}[b]")
        left, right, number = self.integer(depth - 1), self.integer(depth - 1), self.random.randint(1, 7)
        # Unsigned bytes would wrap below 0.
        return self.choose(f"({left} + {right} + 0 * i)", f"(i - {right})", f"(j - {right} + {number})", f"({left} * {number} + 0 * i)",
                           f"({left} // {number})", f"({left} % {number})", f"x.minimum({left} + 0 * i, {right} + 0 * i)",
                           f"x.where({self.boolean(0)}, {left} + 0 * i, {right})", f"((j - i) // {number})", f"((i - j) % {number})",
                           f"x.maximum(i - {left}, j + 0)", f"((i ^ j) & {number})")

    def boolean(self, depth):
        if depth == 0:
            reach = self.choose(lambda: self.random.randint(1, 9), lambda: self.capture("reach", self.random.randint(1, 9)))
            batches, _, queries, keys = self.shape
            return self.choose(
                "(j <= i)", f"(i - j < {reach})", f"(abs(i - j) <= {reach})", f"(j < {reach})", f"(j % {self.random.randint(2, 4)} == 0)",
                f"(i // {self.random.randint(2, 5)} >= j // {self.random.randint(2, 5)})", "(h > 0)",
                lambda: f"({self.words(max(queries, keys))}[i] == {self.words(max(queries, keys))}[j])",
                lambda: f"(j < {self.words(batches)}[b] + {reach})",
                lambda: f"{self.capture('flags', self.numbers.random(keys) < 0.7)}[j]",
                lambda: f"({self.table(queries)}[i] < {self.table(keys)}[j])",
                lambda: f"{self.capture('seen', self.numbers.random((queries, keys)) < 0.7)}[i, j]",
            )  # fmt: skip
        left, right = self.boolean(depth - 1), self.boolean(depth - 1)
        return self.choose(f"({left} & {right})", f"({left} & {right})", f"({left} | {right})", f"~{left}", f"({left} ^ {right})",
                           f"x.where({left}, {right}, {self.boolean(0)})", f"x.logical_and({left}, {right})",
                           lambda: f"({self.integer(1)} < {self.integer(1)})", lambda: f"({self.integer(1)} >= {self.integer(2)})")


class Table:
    """An array indexed by grids of positions, all at once or one after the other."""

    def __init__(self, array, indices=()):
        self.array, self.indices = array, indices

    def __getitem__(self, index):
        import torch

        indices = self.indices + (index if isinstance(index, tuple) else (index,))
        if len(indices) < self.array.ndim:
            return Table(self.array, indices)
        # float32 is exact in float64; types of integers stay, because they wrap.
        tensor = torch.tensor(self.array)
        tensor = tensor.double() if tensor.is_floating_point() else tensor
        return tensor[tuple([index.long() if isinstance(index, torch.Tensor) else index for index in indices])]

    def __mul__(self, other):  # a number in an array without dimensions
        return float(self.array) * other


if __name__ == "__main__":
    for seed in range(8):
        print(RandomFunctions(seed, (2, 3, 5, 19)).text)
