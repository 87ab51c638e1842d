"""Masks of Transformers by their structure: against the boolean masks of Transformers, and in use as tensors."""

import importlib
import itertools
import pathlib
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


# What code of models does with masks that are tensors, and what it has with "sdpa".
USES = {"eq": lambda x: x == 0, "ne": lambda x: x != 0, "xor": lambda x: x ^ True, "squeeze": lambda x: x[:, 0],
        "repeat": lambda x: x.repeat(1, 4, 1, 1).reshape(-1, 12, 12), "pad": lambda x: torch.nn.functional.pad(x, (0, 3), value=True),
        "cat": lambda x: torch.cat([x, x], dim=-1), "to": lambda x: x.to(torch.float32), "where": lambda x: torch.where(x, 0.0, -1.0),
        "flip": lambda x: x.flip(-1), "all": lambda x: x.all(-1), "list": lambda x: torch.stack(list(x)),
        "masked_fill": lambda x: torch.zeros(BATCH, 1, 12, 12).masked_fill(x, -1.0), "device": lambda x: torch.zeros(3, device=x.device),
        "expand": lambda x: x.expand(-1, 4, -1, -1), "new": lambda x: x.new_zeros(3)}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("use", USES)
def test_a_use_as_a_tensor_is_that_of_the_model_s_tensor(use, dtype):
    """Boolean with SDPA; additive for models without it."""
    if use == "xor" and dtype != torch.bool or use in ("where", "masked_fill") and dtype != torch.bool:
        pytest.skip("needs a boolean mask")
    mask = mask_of("window", config=config_of(dtype), allow_is_causal_skip=False)
    expected = torch.where(mask.dense(), 0.0, torch.finfo(dtype).min) if dtype != torch.bool else mask.dense()
    assert (mask.dtype, mask.shape) == (expected.dtype, expected.shape)
    assert torch.equal(USES[use](mask), USES[use](expected))


def config_of(dtype):
    """A configuration of models whose masks are boolean, or additive (without SDPA)."""
    for name in ("deepseek_v4", "gpt_oss", "llama"):  # the classes of a model that runs are imported
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    return (transformers.LlamaConfig if dtype == torch.bool else transformers.GptOssConfig)()


def test_a_mask_that_is_added_to_scores_is_additive():
    """Code that computes attention itself adds its mask, whatever the model has with "sdpa"."""
    mask, scores = mask_of("causal"), torch.zeros(BATCH, 1, 12, 12)
    expected = torch.where(mask.dense(), 0.0, torch.finfo(torch.float32).min)
    assert torch.equal(scores + mask, expected) and torch.equal(mask + scores, expected)
    assert torch.equal(torch.add(scores, mask), expected)


@pytest.mark.parametrize("change", [lambda x: x.__setitem__((..., 0), 0.0), lambda x: x[:, 0].fill_(0.0), lambda x: x.zero_()],
                         ids=["item", "view", "method"])  # fmt: skip
def test_attention_reads_what_code_writes_to_a_mask(change):
    config = config_of(torch.float32)
    mask = mask_of("window", config=config)
    change(mask)
    q = torch.randn(BATCH, 2, 12, 16)
    torch.testing.assert_close(_attention(q, mask), _attention(q, mask.tensor()))
    assert not torch.allclose(_attention(q, mask), _attention(q, mask_of("window", config=config)), atol=1e-3)


def _attention(q, mask, k=None):
    module = type("Module", (), {"is_causal": True})()
    k = q if k is None else k
    return saccade.transformers.attention_forward(module, q, k, k, mask)[0]


@pytest.mark.parametrize(("axis", "sizes"), [("keys", (12, 12, 15)), ("queries", (11, 12, 12)), ("keys", (12, 11, 12))])
def test_a_mask_of_other_lengths_than_the_call_is_refused(axis, sizes):
    """Keys that a layer appends without extending its mask were hidden silently; both numbers are named."""
    queries, mask_keys, keys = sizes
    mask = mask_of("causal", q=12, kv=mask_keys)
    q, k = torch.randn(BATCH, 2, queries, 16), torch.randn(BATCH, 2, keys, 16)
    found, expected = (12, queries) if axis == "queries" else (mask_keys, keys)
    with pytest.raises(ValueError, match=f"is for {found} {axis}, the call has {expected}"):
        _attention(q, mask, k)


def test_a_mask_of_other_batches_than_the_call_is_refused():
    with pytest.raises(ValueError, match="is for 2 batches, the call has 3"):
        _attention(torch.randn(3, 2, 12, 16), mask_of("causal"))


@pytest.mark.parametrize("name", ["causal", "chunks", "packed"])
def test_a_mask_of_one_batch_broadcasts(name):
    """As its tensor does; also where its function reads tables of batches."""
    mask = make_mask(1, 12, 12, 0, 0, FUNCTIONS[name])
    q = torch.randn(BATCH, 2, 12, 16)
    torch.testing.assert_close(_attention(q, mask), _attention(q, mask.dense()))


def test_a_mask_of_more_keys_than_the_call_is_cut():
    mask, q, k = mask_of("causal", kv=12, q=8), torch.randn(BATCH, 2, 8, 16), torch.randn(BATCH, 2, 9, 16)
    torch.testing.assert_close(_attention(q, mask, k), _attention(q, mask.dense()[..., :9], k))


def test_a_model_without_interface_gets_the_tensor_of_eager():
    """MPT, a family with ALiBi, computes attention itself, whatever it is built with."""
    config = transformers.MptConfig(vocab_size=100, d_model=64, n_layers=1, n_heads=4)
    results = []
    for implementation in ("eager", "saccade"):
        torch.manual_seed(0)
        model = transformers.MptModel._from_config(config, attn_implementation=implementation).eval()
        with torch.no_grad():
            results.append(model(torch.tensor([[1, 2, 3]])).last_hidden_state)
    assert torch.equal(*results)


def test_models_whose_code_asks_for_a_tensor_get_one():
    """Each modeling file of the installed Transformers: those that ask whether a mask is a tensor get no StructuredMask."""
    from saccade.transformers.code_of_models import ASKS_FOR_TENSOR, uses_of_mask

    folder = pathlib.Path(transformers.__file__).parent / "models"
    asking = [path for path in folder.glob("*/modeling_*.py") if ASKS_FOR_TENSOR.search(path.read_text())]
    assert {"deepseek_v4", "diffusion_gemma", "pix2struct", "ctrl"} <= {path.parent.name for path in asking}
    assert config_of(torch.float32) is not None
    assert uses_of_mask(transformers.DeepseekV4Config) == (False, False)
    assert uses_of_mask(transformers.GptOssConfig) == (False, True)
    assert uses_of_mask(transformers.LlamaConfig) == (True, True)
    assert uses_of_mask(transformers.FalconModel.config_class) == (False, False)  # it adds the mask unless it is called "sdpa"
    config = transformers.DeepseekV4Config()
    mask = mask_of("window", config=config)
    assert type(mask) is torch.Tensor and mask.dtype == torch.float32
    for path in asking:
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        models = [each for each in vars(module).values() if isinstance(each, type)
                  and issubclass(each, transformers.PreTrainedModel) and each.__module__ == module.__name__]  # fmt: skip
        configs = {each.config_class for each in models} - {None}
        assert configs and not any(uses_of_mask(each)[1] for each in configs if each.model_type), path


def test_a_configuration_whose_attributes_raise_is_not_read():
    """Configurations of layers that differ raise for attributes that have no value for the model as a whole."""
    class Config:
        def __getattr__(self, name):
            raise RuntimeError(name)

    assert type(mask_of("causal", config=Config())) is StructuredMask
