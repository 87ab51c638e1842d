"""saccade is imported before torch, as in files whose imports are sorted: calls are traced, or opaque, all the same."""

import sys
import warnings

import programs

import saccade

assert "torch" not in sys.modules

import torch

q, k, v = torch.randn(1, 2, 7, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16)
attend = saccade.compile(programs.attention()).attend


def plain(q, k, v):
    return saccade.attention(q * 2, k, v) + 1


def called(q, k, v):
    return attend(q * 2, k, v) + 1


def into(q, k, v):
    out = torch.empty_like(q)
    attend.into(q * 2, k, v, out)
    return out + 1


for function, name in ((plain, None), (called, "Function.__call__"), (into, "Function.into")):
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(function, backend="eager")(q, k, v)
    assert not caught, [str(warning.message) for warning in caught]
    assert torch.equal(found, function(q, k, v))
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    if name is None:
        assert torch.equal(compiled(q, k, v), function(q, k, v))
        continue
    words = [f"saccade.{name} is opaque: it calls compiled code"]
    programs.refused(torch._dynamo.exc.Unsupported, words, compiled, q, k, v)

warnings.simplefilter("ignore")
for function, word in ((plain, "q is traced by torch.jit.trace"), (called, "called in what torch.jit.trace traces")):
    programs.refused(TypeError, [word], torch.jit.trace, function, (q, k, v))
