"""Attention of nested tensors: jagged ones are ragged batches of Saccade, others are PyTorch's."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F

import saccade
import saccade.torch
from saccade.torch import nested, sdpa

LENGTHS, OTHERS = (3, 1, 7), (4, 6, 2)
served = saccade.torch.scaled_dot_product_attention

pytestmark = [pytest.mark.usefixtures("no_warning_yet"),
              pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")]  # fmt: skip


def jagged(lengths, heads=4, width=8, dtype=torch.float32, offsets=None, seed=0):
    """[sequences, heads, length, width]."""
    rows = torch.randn(sum(lengths), heads, width, generator=torch.Generator().manual_seed(seed)).to(dtype)
    if offsets is None:
        offsets = torch.tensor([0, *lengths]).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(rows, offsets).transpose(1, 2)


def operands(dtype=torch.float32, other=False, kv_heads=4, value_width=8):
    query = jagged(LENGTHS, dtype=dtype)
    key = jagged(OTHERS if other else LENGTHS, kv_heads, dtype=dtype, offsets=None if other else query.offsets(), seed=1)
    value = jagged(OTHERS if other else LENGTHS, kv_heads, value_width, dtype, key.offsets(), seed=2)
    return query, key, value


def by_sequence(query, key, value, **options):
    """Attention of each sequence on its own."""
    return [F.scaled_dot_product_attention(*[x[None].contiguous() for x in one], **options)[0]
            for one in zip(query.unbind(), key.unbind(), value.unbind())]


def check(found, expected, query, tolerance=1e-5):
    assert found.layout is torch.jagged
    assert found.shape[:3] == query.shape[:3]  # the same sequences
    for x, y in zip(found.unbind(), expected, strict=True):
        assert x.dtype == y.dtype
        assert (x - y).abs().max() < tolerance


@pytest.fixture
def computed(monkeypatch):
    """Counts the calls that Saccade computes."""
    counts = []
    original = nested.compute

    def compute(*arguments):
        result = original(*arguments)
        counts.append(result)
        return result

    monkeypatch.setattr(sdpa.nested, "compute", compute)
    return counts


@pytest.mark.parametrize(("given", "options"), [
    ({}, {}), ({}, {"scale": 0.3}), ({}, {"is_causal": True}), ({"other": True}, {}), ({"value_width": 16}, {}),
    ({"kv_heads": 2}, {"enable_gqa": True}), ({"kv_heads": 1}, {"enable_gqa": True}),
    ({"dtype": torch.float64}, {"is_causal": True}),
], ids=["plain", "scale", "causal", "other keys", "other value width", "groups", "one group", "f64"])  # fmt: skip
def test_jagged_tensors_are_ragged_batches(given, options, computed):
    query, key, value = operands(**given)
    expected = by_sequence(query, key, value, **options)
    check(served(query, key, value, **options), expected, query)
    with saccade.torch.enabled(), warnings.catch_warnings():
        warnings.simplefilter("error", saccade.Warning)
        check(F.scaled_dot_product_attention(query, key, value, **options), expected, query)
    assert len(computed) == 2


def test_pytorch_computes_after_the_block(computed):
    query, key, value = operands()
    function = torch.nested._internal.sdpa.jagged_scaled_dot_product_attention
    code = function.__code__
    with saccade.torch.enabled():
        assert function.__code__ is not code
    check(F.scaled_dot_product_attention(query, key, value), by_sequence(query, key, value), query)
    assert not computed
    assert function.__code__ is code


def test_gradients():
    query, key, value = operands()
    found = []
    for function in (served, F.scaled_dot_product_attention):
        leaves = [x.values().detach().requires_grad_() for x in (query, key, value)]
        args = [torch.nested.nested_tensor_from_jagged(x.transpose(0, 1), query.offsets()).transpose(1, 2)
                for x in leaves]
        function(*args).values().sin().sum().backward()
        found.append([x.grad for x in leaves])
    for mine, theirs in zip(*found):
        assert (mine - theirs).abs().max() < 1e-5


def test_the_type_is_that_of_autocast(computed):
    query, key, value = operands()
    with saccade.torch.enabled(), torch.autocast("cpu"):
        output = F.scaled_dot_product_attention(query, key, value)
    assert output.dtype == served(*[x.bfloat16() for x in (query, key, value)]).dtype == torch.bfloat16
    assert len(computed) == 2


def test_dropout_is_reproducible():
    query, key, value = operands()
    outputs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outputs.append(served(query, key, value, dropout_p=0.5).values())
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def with_gaps():
    rows = torch.randn(3, 8, 4, 8)
    return torch.nested.narrow(rows, 1, torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]), torch.jagged).transpose(1, 2)


def test_nested_tensors_of_the_strided_layout_are_pytorchs():
    tensors = [torch.nested.nested_tensor([torch.randn(2, n, 8) for n in (3, 5)]) for _ in range(3)]
    expected = F.scaled_dot_product_attention(*tensors)
    reason = "query is a nested tensor, expected a dense one"
    with saccade.torch.enabled(), pytest.warns(saccade.Warning, match=reason):
        found = F.scaled_dot_product_attention(*tensors)
    for x, y in zip(found.unbind(), expected.unbind(), strict=True):
        assert torch.equal(x, y)
    with pytest.raises(NotImplementedError, match=reason):
        served(*tensors)


@pytest.mark.parametrize(("change", "error"), [
    (lambda q, k, v: (q, k, v, torch.zeros(3, 4, 7, 7)), "Masks are not yet supported"),
    (lambda q, k, v: (q, k.values(), v), "nested tensors"),
    (lambda q, k, v: (q, k.double(), v), "same dtype"),
    (lambda q, k, v: (q, k, v, None, 0.0, True), "No viable backend"),
    (lambda q, k, v: [with_gaps()] * 3, "No viable backend"),
], ids=["mask", "dense key", "types", "causal, other lengths", "gaps"])  # fmt: skip
def test_mistakes_are_pytorchs_exceptions(change, error):
    arguments = change(*operands(other=True))
    with pytest.raises((ValueError, RuntimeError), match=error) as theirs:
        F.scaled_dot_product_attention(*arguments)
    for function in (served, F.scaled_dot_product_attention):
        with saccade.torch.enabled(), pytest.raises(theirs.type, match=error):
            function(*arguments)


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("function", [served, F.scaled_dot_product_attention])
def test_torch_compile_records_pytorchs_function(function, computed):
    query, key, value = operands()
    with saccade.torch.enabled():
        found = torch.compile(lambda q, k, v: function(q, k, v), backend="aot_eager")(query, key, value)
    check(found, by_sequence(query, key, value), query)
    assert not computed
