// attn.jvp is printed as it is parsed.
// RUN: saccade-opt %s | FileCheck %s
// RUN: saccade-opt %s | saccade-opt | FileCheck %s

// CHECK-LABEL: func.func @plain
// CHECK: attn.jvp %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d] scale(5.000000e-01)
// CHECK-SAME: query_tangent(%{{.*}} : tensor<2x4x?x8xf32>) value_tangent(%{{.*}} : tensor<2x2x?x8xf32>) lse(%{{.*}} : tensor<2x4x?xf32>) out[b,s,h,d]
// CHECK-NEXT: mask(%b, %h, %q, %k)
// CHECK-NOT: tangent(
// CHECK: -> (tensor<2x?x4x8xf32>, tensor<2x4x?xf32>)
func.func @plain(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>, %l: tensor<2x4x?xf32>) -> tensor<2x?x4x8xf32> {
  %r:2 = attn.jvp %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] lse(%l : tensor<2x4x?xf32>) scale(0.5)
    value_tangent(%k : tensor<2x2x?x8xf32>) query_tangent(%q : tensor<2x4x?x8xf32>) out[b,s,h,d] mask causal<top_left>
    : (tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>) -> (tensor<2x?x4x8xf32>, tensor<2x4x?xf32>)
  return %r#0 : tensor<2x?x4x8xf32>
}

// A capture with its tangent, a run-time scale with its tangent, a tally.
// CHECK-LABEL: func.func @captures
// CHECK: attn.jvp {{.*}} captures(%{{.*}}, %{{.*}} : f64, f64) scale(%{{.*}} : f64) key_tangent(%{{.*}} : tensor<?x8xf64>) scale_tangent(%{{.*}} : f64) lse(
// CHECK: score(%s: f64, %b, %h, %q, %k, %{{.*}}, %{{.*}})
// CHECK: tangent(%p: f64, %s: f64, %ds: f64, %b, %h, %q, %k, %{{.*}}, %{{.*}})
// CHECK: attn.yield %{{.*}}, %{{.*}}, %k, %{{.*}} : f64, f64, index, f64
// CHECK: -> (tensor<?x8xf64>, tensor<?xf64>, tensor<?x4xf64>)
func.func @captures(%q: tensor<?x8xf64>, %l: tensor<?xf64>, %c: f64, %dc: f64) -> tensor<?x4xf64> {
  %r:3 = attn.jvp %q[s,d], %q[s,d], %q[s,d] captures(%c, %dc : f64, f64) scale(%c : f64) scale_tangent(%dc : f64)
    key_tangent(%q : tensor<?x8xf64>) lse(%l : tensor<?xf64>)
    score(%s : f64, %b, %h, %i, %j, %x, %dx) {
      %z = arith.mulf %x, %s : f64
      attn.yield %z : f64
    }
    tangent(%p : f64, %s : f64, %ds : f64, %b, %h, %i, %j, %x, %dx) {
      %y = arith.mulf %x, %ds : f64
      %z = arith.mulf %dx, %s : f64
      %t = arith.addf %y, %z : f64
      %dp = arith.mulf %p, %t : f64
      attn.yield %dp, %dp, %j, %dp : f64, f64, index, f64
    } : (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>) -> (tensor<?x8xf64>, tensor<?xf64>, tensor<?x4xf64>)
  return %r#2 : tensor<?x4xf64>
}
