#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --first-seed 0 --count 600 --cover 30
# Two rows have keys that compete, and plain evaluation is accurate there by chance.
# RUN: %python %s --seed 52019 --run "saccade-run --threads=2 --target=v3"
"""Random attention programs against the float64 reference.

Usage: random_graphs.py [--split-kv] [--qk-type] [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--parse-only]
                        [--run "saccade-run ..."] [--allow-refusal WORDS]
The seed determines the program. After a failure, the module and its arguments are written to the folder --keep, and
the command that reproduces it is printed. --parse-only shows that the programs are well formed and runs none.
"""

import pathlib
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from attention_graph import Graph
from seeds import chosen_seeds, print_coverage, seed_options

NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.float32, "i1": np.bool_, "i8": np.int8,
         "i32": np.int32, "i64": np.int64, "index": np.int64}  # fmt: skip


def write(graph, folder):
    """Writes module and arguments into the folder and returns the arguments of saccade-run."""
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "graph.mlir"
    module.write_text(graph.text)
    line = [str(module)]
    for i, argument in enumerate(graph.arguments):
        if np.isscalar(argument.values):
            line.append(f"--arg={argument.values}")
            continue
        file = folder / f"{i}.npy"
        # Beyond a length there are numbers that no small type holds.
        with np.errstate(over="ignore"):
            np.save(file, argument.values.astype(NUMPY[argument.element]))
        line.append(f"--arg={file}:{argument.element}")
    return line


def run(graph, command, folder, keep, again, refusal=None):
    """Runs one graph; the text of its failure, or None. `again` are the options that make the graph of a seed. A
    program that is refused with the words `refusal` is none."""
    seed = graph.seed
    # Every second program runs on memory that begins at a page without access, the others on memory that ends at one.
    guard = f"--guard={'begin' if seed % 2 else 'end'}"
    line = [*command, *write(graph, folder), "--check", guard]
    try:
        result = subprocess.run(line, capture_output=True, text=True, timeout=120)
        code, output = result.returncode, result.stdout + result.stderr
    except subprocess.TimeoutExpired:
        code, output = "no", "still running after 120 s"
    if code == 0:
        return graph, None
    if code == 1 and refusal and refusal in output:
        graph.features = {"refused"}
        return graph, None
    kept = [*command, *write(graph, keep / f"graph-{seed}"), "--check", guard]
    lines = output.strip().split("\n")
    # An error may have further lines, such as those that a runner has printed.
    told = [text for text in lines if "check result" in text] if code == 5 else lines[-10:]
    shown = "\n".join(f"    {text}" for text in told[:10])
    told = f"FAIL test/Fuzz/random_graphs.py {again}--seed {seed}: exit code {code}"
    return graph, f"{told}\n{shown}\n    {shlex.join(kept)}"


def parse_all(graphs, opt):
    """One process checks that all of them are well formed."""
    text = "// -----\n".join(graph.text for graph in graphs)
    result = subprocess.run([*opt, "-split-input-file"], input=text, capture_output=True, text=True)
    print(result.stderr[:4000], end="")
    return result.returncode


def main():
    parser = seed_options(__doc__, count=300)
    parser.add_argument("--split-kv", action="store_true", help="one to nine queries a head")
    parser.add_argument("--qk-type", action="store_true", help="permit dot products of int8")
    parser.add_argument("--parse-only", action="store_true")
    parser.add_argument("--opt", default="saccade-opt")
    parser.add_argument("--run", default="saccade-run --threads=2")
    parser.add_argument("--allow-refusal", metavar="WORDS", help="ignore diagnostics with these words")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-graphs")
    args = parser.parse_args()

    def made(seed):
        return Graph(seed, args.split_kv, args.qk_type)

    seeds = chosen_seeds(args, lambda seed: made(seed).features)
    if args.seed is not None:
        print(made(args.seed).text)
    if args.parse_only:
        graphs = [made(seed) for seed in seeds]
        failures = parse_all(graphs, shlex.split(args.opt))
    else:
        command = shlex.split(args.run)
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as workers:
            again = ("--split-kv " if args.split_kv else "") + ("--qk-type " if args.qk_type else "")
            one = lambda seed: run(made(seed), command, pathlib.Path(folder) / str(seed), args.keep,
                                   again, args.allow_refusal)
            results = []
            for graph, failure in workers.map(one, seeds):
                results.append((graph, failure))
                if failure:
                    print(failure, flush=True)
        graphs = [graph for graph, _ in results]
        failures = sum(failure is not None for _, failure in results)
        refused = sum(graph.features == {"refused"} for graph in graphs)
        print(f"{len(results)} graphs, {failures} failures" + (f", {refused} refused" if refused else ""))
    if args.coverage:
        print_coverage(graph.features for graph in graphs)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
