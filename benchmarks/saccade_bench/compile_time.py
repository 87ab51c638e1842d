"""Compile time of one attention program in process, as in the JIT."""

import json
import statistics
import subprocess


def measure(build, program, count):
    """Seconds by stage ("total", "pipeline", "codegen", "link"): medians of `count` compilations in one process."""
    command = [str(build / "bin" / "saccade-compile-time"), str(program), str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"saccade-compile-time failed with exit code {done.returncode}:\n{done.stderr.strip()}")
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    return {stage: statistics.median(each[stage] for each in runs) for stage in runs[0]}
