"""Gradients of programs around attention, through `saccade.torch.differentiable`: Shaw's tables on both sides, the entropy of
every query, keys and values projected along the length, rotary positions.
"""

import pytest
import torch

import saccade
import saccade.torch

# Equations 3 and 4 of Shaw et al. (2018) with distances clipped to ±2: a captured product on the side of the keys, and a tally
# over relative positions times a table on the side of the values.
SHAW = """
func.func @f(%q: tensor<?x4xf64>, %k: tensor<?x4xf64>, %v: tensor<?x3xf64>, %rk: tensor<5x4xf64>, %rv: tensor<5x3xf64>)
    -> tensor<?x3xf64> attributes {attn.gradient} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f64
  %n = tensor.dim %q, %c0 : tensor<?x4xf64>
  %e = tensor.empty(%n) : tensor<?x5xf64>
  %z = linalg.fill ins(%zero : f64) outs(%e : tensor<?x5xf64>) -> tensor<?x5xf64>
  %te = tensor.empty() : tensor<4x5xf64>
  %rt = linalg.transpose ins(%rk : tensor<5x4xf64>) outs(%te : tensor<4x5xf64>) permutation = [1, 0]
  %qr = linalg.matmul ins(%q, %rt : tensor<?x4xf64>, tensor<4x5xf64>) outs(%z : tensor<?x5xf64>) -> tensor<?x5xf64>
  %o, %t = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%qr : tensor<?x5xf64>)
    score(%s: f64, %b, %h, %i, %j, %r) {
      %half = arith.constant 0.5 : f64
      %c2 = arith.constant 2 : index
      %first = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %x = arith.subi %j, %i : index
      %y = arith.addi %x, %c2 : index
      %w = arith.maxsi %y, %first : index
      %bin = arith.minsi %w, %c4 : index
      %bias = tensor.extract %r[%i, %bin] : tensor<?x5xf64>
      %scaled = arith.mulf %bias, %half : f64
      %sum = arith.addf %s, %scaled : f64
      attn.yield %sum : f64
    }
    tally<5>(%s: f64, %b, %h, %i, %j, %r) {
      %one = arith.constant 1.0 : f64
      %c2 = arith.constant 2 : index
      %first = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %x = arith.subi %j, %i : index
      %y = arith.addi %x, %c2 : index
      %w = arith.maxsi %y, %first : index
      %bin = arith.minsi %w, %c4 : index
      attn.yield %bin, %one : index, f64
    } : (tensor<?x4xf64>, tensor<?x4xf64>, tensor<?x3xf64>) -> (tensor<?x3xf64>, tensor<?x5xf64>)
  %r = linalg.matmul ins(%t, %rv : tensor<?x5xf64>, tensor<5x3xf64>) outs(%o : tensor<?x3xf64>) -> tensor<?x3xf64>
  return %r : tensor<?x3xf64>
}"""

ENTROPY = """
func.func @f(%q: tensor<2x?x4xf64>, %k: tensor<2x?x4xf64>) -> tensor<2x?xf64> attributes {attn.gradient} {
  %o, %lse, %mean = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] mask causal<top_left> lse
    tally<1>(%s: f64, %b, %h, %i, %j) {
      %bin = arith.constant 0 : index
      attn.yield %bin, %s : index, f64
    } : (tensor<2x?x4xf64>, tensor<2x?x4xf64>, tensor<2x?x4xf64>) -> (tensor<2x?x4xf64>, tensor<2x?xf64>, tensor<2x?x1xf64>)
  %mean_score = tensor.collapse_shape %mean [[0], [1, 2]] : tensor<2x?x1xf64> into tensor<2x?xf64>
  %entropy = arith.subf %lse, %mean_score : tensor<2x?xf64>
  return %entropy : tensor<2x?xf64>
}"""

LINFORMER = """
#from = affine_map<(h, r, d, s) -> (h, s, d)>
#by = affine_map<(h, r, d, s) -> (r, s)>
#to = affine_map<(h, r, d, s) -> (h, r, d)>
func.func @f(%q: tensor<2x?x4xf64>, %k: tensor<2x?x4xf64>, %v: tensor<2x?x4xf64>, %e: tensor<3x?xf64>, %f: tensor<3x?xf64>)
    -> tensor<2x?x4xf64> attributes {attn.gradient} {
  %zero = arith.constant 0.0 : f64
  %empty = tensor.empty() : tensor<2x3x4xf64>
  %start = linalg.fill ins(%zero : f64) outs(%empty : tensor<2x3x4xf64>) -> tensor<2x3x4xf64>
  %kp = linalg.generic {indexing_maps = [#from, #by, #to],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%k, %e : tensor<2x?x4xf64>, tensor<3x?xf64>) outs(%start : tensor<2x3x4xf64>) {
  ^bb0(%l: f64, %m: f64, %o: f64):
    %p = arith.mulf %l, %m : f64
    %t = arith.addf %o, %p : f64
    linalg.yield %t : f64
  } -> tensor<2x3x4xf64>
  %vp = linalg.generic {indexing_maps = [#from, #by, #to],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%v, %f : tensor<2x?x4xf64>, tensor<3x?xf64>) outs(%start : tensor<2x3x4xf64>) {
  ^bb0(%l: f64, %m: f64, %o: f64):
    %p = arith.mulf %l, %m : f64
    %t = arith.addf %o, %p : f64
    linalg.yield %t : f64
  } -> tensor<2x3x4xf64>
  %o = attn.attention %q[h,s,d], %kp[h,s,d], %vp[h,s,d]
    : (tensor<2x?x4xf64>, tensor<2x3x4xf64>, tensor<2x3x4xf64>) -> tensor<2x?x4xf64>
  return %o : tensor<2x?x4xf64>
}"""

# Rotary positions (Su et al. 2021): halves of a row turn by angles whose cosines and sines are tables.
ROTARY = """
#row = affine_map<(h, s, d) -> (h, s, d)>
#table = affine_map<(h, s, d) -> (s, d)>
!half = tensor<2x?x2xf64>
func.func @f(%q: tensor<2x?x4xf64>, %v: tensor<2x?x4xf64>, %cos: tensor<?x2xf64>, %sin: tensor<?x2xf64>)
    -> tensor<2x?x4xf64> attributes {attn.gradient} {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %q, %c1 : tensor<2x?x4xf64>
  %x = tensor.extract_slice %q[0, 0, 0] [2, %n, 2] [1, 1, 1] : tensor<2x?x4xf64> to !half
  %y = tensor.extract_slice %q[0, 0, 2] [2, %n, 2] [1, 1, 1] : tensor<2x?x4xf64> to !half
  %e = tensor.empty(%n) : !half
  %turned:2 = linalg.generic {indexing_maps = [#row, #row, #table, #table, #row, #row],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %y, %cos, %sin : !half, !half, tensor<?x2xf64>, tensor<?x2xf64>) outs(%e, %e : !half, !half) {
  ^bb0(%a: f64, %b: f64, %c: f64, %s: f64, %o0: f64, %o1: f64):
    %ac = arith.mulf %a, %c : f64
    %bs = arith.mulf %b, %s : f64
    %as = arith.mulf %a, %s : f64
    %bc = arith.mulf %b, %c : f64
    %first = arith.subf %ac, %bs : f64
    %second = arith.addf %as, %bc : f64
    linalg.yield %first, %second : f64, f64
  } -> (!half, !half)
  %e4 = tensor.empty(%n) : tensor<2x?x4xf64>
  %r0 = tensor.insert_slice %turned#0 into %e4[0, 0, 0] [2, %n, 2] [1, 1, 1] : !half into tensor<2x?x4xf64>
  %r = tensor.insert_slice %turned#1 into %r0[0, 0, 2] [2, %n, 2] [1, 1, 1] : !half into tensor<2x?x4xf64>
  %o = attn.attention %r[h,s,d], %r[h,s,d], %v[h,s,d]
    : (tensor<2x?x4xf64>, tensor<2x?x4xf64>, tensor<2x?x4xf64>) -> tensor<2x?x4xf64>
  return %o : tensor<2x?x4xf64>
}"""


def shaw(q, k, v, rk, rv):
    """The formula with one row of the tables for each pair."""
    positions = torch.arange(len(k)) - torch.arange(len(q))[:, None]
    places = positions.clamp(-2, 2) + 2
    scores = (q @ k.T + torch.einsum("id,ijd->ij", q, rk[places])) / 2
    weights = scores.softmax(-1)
    return weights @ v + torch.einsum("ij,ijm->im", weights, rv[places])


def entropy(q, k):
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(q.shape[1], k.shape[1]).triu(1) > 0, -torch.inf)
    weights = scores.softmax(-1)
    return -torch.special.xlogy(weights, weights).sum(-1)


def linformer(q, k, v, e, f):
    return (q @ (e @ k).transpose(-1, -2) / 2).softmax(-1) @ (f @ v)


def rotary(q, v, cos, sin):
    x, y = q.chunk(2, -1)
    turned = torch.cat([x * cos - y * sin, x * sin + y * cos], -1)
    return (turned @ turned.transpose(-1, -2) / 2).softmax(-1) @ v


PROGRAMS = {
    "Shaw's tables": (SHAW, shaw, [(6, 4), (7, 4), (7, 3), (5, 4), (5, 3)]),
    "entropy": (ENTROPY, entropy, [(2, 6, 4), (2, 6, 4)]),
    "Linformer": (LINFORMER, linformer, [(2, 5, 4), (2, 7, 4), (2, 7, 4), (3, 7), (3, 7)]),
    "rotary positions": (ROTARY, rotary, [(2, 5, 4), (2, 5, 4), (5, 2), (5, 2)]),
}


@pytest.mark.parametrize(("text", "formula", "shapes"), PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_limits_of_differences(text, formula, shapes):
    torch.manual_seed(3)
    tensors = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    program = saccade.torch.differentiable(saccade.compile(text), "f")
    torch.testing.assert_close(program(*tensors), formula(*tensors))
    assert torch.autograd.gradcheck(program, tensors)
