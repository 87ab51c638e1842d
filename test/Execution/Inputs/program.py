"""Runs entries of MLIR programs with NumPy arrays."""

import argparse
import pathlib
import subprocess
import tempfile

import numpy as np

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
_CACHE = tempfile.TemporaryDirectory()  # an entry is compiled once in a process


def run(file, entry, *arguments, results=1, check=True, options=(), expected=""):
    """The results of an entry, checked against the float64 reference. Arguments are arrays, (array, element type) pairs
    that are rounded to the type, or scalars. `options` are further options of saccade-run, whose output must contain
    `expected`."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        line = ["saccade-run", EXAMPLES / file, f"--entry={entry}", f"--cache-dir={_CACHE.name}", *options] + ["--check"] * check
        for i, argument in enumerate(arguments):
            if np.isscalar(argument):
                line.append(f"--arg={argument}")
            else:
                array, *element = argument if isinstance(argument, tuple) else (argument,)
                np.save(folder / f"{i}.npy", array)
                line.append(":".join([f"--arg={folder / f'{i}.npy'}", *element]))
        outputs = [folder / f"result{i}.npy" for i in range(results)]
        done = subprocess.run([*line, *(f"--out={output}" for output in outputs)], capture_output=True, text=True)
        assert done.returncode == 0, f"{file} @{entry}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert expected in done.stdout + done.stderr, f"{file} @{entry}: no '{expected}' in\n{done.stdout}{done.stderr}"
        arrays = [np.load(output) for output in outputs]
    return arrays[0] if results == 1 else arrays


def run_search(search):
    """Calls search(count, first seed) with the numbers of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    search(options.count, options.seed)


def softmax(scores):
    """Along the last axis; rows of −inf give zeros."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def glorot(rng, *shape):
    """Weights [out, in] as Glorot and Bengio (2010) draw them, in f32."""
    reach = np.sqrt(6 / (shape[-1] + shape[-2]))
    return rng.uniform(-reach, reach, shape).astype(np.float32)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def assert_close(found, expected, tolerance):
    """The maximum error must be within `tolerance` times the largest expected element."""
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    error = np.max(np.abs(found - expected), initial=0)
    limit = tolerance * np.max(np.abs(expected), initial=1e-30)
    assert error <= limit, f"error {error:.3e}, expected at most {limit:.3e}"
