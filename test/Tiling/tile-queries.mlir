// RUN: saccade-opt %s --attn-tile-queries -canonicalize -cse | FileCheck %s

// One task a batch, head and chunk of queries; a key head serves its group of query heads.
// CHECK-DAG: #[[GROUP:.*]] = affine_map<()[s0] -> (s0 floordiv 4)>
// CHECK-LABEL: @a_task_is_one_head_and_a_chunk_of_queries
// CHECK-SAME: %[[Q:.*]]: tensor<?x8x?x64xf32>, %[[K:.*]]: tensor<?x2x?x64xf32>, %[[V:.*]]: tensor<?x2x?x64xf32>
func.func @a_task_is_one_head_and_a_chunk_of_queries(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>) -> tensor<?x8x?x64xf32> {
  // CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[I:.*]]) = (0, 0, 0) to (%{{.*}}, 8, %[[S:.*]]) step (1, 1, %[[CHUNK:.*]])
  // CHECK-DAG: %[[KH:.*]] = affine.apply #[[GROUP]]()[%[[H]]]
  // CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[B]], %[[H]], %[[I]], 0]
  // CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[B]], %[[KH]], 0, 0]
  // CHECK-DAG: %[[VT:.*]] = tensor.extract_slice %[[V]][%[[B]], %[[KH]], 0, 0]
  // CHECK: attn.attention %[[QT]][b,h,s,d], %[[KT]][b,h,s,d], %[[VT]][b,h,s,d] q_len(%[[S]] : index) kv_len(%{{.*}} : index) at(%[[B]], %[[H]], %[[I]], %{{.*}})
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

// 500 queries are two chunks of 252 (whole blocks of twelve rows), not 384 and 116.
// CHECK-LABEL: @chunks_are_even
func.func @chunks_are_even(%q: tensor<500x64xf32>, %k: tensor<?x64xf32>) -> tensor<500x64xf32> {
  // CHECK: scf.forall (%{{.*}}) = (0) to (500) step (252)
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<500x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<500x64xf32>
  return %o : tensor<500x64xf32>
}

// The start of the whole moves with the tile, for regions that ask where they are.
// CHECK-LABEL: @positions_stay_absolute
// CHECK-SAME: %[[X:[^ ]*]]: tensor<48x8xf32>, %[[FIRST:[^ ]*]]: index
func.func @positions_stay_absolute(%x: tensor<48x8xf32>, %first: index) -> tensor<48x8xf32> {
  // CHECK: %[[ZERO:.*]] = arith.constant 0 : index
  // CHECK: scf.forall (%[[I:.*]]) = (0) to (48) step (24)
  // CHECK: %[[AT:.*]] = affine.apply #{{.*}}()[%[[FIRST]], %[[I]]]
  // CHECK: at(%[[ZERO]], %[[ZERO]], %[[AT]], %[[FIRST]])
  %zero = arith.constant 0 : index
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] at(%zero, %zero, %first, %first) {schedule = #attn.schedule<rows = 24, cols = 512>}
      : (tensor<48x8xf32>, tensor<48x8xf32>, tensor<48x8xf32>) -> tensor<48x8xf32>
  return %o : tensor<48x8xf32>
}
