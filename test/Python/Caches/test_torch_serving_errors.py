"""Calls of saccade.torch.flash_attn_with_kvcache and append_kvcache that are refused."""

from __future__ import annotations

import functools
import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, HEADS, KV_HEADS
from cached_sequences import drawn, lengths

from saccade.torch import append_kvcache, flash_attn_with_kvcache

TABLE = lengths(7, 3, 5, 2, 1, 0).view(2, 3)
ERRORS = {
    "full cache": ({"cache_seqlens": lengths(3, 24)}, "cache is full: end of the new rows: found 26, expected at most 24, in "
                   "sequence 1"),
    "full table": ({"cache_seqlens": lengths(22, 23), "page_table": TABLE}, "page_table is full: end of the new rows: found "
                   "25, expected at most 24, in sequence 1"),
    "no page": ({"cache_seqlens": lengths(7, 15), "page_table": lengths(0, 9, 2, 5, 3, -1).view(2, 3)}, "has a page that is "
                "not in the pool: found 9, expected 0 or more and less than 8, in sequence 0"),
    "no page to read": ({"cache_seqlens": lengths(7, 15), "page_table": lengths(0, 1, 2, -3, 3, 4).view(2, 3)}, "has a page "
                        "that is not in the pool: found -3, expected 0 or more and less than 8, in sequence 1"),
    "two writers": ({"cache_seqlens": lengths(7, 15), "page_table": lengths(0, 5, 2, 3, 5, 4).view(2, 3)},
                    "writes to a page twice: found 5, expected a page other than those of sequence 0, in sequence 1"),
    "negative": ({"cache_seqlens": lengths(3, -1)}, "position of the first new row is negative: found -1, expected at least "
                 "0, in sequence 1"),
    "too many": ({"seqlens_new": lengths(3, 2)}, "count of new rows exceeds those of k: found 3, expected at most 2, in sequence 0"),
    "batch": ({"cache_seqlens": lengths(3, 3, 3)}, "cache_seqlens has another batch size than cache: found 3, expected 2"),
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
    ({"seqlens_new": torch.ones(2)}, TypeError, "seqlens_new has element type float32, expected int32 or int64"),
    ({"alibi_slopes": torch.ones(HEADS)}, NotImplementedError, "alibi_slopes is given, expected None: it is not supported"),
    ({"page_table": lengths(0, 1).view(2, 1), "cache_batch_idx": lengths(0, 1)}, TypeError, "page_table and cache_batch_idx are "
     "given, expected one of them"),
    ({"ring": 24}, ValueError, "ring is 24, expected 0 or more and less than the 24 rows of the cache"),
    ({"k_scale": 1.0, "v_scale": None}, TypeError, "v_scale is None"),
    ({"k_scale": 1.0}, TypeError, "k_cache has element type torch.float32, expected torch.int8, torch.float8_e4m3fn, "
     "torch.float8_e5m2, torch.uint8: k_scale is given"),
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
    ({"cache_seqlens": lengths(1, 2).view(2, 1)}, ValueError, r"cache_seqlens has shape \[2, 1\], expected \[2\]"),
    ({"cache_seqlens": torch.ones(2)}, TypeError, "cache_seqlens has element type float32, expected int32 or int64"),
    ({"k": torch.zeros(2, 2, 1, DEPTH)}, ValueError, "new rows have another head count than cache: found 1, expected 2"),
    ({"k": torch.zeros(2, 2, KV_HEADS, DEPTH).half()}, TypeError, "flash_attn_with_kvcache: k: found element type f16"),
    ({"page_table": lengths(0, 1)}, ValueError, "page_table has 1 dimension, expected 2"),
    ({"page_table": torch.zeros(2, 1)}, TypeError, "page_table has element type float32, expected int32 or int64"),
    ({"page_table": lengths(0, 1).view(2, 1), "block_table": lengths(0, 1).view(2, 1)}, TypeError, "expected one of them"),
    ({"cache_batch_idx": lengths(0)}, ValueError, "cache_batch_idx has 1 elements, expected 2, one for each sequence"),
    ({"cache_batch_idx": [0, 1]}, TypeError, "cache_batch_idx is a list, expected a torch.Tensor"),
    ({"seqlens_new": torch.tensor([1])}, ValueError, "seqlens_new has 1 elements, expected 2, one for each sequence"),
    ({"k": None, "v": None, "cache_seqlens": lengths(3, -1)}, ValueError, "cache_seqlens is negative: found -1"),
    ({"block_table": lengths(0, 1).view(2, 1), "cache_seqlens": lengths(0, 23)}, ValueError, "block_table is full"),
    ({"cache_batch_idx": lengths(0, 2)}, ValueError, "has a row that is not in the cache: found 2, expected 0 or more and less "
     "than 2, in sequence 1"),
    ({"cache_batch_idx": lengths(1, 1)}, ValueError, "writes to a row of the cache twice: found 1, expected a row other than "
     "those of sequence 0, in sequence 1"),
    ({"cache_batch_idx": lengths(1, 0), "cache_seqlens": lengths(0, 23)}, ValueError, ": cache is full: end of the new rows: found "
     "25, expected at most 24, in sequence 1"),
    ({"k_scale": torch.ones(2, KV_HEADS, 24), "v_scale": 1.0}, ValueError, r"k_scale has shape \[2, 2, 24\], expected "
     r"\[2, 24, 2\], one for each position and head of k_cache"),
    ({"k_scale": torch.ones(KV_HEADS).double(), "v_scale": 1.0}, TypeError, "k_scale: found element type f64, expected f32"),
    ({"softcap": -1.0}, ValueError, "softcap is -1.0, expected a number of at least 0"),
    ({"softcap": "1"}, TypeError, "softcap is '1', expected a number of at least 0"),
    ({"k": [1]}, TypeError, "k is a list, expected a torch.Tensor"),
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
    ({"rotary_interleaved": "no"}, "rotary_interleaved is 'no', expected True or False"),
])
def test_appended_rows_that_do_not_fit(options, message):
    k, v = torch.randn(2, 2, 2, KV_HEADS, DEPTH)
    caches = [torch.zeros(2, 24, KV_HEADS, DEPTH) for _ in "kv"]
    given = {"k": k, "v": v, **options}
    with pytest.raises((TypeError, ValueError), match=message):
        append_kvcache(given.pop("k"), given.pop("v"), *caches, 0, **given)
    assert all((x == 0).all() for x in caches)


@pytest.mark.parametrize(("options", "message"), [
    ({"cache_seqlens": lengths(0, 23)}, ": cache is full: end of the new rows: found 25, expected at most 24, in sequence 1"),
    ({"cache_seqlens": lengths(0)}, "cache_seqlens has another batch size than cu_seqlens_q: found 1, expected 2"),
    ({"cu_seqlens_q": lengths(0, 2, 9)}, "count of new rows exceeds those of k: found 7, expected at most 3, in sequence 1"),
    ({"cu_seqlens_q": lengths(0, 2, 1)}, "count of new rows is negative: found -1, expected at least 0, in sequence 1"),
])
def test_ragged_arguments_that_do_not_fit(options, message):
    caches = [torch.zeros(2, 24, KV_HEADS, DEPTH) for _ in "kv"]
    given = {"cache_seqlens": lengths(0, 0), "cu_seqlens_q": lengths(0, 1, 3), "causal": True, **options}
    with pytest.raises(ValueError, match=message):
        flash_attn_with_kvcache(torch.randn(3, HEADS, DEPTH), *caches, *torch.randn(2, 3, KV_HEADS, DEPTH), **given)
    assert all((x == 0).all() for x in caches)


@pytest.mark.parametrize("scale", [torch.tensor(0.02), torch.tensor([0.02])])
def test_a_tensor_of_one_scale_is_that_of_all_heads(scale):
    q, (k, v) = torch.randn(2, 1, HEADS, DEPTH), torch.randn(2, 2, 1, KV_HEADS, DEPTH)
    outs = []
    for given in (0.02, scale):
        caches = [torch.zeros(2, 8, KV_HEADS, DEPTH, dtype=torch.int8) for _ in "kv"]
        outs.append(flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=3, k_scale=given, v_scale=given))
    torch.testing.assert_close(*outs)


def test_a_pool_without_a_table():
    q, (k, v) = torch.randn(2, 1, HEADS, DEPTH), torch.randn(2, 2, 1, KV_HEADS, DEPTH)
    pools = [torch.zeros(8, 4, KV_HEADS, DEPTH) for _ in "kv"]
    with pytest.raises(ValueError, match="expected 8: give page_table for a pool of pages"):
        flash_attn_with_kvcache(q, *pools, k, v, cache_seqlens=0)


@pytest.mark.parametrize("name", ["q", "k_cache"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_are_refused(name, is_compiled):
    tensors = {"q": torch.randn(2, 1, HEADS, DEPTH), "k_cache": torch.zeros(2, 8, KV_HEADS, DEPTH)}
    k, v, factor = *torch.randn(2, 2, 1, KV_HEADS, DEPTH), torch.ones((), requires_grad=True)
    v_cache = torch.zeros(2, 8, KV_HEADS, DEPTH)

    def step(factor):
        given = {**tensors, name: tensors[name] * factor}
        return flash_attn_with_kvcache(given["q"], given["k_cache"], v_cache, k, v, cache_seqlens=lengths(0, 3))

    call = torch.compile(step, backend="eager") if is_compiled else step
    with pytest.raises(Exception, match=f"{name} requires grad"):
        call(factor)
    with torch.no_grad():
        call(factor)


def test_rows_of_a_cache_and_lengths_of_other_types():
    k, v = torch.randn(2, 2, 3, KV_HEADS, DEPTH)
    caches, others = ([torch.zeros(4, 8, KV_HEADS, DEPTH) for _ in "kv"] for _ in range(2))
    append_kvcache(k, v, *caches, 2, seqlens_new=lengths(3, 1), cache_batch_idx=lengths(3, 0))
    table = lengths(3, 0).view(2, 1)
    append_kvcache(k, v, *others, lengths(2, 2), seqlens_new=torch.tensor([3, 1]), block_table=table)
    assert torch.equal(caches[0][3, 2:5], k[0]) and torch.equal(caches[0][0, 2], k[1, 0]) and (caches[0][0, 3:] == 0).all()
    assert all(torch.equal(x, y) for x, y in zip(caches, others))
