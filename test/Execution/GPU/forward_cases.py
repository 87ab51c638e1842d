#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --first-seed 0 --count 320 --cover 12 --expect-tensor-cores
# Truncated scores in a tally, and approximate functions in few keys.
# RUN: %python %s --target sm_80 --seed 227
# RUN: %python %s --target sm_80 --seed 1040
# A weight region needs a second pass over merged states, which have more rows than queries.
# RUN: %python %s --target sm_90a --seed 1
# RUN: %python %s --target sm_90a --first-seed 0 --count 320 --cover 5 --expect-tensor-cores
# RUN: %python %s --target sm_90a --family sm_90a --first-seed 0 --count 1200 --cover 10 --expect-tensor-cores
"""Random forward attention on the GPU simulator, or on a CPU, against the float64 reference.

Usage: forward_cases.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--target NAME]
                        [--family NAME] [--expect-tensor-cores] [--run "saccade-run ..."]

The seed determines element types, head dimensions, masks, grouped heads, odd lengths, score and weight regions, layouts, pages, results,
targets, the multiprocessors and the arithmetic of the simulator (every third case is as inexact as hardware may be). saccade-run makes every
call twice, with asynchronous copies completing as late and as early as legal. --target compiles all cases for one target; --family runs the
cases of one kernel family only, in pages or not. --expect-tensor-cores also checks the kernel family: tensor cores for f16 and bf16 on sm_80,
warpgroups on sm_90a if the attention is of the plain kind, also with split-KV. --run names another command, for a CPU target.
"""

import dataclasses
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "Fuzz" / "Inputs"))
import numpy as np
from seeds import chosen_seeds, print_coverage, seed_options

LAYOUTS = {"bhsd": "b,h,s,d", "bshd": "b,s,h,d", "bhds": "b,h,d,s"}
HEAD_SIZES = [(64, 64), (64, 64), (128, 128), (128, 128), (16, 16), (32, 32), (40, 40), (72, 72), (80, 80), (96, 96),
              (192, 128), (256, 256), (64, 40), (24, 96), (8, 8), (20, 12)]

# Query and key are of one document, by a captured tensor, which the test of tiles reads.
SAME_DOCUMENT = """mask(%b, %h, %i, %j, %ids) {
      %x = tensor.extract %ids[%i] : tensor<?xi32>
      %y = tensor.extract %ids[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
"""
MASKS = {
    "none": "",
    "top_left": "mask causal<top_left>",
    "bottom_right": "mask causal<bottom_right>",
    "shifted": "mask causal<5>",
    "window": "mask window<37, 21>",
    "causal window": "mask causal<bottom_right> mask window<50, *>",
    # Every third earlier key and the key itself: not expressible by bounds.
    "dilated": """mask causal<top_left> mask(%b, %h, %i, %j) {
      %three = arith.constant 3 : index
      %zero = arith.constant 0 : index
      %distance = arith.subi %i, %j : index
      %rest = arith.remsi %distance, %three : index
      %holds = arith.cmpi eq, %rest, %zero : index
      attn.yield %holds : i1
    }""",
    # A prefix of keys for all queries, else causal.
    "prefix": """mask(%b, %h, %i, %j) {
      %count = arith.constant 19 : index
      %early = arith.cmpi slt, %j, %count : index
      %before = arith.cmpi sle, %j, %i : index
      %holds = arith.ori %early, %before : i1
      attn.yield %holds : i1
    }""",
    "documents": SAME_DOCUMENT + """      attn.yield %same : i1
    }""",
    # The same, causal in odd heads only.
    "causal documents": SAME_DOCUMENT + """      %two = arith.constant 2 : index
      %zero = arith.constant 0 : index
      %rest = arith.remui %h, %two : index
      %even = arith.cmpi eq, %rest, %zero : index
      %early = arith.cmpi sle, %j, %i : index
      %allowed = arith.ori %early, %even : i1
      %holds = arith.andi %same, %allowed : i1
      attn.yield %holds : i1
    }""",
}

# Score and weight regions, each with the captures it reads.
REGIONS = {
    "none": ([], ""),
    "alibi": (["%slope : tensor<?xf32>"], """score(%s, %b, %h, %i, %j, %slopes) {
      %m = tensor.extract %slopes[%h] : tensor<?xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    }"""),
    "softcap": ([], """score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 5.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %r = arith.mulf %t, %cap : f32
      attn.yield %r : f32
    }"""),
    "bias": (["%table : tensor<?x?xf32>"], """score(%s, %b, %h, %i, %j, %t) {
      %x = tensor.extract %t[%i, %j] : tensor<?x?xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    }"""),
    "dropout": ([], """weight(%p, %b, %h, %i, %j) {
      %two = arith.constant 2 : index
      %zero = arith.constant 0 : index
      %none = arith.constant 0.0 : f32
      %sum = arith.addi %i, %j : index
      %rest = arith.remui %sum, %two : index
      %kept = arith.cmpi eq, %rest, %zero : index
      %r = arith.select %kept, %p, %none : f32
      attn.yield %r : f32
    }"""),
}

# Further clauses, with the types of their results.
EXTRAS = {
    "none": ("", []),
    "long": ("", []),
    "largest": ("max argmax", ["tensor<?x?x?xf32>", "tensor<?x?x?xi64>"]),
    # The sum of weights by key index mod 8, and the mean score.
    "tallies": ("""tally<8>(%s, %b, %h, %i, %j{captures}) {
      %eight = arith.constant 8 : index
      %one = arith.constant 1.0 : f32
      %bin = arith.remui %j, %eight : index
      attn.yield %bin, %one : index, f32
    } tally<1>(%s, %b, %h, %i, %j{captures}) {
      %bin = arith.constant 0 : index
      attn.yield %bin, %s : index, f32
    }""", ["tensor<?x?x?x8xf32>", "tensor<?x?x?x1xf32>"]),
    # A weight region that is not linear: it requires a second pass over the keys.
    "squared": ("""weight(%p, %b, %h, %i, %j{captures}) {
      %r = arith.mulf %p, %p : f32
      attn.yield %r : f32
    }""", []),
}


@dataclasses.dataclass
class Case:
    """A program with one call, for the target that the seed chooses or for another one."""

    seed: int
    only_target: str | None = None

    def __post_init__(self):
        rng = random.Random(self.seed)
        self.type = rng.choice(["bf16", "f16", "bf16", "f16", "bf16", "f16", "f32"])
        self.depth, self.value_depth = rng.choice(HEAD_SIZES)
        self.target = rng.choice(["sm_80"] * 5 + ["sm_75"])
        self.target = self.only_target or self.target
        self.portable = self.type == "f32" or self.target == "sm_75"
        self.layout = rng.choice(["bhsd", "bhsd", "bshd", "bhds"])
        self.mask = rng.choice(list(MASKS))
        self.reads_ids = "%ids" in MASKS[self.mask]
        self.region = rng.choice(list(REGIONS) + ["none"])
        self.lengths = rng.random() < 0.25
        self.lse = rng.random() < 0.3
        # States have other maxima with it.
        self.low = self.lse and random.Random(f"low {self.seed}").random() < 0.6
        self.group = rng.choice([1, 1, 2, 4])
        self.kv_heads = rng.choice([1, 1, 2])
        self.batch = rng.choice([1, 1, 2])
        max_size = 70 if self.portable or self.depth > 128 else 260
        self.queries = rng.choice([1, 7, 33, 70] if self.portable else [1, 7, 63, 64, 65, 128, 129, 200])
        self.queries = min(self.queries, max_size)
        self.keys = rng.choice([self.queries, self.queries, 1, 31, 32, 33, 64, 100, 127, rng.randint(1, max_size)])
        if self.group * self.kv_heads * self.batch * self.queries > 512:
            self.batch = self.kv_heads = 1
        self.values = rng.randint(1, 10**6)
        self.extra = rng.choice(["none", "none", *EXTRAS])
        if self.extra == "squared" and self.region == "dropout":
            self.extra = "none"
        # Split-KV tasks have 256 keys.
        is_cut = self.queries <= 16
        if self.extra == "long" and is_cut:
            self.keys = rng.randint(257, 700)
        self.arithmetic = "hardware" if self.seed % 3 == 2 else "rounded"
        # The SIMT kernel of split-KV has the other parts of a state, and the second pass.
        is_simt = self.portable or (is_cut and self.extra in ("largest", "tallies", "squared"))
        self.family = ("simt" if is_simt else "sm_80") + (", split-KV" if is_cut else "")
        if self.target == "sm_90a" and not is_simt and self.has_warpgroups:
            self.family = self.family.replace("sm_80", "sm_90a")
        # Stages of shared memory are used again after 160 (head size 256) to 512 keys.
        if self.family == "sm_90a" and rng.random() < 0.5:
            self.keys = rng.randint(200, 500) if self.depth > 128 else rng.randint(600, 1300)
            self.queries = min(self.queries, 129)
        self.draw_pages(rng)

    def draw_pages(self, rng):
        """Puts keys and values in pages, whose number of rows is known to the compiler or not."""
        self.page, self.is_page_static = None, rng.random() < 0.5
        if rng.random() < 0.7:
            return
        self.page = rng.choice([8, 16, 16, 24, 64, 128, 5])
        self.keys = -(-self.keys // self.page) * self.page
        if "sm_90a" in self.family and self.page % 8 != 0:
            # Without bulk copies, values deeper than 128 have kernels of another tile size, if the compiler knows it.
            self.is_page_static |= self.value_depth > 128
            self.family = self.family.replace("sm_90a", "sm_80")
        self.family += ", in pages"

    @property
    def has_warpgroups(self):
        """Whether bulk copies support the operands, and warpgroups the attention."""
        are_rows_aligned = self.layout != "bhds" and self.depth % 8 == 0 and self.value_depth % 8 == 0
        is_plain = self.extra not in ("tallies", "squared")
        return are_rows_aligned and is_plain

    @property
    def features(self):
        sizes = f"{self.depth}" if self.depth == self.value_depth else f"{self.depth}/{self.value_depth}"
        return [
            f"type {self.type}",
            f"head size {sizes}",
            f"target {self.target}",
            f"layout {self.layout}",
            f"mask {self.mask}",
            f"region {self.region}",
            f"group {self.group}",
            f"lengths {self.lengths}",
            f"extra {self.extra}",
            f"family {self.family}",
            f"log-sum-exp {self.lse + self.low}",
            f"arithmetic {self.arithmetic}",
            f"page {self.page}" if self.page else "no pages",
            *([f"static pages {self.is_page_static}"] if self.page else []),
        ]

    def shape(self, heads, positions, depth, batch=None):
        extents = {"b": batch or self.batch, "h": heads, "s": positions, "d": depth}
        return [extents[name] for name in self.layout]

    def pool(self, depth):
        """The type of the pages of keys or values."""
        extents = {"b": "?", "h": "?", "s": self.page if self.is_page_static else "?", "d": depth}
        return f"tensor<{'x'.join(str(extents[name]) for name in self.layout)}x{self.type}>"

    @property
    def pages(self):
        """The number of pages in the pool: three more than the page table names."""
        return self.batch * self.keys // self.page + 3

    @property
    def length(self):
        """The length of all sequences, if the call gives lengths."""
        return random.Random(self.values).randint(0, self.keys)

    def page_table(self):
        """Entries of positions after the last key are no pages."""
        rng = np.random.default_rng(self.values)
        table = rng.permutation(self.pages)[:-3].reshape(self.batch, -1).astype(np.int32)
        if self.lengths:
            table[:, -(-self.length // self.page):] = rng.choice([-7, 10**9])
        return table

    def tensor(self, depth):
        extents = ["?" if name != "d" else str(depth) for name in self.layout]
        return f"tensor<{'x'.join(extents)}x{self.type}>"

    def program(self):
        """The text of the module."""
        captures, region = REGIONS[self.region]
        depths = {"q": self.depth, "k": self.depth, "v": self.value_depth}
        arguments = [f"%{name}: {self.tensor(depth)}" for name, depth in depths.items()]
        if self.page:
            arguments[1:] = [f"%{name}_pages: {self.pool(depths[name])}" for name in "kv"] + ["%pages: tensor<?x?xi32>"]
        arguments += [capture.replace(" :", ":") for capture in captures]
        if self.lengths:
            arguments.append("%lengths: tensor<?xi32>")
        names = LAYOUTS[self.layout]
        extra, others = EXTRAS[self.extra]
        extra = extra.replace("{captures}", ", %unused" if captures else "")
        results = [self.tensor(self.value_depth)] + ["tensor<?x?x?xf32>"] * (self.lse + self.low) + others
        # Every region takes all captures.
        mask = MASKS[self.mask].replace("%j", "%j, %unused", 1) if captures else MASKS[self.mask]
        if self.reads_ids:
            arguments.append("%ids: tensor<?xi32>")
            captures = [*captures, "%ids : tensor<?xi32>"]
            region = region.replace(") {", ", %unused_ids) {", 1)
            extra = extra.replace(") {", ", %unused_ids) {")
        read, types = zip(*(capture.split(" : ") for capture in captures)) if captures else ((), ())
        clauses = [f"captures({', '.join(read)} : {', '.join(types)})" if captures else "",
                   "kv_len(%lengths : tensor<?xi32>)" if self.lengths else "", mask, region,
                   extra if self.extra != "largest" else "", "lse lse_low" if self.low else "lse" if self.lse else "",
                   extra if self.extra == "largest" else ""]
        operands = [self.tensor(depth) for depth in depths.values()]
        views = "".join(f"  %{name} = attn.paged %{name}_pages[{names}], %pages : {self.pool(depths[name])}, "
                        f"tensor<?x?xi32> -> {self.tensor(depths[name])}\n" for name in "kv") if self.page else ""
        values = ", ".join(f"%r{i}" for i in range(len(results)))
        returned = f"({', '.join(results)})" if len(results) > 1 else results[0]
        return (f"func.func @attend({', '.join(arguments)}) -> {returned} {{\n"
                + views + f"  {values} = attn.attention %q[{names}], %k[{names}], %v[{names}]\n"
                + "".join(f"    {clause}\n" for clause in clauses if clause)
                + f"    : ({', '.join(operands)}) -> {returned}\n"
                f"  return {values} : {', '.join(results)}\n}}\n")

    def arguments(self, folder):
        """What saccade-run takes."""
        heads = self.kv_heads * self.group
        shapes = [self.shape(heads, self.queries, self.depth), self.shape(self.kv_heads, self.keys, self.depth),
                  self.shape(self.kv_heads, self.keys, self.value_depth)]
        if self.page:
            shapes[1:] = [self.shape(self.kv_heads, self.page, depth, self.pages) for depth in (self.depth, self.value_depth)]
        line = [f"--arg={'x'.join(map(str, shape))}:{self.type}:{self.values + i}" for i, shape in enumerate(shapes)]
        if self.page:
            line.append(f"--arg={folder / f'table-{self.seed}.npy'}")
        if self.region == "alibi":
            line.append(f"--arg={heads}:f32:{self.values}")
        if self.region == "bias":
            line.append(f"--arg={self.queries}x{self.keys}:f32:{self.values}")
        if self.lengths:
            line.append(f"--arg={self.batch}:i32:={self.length}")
        if self.reads_ids:
            line.append(f"--arg={folder / f'ids-{self.seed}.npy'}")
        return line

    def write(self, folder):
        """Writes the program, the documents of the tokens and the page table to a folder; returns the path of the program."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.page:
            np.save(folder / f"table-{self.seed}.npy", self.page_table())
        if self.reads_ids:
            rng = np.random.default_rng(self.values)
            length = max(self.queries, self.keys)
            ids = np.cumsum(rng.random(length) < 1 / rng.integers(8, 120)).astype(np.int32)
            np.save(folder / f"ids-{self.seed}.npy", ids if self.seed % 2 else ids.max() - ids)
        program = folder / f"case-{self.seed}.mlir"
        program.write_text(self.program())
        return program


def execute(line):
    """Runs a command; its exit code, "no" if it does not end, and its output."""
    try:
        result = subprocess.run(line, capture_output=True, text=True, timeout=300)
        return result.returncode, result.stdout + result.stderr
    except subprocess.TimeoutExpired:
        return "no", "still running after 300 s"


def run(case, folder, keep, wants_family, command=None):
    """The text of the failure of a case, or None. `command` runs the program, by default on the simulator."""
    program = case.write(folder)
    command = command or ["saccade-run", "--device=ptxsim", f"--target={case.target}", f"--arithmetic={case.arithmetic}",
                          f"--multiprocessors={1 + case.seed % 4}"]
    line = [*command, str(program), "--check", "--explain", *case.arguments(folder)]
    code, output = execute(line)
    if code == 0 and (not wants_family or f"kernel family {case.family}, ran" in output):
        return None
    case.write(keep)
    line = [part.replace(str(folder), str(keep)) for part in line]
    shown = "\n".join(f"    {text}" for text in output.strip().split("\n")[-6:])
    return f"FAIL forward_cases.py --seed {case.seed}: exit code {code}\n{shown}\n    {shlex.join(line)}"


def case_options(doc, count):
    """A parser with the options of `seed_options`, the target of all cases, and the folder of those that fail."""
    parser = seed_options(doc, count)
    parser.add_argument("--target")
    parser.add_argument("--family", help="of the seeds, run only cases of this kernel family")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-cases")
    return parser


def run_cases(args, kind, run_one):
    """Runs the chosen cases, of class `kind`, by `run_one(case, folder)`, and prints failures; the exit code."""
    chosen = None
    if args.family:
        chosen = lambda seed: kind(seed, args.target).family.partition(", in pages")[0] == args.family
    seeds = chosen_seeds(args, lambda seed: kind(seed, args.target).features, chosen)
    cases = [kind(seed, args.target) for seed in seeds]
    if not cases:
        sys.exit(f"no case of the family {args.family}")
    if args.seed is not None:
        print(cases[0].program())
    failures = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as workers:
        for failure in workers.map(lambda case: run_one(case, pathlib.Path(folder)), cases):
            if failure:
                failures += 1
                print(failure, flush=True)
    print(f"{len(cases)} cases, {failures} failures")
    if args.coverage:
        print_coverage(case.features for case in cases)
    return 1 if failures else 0


def main():
    parser = case_options(__doc__, count=320)
    parser.add_argument("--expect-tensor-cores", action="store_true")
    parser.add_argument("--run", type=shlex.split, help="the command that runs a program, instead of the simulator's")
    args = parser.parse_args()
    return run_cases(args, Case, lambda case, folder: run(case, folder, args.keep, args.expect_tensor_cores, args.run))


if __name__ == "__main__":
    sys.exit(main())
