#!/usr/bin/env bash
# PyTorch 2.13.0, CPU: nn.TransformerEncoderLayer adds a floating-point src_mask to the scores in training, and where a
# gradient is required. In eval mode without gradients it runs one fused operator, which turns the mask into booleans: each
# element that is not 0 hides its key. A bias such as ALiBi's, -0.5 * |i - j|, hides all keys but the own one, and a bias
# without zeros makes the whole output NaN. Masks of 0 and -inf are right on both ways. nn.MultiheadAttention is right.
#
# Seen: differs for the bias; 288 of 288 elements NaN for the bias without zeros; equal for 0 and -inf. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.3.5
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import torch

warnings.simplefilter("ignore")
assert torch.__version__.startswith("2.13.0"), torch.__version__
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0).eval()
x = torch.randn(1, 9, 32)
position = torch.arange(9.0)
alibi = -0.5 * (position[:, None] - position).abs()
causal = torch.full((9, 9), float("-inf")).triu(1)


def both(mask):
    with torch.no_grad():
        fused = layer(x, src_mask=mask)
    return fused, layer(x.clone().requires_grad_(), src_mask=mask).detach()


fused, plain = both(causal)
print("0 and -inf:", float((fused - plain).abs().max()))
assert torch.allclose(fused, plain, atol=1e-5)
fused, plain = both(alibi)
print("-0.5 |i - j|:", float((fused - plain).abs().max()))
assert (fused - plain).abs().max() > 0.1
alone = both(torch.full((9, 9), float("-inf")).fill_diagonal_(0))[1]
assert torch.allclose(fused, alone, atol=1e-5), "the bias hides all keys but the own one"
fused, plain = both(alibi - 1)  # softmax of the same scores
print("-0.5 |i - j| - 1:", int(fused.isnan().sum()), "of", fused.numel(), "NaN")
assert fused.isnan().all() and not plain.isnan().any()
PYTHON
