"""The command that writes a model as a program: python -m saccade.onnx, saccade.torch, saccade.jax.

Exit codes: 0 done; 1 the model was refused; 2 usage; 3 a file could not be read or written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Protocol


class Program(Protocol):
    """What a reader gives."""

    def write(self, path: str) -> list[str]:
        """Writes the program and what lies beside it; gives the names of the files."""


def write_program(package: str, model: str, read: Callable[[str], Program], refusal: type[Exception]) -> int:
    """Reads the file named on the command line and writes its program. `package` is the package, `model` says what the
    file is, `refusal` is what `read` raises for one that is not."""
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=f"Writes {model} as a program.")
    parser.add_argument("model", help=model)
    parser.add_argument("-o", dest="output", required=True, help="the program to write, its weights beside it")
    options = parser.parse_args()
    try:
        files = read(options.model).write(options.output)
    except refusal as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.model}: {error.strerror}", file=sys.stderr)
        return 3
    print(*files, sep="\n")
    return 0
