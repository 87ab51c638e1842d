"""Trees of drafts in saccade.torch.flash_attn_with_kvcache."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, HEADS, KV_HEADS
from cached_sequences import DEPTH_V, Sequences, attend, drawn, lengths

import saccade
from saccade.torch import append_kvcache, flash_attn_with_kvcache

PARENTS = lengths(-1, 0, 0, 1, -1, 4, -1, 0, 1, 2, 3, 4).view(2, 6)  # the second tree is a chain
KINDS = ["contiguous", "pages", "int8"]


def ancestors(parents, token):
    path = [token]
    while parents[path[0]] >= 0:
        path.insert(0, int(parents[path[0]]))
    return path


def matrix(parents):
    return torch.tensor([[[j in ancestors(own, i) for j in range(len(own))] for i in range(len(own))] for own in parents])


def filled(kind):
    """Caches with 21 and 6 tokens, and the options of calls with them."""
    sequences, options = Sequences(1, 2), {}
    if kind == "pages":
        caches = [torch.zeros(12, 8, KV_HEADS, depth) for depth in (DEPTH, DEPTH_V)]
        options = {"page_table": lengths(7, 2, 9, 4, 0, 1, 3, 5).view(2, 4)}
    else:
        element = torch.int8 if kind == "int8" else torch.float32
        caches = [torch.zeros(2, 32, KV_HEADS, depth, dtype=element) for depth in (DEPTH, DEPTH_V)]
        if kind == "int8":
            options = {"k_scale": 0.03, "v_scale": 0.03}
    _, k, v = sequences.draw((21, 6))
    append_kvcache(k, v, *caches, sequences.length, seqlens_new=lengths(21, 6), **options)
    sequences.extend(k, v, (21, 6))
    return sequences, caches, options


@pytest.mark.parametrize("form", ["parents", "matrix"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_is_all_of_its_branches(kind, form):
    sequences, caches, options = filled(kind)
    q, k, v = sequences.draw((6, 6))
    before = [x.clone() for x in caches]
    tree = PARENTS if form == "parents" else matrix(PARENTS)
    out, lse = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, tree=tree, return_softmax_lse=True, **options)
    assert not torch.equal(out[0, 2:], flash_attn_with_kvcache(q, *[x.clone() for x in before], k, v, causal=True,
                                                               cache_seqlens=sequences.length, **options)[0, 2:])
    for token in range(6):
        for b in range(2):
            path = ancestors(PARENTS[b], token)
            own = {name: x[b : b + 1] if name == "page_table" else x for name, x in options.items()}
            copies = [x.clone() if kind == "pages" else x[b : b + 1].clone() for x in before]
            branch, branch_lse = flash_attn_with_kvcache(
                *(x[b : b + 1, path] for x in (q,)), *copies, k[b : b + 1, path], v[b : b + 1, path], causal=True,
                cache_seqlens=sequences.length[b : b + 1], return_softmax_lse=True, **own)
            torch.testing.assert_close(out[b, token], branch[0, -1], atol=1e-6, rtol=0)
            torch.testing.assert_close(lse[b, :, token], branch_lse[0, :, -1], atol=1e-6, rtol=0)


def test_drafts_of_different_numbers_equal_the_dense_mask():
    sequences, caches, _ = filled("contiguous")
    count, tree = (6, 3), matrix(PARENTS)
    q, k, v = sequences.draw(count)
    parents = PARENTS.clone()
    parents[1, 3:] = 99  # padding is not read
    out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, seqlens_new=lengths(*count), tree=parents)
    for b, n in enumerate(count):
        first = int(sequences.length[b])
        sees = torch.cat([torch.ones(n, first, dtype=torch.bool), tree[b, :n, :n]], 1)
        expected, _ = attend(q[b, :n], torch.cat([sequences.k[b], k[b, :n]]), torch.cat([sequences.v[b], v[b, :n]]), sees)
        torch.testing.assert_close(out[b, :n].double(), expected, atol=2e-6, rtol=0)
        assert (out[b, n:] == 0).all()


def test_one_tree_for_all_sequences_and_drafts_that_are_in_the_cache():
    sequences, caches, _ = filled("contiguous")
    q, k, v = sequences.draw((6, 6))
    options = {"cache_seqlens": sequences.length}
    out = flash_attn_with_kvcache(q, *caches, k, v, tree=PARENTS[0], **options)
    torch.testing.assert_close(out, flash_attn_with_kvcache(q, *caches, k, v, tree=PARENTS[:1].expand(2, 6), **options))
    torch.testing.assert_close(out, flash_attn_with_kvcache(q, *caches, k, v, tree=matrix(PARENTS)[0], **options))
    appended = flash_attn_with_kvcache(q, *caches, cache_seqlens=sequences.length + 6, tree=PARENTS[0].long())
    torch.testing.assert_close(out, appended)
    # The same mask by the library.
    bhsd = [x.transpose(1, 2) for x in (q, *caches)]
    mask = saccade.masks.tree(PARENTS[0], sequences.length)
    library = saccade.attention(*bhsd, mask=mask, kv_len=sequences.length + 6).transpose(1, 2)
    torch.testing.assert_close(out, library, atol=1e-6, rtol=0)


def test_accepted_drafts_replace_the_others():
    sequences, caches, _ = filled("contiguous")
    q, k, v = sequences.draw((6, 6))
    flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, tree=PARENTS)
    path, count = torch.tensor([[0, 1, 3], [0, 1, 1]]), (3, 2)
    accepted = [x.gather(1, path[..., None, None].expand(-1, -1, *x.shape[2:])) for x in (k, v)]
    append_kvcache(*accepted, *caches, sequences.length, seqlens_new=lengths(*count))
    sequences.extend(*accepted, count)
    q = drawn(sequences.random, 2, 1, HEADS, DEPTH)
    sequences.check(q, (1, 1), flash_attn_with_kvcache(q, *caches, cache_seqlens=sequences.length))


@pytest.mark.parametrize("form", ["parents", "matrix"])
def test_trees_are_operands_of_a_graph(form):
    def verify(q, k, v, k_cache, v_cache, at, tree):
        return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, tree=tree) * 2

    torch._dynamo.reset()
    compiled = torch.compile(verify, backend="aot_eager", fullgraph=True)
    sequences, caches, _ = filled("contiguous")
    with torch.no_grad():
        for parents in (PARENTS, PARENTS.flip(0)):
            q, k, v = sequences.draw((6, 6))
            tree = parents if form == "parents" else matrix(parents)
            copies = [x.clone() for x in caches]
            expected = verify(q, k, v, *copies, sequences.length, tree)
            torch.testing.assert_close(compiled(q, k, v, *caches, sequences.length, tree), expected)
            assert all(torch.equal(x, y) for x, y in zip(caches, copies))


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"tree": lengths(-1, 0, 2, 1, 1, 1)}, ValueError, "tree has parent 2 of token 2, expected -1 to 1, in sequence 0"),
    ({"tree": torch.cat([PARENTS[:1], lengths(-2, 0, 0, 0, 0, 0)[None]])}, ValueError,
     "tree has parent -2 of token 0, expected -1 to -1, in sequence 1"),
    ({"tree": PARENTS[:, :5]}, ValueError, "tree has shape (2, 5), expected (6,) or (2, 6) for parents of 6 tokens"),
    ({"tree": torch.ones(6, 5, dtype=torch.bool)}, ValueError, "tree has shape (6, 5), expected (6, 6) or (2, 6, 6) for a matrix"),
    ({"tree": torch.ones(6)}, TypeError, "tree has element type torch.float32, expected torch.bool for a matrix"),
    ({"tree": PARENTS, "ring": 0}, ValueError, "tree is given with ring, expected one of them"),
    ({"tree": PARENTS, "causal": True, "window_size": (3, 0)}, ValueError, "tree is given with window_size, expected one of them"),
], ids=str)
def test_trees_that_are_refused(options, error, message):
    sequences, caches, _ = filled("contiguous")
    before = [x.clone() for x in caches]
    q, k, v = sequences.draw((6, 6))
    with pytest.raises(error, match=re.escape(message)):
        flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=sequences.length, **options)
    assert all(torch.equal(x, y) for x, y in zip(caches, before))
