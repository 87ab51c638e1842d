"""Forward mode of saccade.attention and of the functions in place of PyTorch's: torch.func.jvp, torch.autograd.forward_ad
and their compositions with vmap. Checks against differences are those of test_torch_gradcheck.py."""

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad

import saccade
import saccade.torch

torch.manual_seed(0)
q, k, v = torch.randn(2, 4, 5, 6, dtype=torch.float64), *torch.randn(2, 2, 2, 7, 6, dtype=torch.float64)
slopes = torch.rand(4, dtype=torch.float64)
dq, dk, dv, dslopes = [torch.randn_like(x) for x in (q, k, v, slopes)]


def plain(q, k, v, slopes):
    """Output and log-sum-exp by PyTorch's operators."""
    k, v = [x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v)]
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    scores = q @ k.mT / q.shape[-1]**0.5 + slopes[:, None, None] * (j - i)
    scores = scores.masked_fill(j > i, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def ours(q, k, v, slopes):
    return saccade.attention(q, k, v, score=saccade.scores.alibi(slopes), causal="top_left", return_lse=True)


def close(found, expected, tolerance=1e-11):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_jvp():
    close(torch.func.jvp(ours, (q, k, v, slopes), (dq, dk, dv, dslopes)),
          torch.func.jvp(plain, (q, k, v, slopes), (dq, dk, dv, dslopes)))


@pytest.mark.parametrize("argument", range(4))
def test_a_tangent_of_one_argument(argument):
    def of(function):
        def call(x):
            return function(*[x if i == argument else y for i, y in enumerate((q, k, v, slopes))])[0]

        return torch.func.jvp(call, ((q, k, v, slopes)[argument],), ((dq, dk, dv, dslopes)[argument],))

    close(of(ours), of(plain))


def test_dual_tensors_have_both_modes():
    _, (tangent, _) = torch.func.jvp(plain, (q, k, v, slopes), (dq, dk, dv, dslopes))
    leaf = q.clone().requires_grad_()
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in ((leaf, dq), (k, dk), (v, dv), (slopes, dslopes))]
        output, lse = ours(*duals)
        found = forward_ad.unpack_dual(output)
        close(found.tangent, tangent)
        assert forward_ad.unpack_dual(lse).tangent is not None
    # The primal part is recorded as without tangents.
    gradient, = torch.autograd.grad(found.primal.sin().sum(), leaf)
    leaf = q.clone().requires_grad_()
    close(gradient, torch.autograd.grad(ours(leaf, k, v, slopes)[0].sin().sum(), leaf)[0])


def test_jacobians_of_both_modes_are_equal():
    small = [x[:1, :2, :3] for x in (q, k, v)]

    def call(*x):
        return ours(*x, slopes[:2])[0]

    close(torch.func.jacfwd(call, (0, 1, 2))(*small), torch.func.jacrev(call, (0, 1, 2))(*small))
    close(torch.func.jacfwd(lambda x: ours(q, k, v, x)[0])(slopes), torch.func.jacrev(lambda x: ours(q, k, v, x)[0])(slopes))


def test_vmap_of_jvp_and_jvp_of_vmap():
    both, tangents = torch.stack([q, -q]), torch.stack([dq, 2 * dq])

    def push(x, dx):
        return torch.func.jvp(lambda x: ours(x, k, v, slopes)[0], (x,), (dx,))

    expected = [torch.stack(parts) for parts in zip(*map(push, both, tangents))]
    close(list(torch.func.vmap(push)(both, tangents)), expected)
    close(list(torch.func.jvp(torch.func.vmap(lambda x: ours(x, k, v, slopes)[0]), (both,), (tangents,))), expected)
    # A captured tensor with a mapped tangent: one call after another.
    mapped = torch.func.vmap(lambda dx: torch.func.jvp(lambda x: ours(q, k, v, x)[0], (slopes,), (dx,))[1])
    close(mapped(torch.stack([dslopes, 2 * dslopes]))[1], 2 * mapped(dslopes[None])[0])


@pytest.mark.parametrize("place", range(4))
def test_vectorized_jacobians_of_both_modes_are_equal(place):
    small = [q[:1, :, :2], k[:1, :, :3], v[:1, :, :3], slopes]

    def jacobian(strategy):
        def call(x):
            return ours(*small[:place], x, *small[place + 1:])

        return torch.autograd.functional.jacobian(call, small[place], vectorize=True, strategy=strategy)

    close(jacobian("forward-mode"), jacobian("reverse-mode"))


def test_rows_without_keys_have_tangent_zero():
    def call(q, k):
        return saccade.attention(q, k, v, causal=-2, return_lse=True)

    (_, lse), (output_tangent, lse_tangent) = torch.func.jvp(call, (q, k), (dq, dk))
    assert (lse[..., :2] == -torch.inf).all()
    assert (output_tangent[..., :2, :] == 0).all() and (lse_tangent[..., :2] == 0).all()
    assert (output_tangent[..., 3:, :] != 0).all() and torch.isfinite(lse_tangent).all()


def test_16_bit_tensors():
    narrow = [x.bfloat16() for x in (q, k, v, dq, dk, dv)]
    wide = [x.double() for x in narrow]

    def call(q, k, v):
        return saccade.attention(q, k, v, causal="top_left")

    found = torch.func.jvp(call, tuple(narrow[:3]), tuple(narrow[3:]))[1]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), torch.func.jvp(call, tuple(wide[:3]), tuple(wide[3:]))[1], rtol=2e-2, atol=4e-2)


def test_functions_in_place_of_those_of_pytorch():
    mask = torch.randn(5, 7, dtype=torch.float64)

    def exact(q, mask):
        keys, values = [x.repeat_interleave(2, 1) for x in (k, v)]
        return (q @ keys.mT / 6**0.5 + mask).softmax(-1) @ values

    expected = torch.func.jvp(exact, (q, mask), (dq, mask + 1))
    close(torch.func.jvp(lambda q, mask: saccade.torch.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True),
                         (q, mask), (dq, mask + 1)), expected)
    close(torch.func.jvp(lambda q, mask: saccade.torch.flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: s + mask[i, j], enable_gqa=True), (q, mask), (dq, mask + 1)), expected)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, dq)
        found = saccade.torch.scaled_dot_product_attention(dual, k, v, forward_ad.make_dual(mask, mask + 1), enable_gqa=True)
        close(forward_ad.unpack_dual(found).tangent, expected[1])


def test_the_row_maximum_has_no_tangent():
    results = torch.func.jvp(lambda q: saccade.attention(q, k, v, return_max=True)[:2], (q,), (dq,))[1]
    close(results[0], torch.func.jvp(lambda q: saccade.attention(q, k, v), (q,), (dq,))[1])
    assert (results[1] == 0).all()


def test_second_derivatives_are_an_error():
    def call(x):
        return ours(x, k, v, slopes)[0]

    def push(x):
        return torch.func.jvp(call, (x,), (dq,))[1]

    for second in (lambda: torch.func.jvp(push, (q,), (dq,)), lambda: torch.func.grad(lambda x: push(x).sum())(q),
                   lambda: torch.func.jvp(torch.func.grad(lambda x: call(x).sum()), (q,), (dq,))):
        with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
            second()


def test_errors():
    with pytest.raises(saccade.CompileError, match="not proved proportional"):
        torch.func.jvp(lambda q: saccade.attention(q, k, v, weight=lambda p, b, h, i, j: p * p), (q,), (dq,))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(slopes[0], slopes[1])
        with pytest.raises(saccade.TraceError, match=r"computes 'exp' of a captured tensor in .* forward mode"):
            saccade.attention(q, k, v, score=lambda s, b, h, i, j: s * dual.exp())
        with pytest.raises(ValueError, match="out is given"):
            saccade.attention(forward_ad.make_dual(q, dq), k, v, out=torch.empty_like(q))


PROGRAM = """
func.func @f(%x: tensor<?x4xf64>, %cap: f64) -> (tensor<?x4xf64>, tensor<?x1xf64>) attributes {KINDS} {
  %o, %mean = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%cap : f64)
    score(%s: f64, %b, %h, %i, %j, %c) {
      %0 = arith.divf %s, %c : f64
      %1 = math.tanh %0 : f64
      attn.yield %1 : f64
    }
    tally<1>(%s: f64, %b, %h, %i, %j, %c) {
      %zero = arith.constant 0 : index
      attn.yield %zero, %s : index, f64
    } : (tensor<?x4xf64>, tensor<?x4xf64>, tensor<?x4xf64>) -> (tensor<?x4xf64>, tensor<?x1xf64>)
  return %o, %mean : tensor<?x4xf64>, tensor<?x1xf64>
}
"""


@pytest.mark.parametrize("kinds", ["attn.jvp", "attn.gradient, attn.jvp"])
def test_compiled_programs(kinds):
    function = saccade.torch.differentiable(saccade.compile(PROGRAM.replace("KINDS", kinds)), "f")
    x, dx = torch.randn(2, 5, 4, dtype=torch.float64)
    with forward_ad.dual_level():
        results = [forward_ad.unpack_dual(each).tangent for each in function(forward_ad.make_dual(x, dx), 1.5)]
    for found, upper, lower in zip(results, function(x + 1e-5 * dx, 1.5), function(x - 1e-5 * dx, 1.5), strict=True):
        close(found, (upper - lower) / 2e-5, 1e-8)


def test_a_program_without_tangents():
    function = saccade.torch.differentiable(saccade.compile(PROGRAM.replace("KINDS", "attn.gradient")), "f")
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"the attribute attn\.jvp of a function requests"):
        function(forward_ad.make_dual(torch.ones(5, 4, dtype=torch.float64), torch.ones(5, 4, dtype=torch.float64)), 1.5)
