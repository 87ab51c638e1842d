// RUN: saccade-opt --attn-results-to-destinations --attn-fold-boundary-reshapes --canonicalize %s | FileCheck %s
// RUN: saccade-opt --saccade-bufferize %s | FileCheck %s --check-prefix=STAGE

// A run-time test copies only if the outer stride is not the inner extent times the inner stride.
// CHECK-LABEL: func.func @collapsed_argument_is_a_view(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x8xf32>, %[[OUT:.*]]: memref<
// CHECK:         %[[BUFFER:.*]] = bufferization.to_buffer %[[X]] read_only
// CHECK:         {{.*}}, %{{.*}}, %[[SIZES:.*]]:3, %[[STRIDES:.*]]:3 = memref.extract_strided_metadata %[[BUFFER]]
// CHECK:         %[[DENSE:.*]] = arith.muli %[[STRIDES]]#1, %[[SIZES]]#1
// CHECK:         arith.cmpi eq, %[[STRIDES]]#0, %[[DENSE]]
// CHECK:         arith.cmpi eq, %[[SIZES]]#1, %c1
// CHECK:         arith.cmpi eq, %[[SIZES]]#0, %c1
// CHECK:         %[[VIEW:.*]] = memref.reinterpret_cast %[[BUFFER]]
// CHECK:         %[[ROWS:.*]] = arith.select %[[FITS:.*]], %c0, %{{.*}} : index
// CHECK:         %[[COPY:.*]] = memref.alloc(%[[ROWS]]) : memref<?x8xf32>
// CHECK:         %[[COPIES:.*]] = arith.cmpi eq, %[[FITS]], %false
// CHECK:         scf.if %[[COPIES]]
// CHECK:           linalg.copy ins(%[[BUFFER]]
// CHECK:         %[[CAST:.*]] = memref.cast %[[COPY]]
// CHECK:         %[[CHOSEN:.*]] = arith.select %[[FITS]], %[[VIEW]], %[[CAST]]
// CHECK:         bufferization.to_tensor %[[CHOSEN]] restrict :

// There is no copy outside of the branch.
// STAGE-LABEL: func.func @collapsed_argument_is_a_view(
// STAGE:         linalg.copy
// STAGE:         }
// STAGE-NOT:     linalg.copy
// STAGE:         return
func.func @collapsed_argument_is_a_view(%x: tensor<?x?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  %n = tensor.dim %flat, %c0 : tensor<?x8xf32>
  %empty = tensor.empty(%n) : tensor<?x8xf32>
  %r = linalg.exp ins(%flat : tensor<?x8xf32>) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @expanded_result_is_written_through_a_view(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %{{.*}}: index, %[[OUT:.*]]: memref<?x?x8xf32
// CHECK:         %[[VIEW:.*]] = memref.reinterpret_cast %[[OUT]]
// CHECK:         %[[TEMPORARY:.*]] = memref.alloc
// CHECK:         %[[CHOSEN:.*]] = arith.select %{{.*}}, %[[VIEW]], %{{.*}}
// CHECK:         bufferization.materialize_in_destination %{{.*}} in restrict writable %[[CHOSEN]]
// CHECK:         scf.if
// CHECK:           %[[EXPANDED:.*]] = memref.expand_shape %[[TEMPORARY]]
// CHECK:           linalg.copy ins(%[[EXPANDED]] {{.*}} outs(%[[OUT]] :

// STAGE-LABEL: func.func @expanded_result_is_written_through_a_view(
// STAGE:         %[[CHOSEN:.*]] = arith.select {{.*}} : memref<
// STAGE-NOT:     linalg.copy
// STAGE:         linalg.exp {{.*}} outs(%[[CHOSEN]] :
// STAGE:         scf.if
func.func @expanded_result_is_written_through_a_view(%x: tensor<?x8xf32>, %batch: index) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %s = arith.divui %n, %batch : index
  %empty = tensor.empty(%n) : tensor<?x8xf32>
  %e = linalg.exp ins(%x : tensor<?x8xf32>) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = tensor.expand_shape %e [[0, 1], [2]] output_shape [%batch, %s, 8] : tensor<?x8xf32> into tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// Expanding a dimension of any stride is always a view.
// CHECK-LABEL: func.func @collapsed_result_is_written_through_its_expanded_view(
// CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<?x64xf32, strided<[?, ?], offset: ?>>)
// CHECK:         %[[VIEW:.*]] = memref.expand_shape %[[OUT]] {{\[\[}}0], [1, 2]]
// CHECK:         bufferization.materialize_in_destination %{{.*}} in restrict writable %[[VIEW]]

// EXAMPLE
// STAGE-LABEL: func.func @collapsed_result_is_written_through_its_expanded_view(
// STAGE-NOT:     memref.alloc
// STAGE-NOT:     linalg.copy
// STAGE:         %[[VIEW:.*]] = memref.expand_shape
// STAGE:         linalg.exp {{.*}} outs(%[[VIEW]] :
// STAGE:         return
func.func @collapsed_result_is_written_through_its_expanded_view(%x: tensor<?x8x8xf32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8x8xf32>
  %empty = tensor.empty(%n) : tensor<?x8x8xf32>
  %e = linalg.exp ins(%x : tensor<?x8x8xf32>) outs(%empty : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  %r = tensor.collapse_shape %e [[0], [1, 2]] : tensor<?x8x8xf32> into tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
