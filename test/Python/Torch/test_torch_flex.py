"""`saccade.torch.flex_attention` takes, returns and refuses what PyTorch's function does. Agreement on the programs of
Inputs/flex_programs.py is shown by test/Fuzz/flex_calls.py."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.attention.flex_attention as pytorch
from flex_programs import BATCH, HEADS, LENGTH, PROGRAMS, Program, causal
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask

import saccade
import saccade.torch

ours = saccade.torch.flex_attention
generator = torch.Generator().manual_seed(2)
q, k, v = torch.randn(3, BATCH, HEADS, LENGTH, 16, generator=generator)


@pytest.fixture(autouse=True)
def without_dynamo(monkeypatch):
    """PyTorch's flex_attention evaluates its functions directly, as its warning about slow calls suggests for debugging."""
    monkeypatch.setattr(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def blocks(mask, queries=LENGTH, keys=LENGTH, batch=BATCH, heads=HEADS):
    return create_block_mask(mask, batch, heads, queries, keys, device="cpu", BLOCK_SIZE=8)


def close(found, expected, tolerance=1e-5):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.stride() == expected.stride()
    assert torch.equal(found == -torch.inf, expected == -torch.inf)
    assert (found - expected).nan_to_num().abs().max() <= tolerance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("program", [Program(), PROGRAMS["ALiBi, causal"]], ids=["plain", "ALiBi, causal"])
def test_types(dtype, program):
    tensors = [x.to(dtype) for x in (q, k, v)]
    arguments = dict(score_mod=program.score_mod, block_mask=program.mask_mod and blocks(program.mask_mod))
    expected, expected_lse = pytorch.flex_attention(*tensors, return_lse=True, **arguments)
    found, lse = ours(*tensors, return_lse=True, **arguments)
    close(found, expected, 8 * torch.finfo(dtype).eps)
    close(lse, expected_lse, 1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("queries", [1, 5, 60])
def test_other_lengths_strides_and_value_sizes(queries):
    x = torch.randn(BATCH, queries, HEADS, 16, generator=generator).transpose(1, 2)
    for value in (v, v[..., :5], v.transpose(1, 2).contiguous().transpose(1, 2)):
        for query in (x, x.contiguous(), x.transpose(2, 3).contiguous().transpose(2, 3)):
            arguments = dict(block_mask=blocks(causal, queries=queries))
            close(ours(query, k, value, **arguments), pytorch.flex_attention(query, k, value, **arguments))
    close(ours(x, k[:1], v[:1], block_mask=blocks(causal, queries=queries)),
          pytorch.flex_attention(x, k[:1], v[:1], block_mask=blocks(causal, queries=queries)))


def test_a_mask_function_needs_no_block_mask():
    assert torch.equal(ours(q, k, v, block_mask=causal), ours(q, k, v, block_mask=blocks(causal)))


def test_row_maxima():
    _, aux = ours(q, k, v, block_mask=blocks(causal), return_aux=AuxRequest(lse=True, max_scores=True))
    scores = (q @ k.transpose(2, 3) / 4).masked_fill(torch.ones(LENGTH, LENGTH).tril() == 0, -torch.inf)
    close(aux.max_scores, scores.amax(-1))
    close(aux.lse, scores.logsumexp(-1))
    only = ours(q, k, v, return_aux=AuxRequest(max_scores=True))[1]
    assert only.lse is None
    assert only.max_scores.shape == (BATCH, HEADS, LENGTH)


def test_a_block_mask_without_mask_mod_masks_by_its_blocks():
    for mask in (blocks(causal), blocks(lambda b, h, i, j: (i + h + b) // 8 >= j // 8), blocks(causal, batch=1, heads=1)):
        bare = BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks,
                                        mask.full_kv_indices, BLOCK_SIZE=8, seq_lengths=(LENGTH, LENGTH))
        dense = bare.to_dense().bool()
        dense = dense.repeat_interleave(8, 2).repeat_interleave(8, 3)[:, :, :LENGTH, :LENGTH]
        close(ours(q, k, v, block_mask=bare), saccade.torch.scaled_dot_product_attention(q, k, v, dense))


def test_new_lengths_and_tables_compile_nothing():
    def call(length):
        ids = torch.arange(length) // 5
        return ours(q[:, :, :length], k[:, :, :length], v[:, :, :length],
                    block_mask=blocks(lambda b, h, i, j: ids[i] == ids[j], length, length))

    call(7)
    before = saccade.cache_info().compilations
    for length in (8, 20, 36):
        call(length)
    assert saccade.cache_info().compilations == before


MISTAKES = {
    "three dimensions": lambda f: f(q[0], k[0], v[0]),
    "head sizes": lambda f: f(q, k[..., :8], v),
    "heads without enable_gqa": lambda f: f(q, k[:, :2], v[:, :2]),
    "heads that do not divide": lambda f: f(q, k[:, :3], v[:, :3], enable_gqa=True),
    "batches": lambda f: f(torch.cat([q, q]), k, v),
    "a block mask of shorter queries": lambda f: f(q, k, v, block_mask=blocks(causal, queries=8)),
    "a block mask of longer keys": lambda f: f(q, k, v, block_mask=blocks(causal, keys=64)),
    "a sliced block mask": lambda f: f(q[:, :, :8], k, v, block_mask=blocks(causal)[:, :, 0]),
    "both kinds of log-sum-exp": lambda f: f(q, k, v, return_lse=True, return_aux=AuxRequest(lse=True)),
    "an unknown backend": lambda f: f(q, k, v, kernel_options={"BACKEND": "NONE"}),
    "two kinds of options": lambda f: f(q, k, v, kernel_options={"BACKEND": "AUTO", "FORCE_USE_FLEX_ATTENTION": True}),
    "devices": lambda f: f(q, k.to("meta"), v),
    "a list": lambda f: f(q.tolist(), k, v),
    "an unknown argument": lambda f: f(q, k, v, mask_mod=causal),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_raise_what_pytorch_raises(name):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        MISTAKES[name](pytorch.flex_attention)
    with pytest.raises(type(expected.value)) as found:
        MISTAKES[name](ours)
    assert type(found.value) is type(expected.value)
    assert str(found.value) == str(expected.value) or name == "an unknown argument"


@pytest.mark.parametrize("name", ["heads without enable_gqa", "a block mask of shorter queries", "head sizes", "batches"])
def test_mistakes_in_training_are_those_of_inference(name, monkeypatch):
    """PyTorch refuses gradients on CPUs before it reports any other mistake."""
    with pytest.raises(Exception) as expected:  # noqa: PT011
        MISTAKES[name](pytorch.flex_attention)

    def trained(function):
        return lambda query, *others, **options: function(query.clone().requires_grad_(), *others, **options)

    def enabled(*arguments, **options):
        with saccade.torch.enabled():
            return pytorch.flex_attention(*arguments, **options)

    for function in (ours, enabled):
        with pytest.raises(type(expected.value)) as found:
            MISTAKES[name](trained(function))
        assert str(found.value) == str(expected.value)


def test_an_unknown_kernel_option_is_named():
    with pytest.raises(NotImplementedError, match="kernel_options has 'BLOCK_MM', did you mean 'BLOCK_M'"):
        ours(q, k, v, kernel_options={"BLOCK_MM": 32})


def test_functions_that_cannot_be_traced_are_named_with_their_line():
    with pytest.raises(saccade.TraceError, match=r"score function.*test_torch_flex\.py, line"):
        ours(q, k, v, score_mod=lambda score, b, h, i, j: score if i > j else -score)
    with pytest.raises(saccade.TraceError, match="mask function"):
        ours(q, k, v, block_mask=lambda b, h, i, j: i > j and j > 3)


def test_autocast_and_empty_tensors():
    with torch.autocast("cpu"):
        assert ours(q, k, v).dtype == torch.bfloat16
    assert ours(q[:, :, :0], k, v).shape == (BATCH, HEADS, 0, 16)
    output, lse = ours(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert not output.any()
    assert (lse == -torch.inf).all()


def test_a_row_of_the_least_number_has_equal_weights():
    least = torch.finfo(torch.float32).min
    score_mod = lambda s, b, h, i, j: torch.where((i == 1) | (j > i), least, s)
    query, key, value = torch.randn(3, 1, 2, 40, 16)
    found, aux = ours(query, key, value, score_mod, return_aux=AuxRequest(max_scores=True))
    close(found, pytorch.flex_attention(query, key, value, score_mod), 1e-5)
    torch.testing.assert_close(found[:, :, 1], value.mean(2))
    assert (aux.max_scores[:, :, 1] == least).all()
