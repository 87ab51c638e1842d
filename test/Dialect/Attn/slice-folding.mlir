// Folding constant sizes of a slice keeps its dropped unit dimensions.
// RUN: saccade-opt %s --canonicalize | FileCheck %s

// Upstream's pattern would yield 16×1 and a cast.
// CHECK-LABEL: func.func @a_single_query_in_front_of_depth
// CHECK: %[[ROW:.*]] = tensor.extract_slice %{{.*}}[0, 0, %{{.*}}, 0] [1, 16, 1, 1] [1, 1, 1, 1] : tensor<?x16x?x3xf32> to tensor<1x16xf32>
// CHECK-NEXT: return %[[ROW]]
func.func @a_single_query_in_front_of_depth(%x: tensor<?x16x?x3xf32>, %b: index) -> tensor<1x16xf32> {
  %one = arith.constant 1 : index
  %row = tensor.extract_slice %x[0, 0, %b, 0] [%one, 16, 1, 1] [1, 1, 1, 1] : tensor<?x16x?x3xf32> to tensor<?x16xf32>
  %cast = tensor.cast %row : tensor<?x16xf32> to tensor<1x16xf32>
  return %cast : tensor<1x16xf32>
}

// CHECK-LABEL: func.func @keys_between_depth_and_batch
// CHECK: tensor.extract_slice {{.*}} [1, 1, 100, 1] [1, 1, 1, 1] : tensor<1x1x100x3xf32> to tensor<1x100xf32>
func.func @keys_between_depth_and_batch(%x: tensor<1x1x100x3xf32>, %b: index) -> tensor<1x100xf32> {
  %n = arith.constant 100 : index
  %rows = tensor.extract_slice %x[0, 0, 0, %b] [1, 1, %n, 1] [1, 1, 1, 1] : tensor<1x1x100x3xf32> to tensor<1x?xf32>
  %cast = tensor.cast %rows : tensor<1x?xf32> to tensor<1x100xf32>
  return %cast : tensor<1x100xf32>
}

// CHECK-LABEL: func.func @insertion
// CHECK-SAME: %[[ROW:.*]]: tensor<?x16xf32>
// CHECK: %[[CAST:.*]] = tensor.cast %[[ROW]] : tensor<?x16xf32> to tensor<1x16xf32>
// CHECK: tensor.insert_slice %[[CAST]] into %{{.*}}[0, 0, %{{.*}}, 0] [1, 16, 1, 1] [1, 1, 1, 1] : tensor<1x16xf32> into
func.func @insertion(%row: tensor<?x16xf32>, %x: tensor<?x16x?x3xf32>, %b: index) -> tensor<?x16x?x3xf32> {
  %one = arith.constant 1 : index
  %y = tensor.insert_slice %row into %x[0, 0, %b, 0] [%one, 16, 1, 1] [1, 1, 1, 1]
    : tensor<?x16xf32> into tensor<?x16x?x3xf32>
  return %y : tensor<?x16x?x3xf32>
}

// The cast is placed before the terminator with the insertions.
// CHECK-LABEL: func.func @parallel_insertion
// CHECK: scf.forall
// CHECK: %[[CAST:.*]] = tensor.cast %{{.*}} : tensor<?x16xf32> to tensor<1x16xf32>
// CHECK: scf.forall.in_parallel {
// CHECK-NEXT: tensor.parallel_insert_slice %[[CAST]] into %{{.*}}[0, 0, %{{.*}}, 0] [1, 16, 1, 1] [1, 1, 1, 1]
func.func @parallel_insertion(%row: tensor<?x16xf32>, %x: tensor<?x16x?x3xf32>, %n: index) -> tensor<?x16x?x3xf32> {
  %one = arith.constant 1 : index
  %y = scf.forall (%b) in (%n) shared_outs(%out = %x) -> tensor<?x16x?x3xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %row into %out[0, 0, %b, 0] [%one, 16, 1, 1] [1, 1, 1, 1]
        : tensor<?x16xf32> into tensor<?x16x?x3xf32>
    }
  }
  return %y : tensor<?x16x?x3xf32>
}
