"""`saccade.torch.fla` and `saccade.torch.mamba` against the formulas of the papers in float64
(test/Fuzz/Inputs/recurrences.py), with their parameters one by one."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "Fuzz" / "Inputs"))
from recurrences import RECURRENCES, Sizes, lightning_slopes

from saccade.torch import fla, mamba

SIZES = Sizes(batch=2, heads=4, key_heads=2, length=70, depth=16, width=24)
ALONE = Sizes(batch=2, heads=3, key_heads=3, length=70, depth=16, width=24)


def drawn(name, sizes=SIZES):
    """The inputs of a model as arrays [b,h,s,...], the initial state, the output and the final state."""
    rng = np.random.default_rng(4)
    inputs = RECURRENCES[name].draw(rng, sizes, 20.0)
    state = rng.standard_normal((sizes.batch, sizes.heads, sizes.depth, sizes.width))
    return inputs, state, *RECURRENCES[name].formula(inputs, state)


def given(inputs, dtype=torch.float64):
    """The inputs as tensors [b,s,h,...]."""
    return {name: torch.from_numpy(x.swapaxes(1, 2).copy() if x.ndim > 2 else x).to(dtype) for name, x in inputs.items()}


def compare(found, output, state, tolerance=1e-10):
    for one, other in ((found[0].transpose(1, 2), output), (found[1], state)):
        one = one.double().numpy()
        assert np.linalg.norm(one - other) <= tolerance * np.linalg.norm(other)


# By name: the recurrence, the sizes, and the call with the inputs of the model and further arguments.
CALLS = {
    "chunk_gated_delta_rule": ("gated_deltanet", SIZES, lambda x, **more: fla.chunk_gated_delta_rule(
        **x, use_qk_l2norm_in_kernel=True, **more)),
    "fused_recurrent_gated_delta_rule": ("gated_deltanet", SIZES, lambda x, **more: fla.fused_recurrent_gated_delta_rule(
        **x, use_qk_l2norm_in_kernel=True, **more)),
    "gk of fused_recurrent_gated_delta_rule": ("kda", SIZES, lambda x, **more: fla.fused_recurrent_gated_delta_rule(
        x["q"], x["k"], x["v"], g=x["g"][..., 0], gk=x["g"] - x["g"][..., :1], beta=x["beta"],
        use_qk_l2norm_in_kernel=True, **more)),
    "chunk_delta_rule": ("deltanet", SIZES, lambda x, **more: fla.chunk_delta_rule(
        **x, use_qk_l2norm_in_kernel=True, **more)),
    "chunk_kda": ("kda", SIZES, lambda x, **more: fla.chunk_kda(**x, use_qk_l2norm_in_kernel=True, **more)),
    "chunk_gla": ("gla", ALONE, lambda x, **more: fla.chunk_gla(**x, **more)),
    "fused_recurrent_gla": ("gla", ALONE, lambda x, **more: fla.fused_recurrent_gla(
        x["q"], x["k"], x["v"], gk=x["g"], **more)),
    "chunk_retention": ("retnet", ALONE, lambda x, **more: fla.chunk_retention(**x, **more)),
    "chunk_simple_gla": ("lightning", ALONE, lambda x, **more: fla.chunk_simple_gla(
        **x, g_gamma=-torch.from_numpy(lightning_slopes(ALONE.heads)), scale=1.0, **more)),
    "chunk_rwkv7": ("rwkv7", ALONE, lambda x, **more: fla.chunk_rwkv7(
        x["r"], x["w"], x["k"], x["v"], a=-x["kappa"], b=x["kappa"] * x["a"], **more)),
    "fused_recurrent_rwkv7": ("rwkv7", ALONE, lambda x, **more: fla.fused_recurrent_rwkv7(
        x["r"], x["w"], x["k"], x["v"], a=-x["kappa"], b=x["kappa"] * x["a"], scale=1.0,
        **{"output_final_state": False} | more)),
    "chunk_dplr_delta_rule": ("rwkv7", ALONE, lambda x, **more: fla.chunk_dplr_delta_rule(
        x["r"], x["k"], x["v"], a=-x["kappa"], b=x["kappa"] * x["a"], gk=x["w"], scale=1.0, **more)),
    "g and g_gamma of chunk_simple_gla": ("lightning", ALONE, lambda x, **more: fla.chunk_simple_gla(
        **x, g_gamma=-2 * torch.from_numpy(lightning_slopes(ALONE.heads)), scale=1.0,
        g=torch.from_numpy(lightning_slopes(ALONE.heads)).expand(x["v"].shape[:3]), **more)),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_fla_agree_with_the_formulas(name):
    recurrence, sizes, call = CALLS[name]
    inputs, state, output, last = drawn(recurrence, sizes)
    x, start = given(inputs), torch.from_numpy(state)
    compare(call(x, initial_state=start, output_final_state=True), output, last)
    assert call(x)[1] is None
    if name not in ("chunk_delta_rule", "chunk_retention") and recurrence != "rwkv7":  # without the parameter in fla
        turned = call(x, initial_state=start.mT.contiguous(), output_final_state=True, state_v_first=True)
        assert turned[1].is_contiguous()
        compare((turned[0], turned[1].mT), output, last)
    # A ragged batch: parts of the sequence, each with its own initial state, the last one of which is empty.
    whole, states = [], []
    flat = {key: value[:1] if value.ndim > 1 else value for key, value in x.items()}
    bounds = [0, 7, 64, 70, 70]
    for i, (low, high) in enumerate(itertools.pairwise(bounds[:-1])):
        part = {key: value[:, low:high] if value.ndim > 1 else value for key, value in flat.items()}
        mine = call(part, initial_state=start[i % 2 : i % 2 + 1], output_final_state=True)
        whole.append(mine[0])
        states.append(mine[1])
    states.append(start[1:2])
    ragged = call(flat, initial_state=start[[0, 1, 0, 1]], output_final_state=True, cu_seqlens=torch.tensor(bounds))
    torch.testing.assert_close(ragged[0], torch.cat(whole, 1))
    torch.testing.assert_close(ragged[1], torch.cat(states))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_element_types_of_gates_and_states_may_differ(dtype):
    inputs, state, *_ = drawn("gated_deltanet")
    x = given(inputs, dtype)
    inputs = {name: value.double().transpose(1, 2).numpy() if value.ndim > 2 else value for name, value in x.items()}
    output, last = RECURRENCES["gated_deltanet"].formula(inputs, state)
    for gates in (dtype, torch.float32, torch.float64):
        x |= {"g": x["g"].to(gates), "beta": x["beta"].to(gates)}
        found = fla.chunk_gated_delta_rule(**x, initial_state=torch.from_numpy(state), output_final_state=True,
                                           use_qk_l2norm_in_kernel=True)
        assert found[0].dtype == dtype
        assert found[1].dtype == torch.float32
        compare(found, output, last, {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-5}[dtype])


def test_reverse_visits_positions_from_the_last():
    inputs, _, output, _ = drawn("gla", ALONE)
    x = given({name: value[:, :, ::-1] for name, value in inputs.items()})
    found, _ = fla.fused_recurrent_gla(x["q"], x["k"], x["v"], gk=x["g"], reverse=True)
    expected, _ = RECURRENCES["gla"].formula(inputs, np.zeros((2, 3, 16, 24)))
    compare((found.flip(1), torch.ones(1)), expected, np.ones(1))
    assert np.linalg.norm(output - expected) > 1e-3


def test_gates_in_the_kernel_are_those_of_models():
    inputs, *_ = drawn("kda")
    x = given(inputs)
    logit, rate, bias = torch.randn(x["g"].shape).double(), torch.randn(4).double(), torch.randn(64).double()
    gates = {
        "softplus": (-rate.exp()[:, None] * torch.nn.functional.softplus(logit + bias.view(4, 16)), {}),
        "bounded": (-5 * torch.sigmoid(rate.exp()[:, None] * (logit + bias.view(4, 16))), {"lower_bound": -5.0}),
    }
    for gate, more in gates.values():
        found = fla.chunk_kda(**x | {"g": logit}, use_gate_in_kernel=True, A_log=rate, dt_bias=bias, **more)
        torch.testing.assert_close(found, fla.chunk_kda(**x | {"g": gate}))
    beta = torch.randn(x["beta"].shape).double()
    found = fla.chunk_kda(**x | {"beta": beta}, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
    torch.testing.assert_close(found, fla.chunk_kda(**x | {"beta": 2 * beta.sigmoid()}))
    head = logit[..., 0]
    found = fla.chunk_gated_delta_rule(**x | {"g": head}, use_gate_in_kernel=True, A_log=rate, dt_bias=bias[:4])
    gate = -rate.exp() * torch.nn.functional.softplus(head + bias[:4])
    torch.testing.assert_close(found, fla.chunk_gated_delta_rule(**x | {"g": gate}))


def test_strong_decays_of_dplr_clear_the_state():
    """A decay is divided by in the key that erases: that of e^-300 leaves nothing, and no NaN."""
    x = given(drawn("rwkv7", ALONE)[0], torch.float32)
    arguments = x["r"], x["k"], x["v"], -x["kappa"], x["kappa"] * x["a"]
    gate = x["w"].clone()
    gate[:, 40] = -300.0
    output, _ = fla.chunk_dplr_delta_rule(*arguments, gate)
    assert output.isfinite().all()
    # The state keeps only the part that is erased from it before the decay. All other parts come from later values.
    values = x["v"].clone()
    values[:, :40] = 0
    alone, _ = fla.chunk_dplr_delta_rule(x["r"], x["k"], values, torch.where(
        torch.arange(70)[:, None, None] == 40, 0.0, arguments[3]), arguments[4], gate)
    erased, _ = fla.chunk_dplr_delta_rule(x["r"], x["k"], x["v"], torch.where(
        torch.arange(70)[:, None, None] == 40, 0.0, arguments[3]), arguments[4], gate)
    torch.testing.assert_close(erased[:, 40:], alone[:, 40:])


def test_lightning_has_the_slopes_of_its_layer():
    x = given(drawn("lightning", ALONE)[0])
    rates = -8 / 3 * (1 - 2 / 5) * torch.arange(3).double()
    torch.testing.assert_close(fla.chunk_lightning_attn(**x, layer_idx=2, num_layers=5),
                               fla.chunk_simple_gla(**x, g_gamma=rates))


@pytest.mark.parametrize(("named", "exception", "message"), [
    ({"cp_context": object()}, NotImplementedError, "chunk_kda: cp_context is not supported, expected None"),
    ({"return_intermediate_states": True}, NotImplementedError,
     "chunk_kda: return_intermediate_states is not supported, expected False"),
    ({"head_first": True}, TypeError, "chunk_kda() got an unexpected keyword argument 'head_first'"),
    ({"cu_seqlens": torch.tensor([0, 9])}, ValueError, "q has batch size 2, expected 1 with cu_seqlens"),
    ({"allow_neg_eigval": True}, ValueError, "expected use_beta_sigmoid_in_kernel=True with it"),
    ({"use_gate_in_kernel": True}, ValueError, "A_log is None, expected a tensor"),
])  # fmt: skip
def test_parameters_that_are_not_supported_are_refused_by_name(named, exception, message):
    x = given(drawn("kda")[0])
    with pytest.raises(exception, match=re.escape(message)):
        fla.chunk_kda(**x, **named)
    fla.chunk_kda(**x, chunk_size=32, safe_gate=True, cp_context=None)


def test_offsets_that_do_not_fit_are_refused():
    x = given({name: value[:1] for name, value in drawn("kda")[0].items()})
    for offsets, states in (([1, 70], None), ([0, 40, 30, 70], None), ([0, 30, 90], None), ([0, 30, 70], 1)):
        state = None if states is None else torch.zeros(states, 4, 16, 24).double()
        with pytest.raises(ValueError, match=r"cu_seqlens|state has shape \(1, 4, 16, 24\), expected \(2, 4, 16, 24\)"):
            fla.chunk_kda(**x, initial_state=state, cu_seqlens=torch.tensor(offsets))


# --- Mamba-2 ----------------------------------------------------------------------------------------------------------


def mamba_inputs():
    inputs, state, output, last = drawn("mamba2")
    x = given(inputs)
    return x, torch.from_numpy(state).mT.contiguous(), output, last


def test_the_scan_of_mamba_agrees_with_its_formula():
    x, state, output, last = mamba_inputs()
    found = mamba.mamba_chunk_scan_combined(x["x"], x["delta"], x["A"], x["B"], x["C"], 64, initial_states=state,
                                            return_final_states=True)
    compare((found[0], found[1].mT), output, last)


def test_parameters_of_the_scan():
    x, state, *_ = mamba_inputs()
    arguments = x["A"], x["B"], x["C"], 64
    dt, bias, z = torch.randn(2, 70, 4).double(), torch.randn(4).double(), torch.randn(2, 70, 4, 24).double()
    skip = torch.randn(4, 24).double()
    step = torch.nn.functional.softplus(dt + bias).clamp(0.1, 2.0)
    for factor in (skip, skip[:, 0]):
        found = mamba.mamba_chunk_scan_combined(x["x"], dt, *arguments, D=factor, z=z, dt_bias=bias, dt_softplus=True,
                                                dt_limit=(0.1, 2.0), initial_states=state)
        plain = mamba.mamba_chunk_scan_combined(x["x"], step, *arguments, initial_states=state)
        wide = factor if factor.ndim == 2 else factor[:, None]
        torch.testing.assert_close(found, (plain + wide * x["x"]) * torch.nn.functional.silu(z))


def test_sequence_numbers_end_states():
    x, *_ = mamba_inputs()
    whole = mamba.mamba_chunk_scan_combined(x["x"], x["delta"], x["A"], x["B"], x["C"], 64,
                                            seq_idx=torch.tensor([0] * 30 + [1] * 40).expand(2, 70))
    for part in (slice(0, 30), slice(30, 70)):
        alone = mamba.mamba_chunk_scan_combined(x["x"][:, part], x["delta"][:, part], x["A"], x["B"][:, part],
                                                x["C"][:, part], 64)
        torch.testing.assert_close(whole[:, part], alone)


def test_single_steps_continue_the_scan():
    x, state, output, last = mamba_inputs()
    kept = state.clone()
    for t in range(70):
        dt = x["delta"][:, t, :, None].expand(-1, -1, 24)
        rate = x["A"][:, None, None].expand(-1, 24, 16)
        found = mamba.selective_state_update(kept, x["x"][:, t], dt, rate, x["B"][:, t], x["C"][:, t])
        np.testing.assert_allclose(found.numpy(), output[:, :, t], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(kept.mT.numpy(), last, rtol=1e-9, atol=1e-9)


def test_mamba_1_and_page_tables_are_refused_by_name():
    x, state, *_ = mamba_inputs()
    before = state.clone()
    step = lambda **more: mamba.selective_state_update(
        **{"state": state, "x": x["x"][:, 0], "dt": x["delta"][:, 0, :, None].expand(-1, -1, 24),
           "A": x["A"][:, None, None].expand(-1, 24, 16), "B": x["B"][:, 0], "C": x["C"][:, 0], **more})
    with pytest.raises(NotImplementedError, match="elements of A may differ within a head"):
        step(A=torch.randn(4, 24, 16).double())
    with pytest.raises(NotImplementedError, match="state_batch_indices is not supported"):
        step(state_batch_indices=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="state has shape"):
        step(state=state[:1])
    assert torch.equal(state, before)
