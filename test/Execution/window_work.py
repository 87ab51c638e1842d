#!/usr/bin/env python3
# RUN: %python %s %src/examples
"""The work of a window grows with n·w: on a long sequence it is far below that of all earlier keys.

256 of 16,384 keys against 8,192 on average: 32 times less, up to the tiles at the edges. A fourth is demanded, which
only a loop over all keys fails, on however busy a machine.
"""

import pathlib
import re
import subprocess
import sys

examples = pathlib.Path(sys.argv[1])
arguments = [f"--arg=1x1x16384x64:f32:{seed}" for seed in (1, 2, 3)]


def fastest(module, entry):
    """The latency of the fastest call in ms."""
    line = ["saccade-run", str(examples / module), f"--entry={entry}", "--time", "--threads=1", *arguments]
    output = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"\(min ([\d.]+)", output)[1])


window, causal = fastest("sliding-window.mlir", "causal_window"), fastest("causal.mlir", "top_left")
print(f"window {window} ms, causal {causal} ms: {causal / window:.1f} times faster")
sys.exit(window * 4 > causal)
