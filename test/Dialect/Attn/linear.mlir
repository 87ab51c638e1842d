// Round trip of every clause of attn.linear through text, generic text and bytecode.
// RUN: saccade-opt %s -o %t.mlir && FileCheck %s --input-file=%t.mlir
// RUN: saccade-opt %t.mlir | diff %t.mlir -
// RUN: saccade-opt %t.mlir -emit-bytecode | saccade-opt | diff %t.mlir -
// RUN: saccade-opt %t.mlir -mlir-print-op-generic | saccade-opt | diff %t.mlir -

// CHECK-LABEL: func.func @plain
// CHECK: attn.linear %{{.*}}[s,d], %{{.*}}[s,d], %{{.*}}[s,d] : (tensor<4x8xf64>, tensor<5x8xf64>, tensor<5x3xf64>) -> tensor<4x3xf64>
func.func @plain(%q: tensor<4x8xf64>, %k: tensor<5x8xf64>, %v: tensor<5x3xf64>) -> tensor<4x3xf64> {
  %o = attn.linear %q[s,d], %k[s,d], %v[s,d] : (tensor<4x8xf64>, tensor<5x8xf64>, tensor<5x3xf64>) -> tensor<4x3xf64>
  return %o : tensor<4x3xf64>
}

// CHECK-LABEL: func.func @gated_delta
// CHECK: %{{.*}}:2 = attn.linear %{{.*}}[b,s,h,d], %{{.*}}[b,s,h,d], %{{.*}}[b,s,h,d] causal scale(1.250000e-01)
// CHECK-SAME: decay(%{{.*}}[b,s,h,d] : tensor<2x?x2x8xf32>) beta(%{{.*}}[b,s] : tensor<2x?xbf16>)
// CHECK-SAME: state(%{{.*}} : tensor<2x2x8x16xf32>) out[b,h,s,d] :
// CHECK-SAME: -> (tensor<2x4x?x16xbf16>, tensor<2x2x8x16xf32>)
func.func @gated_delta(%q: tensor<2x?x4x8xbf16>, %k: tensor<2x?x2x8xbf16>, %v: tensor<2x?x2x16xbf16>,
    %g: tensor<2x?x2x8xf32>, %beta: tensor<2x?xbf16>, %s: tensor<2x2x8x16xf32>)
    -> (tensor<2x4x?x16xbf16>, tensor<2x2x8x16xf32>) {
  %o, %next = attn.linear %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] out[b,h,s,d] state(%s : tensor<2x2x8x16xf32>)
    beta(%beta[b,s] : tensor<2x?xbf16>) decay(%g[b,s,h,d] : tensor<2x?x2x8xf32>) scale(0.125) causal
    : (tensor<2x?x4x8xbf16>, tensor<2x?x2x8xbf16>, tensor<2x?x2x16xbf16>) -> (tensor<2x4x?x16xbf16>, tensor<2x2x8x16xf32>)
  return %o, %next : tensor<2x4x?x16xbf16>, tensor<2x2x8x16xf32>
}

// CHECK-LABEL: func.func @features
// CHECK: attn.linear %{{.*}} causal decay(%{{.*}}[] : tensor<f32>) normalize feature(%x) {
// CHECK: attn.yield %{{.*}} : f32
// CHECK: } : (
func.func @features(%q: tensor<?x8xf16>, %g: tensor<f32>) -> tensor<?x8xf32> {
  %o = attn.linear %q[s,d], %q[s,d], %q[s,d] causal normalize decay(%g[] : tensor<f32>) feature(%x) {
    %zero = arith.constant 0.0 : f32
    %r = arith.maximumf %x, %zero : f32
    attn.yield %r : f32
  } : (tensor<?x8xf16>, tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @features_of_doubles
// CHECK: feature(%x: f64) {
func.func @features_of_doubles(%q: tensor<?x8xf64>) -> tensor<?x8xf64> {
  %o = attn.linear %q[s,d], %q[s,d], %q[s,d] feature(%x: f64) {
    %r = math.exp %x : f64
    attn.yield %r : f64
  } : (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>) -> tensor<?x8xf64>
  return %o : tensor<?x8xf64>
}

// CHECK-LABEL: func.func @shared_keys
// CHECK: attn.linear %{{.*}}[s,h,d], %{{.*}}[s,h,d], %{{.*}}[s,h,d] causal beta(%{{.*}}[s,h] : tensor<?x4xf32>) erase(%{{.*}}[s,h,d] : tensor<?x4x8xf32>) cu_seqlens(%{{.*}} : tensor<?xi32>)
// CHECK-SAME: l2norm({{.*}}) out[h,s,d] :
func.func @shared_keys(%q: tensor<?x2x8xf32>, %v: tensor<?x4x16xf32>, %e: tensor<?x4x8xf32>, %b: tensor<?x4xf32>, %c: tensor<?xi32>)
    -> tensor<4x?x16xf32> {
  %o = attn.linear %q[s,h,d], %q[s,h,d], %v[s,h,d] causal l2norm(1.0e-6) out[h,s,d] beta(%b[s,h] : tensor<?x4xf32>)
    cu_seqlens(%c : tensor<?xi32>) erase(%e[s,h,d] : tensor<?x4x8xf32>)
    : (tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x4x16xf32>) -> tensor<4x?x16xf32>
  return %o : tensor<4x?x16xf32>
}

// CHECK-LABEL: func.func @gradient
// CHECK: attn.linear_gradient %{{.*}}[b,s,d], %{{.*}}[b,s,d], %{{.*}}[b,s,d] causal decay(%{{.*}}[b,s,d] : tensor<2x?x8xf32>) state(%{{.*}} : tensor<2x8x8xf32>) kv_len(%{{.*}} : tensor<2xi32>)
// CHECK-SAME: output_gradient(%{{.*}}[b,s,d] : tensor<2x?x8xf32>) state_gradient(%{{.*}} : tensor<2x8x8xf32>) :
func.func @gradient(%x: tensor<2x?x8xf32>, %s: tensor<2x8x8xf32>, %n: tensor<2xi32>) -> tensor<2x?x8xf32> {
  %dq, %dk, %dv, %dg, %ds = attn.linear_gradient %x[b,s,d], %x[b,s,d], %x[b,s,d] causal decay(%x[b,s,d] : tensor<2x?x8xf32>)
    state(%s : tensor<2x8x8xf32>) kv_len(%n : tensor<2xi32>) output_gradient(%x[b,s,d] : tensor<2x?x8xf32>)
    state_gradient(%s : tensor<2x8x8xf32>)
    : (tensor<2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>)
    -> (tensor<2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x8x8xf32>)
  return %dq : tensor<2x?x8xf32>
}
