// attn.gradient is printed as it is parsed.
// RUN: saccade-opt %s | FileCheck %s
// RUN: saccade-opt %s | saccade-opt | FileCheck %s

// CHECK-LABEL: func.func @plain
// CHECK: attn.gradient %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d] scale(5.000000e-01)
// CHECK-SAME: output_gradient(%{{.*}}[b,s,h,d] : tensor<2x?x4x8xf32>) lse(%{{.*}} : tensor<2x4x?xf32>) delta(%{{.*}} : tensor<2x4x?xf32>)
// CHECK-NEXT: mask(%b, %h, %q, %k)
// CHECK-NOT: gradient(
func.func @plain(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>, %do: tensor<2x?x4x8xf32>, %l: tensor<2x4x?xf32>, %d: tensor<2x4x?xf32>)
    -> (tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>) {
  %r:3 = attn.gradient %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] scale(0.5) lse(%l : tensor<2x4x?xf32>)
    delta(%d : tensor<2x4x?xf32>) output_gradient(%do[b,s,h,d] : tensor<2x?x4x8xf32>) mask causal<top_left>
    : (tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>)
    -> (tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>)
  return %r#0, %r#1, %r#2 : tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>
}

// Gradients of a table that is read twice and of a scalar; the results are in the order of the captures.
// CHECK-LABEL: func.func @captures
// CHECK: attn.gradient {{.*}} captures(%{{.*}}, %{{.*}} : tensor<?x?xf64>, f64)
// CHECK: score(%s: f64, %b, %h, %q, %k, %{{.*}}, %{{.*}})
// CHECK: gradient<0, 1, 0>(%p: f64, %s: f64, %dp: f64, %delta: f64, %b, %h, %q, %k, %{{.*}}, %{{.*}})
// CHECK: attn.yield %{{.*}}, %q, %k, %{{.*}}, %{{.*}}, %k, %q, %{{.*}} : f64, index, index, f64, f64, index, index, f64
// CHECK: -> (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x?xf64>, tensor<f64>)
func.func @captures(%q: tensor<?x8xf64>, %l: tensor<?xf64>, %table: tensor<?x?xf64>, %c: f64) -> (tensor<?x?xf64>, tensor<f64>) {
  %r:5 = attn.gradient %q[s,d], %q[s,d], %q[s,d] captures(%table, %c : tensor<?x?xf64>, f64)
    output_gradient(%q[s,d] : tensor<?x8xf64>) lse(%l : tensor<?xf64>) delta(%l : tensor<?xf64>)
    score(%s : f64, %b, %h, %i, %j, %t, %x) {
      %u = tensor.extract %t[%i, %j] : tensor<?x?xf64>
      %v = tensor.extract %t[%j, %i] : tensor<?x?xf64>
      %y = arith.addf %u, %v : f64
      %z = arith.mulf %x, %s : f64
      %w = arith.addf %y, %z : f64
      attn.yield %w : f64
    }
    gradient<0, 1, 0>(%p : f64, %s : f64, %dp : f64, %delta : f64, %b, %h, %i, %j, %t, %x) {
      %e = arith.subf %dp, %delta : f64
      %g = arith.mulf %p, %e : f64
      %ds = arith.mulf %g, %x : f64
      %dx = arith.mulf %g, %s : f64
      attn.yield %ds, %i, %j, %g, %dx, %j, %i, %g : f64, index, index, f64, f64, index, index, f64
    } : (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>)
    -> (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x?xf64>, tensor<f64>)
  return %r#3, %r#4 : tensor<?x?xf64>, tensor<f64>
}
