// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention{remarks=true}),canonicalize,cse)' | FileCheck %s
// RUN: saccade-run %s --arg=2x9x16:f32 --arg=2x13x16:f32 --arg=2x13x16:f32 --arg=9x13:f32 --check | FileCheck %s --check-prefix=EXECUTED
// Linalg as torch-mlir emits it: named matmuls, expanded shapes, and a maximum with an unused index result.

// CHECK-LABEL: func.func @softmax_with_positions
// CHECK: attn.attention %{{.*}}[b,s,d], %{{.*}}[b,s,d], %{{.*}}[b,s,d]
// CHECK-SAME: captures(
// CHECK-SAME: scale(2.500000e-01)
// CHECK: score(
// CHECK-NOT: math.exp
// EXECUTED: agrees
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#column = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
#table = affine_map<(d0, d1, d2) -> (d1, d2)>
func.func @softmax_with_positions(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>,
                                  %bias: tensor<?x?xf32>) -> tensor<2x?x16xf32> {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %zero_i64 = arith.constant 0 : i64
  %low = arith.constant 0xFF800000 : f32
  %root = arith.constant 4.0 : f64
  %n = tensor.dim %q, %c1 : tensor<2x?x16xf32>
  %m = tensor.dim %k, %c1 : tensor<2x?x16xf32>
  %kt_empty = tensor.empty(%m) : tensor<2x16x?xf32>
  %kt = linalg.transpose ins(%k : tensor<2x?x16xf32>) outs(%kt_empty : tensor<2x16x?xf32>) permutation = [0, 2, 1]
  %s_empty = tensor.empty(%n, %m) : tensor<2x?x?xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<2x?x16xf32>, tensor<2x16x?xf32>) outs(%s_zero : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %scaled = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x?x?xf32>) outs(%s_empty : tensor<2x?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %by = arith.truncf %root : f64 to f32
    %0 = arith.divf %in, %by : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x?xf32>
  %biased = linalg.generic {indexing_maps = [#all, #table, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scaled, %bias : tensor<2x?x?xf32>, tensor<?x?xf32>) outs(%s_empty : tensor<2x?x?xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %0 = arith.addf %in, %in_0 : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x?xf32>
  %at_empty = tensor.empty(%n) : tensor<2x?x1xi64>
  %at_zero = linalg.fill ins(%zero_i64 : i64) outs(%at_empty : tensor<2x?x1xi64>) -> tensor<2x?x1xi64>
  %row_empty = tensor.empty(%n) : tensor<2x?x1xf32>
  %row_low = linalg.fill ins(%low : f32) outs(%row_empty : tensor<2x?x1xf32>) -> tensor<2x?x1xf32>
  %max:2 = linalg.generic {indexing_maps = [#all, #column, #column], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%biased : tensor<2x?x?xf32>) outs(%row_low, %at_zero : tensor<2x?x1xf32>, tensor<2x?x1xi64>) {
  ^bb0(%in: f32, %out: f32, %out_0: i64):
    %i = linalg.index 2 : index
    %0 = arith.index_cast %i : index to i64
    %1 = arith.maximumf %in, %out : f32
    %2 = arith.cmpf ogt, %in, %out : f32
    %3 = arith.select %2, %0, %out_0 : i64
    linalg.yield %1, %3 : f32, i64
  } -> (tensor<2x?x1xf32>, tensor<2x?x1xi64>)
  %shifted = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%biased, %max#0 : tensor<2x?x?xf32>, tensor<2x?x1xf32>) outs(%s_empty : tensor<2x?x?xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %0 = arith.subf %in, %in_0 : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x?xf32>
  %e = linalg.exp ins(%shifted : tensor<2x?x?xf32>) outs(%s_empty : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %row_zero = linalg.fill ins(%zero : f32) outs(%row_empty : tensor<2x?x1xf32>) -> tensor<2x?x1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%e : tensor<2x?x?xf32>) outs(%row_zero : tensor<2x?x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x1xf32>
  %p = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e, %sum : tensor<2x?x?xf32>, tensor<2x?x1xf32>) outs(%s_empty : tensor<2x?x?xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %0 = arith.divf %in, %in_0 : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x?xf32>
  %o_empty = tensor.empty(%n) : tensor<2x?x16xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x?x?xf32>, tensor<2x?x16xf32>) outs(%o_zero : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}
