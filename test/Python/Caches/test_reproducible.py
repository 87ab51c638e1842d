"""flash_attn_with_kvcache(reproducible="stream"): the bits of a token do not depend on how a text is cut into calls."""

import random

import pytest

torch = pytest.importorskip("torch")

from cut_text import LENGTH, Text, random_cuts, serve

import saccade
from saccade.torch import flash_attn_with_kvcache

FORMS = {
    "f32": dict(dtype=torch.float32),
    "bf16": dict(dtype=torch.bfloat16, heads=8),
    "f64": dict(dtype=torch.float64, heads=2),
    "f16": dict(dtype=torch.float16, depth=64, heads=12),
    "window": dict(dtype=torch.float32, options={"window_size": (100, 0)}),
    "softcap": dict(dtype=torch.float32, options={"softcap": 5.0}),
    "tail": dict(dtype=torch.float32, depth=40),
    "int8": dict(dtype=torch.float32, quantized=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_bits_do_not_depend_on_calls(form):
    given = dict(dict(heads=4, kv_heads=2, depth=32, options={}, quantized=False), **FORMS[form])
    quantized = given.pop("quantized")
    text, rng = Text(1, **given), random.Random(form)
    expected = serve(text, [LENGTH], quantized=quantized)
    before = saccade.num_threads()
    for n in range(4):
        # Rings of 1 and 8 queries, pages of any size, other sequences in the batch, and another number of threads.
        others = [(), (3, 0, 20), (1,), (0, 9)][n]
        others = () if quantized and others else others
        cuts = random_cuts(rng)
        if others and sum(others[i % len(others)] for i in range(len(cuts))) > LENGTH:
            others = (1,) if len(cuts) <= LENGTH else ()
        saccade.set_num_threads(1 + n % 2)
        try:
            found = serve(text, cuts, rng.choice([0, 1, 7, 16, 64]), quantized, others)
        finally:
            saccade.set_num_threads(before)
        assert torch.equal(found, expected), (n, cuts, (found != expected).any(dim=-1).any(dim=-1).nonzero()[:3])
    # Without it, bits of a prompt and of single tokens differ. Otherwise this test would show nothing.
    if form == "f32":
        default = serve(text, [LENGTH], reproducible=None)
        assert not torch.equal(default, serve(text, range(1, LENGTH + 1), reproducible=None))
        torch.testing.assert_close(default, expected)


def test_it_is_right():
    text = Text(3, torch.float32, 4, 2, 32, {})
    found = serve(text, [300, 301, LENGTH])
    q, k, v = (x.double().transpose(0, 1)[None] for x in (text.q, text.k, text.v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_log_sum_exps():
    text = Text(4, torch.float32, 4, 2, 32, {})
    keys, values = text.k[None].clone(), text.v[None].clone()
    call = dict(cache_seqlens=LENGTH, causal=True, return_softmax_lse=True, reproducible="stream")
    out, lse = flash_attn_with_kvcache(text.q[None], keys, values, **call)
    for first in (0, 7, 511):
        end = first + 19
        call["cache_seqlens"] = end
        part, part_lse = flash_attn_with_kvcache(text.q[None, first:end], keys, values, **call)
        assert torch.equal(part, out[:, first:end]) and torch.equal(part_lse, lse[..., first:end])


def test_a_tree_of_drafts():
    text = Text(5, torch.float32, 4, 2, 32, {})
    keys, values = text.k[None].clone(), text.v[None].clone()
    chain = torch.arange(12) - 1
    call = dict(cache_seqlens=LENGTH, reproducible="stream")
    found = flash_attn_with_kvcache(text.q[None, -12:], keys, values, tree=chain, **call)
    expected = flash_attn_with_kvcache(text.q[None, -12:], keys, values, causal=True, **call)
    assert torch.equal(found, expected)


def test_what_is_refused():
    q, cache = torch.zeros(1, 2, 4, 8), torch.zeros(2, 1, 16, 4, 8)

    def refused(error, message, **options):
        with pytest.raises(error, match=message):
            flash_attn_with_kvcache(q, *cache, cache_seqlens=torch.tensor([5]), causal=True, **options)

    refused(ValueError, "reproducible is 'batch', expected \"stream\" or None", reproducible="batch")
    refused(TypeError, "reproducible is True, expected", reproducible=True)
    refused(ValueError, "given with a ring and several queries", reproducible="stream", ring=0, k=q, v=q)
    with pytest.raises(ValueError, match=r"given with cu_seqlens_q, expected one of them \(seqlens_new"):
        flash_attn_with_kvcache(q[0], *cache, cache_seqlens=torch.tensor([5]), cu_seqlens_q=torch.tensor([0, 2]), causal=True,
                                reproducible="stream")
