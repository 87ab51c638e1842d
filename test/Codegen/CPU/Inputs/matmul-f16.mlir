func.func @matmul(%a: tensor<?x768xf16>, %b: tensor<768x?xf16>, %c: tensor<?x?xf16>) -> tensor<?x?xf16> {
  %0 = linalg.matmul ins(%a, %b : tensor<?x768xf16>, tensor<768x?xf16>) outs(%c : tensor<?x?xf16>) -> tensor<?x?xf16>
  return %0 : tensor<?x?xf16>
}
