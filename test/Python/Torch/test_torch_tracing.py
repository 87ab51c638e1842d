"""What looks into programs of PyTorch: torch.compile makes an operator of saccade.attention and compiles around other
calls of compiled functions; torch.jit.trace is refused."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import numpy as np
import programs
from programs import refused

import saccade

q, k, v = torch.randn(1, 2, 7, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16)
slopes = torch.tensor([0.5, 0.25])
attend = saccade.compile(programs.attention()).attend


class Layer(torch.nn.Module):
    """A module that holds a compiled function."""

    def __init__(self):
        super().__init__()
        self.attend = attend

    def forward(self, q, k, v):
        return self.attend(q * 2, k, v) + 1


def plain(q, k, v):
    return saccade.attention(q * 2, k, v) + 1


def scored(q, k, v):
    return saccade.attention(q * 2, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i)) + 1


def into(q, k, v):
    out = torch.empty_like(q)
    attend.into(q * 2, k, v, out)
    return out + 1


def counted(q, k, v):
    return q * 2 + saccade.num_threads()


def on_a_stream(q, k, v):
    return saccade.attention(q, k, v, stream=0)


OPAQUE = {"call": (Layer(), "saccade.Function.__call__"), "into": (into, "saccade.Function.into"),
          "num_threads": (counted, "saccade.num_threads")}  # fmt: skip
TRACED = {
    "attention": (plain, ["q is traced by torch.jit.trace", "outside"]),
    "attention with a score": (scored, ["q is traced by torch.jit.trace", "outside"]),
    "module": (Layer(), ["attend is called in what torch.jit.trace traces"]),
    "out": (lambda q, k, v: attend(q, k, v, out=torch.empty_like(q)),
            ["attend is called in what torch.jit.trace traces"]),
}

pytestmark = pytest.mark.usefixtures("dynamo")


@pytest.mark.parametrize(("function", "name"), OPAQUE.values(), ids=OPAQUE)
def test_torch_compile_compiles_around_a_call_without_a_warning(function, name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(function, backend="eager")(q, k, v)
    assert not caught, [str(warning.message) for warning in caught]
    assert torch.equal(found, function(q, k, v))


@pytest.mark.parametrize(("function", "name"), OPAQUE.values(), ids=OPAQUE)
def test_one_graph_of_an_opaque_call_is_refused(function, name):
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    refused(torch._dynamo.exc.Unsupported, [f"{name} is opaque: it calls compiled code"], compiled, q, k, v)


def test_numpy_arrays_are_computed_outside_of_the_graph():
    arrays = [x.numpy() for x in (q, k, v)]
    found = torch.compile(lambda *arrays: saccade.attention(*arrays), backend="eager")(*arrays)
    np.testing.assert_array_equal(found, saccade.attention(*arrays))


def test_a_stream_for_the_cpu_is_the_error_of_the_eager_call():
    refused(TypeError, ["stream", "q is not on a GPU"], torch.compile(on_a_stream, backend="eager"), q, k, v)


@pytest.mark.parametrize("function", [plain, scored])
def test_attention_is_one_operator_in_one_graph(function):
    graphs = []

    def record(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(function, backend=record, fullgraph=True)(q, k, v)
    assert not caught, [str(warning.message) for warning in caught]
    assert torch.equal(found, function(q, k, v))
    assert sum("saccade.attention" in str(node.target) for node in graphs[0].graph.nodes) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("function", "words"), TRACED.values(), ids=TRACED)
def test_jit_trace_is_refused(function, words):
    # It would record nothing of a call, whether the kernel is compiled already or not.
    refused(TypeError, words, torch.jit.trace, function, (q, k, v))


def test_torch_may_be_imported_after_saccade(run_script):
    run_script("torch_after_saccade_process.py")
