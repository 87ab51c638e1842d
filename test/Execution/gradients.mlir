// Compiled gradient functions agree with the reference, which evaluates attn.gradient pair by pair in float64. The
// results of the function are passed on to the gradient function.

// Gradient functions are entries, with names after those of arguments and results.
// RUN: saccade-compile %s --emit=header -o - | FileCheck %s
// CHECK:      const char *saccade_buckets_gradient(const DLTensor *q, const DLTensor *k, const DLTensor *v, const DLTensor *t,
// CHECK-NEXT: double cap, const DLTensor *output, const DLTensor *lse, const DLTensor *lse_low,
// CHECK-NEXT: const DLTensor *output_gradient, DLTensor *q_gradient, DLTensor *k_gradient,
// CHECK-NEXT: DLTensor *v_gradient, DLTensor *t_gradient, DLTensor *cap_gradient);

// RUN: saccade-run %s --entry=groups --check --arg=2x4x67x16:f32:1 --arg=2x2x80x16:f32:2 --arg=2x2x80x24:f32:3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --entry=groups_gradient --check --arg=2x4x67x16:f32:1 --arg=2x2x80x16:f32:2 --arg=2x2x80x24:f32:3 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x4x67x24:f32:4
func.func @groups(%q: tensor<?x4x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x24xf32>) -> tensor<?x4x?x24xf32>
    attributes {attn.gradient} {
  // The first two rows see no key.
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<-2>
      : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x24xf32>) -> tensor<?x4x?x24xf32>
  return %o : tensor<?x4x?x24xf32>
}

// RUN: saccade-run %s --entry=buckets --check --arg=40x2x16:f32:1 --arg=56x2x16:f32:2 --arg=56x2x16:f32:3 --arg=2x8:f32:4 --arg=1.5 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --entry=buckets_gradient --check --arg=40x2x16:f32:1 --arg=56x2x16:f32:2 --arg=56x2x16:f32:3 --arg=2x8:f32:4 --arg=1.5 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=40x2x16:f32:5
func.func @buckets(%q: tensor<?x2x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %t: tensor<2x8xf32>, %cap: f32)
    -> tensor<?x2x16xf32> attributes {attn.gradient} {
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

// RUN: saccade-run %s --entry=tallies --check --arg=2x2x20x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=2:f64:4 --arg=0.3 --out=%t.o.npy --out=%t.l.npy --out=%t.t.npy --out=%t.r.npy
// RUN: saccade-run %s --entry=tallies_gradient --check --arg=2x2x20x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=2:f64:4 --arg=0.3 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.t.npy --arg=%t.r.npy --arg=2x2x20x8:f64:5 --arg=2x2x20:f64:6 --arg=2x2x20x4:f64:7
func.func @tallies(%q: tensor<2x2x?x8xf64>, %k: tensor<2x2x?x8xf64>, %v: tensor<2x2x?x8xf64>, %sink: tensor<2xf64>, %scale: f64)
    -> (tensor<2x2x?x8xf64>, tensor<2x2x?xf64>, tensor<2x2x?x4xf64>) attributes {attn.gradient} {
  %o, %l, %t = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(%scale : f64) sink(%sink : tensor<2xf64>)
    tally<4>(%s: f64, %b, %h, %i, %j) {
      %ten = arith.constant 10 : index
      %bin = arith.divui %j, %ten : index
      attn.yield %bin, %s : index, f64
    } lse : (tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>)
      -> (tensor<2x2x?x8xf64>, tensor<2x2x?xf64>, tensor<2x2x?x4xf64>)
  return %o, %l, %t : tensor<2x2x?x8xf64>, tensor<2x2x?xf64>, tensor<2x2x?x4xf64>
}

// RUN: saccade-run %s --entry=projected --check --arg=30x32:f32:1 --arg=32x32:f32:2 --arg=32:f32:3 --out=%t.y.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --entry=projected_gradient --check --arg=30x32:f32:1 --arg=32x32:f32:2 --arg=32:f32:3 --arg=%t.y.npy --arg=%t.l.npy --arg=%t.r.npy --arg=30x32:f32:4
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @projected(%x: tensor<?x32xf32>, %w: tensor<32x32xf32>, %bias: tensor<32xf32>) -> tensor<?x32xf32>
    attributes {attn.gradient} {
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

// Queries and keys after the lengths have the gradient zero, whether there is one length or one of each batch.
// RUN: saccade-run %s --entry=lengths --check --arg=2x2x70x16:f32:1 --arg=2x2x90x16:f32:2 --arg=2x2x90x16:f32:3 --arg=41 --arg=2:i32:=53 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --entry=lengths_gradient --check --arg=2x2x70x16:f32:1 --arg=2x2x90x16:f32:2 --arg=2x2x90x16:f32:3 --arg=41 --arg=2:i32:=53 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x2x70x16:f32:4
// RUN: saccade-run %s --entry=lengths --check --arg=2x2x70x16:f32:1 --arg=2x2x90x16:f32:2 --arg=2x2x90x16:f32:3 --arg=70 --arg=2:i32:=0 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --entry=lengths_gradient --check --arg=2x2x70x16:f32:1 --arg=2x2x90x16:f32:2 --arg=2x2x90x16:f32:3 --arg=70 --arg=2:i32:=0 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x2x70x16:f32:4
func.func @lengths(%q: tensor<?x2x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x16xf32>, %m: index, %n: tensor<?xi32>)
    -> tensor<?x2x?x16xf32> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%m : index) kv_len(%n : tensor<?xi32>)
      : (tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x2x?x16xf32>
  return %o : tensor<?x2x?x16xf32>
}
