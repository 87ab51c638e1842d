"""Runs MLIR programs through the packaged `saccade-run`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any


class ToolError(RuntimeError):
    """A tool exited with a nonzero code; `code` is the exit code, the message its diagnostics."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


def tool(name: str) -> str:
    """The path of a packaged tool, e.g. "saccade-run"."""
    return str(pathlib.Path(__file__).with_name("bin") / name)


def run(graph: str | os.PathLike[str], entry: str, args: Sequence[Any], *, results: int = 1,
        options: Sequence[str] = ()) -> tuple[list[Any], str]:
    """Calls a function of an MLIR file through `saccade-run`.

    Args:
        graph: the path of the MLIR file.
        entry: the name of the function.
        args: its arguments as NumPy arrays.
        results: the number of result arrays.
        options: command-line options for `saccade-run`, e.g. ["--check", "--time"].

    Returns:
        A list of `results` arrays, and the output of the tool.

    Raises:
        ToolError: the tool failed; it has the exit code and the diagnostics.
    """
    import numpy as np  # imported late: importing saccade does not import NumPy

    with tempfile.TemporaryDirectory(prefix="saccade-") as name:
        folder = pathlib.Path(name)
        command = [tool("saccade-run"), str(graph), f"--entry={entry}"]
        for number, array in enumerate(args):
            np.save(folder / f"arg{number}.npy", np.ascontiguousarray(array))
            command.append(f"--arg={folder / f'arg{number}.npy'}")
        outs = [folder / f"out{number}.npy" for number in range(results)]
        command += [f"--out={out}" for out in outs] + list(options)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ToolError(done.returncode, done.stderr.strip() or f"exit code {done.returncode}")
        return [np.load(out) for out in outs], done.stdout + done.stderr
