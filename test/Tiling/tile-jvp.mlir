// One task per batch, head and tile of queries has a loop over tiles of keys. A tile has three matmuls for the scores and
// their tangents, an elementwise op, two matmuls of weights and a sum for each row.
// RUN: saccade-opt %s -attn-tile-jvp | FileCheck %s

// EXAMPLE
// CHECK-LABEL: func.func @causal
// CHECK: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) = (0, 0, 0) to (%{{.*}}, 4, %{{.*}}) step (1, 1, 16)
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c32
// CHECK-COUNT-3: schedule = #attn.schedule<rows = 16, cols = 32, depth = 8>
// CHECK: math.exp2
// CHECK-COUNT-2: schedule = #attn.schedule<rows = 16, cols = 8, depth = 32>
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK-COUNT-2: tensor.parallel_insert_slice
// CHECK-NOT: attn.jvp
func.func @causal(%q: tensor<?x4x?x8xf32>, %k: tensor<?x2x?x8xf32>, %l: tensor<?x4x?xf32>) -> (tensor<?x4x?x8xf32>, tensor<?x4x?xf32>) {
  %r:2 = attn.jvp %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] query_tangent(%q : tensor<?x4x?x8xf32>)
    key_tangent(%k : tensor<?x2x?x8xf32>) value_tangent(%k : tensor<?x2x?x8xf32>) lse(%l : tensor<?x4x?xf32>)
    mask causal<top_left> {schedule = #attn.schedule<rows = 16, cols = 32>}
    : (tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) -> (tensor<?x4x?x8xf32>, tensor<?x4x?xf32>)
  return %r#0, %r#1 : tensor<?x4x?x8xf32>, tensor<?x4x?xf32>
}

// Without the tangents of keys and values there are three matmuls. A mask that bounds do not express: a tile without
// visible pairs is skipped.
// CHECK-LABEL: func.func @documents
// CHECK: scf.if
// CHECK-COUNT-3: schedule = #attn.schedule
// CHECK-NOT: schedule = #attn.schedule
func.func @documents(%x: tensor<?x8xf32>, %l: tensor<?xf32>, %doc: tensor<?xi32>) -> tensor<?x8xf32> {
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] captures(%doc : tensor<?xi32>) query_tangent(%x : tensor<?x8xf32>)
    lse(%l : tensor<?xf32>)
    mask(%b, %h, %i, %j, %d) {
      %u = tensor.extract %d[%i] : tensor<?xi32>
      %v = tensor.extract %d[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %u, %v : i32
      attn.yield %same : i1
    } {schedule = #attn.schedule<rows = 16, cols = 32>}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?xf32>)
  return %r#0 : tensor<?x8xf32>
}
