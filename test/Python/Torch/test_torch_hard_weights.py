"""Hard attention that torch.compile(backend="saccade") raises: equal scores, rows without keys, types and derivatives."""

import pytest

torch = pytest.importorskip("torch")

import saccade
import saccade.torch.backend

pytestmark = pytest.mark.usefixtures("dynamo")


def hard(q, k, v, hidden=None, number=float("-inf")):
    scores = q @ k.mT
    if hidden is not None:
        scores = scores.masked_fill(hidden, number)
    one_hot = torch.zeros_like(scores).scatter(-1, scores.argmax(dim=-1, keepdim=True), 1.0)
    soft = scores.softmax(dim=-1)
    return (one_hot + soft - soft.detach()) @ v


def compiled(function=hard, **options):
    return torch.compile(function, backend="saccade", options={"inner": "aot_eager"}, **options)


def operands(queries, keys, dtype=torch.float32):
    torch.manual_seed(3)
    return [torch.randn(2, 3, tokens, 16, dtype=dtype) for tokens in (queries, keys, keys)]


@pytest.mark.parametrize("queries", [2, 40])
def test_the_first_of_equal_scores_counts_at_any_distance(queries):
    q, k, v = operands(queries, 1500)
    chosen = torch.randint(0, 7, (1500,))
    first = torch.tensor([int((chosen == n).nonzero()[0]) for n in range(7)])
    expected = v.gather(-2, first[(q @ k[..., :7, :].mT).argmax(-1)].unsqueeze(-1).expand(-1, -1, -1, 16))
    with saccade.served(require=True):
        found = compiled()(q, k[..., chosen, :], v)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("number", [-1e30, -torch.finfo(torch.float32).max])
def test_a_row_of_equal_numbers_has_the_first_key(number):
    q, k, v = operands(4, 9)
    hidden = (torch.arange(4) == 2)[:, None] | (torch.arange(9) < 3)
    found = compiled()(q, k, v, hidden, number)
    torch.testing.assert_close(found, hard(q, k, v, hidden, number))
    torch.testing.assert_close(found[..., 2, :], v[..., 0, :])


def test_a_row_without_keys_gives_0():
    q, k, v = (x.requires_grad_() for x in operands(4, 9))
    with saccade.served(require=True):
        found = compiled()(q, k, v, (torch.arange(4) == 2)[:, None])
    assert (found[..., 2, :] == 0).all()
    assert (found[..., [0, 1, 3], :] != 0).all()
    for gradient in torch.autograd.grad(found[..., 2, :].sum(), (q, k, v)):
        assert (gradient == 0).all()


def test_a_row_of_nan_is_nan():
    q, k, v = operands(4, 9)
    q[..., 1, 0] = float("nan")
    with saccade.served(require=True):
        found = compiled()(q, k, v)
    torch.testing.assert_close(found, hard(q, k, v), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_that_are_rounded_are_refused(dtype):
    def rounded(q, k, v):
        return hard(q.to(dtype), k.to(dtype), v.to(dtype))

    def rounded_between(q, k, v):
        scores = (q @ k.mT).to(dtype).float()
        one_hot = torch.zeros_like(scores).scatter(-1, scores.argmax(dim=-1, keepdim=True), 1.0)
        soft = scores.softmax(dim=-1)
        return (one_hot + soft - soft.detach()) @ v

    for function in (rounded, rounded_between):
        with saccade.served() as report:
            compiled(function)(*operands(4, 9))
        assert report.served == 0
        assert "float16" in str(report), str(report)


def test_lengths_are_dynamic():
    function = compiled(dynamic=True)
    with saccade.served(require=True):
        for queries, keys in ((5, 9), (7, 30)):
            q, k, v = (x.requires_grad_() for x in operands(queries, keys))
            found, expected = function(q, k, v), hard(q, k, v)
            torch.testing.assert_close(found, expected)
            for x, y in zip(*(torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (found, expected))):
                torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_second_derivatives_are_an_error():
    """Those of values depend on queries, although the values are those of single keys."""
    q, k, v = (x.requires_grad_() for x in operands(5, 9))
    found = torch.compile(hard, backend="saccade", options={"inner": "eager"})(q, k, v)
    (gradient,) = torch.autograd.grad(found.sum(), v, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(gradient.square().sum(), q)


def test_scores_are_not_kept():
    """The graph has no tensor of queries and keys, forward and backward."""
    seen = []

    def record(graph, inputs):
        seen.extend(node.meta["example_value"].shape for node in graph.graph.nodes
                    if isinstance(node.meta.get("example_value"), torch.Tensor))
        return graph

    torch._dynamo.register_backend(record, name="record_shapes")
    q, k, v = (x.requires_grad_() for x in operands(13, 29))
    torch.compile(hard, backend="saccade", options={"inner": "record_shapes"})(q, k, v)
    assert seen
    assert not [shape for shape in seen if shape[-2:] == (13, 29)]
