"""Writes a model of ONNX as a program: python -m saccade.onnx MODEL.onnx -o MODEL.mlir

Weights go into files MODEL.<name>.npy beside it. Exit codes: 0 done; 1 the model was refused; 2 usage; 3 a file could
not be read
or written.
"""

from __future__ import annotations

import argparse
import sys

from saccade.onnx import ModelError, read


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m saccade.onnx", description="Writes a model of ONNX as a program.")
    parser.add_argument("model", help="the model, a .onnx file")
    parser.add_argument("-o", dest="output", required=True, help="the program to write")
    options = parser.parse_args()
    try:
        files = read(options.model).write(options.output)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.model}: {error.strerror}", file=sys.stderr)
        return 3
    print(*files, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
