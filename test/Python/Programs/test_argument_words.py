"""Errors in the words of the caller: names of arguments and variables, and what to write instead."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade
import saccade.torch
from saccade.torch import append_kvcache, flash_attn_with_kvcache

q, k = torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)


@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
@pytest.mark.parametrize(("shape", "example"), [((1,), "off[0]"), ((2,), "off[b]"), ((2, 1, 3), "off[b, 0, i]")])
def test_the_example_of_reading_an_element_has_0_for_an_extent_of_1(convert, shape, example):
    off = convert(np.zeros(shape, np.int64))
    operands = [convert(x.numpy()) for x in (q, k, k)]
    refused(saccade.TraceError, ["all of 'off'", f"e.g. {example} ("], saccade.attention, *operands,
            mask=lambda b, h, i, j: j <= i + off)  # fmt: skip


@pytest.mark.parametrize("function", [
    lambda causal: saccade.linear_attention(q, k, k, causal=causal),
    lambda causal: saccade.performer(q, k, k, projection=torch.ones(4, 8), causal=causal),
])  # fmt: skip
def test_linear_attention_takes_or_refuses_every_word_of_causal(function):
    for word in ("top_left", "bottom_right", 0):
        assert torch.equal(function(word), function(True))
    assert torch.equal(function(None), function(False))
    refused(ValueError, ["causal is 1", "no offsets"], function, 1)
    refused(ValueError, ["causal is 'left'", '"top_left"'], function, "left")
    refused(TypeError, ["causal is 1.5"], function, 1.5)


@pytest.mark.parametrize("function", [flash_attn_with_kvcache, append_kvcache])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_a_cache_in_the_other_layout_names_the_option(function, layout):
    other = {"bshd": "bhsd", "bhsd": "bshd"}[layout]
    extents = {"b": 2, "s": 16, "h": 4, "d": 8}
    cache = torch.zeros([extents[dim] for dim in other])
    rows = torch.zeros([{**extents, "s": 1}[dim] for dim in layout])
    given = (rows, rows, cache, cache) if function is append_kvcache else (rows, cache, cache, rows, rows)
    refused(ValueError, ["k_cache has shape", f"16 heads in layout '{layout}'", f"give layout='{other}'"], function, *given,
            cache_seqlens=3, layout=layout)  # fmt: skip
