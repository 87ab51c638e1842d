// A matmul of a computed tensor, whose strides are known, and a weight.
func.func @project(%x: tensor<?x64xf32>, %w: tensor<64x64xf32> {attn.constant}, %b: tensor<64xf32> {attn.constant}) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x64xf32>
  %y = math.exp %x : tensor<?x64xf32>
  %e = tensor.empty(%n) : tensor<?x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
  %p = linalg.matmul ins(%y, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%z : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r = math.exp %p : tensor<?x64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%r, %b : tensor<?x64xf32>, tensor<64xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %d = arith.mulf %a, %c : f32
    linalg.yield %d : f32
  } -> tensor<?x64xf32>
  return %s : tensor<?x64xf32>
}
