"""`saccade.causal_conv1d` agrees with PyTorch's conv1d in float64: outputs, states and gradients, for widths, lengths
around the width, ragged and padded batches, element types, strides and `out`; and what it refuses, by name."""

import functools
import itertools

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn import functional

import saccade
from saccade.torch import causal_conv1d as package

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def expected_of(x, weight, bias, state, activation, width):
    """The output and the final state of one sequence [dim, length] in float64."""
    before = torch.zeros(x.shape[0], width - 1, dtype=x.dtype) if state is None else state
    full = torch.cat([before, x], 1)
    read = full[:, full.shape[1] - x.shape[1] - (width - 1):]
    output = functional.conv1d(read[None], weight[:, None], bias, groups=x.shape[0])[0] if x.shape[1] else x
    return functional.silu(output) if activation else output, full[:, x.shape[1]:]


def assert_close(found, expected, tolerance):
    assert found.shape == expected.shape
    if expected.numel():
        assert (found.double() - expected).abs().max() <= tolerance * (1 + expected.abs().max())


def ordered(x, layout):
    """A tensor with channels before positions in the order of a layout, or the reverse."""
    return x.transpose(-1, -2) if layout[-1] == "d" else x


def with_strides(x, kind):
    """A tensor with these elements: contiguous, as it is, or every second element of a larger one."""
    if kind != "strided":
        return x.contiguous() if kind == "contiguous" else x
    wide = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


# Width, length, lengths of sequences (None: all positions), element type, layout, strides, activation, bias, and positions
# of the state beyond width − 1 (None: no state).
CALLS = [
    (4, 17, None, torch.float32, "bds", "as it is", "silu", True, 0),
    (4, 17, None, torch.float32, "bds", "contiguous", "silu", True, None),
    (4, 40, None, torch.bfloat16, "bsd", "contiguous", "silu", False, 1),
    (4, 2, None, torch.float32, "bds", "contiguous", None, True, 0),
    (4, 1, None, torch.float32, "bds", "as it is", "silu", True, 1),
    (3, 0, None, torch.float32, "bsd", "contiguous", "silu", True, 0),
    (2, 5, None, torch.float16, "bsd", "strided", "silu", True, 0),
    (1, 5, None, torch.float32, "bds", "contiguous", "silu", True, 0),
    (7, 5, None, torch.float64, "bds", "strided", "silu", True, 2),
    (4, 17, "padded", torch.float32, "bsd", "contiguous", "silu", True, 0),
    (3, 17, "padded", torch.bfloat16, "bds", "contiguous", None, False, 1),
    (4, 2, "padded", torch.float64, "bds", "as it is", "silu", True, 0),
    (4, 23, "ragged", torch.float32, "sd", "contiguous", "silu", True, 0),
    (4, 23, "ragged", torch.float64, "ds", "contiguous", "silu", False, 2),
    (3, 23, "ragged", torch.bfloat16, "ds", "as it is", None, True, 0),
    (2, 9, "ragged", torch.float32, "sd", "strided", "silu", True, None),
]


class Case:
    """The tensors of a call and what it shall return."""

    def __init__(self, width, length, lengths, dtype, layout, strides, activation, has_bias, more, dim=20):
        torch.manual_seed(length + width)
        self.layout, self.dtype, self.lengths = layout, dtype, lengths
        batch = 4 if lengths == "ragged" else 3
        self.weight = torch.randn(dim, width).to(dtype)
        self.bias = torch.randn(dim).to(dtype) if has_bias else None
        shape = (dim, length) if lengths == "ragged" else (batch, dim, length)
        x = torch.randn(shape).to(dtype)
        state = None if more is None else torch.randn(batch, dim, width - 1 + more).to(dtype)
        self.x = with_strides(ordered(x, layout), strides)
        self.state = None if state is None else ordered(state, layout)
        self.options = {"activation": activation, "layout": layout}
        self.wide = [None if each is None else each.double().clone().requires_grad_()
                     for each in (x, self.weight, self.bias, state)]
        x, weight, bias, state = self.wide
        if lengths == "ragged":
            offsets = [0, 1, 1, length - 3, length - 2]  # one sequence is empty, and two positions are of none
            self.options["cu_seqlens"] = torch.tensor(offsets, dtype=torch.int32)
            parts = [x[:, start:end] for start, end in itertools.pairwise(offsets)]
        else:
            used = [length, 0, min(1, length)] if lengths else [length] * batch
            self.options |= {"kv_len": torch.tensor(used)} if lengths else {}
            parts = [x[i, :, :n] for i, n in enumerate(used)]
        made = [expected_of(part, weight, bias, None if state is None else state[i], activation, width)
                for i, part in enumerate(parts)]
        if lengths == "ragged":
            self.output = functional.pad(torch.cat([output for output, _ in made], 1), (0, 2))
        else:
            self.output = torch.stack([functional.pad(output, (0, length - output.shape[1])) for output, _ in made])
        self.final = torch.stack([last for _, last in made])

    def call(self, **more):
        return saccade.causal_conv1d(self.x, self.weight, self.bias, state=self.state, return_state=True,
                                     **self.options, **more)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_outputs_and_states_agree_with_conv1d(call):
    case = Case(*call)
    output, last = case.call()
    assert output.dtype == last.dtype == case.dtype
    assert output.shape == case.x.shape
    assert_close(ordered(output, case.layout), case.output, TOLERANCE[case.dtype])
    assert torch.equal(ordered(last, case.layout).double(), case.final)  # inputs, which are copied
    alone = saccade.causal_conv1d(case.x, case.weight, case.bias, state=case.state, **case.options)
    assert torch.equal(alone, output)


@pytest.mark.parametrize("call", [each for each in CALLS if each[8] is not None], ids=str)
def test_out_has_the_same_bits_and_a_state_is_updated_in_place(call):
    case = Case(*call)
    expected = case.call()
    outs = torch.empty_like(expected[0]), torch.empty_like(expected[1])
    assert case.call(out=outs) == outs
    assert torch.equal(outs[0], expected[0])
    assert torch.equal(outs[1], expected[1])
    case.state = case.state.clone()
    found = case.call(out=(outs[0].zero_(), case.state))
    assert found[1] is case.state
    assert torch.equal(found[0], expected[0])
    assert torch.equal(case.state, expected[1])


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_gradients_agree_with_conv1d(call):
    case = Case(*call)
    names = [name for name in ("x", "weight", "bias", "state") if getattr(case, name) is not None]
    for name in names:
        setattr(case, name, getattr(case, name).detach().requires_grad_())
    output, last = case.call()
    ups = [torch.randn(each.shape).to(case.dtype) for each in (case.output, case.final)]
    found = torch.autograd.grad([ordered(output, case.layout), ordered(last, case.layout)],
                                [getattr(case, name) for name in names], ups, allow_unused=True)
    expected = torch.autograd.grad([case.output, case.final], [each for each in case.wide if each is not None],
                                   [each.double() for each in ups], allow_unused=True)
    for name, own, other in zip(names, found, expected):
        if own is None or other is None:  # nothing is convolved
            assert all(each is None or not each.any() for each in (own, other)), name
            continue
        assert_close(ordered(own, case.layout) if name in ("x", "state") else own, other, 4 * TOLERANCE[case.dtype])


def test_a_second_derivative_is_refused():
    x = torch.randn(1, 3, 5, requires_grad=True)
    gradient, = torch.autograd.grad(saccade.causal_conv1d(x, torch.randn(3, 4), activation="silu").sum(), x,
                                    create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        gradient.sum().backward()


def test_parts_with_the_state_have_the_bits_of_the_whole():
    x, weight, bias = torch.randn(2, 30, 24), torch.randn(24, 4), torch.randn(24)
    whole = saccade.causal_conv1d(x, weight, bias, activation="silu", layout="bsd")
    state, parts = None, []
    for part in x.split([11, 1, 2, 1, 15], 1):
        output, state = saccade.causal_conv1d(part, weight, bias, activation="silu", state=state, return_state=True,
                                              layout="bsd")
        parts.append(output)
    assert torch.equal(torch.cat(parts, 1), whole)


def test_arrays_of_numpy():
    x, weight = np.random.default_rng(0).standard_normal((2, 5, 12), dtype=np.float32), np.ones((5, 3), np.float32)
    output, state = saccade.causal_conv1d(x, weight, return_state=True)
    padded = np.pad(x, ((0, 0), (0, 0), (2, 0)))
    assert np.allclose(output, padded[..., :-2] + padded[..., 1:-1] + x, atol=1e-5)
    assert np.array_equal(state, x[..., -2:])


def test_an_element_type_of_its_own_for_weights():
    x, weight = torch.randn(2, 8, 9).bfloat16(), torch.randn(8, 4)
    found = saccade.causal_conv1d(x, weight, weight[:, 0])
    wide = weight.double()
    expected, _ = zip(*[expected_of(each.double(), wide, wide[:, 0], None, None, 4) for each in x])
    assert found.dtype == torch.bfloat16
    assert_close(found, torch.stack(expected), 1e-2)


def test_graphs_have_the_operator():
    torch._dynamo.reset()
    x, weight = torch.randn(2, 9, 16).transpose(1, 2), torch.randn(16, 4)
    state = torch.randn(2, 16, 3)

    def step(x, weight, state):
        return saccade.causal_conv1d(x, weight, activation="silu", state=state, return_state=True)

    targets = []

    def backend(graph, inputs):
        targets.extend([str(node.target) for node in graph.graph.nodes])
        return graph

    found = torch.compile(step, backend=backend, fullgraph=True)(x, weight, state)
    assert sum("saccade.layer" in name for name in targets) == 1
    for own, other in zip(found, step(x, weight, state)):
        assert torch.equal(own, other)
    weight.requires_grad_()
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    gradients = [torch.autograd.grad(call(x, weight, state)[0].sum(), weight)[0] for call in (compiled, step)]
    assert torch.equal(*gradients)


def test_transforms_of_torch_func():
    x, weight, state = torch.randn(2, 6, 9), torch.randn(6, 4), torch.randn(2, 6, 3)

    def energy(*tensors):
        return saccade.causal_conv1d(*tensors[:2], activation="silu", state=tensors[2]).square().sum()

    leaves = [each.clone().requires_grad_() for each in (x, weight, state)]
    expected = torch.autograd.grad(energy(*leaves), leaves)
    for own, other in zip(torch.func.grad(energy, argnums=(0, 1, 2))(x, weight, state), expected):
        assert torch.allclose(own, other, atol=1e-5)
    many = torch.randn(3, 2, 6, 9)
    found = torch.func.vmap(saccade.causal_conv1d, in_dims=(0, None))(many, weight)
    assert torch.equal(found, torch.stack([saccade.causal_conv1d(each, weight) for each in many]))
    with pytest.raises(NotImplementedError, match="causal_conv1d: tangents"):
        torch.func.jvp(lambda x: saccade.causal_conv1d(x, weight), (x,), (x,))


def test_dynamic_lengths_have_one_graph():
    torch._dynamo.reset()
    counter = CompileCounter()
    weight = torch.randn(6, 4)
    step = functools.partial(saccade.causal_conv1d, activation="silu", layout="bsd")
    compiled = torch.compile(lambda x: step(x, weight), backend=counter, fullgraph=True, dynamic=True)
    for length in (5, 9, 17):
        x = torch.randn(2, length, 6)
        assert torch.equal(compiled(x), step(x, weight))
    assert counter.frame_count == 1


# --- errors -----------------------------------------------------------------------------------------------------------

X, WEIGHT, STATE = torch.randn(2, 6, 5), torch.randn(6, 4), torch.randn(2, 6, 3)
REFUSED = [
    ({"weight": torch.randn(6, 0)}, "weight has width 0, expected 1 to 32"),
    ({"weight": torch.randn(6, 33)}, "weight has width 33, expected 1 to 32"),
    ({"weight": torch.randn(5, 4)}, r"weight has shape \(5, 4\), expected \(6, 4\)"),
    ({"bias": torch.randn(5)}, r"bias has shape \(5,\), expected \(6,\)"),
    ({"state": torch.randn(2, 6, 2)}, "state has 2 positions, expected 3 or more"),
    ({"state": torch.randn(1, 6, 3)}, r"state has shape \(1, 6, 3\), expected \(2, 6, 3\)"),
    ({"state": STATE.double()}, "state has elements of type float64, expected float32, that of x"),
    ({"x": X.double()}, "weight has elements of type float32, expected float64"),
    ({"x": X[0]}, "x has 2 dimensions, expected 3"),
    ({"kv_len": torch.tensor([5, 6])}, "kv_len has the element 6, expected 0 to 5"),
    ({"kv_len": torch.tensor([5])}, r"kv_len has shape \(1,\), expected \(2,\)"),
    ({"activation": "gelu"}, "activation is 'gelu', expected None"),
    ({"layout": "sbd"}, "layout is 'sbd', expected one of bds, bsd, ds, sd"),
    ({"layout": "sd"}, "layout is 'sd', expected \"bds\" or \"bsd\" without cu_seqlens"),
    ({"x": X[0], "state": STATE, "cu_seqlens": torch.tensor([0, 4, 3])}, "cu_seqlens has an element that is less"),
    ({"x": X[0], "state": STATE, "cu_seqlens": torch.tensor([0, 4, 6])}, "cu_seqlens ends with 6, expected at most 5"),
    ({"x": X[0], "state": STATE, "cu_seqlens": torch.tensor([1, 4, 5])}, "cu_seqlens starts with 1, expected 0"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_input_is_refused_by_name_and_nothing_is_written(given, message):
    given = {"x": X, "weight": WEIGHT, "state": STATE.clone()} | given
    before = given["state"].clone()
    output = torch.full(given["x"].shape, 7.0)
    with pytest.raises((TypeError, ValueError), match=message):
        saccade.causal_conv1d(given.pop("x"), given.pop("weight"), return_state=True, out=(output, given["state"]),
                              **given)
    assert torch.equal(given["state"], before)
    assert (output == 7).all()


def test_an_output_that_does_not_fit_is_refused():
    state = STATE.clone()
    for output in (torch.empty(2, 5, 6), torch.empty(2, 6, 5, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"out\[0\] has shape"):
            saccade.causal_conv1d(X, WEIGHT, state=state, return_state=True, out=(output, state))
    x = X.clone()
    with pytest.raises(ValueError, match=r"out\[0\]"):
        saccade.causal_conv1d(x, WEIGHT, state=state, return_state=True, out=(x, state))
    assert torch.equal(state, STATE)


# --- the package's functions ------------------------------------------------------------------------------------------


def test_functions_of_the_package_agree_with_conv1d():
    x, weight, bias = torch.randn(2, 8, 12), torch.randn(8, 4), torch.randn(8)
    whole = functional.silu(functional.conv1d(x, weight[:, None], bias, padding=3, groups=8)[..., :12])
    assert torch.allclose(package.causal_conv1d_fn(x, weight, bias, activation="silu"), whole, atol=1e-5)
    first, states = package.causal_conv1d_fn(x[..., :7], weight, bias, activation="swish", return_final_states=True,
                                             final_states_out=torch.empty(2, 8, 3))
    steps = [package.causal_conv1d_update(x[..., 7], states, weight, bias, "silu").unsqueeze(-1),
             package.causal_conv1d_update(x[..., 8:], states, weight, bias, "silu")]
    assert torch.allclose(torch.cat([first, *steps], -1), whole, atol=1e-5)
    assert torch.equal(states, x[..., -3:])


def test_positions_of_other_sequences_are_not_read():
    x, weight = torch.randn(2, 8, 12), torch.randn(8, 4)
    numbers = torch.tensor([[0] * 5 + [1] * 7, [0] * 12], dtype=torch.int32)
    found = package.causal_conv1d_fn(x, weight, seq_idx=numbers)
    parts = [package.causal_conv1d_fn(x[:1, :, :5], weight), package.causal_conv1d_fn(x[:1, :, 5:], weight)]
    assert torch.allclose(found[:1], torch.cat(parts, -1), atol=1e-5)
    assert torch.allclose(found[1:], package.causal_conv1d_fn(x[1:], weight), atol=1e-5)


def test_what_the_package_has_besides_is_refused_by_name():
    state = torch.zeros(2, 6, 3)
    for name in ("cache_seqlens", "conv_state_indices"):
        with pytest.raises(NotImplementedError, match=name):
            package.causal_conv1d_update(X[..., 0], state, WEIGHT, **{name: torch.zeros(2, dtype=torch.int32)})
    with pytest.raises(ValueError, match="seq_idx"):
        package.causal_conv1d_fn(X, WEIGHT, seq_idx=torch.zeros(2, 5), return_final_states=True)
