"""saccade.torch.flash_attn_with_kvcache and append_kvcache: caches that are updated in place."""

from __future__ import annotations

import functools
import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, HEADS, KV_HEADS, CacheLayer
from cached_sequences import DEPTH_V, STEPS, Sequences, drawn, lengths
from torch._dynamo.testing import CompileCounterWithBackend

import saccade
import saccade.torch
from saccade.torch import append_kvcache, flash_attn_with_kvcache
from saccade.torch.backend import has_compiler


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_prefill_chunks_and_decoding_of_a_contiguous_cache(layout, index):
    def arranged(x):
        return x.transpose(1, 2) if layout == "bhsd" else x

    sequences = Sequences(1, 3)
    k_cache, v_cache = (torch.full((3, 64, KV_HEADS, depth), 7.0) for depth in (DEPTH, DEPTH_V))
    for count in STEPS:
        q, k, v = sequences.draw(count)
        out, lse = flash_attn_with_kvcache(
            arranged(q), arranged(k_cache), arranged(v_cache), arranged(k), arranged(v), causal=True, layout=layout,
            cache_seqlens=sequences.length.to(index), seqlens_new=lengths(*count, dtype=index), return_softmax_lse=True)
        sequences.extend(k, v, count)
        sequences.check(q, count, arranged(out), lse)
    for b, own in enumerate(sequences.k):
        assert torch.equal(k_cache[b, : len(own)], own) and (k_cache[b, len(own):] == 7).all()
        assert torch.equal(v_cache[b, : len(own)], sequences.v[b]) and (v_cache[b, len(own):] == 7).all()


def test_pages_windows_and_scale():
    sequences = Sequences(2, 3)
    table = lengths(*torch.randperm(30).tolist())[:24].view(3, 8)
    k_pool, v_pool = (torch.zeros(30, 8, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V))
    for count in STEPS:
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(q * 2, k_pool, v_pool, k, v, cache_seqlens=sequences.length, page_table=table,
                                      seqlens_new=lengths(*count), causal=True, window_size=(11, 0),
                                      softmax_scale=DEPTH**-0.5 / 2)
        sequences.extend(k, v, count)
        sequences.check(q, count, out, visible=lambda i, j: (j <= i) & (j >= i - 11))


def test_rows_of_a_larger_cache():
    sequences = Sequences(3, 2)
    k_cache, v_cache = (torch.zeros(5, 20, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V))
    for count in ((7, 7), (1, 1)):
        q, k, v = sequences.draw(count)
        out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=sequences.length, causal=True,
                                      cache_batch_idx=lengths(4, 1))
        sequences.extend(k, v, count)
        sequences.check(q, count, out)
    assert torch.equal(k_cache[4, :8], sequences.k[0]) and torch.equal(k_cache[1, :8], sequences.k[1])
    assert (k_cache[[0, 2, 3]] == 0).all()


def test_an_append_and_a_cache_as_it_is():
    sequences = Sequences(4, 3)
    caches = [torch.zeros(3, 64, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)]
    pools, table = [x.reshape(24, 8, KV_HEADS, -1).clone() for x in caches], lengths(*range(24)).view(3, 8)
    for count in STEPS:
        q, k, v = sequences.draw(count)
        append_kvcache(k, v, *caches, sequences.length, seqlens_new=lengths(*count))
        append_kvcache(k, v, *pools, sequences.length, seqlens_new=lengths(*count), page_table=table)
        sequences.extend(k, v, count)
    assert all(torch.equal(pool.view_as(cache), cache) for pool, cache in zip(pools, caches))
    q = drawn(sequences.random, 3, 1, HEADS, DEPTH)
    sequences.check(q, (1, 1, 1), flash_attn_with_kvcache(q, *caches, cache_seqlens=sequences.length))
    out, lse = flash_attn_with_kvcache(q, *pools, cache_seqlens=sequences.length, page_table=table,
                                       return_softmax_lse=True)
    sequences.check(q, (1, 1, 1), out, lse)
    whole = flash_attn_with_kvcache(q, caches[0][:, :30], caches[1][:, :30])
    torch.testing.assert_close(whole, flash_attn_with_kvcache(q, *caches, cache_seqlens=30))


@pytest.mark.parametrize("pinned", [0, 3])
@pytest.mark.parametrize("steps", [STEPS, [(50, 1, 9), (1, 2, 40), (3, 3, 3)] + [(1, 1, 1)] * 40])
def test_rings_keep_the_first_and_the_last_positions(pinned, steps):
    sequences, rows = Sequences(5, 3), 20
    span = rows - pinned
    k_cache, v_cache = (torch.full((3, rows, KV_HEADS, depth), torch.nan) for depth in (DEPTH, DEPTH_V))
    for count in steps:
        q, k, v = sequences.draw(count)
        out, lse = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=sequences.length, causal=True,
                                           seqlens_new=lengths(*count), ring=pinned, return_softmax_lse=True)
        sequences.extend(k, v, count)
        sequences.check(q, count, out, lse, lambda i, j: (j <= i) & ((j > i - span) | (j < pinned)))


# --- torch.compile ----------------------------------------------------------------------------------------------------


class Layer(CacheLayer):
    """Attention with its cache as arguments."""

    def forward(self, x, k_cache, v_cache, at, **tensors):
        q, k, v = self.projected(x)
        out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, causal=True, **self.options, **tensors)
        return out.flatten(2) + 1


CACHES = {
    "contiguous": ({}, lambda: [torch.zeros(2, 40, KV_HEADS, DEPTH) for _ in "kv"], {}),
    "pages": ({}, lambda: [torch.zeros(12, 8, KV_HEADS, DEPTH) for _ in "kv"],
              {"page_table": torch.arange(10, dtype=torch.int32).view(2, 5)}),
    "ring": ({"ring": 2}, lambda: [torch.zeros(2, 12, KV_HEADS, DEPTH) for _ in "kv"], {}),
}


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_compiled_once_for_all_steps(kind, backend, mode):
    options, make, tensors = CACHES[kind]
    if backend == "inductor" and not has_compiler([torch.zeros(1)]):
        pytest.skip("Inductor finds no C++ compiler")
    if backend == "inductor" and (mode is torch.inference_mode or kind == "ring"):
        pytest.skip("slow, and differs from aot_eager only in what is around the operator")
    layer = Layer(**options)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=False)
    eager_caches, caches = make(), make()
    addresses = [x.data_ptr() for x in caches]
    with mode():
        at = torch.zeros(2, dtype=torch.int32)
        for step in range(14):
            x = torch.randn(2, 1, 32)
            if step == 2:
                before = saccade.cache_info().compilations
            expected = layer(x, *eager_caches, at, **tensors)
            torch.testing.assert_close(compiled(x, *caches, at, **tensors), expected)
            at = at + torch.tensor([1, 2], dtype=torch.int32) * (step % 2)
    assert counter.frame_count == 1
    assert saccade.cache_info().compilations == before
    assert [x.data_ptr() for x in caches] == addresses
    for x, expected in zip(caches, eager_caches):
        torch.testing.assert_close(x, expected)


@pytest.mark.skipif(not has_compiler([torch.zeros(1)]), reason="Inductor finds no C++ compiler")
def test_inductor_does_not_copy_caches():
    from torch._inductor.utils import run_and_get_code

    layer, caches = Layer(), [torch.zeros(2, 1000, KV_HEADS, DEPTH) for _ in "kv"]
    torch._dynamo.reset()
    with torch.no_grad():
        _, (code,) = run_and_get_code(torch.compile(layer, dynamic=False), torch.randn(2, 1, 32), *caches,
                                      torch.zeros(2, dtype=torch.int32))
    assert "torch.ops.saccade.attention_update.default" in code
    allocated = re.findall(r"empty_strided_cpu\w*\(\((.*?)\)", code)
    assert allocated and not any("1000" in shape for shape in allocated)


@pytest.mark.parametrize("kind", CACHES)
def test_chunks_of_any_length_are_one_graph(kind):
    options, make, tensors = CACHES[kind]
    layer = Layer(**options)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    eager_caches, caches = make(), make()
    with torch.no_grad():
        at = torch.zeros(2, dtype=torch.int64)
        for n in (3, 7, 5, 9):
            x = torch.randn(2, n, 32)
            torch._dynamo.mark_dynamic(x, 1)
            torch.testing.assert_close(compiled(x, *caches, at, **tensors), layer(x, *eager_caches, at, **tensors))
            at = at + n
    assert counter.frame_count == 1
    for x, expected in zip(caches, eager_caches):
        torch.testing.assert_close(x, expected)


def test_merged_prefix_in_a_graph():
    torch._dynamo.reset()
    q, k, v = torch.randn(3, 2, 4, 9, 16)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def cascade(q, k, v):
        parts = [saccade.attention(q, k[:, :, own], v[:, :, own], return_lse=True) for own in (slice(4), slice(4, None))]
        return saccade.merge_state(*parts[0], *parts[1])

    expected = saccade.attention(q, k, v, return_lse=True)
    for x, y in zip(cascade(q, k, v), expected):
        torch.testing.assert_close(x, y)


# --- errors -----------------------------------------------------------------------------------------------------------

TABLE = lengths(7, 3, 5, 2, 1, 0).view(2, 3)
ERRORS = {
    "full cache": ({"cache_seqlens": lengths(3, 24)}, "cache is full: end of the new rows: found 26, expected at most 24, in "
                   "sequence 1"),
    "full table": ({"cache_seqlens": lengths(22, 23), "page_table": TABLE}, "page table is full: end of the new rows: found "
                   "25, expected at most 24, in sequence 1"),
    "no page": ({"cache_seqlens": lengths(7, 15), "page_table": lengths(0, 9, 2, 5, 3, -1).view(2, 3)}, "has a page that is "
                "not in the pool: found 9, expected 0 or more and less than 8, in sequence 0"),
    "no page to read": ({"cache_seqlens": lengths(7, 15), "page_table": lengths(0, 1, 2, -3, 3, 4).view(2, 3)}, "has a page "
                        "that is not in the pool: found -3, expected 0 or more and less than 8, in sequence 1"),
    "two writers": ({"cache_seqlens": lengths(7, 15), "page_table": lengths(0, 5, 2, 3, 5, 4).view(2, 3)},
                    "writes to a page twice: found 5, expected a page other than those of sequence 0, in sequence 1"),
    "negative": ({"cache_seqlens": lengths(3, -1)}, "position of the first new row is negative: found -1, expected at least "
                 "0, in sequence 1"),
    "too many": ({"seqlens_new": lengths(3, 2)}, "count exceeds the new rows: found 3, expected at most 2, in sequence 0"),
    "batch": ({"cache_seqlens": lengths(3, 3, 3)}, "at has another batch size than cache: found 3, expected 2"),
}


@pytest.mark.parametrize("is_attending", [False, True])
@pytest.mark.parametrize("element", [torch.float32, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize(("case", "ring"), [*((case, None) for case in ERRORS), *((case, 3) for case in ("negative", "too many", "batch"))])
def test_invalid_calls_do_not_change_the_cache(case, ring, element, is_attending):
    options, message = ERRORS[case]
    shape = (8, 8) if "page_table" in options else (2, 24)
    random = torch.Generator().manual_seed(0)
    caches = [drawn(random, *shape, KV_HEADS, DEPTH).to(element) for _ in "kv"]
    rows = 1 if ring is not None and is_attending else 2
    if rows == 1 and case == "too many":
        message = message.replace("found 3, expected at most 2", "found 3, expected at most 1")
    q, k, v = (drawn(random, 2, rows, heads, DEPTH) for heads in (HEADS, KV_HEADS, KV_HEADS))
    options = {"cache_seqlens": lengths(0, 0), **options}
    if ring is not None:
        options["ring"] = ring
    if element != torch.float32:
        options |= {name: torch.ones(*shape, KV_HEADS) for name in ("k_scale", "v_scale")}
    updated = [*caches, *(options[name] for name in ("k_scale", "v_scale") if name in options)]
    before = [x.clone() for x in updated]
    if case == "no page to read" and not is_attending:
        pytest.skip("an append does not read the page")
    call = functools.partial(append_kvcache, k, v, *caches)
    if is_attending:
        call = functools.partial(flash_attn_with_kvcache, q, *caches, k, v, causal=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        call(**options)
    assert all(torch.equal(x.float(), y.float()) for x, y in zip(updated, before))


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"cache_seqlens": None}, TypeError, "cache_seqlens is None"),
    ({"cache_seqlens": 1.5}, TypeError, "cache_seqlens is 1.5, expected an int or a tensor"),
    ({"v": None}, TypeError, "one of k and v is None"),
    ({"layout": "sd"}, ValueError, "layout is 'sd', expected 'bshd' or 'bhsd'"),
    ({"window_size": (3, 0), "causal": False}, ValueError, "expected causal=True"),
    ({"seqlens_new": lengths(1, 1)}, TypeError, "seqlens_new has element type torch.int32, expected torch.int64"),
    ({"ring": 24}, ValueError, "ring is 24, expected 0 or more and less than the 24 rows of the cache"),
    ({"k_scale": 1.0, "v_scale": None}, TypeError, "v_scale is None"),
    ({"k_scale": 1.0}, TypeError, "k_cache has element type torch.float32, expected torch.int8, torch.float8_e4m3fn, "
     "torch.float8_e5m2: k_scale is given"),
    ({"k_scale": torch.ones(2, 24, KV_HEADS, 5), "v_scale": 1.0}, ValueError, "k_scale has 5 scales for 16 elements, expected "
     "blocks of a power of two"),
    ({"window_size": 3}, TypeError, r"window_size is 3, expected \(left, right\)"),
    ({"k_scale": None, "v_scale": None}, TypeError, "k_cache has element type torch.int8, expected k_scale to be given"),
    ({"k_scale": torch.ones(3), "v_scale": 1.0}, ValueError, "k_scale has 3 elements, expected 2, one for each head"),
    ({"k": None, "v": None, "k_scale": 1.0, "v_scale": torch.nan}, ValueError, "v_scale is nan, expected a positive number"),
    ({"k": torch.zeros(2, 1, KV_HEADS, DEPTH)}, ValueError, "k has 1 rows, expected 2, those of q"),
    ({"v": torch.zeros(2, 3, KV_HEADS, DEPTH)}, ValueError, "v has 3 rows, expected 2, those of q"),
    ({"k": torch.zeros(2, 2, DEPTH)}, ValueError, "k has 3 dimensions, expected 4"),
    ({"ring": -1}, ValueError, "ring is -1, expected 0 or more and less than the 24 rows of the cache"),
])
def test_arguments_that_do_not_fit(options, error, message):
    q, (k, v) = torch.randn(2, 2, HEADS, DEPTH), torch.randn(2, 2, 2, KV_HEADS, DEPTH)
    element = torch.int8 if "v_scale" in options else torch.float32
    caches = [torch.zeros(2, 24, KV_HEADS, DEPTH, dtype=element) for _ in "kv"]
    given = {"k": k, "v": v, "cache_seqlens": 0, "causal": True, **options}
    with pytest.raises(error, match=message):
        flash_attn_with_kvcache(q, *caches, **given)
    assert all((x == 0).all() for x in caches)


@pytest.mark.parametrize(("options", "message"), [
    ({"v": torch.zeros(2, 3, KV_HEADS, DEPTH)}, "v has 3 rows, expected 2, those of k"),
    ({"ring": -1}, "ring is -1, expected 0 or more"),
    ({"ring": 1, "page_table": TABLE}, "ring and page_table are given, expected one of them"),
])
def test_appended_rows_that_do_not_fit(options, message):
    k, v = torch.randn(2, 2, 2, KV_HEADS, DEPTH)
    caches = [torch.zeros(2, 24, KV_HEADS, DEPTH) for _ in "kv"]
    given = {"k": k, "v": v, **options}
    with pytest.raises(ValueError, match=message):
        append_kvcache(given.pop("k"), given.pop("v"), *caches, 0, **given)
    assert all((x == 0).all() for x in caches)


def test_lengths_do_not_compile_anew():
    torch.manual_seed(0)
    saccade.cache_clear()
    for batch, capacity, n, pages in ((1, 9, 1, 0), (3, 40, 1, 0), (2, 64, 1, 0)):
        caches = [torch.zeros(batch, capacity, KV_HEADS, DEPTH) for _ in "kv"]
        q, (k, v) = torch.randn(batch, n, HEADS, DEPTH), torch.randn(2, batch, n, KV_HEADS, DEPTH)
        for at in range(4):
            flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=at, causal=True)
    assert saccade.cache_info().compilations == 1


@pytest.mark.parametrize("element", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_rows_whose_scale_has_no_finite_reciprocal(element):
    k = torch.zeros(1, 1, KV_HEADS, DEPTH)
    k[..., 3] = 1e-36
    caches = [torch.zeros(1, 4, KV_HEADS, DEPTH).to(element) for _ in "kv"]
    scales = torch.ones(2, 1, 4, KV_HEADS)
    append_kvcache(k, k, *caches, 2, k_scale=scales[0], v_scale=scales[1])
    for cache, scale in zip(caches, scales):
        stored = cache[:, 2].double() * scale[:, 2].double().unsqueeze(-1)
        assert torch.isfinite(stored).all() and torch.allclose(stored, k[:, 0].double(), rtol=0.1, atol=0)
