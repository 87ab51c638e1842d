"""Loads an exported program, which another process saved in the folder given as argument, and runs it."""

import pathlib
import sys

import torch

import saccade
import saccade.torch.attention_operator

folder = pathlib.Path(sys.argv[1])
given, expected = torch.load(folder / "expected.pt")
module = torch.export.load(folder / "block.pt2").module()
assert torch.equal(module(*given), expected)
assert saccade.cache_info().compilations == 4
