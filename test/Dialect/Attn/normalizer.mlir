// A normalizer survives text, generic text and bytecode, and takes the weight region and dropout behind its own ops.
// RUN: saccade-opt %s -o %t.mlir && FileCheck %s --input-file=%t.mlir
// RUN: saccade-opt %t.mlir | diff %t.mlir -
// RUN: saccade-opt %t.mlir -emit-bytecode | saccade-opt | diff %t.mlir -
// RUN: saccade-opt %t.mlir -mlir-print-op-generic | saccade-opt | diff %t.mlir -

// CHECK-LABEL: func.func @joined
// CHECK:      normalizer(%[[S:.*]], %{{.*}}, %[[H:.*]], %{{.*}}, %{{.*}}, %[[G:.*]]) {
// CHECK-NEXT:   %[[SQUARE:.*]] = arith.mulf %[[S]], %[[S]] : f32
// CHECK-NEXT:   %[[GATE:.*]] = tensor.extract %[[G]][%[[H]]] : tensor<2xf32>
// CHECK-NEXT:   %[[GATED:.*]] = arith.mulf %[[SQUARE]], %[[GATE]] : f32
// CHECK-NEXT:   attn.yield %[[GATED]] : f32
// CHECK-NOT:  weight(
func.func @joined(%q: tensor<2x4x8xf32>, %g: tensor<2xf32>) -> tensor<2x4x8xf32> {
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] captures(%g : tensor<2xf32>)
    weight(%p, %b, %h, %i, %j, %gates) {
      %gate = tensor.extract %gates[%h] : tensor<2xf32>
      %r = arith.mulf %p, %gate : f32
      attn.yield %r : f32
    }
    normalizer(%s, %b, %h, %i, %j, %gates) {
      %r = arith.mulf %s, %s : f32
      attn.yield %r : f32
    } : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %o : tensor<2x4x8xf32>
}

// CHECK-LABEL: func.func @dropped
// CHECK:      normalizer(%[[S:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK:        arith.select
// CHECK:        attn.yield
func.func @dropped(%q: tensor<4x8xf32>, %seed: i64) -> tensor<4x8xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] dropout(0.5, %seed : i64)
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The identity is no softmax, so canonicalization keeps it.
// RUN: saccade-opt %s -canonicalize | FileCheck %s --check-prefix=IDENTITY
// IDENTITY-LABEL: func.func @identity
// IDENTITY:         normalizer(
// CHECK-LABEL: func.func @identity
func.func @identity(%q: tensor<4x8xf64>) -> tensor<4x8xf64> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d]
    normalizer(%s: f64, %b, %h, %i, %j) { attn.yield %s : f64 } : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
  return %o : tensor<4x8xf64>
}

// Derivatives have neither a log-sum-exp nor delta.
// RUN: saccade-opt %s -attn-differentiate | FileCheck %s --check-prefix=DERIVATIVES
// DERIVATIVES-LABEL: func.func @derived_gradient(
// DERIVATIVES-SAME:    %{{[a-z0-9]*}}: tensor<4x8xf32>, %{{[a-z0-9]*}}: tensor<4x8xf32>, %{{[a-z0-9]*}}: tensor<4x8xf32>)
// DERIVATIVES:         attn.gradient
// DERIVATIVES-NOT:     lse
// DERIVATIVES:           normalizer(
// DERIVATIVES:           gradient(
// DERIVATIVES-LABEL: func.func @derived_jvp
// DERIVATIVES:         attn.jvp
// DERIVATIVES-NOT:     lse
// DERIVATIVES:           normalizer(
// DERIVATIVES:           tangent(
func.func @derived(%q: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.gradient, attn.jvp} {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d]
    normalizer(%s, %b, %h, %i, %j) {
      %r = arith.mulf %s, %s : f32
      attn.yield %r : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @step
// CHECK: attn.accumulate
// CHECK: normalizer(
func.func @step(%x: tensor<4x8xf32>, %m: tensor<4xf32>) -> tensor<4x8xf32> {
  %a, %n, %l = attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return %a : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @sticks
// CHECK: attn.attention %{{.*}}[h,s,d], %{{.*}}[h,s,d], %{{.*}}[h,s,d] normalizer stick_breaking : (
func.func @sticks(%q: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] normalizer stick_breaking
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %o : tensor<2x4x8xf32>
}

// CHECK-LABEL: func.func @sticks_of_a_gradient
// CHECK: attn.gradient {{.*}} output_gradient(%{{.*}}[s,d] : tensor<4x8xf32>) normalizer stick_breaking : (
func.func @sticks_of_a_gradient(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a, %b, %c = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>)
    normalizer stick_breaking : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return %a : tensor<4x8xf32>
}
