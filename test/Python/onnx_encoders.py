"""Encoders that PyTorch exports: BERT, ViT. They agree
with PyTorch, and each softmax has become an attention.

REQUIRES: numpy, onnx, onnxscript, transformers
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from exported_models import check

check("bert", "eager", True, 2)
check("vit", "sdpa", False, 2)
