"""Output gates and differential attention against PyTorch in float64, with masks, layouts, ragged batches and gradients."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import saccade
import saccade.torch

RANDOM = torch.Generator().manual_seed(5)
ACTIVATIONS = {"sigmoid": torch.sigmoid, "softplus": lambda x: torch.log(1 + torch.exp(x)), "none": lambda x: x}
# Of results about 1: attention rounds once, and the gate or the difference once more.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}


def drawn(*shape, dtype=torch.float32, requires_grad=False):
    return torch.randn(*shape, generator=RANDOM).to(dtype).requires_grad_(requires_grad)


def plain(q, k, v, visible=None):
    """Attention [batch, heads, length, head size] in float64; rows without keys give 0."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v


def broadcast(factor):
    """A gate or λ [batch, heads, queries, head size], [batch, heads, queries] or [heads] in float64."""
    factor = factor.double()
    return {4: lambda: factor, 3: lambda: factor[..., None], 1: lambda: factor[:, None, None]}[factor.ndim]()


def bottom_right(queries, keys, window=None):
    distance = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
    return (distance <= 0) & (distance > -(window or keys + queries))


def close(found, expected, dtype=torch.float32):
    torch.testing.assert_close(torch.as_tensor(found).double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(2, 4, -1, 24), (2, 4, -1), (4,)], ids=["elements", "rows", "heads"])
@pytest.mark.parametrize("queries", [30, 1])
def test_a_gate(dtype, activation, shape, queries):
    q, k, v = (drawn(2, h, n, d, dtype=dtype) for h, n, d in ((4, queries, 16), (2, 40, 16), (2, 40, 24)))
    gate = drawn(*[queries if n == -1 else n for n in shape], dtype=dtype)
    found = saccade.attention(q, k, v, gate=gate, gate_activation=activation, causal="bottom_right", window=9)
    expected = plain(q, k, v, bottom_right(queries, 40, 9)) * ACTIVATIONS[activation](broadcast(gate))
    close(found, expected, dtype)


def test_rows_without_keys_lengths_and_the_log_sum_exp():
    q, k, v, gate = drawn(2, 4, 20, 16), drawn(2, 2, 13, 16), drawn(2, 2, 13, 16), drawn(2, 4, 20)
    lengths = torch.tensor([13, 4], dtype=torch.int32)
    found, lse = saccade.attention(q, k, v, gate=gate, kv_len=lengths, causal="bottom_right", return_lse=True)
    own = torch.arange(20)[:, None] + lengths[:, None, None, None] - 20
    visible = (torch.arange(13) <= own) & (torch.arange(13) < lengths[:, None, None, None])
    close(found, plain(q, k, v, visible) * torch.sigmoid(broadcast(gate)))
    assert (found[1, :, :16] == 0).all() and (lse[1, :, :16] == -math.inf).all()
    plain_lse = saccade.attention(q, k, v, kv_len=lengths, causal="bottom_right", return_lse=True)[1]
    torch.testing.assert_close(lse, plain_lse)


@pytest.mark.parametrize("layout", ["bshd", "hbsd", "bhds"])
def test_a_gate_has_the_layout_of_the_output(layout):
    axes = ["bhsd".index(dim) for dim in layout]
    rows = ["bhs".index(dim) for dim in layout if dim != "d"]
    q, k, v, gate = (drawn(2, 4, 12, 16) for _ in range(4))
    of_rows = drawn(2, 4, 12)
    for factor, given in ((gate, gate.permute(axes)), (of_rows, of_rows.permute(rows))):
        found = saccade.attention(*[x.permute(axes) for x in (q, k, v)], gate=given, layout=layout, causal="top_left")
        expected = plain(q, k, v, torch.ones(12, 12).tril().bool()) * torch.sigmoid(broadcast(factor))
        close(found.permute([layout.index(dim) for dim in "bhsd"]), expected)


def test_a_ragged_batch_with_gates_of_rows():
    lengths = [7, 0, 1, 33]
    offsets = torch.tensor([0, 7, 7, 8, 41], dtype=torch.int32)
    q, k, v, gate = drawn(44, 4, 16), drawn(44, 2, 16), drawn(44, 2, 16), drawn(44, 4)
    found = saccade.attention(q, k, v, cu_seqlens_q=offsets, cu_seqlens_k=offsets, causal="top_left", gate=gate)
    assert (found[41:] == 0).all()
    for first, length in zip(offsets.tolist(), lengths):
        parts = [x[None, first:first + length].transpose(1, 2) for x in (q, k, v)]
        expected = plain(*parts, torch.ones(length, length).tril().bool())
        expected = expected * torch.sigmoid(gate[first:first + length].T.double())[None, :, :, None]
        close(found[None, first:first + length].transpose(1, 2), expected)


def test_scores_masks_sinks_and_strides():
    q, k, v, gate = (drawn(2, 20, 4, 16).transpose(1, 2) for _ in range(4))
    slopes, sink = torch.tensor([0.5, 0.25, 0.1, 0.0]), drawn(4)
    found = saccade.attention(q, k, v, gate=gate, score=lambda s, b, h, i, j: s + slopes[h] * (j - i), sink=sink,
                              mask=lambda b, h, i, j: (i + j) % 3 != 0)
    distance = torch.arange(20) - torch.arange(20)[:, None]
    scores = q.double() @ k.double().mT / 4 + slopes.double()[:, None, None] * distance
    scores = scores.masked_fill((torch.arange(20) + torch.arange(20)[:, None]) % 3 == 0, -math.inf)
    sinks = sink.double()[:, None, None].expand(2, 4, 20, 1)
    weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    close(found, weights @ v.double() * torch.sigmoid(gate.double()))


def test_numpy_and_out():
    q, k, v, gate = (drawn(1, 2, 9, 16).numpy() for _ in range(4))
    out = np.empty_like(q)
    assert saccade.attention(q, k, v, gate=gate, out=out) is out
    close(out, plain(*[torch.from_numpy(x) for x in (q, k, v)]) * torch.sigmoid(torch.from_numpy(gate).double()))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("needed", ["qkvg", "g", "q"])
def test_gradients_of_a_gated_call(activation, needed):
    ours = [drawn(2, 4, 11, 16, requires_grad=name in needed) for name in "qkv"]
    ours.append(drawn(2, 4, 11, requires_grad="g" in needed))
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in ours]
    upstream = drawn(2, 4, 11, 16)
    out = saccade.attention(*ours[:3], gate=ours[3], gate_activation=activation, causal="top_left")
    expected = plain(*exact[:3], torch.ones(11, 11).tril().bool()) * ACTIVATIONS[activation](exact[3])[..., None]
    close(out.detach(), expected.detach())
    out.backward(upstream)
    expected.backward(upstream.double())
    for x, y in zip(ours, exact):
        assert (x.grad is None) == (y.grad is None)
        if y.grad is not None:
            close(x.grad, y.grad)


def test_torch_compile_traces_gated_calls():
    q, k, v, gate = (drawn(1, 2, 12, 16, requires_grad=True) for _ in range(4))
    step = torch.compile(lambda *x: saccade.attention(*x[:3], gate=x[3], causal="top_left", return_lse=True),
                         fullgraph=True)
    found, lse = step(q, k, v, gate)
    expected, plain_lse = saccade.attention(q, k, v, gate=gate, causal="top_left", return_lse=True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(lse, plain_lse)
    gradients = [torch.autograd.grad(x.square().sum(), (q, k, v, gate)) for x in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_wrong_gates_are_refused_by_name():
    q, k, v = (drawn(2, 4, 6, 16) for _ in range(3))
    wrong = [({"gate": drawn(3)}, ValueError, r"gate has shape \(3,\), expected \(4,\)"),
             ({"gate": drawn(2, 4, 6, 15)}, ValueError, r"gate has shape .* expected \(2, 4, 6, 16\)"),
             ({"gate": drawn(2, 6)}, TypeError, "gate has 2 dimensions"),
             ({"gate": 0.5}, TypeError, "gate is 0.5, expected an array"),
             ({"gate": drawn(4).int()}, TypeError, "gate has element type int32"),
             ({"gate": np.ones(4, np.float32)}, TypeError, "gate is"),
             ({"gate": drawn(4), "gate_activation": "relu"}, ValueError, "gate_activation is 'relu'"),
             ({"gate": drawn(4), "gate_activation": None}, TypeError, "gate_activation is None"),
             ({"gate_activation": "tanh"}, ValueError, "gate_activation is 'tanh'")]  # fmt: skip
    for options, error, message in wrong:
        for needed in (False, True):
            with pytest.raises(error, match=message):
                saccade.attention(q.clone().requires_grad_(needed), k, v, **options)
    # The plan of a right call does not hide a wrong one.
    saccade.attention(q, k, v, gate=drawn(2, 4, 6))
    with pytest.raises(ValueError, match="gate has shape"):
        saccade.attention(q, k, v, gate=drawn(2, 4, 7))


GRADIENTS = """
#all = affine_map<(b, h, s, d) -> (b, h, s, d)>
#rows = affine_map<(b, h, s, d) -> (b, h, s)>
func.func @gated(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %v: tensor<?x?x?x16xf32>, %gate: tensor<?x?x?xf32>)
    -> tensor<?x?x?x16xf32> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left>
    : (tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32>
  %r = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%o, %gate : tensor<?x?x?x16xf32>, tensor<?x?x?xf32>) outs(%q : tensor<?x?x?x16xf32>) {
  ^bb0(%x: f32, %g: f32, %unused: f32):
    %one = arith.constant 1.0 : f32
    %n = arith.negf %g : f32
    %e = math.exp %n : f32
    %d = arith.addf %e, %one : f32
    %y = arith.divf %x, %d : f32
    linalg.yield %y : f32
  } -> tensor<?x?x?x16xf32>
  return %r : tensor<?x?x?x16xf32>
}
"""


def test_the_gradient_function_of_a_gated_program():
    call = saccade.torch.differentiable(saccade.compile(GRADIENTS), "gated")
    ours = [drawn(2, h, 11, 16, requires_grad=True) for h in (4, 2, 2)] + [drawn(2, 4, 11, requires_grad=True)]
    exact = [x.detach().double().requires_grad_() for x in ours]
    out = call(*ours)
    expected = plain(*exact[:3], torch.ones(11, 11).tril().bool()) * torch.sigmoid(exact[3])[..., None]
    close(out.detach(), expected.detach())
    upstream = drawn(2, 4, 11, 16)
    out.backward(upstream)
    expected.backward(upstream.double())
    for x, y in zip(ours, exact):
        close(x.grad, y.grad)


class Gated(torch.nn.Module):
    """The attention of Qwen3-Next without norms and rotations."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(48, n, bias=False) for n in (128, 32, 32))

    def forward(self, x):
        rows = x.shape[:-1]
        q, gate = self.query(x).view(*rows, 4, 32).chunk(2, dim=-1)
        k, v = (layer(x).view(*rows, 2, 16).transpose(1, 2) for layer in (self.key, self.value))
        o = torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True, enable_gqa=True)
        return o.transpose(1, 2).reshape(*rows, -1).contiguous() * torch.sigmoid(gate.reshape(*rows, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gate_of_an_exported_model_is_in_the_tasks_of_attention(dtype):
    model, x = Gated().to(dtype).eval(), drawn(2, 21, 48, dtype=dtype)
    dynamic = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    compiled = saccade.torch.compile(model, (x,), dynamic_shapes=dynamic)
    text = saccade.torch.read(torch.export.export(model, (x,), dynamic_shapes=dynamic)).text
    launches = [line for line in saccade.compile(text).ir("bufferize").splitlines() if "attn.launch @main." in line]
    assert any("@main.attention(" in line for line in launches)
    # The last launch is a part of the attention.
    assert "@main.attention" in launches[-1]
    for length in (3, 40):
        x = drawn(2, length, 48, dtype=dtype)
        close(compiled(x).detach(), model.double()(x.double()).detach(), dtype)
        model.to(dtype)


# --- differential attention -------------------------------------------------------------------------------------------


def maps(x, pairs):
    return (x[:, 0::2], x[:, 1::2]) if pairs == "interleaved" else x.chunk(2, 1)


def differential(q, k, v, lam, pairs="interleaved", visible=None, norm_eps=None, norm_weight=None, factor=1.0):
    queries = maps(q, pairs)
    keys = (k, k) if k.shape[1] == v.shape[1] else maps(k, pairs)
    first, second = (plain(*each, v, visible) for each in zip(queries, keys))
    found = first - (broadcast(lam) if torch.is_tensor(lam) else lam) * second
    if norm_eps is not None:
        found = found / (found.square().mean(-1, keepdim=True) + norm_eps).sqrt() * factor
        found = found if norm_weight is None else found * norm_weight.double()
    return found


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["paired", "shared"])
@pytest.mark.parametrize("norm", [{}, {"norm_eps": 1e-5, "factor": 0.4}, {"norm_eps": 1e-5, "norm_weight": True}],
                         ids=["plain", "norm", "weighted"])  # fmt: skip
@pytest.mark.parametrize("queries", [30, 2])
def test_differential_attention(dtype, pairs, kv_heads, norm, queries):
    q, k, v = (drawn(2, h, n, d, dtype=dtype) for h, n, d in ((8, queries, 16), (kv_heads, 40, 16), (2, 40, 32)))
    lam = torch.rand(*[(4,), (2, 4, queries)][queries == 2], generator=RANDOM).to(dtype)
    if "norm_weight" in norm:
        norm = norm | {"norm_weight": drawn(32, dtype=dtype)}
    found = saccade.differential_attention(q, k, v, lam, pairs=pairs, causal="bottom_right", window=20, **norm)
    expected = differential(q, k, v, lam, pairs, bottom_right(queries, 40, 20), **norm)
    scale = max(1, expected.abs().max().item())
    close(found / scale, expected / scale, dtype)


def test_differential_attention_in_a_ragged_batch_and_another_layout():
    offsets = torch.tensor([0, 5, 29], dtype=torch.int64)
    q, k, v, lam = drawn(29, 8, 16), drawn(29, 4, 16), drawn(29, 2, 32), torch.rand(29, 4, generator=RANDOM)
    found = saccade.differential_attention(q, k, v, lam, cu_seqlens_q=offsets, cu_seqlens_k=offsets, causal="top_left")
    for first, end in ((0, 5), (5, 29)):
        parts = [x[None, first:end].transpose(1, 2) for x in (q, k, v)]
        expected = differential(*parts, lam[first:end].T[None], visible=torch.ones(end - first, end - first).tril().bool())
        close(found[None, first:end].transpose(1, 2), expected)
    q, k, v = drawn(2, 8, 20, 16), drawn(2, 8, 20, 16), drawn(2, 4, 20, 32)
    rows = [x.transpose(1, 2) for x in (q, k, v)]
    mask = torch.rand(20, 20, generator=RANDOM) > 0.6
    found = saccade.differential_attention(*rows, 0.3, layout="bshd", mask=lambda b, h, i, j: mask[i, j], norm_eps=1e-6)
    close(found.transpose(1, 2), differential(q, k, v, 0.3, visible=mask, norm_eps=1e-6))


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_of_differential_attention(is_compiled):
    ours = [drawn(1, 8, 14, 16, requires_grad=True), drawn(1, 4, 14, 16, requires_grad=True),
            drawn(1, 2, 14, 32, requires_grad=True), torch.rand(4, generator=RANDOM).requires_grad_(),
            drawn(32, requires_grad=True)]  # fmt: skip
    exact = [x.detach().double().requires_grad_() for x in ours]

    def call(q, k, v, lam, weight):
        return saccade.differential_attention(q, k, v, lam, pairs="halves", norm_eps=1e-5, norm_weight=weight,
                                              factor=0.7, causal="top_left")

    out = (torch.compile(call, fullgraph=True) if is_compiled else call)(*ours)
    expected = differential(*exact[:4], "halves", torch.ones(14, 14).tril().bool(), 1e-5, exact[4], 0.7)
    close(out.detach(), expected.detach())
    upstream = drawn(*out.shape)
    out.backward(upstream)
    expected.backward(upstream.double())
    for x, y in zip(ours, exact):
        scale = max(1, y.grad.abs().max().item())
        torch.testing.assert_close(x.grad.double() / scale, y.grad / scale, rtol=1e-4, atol=1e-4)


def test_numpy_arrays():
    q, k, v = (drawn(1, h, 9, 16) for h in (4, 4, 2))
    found = saccade.differential_attention(q.numpy(), k.numpy(), v.numpy(), 0.25, norm_eps=1e-5)
    assert isinstance(found, np.ndarray)
    close(found, differential(q, k, v, 0.25, norm_eps=1e-5))


def test_wrong_arguments_of_differential_attention_are_refused_by_name():
    q, k, v = drawn(1, 4, 6, 16), drawn(1, 4, 6, 16), drawn(1, 2, 6, 16)
    wrong = [({"lam": math.nan}, ValueError, "lam is nan"), ({"lam": "0"}, TypeError, "lam is '0'"),
             ({"lam": drawn(3)}, ValueError, r"lam has shape \(3,\), expected \(2,\)"),
             ({"pairs": "quarters"}, ValueError, "pairs is 'quarters'"),
             ({"norm_weight": drawn(16)}, ValueError, "norm_eps is None"),
             ({"factor": 0.5}, ValueError, "norm_eps is None"), ({"norm_eps": -1}, ValueError, "norm_eps is -1"),
             ({"norm_eps": 1e-5, "norm_weight": drawn(15)}, ValueError, "norm_weight has shape"),
             ({"norm_eps": 1e-5, "norm_weight": 2.0}, TypeError, "norm_weight is 2.0"),
             ({"q": drawn(1, 3, 6, 16)}, ValueError, "q has 3 heads, expected an even number"),
             ({"k": drawn(1, 6, 6, 16)}, ValueError, "k has 6 heads, expected 4"),
             ({"layout": "sd"}, ValueError, "layout is 'sd', expected one with h"),
             ({"return_lse": True}, TypeError, "unexpected keyword argument 'return_lse'"),
             ({"q": [1.0]}, TypeError, "q is a list")]  # fmt: skip
    for given, error, message in wrong:
        with pytest.raises(error, match=message):
            saccade.differential_attention(**{"q": q, "k": k, "v": v, "lam": 0.5} | given)
