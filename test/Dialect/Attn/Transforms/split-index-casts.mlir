// RUN: saccade-opt %s --attn-split-index-casts | FileCheck %s
// RUN: saccade-opt %s --attn-split-index-casts --canonicalize | FileCheck %s --check-prefix=FOLDED

// CHECK-LABEL: func.func @there_and_back(
// CHECK-SAME:    %[[N:.*]]: index)
// CHECK:         %[[WIDE:.*]] = arith.index_cast %[[N]] : index to i64
// CHECK:         %[[NARROW:.*]] = arith.trunci %[[WIDE]] : i64 to i8
// CHECK:         arith.index_cast %[[NARROW]] : i8 to index
// FOLDED-LABEL: func.func @there_and_back(
// FOLDED:         arith.trunci {{.*}} : i64 to i8
func.func @there_and_back(%n: index) -> index {
  %narrow = arith.index_cast %n : index to i8
  %back = arith.index_cast %narrow : i8 to index
  return %back : index
}

// CHECK-LABEL: func.func @without_a_sign(
// CHECK:         arith.trunci {{.*}} : i64 to i32
// CHECK:         arith.index_castui {{.*}} : i32 to index
// FOLDED-LABEL: func.func @without_a_sign(
// FOLDED:         arith.trunci {{.*}} : i64 to i32
func.func @without_a_sign(%n: index) -> index {
  %narrow = arith.index_castui %n : index to i32
  %back = arith.index_castui %narrow : i32 to index
  return %back : index
}

// EXAMPLE
// CHECK-LABEL: func.func @tensors(
// CHECK:         %[[WIDE:.*]] = arith.index_cast %{{.*}} : tensor<?x3xindex> to tensor<?x3xi64>
// CHECK:         arith.trunci %[[WIDE]] : tensor<?x3xi64> to tensor<?x3xi1>
func.func @tensors(%n: tensor<?x3xindex>) -> tensor<?x3xi1> {
  %narrow = arith.index_cast %n : tensor<?x3xindex> to tensor<?x3xi1>
  return %narrow : tensor<?x3xi1>
}

// Casts to 64 bits are kept.
// CHECK-LABEL: func.func @to_all_bits(
// CHECK-NOT:     arith.trunci
// FOLDED-LABEL: func.func @to_all_bits(
// FOLDED-SAME:    %[[N:.*]]: index)
// FOLDED-NEXT:    return %[[N]]
func.func @to_all_bits(%n: index) -> index {
  %wide = arith.index_cast %n : index to i64
  %back = arith.index_cast %wide : i64 to index
  return %back : index
}
