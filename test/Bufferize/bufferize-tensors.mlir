// RUN: saccade-opt --attn-results-to-destinations --attn-bufferize-tensors --cse --canonicalize %s | FileCheck %s

// CHECK-LABEL: func.func @regions_keep_their_tensors(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<?x8xf32, strided<[?, ?], offset: ?>>,
// CHECK-SAME:    %[[BIAS:[a-z0-9]+]]: memref<4xf32, strided<[?], offset: ?>>,
// CHECK-NOT:     linalg.copy
// CHECK:         %[[ACC:.*]] = memref.alloc() {{.*}} : memref<16x8xf32>
// CHECK-NOT:     linalg.copy
// CHECK:         attn.accumulate %[[Q]][s,d], %[[Q]][s,d], %[[Q]][s,d] captures(%[[BIAS]] :
// CHECK-SAME:      into(%[[ACC]],
// CHECK:           score(%{{.*}}, %{{.*}}, %[[H:[a-z0-9]+]], %{{.*}}, %{{.*}}, %[[CAPTURE:[a-z0-9]+]])
// CHECK:           tensor.extract %[[CAPTURE]][%[[H]]] : tensor<4xf32>
// CHECK-NOT:     linalg.copy
// CHECK:         return
func.func @regions_keep_their_tensors(%q: tensor<?x8xf32>, %bias: tensor<4xf32>, %out: tensor<?x8xf32>) -> tensor<16x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %square = tensor.empty() : tensor<16x8xf32>
  %column = tensor.empty() : tensor<16xf32>
  %acc = linalg.fill ins(%zero : f32) outs(%square : tensor<16x8xf32>) -> tensor<16x8xf32>
  %max = linalg.fill ins(%least : f32) outs(%column : tensor<16xf32>) -> tensor<16xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%column : tensor<16xf32>) -> tensor<16xf32>
  %state:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] captures(%bias : tensor<4xf32>) at(%c0, %c0, %c0, %c0)
    into(%acc, %max, %sum : tensor<16x8xf32>, tensor<16xf32>, tensor<16xf32>)
    score(%s, %b, %h, %i, %j, %c) {
      %slope = tensor.extract %c[%h] : tensor<4xf32>
      %biased = arith.addf %s, %slope : f32
      attn.yield %biased : f32
    } : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  %empty = tensor.empty() : tensor<16x8xf32>
  %o = attn.finalize %state#0, %state#1, %state#2 : tensor<16x8xf32>, tensor<16xf32>, tensor<16xf32>
    into(%empty[s,d] : tensor<16x8xf32>)
  return %o : tensor<16x8xf32>
}

// CHECK-LABEL: func.func @finalize_writes_into_the_result(
// CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<4x8xf32, strided<[?, ?], offset: ?>>, %[[LSE:[a-z0-9]+]]: memref<4xf32, strided<[?], offset: ?>>) {
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     linalg.copy
// CHECK:         attn.finalize {{.*}} into(%[[OUT]][s,d] : {{.*}}, %[[LSE]] :
// CHECK-NEXT:    return
func.func @finalize_writes_into_the_result(%acc: tensor<4x8xf32>, %max: tensor<4xf32>, %sum: tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>) {
  %empty = tensor.empty() : tensor<4x8xf32>
  %column = tensor.empty() : tensor<4xf32>
  %o:2 = attn.finalize %acc, %max, %sum : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
    into(%empty[s,d] : tensor<4x8xf32>, %column : tensor<4xf32>)
  return %o#0, %o#1 : tensor<4x8xf32>, tensor<4xf32>
}

// Two states that begin with the same values need two buffers; merge reads one and updates the other.
// CHECK-LABEL: func.func @merge_updates_its_destination(
// CHECK-SAME:    %[[ACC:[a-z0-9]+]]: memref<4x8xf32,
// CHECK:         linalg.copy ins(%[[ACC]] : {{.*}}) outs(%[[STATE:.*]] : memref<4x8xf32
// CHECK:         attn.merge(%[[ACC]], %{{.*}}, %{{.*}}) into(%[[STATE]],
func.func @merge_updates_its_destination(%acc: tensor<4x8xf32>, %max: tensor<4xf32>, %sum: tensor<4xf32>) -> tensor<4x8xf32> {
  %state:3 = attn.merge (%acc, %max, %sum) into(%acc, %max, %sum)
    : (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return %state#0 : tensor<4x8xf32>
}

// EXAMPLE
// CHECK-LABEL: func.func @arguments_are_not_overwritten(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8xf32, {{.*}}>, %[[OUT:[a-z0-9]+]]: memref<8xf32,
// CHECK-NOT:     outs(%[[X]]
// CHECK:         return
func.func @arguments_are_not_overwritten(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = linalg.add ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// The accumulators share one tensor.empty outside of the loop; every iteration gets its own memory.
// CHECK-LABEL: func.func @iterations_do_not_share_temporaries(
// CHECK-NOT:     memref.alloc
// CHECK:         scf.forall
// CHECK:           %[[TILE:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK:           linalg.exp {{.*}} outs(%[[TILE]] :
func.func @iterations_do_not_share_temporaries(%x: tensor<32xf32>) -> tensor<32xf32> {
  %out = tensor.empty() : tensor<32xf32>
  %shared = tensor.empty() : tensor<4xf32>
  %r = scf.forall (%i) = (0) to (32) step (4) shared_outs(%o = %out) -> tensor<32xf32> {
    %tile = tensor.extract_slice %x[%i] [4] [1] : tensor<32xf32> to tensor<4xf32>
    %place = tensor.extract_slice %o[%i] [4] [1] : tensor<32xf32> to tensor<4xf32>
    %e = linalg.exp ins(%tile : tensor<4xf32>) outs(%shared : tensor<4xf32>) -> tensor<4xf32>
    %s = linalg.add ins(%e, %tile : tensor<4xf32>, tensor<4xf32>) outs(%place : tensor<4xf32>) -> tensor<4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [4] [1] : tensor<4xf32> into tensor<32xf32>
    }
  }
  return %r : tensor<32xf32>
}

// One of three unit dimensions is dropped. With dynamic strides only the shape determines which.
// CHECK-LABEL: func.func @view_drops_same_dimension_as_slice(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<3x3x3x9xf32, strided<[?, ?, ?, ?], offset: ?>>
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}}:4, %[[S:.*]]:4 = memref.extract_strided_metadata %[[X]]
// CHECK:         memref.reinterpret_cast {{.*}} sizes: [1, 2, 4], strides: [%[[S]]#0, %[[S]]#1, %[[S]]#3]
func.func @view_drops_same_dimension_as_slice(%x: tensor<3x3x3x9xf32>) -> tensor<1x2x4xf32> {
  %slice = tensor.extract_slice %x[1, 0, 1, 2] [1, 2, 1, 4] [1, 1, 1, 1] : tensor<3x3x3x9xf32> to tensor<1x2x4xf32>
  %out = tensor.empty() : tensor<1x2x4xf32>
  %r = linalg.exp ins(%slice : tensor<1x2x4xf32>) outs(%out : tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  return %r : tensor<1x2x4xf32>
}

// Every iteration fills its own buffer instead of copying one filled before the loop.
// CHECK-LABEL: func.func @initial_values_are_filled_per_iteration(
// CHECK:         scf.for
// CHECK-NOT:       linalg.copy
// CHECK:           linalg.fill
// CHECK-NOT:       linalg.copy
// CHECK:           linalg.reduce
func.func @initial_values_are_filled_per_iteration(%x: tensor<8x4xf32>, %n: index) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<8xf32>) -> tensor<8xf32>
  %out = tensor.empty() : tensor<8xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%before = %out) -> tensor<8xf32> {
    %sums = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%start : tensor<8xf32>) dimensions = [1]
      (%e: f32, %s: f32) {
        %t = arith.addf %e, %s : f32
        linalg.yield %t : f32
      }
    %next = linalg.exp ins(%sums : tensor<8xf32>) outs(%before : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %next : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}
