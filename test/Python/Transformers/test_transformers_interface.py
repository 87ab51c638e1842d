"""The attention function of attn_implementation="saccade": its arguments, calls in training, and what is refused."""

import types
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers_families import FAMILIES, inputs_of

import saccade.transformers
from saccade.dropout import dropout_mask
from saccade.transformers import attention_forward
from saccade.transformers import weights as weights_module

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, SIZE = 2, 4, 2, 6, 9, 16


pytestmark = pytest.mark.usefixtures("no_grad", "no_warning_yet")


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return (torch.randn(BATCH, QUERIES, HEADS, SIZE).transpose(1, 2), torch.randn(BATCH, KV_HEADS, KEYS, SIZE),
            torch.randn(BATCH, KV_HEADS, KEYS, SIZE))


def module(is_causal=False):
    return types.SimpleNamespace(is_causal=is_causal, num_key_value_groups=HEADS // KV_HEADS, training=False)


def check(qkv, mask=None, *, is_causal=False, **options):
    """Compares with Transformers' own function."""
    found, weights = attention_forward(module(is_causal), *qkv, mask, **options)
    expected, _ = sdpa_attention_forward(module(is_causal), *qkv, mask, **options)
    assert weights is None and found.is_contiguous() and found.shape == expected.shape
    assert torch.allclose(found, expected, atol=2e-6)


def test_registered():
    name = saccade.transformers.NAME
    assert transformers.AttentionInterface()[name] is attention_forward
    assert transformers.AttentionMaskInterface()[name] is saccade.transformers.make_mask


def test_is_causal(qkv):
    """The argument goes before the module's attribute. Query i sees the keys up to i; one query sees all."""
    q, k, v = qkv
    for attribute in (False, True):
        for argument in (None, False, True):
            found, _ = attention_forward(module(attribute), *qkv, None, is_causal=argument)
            expected, _ = sdpa_attention_forward(module(attribute), *qkv, None, is_causal=argument)
            assert torch.allclose(found, expected, atol=2e-6)
    check((q[:, :, -1:], k, v), is_causal=True)


@pytest.mark.parametrize("shape", [(BATCH, 1, QUERIES, KEYS), (1, HEADS, QUERIES, KEYS), (BATCH, 1, 1, KEYS)])
def test_given_masks(qkv, shape):
    """Masks that users prepare are boolean or additive, and broadcast."""
    mask = torch.rand(shape) < 0.7
    mask[..., 0] = True
    check(qkv, mask)
    check(qkv, torch.where(mask, torch.randn(shape), torch.finfo(torch.float32).min))
    found, _ = attention_forward(module(), *qkv, torch.cat([mask, mask], dim=-1))  # more keys than there are
    assert torch.equal(found, attention_forward(module(), *qkv, mask)[0])


def test_position_bias(qkv):
    bias = torch.randn(1, HEADS, QUERIES, KEYS)
    check(qkv, position_bias=bias, scaling=1.0)
    check(qkv, torch.rand(BATCH, 1, QUERIES, KEYS) < 0.7, position_bias=bias)
    check(qkv, torch.randn(BATCH, 1, QUERIES, KEYS), position_bias=bias)
    check(qkv, is_causal=True, position_bias=bias)


def test_batch_of_queries_broadcasts(qkv):
    q, k, v = qkv
    found, _ = attention_forward(module(), q[:1], k, v, None)
    assert torch.equal(found, attention_forward(module(), q[:1].expand(2, -1, -1, -1), k, v, None)[0])


@pytest.mark.parametrize("queries", [QUERIES, 1])
def test_window_without_mask(qkv, queries):
    """As FlashAttention: `sliding_window` keys up to the query's own; the only query owns the last key."""
    q, k, v = qkv
    q = q[:, :, :queries]
    own = torch.arange(queries)[:, None] if queries > 1 else torch.tensor([[KEYS - 1]])
    keys = torch.arange(KEYS)
    expected, _ = attention_forward(module(), q, k, v, ((keys <= own) & (keys > own - 3))[None, None])
    found, _ = attention_forward(module(True), q, k, v, None, sliding_window=3)
    assert torch.allclose(found, expected, atol=2e-6)


def test_window_without_mask_on_both_sides(qkv):
    own, keys = torch.arange(QUERIES)[:, None], torch.arange(KEYS)
    expected, _ = attention_forward(module(), *qkv, ((keys - own).abs() < 3)[None, None])
    assert torch.allclose(attention_forward(module(), *qkv, None, sliding_window=3)[0], expected, atol=2e-6)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("queries", [QUERIES, 1])
def test_window_without_mask_of_exports_and_indices(qkv, is_causal, queries):
    class Attention(torch.nn.Module):
        num_key_value_groups = HEADS // KV_HEADS

        def forward(self, q, k, v, indices=None, size=3):
            return attention_forward(self, q, k, v, None, is_causal=is_causal, sliding_window=size, indices=indices)[0]

    given, own = (qkv[0][:, :, :queries], *qkv[1:]), Attention().eval()
    expected = own(*given)
    assert not torch.allclose(expected, own(*given, size=8), atol=1e-2)
    assert torch.allclose(torch.export.export(own, given).module()(*given), expected, atol=2e-6)
    every = torch.arange(KEYS).expand(BATCH, queries, KEYS)
    assert torch.allclose(own(*given, every), expected, atol=2e-6)


def test_sinks_of_another_type(qkv):
    """Sinks of f16 weights beside f32 queries, and of f32 beside bf16."""
    sinks = torch.randn(HEADS)
    expected, _ = attention_forward(module(), *qkv, None, s_aux=sinks.half().float())
    assert torch.equal(attention_forward(module(), *qkv, None, s_aux=sinks.half())[0], expected)


def test_autocast(qkv):
    """Attention computes in autocast's type, as PyTorch's function does."""
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = attention_forward(module(), *qkv, None)
        expected, _ = sdpa_attention_forward(module(), *qkv, None)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert torch.allclose(found.float(), expected.float(), atol=2e-2)


def test_inference_mode(qkv):
    with torch.inference_mode():
        check([x.clone() for x in qkv])


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "t5", "bert", "deepseek_v4"])
def test_training(name):
    """Gradients are those of eager attention, without a warning that PyTorch computes them."""
    family = FAMILIES[name]
    model, given = family.build(), inputs_of(family, "right")
    results = []
    for implementation in ("eager", "saccade"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        with torch.enable_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            output = model(**given)[0]
            shown = [str(each.message) for each in caught if "saccade" in str(each.message)]
            mask = given["attention_mask"].bool()
            (output[mask] if output.shape[:2] == mask.shape else output).square().mean().backward()
        results.append(torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None]))
    assert not shown
    assert (results[1] - results[0]).norm() < 1e-4 * results[0].norm()


@pytest.mark.parametrize("is_recorded", [False, True])
def test_dropout(qkv, is_recorded):
    """The weights that a seed of PyTorch's generator determines are dropped, forward and backward."""
    sinks = torch.randn(HEADS)
    results = []
    for function in (attention_forward, _with_dropped_weights):
        torch.manual_seed(7)
        with torch.set_grad_enabled(is_recorded):
            given = [x.clone().requires_grad_(is_recorded) for x in qkv]
            output, _ = function(module(), *given, None, dropout=0.25, s_aux=sinks)
            results.append([output, *(torch.autograd.grad(output.square().sum(), given) if is_recorded else ())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def _with_dropped_weights(_, q, k, v, mask, *, dropout, s_aux):
    seed = int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    scores = q @ k.mT / SIZE**0.5
    rows = torch.cat([scores, s_aux.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    kept = torch.from_numpy(dropout_mask(tuple(scores.shape), dropout, seed).copy())
    return (rows.softmax(-1)[..., :-1] * kept / (1 - dropout) @ v).transpose(1, 2), None


def test_dropout_under_compile_is_that_of_pytorch(qkv):
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: attention_forward(module(), *x, None, dropout=0.5)[0], backend="eager")
    with pytest.warns(saccade.Warning, match="dropout is not supported under torch.compile"):
        found = compiled(*qkv)
    assert not torch.allclose(found, attention_forward(module(), *qkv, None)[0], atol=1e-2)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*deprecated:DeprecationWarning")
def test_jit_trace_records_the_operators_of_pytorch(qkv):
    q, k, v = qkv
    with warnings.catch_warnings():
        warnings.simplefilter("error", saccade.Warning)
        traced = torch.jit.trace(lambda q: attention_forward(module(), q, k, v, None)[0], q)
    torch.testing.assert_close(traced(2 * q), attention_forward(module(), 2 * q, k, v, None)[0])


def test_autocast_leaves_float64(qkv):
    with torch.autocast("cpu", torch.bfloat16):
        assert attention_forward(module(), *qkv, None)[0].dtype == torch.bfloat16
        assert attention_forward(module(), *[x.double() for x in qkv], None)[0].dtype == torch.float64


WEIGHTS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scaling": 0.5},
    "bias": {"position_bias": torch.randn(1, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1))},
    "cap": {"softcap": 2.0},
    "sinks": {"s_aux": torch.tensor([0.1, 1.0, -1.0, 2.0])},
    "window": {"sliding_window": 3, "is_causal": True},
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_those_of_the_output(qkv, name):
    options = WEIGHTS[name]
    output, weights = attention_forward(module(), *qkv, None, output_attentions=True, **options)
    assert weights.shape == (BATCH, HEADS, QUERIES, KEYS)
    value = qkv[2].repeat_interleave(HEADS // KV_HEADS, 1)
    torch.testing.assert_close((weights @ value).transpose(1, 2), output, rtol=0, atol=2e-6)
    assert torch.equal(output, attention_forward(module(), *qkv, None, **options)[0])


def test_weights_of_a_mask_with_an_empty_row(qkv):
    mask = torch.rand(BATCH, 1, QUERIES, KEYS) < 0.5
    mask[0, 0, 2] = False
    output, weights = attention_forward(module(), *qkv, mask, output_attentions=True)
    assert weights[0, :, 2].abs().max() == 0 and (weights[~mask.expand_as(weights)] == 0).all()
    value = qkv[2].repeat_interleave(HEADS // KV_HEADS, 1)
    torch.testing.assert_close((weights @ value).transpose(1, 2), output, rtol=0, atol=2e-6)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_models_return_weights(family):
    """As "eager"; Transformers refuses the attribute of the configuration."""
    model = FAMILIES[family].build()
    inputs = inputs_of(FAMILIES[family], "right")
    expected = model(**inputs, output_attentions=True).attentions
    model.set_attn_implementation("saccade")
    found = model(**inputs, output_attentions=True).attentions
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="Please set it to 'eager' instead"):
        model.config.output_attentions = True


def test_weights_that_are_not_returned_name_what_to_call(qkv, monkeypatch):
    monkeypatch.setattr(weights_module, "LARGEST", BATCH * HEADS * QUERIES * KEYS - 1)
    with pytest.raises(ValueError, match=r"weights \[2, 4, 6, 9\], .* saccade.attention_weights computes those of"):
        attention_forward(module(), *qkv, None, output_attentions=True)
    with pytest.raises(NotImplementedError, match='no weights for sinks of each query: use "eager"'):
        attention_forward(module(), *qkv, None, output_attentions=True, sinks=torch.zeros(BATCH, HEADS, QUERIES, 1))


def test_block_indices_are_not_supported(qkv):
    with pytest.raises(NotImplementedError, match=r'SimpleNamespace passes block_indices, .* expected "eager"'):
        attention_forward(module(), *qkv, None, block_indices=torch.zeros(1))


@pytest.mark.parametrize("masked", ["nothing", "some", "a row"])
def test_sinks_of_each_query(qkv, masked):
    """As the eager code of Inkling 2, with gradients of the sinks; a row without keys is 0."""
    q, k, v = [x.double() for x in qkv]
    repeat = lambda x: x.repeat_interleave(HEADS // KV_HEADS, 1)
    sinks, scores = torch.randn(*q.shape[:3], 1, dtype=torch.float64) * 3, q @ repeat(k).mT * 0.3
    shown = torch.rand(q.shape[0], 1, q.shape[2], k.shape[2]) < 0.6
    shown = {"nothing": torch.ones_like(shown), "some": shown, "a row": shown & (torch.arange(q.shape[2]) > 0)[:, None]}[masked]
    with torch.enable_grad():
        leaves = [x.clone().requires_grad_() for x in (v, sinks)]
        logits = torch.cat([scores.masked_fill(~shown, -torch.inf), leaves[1]], -1)
        expected = torch.softmax(logits, -1)[..., :-1] @ repeat(leaves[0])
        derivatives = torch.autograd.grad(expected.square().sum(), leaves)
        found, _ = attention_forward(module(), q, k, leaves[0], shown, scaling=0.3, sinks=leaves[1])
        gradients = torch.autograd.grad(found.square().sum(), leaves)
    assert torch.allclose(found.transpose(1, 2), expected, atol=1e-12)
    for x, y in zip(gradients, derivatives):
        assert torch.allclose(x, y, atol=1e-12)
    with torch.no_grad():
        again, _ = attention_forward(module(), q, k, v, shown, scaling=0.3, sinks=sinks)
    assert torch.allclose(again.transpose(1, 2), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_torch_compile(name):
    """Each call is an operator of the graph, also with a sliding window; results do not change."""
    family = FAMILIES[name]
    model, given = family.build(), inputs_of(family, "left")
    model.set_attn_implementation("saccade")
    expected = model(**given).logits
    torch._dynamo.reset()
    found = torch.compile(model, backend="eager", fullgraph=True)(**given).logits
    mask = given["attention_mask"].bool()
    assert torch.allclose(found[mask], expected[mask], atol=1e-5)
