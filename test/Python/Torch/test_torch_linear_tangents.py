"""Tangents of saccade.linear_attention under torch.func: w · (J u) is that of reverse mode, (Jᵀ w) · u, in float64.
test/Fuzz/linear_calls.py --tangents compares with formulas; here are the options that it does not draw."""

import pytest
import torch

import saccade

HEADS, KEY_HEADS, D, E = 4, 2, 8, 6
B = 2


def tensors(length, *, queries=None, batch=B, seed=0):
    generator = torch.Generator().manual_seed(seed)
    outer = () if batch is None else (batch,)
    shapes = {"q": (*outer, KEY_HEADS, queries or length, D), "k": (*outer, KEY_HEADS, length, D),
              "v": (*outer, HEADS, length, E), "decay": (*outer, HEADS, length), "rows": (*outer, HEADS, length, D),
              "beta": (*outer, HEADS, length), "erase": (*outer, HEADS, length, D)}
    made = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    for name in ("decay", "rows"):
        made[name] = -made[name].abs()
    made["beta"] = torch.sigmoid(made["beta"])
    for name in ("k", "erase"):
        made[name] = made[name] / made[name].norm(dim=-1, keepdim=True)
    return made


def state(seed, batch=B, columns=E):
    return torch.rand(batch, HEADS, D, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CASES = {
    "lengths": (["q", "k", "v", "decay", "beta"], {"causal": True, "l2norm": 1e-6, "kv_len": torch.tensor([70, 3])}),
    "ragged": (["q", "k", "v", "rows", "erase", "beta"], {"causal": True, "cu_seqlens": torch.tensor([0, 5, 5, 71])}),
    "erase": (["q", "k", "v", "decay", "erase"], {"causal": True, "scale": 0.5}),
    "normalize": (["q", "k", "v", "decay"], {"causal": True, "normalize": True, "feature_map": "elu+1"}),
    "not causal": (["q", "k", "v"], {"feature_map": "relu", "scale": 2.0}),
    "not causal, lengths": (["q", "k", "v"], {"normalize": True, "feature_map": "elu+1", "kv_len": torch.tensor([9, 0])}),
}


@pytest.mark.parametrize("case", CASES)
def test_tangents_are_those_of_reverse_mode(case):
    names, options = CASES[case]
    is_ragged = "cu_seqlens" in options
    drawn = tensors(71, queries=33 if case == "not causal" else None, batch=None if is_ragged else B)
    named = {"decay" if name == "rows" else name: drawn[name] for name in names}
    named["state"] = state(1, 3 if is_ragged else B, E + options.get("normalize", False))

    def attention(operands):
        return saccade.linear_attention(**operands, **options, return_state=True,
                                        **({"layout": "hsd"} if is_ragged else {}))

    generator = torch.Generator().manual_seed(2)
    steps = {name: torch.randn(x.shape, generator=generator, dtype=x.dtype) for name, x in named.items()}
    results, pushed = torch.func.jvp(attention, (named,), (steps,))
    values, pull = torch.func.vjp(attention, named)
    weights = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in pushed]
    (pulled,) = pull(tuple(weights))
    for one, other in zip(results, values):
        torch.testing.assert_close(one, other)
    for name, step in steps.items():  # each argument alone, and all together
        _, alone = torch.func.jvp(attention, (named,), ({key: steps[key] * (key == name) for key in named},))
        found = sum((x * w).sum() for x, w in zip(alone, weights))
        torch.testing.assert_close(found, (pulled[name] * step).sum(), rtol=1e-9, atol=1e-9)
    found = sum((x * w).sum() for x, w in zip(pushed, weights))
    expected = sum((pulled[name] * step).sum() for name, step in steps.items())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_vmap_and_gradients_beside_tangents():
    drawn = tensors(9)
    q, k, v = (drawn[name] for name in "qkv")

    def push(step):
        return torch.func.jvp(lambda v: saccade.linear_attention(q, k, v, causal=True), (v,), (step,))[1]

    steps = torch.stack([v, 2 * v])
    expected = saccade.linear_attention(q, k, v, causal=True)
    torch.testing.assert_close(torch.func.vmap(push)(steps), torch.stack([expected, 2 * expected]))
    v.requires_grad_()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(v, torch.ones_like(v))
        found = torch.autograd.forward_ad.unpack_dual(saccade.linear_attention(q, k, dual, causal=True))
    assert found.primal.requires_grad and found.tangent is not None


def test_second_derivatives_are_refused():
    drawn = tensors(9)

    def pushed(v):
        attention = lambda v: saccade.linear_attention(drawn["q"], drawn["k"], v, causal=True)
        return torch.func.jvp(attention, (v,), (v,))[1].sum()

    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.func.grad(pushed)(drawn["v"])
