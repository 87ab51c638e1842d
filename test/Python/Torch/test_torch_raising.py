"""torch.compile(backend="saccade") raises attention that is written by hand, forward and backward."""

import copy

import pytest

torch = pytest.importorskip("torch")

import handwritten
import handwritten_hard
import handwritten_writes

import saccade
import saccade.torch.backend

pytestmark = pytest.mark.usefixtures("dynamo")

RAISED, NOT_RAISED = ([kind for module in (handwritten, handwritten_writes, handwritten_hard)
                       for kind in getattr(module, name)] for name in ("RAISED", "NOT_RAISED"))


def module_of(kind):
    torch.manual_seed(0)
    return kind().eval()


def run(module, x, function=None):
    """The output, and the gradients of the input and the parameters."""
    x = x.clone().requires_grad_()
    y = (module if function is None else function)(x)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
    return [y.detach(), x.grad, *[p.grad for p in module.parameters()]]


def compare(kind, dtype=torch.float32):
    """The report of a module that is compared with itself in float64, forward and backward."""
    module = module_of(kind)
    x = torch.randn(*kind.shape)
    expected = run(copy.deepcopy(module).double(), x.double())
    module = module.to(dtype)
    compiled = torch.compile(module, backend="saccade", fullgraph=True, options={"inner": "aot_eager"})
    with saccade.served() as report:
        found = run(module, x.to(dtype), compiled)
    for actual, right in zip(found, expected):
        torch.testing.assert_close(actual.double(), right, rtol=2e-4, atol=2e-5)
    return report


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_attention_by_hand_is_raised(kind):
    report = compare(kind)
    assert (report.served, report.not_served) == (1, 0), str(report)


@pytest.mark.parametrize("kind", NOT_RAISED, ids=lambda kind: kind.__name__)
def test_near_misses_are_computed_as_they_are(kind):
    report = compare(kind)
    assert report.served == 0, str(report)


@pytest.mark.parametrize("normalizer", [lambda s: s.softmax(-1), torch.sigmoid], ids=["softmax", "sigmoid"])
def test_lengths_are_dynamic(normalizer):
    function = torch.compile(lambda q, k, v: normalizer(q @ k.mT) @ v, backend="saccade", options={"inner": "aot_eager"})
    torch.manual_seed(0)
    with saccade.served(require=True) as report:
        for queries, keys in ((5, 9), (7, 30), (11, 9)):
            q, k, v = (torch.randn(2, 3, tokens, 16).requires_grad_() for tokens in (queries, keys, keys))
            outputs = function(q, k, v), normalizer(q @ k.mT) @ v
            for x, y in zip(*[(out, *torch.autograd.grad(out.square().sum(), (q, k, v))) for out in outputs]):
                torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
    assert report.served == 3


def test_an_axis_of_scores_that_is_dynamic_is_not_followed():
    def attend(q, k, v, axis):
        return (q @ k.mT).transpose(axis, -1).softmax(-2).transpose(axis, -1) @ v

    q, k, v = (torch.randn(2, 3, tokens, 16) for tokens in (5, 9, 9))
    function = torch.compile(attend, backend="saccade", dynamic=True, options={"inner": "aot_eager"})
    with saccade.served() as report:
        torch.testing.assert_close(function(q, k, v, -2), attend(q, k, v, -2))
    assert "weights are changed by 'transpose'" in str(report)
