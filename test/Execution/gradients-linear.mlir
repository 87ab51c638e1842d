// Compiled gradient functions of linear attention agree with the reference, which evaluates their ops position by position
// in float64. The results of the function are passed on to the gradient function.

// The gradients are one op. Those of a decay of all positions, and of heads that share a key, are sums of its results.
// RUN: saccade-opt --attn-differentiate %s | FileCheck %s
// CHECK-LABEL: func.func @decay_gradient
// CHECK: attn.linear_gradient {{.*}} causal scale({{.*}}) decay({{.*}} output_gradient({{.*}} state_gradient(
// CHECK-LABEL: func.func @decay_of_rows_gradient
// CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %[[DECAY:.*]] = attn.linear_gradient
// CHECK: linalg.generic {{.*}} ins(%[[DECAY]] :

// RUN: saccade-run %s --entry=decay --check --arg=2x4x70x16:f32:1 --arg=2x2x70x16:f32:2 --arg=2x2x70x24:f32:3 --arg=2x2x70:f32:4 --arg=2x2x16x24:f32:5 --out=%t.o.npy --out=%t.s.npy
// RUN: saccade-run %s --entry=decay_gradient --check --arg=2x4x70x16:f32:1 --arg=2x2x70x16:f32:2 --arg=2x2x70x24:f32:3 --arg=2x2x70:f32:4 --arg=2x2x16x24:f32:5 --arg=%t.o.npy --arg=%t.s.npy --arg=2x4x70x24:f32:6 --arg=2x2x16x24:f32:7
// RUN: saccade-run %s --entry=decay --check --device=ptxsim --target=sm_80 --arg=2x4x12x16:f32:1 --arg=2x2x12x16:f32:2 --arg=2x2x12x24:f32:3 --arg=2x2x12:f32:4 --arg=2x2x16x24:f32:5 --out=%t.o.npy --out=%t.s.npy
// RUN: saccade-run %s --entry=decay_gradient --check --device=ptxsim --target=sm_80 --arg=2x4x12x16:f32:1 --arg=2x2x12x16:f32:2 --arg=2x2x12x24:f32:3 --arg=2x2x12:f32:4 --arg=2x2x16x24:f32:5 --arg=%t.o.npy --arg=%t.s.npy --arg=2x4x12x24:f32:6 --arg=2x2x16x24:f32:7
func.func @decay(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %v: tensor<2x2x?x24xf32>, %g: tensor<2x2x?xf32>,
                 %s: tensor<2x2x16x24xf32>) -> (tensor<2x4x?x24xf32>, tensor<2x2x16x24xf32>) attributes {attn.gradient} {
  // Decays are at most 1.
  %c2 = arith.constant 2 : index
  %n = tensor.dim %g, %c2 : tensor<2x2x?xf32>
  %d0 = tensor.empty(%n) : tensor<2x2x?xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(b, h, s) -> (b, h, s)>, affine_map<(b, h, s) -> (b, h, s)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%g : tensor<2x2x?xf32>) outs(%d0 : tensor<2x2x?xf32>) {
  ^bb0(%x: f32, %y: f32):
    %tenth = arith.constant -0.1 : f32
    %square = arith.mulf %x, %x : f32
    %r = arith.mulf %square, %tenth : f32
    linalg.yield %r : f32
  } -> tensor<2x2x?xf32>
  %o, %t = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal scale(0.25) decay(%d[b,h,s] : tensor<2x2x?xf32>)
      state(%s : tensor<2x2x16x24xf32>)
      : (tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x24xf32>)
      -> (tensor<2x4x?x24xf32>, tensor<2x2x16x24xf32>)
  return %o, %t : tensor<2x4x?x24xf32>, tensor<2x2x16x24xf32>
}

// RUN: saccade-run %s --entry=decay_of_rows --check --arg=40x2x8:f32:1 --arg=40x2x8:f32:2 --arg=40x2x8:f32:3 --arg=8:f32:4 --out=%t.o.npy
// RUN: saccade-run %s --entry=decay_of_rows_gradient --check --arg=40x2x8:f32:1 --arg=40x2x8:f32:2 --arg=40x2x8:f32:3 --arg=8:f32:4 --arg=%t.o.npy --arg=40x2x8:f32:5
func.func @decay_of_rows(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %g: tensor<8xf32>)
    -> tensor<?x2x8xf32> attributes {attn.gradient} {
  %e = tensor.empty() : tensor<8xf32>
  %d = linalg.map { math.absf } ins(%g : tensor<8xf32>) outs(%e : tensor<8xf32>)
  %m = linalg.map { arith.negf } ins(%d : tensor<8xf32>) outs(%e : tensor<8xf32>)
  %o = attn.linear %q[s,h,d], %k[s,h,d], %v[s,h,d] causal decay(%m[d] : tensor<8xf32>)
      : (tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// RUN: saccade-run %s --entry=normalized --check --arg=70x16:bf16:1 --arg=50x16:bf16:2 --arg=50x16:bf16:3 --out=%t.o.npy
// RUN: saccade-run %s --entry=normalized_gradient --check --arg=70x16:bf16:1 --arg=50x16:bf16:2 --arg=50x16:bf16:3 --arg=%t.o.npy:bf16 --arg=70x16:bf16:4
func.func @normalized(%q: tensor<?x16xbf16>, %k: tensor<?x16xbf16>, %v: tensor<?x16xbf16>) -> tensor<?x16xbf16>
    attributes {attn.gradient} {
  %o = attn.linear %q[s,d], %k[s,d], %v[s,d] normalize feature(%x) {
      %r = math.exp %x : f32
      attn.yield %r : f32
    } : (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return %o : tensor<?x16xbf16>
}

// RUN: saccade-run %s --entry=delta --check --arg=70x2x16:f32:1 --arg=70x4x24:f32:2 --arg=70x4x16:f32:3 --arg=70x4:f32:4 --out=%t.o.npy --out=%t.s.npy
// RUN: saccade-run %s --entry=delta_gradient --check --arg=70x2x16:f32:1 --arg=70x4x24:f32:2 --arg=70x4x16:f32:3 --arg=70x4:f32:4 --arg=%t.o.npy --arg=%t.s.npy --arg=70x4x24:f32:6 --arg=4x16x24:f32:7
// RUN: saccade-run %s --entry=delta --check --device=ptxsim --target=sm_80 --arg=18x2x16:f32:1 --arg=18x4x24:f32:2 --arg=18x4x16:f32:3 --arg=18x4:f32:4 --out=%t.o.npy --out=%t.s.npy
// RUN: saccade-run %s --entry=delta_gradient --check --device=ptxsim --target=sm_80 --arg=18x2x16:f32:1 --arg=18x4x24:f32:2 --arg=18x4x16:f32:3 --arg=18x4:f32:4 --arg=%t.o.npy --arg=%t.s.npy --arg=18x4x24:f32:6 --arg=4x16x24:f32:7
func.func @delta(%k: tensor<?x2x16xf32>, %v: tensor<?x4x24xf32>, %e: tensor<?x4x16xf32>, %x: tensor<?x4xf32>)
    -> (tensor<?x4x24xf32>, tensor<4x16x24xf32>) attributes {attn.gradient} {
  // Rates and erase keys are small, so that the state does not grow.
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %b0 = tensor.empty(%n) : tensor<?x4xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(s, h) -> (s, h)>, affine_map<(s, h) -> (s, h)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x4xf32>) outs(%b0 : tensor<?x4xf32>) {
  ^bb0(%y: f32, %z: f32):
    %tenth = arith.constant 0.1 : f32
    %square = arith.mulf %y, %y : f32
    %r = arith.mulf %square, %tenth : f32
    linalg.yield %r : f32
  } -> tensor<?x4xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(s, h) -> (s, h)>, affine_map<(s, h) -> (s, h)>],
      iterator_types = ["parallel", "parallel"]} ins(%b : tensor<?x4xf32>) outs(%b0 : tensor<?x4xf32>) {
  ^bb0(%y: f32, %z: f32):
    %r = arith.negf %y : f32
    linalg.yield %r : f32
  } -> tensor<?x4xf32>
  %o, %s = attn.linear %k[s,h,d], %k[s,h,d], %v[s,h,d] causal scale(0.25) l2norm(1.0e-6) out[s,h,d]
      decay(%g[s,h] : tensor<?x4xf32>) beta(%b[s,h] : tensor<?x4xf32>) erase(%e[s,h,d] : tensor<?x4x16xf32>)
      : (tensor<?x2x16xf32>, tensor<?x2x16xf32>, tensor<?x4x24xf32>) -> (tensor<?x4x24xf32>, tensor<4x16x24xf32>)
  return %o, %s : tensor<?x4x24xf32>, tensor<4x16x24xf32>
}

// The sum of a normalized form has a loop over the query heads that share keys, before the matmul of the chunk whose next
// operands are prefetched.
// RUN: %python -c "import numpy as n; n.save(r'%t.cu.npy', n.int32([0, 70, 70, 103]))"
// RUN: saccade-run %s --entry=shared --check --arg=3x103x20:f32:1 --arg=3x103x20:f32:2 --arg=6x103x32:f32:3 --arg=3x6x20x33:f32:4 --arg=%t.cu.npy --out=%t.o.npy --out=%t.s.npy
// RUN: saccade-run %s --entry=shared_gradient --check --arg=3x103x20:f32:1 --arg=3x103x20:f32:2 --arg=6x103x32:f32:3 --arg=3x6x20x33:f32:4 --arg=%t.cu.npy --arg=%t.o.npy --arg=%t.s.npy --arg=6x103x32:f32:6 --arg=3x6x20x33:f32:7
// RUN: saccade-compile %s --target=v4 -o %t.o
func.func @shared(%q: tensor<3x?x20xf32>, %k: tensor<3x?x20xf32>, %v: tensor<6x?x32xf32>, %s: tensor<?x6x20x33xf32>,
                  %n: tensor<?xi32>) -> (tensor<6x?x32xf32>, tensor<?x6x20x33xf32>) attributes {attn.gradient} {
  %o, %t = attn.linear %q[h,s,d], %k[h,s,d], %v[h,s,d] causal normalize state(%s : tensor<?x6x20x33xf32>)
      cu_seqlens(%n : tensor<?xi32>) feature(%x: f32) {
    %y = math.exp %x : f32
    attn.yield %y : f32
  } : (tensor<3x?x20xf32>, tensor<3x?x20xf32>, tensor<6x?x32xf32>) -> (tensor<6x?x32xf32>, tensor<?x6x20x33xf32>)
  return %o, %t : tensor<6x?x32xf32>, tensor<?x6x20x33xf32>
}
