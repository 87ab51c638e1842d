// A matmul that copies its LHS, whose rows are 4096 bytes apart, stores whole groups of rows without the tile. The last panel has
// one column less than its width, and the rows end with a group: a store beyond the columns would leave the result.
// RUN: saccade-run %s --target=v3 --guard --arg=840x1024:f32:1 --arg=1024x31:f32:2 --arg=31:f32:3
// RUN: saccade-run %s --target=%{v4} --guard --arg=840x1024:f32:1 --arg=1024x31:f32:2 --arg=31:f32:3

func.func @columns_end_one_before_a_panel(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %w, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %i = linalg.broadcast ins(%b : tensor<?xf32>) outs(%e : tensor<?x?xf32>) dimensions = [0]
  %p = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}
