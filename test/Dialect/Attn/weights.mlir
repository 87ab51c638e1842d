// attn.weights is printed as it is parsed.
// RUN: saccade-opt %s | FileCheck %s
// RUN: saccade-opt %s | saccade-opt | FileCheck %s

// CHECK-LABEL: func.func @plain
// CHECK: attn.weights %{{.*}}[b,h,s,d], %{{.*}}[b,s,h,d] kv_len(%{{.*}} : tensor<2xi32>) scale(5.000000e-01) at(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) lse(%{{.*}} : tensor<2x4x?xf32>) lse_low(%{{.*}} : tensor<2x4x?xf32>)
// CHECK-NEXT: mask(%b, %h, %q, %k)
// CHECK: } : (tensor<2x4x?x8xbf16>, tensor<2x?x2x8xbf16>) -> tensor<2x4x?x?xf32>
func.func @plain(%q: tensor<2x4x?x8xbf16>, %k: tensor<2x?x2x8xbf16>, %l: tensor<2x4x?xf32>, %n: tensor<2xi32>, %i: index)
    -> tensor<2x4x?x?xf32> {
  %w = attn.weights %q[b,h,s,d], %k[b,s,h,d] lse(%l : tensor<2x4x?xf32>) scale(0.5) lse_low(%l : tensor<2x4x?xf32>)
    mask causal<bottom_right> kv_len(%n : tensor<2xi32>) at(%i, %i, %i, %i)
    : (tensor<2x4x?x8xbf16>, tensor<2x?x2x8xbf16>) -> tensor<2x4x?x?xf32>
  return %w : tensor<2x4x?x?xf32>
}

// A capture, a run-time scale, dropout as a weight region.
// CHECK-LABEL: func.func @captures
// CHECK: attn.weights {{.*}} captures(%{{.*}}, %{{.*}} : f64, i64) scale(%{{.*}} : f64) lse(%{{.*}} : tensor<?xf64>)
// CHECK-NEXT: score(%s: f64, %b, %h, %q, %k, %{{.*}}, %{{.*}})
// CHECK: weight(%p: f64, %b, %h, %q, %k, %{{.*}}, %{{.*}})
// CHECK: -> tensor<?x9xf64>
func.func @captures(%q: tensor<?x8xf64>, %k: tensor<9x8xf64>, %l: tensor<?xf64>, %c: f64, %seed: i64) -> tensor<?x9xf64> {
  %w = attn.weights %q[s,d], %k[s,d] captures(%c : f64) scale(%c : f64) lse(%l : tensor<?xf64>) dropout(0.5, %seed : i64)
    score(%s : f64, %b, %h, %i, %j, %x) {
      %z = arith.mulf %x, %s : f64
      attn.yield %z : f64
    } : (tensor<?x8xf64>, tensor<9x8xf64>) -> tensor<?x9xf64>
  return %w : tensor<?x9xf64>
}
