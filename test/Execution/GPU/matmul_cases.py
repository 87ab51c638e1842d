#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --first-seed 0 --count 400 --cover 40
"""Random 16-bit matmuls on the GPU simulator, for sm_90a, against the float64 reference.

Usage: matmul_cases.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--target NAME]

The seed determines element types, the order of both operands, batches, an operand that is the same for the whole batch or
a constant of the program, extents that are or are not multiples of tiles and stages, static or not, parts of larger
tensors, what initializes the sums, the epilogue, results, and the arithmetic and the multiprocessors of the simulator. saccade-run makes every call twice, with asynchronous copies completing as late and as early as legal. The
kernel family is that of warpgroups if bulk copies support the operands, in parts if there are more multiprocessors than
tiles.
"""

import dataclasses
import random
import shlex
import sys

import numpy as np
from forward_cases import case_options, execute, run_cases

# Reads of %s (a sum, f32) and, in 16 bits, of the bias %x of a column, the row's %y and the residual %z.
EPILOGUES = {
    "none": (set(), "%r = arith.addf %s, %none : f32"),
    "bias relu": ({"bias"}, """%t = arith.addf %s, %xf : f32
      %r = arith.maximumf %t, %none : f32"""),
    "gelu": ({"bias"}, """%t = arith.addf %s, %xf : f32
      %c = arith.constant 0.797884583 : f32
      %d = arith.constant 0.044715 : f32
      %half = arith.constant 0.5 : f32
      %one = arith.constant 1.0 : f32
      %t2 = arith.mulf %t, %t : f32
      %t3 = arith.mulf %t2, %t : f32
      %u = arith.mulf %d, %t3 : f32
      %v = arith.addf %t, %u : f32
      %w = arith.mulf %c, %v : f32
      %h = math.tanh %w : f32
      %p = arith.addf %h, %one : f32
      %q = arith.mulf %t, %p : f32
      %r = arith.mulf %half, %q : f32"""),
    "residual": ({"bias", "residual"}, """%t = arith.addf %s, %xf : f32
      %r = arith.addf %t, %zf : f32"""),
    "row scale": ({"rows"}, "%r = arith.mulf %s, %yf : f32"),
    "position": (set(), """%i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %early = arith.cmpi sle, %j, %i : index
      %r = arith.select %early, %s, %none : f32"""),
}
EXTENTS = [33, 40, 64, 65, 96, 100, 128, 136, 160, 200, 257, 264]


@dataclasses.dataclass
class Case:
    """A program with one call."""

    seed: int
    only_target: str | None = None

    def __post_init__(self):
        rng = random.Random(self.seed)
        self.target = self.only_target or "sm_90a"
        self.type = rng.choice(["bf16", "f16"])
        self.lhs, self.rhs = rng.choice(["mk", "mk", "km"]), rng.choice(["nk", "nk", "kn"])
        self.batch = rng.choice([0, 0, 0, 1, 3])
        self.extents = {"m": rng.choice([*EXTENTS, 1, 7]), "n": rng.choice([*EXTENTS, 8, 24, 100, 132]),
                        "k": rng.choice([8, 40, 64, 77, 128, 200, 320, 456, 520, 600, 712])}
        if self.batch == 3:
            self.extents = {name: min(extent, 136) for name, extent in self.extents.items()}
        # Most operands of models are aligned.
        if rng.random() < 0.75:
            self.extents = {name: -(-extent // 8) * 8 for name, extent in self.extents.items()}
        self.static = rng.choice(["", "nk", "nk", "k", "mnk"])
        # Operands are parts of larger tensors: all but the last rows, or all but the last steps of k.
        self.part = rng.choice(["", "", "", "rows", "k"])
        # Columns that a residual has more than the result: its rows may be unaligned.
        self.more = rng.choice([0, 3])
        self.init = rng.choice(["zero", "zero", "bias", "argument"])
        self.epilogue = rng.choice([*EPILOGUES])
        self.results = rng.choice(["narrow", "narrow", "wide", "both", "sum"])
        self.values = rng.randint(1, 10**6)
        self.arithmetic = "hardware" if self.seed % 3 == 2 else "rounded"
        # An operand without the dimension of the batch, and one that is a constant.
        self.shared = rng.choice(["", "", "a", "b"]) if self.batch else ""
        self.constant = rng.choice(["", "", "a", "b", "b"])
        if self.constant:
            self.extents = {name: min(extent, 264) for name, extent in self.extents.items()}
        # The GPU has fewer multiprocessors than tiles, or more.
        self.multiprocessors = rng.choice([1, 1000])
        self.families = self.expected_families()

    def expected_families(self):
        """Which kernels may run, by the alignment of rows, the bounds of a tile, and the number of tiles."""
        contiguous = [self.tensor_extents(order)[order[-1]] for order in (self.lhs, self.rhs)]
        is_aligned = all(extent % 8 == 0 for extent in contiguous)
        # Extents of a constant are static. If the batch has one RHS, its rows are those of one matmul.
        static = {*self.static, *self.operands.get(self.constant, "")}
        is_flat = self.shared == "b"
        rows = self.extents["m"] * (self.batch if is_flat else 1)
        is_small = "n" in static and self.extents["n"] < 32
        has_static_rows = "m" in static and (not is_flat or (self.constant == "a" and self.is_batched("a")))
        if has_static_rows:
            is_small |= rows < 33
        # A part of k ends within a stage, and only the run time knows that the part has the whole batch of the constant.
        is_part = self.part == "k" and self.constant == "b" and self.is_batched("a") and self.is_batched("b")
        if is_part and self.extents["k"] % 64:
            return ["sm_80, matmul"]
        if not is_aligned or is_small:
            return ["sm_80, matmul"]
        if self.multiprocessors == 1:
            return ["sm_90a, matmul"]
        # Tiles of static rows may be single parts, and their number may be static.
        return ["sm_90a, matmul in parts", *(["sm_90a, matmul"] if has_static_rows else [])]

    @property
    def features(self):
        # Vectors of four elements fit, those of eight do not.
        halves = f"halves of vectors {self.extents['n'] % 8 == 4 and self.results in ('wide', 'sum')}"
        unaligned = f"unaligned {self.more > 0 and 'residual' in self.reads}"
        names = ("type", "lhs", "rhs", "batch", "shared", "constant", "static", "part", "init", "epilogue", "results",
                 "arithmetic", "multiprocessors", "families")
        sizes = [f"{name} {'partial' if extent % 64 else 'whole'} {'small' if extent < 64 else ''}"
                 for name, extent in self.extents.items()]
        return [f"{name} {getattr(self, name)}" for name in names] + [*sizes, unaligned, halves]

    #===--- Shapes ---===#

    def tensor_extents(self, order):
        """The extents of the tensor of which an operand with these dimensions is a part."""
        more = {"": "", "rows": order.replace("k", ""), "k": "k"}[self.part]
        return {name: self.extents[name] + (24 if name in more else 0) for name in order}

    def type_of(self, extents, element=None, is_batched=True):
        sizes = [str(extent) if name in self.static else "?" for name, extent in extents.items()]
        return f"tensor<{'x'.join(['?'] * (is_batched and self.batch > 0) + sizes)}x{element or self.type}>"

    def is_batched(self, operand):
        return self.batch > 0 and operand != self.shared

    def constant_value(self, shape):
        """The text of a constant: multiples of 1/64 in [-1, 1]."""
        values = np.random.default_rng(self.values).integers(-64, 65, shape) / 64
        bits = values.astype(np.float16).view(np.uint16) if self.type == "f16" else values.astype(np.float32).view(np.uint32) >> 16
        return f'dense<"0x{bits.astype("<u2").tobytes().hex()}"> : tensor<{"x".join(map(str, shape))}x{self.type}>'

    @property
    def reads(self):
        """The tensors of the epilogue and the initialization, with the names of their dimensions."""
        needed = EPILOGUES[self.epilogue][0] | ({"bias"} if self.init == "bias" else set())
        return {name: order for name, order in {"bias": "n", "rows": "m", "residual": "mn"}.items() if name in needed}

    def read_extents(self, name, order):
        more = self.more if name == "residual" else 0
        return {dim: self.extents[dim] + (more if dim == "n" else 0) for dim in order}

    @property
    def operands(self):
        return {"a": self.lhs, "b": self.rhs}

    def operand_shape(self, name, order):
        return [self.batch] * self.is_batched(name) + [*self.tensor_extents(order).values()]

    def arguments(self):
        """What saccade-run takes."""
        shapes = [self.operand_shape(name, order) for name, order in self.operands.items() if name != self.constant]
        types = [self.type for _ in shapes]
        for name, order in self.reads.items():
            shapes.append(list(self.read_extents(name, order).values()))
            types.append(self.type)
        if self.init == "argument":
            shapes.append([self.batch] * (self.batch > 0) + [self.extents["m"], self.extents["n"]])
            types.append("f32")
        return [f"--arg={'x'.join(map(str, shape))}:{element}:{self.values + i}"
                for i, (shape, element) in enumerate(zip(shapes, types, strict=True))]

    #===--- The program ---===#

    def program(self):
        loops = ("b, " if self.batch else "") + "m, n, k"
        outer = "b, " if self.batch else ""
        result, wide = {name: self.extents[name] for name in "mn"}, "f32"
        sum_type, text = self.type_of(result, wide), []
        operands = self.operands
        whole_of = {name: self.type_of(self.tensor_extents(order), is_batched=self.is_batched(name)) for name, order in operands.items()}
        arguments = [f"%{name}_: {whole_of[name]}" for name in operands if name != self.constant]
        arguments += [f"%{name}{'_' * (name == 'residual')}: {self.type_of(self.read_extents(name, order), is_batched=False)}"
                      for name, order in self.reads.items()]
        if self.init == "argument":
            arguments.append(f"%before: {sum_type}")
        for name in {self.constant} & {*operands}:
            value = self.constant_value(self.operand_shape(name, operands[name]))
            text += [f"%{name}_value = arith.constant {value}",
                     f"%{name}_ = tensor.cast %{name}_value : {value.split(' : ')[1]} to {whole_of[name]}"]
        # Extents of the parts.
        for name, order in operands.items():
            whole = whole_of[name]
            for at, dim in enumerate(order):
                text += [f"%{name}_at_{dim} = arith.constant {at + self.is_batched(name)} : index",
                         f"%{name}_whole_{dim} = tensor.dim %{name}_, %{name}_at_{dim} : {whole}",
                         f"%{name}_less_{dim} = arith.constant {self.tensor_extents(order)[dim] - self.extents[dim]} : index",
                         f"%{name}_{dim} = arith.subi %{name}_whole_{dim}, %{name}_less_{dim} : index"]
        if self.batch:
            name = "b" if self.shared == "a" else "a"
            text += ["%zero = arith.constant 0 : index", f"%batch = tensor.dim %{name}_, %zero : {whole_of[name]}"]
        size = lambda name, dim: str(self.extents[dim]) if dim in self.static else f"%{name}_{dim}"
        for name, order in operands.items():
            part, whole = self.type_of({x: self.extents[x] for x in order}, is_batched=self.is_batched(name)), whole_of[name]
            if self.part:
                lists = [["0"] * len(order), [size(name, dim) for dim in order], ["1"] * len(order)]
                if self.is_batched(name):
                    lists = [[first, *rest] for first, rest in zip(("0", "%batch", "1"), lists, strict=True)]
                text.append(f"%{name} = tensor.extract_slice %{name}_{''.join('[' + ', '.join(x) + '] ' for x in lists)}: {whole} to {part}")
            else:
                text.append(f"%{name} = tensor.cast %{name}_ : {whole} to {part}")
        if "residual" in self.reads:
            whole, part = (self.type_of(extents, is_batched=False) for extents in (self.read_extents("residual", "mn"), result))
            text.append(f"%residual = tensor.extract_slice %residual_[0, 0] [{size('a', 'm')}, {size('b', 'n')}] [1, 1] : {whole} to {part}")
        dynamic = ", ".join((["%batch"] if self.batch else []) + [size(name, dim) for name, dim in (("a", "m"), ("b", "n"))
                                                                  if dim not in self.static])
        text += ["%none = arith.constant 0.0 : f32"]
        text += [f"%empty{i} = tensor.empty({dynamic}) : {self.type_of(result, element)}" for i, element in enumerate((wide, self.type))]
        # What the sums are added to.
        spaces = ["parallel"] * (2 + (self.batch > 0))
        of_result = f"affine_map<({outer}m, n) -> ({outer}m, n)>"
        read_map = lambda dims: f"affine_map<({outer}m, n) -> ({', '.join(dims)})>"
        iterators = lambda kinds: "[" + ", ".join(f'"{kind}"' for kind in kinds) + "]"
        narrow = self.type
        if self.init == "zero":
            text.append(f"%init = linalg.fill ins(%none : f32) outs(%empty0 : {sum_type}) -> {sum_type}")
        elif self.init == "argument":
            text.append(f"%init = tensor.cast %before : {sum_type} to {sum_type}")
        else:
            bias = self.type_of({"n": self.extents["n"]}, is_batched=False)
            text.append(f"""%init = linalg.generic {{indexing_maps = [{read_map('n')}, {of_result}], iterator_types = {iterators(spaces)}}}
      ins(%bias : {bias}) outs(%empty0 : {sum_type}) {{
    ^bb0(%x: {narrow}, %o: f32):
      %xf = arith.extf %x : {narrow} to f32
      linalg.yield %xf : f32
  }} -> {sum_type}""")
        outer_of = {name: outer if self.is_batched(name) else "" for name in operands}
        maps = ", ".join([f"affine_map<({loops}) -> ({outer_of[name]}{', '.join(order)})>" for name, order in operands.items()]
                         + [f"affine_map<({loops}) -> ({outer}m, n)>"])
        types = ", ".join(self.type_of({x: self.extents[x] for x in order}, is_batched=self.is_batched(name)) for name, order in operands.items())
        text.append(f"""%sum = linalg.generic {{indexing_maps = [{maps}], iterator_types = {iterators([*spaces, 'reduction'])}}}
      ins(%a, %b : {types}) outs(%init : {sum_type}) {{
    ^bb0(%x: {narrow}, %y: {narrow}, %s: f32):
      %xf = arith.extf %x : {narrow} to f32
      %yf = arith.extf %y : {narrow} to f32
      %p = arith.mulf %xf, %yf : f32
      %t = arith.addf %s, %p : f32
      linalg.yield %t : f32
  }} -> {sum_type}""")
        if self.results == "sum":
            return self.function(arguments, [sum_type], text, ["%sum"])
        # The epilogue.
        names = {"bias": "x", "rows": "y", "residual": "z"}
        reads = {name: order for name, order in self.reads.items() if name in EPILOGUES[self.epilogue][0]}
        extensions = "".join(f"%{names[name]}f = arith.extf %{names[name]} : {narrow} to f32\n      " for name in reads)
        outputs = {"narrow": [narrow], "wide": [wide], "both": [narrow, wide]}[self.results]
        output_types = [self.type_of(result, element) for element in outputs]
        inputs = ["%sum"] + [f"%{name}" for name in reads]
        input_types = [sum_type] + [self.type_of({x: self.extents[x] for x in order}, is_batched=False) for order in reads.values()]
        maps = ", ".join([of_result] + [read_map(order) for order in reads.values()] + [of_result] * len(outputs))
        block = ", ".join(["%s: f32"] + [f"%{names[name]}: {narrow}" for name in reads] + [f"%o{i}: {x}" for i, x in enumerate(outputs)])
        body = EPILOGUES[self.epilogue][1]
        if self.batch:
            body = body.replace("linalg.index 1", "linalg.index 2").replace("linalg.index 0", "linalg.index 1")
        last = f"%rounded = arith.truncf %r : f32 to {narrow}\n      " if narrow in outputs else ""
        yields = ", ".join("%rounded" if element == narrow else "%r" for element in outputs)
        empties = ", ".join("%empty1" if element == narrow else "%empty0" for element in outputs)
        values = [f"%out#{i}" if len(outputs) > 1 else "%out" for i in range(len(outputs))]
        count = f":{len(outputs)}" if len(outputs) > 1 else ""
        returned = output_types[0] if len(outputs) == 1 else f"({', '.join(output_types)})"
        text.append(f"""%out{count} = linalg.generic {{indexing_maps = [{maps}], iterator_types = {iterators(spaces)}}}
      ins({', '.join(inputs)} : {', '.join(input_types)}) outs({empties} : {', '.join(output_types)}) {{
    ^bb0({block}):
      {extensions}{body}
      {last}linalg.yield {yields} : {', '.join(outputs)}
  }} -> {returned}""")
        return self.function(arguments, output_types, text, values)

    def function(self, arguments, types, text, values):
        returned = types[0] if len(types) == 1 else f"({', '.join(types)})"
        return (f"func.func @matmul({', '.join(arguments)}) -> {returned} {{\n  " + "\n  ".join(text)
                + f"\n  return {', '.join(values)} : {', '.join(types)}\n}}\n")  # fmt: skip


def run(case, folder, keep):
    """The text of the failure of a case, or None."""
    program = folder / f"case-{case.seed}.mlir"
    program.write_text(case.program())
    line = ["saccade-run", "--device=ptxsim", f"--target={case.target}", f"--arithmetic={case.arithmetic}", str(program),
            "--check", "--explain", f"--multiprocessors={case.multiprocessors}", *case.arguments()]
    code, output = execute(line)
    if code == 0 and (case.target != "sm_90a" or any(f"kernel family {each}, ran" in output for each in case.families)):
        return None
    keep.mkdir(parents=True, exist_ok=True)
    kept = keep / program.name
    kept.write_text(case.program())
    shown = "\n".join(f"    {text}" for text in output.strip().split("\n")[-6:])
    return (f"FAIL matmul_cases.py --seed {case.seed}: exit code {code}, expected family {' or '.join(case.families)}\n{shown}\n"
            f"    {shlex.join(line).replace(str(program), str(kept))}")


def main():
    args = case_options(__doc__, count=400).parse_args()
    return run_cases(args, Case, lambda case, folder: run(case, folder, args.keep))


if __name__ == "__main__":
    sys.exit(main())
