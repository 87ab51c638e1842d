#!/usr/bin/env bash
# PyTorch 2.13.0, CPU: scaled_dot_product_attention with an additive mask of -1e9 on all keys of a row has the right output,
# but its gradients are too large by the number of keys. The fused kernel saves one log-sum-exp per row in float32, where
# -1e9 + log(4) is -1e9, so the backward pass computes the weight 1 for each of the 4 keys. The math path is right. A row
# that is masked completely by a boolean mask has gradients of 0 on both paths.
#
# Seen: fused 1.0 1.0 1.0 1.0, math 0.25 0.25 0.25 0.25. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.3.5
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def gradient(backend):
    q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4, 4)
    v = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    with sdpa_kernel(backend):
        output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.full((1, 4), -1e9))
    assert torch.allclose(output, v.mean(2, keepdim=True)), output
    output.sum().backward()
    return v.grad[0, 0, :, 0].tolist()


fused, math = gradient(SDPBackend.FLASH_ATTENTION), gradient(SDPBackend.MATH)
print("fused", *fused, "math", *math)
assert fused == [1.0] * 4 and math == [0.25] * 4
PYTHON
