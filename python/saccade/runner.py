"""Runs MLIR programs through the packaged `saccade-run`."""

import pathlib
import subprocess
import tempfile


class ToolError(RuntimeError):
    """A tool exited with a nonzero code; `code` is the exit code, the message its diagnostics."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def tool(name):
    """The path of a packaged tool, e.g. "saccade-run"."""
    return str(pathlib.Path(__file__).with_name("bin") / name)


def run(graph, entry, args, *, results=1, options=()):
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

    with tempfile.TemporaryDirectory(prefix="saccade-") as folder:
        folder = pathlib.Path(folder)
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
