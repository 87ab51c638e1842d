// RUN: saccade-opt %s --attn-tile-linalg --cse | FileCheck %s

#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>

// Initialization, matmul and epilogue share one loop; the intermediate tile has a static size.
// CHECK-LABEL: func.func @matmul_with_bias_and_activation(
// CHECK-NOT:     linalg.
// CHECK:         scf.forall (%[[M:.*]], %[[N:.*]]) = (0, 0) to (%{{.*}}, 1024) step (192, 256)
// CHECK:           %[[ROWS:.*]] = affine.min
// CHECK:           %[[A:.*]] = tensor.extract_slice %{{.*}}[%[[M]], 0] [%[[ROWS]], 512]
// CHECK:           %[[TILE:.*]] = tensor.empty() : tensor<192x256xf32>
// CHECK:           %[[PART:.*]] = tensor.extract_slice %[[TILE]][0, 0] [%[[ROWS]], 256]
// CHECK:           %[[BIAS:.*]] = linalg.broadcast {{.*}} outs(%[[PART]]
// CHECK:           %[[P:.*]] = linalg.matmul {{.*}} ins(%[[A]], {{.*}} outs(%[[BIAS]]
// CHECK:           linalg.generic {{.*}} ins(%[[P]]
// CHECK:             math.tanh
// CHECK:           tensor.parallel_insert_slice
// CHECK-NOT:     linalg.
// CHECK:         return
func.func @matmul_with_bias_and_activation(%x: tensor<?x512xf32>, %w: tensor<512x1024xf32>, %b: tensor<1024xf32>) -> tensor<?x1024xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x512xf32>
  %empty = tensor.empty(%m) : tensor<?x1024xf32>
  %bias = linalg.broadcast ins(%b : tensor<1024xf32>) outs(%empty : tensor<?x1024xf32>) dimensions = [0]
  %p = linalg.matmul {schedule = #attn.schedule<rows = 192, cols = 256, depth = 512>}
    ins(%x, %w : tensor<?x512xf32>, tensor<512x1024xf32>) outs(%bias : tensor<?x1024xf32>) -> tensor<?x1024xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p : tensor<?x1024xf32>) outs(%empty : tensor<?x1024xf32>) {
    ^bb0(%e: f32, %o: f32):
      %t = math.tanh %e : f32
      linalg.yield %t : f32
    } -> tensor<?x1024xf32>
  return %y : tensor<?x1024xf32>
}

// Whole rows in one loop; each reduction is computed once although the sum has two uses.
// CHECK-LABEL: func.func @a_norm_is_one_loop_over_rows(
// CHECK:         scf.forall (%{{.*}}) = (0) to (%{{.*}}) step (64)
// CHECK:           linalg.fill
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK-NOT:       linalg.generic
// CHECK:           tensor.parallel_insert_slice
// CHECK-NOT:     scf.forall
// CHECK:         return
func.func @a_norm_is_one_loop_over_rows(%x: tensor<?x128xf32>) -> tensor<?x128xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x128xf32>
  %empty = tensor.empty(%m) : tensor<?x128xf32>
  %rows = tensor.empty(%m) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x128xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%e: f32, %o: f32):
      %s = arith.addf %o, %e : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x, %sum : tensor<?x128xf32>, tensor<?xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%e: f32, %mean: f32, %o: f32):
      %d = arith.subf %e, %mean : f32
      %q = arith.mulf %d, %d : f32
      %s = arith.addf %o, %q : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #row, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %sum, %squares : tensor<?x128xf32>, tensor<?xf32>, tensor<?xf32>) outs(%empty : tensor<?x128xf32>) {
    ^bb0(%e: f32, %mean: f32, %square: f32, %o: f32):
      %d = arith.subf %e, %mean : f32
      %q = arith.divf %d, %square : f32
      linalg.yield %q : f32
    } -> tensor<?x128xf32>
  return %y : tensor<?x128xf32>
}

// Producers of the LHS are not fused, because each column tile would recompute their rows.
// CHECK-LABEL: func.func @matmul_operands_are_not_fused(
// CHECK:         %[[X:.*]] = scf.forall
// CHECK:           math.exp
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[X]]
// CHECK:           linalg.matmul
// CHECK:         return
func.func @matmul_operands_are_not_fused(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %init: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %e = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x64xf32>) outs(%init : tensor<?x64xf32>) {
    ^bb0(%v: f32, %o: f32):
      %t = math.exp %v : f32
      linalg.yield %t : f32
    } -> tensor<?x64xf32>
  %p = linalg.matmul ins(%e, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%init : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %p : tensor<?x64xf32>
}

// A residual addition is fused with the matmul, and is a second result of the loop.
// CHECK-LABEL: func.func @fused_result_with_other_uses(
// CHECK:         %[[R:.*]]:2 = scf.forall {{.*}} -> (tensor<?x64xf32>, tensor<?x64xf32>)
// CHECK-COUNT-2:   tensor.parallel_insert_slice
// CHECK:         return %[[R]]
func.func @fused_result_with_other_uses(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %init: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x64xf32>
  %empty = tensor.empty(%m) : tensor<?x64xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%init : tensor<?x64xf32>) -> tensor<?x64xf32>
  %y = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %x : tensor<?x64xf32>, tensor<?x64xf32>) outs(%empty : tensor<?x64xf32>) {
    ^bb0(%e: f32, %f: f32, %o: f32):
      %s = arith.addf %e, %f : f32
      linalg.yield %s : f32
    } -> tensor<?x64xf32>
  return %p, %y : tensor<?x64xf32>, tensor<?x64xf32>
}

// Rows of dynamic length need temporaries of dynamic size, so the ops are not fused.
// CHECK-LABEL: func.func @unbounded_temporaries_stay_outside(
// CHECK:         scf.forall
// CHECK:         scf.forall
// CHECK-NOT:     tensor.empty() : tensor<{{.*}}?
// CHECK:         return
func.func @unbounded_temporaries_stay_outside(%x: tensor<?x?xf32>, %init: tensor<?xf32>, %out: tensor<?x?xf32>) -> tensor<?xf32> {
  %e = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %x : tensor<?x?xf32>, tensor<?x?xf32>) outs(%out : tensor<?x?xf32>) {
    ^bb0(%v: f32, %u: f32, %o: f32):
      %t = arith.mulf %v, %u : f32
      linalg.yield %t : f32
    } -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : tensor<?x?xf32>) outs(%init : tensor<?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %t = arith.addf %v, %o : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
  return %s : tensor<?xf32>
}

// EXAMPLE
// CHECK-LABEL: func.func @a_scalar_is_one_task(
// CHECK:         scf.forall (%{{.*}}) in (1)
// CHECK:           linalg.dot
// CHECK:         return
func.func @a_scalar_is_one_task(%x: tensor<?xf32>, %init: tensor<f32>) -> tensor<f32> {
  %s = linalg.dot ins(%x, %x : tensor<?xf32>, tensor<?xf32>) outs(%init : tensor<f32>) -> tensor<f32>
  return %s : tensor<f32>
}

// A body may read any element of a producer, which is then computed before.
// CHECK-LABEL: func.func @a_producer_that_a_body_reads_is_not_fused(
// CHECK:         %[[P:.*]] = scf.forall
// CHECK:         scf.forall
// CHECK:           tensor.extract %[[P]]
func.func @a_producer_that_a_body_reads_is_not_fused(%x: tensor<16x64xf32>, %e: tensor<16x64xf32>) -> tensor<16x64xf32> {
  %p = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<16x64xf32>) outs(%e : tensor<16x64xf32>) {
    ^bb0(%v: f32, %o: f32):
      %t = arith.mulf %v, %v : f32
      linalg.yield %t : f32
    } -> tensor<16x64xf32>
  %f = tensor.empty() : tensor<16x64xf32>
  %s = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p : tensor<16x64xf32>) outs(%f : tensor<16x64xf32>) {
    ^bb0(%v: f32, %o: f32):
      %one = arith.constant 1 : index
      %m = linalg.index 0 : index
      %n = linalg.index 1 : index
      %other = arith.xori %n, %one : index
      %w = tensor.extract %p[%m, %other] : tensor<16x64xf32>
      %t = arith.addf %v, %w : f32
      linalg.yield %t : f32
    } -> tensor<16x64xf32>
  return %s : tensor<16x64xf32>
}
