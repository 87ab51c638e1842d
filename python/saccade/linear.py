"""Attention in linear time and memory.

`linear_attention` is the op `attn.linear`, which has a state of fixed size in place of the softmax. `performer` and
`linformer` approximate softmax attention. All take torch CPU tensors or NumPy arrays [batch, heads, length, head_dim]
and compile one program per element type and head dimensions in a process. PyTorch records their gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saccade import _arrays, _operands, _parameters, _program
from saccade._arrays import Array
from saccade._library import on_cache_clear
from saccade._opaque import opaque
from saccade.attention import attention
from saccade.module import compile

if TYPE_CHECKING:
    import numpy

FEATURE_MAPS = {
    "identity": "",
    "relu": "feature(%x: F) {\n      %zero = arith.constant 0.0 : F\n      %r = arith.maximumf %x, %zero : F\n"
            "      attn.yield %r : F\n    }",
    "elu+1": "feature(%x: F) {\n      %zero = arith.constant 0.0 : F\n      %one = arith.constant 1.0 : F\n"
             "      %e = math.exp %x : F\n      %y = arith.addf %x, %one : F\n      "
             "%p = arith.cmpf ogt, %x, %zero : F\n"
             "      %r = arith.select %p, %y, %e : F\n      attn.yield %r : F\n    }",
}  # fmt: skip
"""The feature map clauses; F is replaced by the type of the state."""



@opaque
def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    feature_map: str = "identity",
    causal: bool | str | int | None = False,
    normalize: bool = False,
    scale: float | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    state: Array | None = None,
    return_state: bool = False,
) -> Any:
    """Linear attention: S ← exp(decay)·S + φ(k) ⊗ v and o = scale · Sᵀ φ(q), recurrent over positions if `causal`,
    otherwise with one state over all keys.

    Args:
        q: queries [batch, heads, length, d].
        k: keys [batch, KV heads, length, d]; `heads` is a multiple of `KV heads`.
        v: values [batch, KV heads, length, d_v].
        feature_map: φ, "identity", "relu" or "elu+1".
        causal: a query attends to keys up to its own position. As there are as many queries as keys, "top_left",
            "bottom_right" and the offset 0 of `attention` are the same as True, and None is False.
        normalize: divides each output by the sum of its weights.
        scale: the factor of the output, 1 by default; not with `normalize`.
        decay: the logarithm of the decay of the state, [batch, KV heads, length] or [batch, KV heads, length, d].
        beta: [batch, KV heads, length], the rate of the delta rule, which writes β·(v − Sᵀ φ(k)) in place of v.
        state: the initial state [batch, KV heads, d, d_v], or d_v + 1 with `normalize`.
        return_state: also returns the final state.

    PyTorch records gradients of all tensors, except with `beta`.

    Raises:
        ValueError: mismatched arguments, or an unknown feature map.
        TypeError: an element type other than float64, float32, float16 or bfloat16.
        saccade.CompileError: a tensor requires grad, and `beta` is given: the delta rule has no gradient.
    """
    if not isinstance(feature_map, str) or feature_map not in FEATURE_MAPS:
        raise ValueError(f"feature_map is {feature_map!r:.80}, expected one of {', '.join(FEATURE_MAPS)}")
    causal = _is_causal(causal)
    _parameters.flag("normalize", normalize)
    _parameters.flag("return_state", return_state)
    element = _check_operands(q, k, v)
    head_dim, width = q.shape[-1], v.shape[-1]
    if normalize and scale is not None:
        raise ValueError("scale is given with normalize=True, expected None: the scale would cancel")
    if not causal and (decay is not None or beta is not None):
        raise ValueError(f"{'beta' if decay is None else 'decay'} is given, expected causal=True: it applies to the "
                         "state at each position")  # fmt: skip
    of_keys = tuple(k.shape[:3])
    for name, x, shape in (("decay", decay, of_keys), ("beta", beta, of_keys),
                           ("state", state, (*k.shape[:2], head_dim, width + normalize))):  # fmt: skip
        if x is None:
            continue
        own = _element(name, x, *((3, 4) if name == "decay" else (len(shape),)))
        if own not in (element, "f32", "f64") or (own == "f64") != (element == "f64"):
            wide = "float64" if element == "f64" else "float32"
            raise TypeError(f"{name} has elements of type {_operands.dtype_name(x)}, expected {wide} or that of q")
        shape = (*shape, head_dim) if name == "decay" and x.ndim == 4 else shape
        if tuple(x.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {shape}")
    precision = "f64" if element == "f64" else "f32"
    arguments = [("q", q, f"tensor<?x?x?x{head_dim}x{element}>"), ("k", k, f"tensor<?x?x?x{head_dim}x{element}>"),
                 ("v", v, f"tensor<?x?x?x{width}x{element}>")]  # fmt: skip
    types = ", ".join(type for _, _, type in arguments)
    clauses = ["causal"] * causal + ["normalize"] * normalize
    if scale is not None:
        clauses.append(f"scale({_operands.check_finite_scale(scale):.17e})")  # MLIR float literals need a decimal point
    if decay is not None:
        axes, last = ("b,h,s,d", f"x{head_dim}") if len(decay.shape) == 4 else ("b,h,s", "")
        arguments.append(("decay", decay, f"tensor<?x?x?{last}x{_element('decay', decay, 3, 4)}>"))
        clauses.append(f"decay(%decay[{axes}] : {arguments[-1][2]})")
    if beta is not None:
        arguments.append(("beta", beta, f"tensor<?x?x?x{_element('beta', beta, 3)}>"))
        clauses.append(f"beta(%beta[b,h,s] : {arguments[-1][2]})")
    kept = f"tensor<?x?x{head_dim}x{width + normalize}x{precision}>"
    if state is not None:
        arguments.append(("state", state, kept.replace(precision, _element("state", state))))
        clauses.append(f"state(%state : {arguments[-1][2]})")
    clauses.append(FEATURE_MAPS[feature_map].replace(": F", f": {precision}"))
    results = [f"tensor<?x?x?x{width}x{element}>"] + [kept] * return_state
    names = ", ".join(f"%r{i}" for i in range(len(results)))
    inputs = ", ".join(f"%{name}: {type}" for name, _, type in arguments)
    text = (f"func.func @linear_attention({inputs})\n    -> ({', '.join(results)}) {{\n"
            f"  {names} = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {' '.join(clauses)}\n"
            f"    : ({types}) -> ({', '.join(results)})\n  return {names} : {', '.join(results)}\n}}\n")  # fmt: skip
    values = [value for _, value, _ in arguments]
    if not _is_recorded(*values):
        return compile(text)["linear_attention"](*values)
    needed = [getattr(value, "requires_grad", False) for value in values]
    return _differentiable(_program.differentiated(text, needed), "linear_attention")(*values)


@opaque
def performer(q: Array, k: Array, v: Array, *, projection: Array, causal: bool | str | int | None = False) -> Array:
    """Performer (Choromanski et al. 2021): approximates softmax attention with positive random features. With x' = x /
    d^(1/4) and φ(x) = exp(w·x' − |x'|²/2), the mean of φ(q) · φ(k) over random w is exp(q·k/√d).

    Args:
        q, k, v: [batch, heads, length, head_dim]; k and v may have fewer heads.
        projection: [features, d], the vectors w, for example from `orthogonal_features`.
        causal: as in `linear_attention`.

    For stability, φ is divided by the exponential of its largest exponent (per query, and per head for keys); these
    factors cancel. PyTorch records gradients of all tensors.
    """
    causal = _is_causal(causal)
    element = _check_operands(q, k, v)
    _check_matrix("projection", projection, q, q.shape[-1], 1)
    features, head_dim = projection.shape
    if _is_recorded(q, k, v, projection):
        return _performer_of_tensors(q, k, v, projection, causal)
    text = performer_program(element, head_dim, v.shape[-1], features, causal)
    return compile(text)["performer"](q, k, v, projection)


@opaque
def linformer(q: Array, k: Array, v: Array, *, key_projection: Array, value_projection: Array) -> Array:
    """Linformer (Wang et al. 2020): softmax(q (E k)ᵀ / √d) F v, attention over keys and values projected along the
    length.

    Args:
        q, k, v: [batch, heads, length, head_dim].
        key_projection: E, [rank, key length].
        value_projection: F, [rank, key length].

    PyTorch records gradients of all tensors.
    """
    element = _check_operands(q, k, v)
    for name, x in (("key_projection", key_projection), ("value_projection", value_projection)):
        _check_matrix(name, x, q, k.shape[2], 1)
    if key_projection.shape[0] != value_projection.shape[0]:
        raise ValueError(f"value_projection has {value_projection.shape[0]} rows, expected {key_projection.shape[0]}, "
                         "those of key_projection")  # fmt: skip
    if _is_recorded(q, k, v, key_projection, value_projection):
        torch = _arrays.torch_module()
        e, f = (torch.as_tensor(_arrays.snapshot(x)) for x in (key_projection, value_projection))
        return attention(q, torch.matmul(e, k), torch.matmul(f, v))
    text = linformer_program(element, q.shape[-1], v.shape[-1])
    return compile(text)["linformer"](q, k, v, key_projection, value_projection)


def orthogonal_features(features: int, head_dim: int, seed: int = 0) -> numpy.ndarray:
    """Random vectors for `performer`, float32 [features, head_dim]: blocks of orthogonal directions with the norms of
    independent normal vectors."""
    import numpy

    features, head_dim = _parameters.integer("features", features, 1), _parameters.integer("head_dim", head_dim, 1)
    rng = numpy.random.default_rng(_parameters.integer("seed", seed, 0))
    blocks = [numpy.linalg.qr(rng.standard_normal((head_dim, head_dim)))[0].T for _ in range(-(-features // head_dim))]
    lengths = numpy.linalg.norm(rng.standard_normal((features, head_dim)), axis=1)
    return (numpy.concatenate(blocks)[:features] * lengths[:, None]).astype(numpy.float32)


def performer_program(element: str, head_dim: int, head_dim_v: int, features: int, causal: bool) -> str:
    """The module that `performer` compiles: one function @performer(q, k, v, projection)."""
    types = {"x": f"?x?x?x{head_dim}", "v": f"?x?x?x{head_dim_v}", "p": f"{features}x{head_dim}"}
    wide = "f64" if element == "f64" else "f32"
    aliases = [f"!{name} = tensor<{shape}x{element}>" for name, shape in types.items()]
    aliases += [f"!{name}w = tensor<{shape}x{wide}>" for name, shape in types.items()]
    aliases += [f"!f = tensor<?x?x?x{features}x{wide}>", f"!row = tensor<?x?x?x{wide}>", f"!head = tensor<?x?x{wide}>",
                f"!e = {wide}"]  # fmt: skip
    widened = [f"  %{name}w = arith.extf %{name} : !{type} to !{type}w" for name, type in
               (("q", "x"), ("k", "x"), ("v", "v"), ("w", "p"))]
    body = _PERFORMER
    if element == wide:
        widened = []
        body = body.replace("  %out = arith.truncf %o : !vw to !v\n", "").replace("%out", "%o")
        body = _without_widening(body)
    body = body.replace("  // widen\n", "".join(f"{line}\n" for line in widened))
    minus_inf = "0xFFF0000000000000" if wide == "f64" else "0xFF800000"
    for name, value in (("FOURTH", f"{head_dim**-0.25:.17e}"), ("HALF", f"{0.5 / math.sqrt(head_dim):.17e}"),
                        ("MINUS_INF", minus_inf), ("CAUSAL", "causal " if causal else "")):
        body = body.replace(name, value)
    return "\n".join(aliases) + body


def linformer_program(element: str, head_dim: int, head_dim_v: int) -> str:
    """The module that `linformer` compiles: one function @linformer(q, k, v, key_projection, value_projection)."""
    types = {"x": f"?x?x?x{head_dim}", "v": f"?x?x?x{head_dim_v}", "p": "?x?"}
    aliases = [f"!{name} = tensor<{shape}x{element}>" for name, shape in types.items()] + [f"!e = {element}"]
    return "\n".join(aliases) + _LINFORMER + _project("x") + _project("v")


def _is_recorded(*values: Any) -> bool:
    """Whether PyTorch records the gradient of one of the values."""
    torch = _arrays.torch_module()
    return torch is not None and torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in values)


@functools.lru_cache(maxsize=256)
def _differentiable(text: str, name: str) -> Callable[..., Any]:
    from saccade.torch.compiled_gradients import differentiable  # imported late: it imports torch

    return differentiable(compile(text), name)


on_cache_clear(_differentiable.cache_clear)


def _performer_of_tensors(q: Any, k: Any, v: Any, projection: Any, causal: bool) -> Any:
    """`performer` with features that PyTorch computes and differentiates."""
    torch = _arrays.torch_module()
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    w = torch.as_tensor(_arrays.snapshot(projection)).to(wide)

    def features(x: Any, shared: tuple[int, ...]) -> Any:
        scaled = x.to(wide) * w.shape[1] ** -0.25
        exponents = scaled @ w.T - scaled.square().sum(-1, keepdim=True) / 2
        return (exponents - exponents.detach().amax(shared, keepdim=True)).exp()

    found = linear_attention(features(q, (-1,)), features(k, (-2, -1)), v.to(wide), causal=causal, normalize=True)
    return found.to(q.dtype)


def _without_widening(body: str) -> str:
    """`body` for inputs that already have the compute type."""
    for name in ("xw", "vw", "pw"):
        body = body.replace(f"!{name}", f"!{name[0]}")
    for name in ("qw", "kw", "vw", "ww"):
        body = body.replace(f"%{name}", f"%{name[0]}")
    return body


def _is_causal(causal: Any) -> bool:
    """Whether `causal`, with the words of `attention`, is a causal mask of as many queries as keys."""
    if causal is None or isinstance(causal, bool):
        return bool(causal)
    if not isinstance(causal, str):
        offset = _operands.check_causal(causal)
        if offset:
            raise ValueError(f"causal is {offset}, expected True or False: linear attention has no offsets but 0")
    elif causal not in ("top_left", "bottom_right"):
        raise ValueError(f'causal is {causal!r:.80}, expected True, False, "top_left" or "bottom_right"')
    return True


def _check_operands(q: Array, k: Array, v: Array) -> str:
    """Checks q, k and v [batch, heads, length, head_dim]; returns the MLIR element type."""
    element = _element("q", q)
    for name, x in (("k", k), ("v", v)):
        if _element(name, x) != element:
            raise _other_type(name, x, q)
    for name, x, axis, what, whose, expected in (
            ("k", k, 0, "batch size", "q", q.shape[0]), ("v", v, 0, "batch size", "q", q.shape[0]),
            ("v", v, 1, "head count", "k", k.shape[1]), ("v", v, 2, "length", "k", k.shape[2]),
            ("k", k, 3, "head size", "q", q.shape[3])):  # fmt: skip
        if x.shape[axis] != expected:
            raise ValueError(f"{name} has {what} {x.shape[axis]}, expected {expected}, that of {whose}")
    heads, kv_heads = q.shape[1], k.shape[1]
    if (heads % kv_heads or not heads) if kv_heads else heads:
        raise ValueError(f"q has {heads} heads, expected a multiple of the {kv_heads} heads of k")
    return element


def _other_type(name: str, x: Array, q: Array) -> TypeError:
    found, expected = _operands.dtype_name(x), _operands.dtype_name(q)
    return TypeError(f"{name} has elements of type {found}, expected {expected}, that of q")


def _check_matrix(name: str, x: Array, q: Array, extent: int, axis: int) -> None:
    """Checks a matrix of q's element type."""
    if _element(name, x, 2) != _element("q", q):
        raise _other_type(name, x, q)
    if x.shape[axis] != extent:
        raise ValueError(f"{name} has {x.shape[axis]} columns, expected {extent}")


def _element(name: str, x: Array, *ranks: int) -> str:
    """The MLIR element type of an argument with one of these numbers of dimensions, 4 by default."""
    if _arrays.kind_of(x) is None:
        _arrays.check_tensor(name, x)  # raises
    expected = ranks or (4,)
    if x.ndim not in expected:
        raise TypeError(f"{name} has {_arrays.dimensions(x.ndim)}, expected {' or '.join(map(str, expected))}")
    return _operands.element_of(x.dtype, name)


def _project(type: str) -> str:
    """@project_x: [batch, heads, length, d] to [batch, heads, rank, d], a matmul along the length."""
    return _PROJECT.replace("!t", f"!{type}").replace("@project", f"@project_{type}")


_PERFORMER = """

#x = affine_map<(b, h, s, m, d) -> (b, h, s, d)>
#w = affine_map<(b, h, s, m, d) -> (m, d)>
#y = affine_map<(b, h, s, m, d) -> (b, h, s, m)>
#all = affine_map<(b, h, s, m) -> (b, h, s, m)>
#row = affine_map<(b, h, s, m) -> (b, h, s)>
#head = affine_map<(b, h, s, m) -> (b, h)>

// w·x / d^(1/4) − |x|² / (2 √d)
func.func private @exponents(%x: !xw, %w: !pw) -> !f {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : !e
  %half = arith.constant HALF : !e
  %fourth = arith.constant FOURTH : !e
  %b = tensor.dim %x, %c0 : !xw
  %h = tensor.dim %x, %c1 : !xw
  %s = tensor.dim %x, %c2 : !xw
  %empty = tensor.empty(%b, %h, %s) : !f
  %start = linalg.fill ins(%zero : !e) outs(%empty : !f) -> !f
  %dots = linalg.generic {indexing_maps = [#x, #w, #y],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : !xw, !pw) outs(%start : !f) {
  ^bb0(%l: !e, %r: !e, %o: !e):
    %p = arith.mulf %l, %r : !e
    %t = arith.addf %o, %p : !e
    linalg.yield %t : !e
  } -> !f
  %rows = tensor.empty(%b, %h, %s) : !row
  %none = linalg.fill ins(%zero : !e) outs(%rows : !row) -> !row
  %squares = linalg.generic {indexing_maps = [#all, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x : !xw) outs(%none : !row) {
  ^bb0(%l: !e, %o: !e):
    %p = arith.mulf %l, %l : !e
    %t = arith.addf %o, %p : !e
    linalg.yield %t : !e
  } -> !row
  %result = linalg.generic {indexing_maps = [#all, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%dots, %squares : !f, !row) outs(%empty : !f) {
  ^bb0(%p: !e, %n: !e, %o: !e):
    %a = arith.mulf %p, %fourth : !e
    %c = arith.mulf %n, %half : !e
    %t = arith.subf %a, %c : !e
    linalg.yield %t : !e
  } -> !f
  return %result : !f
}

func.func @performer(%q: !x, %k: !x, %v: !v, %w: !p) -> !v {
  // widen
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %minus_inf = arith.constant MINUS_INF : !e
  %qe = call @exponents(%qw, %ww) : (!xw, !pw) -> !f
  %ke = call @exponents(%kw, %ww) : (!xw, !pw) -> !f
  %qb = tensor.dim %q, %c0 : !x
  %qh = tensor.dim %q, %c1 : !x
  %qs = tensor.dim %q, %c2 : !x
  %kb = tensor.dim %k, %c0 : !x
  %kh = tensor.dim %k, %c1 : !x
  %ks = tensor.dim %k, %c2 : !x
  // The normalization cancels a factor per query, and one factor for all keys of a head.
  %rows = tensor.empty(%qb, %qh, %qs) : !row
  %rows0 = linalg.fill ins(%minus_inf : !e) outs(%rows : !row) -> !row
  %row_max = linalg.generic {indexing_maps = [#all, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%qe : !f) outs(%rows0 : !row) {
  ^bb0(%l: !e, %o: !e):
    %t = arith.maximumf %o, %l : !e
    linalg.yield %t : !e
  } -> !row
  %heads = tensor.empty(%kb, %kh) : !head
  %heads0 = linalg.fill ins(%minus_inf : !e) outs(%heads : !head) -> !head
  %head_max = linalg.generic {indexing_maps = [#all, #head],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%ke : !f) outs(%heads0 : !head) {
  ^bb0(%l: !e, %o: !e):
    %t = arith.maximumf %o, %l : !e
    linalg.yield %t : !e
  } -> !head
  %qf0 = tensor.empty(%qb, %qh, %qs) : !f
  %qf = linalg.generic {indexing_maps = [#all, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%qe, %row_max : !f, !row) outs(%qf0 : !f) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %y = arith.subf %l, %m : !e
    %t = math.exp %y : !e
    linalg.yield %t : !e
  } -> !f
  %kf0 = tensor.empty(%kb, %kh, %ks) : !f
  %kf = linalg.generic {indexing_maps = [#all, #head, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%ke, %head_max : !f, !head) outs(%kf0 : !f) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %y = arith.subf %l, %m : !e
    %t = math.exp %y : !e
    linalg.yield %t : !e
  } -> !f
  %o = attn.linear %qf[b,h,s,d], %kf[b,h,s,d], %vw[b,h,s,d] CAUSALnormalize : (!f, !f, !vw) -> !vw
  %out = arith.truncf %o : !vw to !v
  return %out : !v
}
"""

_LINFORMER = """

#from = affine_map<(b, h, r, d, s) -> (b, h, s, d)>
#by = affine_map<(b, h, r, d, s) -> (r, s)>
#to = affine_map<(b, h, r, d, s) -> (b, h, r, d)>

func.func @linformer(%q: !x, %k: !x, %v: !v, %e: !p, %f: !p) -> !v {
  %kp = call @project_x(%k, %e) : (!x, !p) -> !x
  %vp = call @project_v(%v, %f) : (!v, !p) -> !v
  %o = attn.attention %q[b,h,s,d], %kp[b,h,s,d], %vp[b,h,s,d] : (!x, !x, !v) -> !v
  return %o : !v
}
"""

_PROJECT = """
func.func private @project(%x: !t, %w: !p) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : !e
  %b = tensor.dim %x, %c0 : !t
  %h = tensor.dim %x, %c1 : !t
  %r = tensor.dim %w, %c0 : !p
  %empty = tensor.empty(%b, %h, %r) : !t
  %start = linalg.fill ins(%zero : !e) outs(%empty : !t) -> !t
  %y = linalg.generic {indexing_maps = [#from, #by, #to],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : !t, !p) outs(%start : !t) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %p = arith.mulf %l, %m : !e
    %t = arith.addf %o, %p : !e
    linalg.yield %t : !e
  } -> !t
  return %y : !t
}
"""
