// One task per batch and KV head has loops over tiles of keys and of queries, with five matmuls in a tile.
// RUN: saccade-opt %s -attn-tile-gradient | FileCheck %s
// With `gpu`, one task computes a tile of queries and another a tile of keys.
// RUN: saccade-opt %s -attn-tile-gradient=gpu | FileCheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @causal
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (%{{.*}}, 2) {{.*}} -> (tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>)
// CHECK: scf.for %[[KEY:.*]] = %c0{{.*}} to %{{.*}} step %c32
// Heads of the KV head, then the tiles of queries at and after the first key.
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %c2{{.*}} step %c1
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c16
// CHECK-COUNT-2: schedule = #attn.schedule<rows = 16, cols = 32, depth = 8>
// CHECK: math.exp2
// CHECK: schedule = #attn.schedule<rows = 16, cols = 8, depth = 32>
// CHECK-COUNT-2: schedule = #attn.schedule<rows = 32, cols = 8, depth = 16>
// CHECK-COUNT-3: tensor.parallel_insert_slice
// CHECK-NOT: attn.gradient
// GPU-LABEL: func.func @causal
// GPU: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) = (0, 0, 0) to (%{{.*}}, 4, %{{.*}}) step (1, 1, 16)
// GPU: tensor.parallel_insert_slice
// GPU: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) = (0, 0, 0) to (%{{.*}}, 2, %{{.*}}) step (1, 1, 32)
// GPU-COUNT-2: tensor.parallel_insert_slice
func.func @causal(%q: tensor<?x4x?x8xf32>, %k: tensor<?x2x?x8xf32>, %l: tensor<?x4x?xf32>)
    -> (tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) {
  %r:3 = attn.gradient %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] output_gradient(%q[b,h,s,d] : tensor<?x4x?x8xf32>)
    lse(%l : tensor<?x4x?xf32>) delta(%l : tensor<?x4x?xf32>) mask causal<top_left>
    {schedule = #attn.schedule<rows = 16, cols = 32>}
    : (tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>)
    -> (tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>)
  return %r#0, %r#1, %r#2 : tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>
}

// A mask that bounds do not express: a tile without visible pairs is skipped.
// CHECK-LABEL: func.func @documents
// CHECK: scf.if
// CHECK: math.exp2
func.func @documents(%x: tensor<?x8xf32>, %l: tensor<?xf32>, %doc: tensor<?xi32>) -> tensor<?x8xf32> {
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] captures(%doc : tensor<?xi32>) output_gradient(%x[s,d] : tensor<?x8xf32>)
    lse(%l : tensor<?xf32>) delta(%l : tensor<?xf32>)
    mask(%b, %h, %i, %j, %d) {
      %u = tensor.extract %d[%i] : tensor<?xi32>
      %v = tensor.extract %d[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %u, %v : i32
      attn.yield %same : i1
    } {schedule = #attn.schedule<rows = 16, cols = 32>}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %r#0 : tensor<?x8xf32>
}

// EXAMPLE
// The gradient of a number per head has a part for each batch, and its sum over the pairs of a tile is one reduction.
// Parts are added up after the loop.
// CHECK-LABEL: func.func @slopes
// CHECK: linalg.fill {{.*}} -> tensor<?x4xf32>
// CHECK: scf.forall
// CHECK: iterator_types = ["reduction", "reduction"]
// CHECK: iterator_types = ["parallel", "reduction"]
func.func @slopes(%x: tensor<?x4x?x8xf32>, %l: tensor<?x4x?xf32>, %slope: tensor<4xf32>) -> tensor<4xf32> {
  %r:4 = attn.gradient %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] captures(%slope : tensor<4xf32>)
    output_gradient(%x[b,h,s,d] : tensor<?x4x?x8xf32>) lse(%l : tensor<?x4x?xf32>) delta(%l : tensor<?x4x?xf32>)
    gradient<0>(%p, %s, %dp, %delta, %b, %h, %i, %j, %c) {
      attn.yield %p, %h, %p : f32, index, f32
    } {schedule = #attn.schedule<rows = 16, cols = 32>}
    : (tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>)
    -> (tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>, tensor<4xf32>)
  return %r#3 : tensor<4xf32>
}
