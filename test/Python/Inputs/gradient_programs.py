"""Calls of `saccade.attention` in float64 whose gradients and tangents are compared with differences of their results.

PROGRAMS has one call by name for each score with each mask of the library, and one for each other option. A call is a
function of a random generator that returns a function of the differentiable tensors, and these.
"""

import torch

import saccade
from saccade import masks, scores

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, WIDTH, WIDTH_V = 2, 4, 2, 6, 6, 3, 2


def leaf(draw, *shape, low=None):
    """Normally distributed numbers, or numbers from `low` to low + 1."""
    if low is not None:
        return (torch.rand(shape, dtype=torch.float64, generator=draw) + low).requires_grad_()
    return torch.randn(shape, dtype=torch.float64, generator=draw).requires_grad_()


# By name: the captured tensors, and the score of these.
SCORES = {
    "plain": (lambda draw: [], lambda: None),
    "soft_cap": (lambda draw: [leaf(draw, low=0.7)], scores.soft_cap),
    "soft_cap of heads": (lambda draw: [leaf(draw, HEADS, low=0.7)], scores.soft_cap),
    "temperature": (lambda draw: [leaf(draw, low=0.7)], scores.temperature),
    "temperature of heads": (lambda draw: [leaf(draw, HEADS, low=0.7)], scores.temperature),
    "alibi": (lambda draw: [leaf(draw, HEADS)], scores.alibi),
    "symmetric alibi": (lambda draw: [leaf(draw, HEADS)], lambda slopes: scores.alibi(slopes, symmetric=True)),
    "relative_bias": (lambda draw: [leaf(draw, HEADS, 5)], scores.relative_bias),
    "shared relative_bias": (lambda draw: [leaf(draw, 7)], lambda table: scores.relative_bias(table, offset=1)),
    "t5_bias": (lambda draw: [leaf(draw, 8, HEADS)], lambda table: scores.t5_bias(table, max_distance=5)),
    "t5_bias of decoders": (lambda draw: [leaf(draw, 6, HEADS)],
                            lambda table: scores.t5_bias(table, max_distance=5, bidirectional=False)),
    "bias": (lambda draw: [leaf(draw, QUERIES, KEYS)], scores.bias),
    "bias of heads": (lambda draw: [leaf(draw, HEADS, QUERIES, KEYS)], scores.bias),
    "bias of batches": (lambda draw: [leaf(draw, BATCH, HEADS, QUERIES, KEYS)], scores.bias),
    "swin_bias": (lambda draw: [leaf(draw, 15, HEADS)], lambda table: scores.swin_bias(table, (2, 3))),
    "swin_bias of images": (lambda draw: [leaf(draw, 15, HEADS)],
                            lambda table: scores.swin_bias(table, (2, 3), width=3)),
    "shaw_bias": (lambda draw: [leaf(draw, BATCH, HEADS, QUERIES, 7)], lambda logits: scores.shaw_bias(logits, 0.5)),
    "composition": (lambda draw: [leaf(draw, HEADS), leaf(draw, low=0.7)],
                    lambda slopes, cap: scores.alibi(slopes) >> scores.soft_cap(cap)),
    "own function": (lambda draw: [leaf(draw, HEADS), leaf(draw, QUERIES), leaf(draw)],
                     lambda x, y, z: lambda s, b, h, i, j: torch.sin(s * x[h]) + torch.exp(z) * y[i] * y[j]),
}

MASKS = {
    "": dict,
    "causal top_left": lambda: {"causal": "top_left"},
    "causal bottom_right with a window": lambda: {"causal": "bottom_right", "window": 3},
    "masks.causal": lambda: {"mask": masks.causal(-1)},  # the first row is empty
    "masks.window": lambda: {"mask": masks.window(2, 1)},
    "masks.dilated": lambda: {"mask": masks.dilated(2, 1, 1)},
    "masks.strided": lambda: {"mask": masks.strided(2)},
    "masks.block_sparse": lambda: {"mask": masks.block_sparse(torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1]]), 2)},
    "masks.prefix_lm": lambda: {"mask": masks.prefix_lm(torch.tensor([2, 4]))},
    "masks.padding": lambda: {"mask": masks.padding(torch.tensor([4, 0]))},  # a batch is empty
    "masks.documents": lambda: {"mask": masks.documents(torch.tensor([[0, 1, 0, 1, 2, 2], [0, 0, 0, 3, 3, 0]]))},
    "masks.ragged": lambda: {"mask": masks.ragged(torch.tensor([0, 2, 3, 6]))},
    "masks.longformer": lambda: {"mask": masks.longformer(1, num_global=1)},
    "masks.bigbird": lambda: {"mask": masks.bigbird(6, 1, num_random_blocks=1)},
    "masks.swin": lambda: {"mask": masks.swin(2, 3, 2, shift_size=1)},
    "masks.neighborhood": lambda: {"mask": masks.neighborhood((2, 3), (1, 3))},
    "masks.tree": lambda: {"mask": masks.tree([-1, 0, 0, 2, 1, -1])},
    "kv_len": lambda: {"kv_len": torch.tensor([5, 0])},
}


def pattern(make_captures, make_score, make_mask):
    def program(draw):
        q = leaf(draw, BATCH, HEADS, QUERIES, WIDTH)
        k, v = leaf(draw, BATCH, KV_HEADS, KEYS, WIDTH), leaf(draw, BATCH, KV_HEADS, KEYS, WIDTH_V)

        def call(q, k, v, *captured):
            return saccade.attention(q, k, v, score=make_score(*captured), **make_mask())

        return call, [q, k, v, *make_captures(draw)]

    return program


PROGRAMS = {f"{score} {mask}".strip(): pattern(captures, make, options)
            for score, (captures, make) in SCORES.items() for mask, options in MASKS.items()}


def option(name):
    def add(program):
        PROGRAMS[name] = program
        return program

    return add


def simple(name, shapes=((2, 4, 5, 3), (2, 2, 7, 3), (2, 2, 7, 2)), more=(), **options):
    """A call with these options; `more` are shapes of the tensors of the options that are functions."""

    def program(draw):
        tensors = [leaf(draw, *shape) for shape in (*shapes, *more)]

        def call(q, k, v, *others):
            return saccade.attention(q, k, v, **{key: value(*others) if key in ("sink", "scale", "weight") else value
                                                 for key, value in options.items()})

        return call, tensors

    PROGRAMS[name] = program


simple("lse", return_lse=True)
simple("lse, causal", causal="bottom_right", return_lse=True)
simple("offset", causal=1)
simple("window of both sides", window=(1, 2))
simple("number of keys", kv_len=5)
simple("no visible keys", kv_len=0)
simple("no keys", ((2, 4, 5, 3), (2, 2, 0, 3), (2, 2, 0, 2)))
simple("no queries", ((2, 4, 0, 3), (2, 2, 7, 3), (2, 2, 7, 2)))
simple("scale", scale=lambda: 0.3)
simple("learned scale", more=((),), scale=lambda x: x)
simple("sinks", more=((4,),), sink=lambda x: x)
simple("sinks, lse, causal", more=((4,),), sink=lambda x: x, return_lse=True, causal="top_left")
simple("sinks of empty rows", more=((4,),), sink=lambda x: x, causal=-2)
simple("a sink", sink=lambda: 0.5)
simple("weights by head", more=((4,),), weight=lambda x: lambda p, b, h, i, j: p * x[h])
simple("weights by distance", more=((4, 11),), weight=lambda x: lambda p, b, h, i, j: p * x[h, i - j + 5])
simple("weights of a mask", weight=lambda: lambda p, b, h, i, j: torch.where((i + j) % 3 == 0, 0.0, p * 1.5))
for layout, *shapes in (
    ("sd", (5, 3), (7, 3), (7, 2)), ("hsd", (4, 5, 3), (2, 7, 3), (2, 7, 2)), ("bsd", (2, 5, 3), (2, 7, 3), (2, 7, 2)),
    ("bshd", (2, 5, 4, 3), (2, 7, 1, 3), (2, 7, 1, 2)), ("dhs", (3, 4, 5), (3, 2, 7), (2, 2, 7)),
    ("shd", (5, 4, 3), (7, 4, 3), (7, 4, 5)),
):
    simple(f"layout {layout}", shapes, layout=layout, causal="bottom_right", return_lse=True)
for name, lengths_q, lengths_k in (("ragged", [0, 2, 2, 5], [0, 3, 4, 7]), ("ragged with a tail", [0, 1, 3, 3], [0, 0, 4, 6])):
    simple(name, ((5, 4, 3), (7, 2, 3), (7, 2, 2)), cu_seqlens_q=torch.tensor(lengths_q),
           cu_seqlens_k=torch.tensor(lengths_k, dtype=torch.int32))
    simple(f"{name}, causal", ((5, 4, 3), (7, 2, 3), (7, 2, 2)), cu_seqlens_q=torch.tensor(lengths_q),
           cu_seqlens_k=torch.tensor(lengths_k), causal="bottom_right", window=2, sink=lambda x: x, more=((4,),))


@option("strides")
def _(draw):
    q, k, v = leaf(draw, 2, 5, 4, 3), leaf(draw, 2, 7, 2, 3), leaf(draw, 2, 7, 2, 2)
    return lambda *x: saccade.attention(*[each.transpose(1, 2) for each in x], causal="top_left"), [q, k, v]


@option("parts of a projection")
def _(draw):
    return lambda x: saccade.attention(*x.chunk(3, -1)), [leaf(draw, 2, 4, 5, 9)]


@option("expanded keys")
def _(draw):
    return (lambda q, k, v: saccade.attention(q, k.expand(2, 2, 7, 3), v.expand(2, 2, 7, 2)),
            [leaf(draw, 2, 4, 5, 3), leaf(draw, 1, 1, 7, 3), leaf(draw, 1, 2, 7, 2)])


@option("some tensors without gradients")
def _(draw):
    k, slopes = leaf(draw, 2, 2, 7, 3).detach(), leaf(draw, 4).detach()
    return (lambda q, v: saccade.attention(q, k, v, score=scores.alibi(slopes)),
            [leaf(draw, 2, 4, 5, 3), leaf(draw, 2, 2, 7, 2)])


@option("captures only")
def _(draw):
    q, k, v = [leaf(draw, 2, 4, 5, 3).detach() for _ in range(3)]
    return lambda x, cap: saccade.attention(q, k, v, score=scores.alibi(x) >> scores.soft_cap(cap)), [
        leaf(draw, 4), leaf(draw, low=0.7)]


@option("a tensor captured twice, and the queries")
def _(draw):
    return lambda q, v: saccade.attention(q, q, v, score=lambda s, b, h, i, j: s * q[b, h, i, 0] + q[b, h, j, 1]), [
        leaf(draw, 2, 4, 5, 3), leaf(draw, 2, 4, 5, 2)]


# --- programs in the language -----------------------------------------------------------------------------------------

TALLIES = """
func.func @main(%q: tensor<?x?x3xf64>, %k: tensor<?x?x3xf64>, %v: tensor<?x?x2xf64>, %cap: tensor<f64>)
    -> (tensor<?x?x2xf64>, tensor<?x?xf64>, tensor<?x?x1xf64>, tensor<?x?x5xf64>) attributes {attn.gradient, attn.jvp} {
  %out, %lse, %mean, %near = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%cap : tensor<f64>)
    mask causal<bottom_right>
    score(%s: f64, %b, %h, %i, %j, %c) {
      %x = tensor.extract %c[] : tensor<f64>
      %y = arith.divf %s, %x : f64
      %t = math.tanh %y : f64
      %r = arith.mulf %t, %x : f64
      attn.yield %r : f64
    }
    lse
    tally<1>(%s: f64, %b, %h, %i, %j, %c) {
      %zero = arith.constant 0 : index
      attn.yield %zero, %s : index, f64
    }
    tally<5>(%s: f64, %b, %h, %i, %j, %c) {
      %one = arith.constant 1.0 : f64
      %distance = arith.subi %i, %j : index
      %limit = arith.constant 4 : index
      %bin = arith.minsi %distance, %limit : index
      attn.yield %bin, %one : index, f64
    }
    : (tensor<?x?x3xf64>, tensor<?x?x3xf64>, tensor<?x?x2xf64>)
      -> (tensor<?x?x2xf64>, tensor<?x?xf64>, tensor<?x?x1xf64>, tensor<?x?x5xf64>)
  return %out, %lse, %mean, %near : tensor<?x?x2xf64>, tensor<?x?xf64>, tensor<?x?x1xf64>, tensor<?x?x5xf64>
}
"""


@option("tallies")
def _(draw):
    import saccade.torch

    return saccade.torch.differentiable(saccade.compile(TALLIES)), [
        leaf(draw, 4, 6, 3), leaf(draw, 2, 6, 3), leaf(draw, 2, 6, 2), leaf(draw, low=0.7)]


@option("entropy of the weights")
def _(draw):
    import saccade.torch

    function = saccade.torch.differentiable(saccade.compile(TALLIES))

    def entropy(*tensors):
        _, lse, mean, _ = function(*tensors)
        return lse - mean[..., 0]

    return entropy, [leaf(draw, 4, 6, 3), leaf(draw, 2, 6, 3), leaf(draw, 2, 6, 2), leaf(draw, low=0.7)]


def check(name, seed):
    """Compares the gradients and tangents of a program with differences; gradients must also be equal bit by bit in a
    second run."""
    call, tensors = PROGRAMS[name](torch.Generator().manual_seed(seed))
    threads = saccade.num_threads()
    saccade.set_num_threads(1)  # the calls are shorter than waking a thread takes
    try:
        # The functions are smooth: differences of float64 are accurate to about 1e-8.
        torch.autograd.gradcheck(call, tensors, eps=1e-6, atol=1e-6, rtol=1e-5, nondet_tol=0.0)
        if name.startswith("own function"):  # computes exp of a captured tensor, which forward mode refuses
            return
        # One direction that is drawn by chance, for all tensors.
        torch.autograd.gradcheck(call, tensors, eps=1e-6, atol=1e-6, rtol=1e-5, check_forward_ad=True,
                                 check_backward_ad=False, fast_mode=True)
    finally:
        saccade.set_num_threads(threads)
