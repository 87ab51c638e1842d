#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --examples %src/examples --first-seed 0 --count 40 --cover 7
# RUN: %python %s --examples %src/examples --first-seed 1000 --count 8 --cover 2 --run "saccade-run --device=ptxsim --target=sm_80"
"""Random schedules as scripts of the transform dialect, against the float64 reference.

Usage: random_scripts.py --examples DIR [--first-seed N] [--count N] [--cover N] [--seed N] [--run "saccade-run ..."] [--keep DIR]
A seed is a program, an example or a random one, and a script: steps of the compiler or tiling by ops of MLIR, with random
tile sizes and orders. The program must agree with the reference as it does without the script; if no step changes the
order of sums, results of f32 and f64 have the same bits; exponentials of 16-bit results may have another accuracy. A
script may be refused for one of the reasons in REFUSALS. At least `--cover` scripts must run. A failure is kept, and its command is printed.
"""

import argparse
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from attention_graph import Graph
from random_graphs import write

REFUSALS = ("expected one head or whole groups", "is ragged, expected attn-tile-queries", "has more than one head",
            "has more than one batch", "is a tile of an unbounded number of queries", "tiles no dimension")  # fmt: skip
EXAMPLES = [
    ("soft-cap.mlir", "soft_cap", ["1x8x{q}x64:f32", "1x2x{k}x64:f32", "1x2x{k}x64:f32"]),
    ("alibi.mlir", "alibi", ["1x8x{q}x64:f32", "1x2x{k}x64:f32", "1x2x{k}x64:f32", "8:f32"]),
    ("causal.mlir", "bottom_right", ["2x2x{q}x64:f32", "2x2x{k}x64:f32", "2x2x{k}x64:f32"]),
    ("causal.mlir", "top_left", ["1x3x{q}x64:f32", "1x3x{k}x64:f32", "1x3x{k}x64:f32"]),
    ("flash-long.mlir", "one_long_head", ["1x1x{q}x64:f32", "1x1x{k}x64:f32", "1x1x{k}x64:f32"]),
]
FAMILIES = ['family = "simt"', 'family = "sm_80"', 'family = "sm_80" keys = 32']
ANY, TWO = "!transform.any_op", "(!transform.any_op) -> (!transform.any_op, !transform.any_op)"
HEAD = f"""module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%program: {ANY} {{transform.readonly}}) {{
"""
TAIL = "    transform.yield\n  }\n}\n"


def match(name):
    return f'    %ops = transform.structured.match ops{{["{name}"]}} in %program : ({ANY}) -> {ANY}\n'


def sequence(*lines):
    return HEAD + "".join(lines) + TAIL


class Script:
    """Scripts by the point where they run; `keeps_order`: the sums of every row are added in the same order."""

    def __init__(self, seed, is_for_gpu):
        rng = random.Random(seed)
        rows = rng.choice([32, 64, 128]) if is_for_gpu else 12 * rng.choice([1, 2, 3, 4, 8, 24])
        cols = rng.choice([16, 64, 96, 256, 1000])
        kind = rng.choice(["steps", "steps", "annotate", "upstream", "upstream"])
        self.keeps_order = kind != "upstream" and not is_for_gpu
        lines = [match("attn.attention")]
        if kind == "annotate":
            self.keeps_order = False
            lines += [f"    %sizes = transform.param.constant #attn.schedule<rows = {rows}, cols = {cols}> -> !transform.any_param\n",
                      f'    transform.annotate %ops "schedule" = %sizes : {ANY}, !transform.any_param\n']  # fmt: skip
        elif kind == "steps":
            if rng.random() < 0.5 and not is_for_gpu:
                lines.append(f"    transform.attn.tabulate_relative_positions %ops : {ANY}\n")
            lines.append(f"    %tiles, %tasks = transform.attn.tile_queries %ops rows = {rows} : {TWO}\n")
            lines += self.keys(rng, "%tiles", "", cols)
        else:
            heads = rng.choice([0, 1, 1, 2, 3, 4])
            batches = rng.choice([1, 1, 1, 0])
            lines.append(f"    %group, %tasks = transform.structured.tile_using_forall %ops tile_sizes "
                         f"[{batches}, {heads}, {rng.choice([0, 0, 2 * rows])}] : {TWO}\n")  # fmt: skip
            order = rng.choice(["", "interchange = [2, 1, 0] "])
            lines.append(f"    %tiles, %loops:3 = transform.structured.tile_using_for %group tile_sizes [1, 1, {rows}] "
                         f"{order}: ({ANY}) -> ({ANY}, {ANY}, {ANY}, {ANY})\n")  # fmt: skip
            lines += self.keys(rng, "%tiles", f"rows = {rows} ", cols, always=True)
            lines.append(f"    transform.bufferization.eliminate_empty_tensors %tasks : {ANY}\n")
        self.scripts = {"tiling": sequence(*lines)}
        if rng.random() < 0.4:
            self.scripts |= self.code(rng, is_for_gpu)

    def keys(self, rng, tiles, rows, cols, always=False):
        if rng.random() < 0.5:
            self.keeps_order = False
            return [f"    %keys = transform.attn.tile_keys {tiles} {rows}cols = {cols} : ({ANY}) -> {ANY}\n"]
        if always or rng.random() < 0.5:
            return [f"    %keys = transform.attn.tile_keys {tiles} {rows}: ({ANY}) -> {ANY}\n"]
        return []

    def code(self, rng, is_for_gpu):
        if not is_for_gpu:
            return {"codegen.vectors": sequence(match("attn.accumulate"), f"    transform.attn.lower_accumulate %ops : {ANY}\n")}
        tasks = f'    %tasks = transform.structured.match ops{{["func.func"]}} attributes {{attn.task}} in %program : ({ANY}) -> {ANY}\n'
        return {"codegen.kernels": sequence(
            tasks, f"    %kernels = transform.attn.map_to_gpu %tasks : ({ANY}) -> {ANY}\n",
            f'    transform.attn.lower_attention %kernels {rng.choice(FAMILIES)} : {ANY}\n')}  # fmt: skip

    def options(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for point, text in self.scripts.items():
            (folder / f"{point}.mlir").write_text(text)
        return [f"--transform-script={point}:{folder / point}.mlir" for point in self.scripts]


def program(seed, examples, folder):
    """The arguments of saccade-run for the program of a seed, and whether its results are f32 or f64."""
    if seed % 2:
        graph = Graph(seed, split_kv=seed % 5 == 0)
        return write(graph, folder), graph.element in ("f32", "f64")
    rng = random.Random(f"{seed} sizes")
    file, entry, shapes = rng.choice(EXAMPLES)
    sizes = {"q": rng.choice([1, 7, 48, 100, 130]), "k": rng.choice([1, 60, 130, 200])}
    arguments = [f"--arg={shape.format(**sizes)}:{seed + i}" for i, shape in enumerate(shapes)]
    return [str(examples / file), f"--entry={entry}", *arguments], True


def call(command, folder):
    file = folder / "out.npy"
    file.unlink(missing_ok=True)
    done = subprocess.run([*command, f"--out={file}"], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr, file.read_bytes() if file.exists() else b""


def run(seed, options, folder):
    """The result of a seed: "runs", "refused", "skipped", or the text of a failure."""
    command = shlex.split(options.run)
    is_for_gpu = "ptxsim" in options.run
    folder.mkdir(parents=True)
    line, is_wide = program(seed, options.examples, folder)
    line = [*command, *line, "--check"]
    script = Script(seed, is_for_gpu)
    before, _, expected = call(line, folder)
    if before:  # a limit of the target, or an inaccuracy that other tests are about
        return "skipped"
    after, text, found = call([*line, *script.options(folder)], folder)
    if after == 0 and (found == expected or not (script.keeps_order and is_wide)):
        return "runs"
    if after == 1 and any(reason in text for reason in REFUSALS):
        return "refused"
    kept = options.keep / f"script-{seed}"
    line = [*command, *program(seed, options.examples, kept)[0], "--check", *script.options(kept)]
    what = "the results have other bits" if after == 0 else f"exit code {after}: {text[-600:]}"
    return f"FAIL test/Fuzz/random_scripts.py --seed {seed}: {what}\n    {shlex.join(line)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--cover", type=int, default=0, help="the least number of scripts that must run")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--run", default="saccade-run --threads=2 --target=v3")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-scripts")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first_seed, options.first_seed + options.count)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as workers:
        done = list(workers.map(lambda seed: run(seed, options, pathlib.Path(folder) / str(seed)), seeds))
    failures = [each for each in done if each.startswith("FAIL")]
    print(*failures, sep="\n")
    print(f"{len(done)} scripts: {', '.join(f'{done.count(kind)} {kind}' for kind in ('runs', 'refused', 'skipped'))}, "
          f"{len(failures)} failures")  # fmt: skip
    return 1 if failures or done.count("runs") < options.cover else 0


if __name__ == "__main__":
    sys.exit(main())
