"""Lists of a BlockMask that differ from its mask_mod hide and show what PyTorch's compiled kernels hide and show."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.attention.flex_attention as pytorch
import torch.nn.functional as F
from dense_lists import dense_lists
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask, flex_attention

import saccade
import saccade.torch
from saccade.torch import block_lists
from saccade.torch.backend import has_compiler
from saccade.torch.backend import saccade as backend

# PyTorch compiles blocks of 8 keys to wrong code on processors with AVX2 only.
BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 70, 90, (8, 16)
generator = torch.Generator().manual_seed(4)
q = torch.randn(BATCH, HEADS, QUERIES, 16, generator=generator)
k, v = torch.randn(2, BATCH, 2, KEYS, 16, generator=generator)
documents = torch.arange(KEYS) // 25

pytestmark = pytest.mark.usefixtures("dynamo")


def causal(b, h, i, j):
    return i >= j


def document(b, h, i, j):
    return (documents[i] == documents[j]) & (i >= j - 9)


def by_head(b, h, i, j):
    return (i + 7 * h >= j) & (j > i - 40)


def by_batch(b, h, i, j):
    return i + 30 * b >= j


def create(mask=document, batch=None, heads=None, **options):
    return create_block_mask(mask, batch, heads, QUERIES, KEYS, device="cpu", BLOCK_SIZE=SIZE, **options)


def shortened(mask):
    """A window is cut: each row has two partial and one full block at most."""
    mask.kv_num_blocks = mask.kv_num_blocks.clamp(max=2)
    mask.full_kv_num_blocks = mask.full_kv_num_blocks.clamp(max=1)
    return mask


def overwritten(mask):
    mask.kv_num_blocks.clamp_(max=2)
    return mask


def from_blocks(mask, **options):
    return BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices,
                                    BLOCK_SIZE=SIZE, seq_lengths=(QUERIES, KEYS), **options)


def reversed_lists(mask):
    """The lists in the other order, with other numbers after their ends."""
    for counts, indices in ((mask.kv_num_blocks, mask.kv_indices), (mask.full_kv_num_blocks, mask.full_kv_indices)):
        for row, count in enumerate(counts.flatten().tolist()):
            line = indices.view(-1, indices.shape[-1])[row]
            line[:count] = line[:count].flip(0).clone()
    return overwritten(mask)


def with_mask(mask, function):
    mask.mask_mod = function
    return mask


def one_block_of_rows():
    whole = create(causal)
    sliced = whole[:, :, 2]
    sliced.mask_mod = lambda b, h, i, j: i + 2 * SIZE[0] >= j
    sliced.seq_lengths = (SIZE[0], KEYS)
    return sliced


MASKS = {
    "as created": create,
    "shortened": lambda: shortened(create()),
    "shortened in place": lambda: overwritten(create()),
    "of heads": lambda: shortened(create(by_head, None, HEADS)),
    "of batches and heads": lambda: shortened(create(and_masks(by_head, by_batch), BATCH, HEADS)),
    "of two heads for four": lambda: create(by_head, None, 2),
    "of one head for a mask of heads": lambda: create(by_head),
    "of one batch for a mask of batches": lambda: create(by_batch),
    "without full blocks": lambda: overwritten(create(separate_full_blocks=False)),
    "full blocks dropped": lambda: BlockMask.from_kv_blocks(
        (m := create()).kv_num_blocks, m.kv_indices, BLOCK_SIZE=SIZE, mask_mod=document, seq_lengths=(QUERIES, KEYS)),
    "of blocks alone": lambda: from_blocks(create()),
    "of blocks and their mask": lambda: from_blocks(create(), mask_mod=document),
    "of blocks and another mask": lambda: from_blocks(create(), mask_mod=causal),
    "another mask": lambda: with_mask(create(), causal),
    "a narrower mask": lambda: with_mask(create(), and_masks(document, lambda b, h, i, j: j % 3 > 0)),
    "not sorted": lambda: reversed_lists(create()),
    "adjusted": lambda: create_block_mask(causal, None, None, 200, 200, device="cpu", BLOCK_SIZE=SIZE)._adjust(QUERIES, KEYS),
    "sliced heads": lambda: with_mask(create(by_head, None, HEADS)[:, 1:3], by_head),
}


def exact(mask, *tensors):
    shown = dense_lists(mask, BATCH, HEADS)
    return F.scaled_dot_product_attention(*[x.double() for x in tensors], shown, enable_gqa=True)


def ours(mask):
    return lambda q, k, v: saccade.torch.flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


def theirs(mask):
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


def eager_inner(graph, inputs):
    return backend(graph, inputs, options={"inner": "eager"})


@pytest.mark.parametrize("name", MASKS)
def test_lists_hide_what_they_hide_in_every_route(name):
    mask = MASKS[name]()
    with torch.no_grad():
        expected = exact(mask, q, k, v)
        found = {"direct": ours(mask)(q, k, v),
                 "direct, traced": torch.compile(ours(mask), backend="eager", fullgraph=True)(q, k, v),
                 "backend": torch.compile(theirs(mask), backend=eager_inner, fullgraph=True)(q, k, v)}
        with saccade.torch.enabled():
            found["enabled"] = theirs(mask)(q, k, v)
    for route, output in found.items():
        assert (output - expected).abs().max() < 1e-5, route


@pytest.mark.skipif(not has_compiler([]), reason="PyTorch compiles flex_attention with a C++ compiler")
@pytest.mark.parametrize("name", ["as created", "of two heads for four", "of blocks and another mask"])
def test_compiled_pytorch_reads_the_lists_and_eager_pytorch_does_not(name, monkeypatch):
    mask = MASKS[name]()
    monkeypatch.setattr(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with torch.no_grad():
        found = ours(mask)(q, k, v)
        compiled = torch.compile(theirs(mask), backend="inductor")(q, k, v)
        eager = theirs(mask)(q, k, v)
    assert (found - compiled).abs().max() < 1e-5
    assert ((found - eager).abs().max() < 1e-5) == (name == "as created")


@pytest.mark.parametrize("name", ["as created", "shortened in place", "of two heads for four", "of blocks alone"])
def test_gradients_are_those_of_the_lists(name):
    mask = MASKS[name]()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    exact(mask, *leaves).square().sum().backward()
    expected = [x.grad for x in leaves]
    routes = {"direct": ours(mask), "direct, traced": torch.compile(ours(mask), backend="aot_eager")}
    for route, call in routes.items():
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        call(*leaves).square().sum().backward()
        for x, gradient in zip(leaves, expected):
            assert (x.grad - gradient).abs().max() < 1e-4, route


def test_lists_that_were_created_are_not_read():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mask = create()
        assert block_lists.follows_mask(mask, BATCH, HEADS)
        assert block_lists.follows_mask(create(by_head, None, HEADS), BATCH, HEADS)
        assert not block_lists.follows_mask(create(by_head), BATCH, HEADS)
    with torch.inference_mode():
        mask = create()
        assert block_lists.follows_mask(mask, BATCH, HEADS)
        mask.kv_num_blocks.clamp_(max=2)
        assert not block_lists.follows_mask(mask, BATCH, HEADS)


def test_a_mask_that_changes_after_its_lists_were_made_keeps_its_lists():
    ids, window = torch.arange(KEYS) // 25, 30

    def mask_mod(b, h, i, j):
        return (ids[i] == ids[j]) & (i - j < window)

    mask = create(mask_mod)
    before = dense_lists(mask, BATCH, HEADS)
    assert block_lists.follows_mask(mask, BATCH, HEADS)
    ids.zero_()
    assert not block_lists.follows_mask(mask, BATCH, HEADS)
    assert (dense_lists(mask, BATCH, HEADS) != before).any()
    assert (ours(mask)(q, k, v) - exact(mask, q, k, v)).abs().max() < 1e-5
    mask = create(mask_mod)
    window = 50
    assert not block_lists.follows_mask(mask, BATCH, HEADS)
    assert (ours(mask)(q, k, v) - exact(mask, q, k, v)).abs().max() < 1e-5


@pytest.mark.parametrize("inner", ["eager", pytest.param("inductor", marks=pytest.mark.skipif(
    not has_compiler([]), reason="no C++ compiler"))])
def test_a_compiled_call_follows_lists_that_change_later(inner):
    call = torch.compile(lambda q, k, v, mask: theirs(mask)(q, k, v), backend=lambda graph, inputs: backend(
        graph, inputs, options={"inner": inner}))
    mask = create()
    with torch.no_grad():
        for change in (lambda x: x, overwritten, lambda x: create(), shortened, lambda x: create()):
            mask = change(mask)
            assert (call(q, k, v, mask) - exact(mask, q, k, v)).abs().max() < 1e-5


@pytest.mark.parametrize("is_cut", [False, True])
def test_lists_that_a_graph_creates_are_read_if_it_changes_them(is_cut, monkeypatch):
    from saccade.torch import listed_graphs

    found = []
    known = listed_graphs.is_created_in
    monkeypatch.setattr(listed_graphs, "is_created_in", lambda *x: found.append(known(*x)) or found[-1])

    def call(q, k, v):
        mask = create()
        return theirs(shortened(mask) if is_cut else mask)(q, k, v)

    with torch.no_grad():
        output = torch.compile(call, backend=eager_inner, fullgraph=True)(q, k, v)
    assert found == [not is_cut]
    mask = create()
    assert (output - exact(shortened(mask) if is_cut else mask, q, k, v)).abs().max() < 1e-5


def test_a_slice_of_a_mask_has_its_rows():
    mask = one_block_of_rows()
    some = q[:, :, 2 * SIZE[0]: 3 * SIZE[0]]
    output = ours(mask)(some, k, v)
    assert (output - exact(mask, some, k, v)).abs().max() < 1e-5


def test_lists_with_too_few_rows_are_refused_with_their_number():
    whole = create()
    short = BlockMask.from_kv_blocks(whole.kv_num_blocks[..., :2], whole.kv_indices[..., :2, :], BLOCK_SIZE=SIZE,
                                     mask_mod=document, seq_lengths=(QUERIES, KEYS))
    with pytest.raises(NotImplementedError, match=f"2 rows of blocks of {SIZE[0]}, query has 70 rows"):
        ours(short)(q, k, v)
