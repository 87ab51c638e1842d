// Compiled functions of tangents agree with the reference, which evaluates attn.jvp pair by pair in float64.

// They are entries, with names after those of arguments and results.
// RUN: saccade-compile %s --emit=header -o - | FileCheck %s
// CHECK:      const char *saccade_buckets_jvp(const DLTensor *q, const DLTensor *k, const DLTensor *v, const DLTensor *t, double cap,
// CHECK-NEXT: const DLTensor *q_tangent, const DLTensor *k_tangent, const DLTensor *v_tangent,
// CHECK-NEXT: const DLTensor *t_tangent, double cap_tangent, DLTensor *output,
// CHECK-NEXT: DLTensor *output_tangent);

// RUN: saccade-run %s --entry=groups_jvp --check --arg=2x4x67x16:f32:1 --arg=2x2x80x16:f32:2 --arg=2x2x80x24:f32:3 --arg=2x4x67x16:f32:4 --arg=2x2x80x16:f32:5 --arg=2x2x80x24:f32:6
func.func @groups(%q: tensor<?x4x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x24xf32>) -> tensor<?x4x?x24xf32>
    attributes {attn.jvp} {
  // The first two rows see no key.
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<-2>
      : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x24xf32>) -> tensor<?x4x?x24xf32>
  return %o : tensor<?x4x?x24xf32>
}

// A function may have both kinds of derivatives.
// RUN: saccade-run %s --entry=buckets_jvp --check --arg=40x2x16:f32:1 --arg=56x2x16:f32:2 --arg=56x2x16:f32:3 --arg=2x8:f32:4 --arg=1.5 --arg=40x2x16:f32:5 --arg=56x2x16:f32:6 --arg=56x2x16:f32:7 --arg=2x8:f32:8 --arg=0.7
func.func @buckets(%q: tensor<?x2x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %t: tensor<2x8xf32>, %cap: f32)
    -> tensor<?x2x16xf32> attributes {attn.gradient, attn.jvp} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] captures(%t, %cap : tensor<2x8xf32>, f32)
    score(%s, %b, %h, %i, %j, %table, %c) {
      %eight = arith.constant 8 : index
      %difference = arith.addi %j, %i : index
      %bucket = arith.remui %difference, %eight : index
      %bias = tensor.extract %table[%h, %bucket] : tensor<2x8xf32>
      %0 = arith.divf %s, %c : f32
      %1 = math.tanh %0 : f32
      %2 = arith.mulf %1, %c : f32
      %3 = arith.addf %2, %bias : f32
      attn.yield %3 : f32
    } : (tensor<?x2x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>) -> tensor<?x2x16xf32>
  return %o : tensor<?x2x16xf32>
}

// Tallies of a computed bin and of bin 0, a sink, a run-time scale.
// RUN: saccade-run %s --entry=tallies_jvp --check --arg=2x2x20x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=2:f64:4 --arg=0.3 --arg=2x2x20x8:f64:5 --arg=2x2x33x8:f64:6 --arg=2x2x33x8:f64:7 --arg=2:f64:8 --arg=0.4
func.func @tallies(%q: tensor<2x2x?x8xf64>, %k: tensor<2x2x?x8xf64>, %v: tensor<2x2x?x8xf64>, %sink: tensor<2xf64>, %scale: f64)
    -> (tensor<2x2x?x8xf64>, tensor<2x2x?xf64>, tensor<2x2x?x4xf64>, tensor<2x2x?x1xf64>) attributes {attn.jvp} {
  %o, %l, %t, %u = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(%scale : f64) sink(%sink : tensor<2xf64>)
    tally<4>(%s: f64, %b, %h, %i, %j) {
      // The last bin of keys is outside of the tally.
      %seven = arith.constant 7 : index
      %bin = arith.divui %j, %seven : index
      attn.yield %bin, %s : index, f64
    }
    tally<1>(%s: f64, %b, %h, %i, %j) {
      %zero = arith.constant 0 : index
      %e = math.exp %s : f64
      attn.yield %zero, %e : index, f64
    } lse : (tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>)
      -> (tensor<2x2x?x8xf64>, tensor<2x2x?xf64>, tensor<2x2x?x4xf64>, tensor<2x2x?x1xf64>)
  return %o, %l, %t, %u : tensor<2x2x?x8xf64>, tensor<2x2x?xf64>, tensor<2x2x?x4xf64>, tensor<2x2x?x1xf64>
}

// One tangent only: keys and values are constant, and their matmuls are left out. Operands of 16 bits, a weight region.
// RUN: saccade-run %s --entry=queries_jvp --check --arg=3x70x32:bf16:1 --arg=3x90x32:bf16:2 --arg=3x90x16:bf16:3 --arg=3x70x32:bf16:4
// RUN: saccade-run %s --entry=values_jvp --check --arg=3x70x32:f32:1 --arg=3x90x32:f32:2 --arg=3x90x16:f32:3 --arg=3:f32:4 --arg=3x90x16:f32:5 --arg=3:f32:6
func.func @queries(%q: tensor<3x?x32xbf16>, %k: tensor<3x?x32xbf16> {attn.no_gradient}, %v: tensor<3x?x16xbf16> {attn.no_gradient})
    -> tensor<3x?x16xbf16> attributes {attn.jvp} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] mask window<5, 9>
      : (tensor<3x?x32xbf16>, tensor<3x?x32xbf16>, tensor<3x?x16xbf16>) -> tensor<3x?x16xbf16>
  return %o : tensor<3x?x16xbf16>
}
func.func @values(%q: tensor<3x?x32xf32> {attn.no_gradient}, %k: tensor<3x?x32xf32> {attn.no_gradient}, %v: tensor<3x?x16xf32>, %w: tensor<3xf32>)
    -> tensor<3x?x16xf32> attributes {attn.jvp} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%w : tensor<3xf32>)
    weight(%p, %b, %h, %i, %j, %x) {
      %f = tensor.extract %x[%h] : tensor<3xf32>
      %r = arith.mulf %p, %f : f32
      attn.yield %r : f32
    } : (tensor<3x?x32xf32>, tensor<3x?x32xf32>, tensor<3x?x16xf32>) -> tensor<3x?x16xf32>
  return %o : tensor<3x?x16xf32>
}

// RUN: saccade-run %s --entry=projected_jvp --check --arg=30x32:f32:1 --arg=32x32:f32:2 --arg=32:f32:3 --arg=30x32:f32:4 --arg=32x32:f32:5 --arg=32:f32:6
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @projected(%x: tensor<?x32xf32>, %w: tensor<32x32xf32>, %bias: tensor<32xf32>) -> tensor<?x32xf32>
    attributes {attn.jvp} {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x32xf32>
  %e = tensor.empty(%n) : tensor<?x32xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<?x32xf32>) -> tensor<?x32xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x32xf32>, tensor<32x32xf32>) outs(%init : tensor<?x32xf32>) -> tensor<?x32xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %bias : tensor<?x32xf32>, tensor<32xf32>) outs(%e : tensor<?x32xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = arith.addf %a, %b : f32
      %1 = math.tanh %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x32xf32>
  %h = tensor.expand_shape %p [[0], [1, 2]] output_shape [%n, 4, 8] : tensor<?x32xf32> into tensor<?x4x8xf32>
  %o = attn.attention %h[s,h,d], %h[s,h,d], %h[s,h,d] mask causal<top_left>
      : (tensor<?x4x8xf32>, tensor<?x4x8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %r = tensor.collapse_shape %o [[0], [1, 2]] : tensor<?x4x8xf32> into tensor<?x32xf32>
  return %r : tensor<?x32xf32>
}
