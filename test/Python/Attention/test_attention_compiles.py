"""What makes a new kernel of `saccade.attention` and what does not, as the counters of `saccade.cache_info` tell."""

import functools
import gc
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade

module = sys.modules["saccade.attention"]
functions = sys.modules["saccade._functions"]


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
    assert functions._regions
    saccade.cache_clear()
    assert saccade.cache_info()[:3] == (0, 0, 0)
    assert not module._plans
    assert not functions._regions


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
    monkeypatch.setattr(functions, "_MAX_REGIONS", 8)
    inputs = operands()
    before = None
    for n in range(20):
        saccade.attention(*inputs, score=lambda s, b, h, i, j, unused=str(n): s)
        assert len(functions._regions) <= 8
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


# --- numbers that functions capture -----------------------------------------------------------------------------------

reach = 1


def by_global(b, h, i, j):
    return i - j < reach


def test_a_decode_loop_whose_mask_closes_over_the_position_compiles_once():
    k, v = torch.randn(1, 1, 320, 8), torch.randn(1, 1, 320, 8)

    def step(position):
        q = torch.randn(1, 1, 1, 8)
        found = saccade.attention(q, k, v, mask=lambda b, h, i, j: (j <= position) & (j > position - 64))
        kept = slice(max(0, position - 63), position + 1)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k[:, :, kept], v[:, :, kept])
        torch.testing.assert_close(found, expected)

    before = saccade.cache_info()
    for position in range(300):
        step(position)
    assert saccade.cache_info().compilations - before.compilations == 1
    assert sum(len(known.regions) for known in functions._regions.values()) == 1


def test_a_float_parameter_compiles_once():
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))

    def loop():
        for step in range(300):
            factor = 1 / (step + 1)
            found = saccade.attention(q, k, v, score=lambda s, b, h, i, j: s * factor, scale=1.0)
            if step % 50 == 0:
                torch.testing.assert_close(found, torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=factor))

    compiles(1, loop)


def test_numbers_of_globals_defaults_partials_and_dicts_are_operands(monkeypatch):
    config = {"limits": [2, 5]}

    def by_default(b, h, i, j, n=3, *, m=4):
        return (j < n) | (i < m)

    def loop():
        for n in range(1, 9):
            monkeypatch.setattr(sys.modules[__name__], "reach", n)
            config["limits"][1] = n
            saccade.attention(*operands(), mask=by_global)
            by_default.__defaults__ = (n,)
            saccade.attention(*operands(), mask=functools.partial(by_default, m=n))
            saccade.attention(*operands(), mask=lambda b, h, i, j: j <= i + config["limits"][1])

    compiles(3, loop)


def test_parameters_of_the_library_are_operands():
    masks, scores = saccade.masks, saccade.scores
    options = {
        "prefix": lambda n: {"mask": masks.prefix_lm(n)},
        "window": lambda n: {"mask": masks.window(n, 2 * n)},
        "dilated": lambda n: {"mask": masks.dilated(2, n, n + 1)},
        "global": lambda n: {"mask": masks.longformer(n, n)},
        "cap": lambda n: {"score": scores.soft_cap(n / 2)},
        "temperature": lambda n: {"score": scores.temperature(n * 1.5)},
        "offset": lambda n: {"score": scores.relative_bias(torch.rand(2, 9), offset=n)},
    }
    for name, make in options.items():
        before = saccade.cache_info().compilations
        for n in range(1, 6):
            saccade.attention(*operands(), **make(n))
        assert saccade.cache_info().compilations - before == 1, name


def test_a_number_whose_value_is_used_is_compiled_in_and_its_results_follow():
    q, k, v = (torch.randn(1, 1, 6, 8) for _ in range(3))
    i, j = torch.arange(6)[:, None], torch.arange(6)
    before = saccade.cache_info().compilations
    for n in (2, 3, 2, 3, 4):
        mask = lambda b, h, i, j: (i - j) % n == 0 if n < 4 else i == j
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(0, 0, i, j))
        torch.testing.assert_close(saccade.attention(q, k, v, mask=mask), expected)
    assert saccade.cache_info().compilations - before == 3


def test_a_function_that_is_compiled_again_and_again_is_reported_once():
    def loop(limit):
        for stride in range(1, limit):
            saccade.attention(*operands(), mask=lambda b, h, i, j: (i - j) % stride == 0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(8)
    with pytest.warns(saccade.Warning, match=r"mask function was compiled 8 times, for other values of 'stride'") as caught:
        loop(14)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_tensor_too_short_for_an_index_with_a_number_is_refused():
    table, n = torch.rand(8), 3
    shifted = lambda s, b, h, i, j: s + table[i + n]
    saccade.attention(*operands(queries=5), score=shifted)
    for extent, n in ((5, 4), (9, 3)):
        refused(ValueError, ["'table'"], saccade.attention, *operands(queries=extent), score=shifted)
