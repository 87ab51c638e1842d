// Raised graphs, graphs that are not, and the remark for each softmax left. attention_patterns.py has all patterns.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention{remarks=true}))' 2>&1 | FileCheck %s
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention))' 2>&1 | FileCheck %s --check-prefix=SILENT
// SILENT-NOT: remark

// CHECK: [[#@LINE+33]]:8: remark: not raised to attention: the matmul with its weights contracts another dimension than the softmax
// CHECK: [[#@LINE+43]]:8: remark: not raised to attention: its weights are not used by a P·V matmul, but by 'func.return'
// CHECK: [[#@LINE+52]]:8: remark: not raised to attention: its scores contain no Q·Kᵀ matmul
// CHECK: [[#@LINE+63]]:8: remark: not raised to attention: the P·V matmul starts from a tensor that is not 0

// EXAMPLE
// CHECK-LABEL: func.func @transposed_keys_and_products_by_name
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x?x64xf32>, %[[K:[^:]*]]: tensor<?x?x64xf32>, %[[V:[^:]*]]: tensor<?x?x32xf32>
// CHECK-NOT: linalg
// CHECK: attn.attention %[[Q]][b,s,d], %[[K]][b,s,d], %[[V]][b,s,d] scale(1.000000e+00) : (
// CHECK-NOT: linalg.softmax
func.func @transposed_keys_and_products_by_name(%q: tensor<?x?x64xf32>, %k: tensor<?x?x64xf32>, %v: tensor<?x?x32xf32>,
    %es: tensor<?x?x?xf32>, %et: tensor<?x64x?xf32>, %eo: tensor<?x?x32xf32>) -> tensor<?x?x32xf32> {
  %zero = arith.constant 0.0 : f32
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  %t = linalg.transpose ins(%k : tensor<?x?x64xf32>) outs(%et : tensor<?x64x?xf32>) permutation = [0, 2, 1]
  %s = linalg.batch_matmul ins(%q, %t : tensor<?x?x64xf32>, tensor<?x64x?xf32>) outs(%zs : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<?x?x?xf32>) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x32xf32>) outs(%zo : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  return %o : tensor<?x?x32xf32>
}

// A softmax over queries is not attention: the weights of each query would have to sum to 1.
// CHECK-LABEL: func.func @softmax_along_the_wrong_dimension_stays
// CHECK-NOT: attn.attention
// CHECK: linalg.softmax dimension(1)
func.func @softmax_along_the_wrong_dimension_stays(%q: tensor<?x?x64xf32>, %k: tensor<?x64x?xf32>, %v: tensor<?x?x32xf32>,
    %es: tensor<?x?x?xf32>, %eo: tensor<?x?x32xf32>) -> tensor<?x?x32xf32> {
  %zero = arith.constant 0.0 : f32
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<?x?x64xf32>, tensor<?x64x?xf32>) outs(%zs : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?x?xf32>) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x32xf32>) outs(%zo : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  return %o : tensor<?x?x32xf32>
}

// CHECK-LABEL: func.func @weights_that_are_returned_stay
// CHECK: linalg.softmax
func.func @weights_that_are_returned_stay(%q: tensor<?x64xf32>, %k: tensor<64x?xf32>, %es: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %k : tensor<?x64xf32>, tensor<64x?xf32>) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @scores_that_are_given_stay
// CHECK: linalg.softmax
func.func @scores_that_are_given_stay(%s: tensor<?x?xf32>, %v: tensor<?x64xf32>, %es: tensor<?x?xf32>, %eo: tensor<?x64xf32>)
    -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x64xf32>) -> tensor<?x64xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x64xf32>) outs(%zo : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @a_product_that_continues_a_sum_stays
// CHECK: linalg.softmax
func.func @a_product_that_continues_a_sum_stays(%q: tensor<?x64xf32>, %k: tensor<64x?xf32>, %v: tensor<?x64xf32>,
    %es: tensor<?x?xf32>, %x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %k : tensor<?x64xf32>, tensor<64x?xf32>) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x64xf32>) outs(%x : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
