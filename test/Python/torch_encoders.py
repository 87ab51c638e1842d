"""Encoders that PyTorch exports: BERT, ViT, Swin, and BigBird and Longformer where their sparse form is active. They
agree with PyTorch; each softmax has become an attention, but for those over blocks that were put behind each other,
whose remarks say why.

REQUIRES: torch, transformers
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
import torch
from torch_models import check

check("bert", "sdpa", 2, dynamic=True)
check("vit", "eager", 2)
check("vit", "sdpa", 2, type=torch.bfloat16, tolerance=1e-2)
check("swin", "sdpa", 4)
check("bigbird", "eager", 8, length=64, left=2)
check("longformer", "eager", 0, length=64, left=2)
