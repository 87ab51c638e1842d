"""Calls of Saccade are spans of PyTorch's profiler, and cost nothing else without one."""

import pytest

torch = pytest.importorskip("torch")

import programs
import small_models
from torch.profiler import ProfilerActivity, profile

import saccade
import saccade.torch
import saccade.transformers  # registers the attention

q = torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(0))


def spans_of(call):
    """The number of spans of each name of Saccade."""
    with torch.no_grad():
        call()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            call()
    return {event.key: event.count for event in found.key_averages() if "saccade" in event.key}


def test_eager_calls_are_spans():
    assert spans_of(lambda: [saccade.attention(q, q, q) for _ in range(6)]) == {"saccade.attention": 6}
    assert spans_of(lambda: saccade.attention(*[q.numpy()] * 3)) == {"saccade.attention": 1}
    found = spans_of(lambda: saccade.torch.scaled_dot_product_attention(q, q, q))
    assert found == {"saccade.scaled_dot_product_attention": 1}
    assert spans_of(lambda: saccade.torch.flex_attention(q, q, q)) == {"saccade.flex_attention": 1}


def test_layers_of_a_model_are_spans():
    model = small_models.MODELS["bert"]()
    model.set_attn_implementation("saccade")
    found = spans_of(lambda: model(**small_models.inputs_of("bert", 1, 8)))
    assert list(found.values()) == [2], found


def test_compiled_programs_are_spans_of_their_names():
    function = saccade.compile(programs.capped).capped
    x = torch.randn(3, 16)
    assert spans_of(lambda: function(x, x, x, 3, 5.0, False)) == {"saccade.capped": 1}


def test_a_first_call_is_a_span_in_a_process_that_imports_torch_later(run_script):
    assert run_script("profiler_process.py").split() == ["1"]


def test_nothing_is_recorded_without_a_profiler(monkeypatch):
    monkeypatch.setattr(torch.autograd.profiler, "record_function", None)
    with torch.no_grad():
        saccade.attention(q, q, q)
    with pytest.raises(TypeError), profile(activities=[ProfilerActivity.CPU]):
        saccade.attention(q, q, q)
