"""Decoders that PyTorch exports: GPT-2, Llama with grouped heads and rotary positions, T5 with both halves. They agree
with PyTorch, and each softmax has become an attention, with the heads of keys that the model has.

REQUIRES: torch, transformers
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
import torch
from torch_models import check

check("gpt2", "eager", 2, dynamic=True)
for attention in ("sdpa", "eager"):
    text = check("llama", attention, 2, dynamic=attention == "sdpa")
    extent = "?" if attention == "sdpa" else "12"
    assert f"x2x{extent}x16xf32>) -> " in text or f"x{extent}x2x16xf32>) -> " in text, text
check("llama", "sdpa", 2, type=torch.bfloat16, tolerance=1e-2)
check("t5", "sdpa", 6)
