"""Runs a graph through the `saccade-run` that the package carries."""

import pathlib
import subprocess
import tempfile


class ToolError(RuntimeError):
    """A tool did not exit with 0; `code` is its exit code, the message its diagnostics."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def tool(name):
    """Path of a tool of the package, e.g. "saccade-run"."""
    return str(pathlib.Path(__file__).with_name("bin") / name)


def run(graph, entry, args, *, results=1, options=()):
    """Calls function `entry` of the MLIR file `graph` with the arrays `args`.

    Returns (list of `results` arrays, what the tool printed). `options` go to `saccade-run` as they are, e.g.
    ["--check", "--time"]. Raises Failed with the tool's exit code and diagnostics where it refuses.
    """
    import numpy as np  # here, so that importing saccade does not take it

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
