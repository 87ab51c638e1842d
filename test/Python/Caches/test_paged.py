"""Paged key/value caches: saccade.attention with page_table."""

import re

import numpy as np
import pytest

import saccade

RNG = np.random.default_rng(11)


def reference(q, k, v, lengths, *, causal=True):
    """Attention in float64; k and v are lists of one sequence each, [keys, heads, depth]."""
    out = np.zeros(q.shape[:-1] + v[0].shape[-1:])
    for b, length in enumerate(lengths):
        for h in range(q.shape[1]):
            group = h // (q.shape[1] // k[b].shape[1])
            scores = q[b, h].astype(np.float64) @ k[b][:length, group].T.astype(np.float64) / np.sqrt(q.shape[-1])
            if causal:
                own = np.arange(q.shape[2])[:, None] + length - q.shape[2]
                scores[np.arange(length)[None] > own] = -np.inf
            top = scores.max(-1, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
            total = weights.sum(-1, keepdims=True)
            out[b, h] = weights / np.where(total == 0, 1, total) @ v[b][:length, group].astype(np.float64)
    return out


class Pool:
    """Sequences of random keys and values in pages of any order, with unused pages and entries."""

    def __init__(self, lengths, page_size, heads=2, depth=16, depth_v=24, index=np.int32, rng=RNG):
        entries = max(-(-length // page_size) for length in lengths) + 1
        pages = len(lengths) * entries + 2
        self.k = rng.standard_normal((pages, heads, page_size, depth), np.float32)
        self.v = rng.standard_normal((pages, heads, page_size, depth_v), np.float32)
        self.table = rng.permutation(pages)[: len(lengths) * entries].reshape(-1, entries).astype(index)
        self.lengths = np.array(lengths, index)
        for row, length in zip(self.table, lengths):  # entries beyond the length are not read
            row[-(-length // page_size):] = -7

    def sequences(self, pool):
        return [pool[np.maximum(row, 0)].transpose(0, 2, 1, 3).reshape(-1, *pool.shape[1::2]) for row in self.table]

    def expected(self, q, **options):
        return reference(q, self.sequences(self.k), self.sequences(self.v), self.lengths, **options)


@pytest.mark.parametrize("page_size", [1, 3, 16, 256])
@pytest.mark.parametrize("queries", [1, 5, 40])
def test_pages_of_any_size_and_order(page_size, queries):
    pool = Pool([37, 1100, 5, 0], page_size)
    q = RNG.standard_normal((4, 6, queries, 16), np.float32)
    out = saccade.attention(q, pool.k, pool.v, page_table=pool.table, kv_len=pool.lengths, causal="bottom_right")
    np.testing.assert_allclose(out, pool.expected(q), atol=2e-6)


@pytest.mark.parametrize("queries", [1, 30])
def test_bits_do_not_depend_on_the_placement_of_pages(queries):
    lengths = [700, 1500, 33]
    pool = Pool(lengths, 16)
    q = RNG.standard_normal((3, 4, queries, 16), np.float32)
    dense = [np.stack([np.pad(x[:1536], ((0, 1536 - min(len(x), 1536)), (0, 0), (0, 0))) for x in pool.sequences(p)])
             .transpose(0, 2, 1, 3) for p in (pool.k, pool.v)]
    options = {"kv_len": pool.lengths, "causal": "bottom_right"}
    expected = saccade.attention(q, pool.k, pool.v, page_table=pool.table, **options)
    np.testing.assert_allclose(expected, saccade.attention(q, *dense, **options), atol=2e-6)
    order = RNG.permutation(len(pool.k))
    table = np.where(pool.table < 0, -1, np.argsort(order)[np.maximum(pool.table, 0)]).astype(np.int32)
    assert np.array_equal(saccade.attention(q, pool.k[order], pool.v[order], page_table=table, **options), expected)
    alone = saccade.attention(q[1:2], pool.k, pool.v, page_table=pool.table[1:2], kv_len=pool.lengths[1:2],
                              causal="bottom_right")
    assert np.array_equal(alone, expected[1:2])


def test_shared_pages_are_a_common_prefix():
    pool = Pool([48, 48], 16)
    pool.table[1, :2] = pool.table[0, :2]
    q = RNG.standard_normal((2, 4, 1, 16), np.float32)
    out = saccade.attention(q, pool.k, pool.v, page_table=pool.table, kv_len=pool.lengths)
    np.testing.assert_allclose(out, pool.expected(q, causal=False), atol=2e-6)


@pytest.mark.parametrize("block", [1, 8])
def test_selected_keys_equal_the_mask_that_says_the_same(block):
    """A list of keys, or of blocks of keys, for each query is a page table; the pool is the dense cache."""
    batch, heads, keys, chosen = 3, 2, 640, 10
    q = RNG.standard_normal((batch, 4, 1, 16), np.float32)
    k, v = RNG.standard_normal((2, batch, heads, keys, 16), np.float32)
    selected = np.array([RNG.permutation(keys // block)[:chosen] for _ in range(batch)])
    pools = [x.reshape(batch, heads, keys // block, block, 16).swapaxes(1, 2).reshape(-1, heads, block, 16) for x in (k, v)]
    table = (selected + np.arange(batch)[:, None] * (keys // block)).astype(np.int32)
    is_selected = np.zeros((batch, keys), bool)
    for row, blocks in zip(is_selected.reshape(batch, -1, block), selected):
        row[blocks] = True
    expected = saccade.attention(q, k, v, mask=lambda b, h, i, j: is_selected[b, j])
    np.testing.assert_allclose(saccade.attention(q, *pools, page_table=table), expected, atol=2e-6)


def test_a_batch_of_prefills_and_decodes():
    counts, lengths = [1, 60, 4, 0], [700, 60, 90, 10]
    pool = Pool(lengths, 16)
    offsets = np.cumsum([0, *counts]).astype(np.int32)
    q = RNG.standard_normal((sum(counts), 4, 16), np.float32)
    out = saccade.attention(q, pool.k.transpose(0, 2, 1, 3), pool.v.transpose(0, 2, 1, 3), cu_seqlens_q=offsets,
                            page_table=pool.table, kv_len=pool.lengths, causal="bottom_right")
    for n, (start, count) in enumerate(zip(offsets, counts)):
        own = q[start:start + count].transpose(1, 0, 2)[None]
        expected = reference(own, *([pool.sequences(p)[n]] for p in (pool.k, pool.v)), [lengths[n]])
        np.testing.assert_allclose(out[start:start + count], expected[0].transpose(1, 0, 2), atol=2e-6)


def test_one_kernel_serves_all_sizes():
    saccade.cache_clear()
    for page_size, queries, lengths in ((4, 1, [9, 70]), (16, 100, [300]), (7, 3, [8, 2, 10])):
        pool = Pool(lengths, page_size)
        q = RNG.standard_normal((len(lengths), 2, queries, 16), np.float32)
        out = saccade.attention(q, pool.k, pool.v, page_table=pool.table, kv_len=pool.lengths, causal="bottom_right")
        np.testing.assert_allclose(out, pool.expected(q), atol=2e-6)
    assert saccade.cache_info().compilations == 1


def test_torch_tensors_and_scores():
    torch = pytest.importorskip("torch")
    pool = Pool([50, 9], 8, index=np.int64)
    q = torch.from_numpy(RNG.standard_normal((2, 2, 1, 16), np.float32))
    k, v, table, lengths = (torch.from_numpy(x) for x in (pool.k, pool.v, pool.table, pool.lengths))
    slopes = torch.tensor([0.5, 0.25])
    out, lse = saccade.attention(q, k, v, page_table=table, kv_len=lengths, return_lse=True,
                                 score=lambda s, b, h, i, j: s + slopes[h] * j, window=20, causal="bottom_right")
    keys = [torch.from_numpy(x).transpose(0, 1)[None] for x in pool.sequences(pool.k)]
    values = [torch.from_numpy(x).transpose(0, 1)[None] for x in pool.sequences(pool.v)]
    for b, n in enumerate(pool.lengths.tolist()):
        expected = saccade.attention(q[b:b + 1], keys[b][:, :, :n], values[b][:, :, :n], return_lse=True,
                                     score=lambda s, _, h, i, j: s + slopes[h] * j, window=20, causal="bottom_right")
        torch.testing.assert_close(out[b:b + 1], expected[0])
        torch.testing.assert_close(lse[b:b + 1], expected[1])


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"page_table": np.full((2, 4), 99, np.int32)}, ValueError,
     "page_table has a page that is not in the pool: found 99, expected 0 or more and less than 11, in sequence 0"),
    ({"page_table": np.zeros((3, 4), np.int32)}, ValueError, "page_table has 3 rows, expected 2: one for each sequence"),
    ({"page_table": np.zeros(4, np.int32)}, TypeError, "page_table has 1 dimension, expected 2: the pages of each sequence"),
    ({"page_table": np.zeros((2, 4))}, TypeError, "page_table has element type float64, expected int32 or int64"),
    ({"kv_len": np.array([33, 65], np.int32)}, ValueError, "kv_len exceeds the length of key: found 65, expected at most 64"),
    ({"kv_len": 65}, ValueError, "kv_len is 65, expected 0 to 64, the positions of page_table"),
    ({"cu_seqlens_k": np.zeros(3, np.int32)}, TypeError,
     "cu_seqlens_k is given, expected None: page_table and kv_len say where the keys of a sequence are"),
    ({"v": np.zeros((11, 2, 8, 24), np.float32)}, ValueError, "v has page size 8, expected 16, that of k"),
    ({"k": np.zeros((11, 16, 16), np.float32)}, TypeError, 'where b are the pages'),
])  # fmt: skip
def test_errors_name_the_sequence_and_the_page(change, error, message):
    arguments = {"q": np.zeros((2, 4, 1, 16), np.float32), "k": np.zeros((11, 2, 16, 16), np.float32),
                 "v": np.zeros((11, 2, 16, 24), np.float32), "page_table": np.zeros((2, 4), np.int32),
                 "kv_len": np.array([33, 64], np.int32), **change}
    with pytest.raises(error, match=re.escape(message)):
        saccade.attention(**arguments)


def test_gradients_are_refused():
    torch = pytest.importorskip("torch")
    q = torch.zeros(1, 2, 1, 16, requires_grad=True)
    pool = torch.zeros(3, 2, 4, 16)
    with pytest.raises(ValueError, match="page_table is given, expected None: an input requires grad"):
        saccade.attention(q, pool, pool, page_table=torch.zeros(1, 3, dtype=torch.int32))
