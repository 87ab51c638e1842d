// RUN: saccade-opt --pass-pipeline='builtin.module(func.func(attn-tile-append),canonicalize,cse)' %s | FileCheck %s

// One item is one sequence and 16384 / (2 · 64) rows of all heads.
// CHECK-LABEL: func.func @rows_of_all_heads(
// CHECK-SAME:    %[[NEW:.*]]: tensor<?x?x2x64xf32>, %[[CACHE:.*]]: tensor<?x2x?x64xf32> {attn.updated_by = 0 : i64}, %[[AT:.*]]: tensor<?xi32>,
// CHECK-NOT:     linalg.copy
// CHECK:         scf.forall (%[[B:.*]], %[[FIRST:.*]]) = (0, 0) to (%{{.*}}, %{{.*}}) step (1, 128) shared_outs(%[[ALL:.*]] = %[[CACHE]])
// CHECK:           tensor.extract %{{.*}}[%[[B]]] : tensor<?xi32>
// CHECK:           %[[SOURCE:.*]] = tensor.extract_slice %[[NEW]][%[[B]], %[[BEGIN:.*]], 0, 0] [1, %[[COUNT:.*]], 2, 64]
// CHECK:           %[[TARGET:.*]] = tensor.extract_slice %[[ALL]][%[[B]], 0, %[[ROW:.*]], 0] [1, 2, %[[COUNT]], 64]
// CHECK:           %[[COPY:.*]] = linalg.generic {{.*}} ins(%[[SOURCE]] : tensor<?x2x64xf32>) outs(%[[TARGET]] : tensor<2x?x64xf32>)
// CHECK:           tensor.parallel_insert_slice %[[COPY]] into %[[ALL]][%[[B]], 0, %[[ROW]], 0] [1, 2, %[[COUNT]], 64]
func.func @rows_of_all_heads(%new: tensor<?x?x2x64xf32>, %cache: tensor<?x2x?x64xf32> {attn.updated_by = 0},
                             %at: tensor<?xi32>, %n: tensor<?xi32>) -> tensor<?x2x?x64xf32> {
  %0 = attn.append %new[b,s,h,d] to %cache[b,h,s,d] at(%at : tensor<?xi32>) count(%n : tensor<?xi32>)
    : (tensor<?x?x2x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
  return %0 : tensor<?x2x?x64xf32>
}

// EXAMPLE
// Successive rows of a ring may be at different places. A cache that is not updated in place is copied.
// CHECK-LABEL: func.func @one_row_of_a_ring(
// CHECK-SAME:    %{{.*}}: tensor<?x64xf32>, %[[CACHE:.*]]: tensor<?x64xf32>,
// CHECK:         %[[EMPTY:.*]] = tensor.empty
// CHECK:         %[[COPY:.*]] = linalg.copy ins(%[[CACHE]] : tensor<?x64xf32>) outs(%[[EMPTY]] : tensor<?x64xf32>)
// CHECK:         scf.forall {{.*}} shared_outs(%{{.*}} = %[[COPY]])
// CHECK:           arith.remui
// CHECK:           arith.select
func.func @one_row_of_a_ring(%new: tensor<?x64xf32>, %cache: tensor<?x64xf32>, %at: index) -> tensor<?x64xf32> {
  %0 = attn.append %new[s,d] to %cache[s,d] at(%at : index) ring<4>
    : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// One item is the rows of one page. Three rows are in at most two pages of 16, and in no more than the table has.
// CHECK-LABEL: func.func @rows_of_a_page(
// CHECK-SAME:    %[[NEW:.*]]: tensor<?x3x64xf32>, %[[POOL:.*]]: tensor<?x16x64xf32> {attn.updated_by = 0 : i64}, %[[TABLE:.*]]: tensor<?x?xi32>,
// CHECK-NOT:     linalg.copy
// CHECK:         %[[ENTRIES:.*]] = tensor.dim %[[TABLE]], %c1
// CHECK:         %[[ITEMS:.*]] = arith.minsi %[[ENTRIES]], %c2
// CHECK:         %[[BATCHES:.*]] = tensor.dim %[[TABLE]], %c0
// CHECK:         scf.forall (%[[B:.*]], %{{.*}}) in (%[[BATCHES]], %[[ITEMS]]) shared_outs(%[[ALL:.*]] = %[[POOL]])
// CHECK:           tensor.extract %[[TABLE]][%[[B]], %{{.*}}] : tensor<?x?xi32>
// CHECK:           %[[PAGE:.*]] = arith.select %[[WRITTEN:.*]], %{{.*}}, %c0
// CHECK:           %[[BEGIN:.*]] = arith.select %[[WRITTEN]], %{{.*}}, %c0
// CHECK:           %[[SLOT:.*]] = arith.select %[[WRITTEN]], %{{.*}}, %c0
// CHECK:           %[[COUNT:.*]] = arith.select %[[WRITTEN]], %{{.*}}, %c0
// CHECK:           tensor.extract_slice %[[NEW]][%[[B]], %[[BEGIN]], 0] [1, %[[COUNT]], 64]
// CHECK:           tensor.parallel_insert_slice %{{.*}} into %[[ALL]][%[[PAGE]], %[[SLOT]], 0] [1, %[[COUNT]], 64]
func.func @rows_of_a_page(%new: tensor<?x3x64xf32>, %pool: tensor<?x16x64xf32> {attn.updated_by = 0}, %table: tensor<?x?xi32>,
                          %at: tensor<?xi32>) -> tensor<?x16x64xf32> {
  %0 = attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<?x?xi32>) at(%at : tensor<?xi32>)
    : (tensor<?x3x64xf32>, tensor<?x16x64xf32>) -> tensor<?x16x64xf32>
  return %0 : tensor<?x16x64xf32>
}
