func.func @main(%x: tensor<?x1xf32>, %y: tensor<1x?xf32>, %w: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %z = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x1xf32>
  %n = tensor.dim %y, %c1 : tensor<1x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %y : tensor<?x1xf32>, tensor<1x?xf32>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %e2 = tensor.empty(%m) : tensor<?x1xf32>
  %f2 = linalg.fill ins(%z : f32) outs(%e2 : tensor<?x1xf32>) -> tensor<?x1xf32>
  %r = linalg.matmul ins(%p, %w : tensor<?x?xf32>, tensor<?x1xf32>) outs(%f2 : tensor<?x1xf32>) -> tensor<?x1xf32>
  return %r : tensor<?x1xf32>
}
