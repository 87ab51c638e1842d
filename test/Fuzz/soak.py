#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s 0 --build %build --first-seed 1
"""Long random tests: runs the fuzzers with fresh seeds until the time is up.

Usage: soak.py [MINUTES] --build DIR [--first-seed N] [--forms]. Prints failures with the command that reproduces them; the exit
code is 1 if there are any. With 0 minutes, the fuzzers run a few cases. --forms runs the programs of
docs/reference/forms.md alone and writes the page.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
INPUTS = [str(HERE.parent / "Dialect" / "Attn"), str(HERE.parents[1] / "examples")]
# What a round runs: the script, how its seed is called, how many seeds a round takes, and what else it needs.
FUZZERS = [
    ("random_graphs.py", "--first-seed", 200, ["--run=saccade-run --threads=2 --verify-each"]),
    ("random_graphs.py", "--first-seed", 100, ["--run=saccade-run --threads=2 --target=portable"]),
    ("random_graphs.py", "--first-seed", 40, ["--run=saccade-run --threads=2 --target=v4-expanded"]),
    ("random_graphs.py", "--first-seed", 40, ["--run=saccade-run --threads=2 --target=v4-bf16-expanded"]),
    ("random_graphs.py", "--first-seed", 40, ["--run=saccade-run --threads=2 --target=v4-amx-expanded"]),
    ("structured_graphs.py", "--first-seed", 40, []),
    ("inserted_passes.py", "--first-seed", 60, ["--build=BUILD"]),
    ("inserted_passes.py", "--first-seed", 20, ["--build=BUILD", "--run=saccade-run --device=ptxsim"]),
    ("random_calls.py", "--first-seed", 100, []),
    ("stats_calls.py", "--first-seed", 500, []),
    # A round has 1,000 calls of ten recurrences.
    ("linear_calls.py", "--first-seed", 1000, ["--calls-of-a-form=10"]),
    ("linear_calls.py", "--first-seed", 150, ["--gradients", "--calls-of-a-form=3"]),
    ("linear_calls.py", "--first-seed", 60, ["--tangents", "--calls-of-a-form=3"]),
    ("wrong_arguments.py", "--first-seed", 1000, []),
    ("serving_traces.py", "--first-seed", 1000, []),
    ("reproducible_calls.py", "--first-seed", 1000, []),
    ("appended_rows.py", "--first-seed", 1000, []),
    ("jax_calls.py", "--first-seed", 160, []),
    ("jax_calls.py", "--first-seed", 100, ["--values=200"]),
    # Ten rounds are 20,000 calls of each drop-in.
    ("sdpa_calls.py", "--first-seed", 2000, []),
    ("flex_calls.py", "--first-seed", 70, []),
    ("flex_calls.py", "--first-seed", 2000, ["--random"]),
    ("module_calls.py", "--first-seed", 2000, []),
    ("gradient_calls.py", "--first-seed", 60, []),
    ("open_modules.py", "--first-seed", 200, []),
    ("onnx_models.py", "--first-seed", 10000, []),
    ("onnx_calls.py", "--first-seed", 3200, []),  # eight calls of three quarters of the nodes
    ("onnx_runtime_calls.py", "--first-seed", 500, []),
    ("model_calls.py", "--first-seed", 100, []),
    ("model_types.py", "--first-seed", 40, []),
    ("frontend_operators.py", "--first-seed", 20, ["--build=BUILD"]),
    ("mutate.py", "--seed", 2000, INPUTS),
    ("disk_cache.py", "--seed", 200, ["--processes=16", "--kills=400"]),
    ("raising_near_misses.py", "--first-seed", 10000, ["--build=BUILD"]),
    ("random_graphs.py", "--first-seed", 100, ["--run=saccade-run --device=ptxsim --verify-each", "--allow-refusal=GPU"]),
    ("../Execution/GPU/forward_cases.py", "--first-seed", 320, ["--expect-tensor-cores"]),
    ("../Execution/GPU/forward_cases.py", "--first-seed", 320, ["--expect-tensor-cores", "--target=sm_90a"]),
    # A fixed seed: equivalent mutants are not failures of the simulator.
    ("../Execution/GPU/mutants.py", "--seed", 15, ["--seed=1"]),
]
CALLS_OF_TORCH = ("random_calls.py", "stats_calls.py", "linear_calls.py", "wrong_arguments.py", "sdpa_calls.py", "flex_calls.py",
                  "module_calls.py", "gradient_calls.py", "open_modules.py", "reproducible_calls.py")
CALLS_OF_TRANSFORMERS = ("model_calls.py", "model_types.py")
# Scripts that need several seconds before their first case; left out of a short run, since each is a test of its own.
SLOW_TO_START = {"disk_cache.py", "frontend_operators.py", "raising_near_misses.py", "../Execution/GPU/mutants.py",
                 "linear_calls.py", "model_calls.py", "model_types.py", "jax_calls.py", "open_modules.py"}
# Unit tests that compare the claims of analyses with evaluation, on random regions, programs and calls.
CLAIMS = [
    ("AttnAnalysisTests", "MaskBoxTest.*"),
    ("AnalysisClaimsTests", "*"),
    ("RaiseClaimsTests", "*"),
    ("ShapeClaimsTests", "*"),
    ("RuntimeTests", "AliasClaims.*"),
]

# What is slow: the script, how its seed is called, and what else it needs; left out of a short run.
FULL_SIZES = [
    ("../Execution/blocks.py", "--seed", ["--full"]),
    ("form_table.py", "--first-seed", ["--count=2000"]),
    ("../Python/Inputs/distributed_attention.py", "--seed", ["--all"]),
    ("../Python/Inputs/distributed_gradients.py", "--seed", ["--all"]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree whose tools are tested")
    parser.add_argument("minutes", type=float, nargs="?", default=30)
    parser.add_argument("--forms", action="store_true", help="run the programs of docs/reference/forms.md, write the page")
    parser.add_argument("--first-seed", type=int, default=int(time.time()) * 1000, help="default: the time of day")
    args = parser.parse_args()
    build = args.build.resolve()
    variables = {**os.environ, "PATH": os.pathsep.join([str(build / "bin"), os.environ["PATH"]]),
                 "PYTHONPATH": str(build / "python"), "SACCADE_CACHE": "0"}
    if args.forms:
        return subprocess.run([sys.executable, str(HERE / "form_table.py"), "--all", "--page"], env=variables).returncode
    fuzzers = FUZZERS
    if importlib.util.find_spec("torch") is None:
        print(f"{', '.join(CALLS_OF_TORCH)} are left out: they need torch", flush=True)
        fuzzers = [fuzzer for fuzzer in FUZZERS if fuzzer[0] not in CALLS_OF_TORCH]
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        print(f"{', '.join(CALLS_OF_TRANSFORMERS)} are left out: they need transformers", flush=True)
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer[0] not in CALLS_OF_TRANSFORMERS]
    if importlib.util.find_spec("jax") is None:
        print("jax_calls.py is left out: it needs jax", flush=True)
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer[0] != "jax_calls.py"]
    if importlib.util.find_spec("onnx") is None:
        print("onnx_models.py and onnx_calls.py are left out: they need onnx", flush=True)
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer[0] not in ("onnx_models.py", "onnx_calls.py")]
    if not all(importlib.util.find_spec(each) for each in ("onnx", "onnxruntime")):
        print("onnx_runtime_calls.py is left out: it needs onnx and onnxruntime", flush=True)
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer[0] != "onnx_runtime_calls.py"]
    if not all(importlib.util.find_spec(each) for each in ("torch", "onnx", "jax")):
        print("frontend_operators.py is left out: it needs torch, onnx and jax", flush=True)
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer[0] != "frontend_operators.py"]
    if not args.minutes:
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer[0] not in SLOW_TO_START]
    deadline = time.monotonic() + 60 * args.minutes
    seed, rounds, failed = args.first_seed, 0, 0
    print(f"first seed {seed}", flush=True)
    while rounds == 0 or time.monotonic() < deadline:
        for script, seed_name, count, others in fuzzers:
            count = count if args.minutes else max(count // 200, 2)
            line = [sys.executable, str(HERE / script), f"{seed_name}={seed}", f"--count={count}",
                    *(other.replace("BUILD", str(build)) for other in others)]
            result = subprocess.run(line, capture_output=True, text=True, env=variables)
            if result.returncode != 0:
                failed += 1
                print(result.stdout + result.stderr, flush=True)
        for script, seed_name, others in FULL_SIZES if args.minutes else []:
            line = [sys.executable, str(HERE / script), f"{seed_name}={seed}", *others]
            result = subprocess.run(line, capture_output=True, text=True, env=variables)
            if result.returncode != 0:
                failed += 1
                print(f"{script} {seed_name} {seed}\n{result.stdout}{result.stderr}", flush=True)
        regions = 20000 if args.minutes else 50
        named = {"SACCADE_REGIONS": str(regions), "SACCADE_SEED": str(seed)}
        for tests, selected in CLAIMS:
            line = [str(build / "test" / "Unit" / tests), f"--gtest_filter={selected}"]
            result = subprocess.run(line, capture_output=True, text=True, env={**variables, **named})
            if result.returncode != 0:
                failed += 1
                print(result.stdout + result.stderr, *[f"{name}={value}" for name, value in named.items()], *line, flush=True)
        seed += 20000
        rounds += 1
        if sys.stdout.isatty():
            left = max(0, deadline - time.monotonic()) / 60
            print(f"\r{rounds} rounds, {failed} with failures, {left:.0f} minutes left ", end="", flush=True)
    print(f"\n{rounds} rounds from seed {args.first_seed}, {failed} with failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
