"""Loads a package of AOTInductor, which another process saved in the folder given as argument, and runs it."""

import pathlib
import sys

import torch

import saccade
import saccade.torch.attention_operator

folder = pathlib.Path(sys.argv[1])
given, expected = torch.load(folder / "expected.pt")
run = torch._inductor.aoti_load_package(str(folder / "package.pt2"))
for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
    with mode():
        torch.testing.assert_close(run(*given), expected)
assert saccade.cache_info().compilations == 4
