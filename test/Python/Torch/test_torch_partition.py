"""torch.compile(backend="saccade", options={"whole_graph": True, "partition": True}): parts of graphs."""

import logging
import re
import types

import pytest
import torch
import torch.nn.functional as F

import saccade
import saccade.torch.backend
from saccade.torch.partition import divide

OPTIONS = {"whole_graph": True, "partition": True}


class Block(torch.nn.Module):
    """Attention, then an operator that Saccade does not support."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x.cumprod(-1).clamp(-2, 2)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x, x.median(-1).values


@pytest.fixture
def model():
    torch._dynamo.reset()
    torch.manual_seed(0)
    return Model().eval()


def logged(caplog):
    return [text for text in caplog.messages if "compiled by Saccade" in text]


def test_parts_and_the_rest(model, caplog):
    x = torch.randn(2, 7, 16)
    with torch.no_grad(), caplog.at_level(logging.DEBUG, "saccade"):
        found = torch.compile(model, backend="saccade", options=OPTIONS)(x)
        for a, b in zip(found, model(x)):
            torch.testing.assert_close(a, b)
    (text,) = logged(caplog)
    assert re.search(r"nodes in 2 parts compiled by Saccade; run by PyTorch: aten.cumprod \(2\)", text), text
    assert "aten.median.dim" in text and "attention" not in text


def test_dynamic_lengths(model):
    compiled = torch.compile(model, backend="saccade", dynamic=True, options=OPTIONS)
    with torch.no_grad():
        for shape in ((2, 7, 16), (3, 11, 16), (2, 1, 16)):
            x = torch.randn(shape)
            for a, b in zip(compiled(x), model(x)):
                torch.testing.assert_close(a, b)


def test_a_supported_graph_is_one_part(caplog):
    torch._dynamo.reset()
    x = torch.randn(3, 8)
    with torch.no_grad(), caplog.at_level(logging.DEBUG, "saccade"):
        found = torch.compile(lambda x: (x @ x.mT).softmax(-1), backend="saccade", options=OPTIONS)(x)
    torch.testing.assert_close(found, (x @ x.mT).softmax(-1))
    assert "in 1 part compiled by Saccade; run by PyTorch: none" in logged(caplog)[0]


CASES = {
    "nothing is supported": lambda x: x.cumprod(-1),
    "types": lambda x: ((x > 0).to(torch.uint8) * 2).float() + x.exp().sin(),
    "an argument of a known operator": lambda x: torch.view_as_complex(x.exp().sin().view(-1, 2)).abs() + 1,
    "random numbers": lambda x: (x + torch.rand(3, 8)).exp().sin(),
    "random numbers in order": lambda x: (
        torch.rand_like(((x * 2 + 1).cumprod(-1) * 2).exp()), torch.rand_like(x), (x + 1).exp() * torch.bernoulli(x.sigmoid())),
    "writes to inputs": lambda x: x.mul_(0.1).cumprod(-1).exp().sin(),
    "several results": lambda x: torch.cat([y.exp() for y in x.cumprod(-1).split(3, -1)], -1).sin(),
    "results of sort": lambda x: x.sort(-1).values.cumprod(-1) + x.exp().sort(-1).indices,
    "data-dependent": lambda x: x.exp().sin()[x.exp().sin() > 0].sum() + x.exp().cos(),
    "an input is returned": lambda x: (x, x.exp().sin().cumprod(-1)),
    "numbers alone": lambda x: torch.searchsorted(torch.linspace(-2, 2, 9).exp().sin(), x),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(3, 8)
    mine, theirs = x.clone(), x.clone()
    with torch.no_grad():
        torch.manual_seed(1)
        found = torch.compile(CASES[name], backend="saccade", options=OPTIONS)(mine)
        torch.manual_seed(1)
        expected = CASES[name](theirs)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine, theirs)


def test_a_part_that_fails_late_is_left_to_pytorch():
    """An error that names no node leaves the whole part, and no other."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: x.exp().sin().cumprod(-1).cos().tanh())(torch.randn(3, 8))
    tried = []

    def compile_part(part):
        tried.append([node.name for node in part.graph.nodes if node.op == "call_function"])
        if "exp" in tried[-1]:
            raise saccade.CompileError("no place")
        return types.SimpleNamespace(run=part)

    divided, plan = divide(graph, compile_part)
    assert tried == [["exp", "sin"], ["cos", "tanh"]] or tried == [["cos", "tanh"], ["exp", "sin"]]
    assert len(plan.programs) == 1 and plan.parts == [2] and [str(node.target) for node, _ in plan.rest] == [
        "aten.exp.default", "aten.sin.default", "aten.cumprod.default"]  # fmt: skip
    x = torch.randn(3, 8)
    torch.testing.assert_close(divided(x), x.exp().sin().cumprod(-1).cos().tanh())


@pytest.mark.parametrize("options", [OPTIONS, {"whole_graph": True}], ids=["partition", "whole"])
def test_required_attention(model, options):
    """Dropout is decomposed before the graph is divided: matmuls and a softmax are compiled, and no attention."""
    q = torch.randn(1, 2, 5, 8)

    def dropped(q):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) * 2 + 1

    def served(q):
        return F.scaled_dot_product_attention(q, q, q) * 2 + 1

    with torch.no_grad():
        with pytest.raises(Exception, match=r"1 calls of scaled_dot_product_attention.*0 kernels|dropout in training"):
            torch.compile(dropped, backend="saccade", options={**options, "require": True})(q)
        torch._dynamo.reset()
        found = torch.compile(served, backend="saccade", options={**options, "require": True})(q)
    torch.testing.assert_close(found, served(q))


def test_a_fused_operator_without_kernel_is_left_to_pytorch():
    """Attention that returns its weights."""
    x, weight, bias = torch.randn(2, 7, 16), torch.randn(64, 16), torch.randn(64)

    def fused(x):
        return torch._native_multi_head_attention(x, x, x, 16, 2, weight[:48], bias[:48], weight[48:], bias[48:])

    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(fused, backend="saccade", options=OPTIONS)(x), fused(x))


def test_messages(model):
    x = torch.randn(2, 7, 16)
    with torch.no_grad(), pytest.raises(Exception, match="is not supported") as caught:
        torch.compile(model, backend="saccade", options={"whole_graph": True})(x)
    text = str(caught.value)
    assert re.search(r"aten.cumprod \(2 nodes, the first in layers.0, .*test_torch_partition.py:\d+\)", text), text
    assert re.search(r"aten.median.dim \(in .*test_torch_partition.py:\d+\); the option \"partition\": True", text), text
    with pytest.raises(saccade.CompileError, match=r"aten.cumprod \(2 nodes, the first in layers.0, .*\); .*"
                                                   r"torch.compile\(MODULE, backend=\"saccade\""):  # fmt: skip
        saccade.torch.compile(model, (x,))
    with pytest.raises(Exception, match="expected whole_graph=True"):
        torch.compile(model, backend="saccade", options={"partition": True})(x)
