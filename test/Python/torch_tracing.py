"""Compiled functions are opaque to what looks into torch programs: torch.compile compiles around them, and
torch.jit.trace is refused. torch is imported last, as in files whose imports are sorted.

REQUIRES: torch
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import sys
import warnings

import saccade

import torch

sys.path.append(sys.argv[1])
import programs
from programs import refused

q, k, v = torch.randn(1, 2, 7, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16)
slopes = torch.tensor([0.5, 0.25])
attend = saccade.compile(programs.attention()).attend


class Layer(torch.nn.Module):
    """A module that holds a compiled function."""

    def __init__(self):
        super().__init__()
        self.attend = attend

    def forward(self, q, k, v):
        return self.attend(q * 2, k, v) + 1


def plain(q, k, v):
    return saccade.attention(q * 2, k, v) + 1


def scored(q, k, v):
    return saccade.attention(q * 2, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i)) + 1


def into(q, k, v):
    out = torch.empty_like(q)
    attend.into(q * 2, k, v, out)
    return out + 1


CASES = [(plain, "saccade.attention"), (scored, "saccade.attention"), (Layer(), "saccade.Function.__call__"),
         (into, "saccade.Function.into")]  # fmt: skip

for function, name in CASES:
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(function, backend="eager")(q, k, v)
    assert not caught, [str(warning.message) for warning in caught]
    assert torch.equal(found, function(q, k, v))
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch._dynamo.reset()
    refused(torch._dynamo.exc.Unsupported, [f"{name} is opaque: it calls compiled code"], compiled, q, k, v)

# The graphs end before the call and go on behind it: no frame of ours is in one.
graphs = []


def record(graph, inputs):
    graphs.append(graph)
    return graph.forward


torch._dynamo.reset()
torch.compile(scored, backend=record)(q, k, v)
assert len(graphs) == 2, graphs

# What torch.jit.trace would record of a call is nothing at all. A kernel may be there or not.
warnings.simplefilter("ignore")
for function in (plain, scored):
    refused(TypeError, ["q is traced by torch.jit.trace", "outside"], torch.jit.trace, function, (q, k, v))
for function in (Layer(), lambda q, k, v: attend(q, k, v, out=torch.empty_like(q))):
    refused(TypeError, ["attend is called in what torch.jit.trace traces"], torch.jit.trace, function, (q, k, v))
