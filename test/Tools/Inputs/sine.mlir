func.func @sine(%x: tensor<?xf64>) -> tensor<?xf64> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf64>
  %empty = tensor.empty(%n) : tensor<?xf64>
  %y = linalg.map { math.sin } ins(%x : tensor<?xf64>) outs(%empty : tensor<?xf64>)
  return %y : tensor<?xf64>
}
