// RUN: saccade-opt --attn-results-to-destinations %s | FileCheck %s

// CHECK-LABEL: func.func @result_becomes_the_last_argument(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[OUT:.*]]: memref<?x8xf32, strided<[?, ?], offset: ?>>) {
// CHECK:         bufferization.materialize_in_destination %[[X]] in restrict writable %[[OUT]]
// CHECK-NEXT:    return{{$}}
func.func @result_becomes_the_last_argument(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}

// EXAMPLE
// CHECK-LABEL: func.func @several_results_keep_their_order(
// CHECK-SAME:    %[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<f64>,
// CHECK-SAME:    %[[FIRST:.*]]: memref<f64, strided<[], offset: ?>>, %[[SECOND:.*]]: memref<4xf32, strided<[?], offset: ?>>)
// CHECK:         bufferization.materialize_in_destination %[[Y]] in restrict writable %[[FIRST]]
// CHECK:         bufferization.materialize_in_destination %[[X]] in restrict writable %[[SECOND]]
func.func @several_results_keep_their_order(%x: tensor<4xf32>, %y: tensor<f64>) -> (tensor<f64>, tensor<4xf32>) {
  return %y, %x : tensor<f64>, tensor<4xf32>
}

// CHECK-LABEL: func.func @shape_functions_keep_their_results(
// CHECK-SAME:    -> index
func.func @shape_functions_keep_their_results(%x: tensor<?xf32>) -> index attributes {attn.shapes_of = "f"} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  return %n : index
}

// CHECK-LABEL: func.func private @private_functions_keep_their_results(
// CHECK-SAME:    -> index
func.func private @private_functions_keep_their_results(%x: tensor<?xf32>) -> index {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  return %n : index
}

// Two reductions with the same fill get one fill each; otherwise both would be computed in the first destination.
// CHECK-LABEL: func.func @results_with_equal_init(
// CHECK:         %[[A:.*]] = linalg.fill
// CHECK:         %[[FIRST:.*]] = linalg.reduce {{.*}} outs(%[[A]] :
// CHECK:         %[[B:.*]] = linalg.fill
// CHECK:         %[[SECOND:.*]] = linalg.reduce {{.*}} outs(%[[B]] :
// CHECK:         materialize_in_destination %[[FIRST]]
// CHECK:         materialize_in_destination %[[SECOND]]
func.func @results_with_equal_init(%x: tensor<4x8xi64>, %y: tensor<4x8xi64>) -> (tensor<4xi64>, tensor<4xi64>) {
  %zero = arith.constant 0 : i64
  %empty = tensor.empty() : tensor<4xi64>
  %fill = linalg.fill ins(%zero : i64) outs(%empty : tensor<4xi64>) -> tensor<4xi64>
  %a = linalg.reduce { arith.addi } ins(%x : tensor<4x8xi64>) outs(%fill : tensor<4xi64>) dimensions = [1]
  %b = linalg.reduce { arith.addi } ins(%y : tensor<4x8xi64>) outs(%fill : tensor<4xi64>) dimensions = [1]
  return %a, %b : tensor<4xi64>, tensor<4xi64>
}

// A result that updates an argument in place remains, with its new number.
// CHECK-LABEL: func.func @updated(
// CHECK-SAME:    %[[X:.*]]: tensor<4xf32> {attn.updated_by = 0 : i64}, %[[Y:.*]]: tensor<f64>,
// CHECK-SAME:    %[[OUT:.*]]: memref<f64, strided<[], offset: ?>>) -> tensor<4xf32>
// CHECK:         bufferization.materialize_in_destination %[[Y]] in restrict writable %[[OUT]]
// CHECK:         return %[[X]] : tensor<4xf32>
func.func @updated(%x: tensor<4xf32> {attn.updated_by = 1}, %y: tensor<f64>) -> (tensor<f64>, tensor<4xf32>) {
  return %y, %x : tensor<f64>, tensor<4xf32>
}
