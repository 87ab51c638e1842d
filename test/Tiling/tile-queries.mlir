// RUN: saccade-opt %s --attn-tile-queries -canonicalize -cse | FileCheck %s

// One task per batch, head and chunk of queries; a KV head is shared by a group of query heads.
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

// EXAMPLE
// 500 queries are tiled into two chunks of at most 252 (a multiple of twelve rows), not 384 and 116.
// CHECK-LABEL: @chunks_are_even
func.func @chunks_are_even(%q: tensor<500x64xf32>, %k: tensor<?x64xf32>) -> tensor<500x64xf32> {
  // CHECK: scf.forall {{.*}} to (1, 1, 500) step (1, 1, 252)
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<500x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<500x64xf32>
  return %o : tensor<500x64xf32>
}

// `at` is offset by the position of the tile, so that regions use absolute positions.
// CHECK-LABEL: @positions_stay_absolute
// CHECK-SAME: %[[X:[^ ]*]]: tensor<48x8xf32>, %[[FIRST:[^ ]*]]: index
func.func @positions_stay_absolute(%x: tensor<48x8xf32>, %first: index) -> tensor<48x8xf32> {
  // CHECK: %[[ZERO:.*]] = arith.constant 0 : index
  // CHECK: scf.forall ({{.*}}, %[[I:[^ ,]*]]) = {{.*}} to (1, 1, 48) step (1, 1, 24)
  // CHECK: %[[AT:.*]] = affine.apply #{{.*}}()[%[[FIRST]], %[[I]]]
  // CHECK: at(%[[ZERO]], %[[ZERO]], %[[AT]], %[[FIRST]])
  %zero = arith.constant 0 : index
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] at(%zero, %zero, %first, %first) {schedule = #attn.schedule<rows = 24, cols = 512>}
      : (tensor<48x8xf32>, tensor<48x8xf32>, tensor<48x8xf32>) -> tensor<48x8xf32>
  return %o : tensor<48x8xf32>
}

// One query: a task computes all four query heads of a KV head over one chunk of 1024 keys and stores its state in the
// tensor of all states, which the second loop merges from left to right. With a single chunk the first loop finalizes the
// result, and the second merges nothing.
// CHECK-LABEL: @split_kv
// CHECK-SAME: %[[Q:.*]]: tensor<?x8x1x64xf32>, %[[K:.*]]: tensor<?x2x?x64xf32>, %[[V:.*]]: tensor<?x2x?x48xf32>
func.func @split_kv(%q: tensor<?x8x1x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x48xf32>) -> tensor<?x8x1x48xf32> {
  // CHECK: %[[BATCHES:.*]] = tensor.dim %[[Q]]
  // CHECK: %[[QUOTIENT:.*]] = arith.floordivsi
  // CHECK: %[[CHUNKS:.*]] = arith.maxsi %[[QUOTIENT]], %[[ONE:.*]] : index
  // CHECK: %[[SINGLE:.*]] = arith.cmpi eq, %[[CHUNKS]], %[[ONE]]
  // CHECK: %[[HEADS:.*]] = arith.muli %[[BATCHES]], %{{.*}}
  // CHECK: %[[ITEMS:.*]] = arith.muli %[[HEADS]], %[[CHUNKS]]
  // CHECK: %[[ALL:.*]] = tensor.empty(%[[ITEMS]]) : tensor<?x12x48xf32>
  // CHECK: %[[STATES:.*]]:4 = scf.forall (%[[ITEM:.*]]) in (%[[ITEMS]])
  // CHECK: %[[TASKS:.*]] = arith.muli %[[CHUNKS]], %[[TWO:.*]] : index
  // CHECK-DAG: %[[B:.*]] = arith.divui %[[ITEM]], %[[TASKS]]
  // CHECK-DAG: %[[H:.*]] = arith.remui %[[ITEM]], %[[TWO]]
  // CHECK-DAG: %[[QS:.*]] = tensor.extract_slice %[[Q]][%[[B]], 0, 0, 0] [1, 8, 1, 64]
  // CHECK-DAG: %[[KS:.*]] = tensor.extract_slice %[[K]][%[[B]], 0, 0, 0]
  // CHECK-DAG: %[[VS:.*]] = tensor.extract_slice %[[V]][%[[B]], 0, 0, 0]
  // CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[QS]][0, %{{.*}}, 0, 0] [1, 4, 1, 64]
  // CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[KS]][0, %[[H]], %[[START:.*]], 0]
  // CHECK-DAG: %[[VT:.*]] = tensor.extract_slice %[[VS]][0, %[[H]], %[[START]], 0]
  // CHECK: attn.accumulate %[[QT]][h,s,d], %[[KT]][s,d], %[[VT]][s,d] {{.*}} {schedule = #attn.schedule<rows = 12, cols = 1024>, unpacked}
  // CHECK: %[[FINISHED:.*]] = arith.select %[[SINGLE]], %{{.*}}, %[[ZERO:.*]] : index
  // CHECK: scf.for %{{.*}} = %[[ZERO]] to %[[FINISHED]]
  // CHECK: attn.finalize
  // CHECK: %[[GROUPS:.*]] = arith.select %[[SINGLE]], %{{.*}}, %[[BATCHES]]
  // CHECK: scf.forall (%[[B:[^ ,]*]], %[[H:[^ ,]*]], %{{.*}}) in (%[[GROUPS]], 2, 1)
  // CHECK: %[[SEVERAL:.*]] = arith.cmpi sgt, %[[CHUNKS]], %[[ONE]]
  // CHECK: %[[MERGED:.*]] = arith.select %[[SEVERAL]], %[[CHUNKS]], %[[ZERO]]
  // CHECK: scf.for %[[C:.*]] = %{{.*}} to %[[MERGED]]
  // CHECK: %[[DISTANCE:.*]] = arith.muli %[[C]], %[[TWO]]
  // CHECK: %[[PLACE:.*]] = arith.addi %{{.*}}, %[[DISTANCE]]
  // CHECK: tensor.extract_slice %[[STATES]]#0[%[[PLACE]], 0, 0] [1, 4, 48]
  // CHECK: attn.merge
  // CHECK: attn.finalize
  // CHECK-NOT: attn.attention
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
      {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>, schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x8x1x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x48xf32>) -> tensor<?x8x1x48xf32>
  return %o : tensor<?x8x1x48xf32>
}

// The sinks are added to the state of the first chunk, per head.
// CHECK-LABEL: @a_sink_is_in_the_first_chunk
// CHECK-SAME: %{{.*}}, %{{.*}}, %[[SINK:.*]]: tensor<8xf32>
func.func @a_sink_is_in_the_first_chunk(%q: tensor<1x8x1x64xf32>, %k: tensor<1x2x?x64xf32>, %sink: tensor<8xf32>) -> tensor<1x8x1x64xf32> {
  // CHECK: scf.forall (%{{.*}}) in
  // CHECK: %[[C:.*]] = arith.divui %{{.*}}, %c2 : index
  // CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[C]], %[[ZERO:.*]] : index
  // CHECK: %[[HEADS:.*]] = arith.select %[[FIRST]], %{{.*}}, %[[ZERO]] : index
  // CHECK: %[[STATE:.*]]:2 = scf.for %[[I:.*]] = %[[ZERO]] to %[[HEADS]]
  // CHECK: %[[HEAD:.*]] = arith.addi %{{.*}}, %[[I]]
  // CHECK: tensor.extract %[[SINK]][%[[HEAD]]]
  // CHECK: linalg.fill
  // CHECK: linalg.fill
  // CHECK: attn.accumulate {{.*}} into(%{{.*}}, %[[STATE]]#0, %[[STATE]]#1 :
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] sink(%sink : tensor<8xf32>)
      {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>, schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<1x8x1x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>) -> tensor<1x8x1x64xf32>
  return %o : tensor<1x8x1x64xf32>
}

// If the number of queries is dynamic, both variants are emitted; the unused one has trip count zero.
// CHECK-LABEL: @dynamic_query_count
// CHECK-SAME: %[[Q:[^ :]*]]: tensor<?x64xf32>
func.func @dynamic_query_count(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK-DAG: %[[EIGHT:.*]] = arith.constant 8 : index
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
  // CHECK: %[[N:.*]] = tensor.dim %[[Q]]
  // CHECK: %[[FEW:.*]] = arith.cmpi sle, %[[N]], %[[EIGHT]]
  // CHECK: %[[UPPER:.*]] = arith.select %[[FEW]], %[[ZERO]], %{{.*}}
  // CHECK: %[[MANY:.*]] = scf.forall {{.*}} to (1, 1, %[[UPPER]])
  // CHECK: attn.attention
  // CHECK: %[[ITEMS:.*]] = arith.select %[[FEW]], %{{.*}}, %[[ZERO]]
  // CHECK: %[[GROUPS:.*]] = arith.select %[[FEW]], %{{.*}}, %[[ZERO]]
  // CHECK: %[[ONE:.*]]:4 = scf.forall (%{{.*}}) in (%[[ITEMS]]) shared_outs({{.*}} = %[[MANY]])
  // CHECK: attn.accumulate
  // CHECK: %[[MERGED:.*]] = arith.select %{{.*}}, %[[ZERO]], %[[GROUPS]]
  // CHECK: scf.forall (%{{.*}}) in (%[[MERGED]], {{.*}}) shared_outs(%{{.*}} = %[[ONE]]#3)
  // CHECK: attn.merge
  // CHECK: attn.finalize
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d]
      {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>, schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Ragged sequences: a work list is built before the parallel loop, and each task extracts its sequence. The first loop
// reads the offsets of queries, the second those of keys; both are clamped to the tensors.
// CHECK-LABEL: func.func @ragged_queries_and_keys
// CHECK: scf.for
// CHECK: tensor.extract %[[CU_Q:.*]][
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: scf.for
// CHECK: tensor.extract %[[CU_K:.*]][
// The items are sorted by the bit width of their cost, descending.
// CHECK: math.ctlz
// CHECK: scf.forall (%[[TASK:.*]]) in (%{{.*}})
// CHECK: arith.divui %[[TASK]]
// CHECK: attn.attention %{{.*}}[s,h,d], %{{.*}}[s,h,d], %{{.*}}[s,h,d] q_len(%{{.*}} : index) kv_len(%{{.*}} : index) at(
// CHECK-NOT: cu_seqlens_q
// CHECK: tensor.parallel_insert_slice
func.func @ragged_queries_and_keys(%q: tensor<?x4x64xf32>, %k: tensor<?x2x64xf32>, %cu_q: tensor<?xi32>, %cu_k: tensor<?xi32>)
    -> tensor<?x4x64xf32> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d] cu_seqlens_q(%cu_q : tensor<?xi32>) cu_seqlens_k(%cu_k : tensor<?xi32>)
    {schedule = #attn.schedule<rows = 576, cols = 512>}
    : (tensor<?x4x64xf32>, tensor<?x2x64xf32>, tensor<?x2x64xf32>) -> tensor<?x4x64xf32>
  return %o : tensor<?x4x64xf32>
}

// A mask limits the chunks: a window of 512 keys before the last query touches at most two chunks of 1024.
// CHECK-LABEL: @a_window_limits_the_chunks
// CHECK-DAG: %[[BEFORE:.*]] = arith.constant -511 : index
// CHECK-DAG: %[[SIZE:.*]] = arith.constant 1024 : index
// CHECK: %[[BEGIN:.*]] = arith.addi %{{.*}}, %[[BEFORE]]
// CHECK: %[[FIRST:.*]] = arith.floordivsi %{{.*}}, %[[SIZE]]
// CHECK: %[[END:.*]] = arith.floordivsi %{{.*}}, %[[SIZE]]
// CHECK: %[[NUMBER:.*]] = arith.subi %[[END]], %[[FIRST]]
// CHECK: %[[CHUNKS:.*]] = arith.maxsi %[[NUMBER]]
// CHECK: scf.forall (%[[ITEM:.*]]) in (%[[CHUNKS]])
// CHECK: arith.addi %[[FIRST]],
// CHECK: attn.accumulate
func.func @a_window_limits_the_chunks(%q: tensor<1x64xf32>, %k: tensor<?x64xf32>, %at: index) -> tensor<1x64xf32> {
  %zero = arith.constant 0 : index
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] at(%zero, %zero, %at, %zero)
      mask(%b, %h, %i, %j) {
        %window = arith.constant 512 : index
        %end = arith.addi %j, %window : index
        %near = arith.cmpi sgt, %end, %i : index
        %past = arith.cmpi sle, %j, %i : index
        %visible = arith.andi %near, %past : i1
        attn.yield %visible : i1
      }
      {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>, schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<1x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<1x64xf32>
  return %o : tensor<1x64xf32>
}

// Attention in a parallel loop is in a task.
// CHECK-LABEL: @already_in_a_task
// CHECK: scf.forall
// CHECK-NOT: scf.forall
// CHECK: attn.attention {{.*}}: (tensor<24x8xf32>
// CHECK: {mapping = [#attn.task<0>]}
func.func @already_in_a_task(%x: tensor<48x8xf32>) -> tensor<48x8xf32> {
  %empty = tensor.empty() : tensor<48x8xf32>
  %r = scf.forall (%i) = (0) to (48) step (24) shared_outs(%out = %empty) -> tensor<48x8xf32> {
    %q = tensor.extract_slice %x[%i, 0] [24, 8] [1, 1] : tensor<48x8xf32> to tensor<24x8xf32>
    %o = attn.attention %q[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 512>}
        : (tensor<24x8xf32>, tensor<48x8xf32>, tensor<48x8xf32>) -> tensor<24x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %o into %out[%i, 0] [24, 8] [1, 1] : tensor<24x8xf32> into tensor<48x8xf32>
    }
  }
  return %r : tensor<48x8xf32>
}

// Split-KV for all queries: a loop over blocks of eight, with the loops of split-KV in it, and no others.
// CHECK-LABEL: @all_queries
// CHECK-NOT: scf.forall (
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c8
// CHECK: scf.forall (
// CHECK: attn.accumulate {{.*}} unpacked
// CHECK: scf.forall (
// CHECK: attn.merge
// CHECK: tensor.insert_slice
// CHECK: scf.yield
// CHECK-NOT: scf.forall (
func.func @all_queries(%q: tensor<2x8x?x64xf32>, %k: tensor<2x2x?x64xf32>, %v: tensor<2x2x?x64xf32>) -> tensor<2x8x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
      {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 256, all = true>, schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<2x8x?x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x64xf32>) -> tensor<2x8x?x64xf32>
  return %o : tensor<2x8x?x64xf32>
}
