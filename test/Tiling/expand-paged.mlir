// RUN: saccade-opt %s --attn-expand-paged -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @all_positions_are_copied(
// CHECK-SAME:    %[[POOL:.*]]: tensor<?x16x2x64xf32>, %[[TABLE:.*]]: tensor<?x?xi32>)
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[SIZE:.*]] = arith.constant 16 : index
// CHECK:         linalg.generic
// CHECK-DAG:       %[[B:.*]] = linalg.index 0
// CHECK-DAG:       %[[S:.*]] = linalg.index 1
// CHECK:           %[[ENTRY:.*]] = arith.divui %[[S]], %[[SIZE]]
// CHECK:           %[[PAGE:.*]] = tensor.extract %[[TABLE]][%[[B]], %[[ENTRY]]]
// CHECK:           arith.minsi
// CHECK:           %[[INSIDE:.*]] = arith.maxsi
// CHECK:           %[[SLOT:.*]] = arith.remui %[[S]], %[[SIZE]]
// CHECK:           tensor.extract %[[POOL]][%[[INSIDE]], %[[SLOT]], %{{.*}}, %{{.*}}]
// CHECK-NOT:     attn.paged
func.func @all_positions_are_copied(%pool: tensor<?x16x2x64xf32>, %table: tensor<?x?xi32>) -> tensor<?x?x2x64xf32> {
  %k = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  return %k : tensor<?x?x2x64xf32>
}

// EXAMPLE
// CHECK-LABEL: func.func @extents_need_no_copy(
// CHECK-NOT:     linalg.generic
// CHECK-NOT:     attn.paged
// CHECK:         return
func.func @extents_need_no_copy(%pool: tensor<?x16x2x64xf32>, %table: tensor<?x?xi32>) -> index {
  %c1 = arith.constant 1 : index
  %k = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %n = tensor.dim %k, %c1 : tensor<?x?x2x64xf32>
  return %n : index
}
