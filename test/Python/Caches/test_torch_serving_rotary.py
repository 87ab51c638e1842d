"""Rotary positions in saccade.torch.flash_attn_with_kvcache and append_kvcache, of new rows and of keys that are read."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, KV_HEADS
from cached_sequences import DEPTH_V, STEPS, Sequences, attend, lengths

from saccade.torch import append_kvcache, flash_attn_with_kvcache

TABLE = lengths(*torch.randperm(30, generator=torch.Generator().manual_seed(3)).tolist())[:24].view(3, 8)
KINDS = {"contiguous": ((3, 64), {}), "pages": ((30, 8), {"page_table": TABLE})}


def tables(pairs, rows=64, dtype=torch.float32):
    angles = torch.arange(rows)[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x, positions, pairs, interleaved):
    """By complex numbers in float64: x [tokens, heads, depth]."""
    x = x.double().clone()
    cos, sin = tables(pairs, dtype=torch.float64)
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    turned = torch.complex(x[..., first], x[..., second]) * torch.complex(cos, sin)[positions][:, None]
    x[..., first], x[..., second] = turned.real, turned.imag
    return x


@pytest.mark.parametrize("on_read", [False, True])
@pytest.mark.parametrize("pairs", [DEPTH // 2, 5])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_queries_and_keys_are_rotated_by_their_positions(kind, interleaved, pairs, on_read):
    shape, options = KINDS[kind]
    sequences, keys = Sequences(1, 3), [torch.zeros(0, KV_HEADS, DEPTH).double() for _ in range(3)]
    caches = [torch.full((*shape, KV_HEADS, depth), torch.nan) for depth in (DEPTH, DEPTH_V)]
    cos, sin = tables(pairs)
    for count in STEPS:
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(
            q, *caches, k, v, cache_seqlens=sequences.length, seqlens_new=lengths(*count), causal=True, rotary_cos=cos, rotary_sin=sin,
            rotary_interleaved=interleaved, rotary_on_read=on_read, **options)
        for b, n in enumerate(count):
            first = len(keys[b])
            positions = torch.arange(first, first + n)
            keys[b] = torch.cat([keys[b], rotated(k[b, :n], positions, pairs, interleaved)])
            values = torch.cat([sequences.v[b], v[b, :n]])
            sees = positions[:, None] >= torch.arange(first + n)
            expected, _ = attend(rotated(q[b, :n], positions, pairs, interleaved), keys[b], values, sees)
            torch.testing.assert_close(out[b, :n].double(), expected, atol=5e-6, rtol=0)
            assert (out[b, n:] == 0).all()
        sequences.extend(k, v, count)
    own = caches[0][TABLE].flatten(1, 2) if kind == "pages" else caches[0]
    for b in range(3):
        expected = sequences.k[b].double() if on_read else keys[b]
        torch.testing.assert_close(own[b, : len(expected)].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("element", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("interleaved", [False, True])
def test_quantized_keys_are_rotated_when_they_are_read(kind, element, blocks, interleaved):
    shape, options = KINDS[kind]
    sequences, pairs = Sequences(2, 3), DEPTH // 2
    caches = [torch.zeros(*shape, KV_HEADS, DEPTH, dtype=element) for _ in "kv"]
    scales = torch.ones(2, *shape, KV_HEADS, blocks)
    cos, sin = tables(pairs)
    count = (37, 5, 9)
    q, k, _ = sequences.draw(count)
    out = flash_attn_with_kvcache(
        q, *caches, k, k, cache_seqlens=sequences.length, seqlens_new=lengths(*count), causal=True, k_scale=scales[0],
        v_scale=scales[1], rotary_cos=cos, rotary_sin=sin, rotary_interleaved=interleaved, rotary_on_read=True, **options)
    stored, scale = (x[TABLE].flatten(1, 2) if kind == "pages" else x for x in (caches[0].float(), scales[0]))
    stored = (stored.unflatten(-1, (blocks, -1)) * scale[..., None]).flatten(-2)
    for b, n in enumerate(count):
        positions = torch.arange(n)
        torch.testing.assert_close(stored[b, :n], k[b, :n], atol=0.2, rtol=0)  # of e4m3fn
        expected, _ = attend(rotated(q[b, :n], positions, pairs, interleaved), rotated(stored[b, :n], positions, pairs, interleaved),
                             stored[b, :n], positions[:, None] >= positions)
        torch.testing.assert_close(out[b, :n].double(), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("element", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("on_read", [False, True])
def test_types_and_layouts(element, on_read):
    """The other layout has the same output; tables may be of q's type."""
    sequences = Sequences(3, 2)
    q, k, v = (x.to(element) for x in sequences.draw((6, 6)))
    cos, sin = tables(4, dtype=element)
    caches = [torch.zeros(2, KV_HEADS, 64, depth, dtype=element) for depth in (DEPTH, DEPTH_V)]
    out = flash_attn_with_kvcache(*(x.transpose(1, 2) for x in (q,)), *caches, k.transpose(1, 2), v.transpose(1, 2), cache_seqlens=3,
                                  causal=True, rotary_cos=cos, rotary_sin=sin, rotary_on_read=on_read, layout="bhsd")
    caches = [torch.zeros(2, 64, KV_HEADS, depth, dtype=element) for depth in (DEPTH, DEPTH_V)]
    again = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=3, causal=True, rotary_cos=cos.float(), rotary_sin=sin.float(),
                                    rotary_on_read=on_read)
    atol = {torch.float64: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[element]
    torch.testing.assert_close(out.transpose(1, 2), again, atol=atol, rtol=0)


def test_drafts_have_the_positions_of_their_branches():
    sequences = Sequences(4, 1)
    q, k, v = sequences.draw((5,))
    cos, sin = tables(DEPTH // 2)
    rotary = {"cache_seqlens": 7, "rotary_cos": cos, "rotary_sin": sin}
    cached = torch.randn(2, 1, 40, KV_HEADS, DEPTH), torch.randn(2, 1, 40, KV_HEADS, DEPTH_V)
    caches = [cached[0][0].clone(), cached[1][0].clone()]
    out = flash_attn_with_kvcache(q, *caches, k, v, tree=torch.tensor([-1, 0, 0, 1, 2]), **rotary)
    for path in ([0, 1, 3], [0, 2, 4]):
        caches = [cached[0][0].clone(), cached[1][0].clone()]
        branch = flash_attn_with_kvcache(q[:, path], *caches, k[:, path], v[:, path], causal=True, **rotary)
        torch.testing.assert_close(out[:, path], branch, atol=1e-6, rtol=0)


def test_an_append_and_a_query_of_the_cache_as_it_is():
    sequences = Sequences(5, 3)
    q, k, v = sequences.draw((6, 6, 6))
    cos, sin = tables(DEPTH // 2)
    rotary = {"rotary_cos": cos, "rotary_sin": sin, "rotary_interleaved": False}
    together, apart = ([torch.zeros(3, 20, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)] for _ in range(2))
    out = flash_attn_with_kvcache(q, *together, k, v, cache_seqlens=lengths(2, 9, 0), causal=True, **rotary)
    append_kvcache(k, v, *apart, lengths(2, 9, 0), **rotary)
    assert all(torch.equal(x, y) for x, y in zip(together, apart))
    again = flash_attn_with_kvcache(q, *apart, cache_seqlens=lengths(8, 15, 6), causal=True, **rotary)
    assert torch.equal(out, again)
    # Without a mask by position, all queries have the position of the first one.
    last = flash_attn_with_kvcache(q[:, :1].expand_as(q), *apart, cache_seqlens=lengths(8, 15, 6), **rotary)
    torch.testing.assert_close(last, last[:, :1].expand_as(last), atol=1e-6, rtol=0)
    # A ring has the positions of the text, beyond its rows.
    rings = [torch.zeros(3, 12, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)]
    append_kvcache(k, v, *rings, lengths(2, 9, 0), ring=0, **rotary)
    assert torch.equal(rings[0][1, 2], apart[0][1, 14])


@pytest.mark.parametrize("on_read", [False, True])
def test_rotations_are_in_the_graph(on_read):
    def step(q, k, v, k_cache, v_cache, at, cos, sin):
        return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, causal=True, rotary_cos=cos, rotary_sin=sin,
                                       rotary_on_read=on_read) * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    sequences, tables_ = Sequences(6, 2), tables(DEPTH // 2)
    caches = [torch.zeros(2, 64, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)]
    with torch.no_grad():
        for at in (0, 3):
            q, k, v = sequences.draw((3, 3))
            copies = [x.clone() for x in caches]
            expected = step(q, k, v, *copies, lengths(at, at + 1), *tables_)
            torch.testing.assert_close(compiled(q, k, v, *caches, lengths(at, at + 1), *tables_), expected)
            torch.testing.assert_close(caches, copies)


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"rotary_sin": None}, TypeError, "one of rotary_cos and rotary_sin is None, expected both or neither"),
    ({"rotary_sin": tables(4)[1]}, ValueError, "rotary_cos and rotary_sin have shapes (64, 8) and (64, 4), expected [positions, pairs]"),
    (dict(zip(("rotary_cos", "rotary_sin"), tables(9))), ValueError, "expected [positions, pairs] with at most 8 pairs"),
    ({"cache_seqlens": lengths(3, 63)}, ValueError,
     "a new token has position 64, expected 0 or more and less than 64, the positions of rotary_cos, in sequence 1"),
    ({**dict(zip(("rotary_cos", "rotary_sin"), tables(8, 40))), "rotary_on_read": True}, ValueError,
     "rotary_cos has 40 positions, expected at least 80, those of the cache"),
    ({"rotary_cos": None, "rotary_sin": None, "rotary_on_read": True}, ValueError, "rotary_on_read is True, expected rotary_cos and no ring"),
    ({**dict(zip(("rotary_cos", "rotary_sin"), tables(8, 80))), "rotary_on_read": True, "ring": 2}, ValueError,
     "rotary_on_read is True, expected rotary_cos and no ring"),
], ids=range(7))
def test_rotations_that_are_refused(options, error, message):
    q, k, v = Sequences(7, 2).draw((2, 2))
    caches = [torch.zeros(2, 80, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)]
    given = {"cache_seqlens": lengths(3, 4), "causal": True, **dict(zip(("rotary_cos", "rotary_sin"), tables(8))), **options}
    with pytest.raises(error, match=re.escape(message)):
        flash_attn_with_kvcache(q, *caches, k, v, **given)
    assert all((x == 0).all() for x in caches)
