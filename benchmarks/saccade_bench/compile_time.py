"""Compile time of one attention program in process, as in the JIT."""

import json
import statistics
import subprocess

# Builds take turns, so that a slow phase of the machine affects all of them.
TURNS = 4


def compile_repeatedly(build, program, count):
    """[{stage: seconds}] of `count` compilations in one process."""
    command = [str(build / "bin" / "saccade-compile-time"), str(program), str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"saccade-compile-time failed with exit code {done.returncode}:\n{done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(builds, program, count):
    """Seconds by stage ("total", "pipeline", "codegen", "link") for each build: medians of `count` compilations."""
    runs = [[] for _ in builds]
    for turn in range(min(TURNS, count)):
        share = count // TURNS + (turn < count % TURNS)
        for build, mine in zip(builds, runs):
            mine += compile_repeatedly(build, program, share)
    return [{stage: statistics.median(each[stage] for each in mine) for stage in mine[0]} for mine in runs]
