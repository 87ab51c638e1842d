"""Masks of Transformers by their structure: against the boolean masks of Transformers, and in use as tensors."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers import masking_utils as hf

import saccade
from saccade.transformers import StructuredMask, make_mask

BATCH = 2
IDS = torch.tensor([[-1, -1, 0, 0, 0, -1, 1, 1, -1, -1, -1, -1]] * BATCH)
FUNCTIONS = {
    "causal": hf.causal_mask_function,
    "bidirectional": hf.bidirectional_mask_function,
    "window": hf.sliding_window_causal_mask_function(4),
    "symmetric window": hf.sliding_window_bidirectional_mask_function(2),
    "chunks": hf.chunked_causal_mask_function(4, torch.tensor([0, 3])),
    "causal or block": hf.or_masks(hf.causal_mask_function, hf.blockwise_overlay(IDS)),
    "packed": hf.packed_sequence_compatibility_function(
        hf.causal_mask_function, torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]] * BATCH),
        torch.tensor([[0] * 4 + [1] * 3 + [2] * 5] * BATCH)),
}
# What becomes an option, without padding and offsets.
OPTIONS = {"causal": {"causal"}, "bidirectional": set(), "window": {"causal", "window"}, "symmetric window": {"window"},
           "chunks": {"causal", "mask"}, "causal or block": {"mask"}, "packed": {"mask"}}


def mask_of(name, *, q=12, kv=12, q_offset=0, kv_offset=0, padding=None, **flags):
    return make_mask(BATCH, q, kv, q_offset, kv_offset, FUNCTIONS[name], padding, **flags)


def attended(options, mask):
    """The boolean mask that `saccade.attention` applies with these options: values are a one-hot of their position."""
    q, k = torch.zeros(BATCH, 1, mask.q_length, 16), torch.zeros(BATCH, 1, mask.kv_length, 16)
    v = torch.eye(mask.kv_length, 16).expand(BATCH, 1, -1, -1)
    return saccade.attention(q, k, v, **options)[..., : mask.kv_length] > 0


def random_padding(rng, keys, kinds=("none", "full", "left", "right", "both", "any")):
    """None, or a mask with padding at one side, at both or anywhere; rows may be padding only."""
    kind = rng.choice(kinds)
    if kind == "none":
        return None
    padding = torch.ones(BATCH, keys, dtype=torch.bool)
    for row in padding:
        start, end = sorted(rng.randint(0, keys) for _ in range(2))
        if kind in ("left", "both"):
            row[:start] = False
        if kind in ("right", "both"):
            row[end:] = False
        if kind == "any":
            row &= torch.tensor([rng.random() < 0.6 for _ in range(keys)])
    return padding


# Few combinations of traced functions with padding and offsets, because each is another kernel.
@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_transformers(name):
    """Random offsets, lengths and padding; static caches have more keys than the padding mask."""
    assert mask_of(name).options(BATCH).keys() == OPTIONS[name]
    rng = random.Random(name)
    is_traced, has_offsets = "mask" in OPTIONS[name], name != "symmetric window"
    for trial in range(30):
        q, kv = rng.randint(1, 11), rng.randint(1, 11)
        q_offset, kv_offset = (rng.randint(1, 12 - q), rng.randint(0, 12 - kv)) if has_offsets and trial else (0, 0)
        missing = 0 if is_traced else rng.choice([0, 0, 3])
        padding = random_padding(rng, max(kv + kv_offset - missing, 1), *[("none", "left")] * is_traced)
        mask = mask_of(name, q=q, kv=kv, q_offset=q_offset, kv_offset=kv_offset, padding=padding)
        assert torch.equal(attended(mask.options(BATCH), mask), mask.dense()), (q, kv, q_offset, kv_offset, padding)


def test_symmetric_window_of_cache():
    """The window of `saccade.attention` counts from key i for query i, which is not so after keys of a cache."""
    mask = mask_of("symmetric window", q=4, q_offset=5)
    assert mask.options(BATCH).keys() == {"mask"}
    assert torch.equal(attended(mask.options(BATCH), mask), mask.dense())


def test_no_mask():
    """Nothing is passed on for a mask that lets every query attend to every key."""
    assert mask_of("bidirectional", allow_is_bidirectional_skip=True) is None
    full = torch.ones(BATCH, 12, dtype=torch.bool)
    assert mask_of("bidirectional", padding=full, allow_is_bidirectional_skip=True).options(BATCH) == {}
    assert mask_of("causal", padding=full).options(BATCH) == {"causal": 0}


def test_offset_of_static_cache():
    """The offset of a static cache advances in place after the mask is made."""
    offset = torch.tensor(3)
    mask = mask_of("causal", q=2, q_offset=offset)
    offset += 2
    assert mask.options(BATCH) == {"causal": 3}


def test_unknown_closure():
    """A function that is not Transformers' own is traced, whatever it is called."""
    def sliding_window_overlay(sliding_window):
        def inner_mask(b, h, q, kv):
            return kv != sliding_window
        return inner_mask

    mask = make_mask(BATCH, 12, 12, mask_function=hf.and_masks(sliding_window_overlay(3), hf.causal_mask_function))
    options = mask.options(BATCH)
    assert options.keys() == {"causal", "mask"}
    assert torch.equal(attended(options, mask), mask.dense())


def test_slices():
    """Slices of queries and keys stay structured; other parts are those of the tensor."""
    mask = mask_of("window", padding=random_padding(random.Random(1), 12), allow_is_causal_skip=False)
    every, positions = slice(None), [slice(None), slice(-3, None), slice(2, 5)]
    batches, heads = [every, slice(0, BATCH)], [every, slice(0, 1)]
    structured = [*itertools.product(batches, heads, positions, positions), (..., slice(None, 7)), (every,)]
    dense = [*itertools.product([slice(0, 1), 0], heads, positions, positions),
             *itertools.product(batches, [slice(0, 0), 0], positions, positions),
             *itertools.product(batches, heads, [slice(0, 12, 2), 3], positions), (slice(0, 1),), 0]
    for index in structured:
        part, expected = mask[index], mask.dense()[index]
        assert type(part) is StructuredMask and part.shape == expected.shape, index
        assert torch.equal(part.dense(), expected), index
        assert torch.equal(attended(part.options(BATCH), part), expected), index
    for index in dense:
        assert type(mask[index]) is torch.Tensor and torch.equal(mask[index], mask.dense()[index]), index


def test_as_tensor():
    """A model that asks for a tensor may use the mask as the boolean tensor that "sdpa" would have."""
    mask, dense = mask_of("causal", allow_is_causal_skip=False), mask_of("causal").dense()
    assert (mask.shape, mask.ndim, mask.dim(), mask.size(2), mask.dtype) == (dense.shape, 4, 4, 12, torch.bool)
    assert torch.equal(mask[:, 0], dense[:, 0])
    assert torch.equal(mask & ~dense, dense & ~dense)
    assert torch.equal(dense | mask, dense)
    assert torch.equal(~mask, ~dense)
    assert torch.equal(torch.cat([mask, dense], dim=-1), torch.cat([dense, dense], dim=-1))
    assert torch.equal(torch.where(mask, 0.0, 1.0), torch.where(dense, 0.0, 1.0))
    assert torch.equal(mask.logical_not(), ~dense)
    assert mask.contiguous() is mask and make_mask(BATCH, 12, 12, attention_mask=mask) is mask


@pytest.mark.parametrize("use", [lambda mask: torch.zeros(BATCH, 1, 12, 12) + mask, lambda mask: mask[:, 0],
                                 lambda mask: torch.zeros(BATCH, 1, 12, 12).masked_fill(mask, -1.0)])
def test_refused_as_tensor(use):
    """Models that compute attention themselves expect an additive mask."""
    with pytest.raises(TypeError, match=r'instead of calling Transformers\' AttentionInterface, expected attn_impl.*"eager"'):
        use(mask_of("causal"))
    with pytest.raises(TypeError, match=r"__add__|__radd__|add"):
        mask_of("causal", allow_is_causal_skip=False) + torch.zeros(())


def test_model_without_interface():
    """MPT, the family with ALiBi, computes attention itself."""
    config = transformers.MptConfig(vocab_size=100, d_model=64, n_layers=1, n_heads=4)
    model = transformers.MptModel._from_config(config, attn_implementation="saccade").eval()
    with pytest.raises(TypeError, match='expected attn_implementation="eager"'), torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
