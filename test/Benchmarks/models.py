"""The benchmark of models: a peer that cannot run a model has a row with the reason, and the others are measured; a failure
of Saccade ends the run.

REQUIRES: numpy
RUN: %python %s %src
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))

import models
from saccade_bench import workers
from saccade_bench.workers import WorkerFailed


class Contender:
    """A worker that takes `seconds` for a call, or cannot run the model."""

    def __init__(self, seconds):
        self.seconds, self.is_closed = seconds, False

    def call(self, method, *_):
        if method == "prepack" and self.seconds is None:
            raise WorkerFailed("the traceback", "no compiler")
        return np.ones(3) if method == "output" else self.seconds

    def close(self):
        self.is_closed = True


def rows_with(**seconds):
    made = {name: Contender(each) for name, each in seconds.items()}
    models.compile_model = lambda *_, **__: (pathlib.Path("model.so"), 1.0)
    models.start_contenders = lambda *_: (dict(made), {"openvino": "not installed"})
    options = argparse.Namespace(rounds=2, out=pathlib.Path(), build=pathlib.Path(), target="v3", no_prepack=False, base=None)
    machine = Contender(1e12)
    rows = models.rows_of(options, machine, "minilm", "f32")
    assert all(each.is_closed for each in made.values())
    return {label: rest for _, _, label, *rest in rows}


def start(name, *_, **__):
    if name == "openvino":
        raise WorkerFailed("the traceback", "not installed")
    return name


# A peer that cannot start has a reason, too. Its worker fails before it has a model.
workers.WorkerProcess = start
limits = argparse.Namespace(variables=lambda package=None: {})
options = argparse.Namespace(peer=["openvino", "torch"], threads=1, limits=limits)
started, failures = models.start_contenders(options, {"saccade": pathlib.Path("model.so")}, "f32")
assert started == {"saccade": "saccade", "torch": "torch"}, started
assert failures == {"openvino": "not installed"}, failures

models.PAUSE_SECONDS = 0
rows = rows_with(saccade=0.5, torch=0.75, onnxruntime=None)
assert list(rows) == ["saccade", "torch", "openvino", "onnxruntime"], rows
assert rows["torch"][2] == "1.50× (met: 1.15)", rows
assert rows["openvino"] == ["", "", "", "failed: not installed"], rows
assert rows["onnxruntime"] == ["", "", "", "failed: no compiler"], rows
try:
    rows_with(saccade=None, torch=0.75)
except WorkerFailed:
    pass
else:
    raise AssertionError("a failure of Saccade was ignored")
