"""Exported modules that update their arguments in place."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, KV_HEADS, CacheLayer

import saccade
import saccade.torch
from saccade.torch import append_kvcache, flash_attn_with_kvcache

DYNAMIC = torch.export.Dim.DYNAMIC
ANY_CACHE = {0: DYNAMIC, 1: DYNAMIC}


class Layer(CacheLayer):
    """Attention with its caches as arguments."""

    def forward(self, x, k_cache, v_cache, at, page_table=None):
        q, k, v = self.projected(x)
        results = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, causal=True, page_table=page_table,
                                          **self.options)
        out = results[0] if isinstance(results, tuple) else results
        return {"out": out.flatten(2) + 1, "rest": results[1:] if isinstance(results, tuple) else None}


def compare(layer, arguments, shapes, calls):
    """Calls of the compiled module, each with arguments in place of some of `arguments`, update the same memory as those of the
    module itself."""
    with torch.no_grad():
        compiled = saccade.torch.compile(layer, arguments, dynamic_shapes=shapes)
        own, expected_own = ([x.clone() for x in arguments] for _ in range(2))
        for call in calls:
            for i, x in call.items():
                own[i] = expected_own[i] = x
            found, expected = compiled(*own), layer(*expected_own)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(own, expected_own)
        assert any(not torch.equal(x, y) for x, y in zip(own[1:3], arguments[1:3]))


@pytest.mark.parametrize("options", [{}, {"return_softmax_lse": True}, {"window_size": (3, 0)}, {"softmax_scale": 0.3}],
                         ids=str)
def test_caches_are_updated_in_place(options):
    arguments = torch.randn(2, 3, 32), *torch.zeros(2, 2, 40, KV_HEADS, DEPTH), torch.zeros(2, dtype=torch.int32)
    shapes = {0: DYNAMIC, 1: DYNAMIC}, ANY_CACHE, ANY_CACHE, {0: DYNAMIC}
    calls = [{0: torch.randn(2, n, 32), 3: torch.tensor([at, at + 1], dtype=torch.int32)}
             for n, at in ((3, 0), (2, 3), (7, 5))]
    compare(Layer(**options), arguments, shapes, calls)


def test_pages_are_updated_in_place():
    arguments = (torch.randn(2, 3, 32), *torch.zeros(2, 10, 8, KV_HEADS, DEPTH), torch.zeros(2, dtype=torch.int64),
                 torch.arange(8).view(2, 4))
    shapes = {0: DYNAMIC, 1: DYNAMIC}, ANY_CACHE, ANY_CACHE, {0: DYNAMIC}, {0: DYNAMIC, 1: DYNAMIC}
    calls = [{0: torch.randn(2, n, 32), 3: torch.tensor([at, at + 9])} for n, at in ((3, 0), (2, 3), (7, 5))]
    compare(Layer(), arguments, shapes, calls)


@pytest.mark.parametrize("element", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("blocks", [(), (2,)], ids=["positions", "blocks"])
@pytest.mark.parametrize("is_paged", [False, True])
def test_quantized_caches_and_their_scales_are_updated_in_place(element, blocks, is_paged):
    class Quantized(CacheLayer):
        def forward(self, x, k_cache, v_cache, k_scale, v_scale, at, page_table=None):
            q, k, v = self.projected(x)
            out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=at, causal=True, k_scale=k_scale, v_scale=v_scale,
                                          page_table=page_table)
            return out.flatten(2) + 1

    shape = (10, 8) if is_paged else (2, 40)
    arguments = (torch.randn(2, 3, 32), *(torch.zeros(*shape, KV_HEADS, DEPTH, dtype=element) for _ in "kv"),
                 *torch.ones(2, *shape, KV_HEADS, *blocks), torch.zeros(2, dtype=torch.int32),
                 *([torch.arange(8, dtype=torch.int32).view(2, 4)] if is_paged else []))
    shapes = ({0: DYNAMIC, 1: DYNAMIC}, *[ANY_CACHE] * 4, {0: DYNAMIC}, *([{0: DYNAMIC, 1: DYNAMIC}] if is_paged else []))
    layer = Quantized()
    with torch.no_grad():
        compiled = saccade.torch.compile(layer, arguments, dynamic_shapes=shapes)
        own, expected_own = ([x.clone() for x in arguments] for _ in range(2))
        for n, at in ((3, 0), (2, 3), (7, 5)):
            own[0] = expected_own[0] = torch.randn(2, n, 32)
            own[5] = expected_own[5] = torch.tensor([at, at + 1], dtype=torch.int32)
            torch.testing.assert_close(compiled(*own), layer(*expected_own), atol=2e-2, rtol=0)
            for x, y in zip(own[3:5], expected_own[3:5]):
                torch.testing.assert_close(x, y)
            for x, y in zip(own[1:3], expected_own[1:3]):  # the compiled projection may round to the next number
                x, y = x.float(), y.float()
                assert x.any() and ((x != y).float().mean() < 0.02)


def test_an_append_alone():
    class Append(torch.nn.Module):
        def forward(self, k, k_cache, v_cache, at):
            append_kvcache(k, 2 * k, k_cache, v_cache, at)
            return k + 1

    arguments = torch.randn(2, 3, KV_HEADS, DEPTH), *torch.zeros(2, 2, 40, KV_HEADS, DEPTH), torch.zeros(2, dtype=torch.int32)
    calls = [{0: torch.randn(2, 3, KV_HEADS, DEPTH), 3: torch.tensor([at, at + 1], dtype=torch.int32)} for at in (0, 9)]
    compare(Append(), arguments, None, calls)


def test_results_of_a_layout_of_the_operator():
    class Attend(torch.nn.Module):
        def forward(self, q):
            return saccade.attention(q, q, q, layout="bshd", return_lse=True)

    q = torch.randn(2, 5, 3, 16)
    torch.testing.assert_close(saccade.torch.compile(Attend(), (q,))(q), Attend()(q))


def test_arguments_that_are_updated_by_other_operators():
    class Count(torch.nn.Module):
        def forward(self, x, total, last):
            total.add_(x)
            last.copy_(x)
            return total * 2

    compare(Count(), (torch.ones(3), torch.zeros(3), torch.zeros(3)), None, [{0: torch.tensor([1.0, 2, 3])}] * 2)


def test_the_program_says_what_is_updated_and_checks_lengths():
    layer = Layer()
    arguments = torch.randn(2, 3, 32), *torch.zeros(2, 2, 4, KV_HEADS, DEPTH), torch.zeros(2, dtype=torch.int32)
    compiled = saccade.torch.compile(layer, arguments)
    assert re.findall(r"(%\w+_cache): \S+ \{attn.updated_by = (\d)\}", compiled.program.text) == [("%k_cache", "0"), ("%v_cache", "1")]
    compiled(*arguments)
    before = [x.clone() for x in arguments]
    arguments[3].add_(2)
    with pytest.raises(ValueError, match="cache is full: end of the new rows: found 5, expected at most 4, in sequence 0"):
        compiled(*arguments)
    assert all(torch.equal(x, y) for x, y in zip(arguments[1:3], before[1:3]))


def test_what_cannot_be_updated_is_refused():
    class Views(torch.nn.Module):
        def forward(self, k, caches, at):
            append_kvcache(k, k, caches[0], caches[1], at)
            return k + 1

    class Buffer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(100))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    k, at = torch.randn(2, 3, KV_HEADS, DEPTH), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(saccade.torch.ExportError, match=r"it writes to a view \('caches'\), expected a tensor that is no view"):
        saccade.torch.compile(Views(), (k, torch.zeros(2, 2, 40, KV_HEADS, DEPTH), at))
    with pytest.raises(saccade.torch.ExportError, match="the module mutates 'count', which is not supported: pass it as an"):
        saccade.torch.compile(Buffer(), (torch.zeros(100),))
    layers, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)), torch.randn(3, 4)
    with pytest.raises(saccade.torch.ExportError, match=r"mutates '1.running_mean', .*: call eval\(\) on the module"):
        saccade.torch.compile(layers, (x,))
    assert torch.allclose(saccade.torch.compile(layers.eval(), (x,))(x), layers(x), atol=1e-6)
