"""Decompositions of saccade.torch: random calls against PyTorch's own operators, and compiled ones."""

import itertools
import math
import random

import pytest
import torch
import torch.nn.functional as F

import saccade.torch.backend  # noqa: F401 - registers it
from saccade.torch.decompositions import own

TABLE = own()
aten = torch.ops.aten


def compiled(function, *arguments):
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(function, backend="saccade", options={"whole_graph": True})(*arguments)


def drawn(seed, rank, kind):
    """The input and the parameters of a random pooling; few distinct values, so that maxima are often equal."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    shape = [rng.randint(1, 9) for _ in range(rank)]
    kernel = [rng.randint(1, min(4, n)) for n in shape]
    padding = [rng.randint(0, k // 2) for k in kernel]
    stride = rng.choice([[], [rng.randint(1, 4) for _ in range(rank)]])
    x = torch.randint(-3, 3, (*rng.choice([(2, 3), (1,)]), *shape)).to(rng.choice([torch.float32, torch.float64]))
    for _ in range(rng.choice([0, 0, 1, 3])):
        x.view(-1)[rng.randrange(x.numel())] = math.nan
    if kind == "max" and rng.random() < 0.2:
        x.fill_(-math.inf)
    options = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": rng.random() < 0.5}
    if kind == "avg":
        options["count_include_pad"] = rng.random() < 0.5
        if rng.random() < 0.3 and rank > 1:
            options["divisor_override"] = rng.randint(1, 9)
    else:
        options["dilation"] = [rng.randint(1, 2) if n + 2 * p > 2 * (k - 1) else 1
                               for n, p, k in zip(shape, padding, kernel)]  # fmt: skip
    return x, options


@pytest.mark.parametrize("rank", [2, 3])
def test_max_pools(rank):
    op = getattr(aten, f"max_pool{rank}d_with_indices").default
    for seed in range(150):
        x, options = drawn(seed, rank, "max")
        expected, found = op(x, **options), TABLE[op](x, **options)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True, msg=lambda text: f"{seed}: {text}")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_avg_pools(rank):
    op = getattr(aten, f"avg_pool{rank}d").default
    for seed in range(150):
        x, options = drawn(seed, rank, "avg")
        torch.testing.assert_close(TABLE[op](x, **options), op(x, **options), equal_nan=True,
                                   msg=lambda text: f"{seed} {options}: {text}")  # fmt: skip


@pytest.mark.parametrize("rank", [2, 3])
def test_adaptive_avg_pools(rank):
    op = getattr(aten, f"_adaptive_avg_pool{rank}d").default
    for seed in range(80):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        x = torch.randn(2, 3, *[rng.randint(1, 9) for _ in range(rank)]).to(rng.choice([torch.float32, torch.bfloat16]))
        size = [rng.randint(1, 7) for _ in range(rank)]
        # PyTorch rounds sums of bf16.
        torch.testing.assert_close(TABLE[op](x, size), op(x.float(), size).to(x.dtype))


def test_diagonal_scatter():
    for seed in range(200):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        x = torch.randn([rng.randint(1, 5) for _ in range(rng.randint(2, 4))])
        dim1, dim2 = rng.sample(range(x.dim()), 2)
        offset = rng.randint(1 - x.shape[dim1], x.shape[dim2] - 1)
        src = torch.randn(x.diagonal(offset, dim1, dim2).shape)
        found = TABLE[aten.diagonal_scatter.default](x, src, offset, dim1, dim2)
        torch.testing.assert_close(found, x.diagonal_scatter(src, offset, dim1, dim2), rtol=0, atol=0)


@pytest.mark.parametrize("order", [0, 0.5, 1, 3, math.inf, -math.inf])
def test_norms(order):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(3, 4, 5).to(dtype) * (100 if order > 0 else 1)
        for dim, keepdim in itertools.product([None, [0], [-1, 1]], [False, True]):
            found = TABLE[aten.linalg_vector_norm.default](x, order, dim, keepdim)
            torch.testing.assert_close(found, torch.linalg.vector_norm(x, order, dim, keepdim))


MODELS = {
    "max_pool1d": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, (3, 2), 2, 1, (1, 2), ceil_mode=True),
    "max_pool2d, indices": lambda x: F.max_pool2d(x, 3, return_indices=True)[1],
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (5, 3)),
    "interpolate, area": lambda x: F.interpolate(x, size=(7, 5), mode="area"),
    "group_norm": lambda x: F.group_norm(x, 2) + torch.native_group_norm(x, None, None, 2, 4, 120, 2, 1e-5)[0],
    "instance_norm": F.instance_norm,
    "batch_norm": lambda x: F.batch_norm(x, None, None, x[0, :, 0, 0], x[0, :, 0, 1], training=True),
    "local_response_norm": lambda x: F.local_response_norm(x, 2),
    "cdist": lambda x: torch.cdist(x, x.flip(0)) + torch.cdist(x, x.flip(0), p=1),
    "norms": lambda x: x.norm(p=1, dim=-1) + x.norm(p=math.inf, dim=-1),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[..., :9, 0], 1, 2, 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_compiled(name):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 12, 10)
    torch.testing.assert_close(compiled(MODELS[name], x), MODELS[name](x), rtol=1e-4, atol=1e-5)


def test_pools_of_open_extents():
    model = torch.compile(lambda x: F.max_pool2d(F.avg_pool2d(x, 2, ceil_mode=True), 3, 2, 1), backend="saccade",
                          dynamic=True, options={"whole_graph": True})  # fmt: skip
    torch._dynamo.reset()
    for shape in ((2, 3, 12, 10), (1, 3, 9, 17), (3, 3, 5, 6)):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(model(x), F.max_pool2d(F.avg_pool2d(x, 2, ceil_mode=True), 3, 2, 1))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "bias", "padding", "both"])
def test_fused_encoder_layer(norm_first, mask):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(2, 9, 32)
    hidden = torch.ones(9, 9).triu(1).bool()
    masks = {"none": {}, "bool": {"src_mask": hidden}, "bias": {"src_mask": torch.randn(9, 9)},
             "padding": {"src_key_padding_mask": torch.arange(9) >= torch.tensor([[9], [6]])},
             "both": {"src_mask": hidden, "src_key_padding_mask": torch.arange(9) >= torch.tensor([[9], [6]])}}
    # The unfused layer, which runs where gradients are required, is the oracle: the fused one takes a bias for a mask.
    expected = layer(x.clone().requires_grad_(), **masks[mask]).detach()
    torch.testing.assert_close(compiled(lambda x: layer(x, **masks[mask]), x), expected)


def test_constants_of_the_graph():
    """Tensors that the function creates are constants of the graph: small ones of the program, others arguments."""
    large = torch.randn(12, 10)
    for function in (lambda x: x.index_add(1, torch.tensor([0, 2]), x[:, :2]), lambda x: x + torch.tensor(large.tolist()),
                     lambda x: torch.arange(3) * torch.tensor([1, 2, 3])):
        x = torch.randn(2, 4, 12, 10)
        torch.testing.assert_close(compiled(function, x), function(x))
