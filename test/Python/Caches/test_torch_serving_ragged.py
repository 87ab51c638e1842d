"""Ragged new rows in saccade.torch.flash_attn_with_kvcache and append_kvcache: prompts and single tokens in one call."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, KV_HEADS
from cached_sequences import DEPTH_V, STEPS, Sequences, lengths

from saccade.torch import append_kvcache, flash_attn_with_kvcache

TABLE = lengths(*torch.randperm(30, generator=torch.Generator().manual_seed(3)).tolist())[:24].view(3, 8)
KINDS = {"contiguous": ((3, 64), {}), "pages": ((30, 8), {"page_table": TABLE})}
ROTARY = dict(zip(("rotary_cos", "rotary_sin"), (torch.arange(64)[:, None] * torch.tensor([1.0, 0.1])).cos().expand(2, 64, 2)))


def ragged(x, count):
    return torch.cat([own[:n] for own, n in zip(x, count)])


def empty(kind, element=torch.float32):
    return [torch.zeros(*KINDS[kind][0], KV_HEADS, depth, dtype=element) for depth in (DEPTH, DEPTH_V)]


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("rotary", [{}, ROTARY, {**ROTARY, "rotary_on_read": True}], ids=["", "rotary", "on read"])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_padded_rows(kind, rotary, index):
    sequences, options = Sequences(1, 3), {"causal": True, "return_softmax_lse": True, **KINDS[kind][1], **rotary}
    caches, padded_caches, appended = empty(kind), empty(kind), empty(kind)
    for count in STEPS:
        q, k, v = sequences.draw(count)
        at, offsets = sequences.length, torch.tensor([0, *count]).cumsum(0).to(index)
        rows = [ragged(x, count) for x in (q, k, v)]
        out, lse = flash_attn_with_kvcache(rows[0], *caches, *rows[1:], cache_seqlens=at, cu_seqlens_q=offsets, **options)
        expected, expected_lse = flash_attn_with_kvcache(q, *padded_caches, k, v, cache_seqlens=at, seqlens_new=lengths(*count), **options)
        torch.testing.assert_close(out, ragged(expected, count), atol=2e-6, rtol=0)
        torch.testing.assert_close(lse, ragged(expected_lse.transpose(1, 2), count).T, atol=1e-5, rtol=0)
        assert all(torch.equal(x, y) for x, y in zip(caches, padded_caches))
        if "rotary_on_read" not in rotary:
            append_kvcache(*rows[1:], *appended, at, cu_seqlens=offsets, **KINDS[kind][1], **rotary)
            assert all(torch.equal(x, y) for x, y in zip(caches, appended))
        sequences.extend(k, v, count)
    again = flash_attn_with_kvcache(rows[0], *caches, cache_seqlens=sequences.length, cu_seqlens_q=offsets, **options)[0]
    torch.testing.assert_close(out, again)


@pytest.mark.parametrize("kind", [*KINDS, "ring"])
@pytest.mark.parametrize("element", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("scale", ["positions", "number"])
def test_quantized_rows(element, kind, scale):
    sequences, options = Sequences(2, 3), {"ring": 3} if kind == "ring" else KINDS[kind][1]
    shape = (3, 20) if kind == "ring" else KINDS[kind][0]
    found, expected = ([torch.zeros(*shape, KV_HEADS, depth, dtype=element) for depth in (DEPTH, DEPTH_V)] for _ in range(2))
    scales = [[torch.ones(*shape, KV_HEADS) if scale == "positions" else 0.05 for _ in "kv"] for _ in range(2)]
    for count in STEPS:
        _, k, v = sequences.draw(count)
        at, offsets = sequences.length, torch.tensor([0, *count]).cumsum(0)
        append_kvcache(ragged(k, count), ragged(v, count), *found, at, cu_seqlens=offsets, k_scale=scales[0][0], v_scale=scales[0][1],
                       **options)
        append_kvcache(k, v, *expected, at, seqlens_new=lengths(*count), k_scale=scales[1][0], v_scale=scales[1][1], **options)
        sequences.extend(k, v, count)
    assert found[0].float().any()
    assert all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(found, expected))
    if scale == "positions":
        assert all(torch.equal(x, y) for x, y in zip(*scales))


def test_offsets_are_operands_of_a_graph():
    def step(q, k, v, k_cache, v_cache, at, offsets):
        out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, cu_seqlens_q=offsets, causal=True)
        return out.reshape(q.shape[0], -1, v.shape[-1]) * 2

    torch._dynamo.reset()
    compiled, sequences = torch.compile(step, backend="aot_eager", fullgraph=True), Sequences(3, 3)
    caches, expected_caches = empty("contiguous"), empty("contiguous")
    for count in ((9, 1, 2), (1, 8, 3)):
        rows = [ragged(x, count) for x in sequences.draw(count)]
        offsets = torch.tensor([0, *count]).cumsum(0)
        with torch.no_grad():
            expected = step(*rows, *expected_caches, lengths(3, 0, 9), offsets)
            torch.testing.assert_close(compiled(*rows, *caches, lengths(3, 0, 9), offsets), expected)
        assert all(torch.equal(x, y) for x, y in zip(caches, expected_caches))


@pytest.mark.parametrize(("options", "message"), [
    ({"cache_seqlens": lengths(0, 62, 0)}, "cache is full: end of the new rows: found 65, expected at most 64, in sequence 1"),
    ({"cu_seqlens": lengths(0, 3, 2, 6)}, "count of new rows is negative: found -1, expected at least 0, in sequence 1"),
    ({"cu_seqlens": lengths(0, 3, 6, 7)}, "new rows of a sequence exceed those of all: their end: found 7, expected at most 6, in sequence 2"),
    ({"cu_seqlens": lengths(-1, 3, 6, 6)}, "first new row is negative: found -1, expected at least 0, in sequence 0"),
    ({"seqlens_new": lengths(1, 1, 1)}, "seqlens_new is given, expected None with ragged rows"),
    ({"layout": "bhsd"}, "layout is 'bhsd', expected 'bshd' with ragged rows"),
    ({"page_table": TABLE[:2], "cache_seqlens": lengths(0, 0, 0)}, "cache_seqlens has another batch size than page_table: found 3, expected 2"),
])
def test_rows_that_are_refused(options, message):
    k, v = torch.randn(6, KV_HEADS, DEPTH), torch.randn(6, KV_HEADS, DEPTH_V)
    caches = empty("pages" if "page_table" in options else "contiguous")
    given = {"cache_seqlens": lengths(0, 0, 0), "cu_seqlens": lengths(0, 2, 5, 6), **options}
    with pytest.raises(ValueError, match=re.escape(message)):
        append_kvcache(k, v, *caches, **given)
    assert all((x == 0).all() for x in caches)
