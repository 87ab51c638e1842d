"""PyTorch's functions and modules are computed by Saccade in `saccade.torch.enabled()`, and by PyTorch after it."""

import concurrent.futures
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention import flex_attention as flex_module
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

import saccade.torch
from saccade.torch import flex, sdpa

generator = torch.Generator().manual_seed(1)
q, k, v = torch.randn(3, 2, 4, 6, 8, generator=generator)
x = torch.randn(2, 7, 16, generator=generator)


@pytest.fixture
def served(monkeypatch):
    """Counts the calls that Saccade computes, by function."""
    counts = {"sdpa": 0, "flex": 0}

    def count(module, name, key):
        original = getattr(module, name)

        def counted(*args, **kwargs):
            result = original(*args, **kwargs)
            counts[key] += result is not None
            return result

        monkeypatch.setattr(module, name, counted)

    count(sdpa, "_direct", "sdpa")
    count(sdpa, "compute", "sdpa")
    count(flex, "compute", "flex")
    return counts


@pytest.fixture(autouse=True)
def quick_flex(no_warning_yet, monkeypatch):
    monkeypatch.setattr(flex_module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)  # a quick evaluation by PyTorch


def close(found, expected):
    assert (found - expected).abs().max() < 1e-5


def test_functions_are_served_in_the_block_only(served):
    expected, expected_flex = F.scaled_dot_product_attention(q, k, v), flex_attention(q, k, v)
    fast = torch.backends.mha.get_fastpath_enabled()
    code = flex_attention.__code__
    with saccade.torch.enabled():
        close(F.scaled_dot_product_attention(q, k, v), expected)
        close(scaled_dot_product_attention(q, k, v, torch.zeros(6, 6)), expected)  # imported by name
        close(torch.ops.aten.scaled_dot_product_attention(q, k, v), expected)
        close(flex_attention(q, k, v), expected_flex)
        close(flex_module.flex_attention(q, k, v, enable_gqa=True), expected_flex)
        assert served == {"sdpa": 3, "flex": 2}
        with saccade.torch.enabled():
            F.scaled_dot_product_attention(q, k, v)
        F.scaled_dot_product_attention(q, k, v)
        assert served["sdpa"] == 5
    F.scaled_dot_product_attention(q, k, v)
    flex_attention(q, k, v)
    assert served == {"sdpa": 5, "flex": 2}
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert flex_attention.__code__ is code


def test_the_block_is_that_of_a_thread_and_enable_of_all(served):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int).result()  # starts its thread

    def elsewhere(function=F.scaled_dot_product_attention):
        pool.submit(function, q, k, v).result()

    with saccade.torch.enabled():
        elsewhere()
        elsewhere(flex_attention)
        assert served == {"sdpa": 0, "flex": 0}
    saccade.torch.enable()
    try:
        saccade.torch.enable()  # once more changes nothing
        elsewhere()
        assert served["sdpa"] == 1
        with saccade.torch.enabled():
            saccade.torch.disable()
            elsewhere()
            assert served["sdpa"] == 1
            F.scaled_dot_product_attention(q, k, v)
            assert served["sdpa"] == 2
    finally:
        saccade.torch.disable()
        saccade.torch.disable()
        pool.shutdown()
    F.scaled_dot_product_attention(q, k, v)
    assert served["sdpa"] == 2


def test_threads_that_are_started_in_the_block_are_in_it(served):
    def elsewhere():
        F.scaled_dot_product_attention(q, k, v)

    def nested():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    start = threading.Thread.start
    with saccade.torch.enabled():
        for target in (elsewhere, nested):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        assert served["sdpa"] == 2
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(elsewhere).result()
        assert served["sdpa"] == 3
    nested()
    assert served["sdpa"] == 3
    assert threading.Thread.start is start


def test_a_thread_that_outlives_the_block_leaves_it_at_its_end(served):
    ended, inside, counts = threading.Event(), threading.Event(), []

    def elsewhere():
        F.scaled_dot_product_attention(q, k, v)
        counts.append(served["sdpa"])
        inside.set()
        ended.wait()
        F.scaled_dot_product_attention(q, k, v)
        counts.append(served["sdpa"])

    with saccade.torch.enabled():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        inside.wait()
    ended.set()
    thread.join()
    assert counts == [1, 1]


def test_the_end_of_an_inner_block_leaves_its_threads_in_the_outer_one(served):
    inner_ended, done = threading.Event(), threading.Event()

    def elsewhere():
        inner_ended.wait()
        F.scaled_dot_product_attention(q, k, v)
        done.set()

    with saccade.torch.enabled():
        with saccade.torch.enabled():
            thread = threading.Thread(target=elsewhere)
            thread.start()
        inner_ended.set()
        done.wait()
        thread.join()
    assert served["sdpa"] == 1


MASKS = {
    "none": {},
    "causal": {"attn_mask": torch.ones(7, 7).triu(1).bool(), "is_causal": True},
    "bool": {"attn_mask": torch.ones(7, 7).triu(2).bool()},
    "float": {"attn_mask": torch.randn(7, 7, generator=generator)},
    "heads": {"attn_mask": torch.randn(8, 7, 7, generator=generator)},
    "padding": {"key_padding_mask": torch.arange(7)[None] >= torch.tensor([[5], [7]])},
    "both": {"attn_mask": torch.ones(7, 7).triu(1).bool(), "key_padding_mask": torch.arange(7)[None] >= torch.tensor([[5], [7]])},
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("is_training", [False, True])
def test_multihead_attention(served, name, is_training):
    torch.manual_seed(1)
    module = nn.MultiheadAttention(16, 4, batch_first=True).train(is_training)
    with torch.no_grad():
        expected, _ = module(x, x, x, need_weights=False, **MASKS[name])
        with saccade.torch.enabled():
            found, _ = module(x, x, x, need_weights=False, **MASKS[name])
            cross, _ = module(x[:, :3], x, x, need_weights=False)
    close(found, expected)
    close(cross, module(x[:, :3], x, x, need_weights=False)[0])
    assert served["sdpa"] == 2


def test_gradients_of_a_module(served):
    torch.manual_seed(1)
    module = nn.MultiheadAttention(16, 4, batch_first=True)

    def gradient():
        module.zero_grad()
        module(x, x, x, need_weights=False)[0].sum().backward()
        return module.in_proj_weight.grad.clone()

    expected = gradient()
    with saccade.torch.enabled():
        found = gradient()
    close(found, expected)
    assert served["sdpa"] == 1


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder_and_its_fast_path(served, norm_first):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = MASKS["padding"]["key_padding_mask"]
    with torch.inference_mode():
        expected, expected_padded = encoder(x), encoder(x, src_key_padding_mask=padding)
        with saccade.torch.enabled():
            found, padded = encoder(x), encoder(x, src_key_padding_mask=padding)
    close(found, expected)
    close(padded[~padding], expected_padded[~padding])
    assert served["sdpa"] == 4


def test_nested_tensors_need_the_fast_path():
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    nested = torch.nested.nested_tensor([x[0, :3], x[1]])
    with torch.no_grad():
        expected, _ = layer(nested, nested, nested)
        with saccade.torch.enabled():
            with pytest.raises(AssertionError, match="does not support NestedTensor outside of its fast path"):
                layer(nested, nested, nested)
            torch.backends.mha.set_fastpath_enabled(True)
            found, _ = layer(nested, nested, nested)
    close(found.to_padded_tensor(0), expected.to_padded_tensor(0))


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION])
def test_the_choice_of_a_kernel_of_pytorch_has_no_effect(served, backend):
    expected = F.scaled_dot_product_attention(q, k, v)
    with saccade.torch.enabled(), sdpa_kernel(backend):  # PyTorch has no kernel EFFICIENT_ATTENTION for CPUs
        close(F.scaled_dot_product_attention(q, k, v), expected)
    assert served["sdpa"] == 1


def test_scripted_and_compiled_modules(served):
    script = torch.jit.script(_attend)
    compiled = torch.compile(_attend, backend="aot_eager", fullgraph=True)
    expected = _attend(q, k, v)
    with saccade.torch.enabled(), torch.no_grad():
        close(script(q, k, v), expected)
        assert served["sdpa"] == 1
        close(compiled(q, k, v), expected)  # the graph has PyTorch's operators
    assert served["sdpa"] == 1


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def test_what_saccade_does_not_take_is_pytorchs_with_one_warning(served):
    class Tagged(torch.Tensor):
        pass

    nested = torch.nested.nested_tensor([torch.ones(4, 7, 8), torch.ones(4, 5, 8)])
    with saccade.torch.enabled():
        assert F.scaled_dot_product_attention(nested, nested, nested).is_nested  # PyTorch dispatches them elsewhere
        with pytest.warns(saccade.Warning, match="attn_mask should not be set when is_causal=True"):
            F.scaled_dot_product_attention(q, k, v, torch.zeros(6, 6), is_causal=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            F.scaled_dot_product_attention(*(y.to("meta") for y in (q, k, v)))
        assert served["sdpa"] == 0
        assert type(F.scaled_dot_product_attention(q.as_subclass(Tagged), k, v)) is Tagged
        with torch.autocast("cpu"):
            assert F.scaled_dot_product_attention(q, k, v).dtype == torch.bfloat16
        with pytest.raises(RuntimeError, match="to have the same dtype"):
            F.scaled_dot_product_attention(q, k.double(), v)
        with pytest.raises(ValueError, match="same number of heads"):
            flex_attention(q, k[:, :2], v[:, :2])


def test_an_error_in_a_block_ends_it(served):
    with pytest.raises(KeyError), saccade.torch.enabled():
        raise KeyError
    F.scaled_dot_product_attention(q, k, v)
    assert served["sdpa"] == 0


# --- torch.nn.attention.register_flash_attention_impl -----------------------------------------------------------------


def outputs(mask=None, **options):
    """The output and its gradients."""
    leaves = [y.clone().requires_grad_() for y in (q, k, v)]
    output = F.scaled_dot_product_attention(*leaves, mask, **options)
    (output * torch.arange(8)).sum().backward()
    return [output.detach(), *(leaf.grad for leaf in leaves)]


@pytest.fixture
def flash():
    attention = pytest.importorskip("torch.nn.attention")
    if not hasattr(attention, "register_flash_attention_impl"):
        pytest.skip("this torch has no registry of implementations")
    saccade.torch.register_flash_impl()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about the overridden kernel
        attention.activate_flash_attention_impl("saccade")
    assert attention.current_flash_attention_impl() == "saccade"
    yield attention.restore_flash_attention_impl
    attention.restore_flash_attention_impl(_raise_warn=False)


def test_the_flash_implementation_serves_training(flash, monkeypatch):
    hidden = torch.ones(6, 6).tril().bool()
    hidden[3] = False
    calls = [dict(), dict(is_causal=True), dict(mask=hidden), dict(mask=torch.randn(2, 1, 6, 6), scale=0.3)]
    found = [outputs(**call) for call in calls]
    monkeypatch.setattr(sdpa, "attention", None)
    with pytest.raises(TypeError):  # the calls are Saccade's
        outputs()
    flash()
    expected = [outputs(**call) for call in calls]
    for results, own in zip(found, expected):
        for result, want in zip(results, own):
            close(result, want)
    assert found[2][0][:, :, 3].abs().max() == 0
