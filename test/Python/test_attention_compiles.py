"""What makes a new kernel of `saccade.attention` and what does not, as the counters of `saccade.cache_info` tell."""

import gc
import sys

import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade

module = sys.modules["saccade.attention"]


def operands(batch=1, heads=2, key_heads=1, queries=4, keys=6, depth=8, value_depth=8, dtype=torch.float32):
    shapes = (heads, queries, depth), (key_heads, keys, depth), (key_heads, keys, value_depth)
    return [torch.zeros(batch, *shape, dtype=dtype) for shape in shapes]


def compiles(count, call):
    """The call compiles that many programs, and the second time neither compiles nor looks for any."""
    before = saccade.cache_info()
    call()
    between = saccade.cache_info()
    assert between.compilations - before.compilations == count, (before, between)
    call()
    assert saccade.cache_info() == between, (between, saccade.cache_info())


def calls(**options):
    """The call again with every other batch, head count, length and stride."""
    for sizes in (
        {}, {"batch": 3}, {"heads": 6, "key_heads": 3}, {"queries": 1}, {"queries": 300, "keys": 700}, {"keys": 0}
    ):  # fmt: skip
        saccade.attention(*operands(**sizes), **options)
    q, k, v = operands()
    saccade.attention(q.transpose(1, 2).contiguous().transpose(1, 2), k[:, :, ::2], v[:, :, ::2], **options)


@pytest.fixture(autouse=True)
def nothing_compiled():
    saccade.cache_clear()


@pytest.fixture
def plain(nothing_compiled):
    """The kernel without options is compiled."""
    saccade.attention(*operands())


def test_shapes_and_strides_share_a_kernel():
    compiles(1, calls)


# Beside the kernel without options.
@pytest.mark.parametrize(
    "options",
    [{"return_lse": True}, {"target": "portable"}, {"causal": "top_left"}, {"causal": "bottom_right"}],
    ids=["log-sum-exp", "target", "top left", "bottom right"],
)
def test_an_option_is_another_kernel_for_all_shapes(plain, options):
    compiles(1, lambda: calls(**options))


def test_alignments_are_kernels_of_their_own():
    compiles(2, lambda: [calls(causal=alignment) for alignment in ("top_left", "bottom_right")])


@pytest.mark.parametrize(
    "options",
    [
        [{"scale": scale} for scale in (0.5, 2, -1.0)],
        [{"causal": offset} for offset in (0, 3, -2, 10**20)],
        [{"causal": "top_left", "window": window} for window in (1, 4, (3, 0), (2, None), (9, -1))],
        [{"window": window} for window in (2, (3, 0), (3, 5))],
    ],
    ids=["scale", "causal offset", "causal window", "window"],
)
def test_numbers_are_arguments_of_the_kernel(plain, options):
    saccade.attention(*operands(), causal="top_left")
    compiles(1, lambda: [calls(**each) for each in options])


def test_an_infinite_window_is_none(plain):
    compiles(0, lambda: calls(window=(None, -1)))


def test_lengths_are_arguments_of_the_kernel(plain):
    compiles(1, lambda: [saccade.attention(*operands(), kv_len=length) for length in (0, 3, 6)])
    compiles(1, lambda: [saccade.attention(*operands(2), kv_len=torch.tensor([length, 4])) for length in (0, 3, 6)])
    compiles(1, lambda: saccade.attention(*operands(2), kv_len=torch.tensor([3, 4]).int()))


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"depth": 16}, {}),
        ({"value_depth": 24}, {}),
        ({"dtype": torch.float16}, {}),
        ({"queries": 6}, {"layout": "bshd"}),
    ],
    ids=["head size", "head size of values", "element type", "layout"],
)
def test_head_sizes_types_and_layouts_are_kernels_of_their_own(plain, sizes, options):
    compiles(1, lambda: saccade.attention(*operands(**sizes), **options))


def test_numpy_shares_the_kernel(plain):
    before = saccade.cache_info()
    saccade.attention(*(x.numpy() for x in operands()))
    assert saccade.cache_info()[:2] == (before.hits + 1, before.compilations)


def handles():
    """How many compiled modules Python holds."""
    return sum(type(x).__name__ == "Handle" and type(x).__module__ == "saccade.function" for x in gc.get_objects())


def test_clearing_forgets_plans_and_traces():
    saccade.attention(*operands(), score=lambda s, b, h, i, j: s * 2)
    assert module._plans
    assert module._regions
    saccade.cache_clear()
    assert saccade.cache_info()[:3] == (0, 0, 0)
    assert not module._plans
    assert not module._regions


# Kernels go, tables that functions made go, and the same call compiles.
def test_clearing_frees_kernels():
    gc.collect()
    others = handles()
    for _ in (1, 2):
        saccade.attention(*operands(), score=lambda s, b, h, i, j: s + torch.tensor([0.5, 0.25])[h])
        assert saccade.cache_info()[1:3] == (1, 1)
        assert handles() == others + 1
        saccade.cache_clear()
        assert handles() == others, "a kernel is kept after it was forgotten"


def test_a_refused_call_costs_nothing():
    q, k, v = operands(depth=40)
    before = saccade.cache_info()
    refused(ValueError, ["k has head size 8"], saccade.attention, q, k[..., :8], v)
    assert saccade.cache_info() == before


def test_traces_are_bounded_in_number(monkeypatch):
    monkeypatch.setattr(module, "_MAX_PLANS", 8)
    inputs = operands()
    before = None
    for n in range(20):
        saccade.attention(*inputs, score=lambda s, b, h, i, j, unused=n: s)
        assert len(module._regions) <= 8
        now = saccade.cache_info().compilations
        assert before in (None, now), "one program is compiled"
        before = now


# Those in use stay. To forget one costs a look into the compiler's cache, no compilation.
def test_plans_are_bounded_in_number(monkeypatch):
    monkeypatch.setattr(module, "_MAX_PLANS", 8)
    for depth in range(1, 20):
        saccade.attention(*operands(depth=depth, value_depth=1, keys=1))
        before = saccade.cache_info()
        saccade.attention(*operands())
        assert saccade.cache_info() == before or depth == 1, "a plan in use is forgotten"
        assert len(module._plans) <= 8, len(module._plans)
    module._plans.clear()
    before = saccade.cache_info()
    saccade.attention(*operands())
    assert saccade.cache_info()[:2] == (before.hits + 1, before.compilations)
