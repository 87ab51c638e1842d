"""Compiled functions are opaque to what looks into programs of PyTorch: torch.compile compiles around them, and
torch.jit.trace is refused.
"""

import warnings

import pytest

torch = pytest.importorskip("torch")

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


CASES = {"attention": (plain, "saccade.attention"), "attention with a score": (scored, "saccade.attention"),
         "call": (Layer(), "saccade.Function.__call__"), "into": (into, "saccade.Function.into")}  # fmt: skip
TRACED = {
    "attention": (plain, ["q is traced by torch.jit.trace", "outside"]),
    "attention with a score": (scored, ["q is traced by torch.jit.trace", "outside"]),
    "module": (Layer(), ["attend is called in what torch.jit.trace traces"]),
    "out": (lambda q, k, v: attend(q, k, v, out=torch.empty_like(q)),
            ["attend is called in what torch.jit.trace traces"]),
}


@pytest.fixture(autouse=True)
def dynamo():
    """torch.compile knows nothing of other tests."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("function", "name"), CASES.values(), ids=CASES)
def test_torch_compile_compiles_around_a_call_without_a_warning(function, name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(function, backend="eager")(q, k, v)
    assert not caught, [str(warning.message) for warning in caught]
    assert torch.equal(found, function(q, k, v))


@pytest.mark.parametrize(("function", "name"), CASES.values(), ids=CASES)
def test_one_graph_of_a_call_is_refused(function, name):
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    refused(torch._dynamo.exc.Unsupported, [f"{name} is opaque: it calls compiled code"], compiled, q, k, v)


def test_graphs_end_before_the_call_and_continue_behind_it():
    graphs = []

    def record(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch.compile(scored, backend=record)(q, k, v)
    assert len(graphs) == 2, graphs  # no frame of ours is in one


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("function", "words"), TRACED.values(), ids=TRACED)
def test_jit_trace_is_refused(function, words):
    # It would record nothing of a call, whether the kernel is compiled already or not.
    refused(TypeError, words, torch.jit.trace, function, (q, k, v))


def test_torch_may_be_imported_after_saccade(run_script):
    run_script("torch_after_saccade_process.py")
