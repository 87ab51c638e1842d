"""saccade.attention(reproducible="stream"): equal bits for a query in any call that has it."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import saccade

LENGTH = 700
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
FORMS = {
    "f32": {},
    "bf16": {"dtype": torch.bfloat16},
    "f16": {"dtype": torch.float16, "heads": (4, 1)},
    "f64": {"dtype": torch.float64, "depth": (9, 5)},
    "window": {"window": 77},
    "window and sink": {"window": 77, "sink": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "score": {"score": lambda s, b, h, i, j: s + SLOPES[h] * j.to(torch.float32) * 0.01},
    "mask": {"mask": lambda b, h, i, j: (j % 3 > 0) | (j < 5)},
    "weight": {"weight": lambda p, b, h, i, j: p * (j % 2)},
    "sigmoid": {"normalizer": "sigmoid"},
    "heads of a position are adjacent": {"layout": "bshd", "window": 300},
    "statistics": {"stats": ("entropy",)},
}


def make(dtype=torch.float32, heads=(4, 2), depth=(32, 32), layout="bhsd", **options):
    """q, k, v of two sequences, the axis of the length, and options of the call."""
    generator = torch.Generator().manual_seed(5)

    def normal(heads, depth):
        size = {"b": 2, "h": heads, "s": LENGTH, "d": depth}
        return torch.randn([size[dim] for dim in layout], generator=generator, dtype=torch.float64).to(dtype)

    tensors = normal(heads[0], depth[0]), normal(heads[1], depth[0]), normal(heads[1], depth[1])
    return *tensors, layout.index("s"), {"causal": "bottom_right", "layout": layout, **options}


def results(found):
    return [x for x in (found if isinstance(found, tuple) else [found]) if isinstance(x, torch.Tensor)]


def pieces(q, k, v, axis, options, cuts, reproducible="stream"):
    """The output of a text that is cut into calls."""
    found = []
    for begin, end in zip([0, *cuts], [*cuts, LENGTH]):
        part = q.narrow(axis, begin, end - begin)
        keys, values = (x.narrow(axis, 0, end) for x in (k, v))
        found.append(results(saccade.attention(part, keys, values, reproducible=reproducible, **options))[0])
    return torch.cat(found, dim=axis)


@pytest.mark.parametrize("form", FORMS)
def test_bits_do_not_depend_on_calls(form):
    q, k, v, axis, options = make(**FORMS[form])
    expected = pieces(q, k, v, axis, options, [])
    rng = random.Random(form)
    for cuts in ([LENGTH - 1], range(650, LENGTH), sorted(rng.sample(range(1, LENGTH), 4))):
        found = pieces(q, k, v, axis, options, cuts)
        assert torch.equal(found, expected), (list(cuts)[:5], (found != expected).sum())
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(q.dtype, 5e-5)
    torch.testing.assert_close(expected, pieces(q, k, v, axis, options, [], None), rtol=tolerance, atol=tolerance)
    if form == "f32":  # otherwise this test would show nothing
        one = range(LENGTH - 1, LENGTH)
        assert not torch.equal(pieces(q, k, v, axis, options, one, None), pieces(q, k, v, axis, options, [], None))


@pytest.mark.parametrize("form", ["f32", "bf16", "window and sink", "heads of a position are adjacent"])
def test_bits_do_not_depend_on_threads_batches_and_heads(form):
    q, k, v, axis, options = make(**FORMS[form])
    expected = pieces(q, k, v, axis, options, [])
    before = saccade.num_threads()
    try:
        for threads in (1, 2):
            saccade.set_num_threads(threads)
            assert torch.equal(pieces(q, k, v, axis, options, []), expected)
    finally:
        saccade.set_num_threads(before)
    assert torch.equal(pieces(q[1:], k[1:], v[1:], axis, options, []), expected[1:])


def test_gradients_are_refused():
    q, k, v, _, options = make()
    with pytest.raises(ValueError, match='reproducible is "stream" and an input requires grad, expected one of them'):
        saccade.attention(q.requires_grad_(), k, v, reproducible="stream", **options)


def test_a_compiled_function_has_the_bits_of_the_call():
    q, k, v, _, options = make()
    compiled = torch.compile(lambda q, k, v: saccade.attention(q, k, v, reproducible="stream", **options), backend="eager",
                             fullgraph=True)
    assert torch.equal(compiled(q, k, v), saccade.attention(q, k, v, reproducible="stream", **options))


def test_arrays_have_the_bits_of_tensors():
    q, k, v, axis, options = make()
    found = saccade.attention(*(x.numpy() for x in (q, k, v)), reproducible="stream", **options)
    assert np.array_equal(found, pieces(q, k, v, axis, options, []).numpy())


@pytest.mark.parametrize(("given", "error", "message"), [
    ({"reproducible": "always"}, ValueError, "reproducible is 'always', expected \"stream\" or None"),
    ({"reproducible": True}, TypeError, 'reproducible is True, expected "stream" or None'),
    ({"reproducible": "stream", "cu_seqlens_q": torch.tensor([0, 4]), "cu_seqlens_k": torch.tensor([0, 4])}, ValueError,
     'reproducible is "stream" and cu_seqlens_q is given, expected one of them'),
])  # fmt: skip
def test_other_calls_are_refused(given, error, message):
    shape = (4, 2, 8) if "cu_seqlens_q" in given else (1, 2, 4, 8)
    q, k, v = torch.zeros(3, *shape)
    with pytest.raises(error, match=message):
        saccade.attention(q, k, v, **given)
