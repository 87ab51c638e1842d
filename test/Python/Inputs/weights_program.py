"""A program with weights of all kinds that are prepacked: as they are, transposed, of another type, two that become one; and a
bias. {MARK} stands where the mark of constant arguments does."""

TEXT = """
func.func @main(%x: tensor<?x24xf32>, %w: tensor<24x40xf32>{MARK}, %t: tensor<16x40xf32>{MARK}, %h: tensor<16x48xf16>{MARK},
                %u: tensor<48x20xf32>{MARK}, %v: tensor<48x28xf32>{MARK}, %b: tensor<48xf32>{MARK}) -> tensor<?x48xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x24xf32>
  %e0 = tensor.empty(%n) : tensor<?x40xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x40xf32>) -> tensor<?x40xf32>
  %y0 = linalg.matmul ins(%x, %w : tensor<?x24xf32>, tensor<24x40xf32>) outs(%f0 : tensor<?x40xf32>) -> tensor<?x40xf32>
  %et = tensor.empty() : tensor<40x16xf32>
  %tt = linalg.transpose ins(%t : tensor<16x40xf32>) outs(%et : tensor<40x16xf32>) permutation = [1, 0]
  %e1 = tensor.empty(%n) : tensor<?x16xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x16xf32>) -> tensor<?x16xf32>
  %y1 = linalg.matmul ins(%y0, %tt : tensor<?x40xf32>, tensor<40x16xf32>) outs(%f1 : tensor<?x16xf32>) -> tensor<?x16xf32>
  %hw = arith.extf %h : tensor<16x48xf16> to tensor<16x48xf32>
  %e2 = tensor.empty(%n) : tensor<?x48xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %y2 = linalg.matmul ins(%y1, %hw : tensor<?x16xf32>, tensor<16x48xf32>) outs(%f2 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %uv = tensor.concat dim(1) %u, %v : (tensor<48x20xf32>, tensor<48x28xf32>) -> tensor<48x48xf32>
  %y3 = linalg.matmul ins(%y2, %uv : tensor<?x48xf32>, tensor<48x48xf32>) outs(%f2 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %y4 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%y3, %b : tensor<?x48xf32>, tensor<48xf32>) outs(%e2 : tensor<?x48xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<?x48xf32>
  return %y4 : tensor<?x48xf32>
}
"""
SHAPES = {"w": (24, 40), "t": (16, 40), "h": (16, 48), "u": (48, 20), "v": (48, 28), "b": (48,)}
