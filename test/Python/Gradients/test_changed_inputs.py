"""What a call reads may change before its gradient: the gradient is that of the values at the call, or an exception.

Every input of a call is changed in place between forward and backward, one at a time. The gradient is compared with
that of a call whose inputs did not change.
"""

import inspect
import random
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import saccade
import saccade.torch
from saccade import scores

B, H, N, M, D = 2, 2, 6, 8, 8


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


def change(x):
    """Changes the elements of an input in place."""
    if isinstance(x, torch.Tensor):
        with torch.no_grad():
            x.copy_(~x if x.dtype == torch.bool else x // 2 if not x.is_floating_point() else x * -1.5 + 0.25)
    elif isinstance(x, np.ndarray):
        x[...] = ~x if x.dtype == bool else x // 2 if x.dtype.kind == "i" else x * -1.5 + 0.25
    elif isinstance(x, list):
        for i, each in enumerate(x):
            if isinstance(each, list):
                change(each)
            else:
                x[i] = each // 2 if isinstance(each, int) else each * -1.5 + 0.25
    elif isinstance(x, types.SimpleNamespace):
        x.number *= -1.5
        change(x.table)
    else:
        raise AssertionError(type(x))


def gradients(make, changed=None):
    """The gradients of a call's inputs, of which one changes before the backward pass; None if that is refused. `make`
    gives the call and its inputs by name."""
    call, inputs = make()
    output = call()
    assert output.requires_grad
    if changed is not None:
        change(inputs[changed])
    try:
        output.backward(tensor(*output.shape, seed=9).to(output.dtype))
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        return None
    return [x.grad for x in inputs.values() if isinstance(x, torch.Tensor)]


def check(make):
    """Changes every input of a call, one at a time. Returns the names of those whose change is refused."""
    expected = gradients(make)
    refused = set()
    for name in make()[1]:
        found = gradients(make, name)
        if found is None:
            refused.add(name)
            continue
        for x, y in zip(found, expected):
            assert (x is None) == (y is None), name
            assert x is None or torch.equal(x, y), f"{name} changed before the backward pass, and the gradient with it"
    return refused


# --- saccade.attention ------------------------------------------------------------------------------------------------


def broadcast(x):
    return np.broadcast_to(x, (B, *x.shape))


# What a function captures: the object that changes, and a score that reads it.
CAPTURES = {
    "array": lambda: (x := normal(H, N, M), lambda s, b, h, i, j: s + x[h, i, j]),
    "array of positions": lambda: (x := np.arange(M), lambda s, b, h, i, j: s - 0.1 * x[j]),
    "array without dimensions": lambda: (x := np.array(0.7, np.float32), lambda s, b, h, i, j: s * x[()]),
    "array seen by a view": lambda: (x := normal(N, M), (y := x[::-1, ::2], lambda s, b, h, i, j: s + y[i, j // 2])[1]),
    "broadcast array": lambda: (x := normal(N, M), (y := broadcast(x), lambda s, b, h, i, j: s + y[b, i, j])[1]),
    "tensor": lambda: (x := tensor(H, N, M), lambda s, b, h, i, j: s + x[h, i, j]),
    "tensor with a gradient": lambda: (x := tensor(H).requires_grad_(), lambda s, b, h, i, j: s * x[h]),
    "list": lambda: (x := [0.5, -1.0], lambda s, b, h, i, j: s * x[h]),
    "nested list": lambda: (x := [[0.5, -1.0], [2.0, 0.1]], lambda s, b, h, i, j: s * x[b][h]),
    "object": lambda: (x := types.SimpleNamespace(number=0.5, table=normal(H)),
                       lambda s, b, h, i, j: s * x.number + x.table[h]),
    "bias": lambda: (x := normal(H, N, M), scores.bias(x)),
    "caps": lambda: (x := np.float32([0.5, 2.0]), scores.soft_cap(x)),
    "slopes": lambda: (x := [0.5, 0.25], scores.alibi(x)),
}  # fmt: skip
MASKS = {
    "array": lambda: (x := normal(N, M) > -1, lambda b, h, i, j: x[i, j]),
    "tensor": lambda: (x := tensor(N, M) > -1, lambda b, h, i, j: x[i, j]),
    "documents": lambda: (x := np.arange(M) // 4, lambda b, h, i, j: x[i] <= x[j]),
    "list": lambda: (x := [5, 7], lambda b, h, i, j: j <= x[b]),
}
OPTIONS = {
    "scale": lambda: torch.tensor(0.3),
    "scale with a gradient": lambda: torch.tensor(0.3, requires_grad=True),
    "sink": lambda: tensor(H),
    "sink with a gradient": lambda: tensor(H).requires_grad_(),
    "kv_len": lambda: torch.tensor([6, 8]),
    "seed": lambda: torch.tensor([12345678]),
    "window": lambda: [3, 2],
    "gate": lambda: tensor(B, H, N, D),
    "gate with a gradient": lambda: tensor(B, H, N, D).requires_grad_(),
}
# Parameters that are no memory, or whose calls have no gradient.
OTHERS = {"k_scale", "v_scale", "k_zero", "v_zero", "page_table", "qk_type", "reproducible", "out", "return_lse", "return_max", "layout",
          "target", "stream", "causal", "dropout_p", "normalizer", "gate_activation", "unknown"}  # fmt: skip


def attention_call(score=None, mask=None, weight=None, options=(), grads=("q",), **named):
    """A call with one input of each of these kinds."""

    def make():
        inputs = {name: tensor(B, H, n, D, seed=i) for i, (name, n) in enumerate(zip("qkv", (N, M, M)))}
        for name in grads:
            inputs[name].requires_grad_()
        q, k, v = inputs.values()
        given = dict(named)
        for role, table, name in (("score", CAPTURES, score), ("mask", MASKS, mask), ("weight", CAPTURES, weight)):
            if name is not None:
                inputs[role], given[role] = table[name]()
        if weight is not None:
            of_score = given["weight"]
            given["weight"] = lambda p, b, h, i, j: p * of_score(1.0, b, h, i, j)
        for name in options:
            given[name.split()[0]] = inputs[name.split()[0]] = OPTIONS[name]()
        if "seed" in given:
            given["dropout_p"] = 0.4
        return lambda: saccade.attention(q, k, v, **given), inputs

    return make


def test_every_parameter_of_attention_is_tried():
    tried = {"q", "k", "v", "score", "mask", "weight", "cu_seqlens_q", "cu_seqlens_k", *(x.split()[0] for x in OPTIONS)}
    assert set(inspect.signature(saccade.attention).parameters) == tried | OTHERS | {"stats"}


@pytest.mark.parametrize("is_torch", [True, False])
def test_captures_of_statistics(is_torch):
    def gradient(changes):
        q, k, table = tensor(B, H, N, D).requires_grad_(), tensor(B, H, M, D, seed=1), normal(M)
        table = torch.from_numpy(table) if is_torch else table
        found = saccade.attention(q, k, k, stats=(saccade.stats.tally(lambda s, b, h, i, j: (0, s * table[j])),))[1].tally
        if changes:
            change(table)
        found.backward(tensor(*found.shape, seed=9))
        return q.grad

    expected = gradient(False)
    if is_torch:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradient(True)
    else:
        assert torch.equal(gradient(True), expected)


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_of_scores(name):
    refused = check(attention_call(score=name))
    assert ("score" in refused) == name.startswith("tensor")


@pytest.mark.parametrize("name", MASKS)
def test_captures_of_masks(name):
    assert ("mask" in check(attention_call(mask=name))) == (name == "tensor")


@pytest.mark.parametrize("name", ["array", "tensor", "list"])
def test_captures_of_weights(name):
    check(attention_call(weight=name))


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    check(attention_call(options=[name]))


@pytest.mark.parametrize("seed", range(12))
def test_any_arguments_at_once(seed):
    choose = random.Random(seed)

    def maybe(values):
        return choose.choice(list(values)) if choose.random() < 0.6 else None

    options = {name.split()[0]: name for name in choose.sample(list(OPTIONS), choose.randint(0, 4))}
    grads = choose.sample("qkv", choose.randint(1, 3))
    check(attention_call(maybe(CAPTURES), maybe(MASKS), None, list(options.values()), grads,
                         causal=choose.choice([None, "top_left", "bottom_right", 1])))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_offsets_of_ragged_sequences(dtype):
    def make():
        q = tensor(N, H, D).requires_grad_()
        inputs = {"q": q, "cu_seqlens_q": torch.tensor([0, 4, 6], dtype=dtype),
                  "cu_seqlens_k": torch.tensor([0, 2, 6], dtype=dtype)}  # fmt: skip
        return lambda: saccade.attention(q, q, q, **{name: x for name, x in inputs.items() if name != "q"}), inputs

    assert check(make) >= {"cu_seqlens_q", "cu_seqlens_k"}


def test_what_has_no_gradient_is_refused():
    q, pool = tensor(B, H, N, D).requires_grad_(), tensor(4, H, 4, D)
    table = torch.zeros(B, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="page_table is given"):
        saccade.attention(q, pool, pool, page_table=table, kv_len=3)
    small = pool[:B].to(torch.int8)
    with pytest.raises(ValueError, match="k_scale is given"):
        saccade.attention(q, small, small, k_scale=1.0, v_scale=1.0)
    with pytest.raises(ValueError, match="out is given"):
        saccade.attention(q, pool[:B], pool[:B], out=torch.empty_like(q))


# --- other functions --------------------------------------------------------------------------------------------------

PROGRAM = """
func.func @f(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %bias: tensor<?x?xf32>)
    -> tensor<?x2x8xf32> attributes {attn.gradient} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] captures(%bias : tensor<?x?xf32>)
    score(%s, %b, %h, %i, %j, %t) {
      %x = tensor.extract %t[%i, %j] : tensor<?x?xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : (tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}
"""


def linear(**others):
    """`linear_attention` with these further arguments, each made by a function."""

    def make():
        inputs = {"q": tensor(B, H, N, D).requires_grad_(), "k": tensor(B, H, N, D, seed=1),
                  "v": tensor(B, H, N, D, seed=2), **{name: made() for name, made in others.items()}}  # fmt: skip
        q, k, v, *_ = inputs.values()
        more = {name: inputs[name] for name in others}
        return lambda: saccade.linear_attention(q, k, v, causal=True, **more), inputs

    return make


def performer():
    q, k, v = tensor(B, H, N, D).requires_grad_(), tensor(B, H, N, D, seed=1), tensor(B, H, N, D, seed=2)
    projection = saccade.orthogonal_features(16, D)
    return lambda: saccade.performer(q, k, v, projection=projection), {"q": q, "k": k, "v": v, "w": projection}


def linformer():
    q, k, v = (tensor(B, H, N, D, seed=i).requires_grad_() for i in range(3))
    e, f = normal(4, N), normal(4, N, seed=1)
    return (lambda: saccade.linformer(q, k, v, key_projection=e, value_projection=f),
            {"q": q, "k": k, "v": v, "e": e, "f": f})  # fmt: skip


def program(bias):
    def make():
        inputs = {"q": tensor(N, H, D).requires_grad_(), "k": tensor(M, H, D, seed=1), "v": normal(M, H, D, seed=2),
                  "bias": bias(N, M)}  # fmt: skip
        call = saccade.torch.differentiable(saccade.compile(PROGRAM), "f")
        return lambda: call(*inputs.values()), inputs

    return make


def convolution():
    inputs = {"x": tensor(B, D, N).requires_grad_(), "weight": tensor(D, 3), "state": tensor(B, D, 2)}
    return lambda: saccade.causal_conv1d(**inputs, activation="silu"), inputs


def norm():
    inputs = {"x": tensor(B, D).requires_grad_(), "gate": tensor(B, D), "weight": tensor(D)}
    return lambda: saccade.gated_rms_norm(**inputs), inputs


def sdpa(mask):
    def make():
        inputs = {"q": tensor(B, H, N, D).requires_grad_(), "k": tensor(B, H, M, D, seed=1),
                  "v": tensor(B, H, M, D, seed=2), "mask": mask()}  # fmt: skip
        return lambda: saccade.torch.scaled_dot_product_attention(*inputs.values()), inputs

    return make


def flex(captured):
    def make():
        q, k, v = tensor(B, H, N, D).requires_grad_(), tensor(B, H, M, D, seed=1), tensor(B, H, M, D, seed=2)
        x, score = CAPTURES[captured]()
        return lambda: saccade.torch.flex_attention(q, k, v, score_mod=score), {"q": q, "k": k, "v": v, "x": x}

    return make


CALLS = {
    "linear_attention": linear(),
    "linear_attention of arrays": linear(decay=lambda: -abs(normal(B, H, N)), state=lambda: normal(B, H, D, D)),
    "linear_attention of tensors": linear(decay=lambda: -abs(tensor(B, H, N)), state=lambda: tensor(B, H, D, D)),
    "causal_conv1d": convolution,
    "gated_rms_norm": norm,
    "performer": performer,
    "linformer": linformer,
    "differentiable with an array": program(normal),
    "differentiable with a tensor": program(tensor),
    "scaled_dot_product_attention with booleans": sdpa(lambda: tensor(N, M) > -1),
    "scaled_dot_product_attention with numbers": sdpa(lambda: tensor(N, M)),
    "flex_attention with an array": flex("array"),
    "flex_attention with a tensor": flex("tensor"),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_functions(name):
    check(CALLS[name])


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["out", "into"])
def test_autograd_sees_what_a_call_writes(how):
    function = saccade.compile(PROGRAM.replace(" attributes {attn.gradient}", "")).f
    given = [tensor(N, H, D), tensor(M, H, D), tensor(M, H, D), tensor(N, M)]
    x, written = tensor(N, H, D).requires_grad_(), tensor(N, H, D)
    product = (x * written).sum()
    if how == "out":
        function(*given, out=written)
    else:
        function.into(*given, written)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
