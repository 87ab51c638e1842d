"""ONNX's own node tests, run through `saccade.onnx.backend`: python -m saccade.onnx.conformance [--op OP ...]

The cases come with the package onnx, inputs and outputs. Each operator has a process, for the package gathers cases
in one
list. Prints a table with the cases that failed and why; exit code 1 where there are any.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import subprocess
import sys
import time
import warnings
from typing import Any

OPERATORS = {"Attention": 186, "FlexAttention": 22, "LinearAttention": 28, "RotaryEmbedding": 16}
"""The operators of attention, and how many cases the package has of each."""


@dataclasses.dataclass
class Outcome:
    """What became of a case."""

    case: str
    reason: str  # empty where it passed
    seconds: float
    raised: int | None = None  # attn ops in the imported program


def run_operator(operator: str, pattern: str = "", count_raised: bool = False) -> list[Outcome]:
    """Runs the cases of an operator whose names have `pattern` in them, in this process."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    outcomes = []
    for case in collect_testcases(operator):
        if pattern not in case.name:
            continue
        start = time.perf_counter()
        reason = _run(case)
        outcomes.append(Outcome(case.name, reason, time.perf_counter() - start,
                                _count_raised(case) if count_raised else None))
    return outcomes


def _run(case: Any) -> str:
    import numpy as np

    from saccade.onnx import backend

    try:
        model = backend.prepare(case.model)
        for inputs, wanted in case.data_sets:
            for i, (found, expected) in enumerate(zip(model.run(inputs), wanted, strict=True)):
                found, expected = np.asarray(found), np.asarray(expected)
                if found.dtype != expected.dtype or found.shape != expected.shape:
                    return (f"output {i} is {found.dtype}{list(found.shape)}, "
                            f"wanted {expected.dtype}{list(expected.shape)}")
                if not np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=_rtol(case, expected),
                                   atol=_atol(case, expected), equal_nan=True):
                    with np.errstate(invalid="ignore"):
                        error = np.nanmax(np.abs(found.astype(np.float64) - expected.astype(np.float64)))
                    return f"output {i} differs by {error:.2g}"
    except Exception as error:  # whatever it is, the case has failed
        return f"{type(error).__name__}: {error}".strip()
    return ""


def _rtol(case: Any, expected: Any) -> float:
    """ONNX's own tolerance; numbers of 16 bits are compared by what they can hold."""
    digits = {"float16": 2e-3, "bfloat16": 1.6e-2}
    return max(case.rtol, digits.get(expected.dtype.name, 0.0))


def _atol(case: Any, expected: Any) -> float:
    digits = {"float16": 1e-3, "bfloat16": 8e-3}
    return max(case.atol, digits.get(expected.dtype.name, 0.0))


def _count_raised(case: Any) -> int:
    import saccade
    from saccade.onnx.reader import read_model

    try:
        return saccade.compile(read_model(case.model).text).ir("transforms").count("attn.attention")
    except Exception:
        return 0


def _in_process(operator: str, pattern: str, count_raised: bool) -> list[Outcome]:
    command = [sys.executable, "-m", "saccade.onnx.conformance", "--one", operator, "--match", pattern]
    command += ["--raised"] if count_raised else []
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        return [Outcome(operator, f"exit code {ran.returncode}: {ran.stderr.strip()[-500:]}", 0)]
    return [Outcome(**each) for each in json.loads(ran.stdout.splitlines()[-1])]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m saccade.onnx.conformance",
                                     description="Runs ONNX's own node tests.")
    parser.add_argument("--op", action="append", help=f"an operator, again for more; without: {', '.join(OPERATORS)}")
    parser.add_argument("--match", default="", help="only cases with this in their names")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at a time")
    parser.add_argument("--raised", action="store_true", help="count the attn ops of each program, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        outcomes = run_operator(options.one, options.match, options.raised)
        print(json.dumps([dataclasses.asdict(each) for each in outcomes]))
        return 0
    operators = options.op or list(OPERATORS)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda each: _in_process(each, options.match, options.raised), operators))
    passed = total = 0
    for operator, outcomes in zip(operators, results):
        failed = [each for each in outcomes if each.reason]
        for each in failed:
            lines = each.reason.splitlines() or [""]
            print(f"failed {each.case}: {lines[0]}")
        for each in outcomes if options.raised else []:
            print(f"attn ops in {each.case}: {each.raised}")
        seconds = sum(each.seconds for each in outcomes)
        print(f"{operator}: {len(outcomes) - len(failed)} of {len(outcomes)} passed in {seconds:.1f} s")
        passed, total = passed + len(outcomes) - len(failed), total + len(outcomes)
    print(f"{passed} of {total} passed")
    return 0 if passed == total and total else 1


if __name__ == "__main__":
    sys.exit(main())
