"""torch.compile(backend="saccade"): attention of PyTorch becomes the operator, the rest stays as it is."""

import copy
import importlib
import math
import tomllib
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from programs import refused
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import saccade
import saccade.torch
import saccade.torch.backend

sdpa = F.scaled_dot_product_attention

pytestmark = pytest.mark.usefixtures("dynamo", "no_grad")


graphs = []


@torch._dynamo.register_backend(name="recording")
def record(graph, inputs):
    """Runs a graph, and notes its number of operator calls and the names of its functions."""
    names = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
    graphs.append((sum(name.startswith(("attention.", "saccade.attention.")) for name in names), names))
    return graph.forward


@pytest.fixture
def operators():
    """What `record` notes."""
    graphs.clear()
    return graphs


def compiled(function, inner="recording", **options):
    return torch.compile(function, backend="saccade", fullgraph=True, options={"inner": inner}, **options)


def tensors(batch=2, heads=4, queries=7, keys=9, kv_heads=None, size=16, dtype=torch.float32):
    torch.manual_seed(0)
    return (torch.randn(batch, heads, queries, size, dtype=dtype),
            *(torch.randn(batch, kv_heads or heads, keys, size, dtype=dtype) for _ in range(2)))


booleans = torch.rand(2, 1, 7, 9, generator=torch.Generator().manual_seed(0)) > 0.3
SDPA = {
    "plain": (lambda q, k, v: sdpa(q * 2, k, v) + 1, {}),
    "scale": (lambda q, k, v: sdpa(q, k, v, scale=0.3), {}),
    "causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True), {}),
    "booleans": (lambda q, k, v: sdpa(q, k, v, booleans), {}),
    "numbers": (lambda q, k, v: sdpa(q, k, v, attn_mask=booleans.float() * 3), {}),
    "numbers in another type": (lambda q, k, v: sdpa(q, k, v, attn_mask=booleans.float()), {"dtype": torch.bfloat16}),
    "mask of keys": (lambda q, k, v: sdpa(q, k, v, booleans[:, :, :1]), {}),
    "mask of two dimensions": (lambda q, k, v: sdpa(q, k, v, booleans[0, 0]), {}),
    "grouped queries": (lambda q, k, v: sdpa(q, k, v, enable_gqa=True), {"kv_heads": 2}),
    "three dimensions": (lambda q, k, v: sdpa(q[0], k[0], v[0], booleans[0, 0]), {}),
    "another size of values": (lambda q, k, v: sdpa(q, k, v[..., :5]), {}),
    "transposed": (lambda q, k, v: sdpa(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2), {"keys": 7}),
}


def tolerance(x):
    """Of values near 1. Both sides round results of bf16, and PyTorch's code for AVX2 the weights too."""
    return {"rtol": 2**-7, "atol": 2**-8} if x.dtype == torch.bfloat16 else {}


@pytest.mark.parametrize("name", SDPA)
def test_sdpa(name, operators):
    function, options = SDPA[name]
    q, k, v = tensors(**options)
    found = compiled(function)(q, k, v)
    torch.testing.assert_close(found, function(q, k, v), **tolerance(q))
    assert [count for count, _ in operators] == [1]


def test_sdpa_of_autocast(operators):
    def function(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return sdpa(q, k, v)

    arguments = tensors()
    found = compiled(function)(*arguments)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, function(*arguments), **tolerance(found))
    with torch.autocast("cpu", torch.bfloat16):
        inside = torch.compile(lambda *x: saccade.torch.scaled_dot_product_attention(*x), backend="eager",
                               fullgraph=True)(*arguments)
    assert torch.equal(inside, found)
    assert [count for count, _ in operators] == [1]


def test_what_saccade_does_not_compute_stays_pytorchs(operators):
    q, k, v = tensors()
    cases = [(lambda: sdpa(q, k[:1], v[:1]), 0), (lambda: sdpa(q, k[:, :, :0], v[:, :, :0]), 0),
             (lambda: sdpa(q, k, v, dropout_p=0.5).shape, 0), (lambda: sdpa(q[None], k[None], v[None]), 0)]
    for function, expected in cases:
        torch._dynamo.reset()
        operators.clear()
        found, own = compiled(function)(), function()
        assert found == own if isinstance(own, torch.Size) else torch.allclose(found, own, equal_nan=True)
        assert all(count == expected for count, _ in operators)


def test_lengths_and_batches_are_dynamic(operators):
    function = lambda q, k, v, mask: sdpa(q, k, v, mask)
    call = compiled(function, dynamic=True)
    make = lambda *sizes: (*tensors(sizes[0], 4, *sizes[1:]), torch.rand(sizes[0], 1, *sizes[1:]) > 0.3)
    call(*make(2, 7, 9))
    before = saccade.cache_info().compilations
    for sizes in ((3, 8, 10), (2, 30, 21)):
        arguments = make(*sizes)
        torch.testing.assert_close(call(*arguments), function(*arguments))
    assert saccade.cache_info().compilations == before
    assert [count for count, _ in operators] == [1]


# --- flex_attention ---------------------------------------------------------------------------------------------------

ids, slopes = torch.arange(128) // 50, torch.tensor([0.5, 0.25, 0.1, 0.0])
blocks = create_block_mask(lambda b, h, i, j: (ids[i] == ids[j]) & (i >= j), None, None, 128, 128, device="cpu")


def with_lse(q, k, v):
    output, rows = flex_attention(q, k, v, block_mask=blocks, return_aux=AuxRequest(lse=True))
    return output, rows.lse


def block_mask_inside(q, k, v):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


FLEX = {
    "score": lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i)),
    "soft-cap": lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: torch.tanh(s / 5) * 5, scale=0.5),
    "mask": lambda q, k, v: flex_attention(q, k, v, block_mask=blocks),
    "score and mask": lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s * slopes[h], block_mask=blocks),
    "log-sum-exp": with_lse,
    "mask made inside": block_mask_inside,
}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", FLEX)
def test_flex_attention(name, operators):
    arguments = tensors(queries=128, keys=128)
    found = compiled(FLEX[name])(*arguments)
    torch.testing.assert_close(found, FLEX[name](*arguments))
    assert [count for count, _ in operators] == [1]
    assert name == "mask made inside" or not any("vmap" in target for target in operators[0][1])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("sizes", [(64, 64), (64, 1 << 30)], ids=str)
def test_masks_given_by_lists_of_blocks_only_are_read(sizes, operators):
    numbers = torch.ones(1, 1, 2, dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(numbers, numbers[..., None] - 1, BLOCK_SIZE=sizes, seq_lengths=(128, 128))
    q, k, v = tensors(queries=128, keys=128)
    output = compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=mask))(q, k, v)
    assert [count for count, _ in operators] == [1]
    shown = min(sizes[1], 128)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k[:, :, :shown], v[:, :, :shown]), rtol=0, atol=1e-5)


def test_numbers_that_flex_functions_close_over_are_dynamic(operators):
    function = lambda q, k, v, n: flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(i - j < n, s, -100.0))
    call = compiled(function, dynamic=True)
    arguments = tensors(queries=128, keys=128)
    call(*arguments, 5)
    before = saccade.cache_info().compilations
    found = call(*arguments, 9)
    assert saccade.cache_info().compilations == before
    expected = saccade.attention(*arguments, score=lambda s, b, h, i, j: torch.where(i - j < 9, s, -100.0))
    torch.testing.assert_close(found, expected)
    assert len(operators) == 1


# --- modules ----------------------------------------------------------------------------------------------------------


def test_multi_head_attention(operators):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval()
    x, memory = torch.randn(2, 9, 64), torch.randn(2, 5, 64)
    padding = torch.arange(9).expand(2, 9) > torch.tensor([[6], [8]])
    causal = torch.ones(9, 9).triu(1).bool()
    cases = [((x, x, x), {"attn_mask": causal, "key_padding_mask": padding}), ((x, memory, memory), {}),
             ((x, x, x), {"attn_mask": torch.randn(8, 9, 9)})]
    for arguments, options in cases:
        torch._dynamo.reset()
        operators.clear()
        call = lambda *given: module(*given, need_weights=False, **options)[0]
        torch.testing.assert_close(compiled(call)(*arguments), call(*arguments))
        assert [count for count, _ in operators] == [1], options
    torch._dynamo.reset()
    operators.clear()
    output, weights = compiled(lambda x: module(x, x, x))(x)  # the weights are computed by PyTorch
    torch.testing.assert_close((output, weights), module(x, x, x))
    assert [count for count, _ in operators] == [0]


def test_encoders_and_decoders_of_transformers(operators):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    tokens, padding = torch.randint(0, 50, (2, 10)), torch.ones(2, 10, dtype=torch.long)
    padding[1, 7:] = 0
    bert = transformers.BertModel(transformers.BertConfig(**sizes, attn_implementation="sdpa")).eval()
    llama = transformers.LlamaModel(transformers.LlamaConfig(**sizes, num_key_value_heads=2,
                                                             attn_implementation="sdpa", use_cache=False)).eval()
    for model in (bert, llama):
        torch._dynamo.reset()
        operators.clear()
        call = torch.compile(model, backend="saccade", options={"inner": "recording"})
        for given in (tokens, torch.cat([tokens, tokens], 1)[:, :13]):
            mask = F.pad(padding, (0, given.shape[1] - 10))
            expected = model(input_ids=given, attention_mask=mask).last_hidden_state
            found = call(input_ids=given, attention_mask=mask).last_hidden_state
            torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=2e-5, rtol=2e-5)
        counts = [count for count, names in operators if any("linear" in name for name in names)]
        assert counts and set(counts) == {2}
        assert not any("scaled_dot_product" in name for _, names in operators for name in names)


def test_operators_of_saccade_stay(operators):
    q, k, v = tensors()
    function = lambda q, k, v: saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (i - j)) + sdpa(
        q, k, v)
    torch.testing.assert_close(compiled(function)(q, k, v), function(q, k, v))
    assert [count for count, _ in operators] == [2]
    assert not any(node in ("empty", "new_empty") for node in operators[0][1])


def test_inductor_compiles_the_rest():
    """The default: the only test of the suite that calls Inductor."""
    arguments = tensors()
    function = lambda q, k, v: sdpa(q.relu() + 1, k, v, booleans) * 2
    found = torch.compile(function, backend="saccade", fullgraph=True)(*arguments)
    torch.testing.assert_close(found, function(*arguments))


def test_the_installed_package_registers_the_backend(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["saccade"].partition(":")
    assert getattr(importlib.import_module(module), name) is torch._dynamo.lookup_backend("saccade")


# --- gradients --------------------------------------------------------------------------------------------------------


def test_gradients_are_computed_by_saccade(operators):
    q, k, v = tensors()
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", saccade.Warning)
        q.requires_grad_()
        loss = compiled(lambda q, k, v: sdpa(q, k, v) + sdpa(k, k, v)[:, :, :7])(q, k, v).sum()
        loss.backward()
    assert [count for count, _ in operators] == [2]
    expected = copy.copy(q.grad)
    q.grad = None
    with torch.enable_grad():
        sdpa(q, k, v).sum().backward()
    torch.testing.assert_close(q.grad, expected)


# --- the whole graph --------------------------------------------------------------------------------------------------


def test_whole_graphs_are_programs_of_saccade():
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 192)

    def block(x):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in linear(F.layer_norm(x, (64,))).chunk(3, -1))
        return x + sdpa(q, k, v, is_causal=True).transpose(1, 2).flatten(-2), x.sum(-1)

    call = torch.compile(block, backend="saccade", fullgraph=True, dynamic=True, options={"whole_graph": True})
    for batch, length in ((2, 9), (3, 12)):
        x = torch.randn(batch, length, 64)
        torch.testing.assert_close(call(x), block(x), atol=1e-5, rtol=1e-5)
    x = torch.randn(4, 4)
    whole = lambda function: torch.compile(function, backend="saccade", options={"whole_graph": True})
    refused(torch._dynamo.exc.BackendCompilerFailed, ["_fft_r2c", "not supported"], whole(lambda x: torch.fft.fft(x).real), x)


def test_whole_graphs_return_tensors():
    x, function = torch.ones(3, 4), lambda x: (x + 1, x.shape[0])
    compiled = lambda **options: torch.compile(function, backend="saccade", dynamic=True, options={"whole_graph": True, **options})
    refused(torch._dynamo.exc.BackendCompilerFailed, ["a number, expected tensors", '"partition": True returns numbers too'],
            compiled(), x)
    torch._dynamo.reset()
    found, rows = compiled(partition=True)(x)
    assert torch.equal(found, x + 1) and rows == 3


def test_wrong_options_are_refused():
    x = torch.ones(2)
    call = lambda **options: torch.compile(lambda x: x + 1, backend="saccade", options=options)(x)
    refused(torch._dynamo.exc.BackendCompilerFailed, ["whole_graph is 1"], lambda: call(whole_graph=1))
    torch._dynamo.reset()
    refused(torch._dynamo.exc.BackendCompilerFailed, ["inner is 3"], lambda: call(inner=3))
    torch._dynamo.reset()
    refused(torch._dynamo.exc.BackendCompilerFailed, ["no other options"], lambda: call(whole_graph=True, inner="eager"))
    torch._dynamo.reset()
    refused(torch._dynamo.exc.BackendCompilerFailed, ["epilogue_fusion", "inner, whole_graph, partition, require and explain"], lambda: call(inner="eager", epilogue_fusion=True))
    assert math.isfinite(call(inner="eager").sum())


@pytest.mark.parametrize(("options", "words"), [
    ({"whole_grph": True}, "has no option 'whole_grph', did you mean 'whole_graph'"),
    ({"whole_graph": True, "partitoin": True}, "has no option 'partitoin', did you mean 'partition'"),
    ({"whole_graph": True, "inner": "eager", "max_autotune": True}, "no other options than partition, require and explain: found inner, max_autotune"),
    ({"iner": "eager"}, "has no option 'iner', did you mean 'inner'"),
    ({"max_autotun": True}, "has no option 'max_autotun', did you mean 'max_autotune'"),
    ({"inner": "eager", "colour": 1}, "has no option 'colour': its options are inner, whole_graph, partition, require and explain"),
    ({"inner": "eager", "max_autotune": True}, "the options max_autotune are those of Inductor, found inner='eager'"),
])  # fmt: skip
def test_unknown_options_are_refused(options, words):
    q, k, v = tensors()
    with pytest.raises(Exception, match=words):
        torch.compile(lambda x: sdpa(x, k, v), backend="saccade", options=options)(q)


@pytest.mark.parametrize("found", ["g++", "clang++", "my-c++", ""])
def test_inductor_needs_a_compiler_without_an_input_on_a_gpu(found, monkeypatch):
    monkeypatch.setenv("CXX", "my-c++")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == found else None)
    on_cpu = torch.zeros(2)
    with torch._subclasses.FakeTensorMode():
        on_gpu = torch.empty(2, device="cuda")
    for inputs, is_on_gpu in (([], False), ([on_cpu, 3], False), ([on_gpu], True), ([3, on_cpu, on_gpu], True)):
        assert saccade.torch.backend.has_compiler(inputs) is (is_on_gpu or bool(found)), inputs


@pytest.mark.parametrize(("options", "message"), [
    ({"mode": "max-autotun"}, "mode is 'max-autotun', did you mean 'max-autotune'"),
    ({"options": {3: 1}}, "options is {3: 1}, expected a dict from names to values"),
    ({"options": [1]}, "options is \\[1\\], expected a dict"),
])
def test_unknown_modes_and_options_are_named(options, message):
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        torch.compile(lambda x: x + 1, backend="saccade", **options)(torch.ones(2))


def test_modes_are_those_of_inductor():
    call = torch.compile(lambda x: x + 1, backend="saccade", mode="default")
    assert torch.equal(call(torch.ones(2)), 2 * torch.ones(2))
