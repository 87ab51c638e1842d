"""The command line shared by `python -m saccade.onnx`, `saccade.torch` and `saccade.jax`: writes a model as a program.

Exit codes: 0 success; 1 the model is rejected; 2 usage; 3 a file cannot be read or written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Protocol


class Program(Protocol):
    """The result of a reader."""

    def write(self, path: str, weights: str | None = None) -> list[str]:
        """Writes the program and its weights, to files of their own or to one; returns the file names."""


def write_program(package: str, model: str, read: Callable[[str], Program], refusal: type[Exception]) -> int:
    """Reads the file named on the command line and writes its program; returns the exit code.

    Args:
        package: the package name for the usage text.
        model: describes the input file.
        read: reads the file.
        refusal: the exception that `read` raises for an invalid file.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=f"Writes {model} as a program.")
    parser.add_argument("model", help=model)
    parser.add_argument("-o", dest="output", required=True, help="the program to write; weights go to files next to it")
    parser.add_argument("--weights", metavar="FILE",
                        help="write all weights to one safetensors file, by the model's names")
    options = parser.parse_args()
    try:
        files = read(options.model).write(options.output, options.weights)
    except refusal as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.model}: {error.strerror}", file=sys.stderr)
        return 3
    print(*files, sep="\n")
    return 0
