"""saccade.torch.flash_attn_with_kvcache and append_kvcache: caches that are updated in place."""

from __future__ import annotations

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


@pytest.mark.parametrize("options", [{}, {"ring": 3}, {"tree": [-1, 0, 0]}, {"window_size": (9, 0)}], ids=lambda x: "".join(x))
def test_scores_are_capped(options):
    sequences, cap = Sequences(9, 2), 1.5
    caches = [torch.zeros(2, 64, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)]
    parents = torch.tensor(options.pop("tree")) if "tree" in options else None
    for count in ((17, 5), (3, 3)):
        q, k, v = sequences.draw(count)
        tree = {"tree": parents} if parents is not None and count == (3, 3) else {}
        given = {"cache_seqlens": sequences.length, "seqlens_new": lengths(*count), "causal": True, **options, **tree}
        out = flash_attn_with_kvcache(4 * q, *caches, k, v, softcap=cap, **given)
        sequences.extend(k, v, count)
        span = options.get("window_size", (64, 0))[0]

        def visible(i, j):
            siblings = (i == i.max()) & (j == i.max() - 1) if tree else False
            return (j <= i) & (j >= i - span) & ~torch.as_tensor(siblings)

        sequences.check(4 * q, count, out, visible=visible, score=lambda s: cap * torch.tanh(s / cap))


def test_names_of_flash_attention_2():
    q, (k, v) = torch.randn(2, 1, HEADS, DEPTH), torch.randn(2, 2, 1, KV_HEADS, DEPTH)
    table, outs = lengths(7, 3, 5, 2, 1, 0).view(2, 3), []
    for name in ("page_table", "block_table"):
        pools = [torch.zeros(8, 8, KV_HEADS, DEPTH) for _ in "kv"]
        outs.append(flash_attn_with_kvcache(q, *pools, k, v, cache_seqlens=9, causal=True, **{name: table}))
    assert torch.equal(*outs)


# --- torch.compile ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("kind", ["pages", "ragged", "ragged pages", "int8", "int8 pages"])
def test_compiled_attention_to_a_cache_without_new_rows(kind, return_lse):
    shape = (8, 16) if "pages" in kind else (2, 64)
    make = lambda: torch.randint(-9, 9, (*shape, 2, 64)).to(torch.int8 if "int8" in kind else torch.float32)
    caches, options = [make(), make()], {"cache_seqlens": lengths(20, 7), "causal": True, "return_softmax_lse": return_lse}
    if "pages" in kind:
        options["page_table"] = torch.tensor([[1, 2, 0], [3, 0, 0]], dtype=torch.int32)
    if "int8" in kind:
        options |= {"k_scale": 0.01, "v_scale": 0.02}
    if "ragged" in kind:
        options["cu_seqlens_q"] = lengths(0, 2, 3)
    q = torch.randn(3, 4, 64) if "ragged" in kind else torch.randn(2, 1, 4, 64)
    call = lambda q: flash_attn_with_kvcache(q, *caches, **options)
    torch.testing.assert_close(torch.compile(call, backend="aot_eager", fullgraph=True)(q), call(q), rtol=0, atol=0)


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
