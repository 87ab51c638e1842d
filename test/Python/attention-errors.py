"""What `saccade.attention` cannot take is refused with the usual exception, which names the argument, what was found
and what was wanted. Every case is tried twice: when nothing is compiled yet, and when a kernel of its kind is.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s
"""


import numpy as np
import torch
from torch._subclasses import FakeTensorMode

import saccade

torch.manual_seed(1)
q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 8)
arrays = tuple(x.numpy() for x in (q, k, v))


def refuse(kind, words, *operands, **options):
    """The call raises exactly `kind`, with a message that has all of `words`."""
    operands = operands or (q, k, v)
    try:
        saccade.attention(*operands, **options)
    except Exception as error:
        assert type(error) is kind, (type(error), error, words)
        missing = [word for word in words.split(" | ") if word not in str(error)]
        assert not missing, (str(error), missing)
        assert "#" not in str(error) and "%" not in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


def refuse_operands():
    """q, k and v that do not fit, with torch."""
    fake = FakeTensorMode()
    nested = torch.nested.nested_tensor([torch.ones(2, 7, 16), torch.ones(2, 5, 16)])
    cases = [
        (TypeError, "q is None | torch CPU tensor or a NumPy array", (None, k, v)),
        (TypeError, "q is a list", (q.tolist(), k, v)),
        (TypeError, "k is a float", (q, 1.0, v)),
        (TypeError, "k is a NumPy array | expected a torch tensor | q", (q, arrays[1], v)),
        (TypeError, "v is a torch tensor | expected a NumPy array | q", (*arrays[:2], v)),
        (TypeError, "q has element type int64 | float64, float32, float16, bfloat16", (q.long(), k.long(), v.long())),
        (TypeError, "k has element type float16 | expected float32 | q", (q, k.half(), v)),
        (TypeError, "v has element type float64 | expected float32 | q", (q, k, v.double())),
        (TypeError, "q has 3 dimensions | (4, 5, 16) | expected 4 | bhsd", (q[0], k, v)),
        (TypeError, "k has 5 dimensions | expected 4 | bhsd", (q, k[None], v)),
        (TypeError, "v has 1 dimension, (16,), expected 4", (q, k, torch.ones(16))),
        (TypeError, "v has 0 dimensions | expected 4 | bhsd", (q, k, torch.tensor(1.0))),
        (ValueError, "k has head size 8 | expected 16 | q", (q, k[..., :8], v)),
        (ValueError, "q has head size 0 | expected at least 1", (q[..., :0], k[..., :0], v)),
        (ValueError, "v has head size 0 | expected at least 1", (q, k, v[..., :0])),
        (ValueError, "k has batch size 1 | expected 2 | q", (q, k[:1], v)),
        (ValueError, "v has batch size 1 | expected 2 | q", (q, k, v[:1])),
        (ValueError, "q has 3 heads | a multiple of the 2 heads of k", (q[:, :3], k, v)),
        (ValueError, "q has 4 heads | a multiple of the 0 heads of k", (q, k[:, :0], v[:, :0])),
        (ValueError, "v has head count 1 | expected 2 | k", (q, k, v[:, :1])),
        (ValueError, "v has length 6 | expected 7 | k", (q, k, v[:, :, :6])),
        (ValueError, "q requires grad | no backward | torch.no_grad()", (q.clone().requires_grad_(), k, v)),
        (ValueError, "k requires grad", (q, torch.nn.Parameter(k), v)),
        (ValueError, "v requires grad", (q, k, v.clone().requires_grad_())),
        (ValueError, "q is a view with the negative bit set | resolve_neg", (torch._neg_view(q), k, v)),
        (ValueError, "v is a view with the negative bit set", (q, k, torch.complex(v, v).conj().imag)),
        (TypeError, "q is on meta | expected cpu", (q.to("meta"), k, v)),
        (TypeError, "k is on meta | expected cpu", (q, k.to("meta"), v)),
        (TypeError, "v is a FakeTensor", (q, k, fake.from_tensor(v))),
        (TypeError, "k is a sparse_coo tensor | expected a dense one", (q, k.to_sparse(), v)),
        (TypeError, "q is a nested tensor | expected a dense one", (nested, k, v)),
        (TypeError, "v is a nested tensor | expected a dense one", (q, k, nested)),
    ]
    for kind, words, operands in cases:
        refuse(kind, words, *operands)
        refuse(kind, words, *operands, return_lse=True, causal="bottom_right", kv_len=3)
    refuse(TypeError, "q is None", None, k, v, kv_len=torch.tensor([3, 4]))
    refuse(TypeError, "q is None", None, k, v, score=lambda s, b, h, i, j: s)
    refuse(TypeError, 'q has 4 dimensions | expected 3: layout "hsd"', layout="hsd")
    refuse(ValueError, "k has head size 7 | expected 5", layout="bhds")


def refuse_options():
    """Values that the options do not have."""
    refuse(TypeError, 'causal is True | "top_left" | "bottom_right" | offset', causal=True)
    refuse(TypeError, "causal is False | alignment", causal=False)
    refuse(ValueError, "causal is 'left' | \"top_left\"", causal="left")
    refuse(TypeError, "causal is 1.5 | int offset", causal=1.5)
    refuse(TypeError, "causal is | int offset", causal=np.array([1, 2]))
    refuse(TypeError, "scale is True | expected a number", scale=True)
    refuse(TypeError, "scale is '1' | expected a number", scale="1")
    refuse(TypeError, "scale is | expected a number", scale=torch.tensor([0.1, 0.2]))
    learned = torch.tensor(0.1, requires_grad=True)
    refuse(ValueError, "scale requires grad | no backward | torch.no_grad()", scale=learned)
    with torch.no_grad():
        saccade.attention(q, k, v, scale=learned)
    refuse(TypeError, "window is True | (left, right)", window=True)
    refuse(TypeError, "window is 2.5", window=2.5)
    refuse(ValueError, "window is 0 | at least 1", window=0)
    refuse(ValueError, "window has 1 numbers | expected 2: (left, right)", window=(3,))
    refuse(TypeError, "window has left = 'a'", window=("a", 2))
    refuse(ValueError, "window has right = -2 | None or -1", window=(1, -2))
    refuse(ValueError, "kv_len is 8 | expected 0 to 7 | k", kv_len=8)
    refuse(ValueError, "kv_len is -1 | expected 0 to 7", kv_len=-1)
    refuse(TypeError, "kv_len is True | int32 or int64", kv_len=True)
    refuse(TypeError, "kv_len is [3, 4] | int32 or int64", kv_len=[3, 4])
    refuse(TypeError, "kv_len has element type float32 | int32 or int64", kv_len=torch.tensor([3.0, 4.0]))
    refuse(TypeError, "kv_len is a NumPy array | expected a torch tensor", kv_len=np.array([3, 4]))
    refuse(ValueError, "kv_len has shape (3,) | expected (2,)", kv_len=torch.tensor([3, 4, 5]))
    refuse(ValueError, "kv_len has shape (1, 2) | expected (2,)", kv_len=torch.tensor([[3, 4]]))
    refuse(ValueError, "kv_len exceeds the length of key: found 8, expected at most 7", kv_len=torch.tensor([3, 8]))
    refuse(ValueError, "kv_len is negative: found -1, expected at least 0", kv_len=torch.tensor([-1, 3]).int())
    for wrong in ("yes", 1, 0, None, np.True_):
        refuse(TypeError, f"return_lse is {wrong!r} | True or False", return_lse=wrong)
    for layout in ("bhs", "bhsdd", "bhsx", ""):
        refuse(ValueError, f"layout is {layout!r} | \"bhsd\"", layout=layout)
    for layout in (4, ["b", "h"]):
        refuse(TypeError, f"layout is {layout!r} | a string", layout=layout)
    for target in ("v9", ""):
        refuse(ValueError, f"option 'target' has the value {target!r} | expected one of | portable", target=target)
    for target in (3, ["v3"], True):
        refuse(TypeError, f"target is {target!r} | a string", target=target)


def refuse_results():
    """Where the output cannot go."""
    out = torch.empty(2, 4, 5, 8)
    refuse(ValueError, "out has shape (2, 4, 5, 16) | expected (2, 4, 5, 8)", out=torch.empty_like(q))
    refuse(ValueError, "out has shape (4, 5, 8) | expected (2, 4, 5, 8)", out=out[0])
    refuse(TypeError, "out has element type float16 | expected float32", out=out.half())
    refuse(TypeError, "out is a NumPy array | expected a torch tensor", out=out.numpy())
    refuse(TypeError, "out is a tuple | return_lse=True | (output, lse)", out=(out,))
    refuse(TypeError, "out is a tuple | return_lse=True", out=(out, torch.empty(2, 4, 5)))
    refuse(TypeError, "out is a list | with return_lse=True the tuple (output, lse)", out=[out])
    for wrong in ({"out": out}, 3, "out"):
        refuse(TypeError, "out is a", out=wrong)
    lse = torch.empty(2, 4, 5)

    def both(*wrong):
        return {"return_lse": True, "out": wrong}

    refuse(TypeError, "out has 1 array, expected 2: (output, lse)", **both(out))
    refuse(TypeError, "out has 3 arrays, expected 2", **both(out, lse, lse))
    refuse(TypeError, "out[1] is None", **both(out, None))
    refuse(TypeError, "out is a list", return_lse=True, out=[out, lse])
    refuse(ValueError, "out[0] has shape (2, 4, 5) | expected (2, 4, 5, 8)", **both(lse, out))
    refuse(ValueError, "out[1] has shape (2, 5, 4) | expected (2, 4, 5)", **both(out, lse.transpose(1, 2)))
    refuse(TypeError, "out[1] has element type float64 | expected float32", **both(out, lse.double()))
    refuse(TypeError, "out[1] is a NumPy array | expected a torch tensor", **both(out, lse.numpy()))
    refuse(ValueError, "out[1] requires grad", **both(out, lse.clone().requires_grad_()))
    refuse(ValueError, "out[1] | overlaps", **both(out, out[..., 0]))
    refuse(ValueError, "out[1] | stride 0", **both(out, torch.empty(4, 5).expand(2, 4, 5)))
    refuse(ValueError, "out requires grad", out=out.clone().requires_grad_())
    refuse(ValueError, "out | stride 0 | expected a positive one", out=torch.empty(4, 5, 8).expand(2, 4, 5, 8))
    refuse(ValueError, "out | overlaps with argument 'q'", q, k, torch.cat([v, v], -1), out=q)
    refuse(ValueError, "out | overlaps with argument 'q'", q, k, v, out=q[..., 4:12])
    frozen = out.numpy()
    frozen.flags.writeable = False
    refuse(ValueError, "out is a read-only NumPy array", *arrays, out=frozen)


def refuse_functions():
    """Functions that cannot be traced, and what they capture."""
    refuse(TypeError, "score is 'relu' | (s, b, h, i, j)", score="relu")
    refuse(TypeError, "mask is a torch tensor, expected a function (b, h, i, j)", mask=torch.ones(5, 7, dtype=torch.bool))
    refuse(TypeError, "score is a NumPy array, expected a function", score=np.ones((5, 7)))
    refuse(TypeError, "score is saccade.masks.Mask | give it as mask", score=saccade.masks.causal())
    refuse(TypeError, "mask is saccade.scores.Score | give it as score", mask=saccade.scores.soft_cap(3.0))
    refuse(saccade.TraceError, "score function takes | expected (s, b, h, i, j)", score=lambda s, i, j: s)
    refuse(saccade.TraceError, "mask function", mask=lambda b, h, i, j: i >= j and j > 2)
    refuse(saccade.TraceError, "score function", score=lambda s, b, h, i, j: s if i > j else 0.0)
    refuse(saccade.TraceError, "mask function | int", mask=lambda b, h, i, j: int(i) == 0)
    refuse(saccade.TraceError, "mask function returns None", mask=lambda b, h, i, j: None)
    refuse(saccade.TraceError, "score function | bessel_j0", score=lambda s, b, h, i, j: torch.special.bessel_j0(s))

    def table(tensor):
        return lambda s, b, h, i, j: s + tensor[h]

    saccade.attention(q, k, v, score=table(torch.ones(4)))
    refuse(ValueError, "'tensor' | requires grad", score=table(torch.ones(4, requires_grad=True)))
    refuse(ValueError, "'tensor' | negative bit", score=table(torch._neg_view(torch.ones(4))))
    refuse(TypeError, "'tensor' | meta", score=table(torch.ones(4, device="meta")))
    refuse(ValueError, "'tensor' | score | head count | found 3 | at least 4", score=table(torch.ones(3)))
    refuse(saccade.TraceError, "tensor | 2", score=table(torch.ones(4, 4)))
    with torch.no_grad():
        saccade.attention(q, k, v, score=table(torch.ones(4, requires_grad=True)))


for attempt in range(2):
    refuse_operands()
    refuse_options()
    refuse_results()
    refuse_functions()
    for options in ({}, {"return_lse": True, "causal": "bottom_right", "kv_len": 3}, {"kv_len": torch.tensor([3, 4])}):
        saccade.attention(q, k, v, **options)
    saccade.attention(q, k[:, :, :5], torch.randn(2, 2, 7, 16), layout="bhds")
