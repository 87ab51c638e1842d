"""Approximations of softmax attention in linear time: Performer and Linformer.

Both take torch CPU tensors or NumPy arrays [batch, heads, length, head_dim] and compile one program per element type
and head dimensions in a process. PyTorch records their gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from saccade import _arrays, _linear, _parameters
from saccade._arrays import Array
from saccade._opaque import opaque
from saccade.attention import attention
from saccade.linear import linear_attention
from saccade.module import compile

if TYPE_CHECKING:
    import numpy


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
    causal = _linear.is_causal(causal)
    element = _linear.check_operands(q, k, v)
    _check_matrix("projection", projection, q, q.shape[-1], 1)
    features, head_dim = projection.shape
    if _linear.is_recorded(q, k, v, projection):
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
    element = _linear.check_operands(q, k, v)
    for name, x in (("key_projection", key_projection), ("value_projection", value_projection)):
        _check_matrix(name, x, q, k.shape[2], 1)
    if key_projection.shape[0] != value_projection.shape[0]:
        raise ValueError(f"value_projection has {value_projection.shape[0]} rows, expected {key_projection.shape[0]}, "
                         "those of key_projection")  # fmt: skip
    if _linear.is_recorded(q, k, v, key_projection, value_projection):
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


def _check_matrix(name: str, x: Array, q: Array, extent: int, axis: int) -> None:
    """Checks a matrix of q's element type."""
    if _linear.element_of(name, x, 2) != _linear.element_of("q", q, 4):
        raise _linear.other_type(name, x, q)
    if x.shape[axis] != extent:
        raise ValueError(f"{name} has {x.shape[axis]} columns, expected {extent}")


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
