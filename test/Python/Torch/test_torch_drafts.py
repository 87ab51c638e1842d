"""Drafts of several positions with roll-back: a call that leaves the state, then one that updates it by the accepted
positions alone. Results are those of the accepted positions without the others."""

import pytest
import torch

import saccade

ACCEPTED = [[0, 16], [1, 3], [5, 16], [16, 16]]
DRAFTED = 16


def gates(shape):
    return {"decay": -torch.rand(shape), "beta": torch.rand(shape)}


@pytest.mark.parametrize("accepted", ACCEPTED, ids=str)
def test_a_state_of_linear_attention_is_that_of_the_accepted_positions(accepted):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, DRAFTED, 2, 16), torch.randn(2, DRAFTED, 2, 16), torch.randn(2, DRAFTED, 4, 24)
    given = gates((2, DRAFTED, 4))
    options = {"causal": True, "l2norm": 1e-6, "layout": "bshd"}
    state = torch.randn(2, 4, 16, 24)
    before = state.clone()
    drafts = saccade.linear_attention(q, k, v, state=state, **given, **options)
    assert torch.equal(state, before)
    saccade.linear_attention(q, k, v, state=state, kv_len=torch.tensor(accepted), return_state=True, **given, **options,
                             out=(torch.empty_like(drafts), state))
    for i, count in enumerate(accepted):
        if count == 0:
            assert torch.equal(state[i], before[i])
            continue
        own = slice(i, i + 1), slice(0, count)
        output, alone = saccade.linear_attention(q[own], k[own], v[own], state=before[i:i + 1], return_state=True,
                                                 **{name: x[own] for name, x in given.items()}, **options)
        assert torch.allclose(state[i], alone[0], atol=1e-4)
        assert torch.allclose(drafts[i, :count], output[0], atol=1e-4)


@pytest.mark.parametrize("layout", ["bds", "bsd"])
@pytest.mark.parametrize("accepted", ACCEPTED, ids=str)
def test_a_state_of_a_convolution_is_that_of_the_accepted_positions(accepted, layout):
    torch.manual_seed(0)
    x, weight, state = torch.randn(2, DRAFTED, 24), torch.randn(24, 4), torch.randn(2, 3, 24)
    if layout == "bds":
        x, state = x.transpose(1, 2).contiguous(), state.transpose(1, 2).contiguous()
    options = {"activation": "silu", "layout": layout}
    before = state.clone()
    drafts = saccade.causal_conv1d(x, weight, state=state, **options)
    assert torch.equal(state, before)
    saccade.causal_conv1d(x, weight, state=state, kv_len=torch.tensor(accepted), return_state=True, **options,
                          out=(torch.empty_like(drafts), state))
    for i, count in enumerate(accepted):
        own = (slice(i, i + 1), *[slice(0, count) if dim == "s" else slice(None) for dim in layout[1:]])
        output, alone = saccade.causal_conv1d(x[own], weight, state=before[i:i + 1], return_state=True, **options)
        assert torch.equal(state[i], alone[0])
        assert torch.allclose(drafts[own], output, atol=1e-6)
