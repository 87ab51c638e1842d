"""Decoders that PyTorch exports: GPT-2, Llama with grouped heads and rotary positions, T5 with both halves. They agree
with PyTorch, and each softmax has become an attention.

REQUIRES: numpy, onnx, onnxscript, transformers
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from exported_models import check

check("gpt2", "sdpa", False, 2)
check("llama", "eager", True, 2)
check("t5", "eager", False, 6)
