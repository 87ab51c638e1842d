"""Gradients of the torch functions against PyTorch's own in float64, and where they are recorded."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import saccade
import saccade.torch

ours = saccade.torch.scaled_dot_product_attention
draw = torch.Generator().manual_seed(5)


def leaf(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype).requires_grad_()


q, k, v = leaf(2, 4, 5, 8), leaf(2, 4, 7, 8), leaf(2, 4, 7, 6)
empty_row = torch.rand(5, 7, generator=draw) > 0.3
empty_row[2] = False


@pytest.fixture(autouse=True)
def quiet():
    """A call that PyTorch computes is a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message="Warning only once")
        torch._dynamo.reset()
        yield


def exact(*arguments, **options):
    """PyTorch's function in plain arithmetic."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **options)


def gradients(function, *tensors):
    """The results and the gradients of the tensors that require grad, for distinct gradients of the results."""
    tensors = [x.detach().clone().requires_grad_(x.requires_grad) for x in tensors]
    results = function(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    total = sum((x * torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in results)
    return [*results, *torch.autograd.grad(total, [x for x in tensors if x.requires_grad])]


def same(function, expected, *tensors, tolerance=1e-11):
    for x, y in zip(gradients(function, *tensors), gradients(expected, *tensors), strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


def enabled(*arguments, **options):
    with saccade.torch.enabled():
        return F.scaled_dot_product_attention(*arguments, **options)


# --- scaled_dot_product_attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [ours, enabled])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3, "is_causal": True}])
def test_options(function, options):
    same(lambda *x: function(*x, **options), lambda *x: exact(*x, **options), q, k, v)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (4, 1, 7), (2, 1, 5, 7), (2, 4, 5, 7)])
def test_masks(shape):
    bias = leaf(*shape)
    same(ours, exact, q, k, v, bias)
    same(ours, exact, q.detach(), k, v, bias.detach())
    same(lambda *x: ours(*x, bias > 0), lambda *x: exact(*x, bias > 0), q, k, v)


def test_rows_without_keys_have_no_gradient():
    numbers = torch.zeros(5, 7, dtype=torch.float64).masked_fill(~empty_row, -torch.inf).requires_grad_()
    same(ours, exact, q, k, v, numbers)
    same(lambda *x: ours(*x, empty_row), lambda *x: exact(*x, empty_row), q, k, v)
    output, gradient, *_ = gradients(lambda q: ours(q, k, v, empty_row), q)
    assert not gradient[:, :, 2].any() and not output[:, :, 2].any()


@pytest.mark.parametrize("shapes", [
    ((5, 8), (7, 8), (7, 6)), ((3, 5, 8), (3, 7, 8), (3, 7, 6)), ((2, 3, 4, 5, 8), (1, 1, 1, 7, 8), (2, 3, 1, 7, 6)),
    ((1, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))])
def test_broadcast_dimensions(shapes):
    same(ours, exact, *[leaf(*shape) for shape in shapes])


def test_grouped_heads():
    same(lambda *x: ours(*x, enable_gqa=True), lambda *x: exact(*x, enable_gqa=True), q, leaf(2, 2, 7, 8),
         leaf(2, 2, 7, 6))


def test_the_registry_of_flash_attention():
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

    def fused(*arguments, **options):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(*arguments, **options)

    saccade.torch.register_flash_impl()
    activate_flash_attention_impl("saccade")
    try:
        before = saccade.cache_info().compilations
        value = leaf(2, 4, 7, 8)
        same(lambda *x: fused(*x, is_causal=True, scale=0.3), lambda *x: exact(*x, is_causal=True, scale=0.3), q, k,
             value)
        same(lambda *x: fused(*x, empty_row), lambda *x: exact(*x, empty_row), q, k, value)
        assert saccade.cache_info().compilations > before
    finally:
        restore_flash_attention_impl()


def test_multi_head_attention_with_padding():
    module = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    x, padding = leaf(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    names = [name for name, _ in module.named_parameters()]

    def function(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters)), (x, x, x),
                                          {"key_padding_mask": padding, "need_weights": False})[0]

    def by_saccade(*arguments):
        with saccade.torch.enabled():
            return function(*arguments)

    same(by_saccade, function, x, *module.parameters())


# --- flex_attention ---------------------------------------------------------------------------------------------------

MODS = {
    "a computed temperature": (lambda x: [x[0, 0, 0, 0].detach().requires_grad_()],
                               lambda t: lambda s, b, h, i, j: s * t.exp(), lambda s, t: s * t.exp()),
    "slopes": (lambda x: [leaf(4)], lambda x: lambda s, b, h, i, j: s + x[h] * (i - j),
               lambda s, x: s + x[:, None, None] * (torch.arange(5)[:, None] - torch.arange(7))),
    "a capped bias": (lambda x: [leaf(4, 5, 7), leaf()], lambda x, y: lambda s, b, h, i, j: torch.tanh(s + x[h, i, j]) * y,
                      lambda s, x, y: torch.tanh(s + x) * y),
}


@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize("replaces", [False, True])
def test_captured_tensors(name, replaces):
    make, mod, plain = MODS[name]
    if replaces and name == "a computed temperature":
        pytest.skip("PyTorch's functions have elements only")

    def expected(q, k, v, *captured):
        scores = plain(q @ k.transpose(-1, -2) / 8**0.5, *captured)
        return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)

    def found(q, k, v, *captured):
        if not replaces:
            return saccade.torch.flex_attention(q, k, v, score_mod=mod(*captured), return_lse=True)
        with saccade.torch.enabled():
            return flex_attention(q, k, v, score_mod=mod(*captured), return_lse=True)

    same(found, expected, q, k, v, *make(q))


def test_block_masks_and_no_keys():
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 7, device="cpu")
    same(lambda *x: saccade.torch.flex_attention(*x, block_mask=mask), lambda *x: exact(*x, is_causal=True), q, k, v)
    none = gradients(saccade.torch.flex_attention, q, leaf(2, 4, 0, 8), leaf(2, 4, 0, 6))
    assert [x.shape for x in none[1:]] == [(2, 4, 5, 8), (2, 4, 0, 8), (2, 4, 0, 6)] and not none[1].any()


# --- what has no gradient ---------------------------------------------------------------------------------------------


def test_what_cannot_be_differentiated_is_an_error():
    gradient, = torch.autograd.grad(saccade.attention(q, k, v).sin().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        gradient.sum().backward()
    with pytest.raises(saccade.CompileError, match="not proved proportional"):
        saccade.attention(q, k, v, weight=lambda p, b, h, i, j: p * p)
    with pytest.raises(ValueError, match="out is given, expected None: an input requires grad"):
        saccade.attention(q, k, v, out=torch.empty(2, 4, 5, 6, dtype=torch.float64))


def test_the_row_maximum_has_no_gradient():
    output, lse, largest, index = saccade.attention(q, k, v, return_lse=True, return_max=True)
    assert output.requires_grad and lse.requires_grad and not largest.requires_grad
    with torch.no_grad():
        for x, y in zip((output, lse, largest, index), saccade.attention(q, k, v, return_lse=True, return_max=True)):
            torch.testing.assert_close(x, y, check_dtype=True)  # calls without gradients may use split-KV


def test_only_what_is_needed_is_computed():
    from saccade import _program

    program = "func.func @attention(%q: tensor<?x8xf32>, %x: tensor<?xi64>, %scale: f32)\n    -> (tensor<?xf32>) {\n}"
    text = _program.differentiated(program, [False, False, False])
    assert text.count("{attn.no_gradient}") == 2 and "attributes {attn.gradient}" in text
    slopes = leaf(4)
    assert gradients(lambda x: saccade.attention(q.detach(), k.detach(), v.detach(), score=saccade.scores.alibi(x)),
                     slopes)[1].shape == (4,)


def test_compiled_programs():
    text = """
    func.func @f(%q: tensor<?x8xf32>, %i: tensor<?xi64>) -> (tensor<?x8xf32>, tensor<?xi64>) attributes {attn.gradient} {
      %o = attn.attention %q[s,d], %q[s,d], %q[s,d]
        : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
      return %o, %i : tensor<?x8xf32>, tensor<?xi64>
    }"""
    f = saccade.torch.differentiable(saccade.compile(text), "f")
    x, index = leaf(5, 8, dtype=torch.float32), torch.arange(3)
    output, same_index = f(x, index)
    assert torch.equal(same_index, index)
    gradient, = torch.autograd.grad(output.sin().sum(), x, create_graph=True)
    expected, = torch.autograd.grad(exact(x, x, x).sin().sum(), x)
    torch.testing.assert_close(gradient, expected)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        gradient.sum().backward()
    with pytest.raises(KeyError, match=r"no function 'g'.*attn.gradient"):
        saccade.torch.differentiable(saccade.compile(text), "g")
    with pytest.raises(TypeError, match=r"f takes 2 arguments \(q, i\), found 1"):
        f(x)


# --- torch.compile, checkpoint, autocast, torch.func ------------------------------------------------------------------


def attend(q, k, v, slopes, t):
    return saccade.attention(q, k, v, score=lambda s, b, h, i, j: s * torch.exp(t) + slopes[h] * (i - j),
                             causal="bottom_right", sink=slopes)


@pytest.mark.parametrize("backend", ["aot_eager", "saccade"])
def test_whole_graphs_are_compiled(backend):
    tensors = q, k, v, leaf(4), leaf()
    same(torch.compile(attend, backend=backend, fullgraph=True), attend, *tensors)


def test_modules_are_trained_by_the_backend():
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).double()
    compiled = torch.compile(layer, backend="saccade", fullgraph=True, options={"inner": "aot_eager"})
    x, found = leaf(2, 9, 16), []
    for function in (layer, compiled):
        layer.zero_grad()
        function(x).sin().sum().backward()
        found.append([p.grad.clone() for p in layer.parameters()])
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="whole_graph does not support"):
        torch.compile(layer, backend="saccade", options={"whole_graph": True})(x)


def test_checkpoints():
    tensors = q, k, v, leaf(4), leaf()
    same(lambda *x: checkpoint(attend, *x, use_reentrant=False), attend, *tensors)
    expected = torch.autograd.grad(attend(*tensors).sum(), tensors)
    copies = [x.detach().clone().requires_grad_() for x in tensors]
    checkpoint(attend, *copies, use_reentrant=True).sum().backward()
    assert all(torch.equal(x.grad, y) for x, y in zip(copies, expected))


def test_autocast():
    single = [x.detach().float().requires_grad_() for x in (q, k, v)]
    with torch.autocast("cpu", torch.bfloat16):
        output = ours(*single)
        found = torch.autograd.grad(output.float().sum(), single)
    assert output.dtype == torch.bfloat16 and all(x.dtype == torch.float32 for x in found)
    expected = torch.autograd.grad(exact(q, k, v).sum(), (q, k, v))
    for x, y in zip(found, expected):
        torch.testing.assert_close(x.double(), y, rtol=0.05, atol=0.05)


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(f, argnums=(0, 1, 2))(*data),
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(f, argnums=(0, 1, 2)))(*[x[:, None] for x in data]),
    "grad of vmap": lambda f: torch.func.grad(lambda *x: torch.func.vmap(f)(*x).sum(), argnums=(0, 1, 2))(
        *[x[:, None] for x in data]),
    "vmap of grad over heads": lambda f: torch.func.vmap(torch.func.grad(f, argnums=(0, 1, 2)), in_dims=1, out_dims=1)(
        *[x[:, :, None] for x in data]),
    "vmap of keys only": lambda f: torch.func.vmap(f, in_dims=(None, 0, 0))(data[0], *[torch.stack([x, -x]) for x in data[1:]]),
}
data = [x.detach() for x in (q, k, v)]


TRANSFORMED = {
    "attention": lambda *x: saccade.attention(*x, causal="top_left"),
    "scaled_dot_product_attention": lambda *x: ours(*x, is_causal=True),
    "flex_attention": lambda *x: saccade.torch.flex_attention(*x, block_mask=lambda b, h, i, j: i >= j),
    "enabled": lambda *x: enabled(*x, is_causal=True),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("function", TRANSFORMED.values(), ids=TRANSFORMED)
def test_transforms_of_torch_func(function, name):
    results = [TRANSFORMS[name](lambda *x: f(*x).sin().sum()) for f in (function, lambda *x: exact(*x, is_causal=True))]
    found, expected = [x if isinstance(x, tuple) else (x,) for x in results]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("transform", [lambda f: f, torch.func.grad], ids=["vmap", "vmap of grad"])
def test_vmap_keeps_the_bits_of_dropout(transform):
    q, k, v = data

    def loss(x):
        return saccade.attention(x, k, v, dropout_p=0.5, seed=3).sin().sum()

    both = torch.stack([q, -q])
    torch.testing.assert_close(torch.func.vmap(transform(loss))(both), torch.stack([transform(loss)(x) for x in both]))


def test_a_mask_that_reads_a_tensor_with_a_gradient_passes_none():
    threshold = leaf(7)

    def call(query):
        return saccade.attention(query, k.detach(), v.detach(), mask=lambda b, h, i, j: threshold[j] > 0)

    for _ in range(2):
        assert not call(q.detach()).requires_grad
    expected, = torch.autograd.grad(exact(q, k, v, (threshold > 0).expand(5, 7)).sum(), q)
    found = torch.autograd.grad(call(q).sum(), (q, threshold), allow_unused=True)
    torch.testing.assert_close(found[0], expected, rtol=1e-11, atol=1e-11)
    assert found[1] is None or not found[1].any()


def test_captured_tensors_in_transforms():
    def loss(slopes):
        return saccade.attention(*data, score=lambda s, b, h, i, j: s + slopes[h] * (i - j)).sin().sum()

    slopes = leaf(4)
    expected, = torch.autograd.grad(loss(slopes), slopes)
    torch.testing.assert_close(torch.func.grad(loss)(slopes.detach()), expected)
    both = torch.stack([slopes.detach(), -slopes.detach()])
    torch.testing.assert_close(torch.func.vmap(loss)(both), torch.stack([loss(x) for x in both]))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(both)[0], expected)
    with pytest.raises(saccade.TraceError, match=r"computes 'exp' of a captured tensor in a transform of torch.func"):
        torch.func.grad(lambda t: saccade.attention(*data, score=lambda s, b, h, i, j: s * t.exp()).sum())(slopes[0])


def test_batched_gradients():
    tensors = q, k, v, leaf(4, 5, 7)
    output = ours(*tensors)
    given = torch.randn((2, 3, *output.shape), dtype=torch.float64, generator=draw)

    def pull(gradient, is_batched=True):
        return torch.autograd.grad(output, tensors, gradient, retain_graph=True, is_grads_batched=is_batched)

    single = [[pull(x, is_batched=False) for x in part] for part in given]
    expected = [torch.stack([torch.stack([x[place] for x in part]) for part in single]) for place in range(4)]
    torch.testing.assert_close(list(pull(given[1])), [x[1] for x in expected])
    torch.testing.assert_close(list(torch._vmap_internals._vmap(pull)(given)), expected)


def test_vectorized_jacobians():
    small = [x.detach()[:1, :2, :3] for x in (q, k, v)]
    by_rows, at_once = [torch.autograd.functional.jacobian(lambda *x: ours(*x, is_causal=True), tuple(small), vectorize=x)
                        for x in (False, True)]
    torch.testing.assert_close(at_once, by_rows)


# --- numbers ----------------------------------------------------------------------------------------------------------


def plain(q, k, v, bias):
    """Unfused attention in the types of its tensors, with the softmax of float32."""
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1]**0.5
    scores = scores.float() + bias if scores.dtype != torch.float64 else scores + bias
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return torch.softmax(scores, -1).to(q.dtype) @ v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_errors_are_at_most_three_times_those_of_plain_evaluation(dtype):
    """The tolerance rule of docs/internals/testing.md, with the factor for backward passes."""
    tensors = [leaf(2, 3, 100, 32, dtype=dtype) for _ in range(3)] + [leaf(3, 100, 100, dtype=torch.float32)]
    ours = gradients(lambda q, k, v, bias: saccade.attention(
        q, k, v, causal="top_left", score=lambda s, b, h, i, j: s + bias[h, i, j]), *tensors)
    theirs = gradients(plain, *tensors)
    reference = gradients(plain, *[x.double() for x in tensors])
    for found, unfused, exact in zip(ours, theirs, reference):
        floor = torch.finfo(found.dtype).eps * (exact.abs().max() + 0.3)
        limit = 3 * (unfused.double() - exact).abs().max() + 2 * floor
        assert (found.double() - exact).abs().max() <= limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_the_same_in_every_run_and_for_any_number_of_threads(dtype):
    q, k, v = leaf(2, 4, 65, 16, dtype=dtype), leaf(2, 2, 130, 16, dtype=dtype), leaf(2, 2, 130, 16, dtype=dtype)
    table = leaf(4, 31, dtype=torch.float32)

    def run(threads):
        saccade.set_num_threads(threads)
        return gradients(lambda q, k, v, table: saccade.attention(
            q, k, v, score=saccade.scores.relative_bias(table), causal="bottom_right"), q, k, v, table)

    before = saccade.num_threads()
    try:
        expected = run(1)
        for threads in [1] * 25 + [2] * 25 + [4] * 25 + [8] * 25:
            assert all(map(torch.equal, run(threads), expected)), threads
    finally:
        saccade.set_num_threads(before)
