"""Weights and inputs may be torch tensors: results are, too, and the same to the bit.

REQUIRES: torch
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import sys

sys.path.append(sys.argv[1])

import torch
from programs import refused
from weights_program import SHAPES, TEXT

import saccade

torch.manual_seed(5)
module = saccade.compile(TEXT.replace("{MARK}", " {attn.constant}"), prepack=True)
weights = {name: torch.randn(shape).to(torch.float16 if name == "h" else torch.float32)
           for name, shape in SHAPES.items()}  # fmt: skip
bound = module.main.bind(**weights)
plain = saccade.compile(TEXT.replace("{MARK}", "")).main
for rows in (1, 7, 300):
    x = torch.randn(rows, 24)
    expected, out = plain(x, **weights), torch.full((rows, 48), torch.nan)
    found = bound(x)
    assert type(found) is torch.Tensor and torch.equal(found, expected)
    version = out._version
    assert bound(x, out=out) is out and torch.equal(out, expected) and out._version > version
    # NumPy arrays beside torch weights, and the other way round.
    assert (bound(x.numpy()) == expected.numpy()).all()
    numpy_bound = module.main.bind(**{name: weight.numpy() for name, weight in weights.items()})
    assert type(numpy_bound(x)) is torch.Tensor and torch.equal(numpy_bound(x), expected)
needing = weights["w"].clone().requires_grad_()
refused(ValueError, ["w requires grad"], module.main.bind, **{**weights, "w": needing})
with torch.no_grad():
    assert torch.equal(module.main.bind(**{**weights, "w": needing})(x), expected)
refused(ValueError, ["x requires grad"], bound, x.clone().requires_grad_())
# A parameter may hold other memory afterwards, as Module.to makes it do; the function keeps what was bound.
add = saccade.compile("""
func.func @main(%w: tensor<4000000xf32>, %x: tensor<4000000xf32>) -> tensor<4000000xf32> {
  %e = tensor.empty() : tensor<4000000xf32>
  %y = linalg.add ins(%w, %x : tensor<4000000xf32>, tensor<4000000xf32>) outs(%e : tensor<4000000xf32>)
      -> tensor<4000000xf32>
  return %y : tensor<4000000xf32>
}""").main
changed = torch.ones(4000000)
kept = add.bind(w=changed)
changed.data = torch.zeros(1)
assert torch.equal(kept(torch.ones(4000000)), torch.full((4000000,), 2.0))
