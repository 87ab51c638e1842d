// The four lint warnings on attention written in plain ops.
// RUN: saccade-opt --lint %s 2>&1 | FileCheck %s --implicit-check-not=warning

#matrix = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>

// Softmax without subtracting the row maximum.
func.func @unstable_softmax(%q: tensor<?x64xf32>, %k: tensor<64x?xf32>, %v: tensor<?x64xf32>, %zs: tensor<?x?xf32>,
    %zr: tensor<?xf32>, %zo: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s0 = linalg.fill ins(%zero : f32) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%zr : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%zo : tensor<?x64xf32>) -> tensor<?x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<?x64xf32>, tensor<64x?xf32>) outs(%s0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %e = linalg.generic {indexing_maps = [#matrix, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%zs : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32):
    %c = arith.constant 0.125 : f32
    %t = arith.mulf %x, %c : f32
    %r = math.exp %t : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  // CHECK-DAG: [[#@LINE+1]]:10: warning: softmax does not subtract the row maximum
  %sum = linalg.generic {indexing_maps = [#matrix, #row], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<?x?xf32>) outs(%r0 : tensor<?xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#matrix, #row, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%e, %sum : tensor<?x?xf32>, tensor<?xf32>) outs(%zs : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x64xf32>) outs(%o0 : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Scale 1/√512 instead of 1/√64 for 8 heads of size 64.
func.func @scale_of_the_whole_width(%x: tensor<?x512xf32>, %k: tensor<8x64x?xf32>, %v: tensor<8x?x64xf32>,
    %zs: tensor<8x?x?xf32>, %zq: tensor<8x?x64xf32>, %n: index) -> tensor<8x?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s0 = linalg.fill ins(%zero : f32) outs(%zs : tensor<8x?x?xf32>) -> tensor<8x?x?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%zq : tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  %heads = tensor.expand_shape %x [[0], [1, 2]] output_shape [%n, 8, 64] : tensor<?x512xf32> into tensor<?x8x64xf32>
  %q = linalg.transpose ins(%heads : tensor<?x8x64xf32>) outs(%zq : tensor<8x?x64xf32>) permutation = [1, 0, 2]
  %s = linalg.batch_matmul ins(%q, %k : tensor<8x?x64xf32>, tensor<8x64x?xf32>) outs(%s0 : tensor<8x?x?xf32>) -> tensor<8x?x?xf32>
  %root = arith.constant dense<22.627417> : tensor<8x1x1xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, 0, 0)>, affine_map<(h, i, j) -> (h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %root : tensor<8x?x?xf32>, tensor<8x1x1xf32>) outs(%zs : tensor<8x?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x?x?xf32>
  %p = linalg.softmax dimension(2) ins(%t : tensor<8x?x?xf32>) outs(%zs : tensor<8x?x?xf32>) -> tensor<8x?x?xf32>
  // CHECK-DAG: [[#@LINE+1]]:8: warning: scale is 1/√512, the width that the heads are cut from; expected 1/√64, the head size
  %o = linalg.batch_matmul ins(%p, %v : tensor<8x?x?xf32>, tensor<8x?x64xf32>) outs(%o0 : tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  return %o : tensor<8x?x64xf32>
}

// Mask tril(ones(head_size, head_size)).
func.func @causal_mask_as_large_as_the_head(%q: tensor<?x64xf32>, %k: tensor<64x?xf32>, %v: tensor<?x64xf32>,
    %zs: tensor<?x?xf32>, %zo: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s0 = linalg.fill ins(%zero : f32) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%zo : tensor<?x64xf32>) -> tensor<?x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<?x64xf32>, tensor<64x?xf32>) outs(%s0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %et = tensor.empty() : tensor<64x64xi1>
  // CHECK-DAG: [[#@LINE+1]]:11: warning: mask covers 64 × 64 positions, which is the head size; expected the sequence lengths
  %tril = linalg.generic {indexing_maps = [#matrix], iterator_types = ["parallel", "parallel"]} outs(%et : tensor<64x64xi1>) {
  ^bb0(%x: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %r = arith.cmpi sge, %i, %j : index
    linalg.yield %r : i1
  } -> tensor<64x64xi1>
  %m = linalg.generic {indexing_maps = [#matrix, #matrix, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%s, %tril : tensor<?x?xf32>, tensor<64x64xi1>) outs(%zs : tensor<?x?xf32>) {
  ^bb0(%x: f32, %c: i1, %y: f32):
    %hidden = arith.constant 0xFF800000 : f32
    %eight = arith.constant 0.125 : f32
    %t = arith.mulf %x, %eight : f32
    %r = arith.select %c, %t, %hidden : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<?x?xf32>) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x64xf32>) outs(%o0 : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// masked_fill(mask == 0, -inf) followed by a plain softmax.
func.func @rows_without_keys_unguarded(%q: tensor<?x64xf32>, %k: tensor<64x?xf32>, %v: tensor<?x64xf32>, %mask: tensor<?xi1>,
    %zs: tensor<?x?xf32>, %zo: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s0 = linalg.fill ins(%zero : f32) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%zo : tensor<?x64xf32>) -> tensor<?x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<?x64xf32>, tensor<64x?xf32>) outs(%s0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %m = linalg.generic {indexing_maps = [#matrix, #column, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%s, %mask : tensor<?x?xf32>, tensor<?xi1>) outs(%zs : tensor<?x?xf32>) {
  ^bb0(%x: f32, %c: i1, %y: f32):
    %hidden = arith.constant 0xFF800000 : f32
    %r = arith.select %c, %x, %hidden : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  // CHECK-DAG: [[#@LINE+1]]:8: warning: softmax of a fully masked row is NaN
  %p = linalg.softmax dimension(1) ins(%m : tensor<?x?xf32>) outs(%zs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x64xf32>) outs(%o0 : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
