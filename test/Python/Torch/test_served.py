"""`saccade.served` names every call of attention: its module, its place, and why Saccade did not compute it."""

import collections
import os
import subprocess
import sys
import threading
import timeit

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import saccade
import saccade.torch
import saccade.torch.backend

pytestmark = pytest.mark.usefixtures("dynamo", "no_warning_yet")

q, k, v = torch.randn(3, 1, 2, 8, 16, generator=torch.Generator().manual_seed(0))


class Hand(nn.Module):
    def forward(self, q, k, v):
        return (q @ k.mT * 0.25).softmax(-1) @ v


class Fused(nn.Module):
    def forward(self, q, k, v, dropout_p=0.0):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Fused(), Hand()])

    def forward(self, q, k, v):
        return self.layers[1](self.layers[0](q, k, v), k, v)


def line_of(module):
    """The place of the only statement of a module's forward."""
    return f"{__file__}:{type(module).forward.__code__.co_firstlineno + 1}"


def functions(report):
    return {call.function: count for call, count in report.calls.items()}


def test_calls_are_named_by_module_and_place():
    net = Net()
    with saccade.served() as report, saccade.torch.enabled(), torch.no_grad():
        for _ in range(3):
            net(q, k, v)
    (fused, hand), counts = report.calls, list(report.calls.values())
    assert counts == [3, 3] and (report.served, report.not_served, report.total) == (3, 3, 6)
    assert (fused.function, fused.module, fused.place) == ("scaled_dot_product_attention", "layers.0",
                                                           line_of(net.layers[0]))
    assert fused.operands == "f32 cpu q[1,2,8,16] k[1,2,8,16] v[1,2,8,16]" and fused.is_served
    assert (hand.module, hand.place, hand.is_served) == ("layers.1", line_of(net.layers[1]), False)
    assert "torch.compile" in hand.reason and report.reasons == {hand.reason: 3}
    assert "3 of 6 calls" in str(report) and hand.reason in str(report)


def test_graphs_report_each_of_their_calls():
    net = Net()
    compiled = torch.compile(net, backend="saccade", options={"inner": "eager"})
    with torch.no_grad():
        compiled(q, k, v)
        with saccade.served() as report:
            compiled(q, k, v)
            compiled(q, k, v)
    assert functions(report) == {"scaled_dot_product_attention": 2, "attention written by hand": 2}
    assert report.not_served == 0
    assert [call.module for call in report.calls] == ["layers.0", "layers.1"]
    assert [call.place for call in report.calls] == [line_of(layer) for layer in net.layers]


def test_graphs_report_what_stays_pytorchs():
    compiled = torch.compile(Fused(), backend="saccade", options={"inner": "eager"})
    with saccade.served() as report, torch.no_grad():
        compiled(q, k, v, dropout_p=0.5)
    assert report.reasons == {"dropout is not supported": 1}


@pytest.mark.parametrize("way", ["report", "option"])
def test_graphs_report_the_fast_path_of_pytorch(way):
    layer, x = nn.TransformerEncoderLayer(32, 2, batch_first=True).eval(), torch.randn(2, 7, 32)
    compiled = torch.compile(layer, backend="saccade", options={"inner": "eager", "require": way == "option"})
    with torch.no_grad(), saccade.served() as report:
        if way == "option":
            with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"set_fastpath_enabled\(False\)"):
                compiled(x)
            return
        compiled(x)
    [(call, count)] = report.calls.items()
    assert (call.function, count) == ("_transformer_encoder_layer_fwd", 1)
    assert "set_fastpath_enabled(False)" in call.reason


HAND = {
    "arguments by name": lambda q, k, v: torch.matmul(
        input=torch.softmax(input=torch.matmul(input=q, other=k.mT), dim=-1), other=v),
    "einsum of a list": lambda q, k, v: torch.einsum(
        "bhij,bhjd->bhid", [torch.einsum("bhid,bhjd->bhij", [q, k]).softmax(-1), v]),
    "transposed scores": lambda q, k, v: (k @ q.mT).softmax(-2).mT @ v,
    "swapped axes": lambda q, k, v: (k @ q.mT).swapaxes(-1, -2).softmax(-1) @ v,
    "exponential of log_softmax": lambda q, k, v: F.log_softmax(q @ k.mT, -1).exp() @ v,
    "a joined column": lambda q, k, v: F.pad(q @ k.mT, (1, 0)).softmax(-1)[..., 1:] @ v,
    "reversed keys": lambda q, k, v: (q @ k.mT).flip(-1).softmax(-1) @ v,
}  # fmt: skip


@pytest.mark.parametrize("name", HAND)
def test_forms_of_attention_by_hand_are_seen(name):
    with torch.no_grad(), saccade.torch.enabled(), saccade.served() as report:
        HAND[name](q, k, v)
    assert functions(report) == {"attention written by hand": 1}


def test_layers_are_no_attention_by_hand():
    layer = nn.Linear(16, 16)
    with torch.no_grad(), saccade.torch.enabled(), saccade.served(require=True) as report:
        layer(torch.log_softmax(layer(q), -1).exp())
        torch.sigmoid(layer(q)) * layer(k) @ layer.weight
        (q @ k.mT).exp() @ v
    assert report.total == 0


def test_arguments_by_name_are_raised():
    compiled = torch.compile(HAND["arguments by name"], backend="saccade", options={"inner": "eager"})
    with torch.no_grad(), saccade.served(require=True) as report:
        torch.testing.assert_close(compiled(q, k, v), HAND["arguments by name"](q, k, v))
    assert report.served == 1


def test_direct_functions_count_once():
    with saccade.served() as report:
        saccade.attention(q, k, v)
        saccade.attention(q.numpy(), k.numpy(), v.numpy())
        saccade.torch.scaled_dot_product_attention(q, k, v)
        saccade.torch.flex_attention(q, k, v)
        with saccade.torch.enabled():
            flex_attention(q, k, v)
        leaf = q.clone().requires_grad_()
        saccade.attention(leaf, k, v).sum().backward()
    counts = collections.Counter()
    for call, count in report.calls.items():
        counts[call.function] += count
    assert counts == {"saccade.attention": 3, "scaled_dot_product_attention": 1, "flex_attention": 2}
    assert report.not_served == 0


def test_refused_calls_have_their_reason():
    mask = torch.zeros(8, 8)
    with saccade.torch.enabled(), saccade.served() as report, torch.no_grad():
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        with pytest.warns(saccade.Warning):
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)
        F.scaled_dot_product_attention(q[:, :, :0], k, v)  # nothing to compute
    assert (report.served, report.not_served) == (1, 1)
    assert list(report.reasons) == ["attn_mask should not be set when is_causal=True"]


def test_multi_head_attention_with_weights_is_named():
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    with saccade.torch.enabled(), saccade.served() as report, torch.no_grad():
        module(q[0], q[0], q[0])
        module(q[0], q[0], q[0], need_weights=False)
    assert (report.served, report.not_served) == (1, 1)
    assert "need_weights=False" in next(iter(report.reasons))


def test_weights_that_nothing_reads_do_not_keep_a_compiled_module_pytorchs():
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    compiled = torch.compile(lambda x: module(x, x, x)[0], backend="saccade", options={"inner": "eager"})
    with saccade.served() as report, torch.no_grad():
        torch.testing.assert_close(compiled(q[0]), module(q[0], q[0], q[0])[0])
    assert (report.served, report.not_served) == (1, 0)


def test_reports_follow_threads_that_are_started_inside():
    call = lambda: saccade.attention(q, k, v)
    with saccade.served() as report:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    call()
    assert report.total == 1


def test_reports_nest():
    with saccade.served() as outer:
        saccade.attention(q, k, v)
        with saccade.served() as inner:
            saccade.attention(q, k, v)
    assert (outer.total, inner.total) == (2, 1)


@pytest.mark.parametrize("way", ["served", "enabled"])
def test_require_names_the_place_and_the_reason(way):
    net = Net()
    block = saccade.served if way == "served" else saccade.torch.enabled
    with torch.no_grad(), saccade.torch.enabled(), block(require=True):
        net.layers[0](q, k, v)
        with pytest.raises(saccade.NotServed, match=r"test_served\.py:\d+ in layers\.1 .*torch\.compile"):
            net(q, k, v)


def test_require_of_the_backend_fails_at_the_compilation():
    compiled = torch.compile(Fused(), backend="saccade", options={"inner": "eager", "require": True})
    with torch.no_grad():
        compiled(q, k, v)
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"test_served\.py:\d+.*dropout"):
            compiled(q, k, v, dropout_p=0.5)


def test_explain_prints_the_report(capsys):
    with saccade.torch.enabled(explain=True), torch.no_grad():
        F.scaled_dot_product_attention(q, k, v)
    assert "1 of 1 calls served" in capsys.readouterr().err


def test_explain_prints_the_report_after_an_exception(capsys):
    def serve_and_fail():
        with saccade.served(explain=True):
            saccade.attention(q, k, v)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve_and_fail()
    assert "1 of 1 calls served" in capsys.readouterr().err


def test_the_variable_prints_a_report_at_the_end():
    code = "import saccade, numpy; x = numpy.ones((1, 1, 2, 4), 'float32'); saccade.attention(x, x, x)"
    for value, expected in (("1", "1 of 1 calls served"), ("0", None)):
        done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"SACCADE_SERVED": value}, text=True,
                              stderr=subprocess.PIPE, check=True)
        assert expected in done.stderr if expected else not done.stderr


def test_modules_of_transformers_that_run_their_own_code_are_named():
    pytest.importorskip("transformers")
    from transformers import DebertaV2Config, DebertaV2Model, LlamaConfig, LlamaModel

    import saccade.transformers

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "vocab_size": 50}
    own, served = DebertaV2Model(DebertaV2Config(**sizes)).eval(), LlamaModel(LlamaConfig(**sizes)).eval()
    for model in (own, served):
        model.config._attn_implementation = "saccade"
    with saccade.served() as report, torch.no_grad():
        own(torch.arange(6)[None])
        served(torch.arange(6)[None])
    (first, second) = report.calls
    assert first.module == "encoder.layer.0.attention" and "own code" in first.reason
    assert second.module == "layers.0.self_attn" and second.is_served
    assert not torch.nn.modules.module._global_forward_hooks


def test_calls_cost_little_without_a_report():
    call = "if served.is_on and served.is_new_call(): pass"
    from saccade import _served

    seconds = min(timeit.repeat(call, globals={"served": _served}, number=10000, repeat=20)) / 10000
    assert seconds < 0.2e-6


def test_calls_of_threads_that_no_report_covers_are_computed():
    is_open, found = threading.Event(), []

    def run():
        is_open.wait()
        found.append(saccade.attention(q, k, v))

    thread = threading.Thread(target=run)
    thread.start()
    with saccade.served() as report:
        is_open.set()
        thread.join()
    assert report.total == 0 and len(found) == 1
