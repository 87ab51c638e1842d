"""Quantized caches in saccade.torch.flash_attn_with_kvcache and append_kvcache."""

from __future__ import annotations

import functools
import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, HEADS, KV_HEADS, CacheLayer
from cached_sequences import DEPTH_V, STEPS, Sequences, drawn, lengths

from saccade.torch import append_kvcache, flash_attn_with_kvcache

LARGEST = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344}
ELEMENTS = list(LARGEST)
PAGES = {"page_table": lengths(*range(24)).view(3, 8)}


def rounded(x, scale, element):
    """x after it was stored in `element`."""
    x = (x / scale).clamp(-LARGEST[element], LARGEST[element])
    return (x.round() if element == torch.int8 else x.to(element).float()) * scale


def computed_scale(x, element, blocks=1):
    """Of each element."""
    parts = x.unflatten(-1, (blocks, -1))
    return (parts.abs().amax(-1, keepdim=True) / LARGEST[element]).expand_as(parts).flatten(-2)


def empty(element, shape, blocks=None):
    """Caches, and scales of each position and head, or of blocks."""
    caches = [torch.zeros(*shape, KV_HEADS, depth, dtype=element) for depth in (DEPTH, DEPTH_V)]
    own = () if blocks is None else (blocks,)
    return caches, [torch.ones(*shape, KV_HEADS, *own) for _ in "kv"]


def check_loosely(sequences, q, count, out, element, **options):
    """Rounding to 8 bits is a part of the result: 2 bits of e5m2, 3 of e4m3fn, 7 of int8 after the leading one."""
    sequences.check(q, count, out, atol={torch.int8: 0.05, torch.float8_e4m3fn: 0.3, torch.float8_e5m2: 0.6}[element], **options)


@pytest.mark.parametrize("blocks", [None, 1, 2])
@pytest.mark.parametrize("options", [{}, PAGES], ids=["contiguous", "pages"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_scales_of_positions_are_computed_from_the_new_rows(element, options, blocks):
    sequences = Sequences(6, 3)
    depth_v = DEPTH  # of which both blocks are powers of two
    shape = (30, 8) if options else (3, 64)
    (k_cache, _), scales = empty(element, shape, blocks)
    v_cache = torch.zeros(*shape, KV_HEADS, depth_v, dtype=element)
    sequences.v = [torch.zeros(0, KV_HEADS, depth_v) for _ in range(3)]
    for count in STEPS:
        q, k, v = sequences.draw(count)
        v = v[..., :depth_v]
        out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=sequences.length, seqlens_new=lengths(*count),
                                      causal=True, k_scale=scales[0], v_scale=scales[1], **options)
        sequences.extend(*(rounded(x, computed_scale(x, element, blocks or 1), element) for x in (k, v)), count)
        sequences.check(q, count, out, atol=4e-6)


@pytest.mark.parametrize("options", [{}, {"ring": 3}, PAGES], ids=["contiguous", "ring", "pages"])
@pytest.mark.parametrize("kind", ["position", "blocks", "head", "number"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_rows_are_appended_as_when_attending(element, kind, options):
    shape = (30, 8) if "page_table" in options else (3, 64)
    random = torch.Generator().manual_seed(9)
    given = {"head": torch.tensor([0.02, 0.05]), "number": 0.03}.get(kind)

    def fresh():
        caches, scales = empty(element, shape, 1 if kind == "blocks" else None)
        return caches, scales if given is None else [given, given]

    (appended, scales), (attended, attended_scales) = fresh(), fresh()
    for start in range(5):
        q, k, v = (drawn(random, 3, 1, heads, depth)
                   for heads, depth in ((HEADS, DEPTH), (KV_HEADS, DEPTH), (KV_HEADS, DEPTH_V)))
        append_kvcache(k, v, *appended, start, k_scale=scales[0], v_scale=scales[1], **options)
        flash_attn_with_kvcache(q, *attended, k, v, cache_seqlens=start, k_scale=attended_scales[0],
                                v_scale=attended_scales[1], **options)
    assert appended[0].float().any()
    assert all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(appended, attended))
    if given is None:
        assert all(torch.equal(x, y) for x, y in zip(scales, attended_scales))


@pytest.mark.parametrize("element", ELEMENTS)
def test_rings_with_several_queries(element):
    sequences, rows, pinned = Sequences(10, 3), 20, 2
    caches, scales = empty(element, (3, rows))
    for count in STEPS:
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, seqlens_new=lengths(*count), causal=True,
                                      k_scale=scales[0], v_scale=scales[1], ring=pinned)
        sequences.extend(k, v, count)
        check_loosely(sequences, q, count, out, element,
                      visible=lambda i, j: (j <= i) & ((j > i - rows + pinned) | (j < pinned)))


@pytest.mark.parametrize("element", ELEMENTS)
def test_given_scales_are_used_as_they_are(element):
    sequences, (caches, _) = Sequences(7, 2), empty(element, (2, 64))
    k_scale, v_scale = (torch.tensor([0.03, 0.04]), 0.05) if element == torch.int8 else (torch.tensor([0.5, 0.001]), 2.0)
    for count in ((9, 9), (1, 1)):
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, causal=True, k_scale=k_scale,
                                      v_scale=v_scale)
        sequences.extend(rounded(k, k_scale[:, None], element), rounded(v, v_scale, element), count)
        sequences.check(q, count, out, atol=4e-6)
    if element == torch.float8_e4m3fn:  # numbers out of range are saturated
        assert caches[0][:, :10, 1].float().abs().max() == 448


def test_keys_and_values_of_different_types():
    sequences = Sequences(8, 2)
    caches = [torch.zeros(2, 64, KV_HEADS, DEPTH, dtype=torch.int8), torch.zeros(2, 64, KV_HEADS, DEPTH_V, dtype=torch.float8_e5m2)]
    k_scale = torch.ones(2, 64, KV_HEADS)
    q, k, v = sequences.draw((9, 9))
    options = {"k_scale": k_scale, "v_scale": 0.5}
    append_kvcache(k, v, *caches, 0, **options)
    out = flash_attn_with_kvcache(q, *caches, cache_seqlens=9, causal=True, **options)
    sequences.extend(rounded(k, computed_scale(k, torch.int8), torch.int8), rounded(v, 0.5, torch.float8_e5m2), (9, 9))
    sequences.check(q, (9, 9), out, atol=4e-6)


# --- torch.compile ----------------------------------------------------------------------------------------------------


class Layer(CacheLayer):
    """Attention with its cache as arguments."""

    def forward(self, x, k_cache, v_cache, at, **tensors):
        q, k, v = self.projected(x)
        out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, causal=True, **tensors)
        return out.flatten(2) + 1


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("blocks", [(), (2,)], ids=["positions", "blocks"])
def test_caches_are_compiled(element, blocks):
    layer = Layer()
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=False)

    def make():
        return [*(torch.zeros(2, 40, KV_HEADS, DEPTH, dtype=element) for _ in "kv"), *torch.ones(2, 2, 40, KV_HEADS, *blocks)]

    eager_caches, caches = make(), make()
    with torch.no_grad():
        for step in range(3):
            x, at = torch.randn(2, 1, 32), lengths(step, step)
            results = [f(x, *own[:2], at, k_scale=own[2], v_scale=own[3])
                       for f, own in ((compiled, caches), (layer, eager_caches))]
            torch.testing.assert_close(*results)
        with pytest.raises(ValueError, match="the scale of k is nan in row 0, expected a finite number, in sequence 0"):
            compiled(x * torch.nan, *caches[:2], at, k_scale=caches[2], v_scale=caches[3])
        for cache, expected in zip(caches, eager_caches):
            assert cache.float().any()
            torch.testing.assert_close(cache.float(), expected.float())


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("options", [{}, {"ring": 3}, PAGES], ids=["contiguous", "ring", "pages"])
@pytest.mark.parametrize(("change", "message"), [
    ({"row": torch.nan}, "the scale of v is nan in row 1, expected a finite number, in sequence 1"),
    ({"row": torch.inf}, "the scale of v is inf in row 1, expected a finite number, in sequence 1"),
    ({"k_scale": torch.tensor([0.1, torch.nan])}, "k_scale of head 1 is nan, expected a positive number"),
    ({"v_scale": 0.0}, "v_scale is 0.0, expected a positive number"),
])
@pytest.mark.parametrize("is_attending", [False, True])
def test_scales_that_are_not_finite_are_refused(change, message, options, element, is_attending):
    k, v, q = (torch.randn(3, 2, heads, depth) for heads, depth in ((KV_HEADS, DEPTH), (KV_HEADS, DEPTH_V), (HEADS, DEPTH)))
    caches, scales = empty(element, (30, 8) if "page_table" in options else (3, 24))
    given, change = {"k_scale": scales[0], "v_scale": scales[1], **options}, dict(change)
    if "row" in change:
        v[1, 1, 0, 3] = change.pop("row")
    given |= change
    call = functools.partial(append_kvcache, k, v, *caches, 3)
    if is_attending:
        call = functools.partial(flash_attn_with_kvcache, q, *caches, k, v, cache_seqlens=3, causal=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        call(**given)
    assert all((x.float() == 0).all() for x in caches) and all((x == 1).all() for x in scales)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("scale", ["tensor", "head", "position", "block"])
def test_pages_beyond_the_length_are_not_read(scale, layout):
    pool, page, count = 8, 16, lengths(20, 7)
    caches = [torch.randint(-127, 128, (pool, page, 2, 64), dtype=torch.int8) for _ in "kv"]
    make = {"tensor": lambda: 0.01, "head": lambda: torch.rand(2), "position": lambda: torch.rand(pool, page, 2),
            "block": lambda: torch.rand(pool, page, 2, 2)}[scale]
    scales = [make(), make()]
    q = torch.randn(2, 1, 4, 64)
    if layout == "bhsd":
        swapped = lambda x: x.transpose(1, 2) if isinstance(x, torch.Tensor) and x.dim() > 2 else x
        q, caches, scales = swapped(q), [swapped(x) for x in caches], [swapped(x) for x in scales]
    call = lambda unused: flash_attn_with_kvcache(
        q, *caches, cache_seqlens=count, page_table=torch.tensor([[1, 2, unused], [3, unused, unused]], dtype=torch.int32),
        k_scale=scales[0], v_scale=scales[1], layout=layout)
    assert torch.equal(call(-1), call(0))
    with pytest.raises(ValueError, match="page that is not in the pool: found -1"):
        flash_attn_with_kvcache(q, *caches, cache_seqlens=count, page_table=torch.tensor([[1, -1, 0], [3, 0, 0]], dtype=torch.int32),
                                k_scale=scales[0], v_scale=scales[1], layout=layout)
