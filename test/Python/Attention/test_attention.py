"""`saccade.attention` on torch tensors equals the formula in float64, for every option, layout, type and stride."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from plain_attention import expect_close, plain_attention

import saccade

SHAPE = {"batch": 2, "heads": 4, "key_heads": 2, "queries": 13, "keys": 21, "depth": 16, "value_depth": 16}
LENGTHS = torch.tensor([21, 8])
CHOICES = {
    "causal": [None, "top_left", "bottom_right", 0, 5, -3, 10**30, -(10**30)],
    "window": [None, 4, (3, 2), (None, 1), (5, -1), (None, None), (0, 10**30), (10**30, 0)],
    "scale": [None, 0.3, -0.5, 0],
    "kv_len": [None, 17, 0, 21, LENGTHS, LENGTHS.int()],
}
PAIRS = [
    {first: one, second: other}
    for first, second in itertools.combinations(CHOICES, 2)
    for one, other in itertools.product(CHOICES[first], CHOICES[second])
]
# All dimensions; no heads; no batch; neither.
LAYOUTS = ["bhsd", "bshd", "sbhd", "dbhs", "hsd", "shd", "bsd", "sbd", "sd", "ds"]
EMPTY = [
    {"keys": 0}, {"queries": 0}, {"queries": 0, "keys": 0}, {"batch": 0}, {"heads": 0}, {"heads": 0, "key_heads": 0},
]  # fmt: skip


def operands(layout="bhsd", dtype=torch.float32, **sizes):
    """q, k, v of SHAPE with other `sizes`; the same call gives the same values."""
    n = SHAPE | sizes
    generator = torch.Generator().manual_seed(4)

    def normal(heads, length, depth):
        size = {"b": n["batch"], "h": heads, "s": length, "d": depth}
        return torch.randn([size[dim] for dim in layout], dtype=torch.float64, generator=generator).to(dtype)

    return (normal(n["heads"], n["queries"], n["depth"]), normal(n["key_heads"], n["keys"], n["depth"]),
            normal(n["key_heads"], n["keys"], n["value_depth"]))  # fmt: skip


def check(q, k, v, **options):
    """The call, without and with the log-sum-exp."""
    output, lse = saccade.attention(q, k, v, return_lse=True, **options)
    assert output.dtype == q.dtype
    assert lse.dtype == (torch.float64 if q.dtype == torch.float64 else torch.float32)
    formula = {key: value for key, value in options.items() if key != "target"}
    expected, expected_lse = plain_attention(q, k, v, **formula)
    expect_close(output, expected, options)
    expect_close(lse, expected_lse, options)
    expect_close(saccade.attention(q, k, v, **options), expected, options)


def readable(options):
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "none"


@pytest.mark.parametrize("options", PAIRS, ids=readable)
def test_every_pair_of_options_equals_the_formula(options):
    check(*operands(), **options)


@pytest.mark.parametrize("kv_len", [19, torch.tensor([12, 20])], ids=["one length", "lengths"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_equals_the_formula(layout, kv_len):
    grouped = {} if "h" in layout else {"heads": 1, "key_heads": 1}
    lengths = kv_len if isinstance(kv_len, int) else kv_len[: 2 if "b" in layout else 1]
    check(*operands(layout, value_depth=24, **grouped), layout=layout, causal="bottom_right", kv_len=lengths)


@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (6, 6), (6, 3), (6, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_every_type_and_group_of_heads_equals_the_formula(dtype, heads, key_heads):
    check(*operands(dtype=dtype, heads=heads, key_heads=key_heads), causal="bottom_right", scale=0.2)


def test_portable_target_equals_the_formula():
    check(*operands(), target="portable", window=(4, 4))


@pytest.mark.parametrize("options", [{}, {"causal": "bottom_right", "window": 3}], ids=readable)
@pytest.mark.parametrize("sizes", EMPTY, ids=readable)
def test_empty_operands_equal_the_formula(sizes, options):
    check(*operands(**sizes), **options)


def test_no_keys_give_zero_and_minus_infinity():
    output, lse = saccade.attention(*operands(keys=0), return_lse=True)
    assert not output.any()
    assert (lse == -torch.inf).all()


# --- strides


def test_transposed_views_give_equal_bits():
    q, k, v = operands()
    view = q.transpose(1, 2).contiguous().transpose(1, 2), k.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), v
    assert torch.equal(saccade.attention(*view, causal=2), saccade.attention(q, k, v, causal=2))


def test_views_of_padded_and_spread_memory_give_equal_bits():
    q, k, v = operands()
    padded = torch.full((3, 5, 25, 20), torch.nan)
    padded[1:, 1:3, 2:23, 3:19] = k
    spread = torch.full((*v.shape, 2), torch.nan)
    spread[..., 0] = v
    view = q, padded[1:, 1:3, 2:23, 3:19], spread[..., 0]
    assert torch.equal(saccade.attention(*view, causal=2), saccade.attention(q, k, v, causal=2))


def test_broadcast_views_equal_the_formula():
    q, k, v = operands()
    check(q[:1, :1].expand_as(q), k[:1, :1, :, :1].expand_as(k), v[:, :1].expand_as(v))


def test_nan_beyond_the_length_counts_for_nothing():
    q, k, v = operands()
    k[0, :, 9:], v[0, :, 9:], k[1, :, 4:], v[1, :, 4:] = (torch.nan,) * 4
    check(q, k, v, kv_len=torch.tensor([9, 4]))


# --- out


@pytest.fixture(scope="module")
def inputs():
    return operands(value_depth=24)


@pytest.fixture(scope="module")
def expected(inputs):
    """The output and the log-sum-exp in new memory."""
    output, lse = saccade.attention(*inputs, return_lse=True)
    # The log-sum-exp as a result makes natural maxima, whose weights are rounded in another way.
    torch.testing.assert_close(output, saccade.attention(*inputs))
    return output, lse


@pytest.fixture
def memory():
    """What the output is a part of."""
    return torch.full((2, 13, 4, 30), 7.0)


@pytest.fixture
def out(memory):
    """Memory for the output, with other strides."""
    return memory.transpose(1, 2)[..., 3:27]


def test_out_takes_the_output_and_nothing_around_it_changes(inputs, expected, memory, out):
    version = out._version
    assert saccade.attention(*inputs, out=out) is out
    assert torch.equal(out, saccade.attention(*inputs))
    assert out._version > version
    assert (memory[..., :3] == 7).all()
    assert (memory[..., 27:] == 7).all()


def test_out_for_the_output_only_leaves_a_new_lse(inputs, expected, out):
    result, lse = saccade.attention(*inputs, out=out, return_lse=True)
    assert result is out
    assert torch.equal(out, expected[0])
    assert torch.equal(lse, expected[1])


def test_out_takes_output_and_lse(inputs, expected, out):
    outs = (out.fill_(0), torch.full((13, 2, 4), 7.0).permute(1, 2, 0))
    versions = [x._version for x in outs]
    results = saccade.attention(*inputs, out=outs, return_lse=True)
    assert all(x is y for x, y in zip(results, outs, strict=True))
    assert all(x._version > n for x, n in zip(outs, versions))
    for found, new in zip(outs, expected):
        assert torch.equal(found, new)


def test_out_may_lie_beside_an_input_in_one_tensor(inputs):
    q, k, v = inputs
    halves = torch.zeros(2, 4, 13, 32)
    halves[..., :16] = q
    found = saccade.attention(halves[..., :16], k, v[..., :16], out=halves[..., 16:])
    assert torch.equal(found, saccade.attention(q, k, v)[..., :16])


def test_tensors_with_gradients_pass_under_no_grad(inputs, expected):
    q, k, v = inputs
    with torch.no_grad():
        found = saccade.attention(q.clone().requires_grad_(), k, torch.nn.Parameter(v))
    assert torch.equal(found, saccade.attention(*inputs))
