"""Writes the step of generation as a program and its weights: python examples/generate/export.py -o FOLDER

FOLDER/model.mlir updates the caches of the caller. `saccade-compile model.mlir --prepack --emit=so` compiles it.
"""

import argparse
import pathlib

import torch
from model import WEIGHTS, Step, load, saccade_attention

import saccade.torch


def export(decoder):
    """The exported step, for any batch, any number of new tokens and caches of any length."""
    step = Step(decoder, saccade_attention)
    batch, new, positions = (torch.export.Dim(name, min=1) for name in ("batch", "new", "positions"))
    caches = step.new_caches(2)
    arguments = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int32), caches
    shapes = {0: batch, 1: new}, {0: batch}, [{0: batch, 1: positions}] * len(caches)
    with torch.no_grad():
        return torch.export.export(step, arguments, dynamic_shapes=shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=pathlib.Path, default=WEIGHTS)
    parser.add_argument("-o", dest="out", metavar="FOLDER", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files = saccade.torch.read(export(load(options.weights)), "model").write(options.out / "model.mlir")
    print(f"{files[-1]} and {len(files) - 1} weights")


if __name__ == "__main__":
    main()
