#!/usr/bin/env bash
# torch 2.13.0: on a CPU with AVX2, flex_attention compiled by inductor gives wrong rows, without a message, where the block
# mask has blocks of 8 keys: fewer than the 16 columns by which its kernel multiplies there. The same mask with blocks of 16
# keys is right, and so is attention without torch.compile. Blocks of 8 keys are accepted by create_block_mask, which only
# asks for extents of blocks. A comparison with this kernel as the oracle of block masks needs blocks of at least 16 keys.
#
# Seen, causal attention of 64 queries and keys, two heads: 48 of 128 rows differ from scaled_dot_product_attention, by up to
# 1.4; with blocks of 16 keys none does. A processor with AVX-512 compiles for AVX2 if simdlen is 256, which is set here.
# Needs g++. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.3.5
TORCHINDUCTOR_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch._inductor import config
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

config.cpp.simdlen = 256
LENGTH = 64


def causal(b, h, i, j):
    return i >= j


torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 2, LENGTH, 16)
expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
wrong = {}
for keys in (16, 8):
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=(16, keys))
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(flex_attention)(q, k, v, block_mask=mask)
    difference = (found - expected).abs().amax(-1)
    wrong[keys] = int((difference > 1e-4).sum())
    print(f"blocks of {keys} keys: {wrong[keys]} of {2 * LENGTH} rows differ, by up to {float(difference.max()):.1e}")
assert wrong[16] == 0 and wrong[8] > 0, wrong
PYTHON
