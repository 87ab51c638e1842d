#!/usr/bin/env python3
# RUN: %python %s --count 600 --seed 1 %src/test/Dialect/Attn %src/examples
"""Malformed IR never crashes a tool: mutates the tokens of .mlir files and runs saccade-opt on the mutants.

Usage: mutate.py [--count N] [--seed S] [--tool "saccade-opt ..."] [--keep DIR] PATH...
PATH is a file or a folder. A diagnostic is fine, a signal (or exit code 70, a caught crash) is not: the mutant is then
written to DIR and the command that reproduces it is printed. The seed alone determines the mutant.
"""

import argparse
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

TOKEN = re.compile(r"//[^\n]*|\"[^\"\n]*\"|[%@#^!]?[\w.$-]+|->|::|\s+|.", re.S)
# Known crashes of LLVM 22 itself: ops whose parser dereferences null after its diagnostic
# (`permutation = [x]`), `array<index: 1>`, and scf.forall.in_parallel without its forall.
UPSTREAM_OPS = {b"linalg.broadcast", b"linalg.generic", b"linalg.transpose"}
UPSTREAM_FRAMES = rb"mlir::detail::Parser::parseDenseArrayAttr|mlir::scf::InParallelOp::verify"
SEPARATOR = "\n// -----\n"
NUMBERS = ["0", "-1", "1", "3", "64", "9223372036854775807", "18446744073709551616", "0.5", "1e999", "0x7FF0000000000000"]


def functions_of(text, start):
    """The functions of a module's text with the aliases that stand in front of all; `start` begins a function."""
    # Maps that are declared for the whole file belong to every function of it.
    aliases = "".join(re.findall(r"^#\w+ = .*\n", text, re.M))
    parts = re.split(rf"(?=^{start})", text, flags=re.M)
    return [aliases + part for part in parts if re.match(start, part)]


def read_sources(paths, tool):
    """The token lists of all functions in the files, as they are written and in generic form."""
    files = []
    for path in map(pathlib.Path, paths):
        files += sorted(path.glob("*.mlir")) if path.is_dir() else [path]
    sources = []
    for file in files:
        for text in re.split(r"^// -----.*$", file.read_text(), flags=re.M):
            sources += functions_of(text, "func[.]func")
        generic = subprocess.run([*tool, "-mlir-print-op-generic", file], capture_output=True, text=True).stdout
        for text in re.split(r"^// -----.*$", generic, flags=re.M):
            # Behind the last function the module ends.
            sources += functions_of(re.sub(r"^}\) : .*", "", text, flags=re.M), '  "func[.]func"')
    return [TOKEN.findall(source) for source in sources]


def mutate(rng, sources, pool):
    """One module with one to four tokens' worth of damage."""
    tokens = list(rng.choice(sources))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not tokens:
            break
        at = rng.randrange(len(tokens))
        kind = rng.randrange(9)
        if kind == 0:  # truncate
            tokens = tokens[:at]
        elif kind == 1:  # delete a token, or a run of them
            del tokens[at : at + rng.choice([1, 1, 2, 5, 20])]
        elif kind == 2:  # say a run twice
            tokens[at:at] = tokens[at : at + rng.choice([1, 2, 5, 20])]
        elif kind == 3:  # swap two
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 4:  # a number where a number stands, else any word
            numbers = [i for i, token in enumerate(tokens) if re.fullmatch(r"-?\d[\d.]*", token)]
            tokens[rng.choice(numbers) if numbers else at] = rng.choice(NUMBERS)
        elif kind == 5:  # a token of another file
            tokens[at] = rng.choice(pool)
        elif kind == 6:
            tokens.insert(at, rng.choice(pool))
        elif kind == 7:  # another type
            types = [i for i, token in enumerate(tokens) if re.search(r"(f16|bf16|f32|f64|i1|i32|index)$", token)]
            if types:
                i = rng.choice(types)
                tokens[i] = re.sub(
                    r"(bf16|f16|f32|f64|i1|i32|index)$",
                    rng.choice(["f16", "bf16", "f32", "f64", "i1", "i32", "index", "i8", "none"]),
                    tokens[i],
                )
        else:  # another value
            values = [i for i, token in enumerate(tokens) if token.startswith("%")]
            if values:
                tokens[rng.choice(values)] = tokens[rng.choice(values)]
    # The separator would make two modules of one.
    return "".join(tokens).replace("// -----", "// ----")


def crashed(tool, text):
    """Whether the tool ends by a signal, by a caught crash (70) or not at all: "ours", "upstream" or None."""
    try:
        result = subprocess.run(tool, input=text.encode(), capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "ours"
    if result.returncode >= 0 and result.returncode != 70 and result.returncode < 128:
        return None
    parsers = re.findall(rb"custom op parser '([\w.]+)'", result.stderr)
    known = re.search(UPSTREAM_FRAMES, result.stderr) or set(parsers[-1:]) & UPSTREAM_OPS
    return "upstream" if known else "ours"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="print the mutant of this seed and stop")
    parser.add_argument("--tool", default="saccade-opt -split-input-file -allow-unregistered-dialect --canonicalize")
    parser.add_argument("--keep", default=tempfile.gettempdir(), help="folder for mutants that crash the tool")
    args = parser.parse_args()

    tool = shlex.split(args.tool)
    sources = read_sources(args.paths, tool)
    pool = sorted({token for tokens in sources for token in tokens})
    make = lambda seed: mutate(random.Random(seed), sources, pool)
    if args.only is not None:
        print(make(args.only))
        return 0

    seeds = range(args.seed * 1000003, args.seed * 1000003 + args.count)
    batches = [seeds[i : i + 40] for i in range(0, len(seeds), 40)]
    failures, upstream = [], []

    def run(batch):
        # Forty modules in one process; only where that crashes, one by one.
        if crashed(tool, SEPARATOR.join(map(make, batch))):
            for seed in batch:
                blame = crashed(tool, make(seed))
                if blame:
                    (failures if blame == "ours" else upstream).append(seed)

    with ThreadPoolExecutor(2) as workers:
        list(workers.map(run, batches))
    for seed in failures:
        file = pathlib.Path(args.keep) / f"mutant-{seed}.mlir"
        file.write_text(make(seed))
        print(f"crash: {shlex.join(tool)} {file}    # mutate.py --only {seed} {shlex.join(args.paths)}")
    print(f"{len(seeds)} mutants of {len(sources)} functions: {len(failures)} crashes, "
          f"and {len(upstream)} known ones of LLVM")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
