"""Caches of 4 bits in saccade.torch.flash_attn_with_kvcache and append_kvcache. test/Fuzz/appended_rows.py has their bytes."""

from __future__ import annotations

import functools
import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, HEADS, KV_HEADS, CacheLayer
from cached_sequences import DEPTH_V, STEPS, Sequences, drawn, lengths

from saccade.torch import append_kvcache, flash_attn_with_kvcache

PAGES = {"page_table": lengths(*range(24)).view(3, 8)}
KINDS = [(blocks, has_zero) for blocks in (None, 2) for has_zero in (False, True)]


def rounded(x, blocks, has_zero):
    """x after it was stored with scales that are computed."""
    parts = x.unflatten(-1, (blocks or 1, -1))
    if has_zero:
        low = parts.amin(-1, keepdim=True)
        scale = (parts.amax(-1, keepdim=True) - low) / 15
        zero = -low / scale
        return (((parts / scale + zero).round().clamp(0, 15) - zero) * scale).flatten(-2)
    scale = parts.abs().amax(-1, keepdim=True) / 7
    return ((parts / scale).round() * scale).flatten(-2)


def empty(shape, blocks, has_zero, depths=(DEPTH, DEPTH_V)):
    """Caches, and the options of their scales and zero points."""
    own = () if blocks is None else (blocks,)
    names = [f"{name}_{what}" for what in ("scale", *["zero"] * has_zero) for name in "kv"]
    return ([torch.zeros(*shape, KV_HEADS, depth // 2, dtype=torch.uint8) for depth in depths],
            {name: torch.ones(*shape, KV_HEADS, *own) for name in names})


@pytest.mark.parametrize(("blocks", "has_zero"), KINDS)
@pytest.mark.parametrize("options", [{}, PAGES], ids=["contiguous", "pages"])
def test_steps_of_a_batch(options, blocks, has_zero):
    sequences = Sequences(6, 3)
    caches, numbers = empty((30, 8) if options else (3, 64), blocks, has_zero, (DEPTH, DEPTH))
    sequences.v = [torch.zeros(0, KV_HEADS, DEPTH) for _ in range(3)]
    for count in STEPS:
        q, k, v = sequences.draw(count)
        v = v[..., :DEPTH]
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, seqlens_new=lengths(*count), causal=True,
                                      **numbers, **options)
        sequences.extend(*(rounded(x, blocks, has_zero) for x in (k, v)), count)
        sequences.check(q, count, out, atol=4e-6)


@pytest.mark.parametrize("has_zero", [False, True])
def test_a_ring_of_several_queries(has_zero):
    sequences, rows, pinned = Sequences(10, 3), 20, 2
    caches, numbers = empty((3, rows), None, has_zero)
    for count in STEPS:
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, seqlens_new=lengths(*count), causal=True,
                                      ring=pinned, **numbers)
        sequences.extend(k, v, count)
        # Queries of a chunk attend to new tokens before these are rounded to 4 bits.
        sequences.check(q, count, out, atol=0.8, visible=lambda i, j: (j <= i) & ((j > i - rows + pinned) | (j < pinned)))


@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("kind", ["number", "head"])
def test_given_scales_are_used_as_they_are(kind, has_zero):
    sequences, (caches, _) = Sequences(7, 2), empty((2, 64), None, False)
    scale = {"number": 0.4, "head": torch.tensor([0.3, 0.5])}[kind]
    zero = {"number": 5.0, "head": torch.tensor([4.0, 9.5])}[kind]
    numbers = {"k_scale": scale, "v_scale": scale} | ({"k_zero": zero, "v_zero": zero} if has_zero else {})
    wide, wide_zero = (x if kind == "number" else x[:, None] for x in (scale, zero))
    for count in ((9, 9), (1, 1)):
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, causal=True, **numbers)
        stored = [((x / wide + wide_zero).round().clamp(0, 15) - wide_zero) * wide if has_zero
                  else (x / wide).round().clamp(-7, 7) * wide for x in (k, v)]
        sequences.extend(*stored, count)
        sequences.check(q, count, out, atol=4e-6)


@pytest.mark.parametrize("zero", [None, 4.0])
def test_ties_are_rounded_to_even(zero):
    caches, _ = empty((1, 2), None, False)
    k, v = (torch.arange(depth).expand(1, 1, KV_HEADS, depth) / 2 - 2.5 for depth in (DEPTH, DEPTH_V))
    numbers = {"k_scale": 1.0, "v_scale": 1.0} | ({} if zero is None else {"k_zero": zero, "v_zero": zero})
    append_kvcache(k, v, *caches, 0, **numbers)
    for cache, x in zip(caches, (k, v)):
        codes = torch.stack([cache & 15, cache >> 4], -1).flatten(-2)[:, :1].float()
        expected = [min(max(round(y + (zero or 0)), 0 if zero else -7), 15 if zero else 7) + (0 if zero else 8) for y in x[0, 0, 0].tolist()]
        assert codes[0, 0, 0].tolist() == expected


@pytest.mark.parametrize("value", [0.0, 2.5, -3.0, 1e-30, 1e30])
def test_equal_elements_keep_their_value(value):
    for blocks, has_zero in KINDS:
        caches, numbers = empty((1, 3), blocks, has_zero, (DEPTH, DEPTH))
        rows = torch.full((1, 3, KV_HEADS, DEPTH), value)
        append_kvcache(rows, rows, *caches, 0, **numbers)
        codes = torch.stack([caches[0] & 15, caches[0] >> 4], -1).flatten(-2).unflatten(-1, (blocks or 1, -1))
        scale, zero = (numbers[name].view(1, 3, KV_HEADS, blocks or 1, 1) if name in numbers else 8.0 for name in ("k_scale", "k_zero"))
        torch.testing.assert_close(((codes - zero) * scale).flatten(-2), rows, rtol=1e-6, atol=0)


def test_rotary_positions_trees_and_layouts():
    random = torch.Generator().manual_seed(3)
    q, k, v = (drawn(random, 2, 5, heads, 32) for heads in (HEADS, KV_HEADS, KV_HEADS))
    angles = torch.arange(64)[:, None] * 10.0 ** -torch.arange(16)
    options = {"rotary_cos": angles.cos(), "rotary_sin": angles.sin(), "rotary_interleaved": False, "rotary_on_read": True}
    for more in ({"causal": True}, {"tree": torch.tensor([-1, 0, 0, 1, 2])}):
        (caches, numbers), dense = empty((2, 64), 1, True, (32, 32)), torch.zeros(2, 2, 64, KV_HEADS, 32)
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=lengths(20, 7), **numbers, **options, **more)
        rows = [rounded(x, 1, True) for x in (k, v)]
        codes = torch.stack([caches[0] & 15, caches[0] >> 4], -1).flatten(-2)  # those of zeros, too, which are in the cache
        dense[0] = (codes - numbers["k_zero"]) * numbers["k_scale"]
        codes = torch.stack([caches[1] & 15, caches[1] >> 4], -1).flatten(-2)
        dense[1] = (codes - numbers["v_zero"]) * numbers["v_scale"]
        torch.testing.assert_close(dense[0, 0, 20:25], rows[0][0], atol=1e-6, rtol=0)
        expected = flash_attn_with_kvcache(q, *dense, *rows, cache_seqlens=lengths(20, 7), **options, **more)
        torch.testing.assert_close(out, expected, atol=4e-6, rtol=0)

    caches, numbers = empty((2, 64), 2, True, (32, 32))
    swapped = [x.transpose(1, 2) for x in (*caches, *numbers.values())]
    out = flash_attn_with_kvcache(*(x.transpose(1, 2) for x in (q,)), *swapped[:2], *(x.transpose(1, 2) for x in (k, v)), cache_seqlens=0,
                                  causal=True, layout="bhsd", **dict(zip(numbers, swapped[2:])))
    again, numbers = empty((2, 64), 2, True, (32, 32))
    expected = flash_attn_with_kvcache(q, *again, k, v, cache_seqlens=0, causal=True, **numbers)
    assert all(torch.equal(x, y) for x, y in zip(caches, again))
    torch.testing.assert_close(out.transpose(1, 2), expected)


# --- torch.compile ----------------------------------------------------------------------------------------------------


class Layer(CacheLayer):
    """Attention with its cache as arguments."""

    def forward(self, x, k_cache, v_cache, at, numbers):
        q, k, v = self.projected(x)
        return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, causal=True, **numbers).flatten(2) + 1


@pytest.mark.parametrize(("blocks", "has_zero"), KINDS)
def test_caches_are_compiled(blocks, has_zero):
    layer = Layer()
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=False)
    (eager_caches, eager_numbers), (caches, numbers) = (empty((2, 40), blocks, has_zero, (DEPTH, DEPTH)) for _ in range(2))
    with torch.no_grad():
        for step in range(3):
            x, at = torch.randn(2, 1, 32), lengths(step, step)
            torch.testing.assert_close(compiled(x, *caches, at, numbers), layer(x, *eager_caches, at, eager_numbers))
        with pytest.raises(ValueError, match="the scale of k is nan in row 0, expected a finite number, in sequence 0"):
            compiled(x * torch.nan, *caches, at, numbers)
    for found, expected in zip((*caches, *numbers.values()), (*eager_caches, *eager_numbers.values())):
        assert found.float().any()
        torch.testing.assert_close(found, expected)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"ring": 3}, PAGES], ids=["contiguous", "ring", "pages"])
@pytest.mark.parametrize("is_attending", [False, True])
@pytest.mark.parametrize(("change", "error", "message"), [
    ({"row": torch.nan}, ValueError, "the scale of v is nan in row 1, expected a finite number, in sequence 1"),
    ({"row": torch.inf}, ValueError, "the scale of v is inf in row 1, expected a finite number, in sequence 1"),
    ({"k_scale": torch.tensor([0.1, torch.nan]), "k_zero": torch.ones(2)}, ValueError, "k_scale of head 1 is nan, expected a positive number"),
    ({"k_scale": torch.ones(2), "k_zero": torch.tensor([torch.inf, 1.0])}, ValueError, "k_zero of head 0 is inf, expected a finite number"),
    ({"v_scale": 1.0, "v_zero": float("nan")}, ValueError, "v_zero is nan, expected a finite number"),
    ({"v_scale": 1.0}, TypeError, "v_zero is tensor("),
    ({"k_zero": 3.0}, ValueError, "k_zero is 3.0, expected ["),
    ({"v_zero": torch.ones(3, 5, 2)}, ValueError, "v_zero has shape [3, 5, 2], expected ["),
    ({"k_scale": None}, TypeError, "k_scale is None, expected a number, or a float32 tensor of 0, 1, 3 or 4 dimensions"),
    ({"k_cache": torch.zeros(3, 24, KV_HEADS, 6, dtype=torch.uint8)}, ValueError,
     "k_cache has 6 bytes of a head, which are 12 elements of 4 bits, expected 16 elements"),
    ({"k_cache": torch.zeros(3, 24, KV_HEADS, DEPTH, dtype=torch.int8)}, TypeError, "k_zero is given, expected None: k_cache has element type"),
])  # fmt: skip
def test_bad_numbers_are_refused(change, error, message, is_attending, options):
    k, v, q = (torch.randn(3, 2, heads, depth) for heads, depth in ((KV_HEADS, DEPTH), (KV_HEADS, DEPTH_V), (HEADS, DEPTH)))
    caches, numbers = empty((30, 8) if "page_table" in options else (3, 24), None, True)
    given, change = {**numbers, **options}, dict(change)
    if "row" in change:
        v[1, 1, 0, 3] = change.pop("row")
    k_cache = change.pop("k_cache", caches[0])
    if k_cache is not caches[0] and "page_table" in options:
        return
    given |= change
    call = functools.partial(append_kvcache, k, v, k_cache, caches[1], 3)
    if is_attending:
        call = functools.partial(flash_attn_with_kvcache, q, k_cache, caches[1], k, v, cache_seqlens=3, causal=True)
    with pytest.raises(error, match=re.escape(message)):
        call(**given)
    assert all((x == 0).all() for x in caches) and all((x == 1).all() for x in numbers.values())
