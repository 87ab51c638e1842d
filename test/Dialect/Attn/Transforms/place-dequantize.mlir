// Who reads dequantized weights: matmuls, whose transposes and roundings are folded, rows of a lookup, and others.
// RUN: saccade-opt %s -attn-place-dequantize -split-input-file | FileCheck %s
// RUN: saccade-opt %s -attn-place-dequantize=gpu -split-input-file | FileCheck %s --check-prefix=GPU
// GPU-NOT: attn.dequantize

// The transpose is that of an operand's map.
// CHECK-LABEL: @transposed
// CHECK-NOT: linalg.transpose
// CHECK: %[[W:.*]] = attn.dequantize
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[W]] : tensor<?x64xf32>, tensor<8x64xf32>)
func.func @transposed(%x: tensor<?x64xf32>, %b: tensor<8x2x18xi8>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = attn.dequantize %b format(q4_0) : tensor<8x2x18xi8> -> tensor<8x64xf32>
  %e = tensor.empty() : tensor<64x8xf32>
  %t = linalg.transpose ins(%w : tensor<8x64xf32>) outs(%e : tensor<64x8xf32>) permutation = [1, 0]
  %r = linalg.matmul ins(%x, %t : tensor<?x64xf32>, tensor<64x8xf32>) outs(%y : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// EXAMPLE
// CHECK-LABEL: @rounded
// CHECK: attn.dequantize {{.*}} -> tensor<8x64xbf16>
// CHECK-NOT: arith.truncf
func.func @rounded(%x: tensor<?x64xbf16>, %b: tensor<8x2x18xi8>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = attn.dequantize %b format(q4_0) : tensor<8x2x18xi8> -> tensor<8x64xf32>
  %e = tensor.empty() : tensor<8x64xbf16>
  %h = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x64xf32>) outs(%e : tensor<8x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %n = arith.truncf %a : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<8x64xbf16>
  %r = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %h : tensor<?x64xbf16>, tensor<8x64xbf16>) outs(%y : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// An element reads the bytes of its block, and a slice those of its rows.
// CHECK-LABEL: @lookup
// CHECK-NOT: attn.dequantize
// CHECK: tensor.extract %{{.*}} : tensor<8x2x18xi8>
// CHECK: tensor.extract_slice %{{.*}}[2, 0, 0] [3, 2, 18] [1, 1, 1]
// CHECK: tensor.extract %{{.*}} : tensor<3x2x18xi8>
func.func @lookup(%i: tensor<5xi64>, %b: tensor<8x2x18xi8>) -> (tensor<5x64xf32>, tensor<3x64xf32>) {
  %w = attn.dequantize %b format(q4_0) : tensor<8x2x18xi8> -> tensor<8x64xf32>
  %e = tensor.empty() : tensor<5x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n)>, affine_map<(n, k) -> (n, k)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%e : tensor<5x64xf32>) {
  ^bb0(%n: i64, %o: f32):
    %row = arith.index_cast %n : i64 to index
    %k = linalg.index 1 : index
    %a = tensor.extract %w[%row, %k] : tensor<8x64xf32>
    linalg.yield %a : f32
  } -> tensor<5x64xf32>
  %s = tensor.extract_slice %w[2, 0] [3, 64] [1, 1] : tensor<8x64xf32> to tensor<3x64xf32>
  return %r, %s : tensor<5x64xf32>, tensor<3x64xf32>
}

// -----

// A matmul along the rows of the weights, as in a gradient, and a result of f64 have no kernel.
// CHECK-LABEL: @other_matmuls
// CHECK-NOT: attn.dequantize
func.func @other_matmuls(%x: tensor<?x8xf32>, %b: tensor<8x2x18xi8>, %y: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %w = attn.dequantize %b format(q4_0) : tensor<8x2x18xi8> -> tensor<8x64xf32>
  %r = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x64xf32>) outs(%y : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

// -----

// A matmul of a rounded LHS has weights of its own, also through a reshape.
// CHECK-LABEL: @rounded_rows
// CHECK-NOT: attn.fake_quantize
// CHECK-DAG: %[[INT8:.*]] = attn.dequantize {{.*}} format(q4_0) int8_lhs :
// CHECK-DAG: %[[F32:.*]] = attn.dequantize {{.*}} format(q4_0) : tensor
// CHECK-DAG: arith.maximumf
// CHECK-DAG: math.roundeven
// CHECK: linalg.matmul {{.*}} ins(%{{.*}}, %[[INT8]] :
// CHECK: linalg.matmul {{.*}} ins(%{{.*}}, %[[F32]] :
func.func @rounded_rows(%x: tensor<4x?x64xf32>, %x2: tensor<?x64xf32>, %b: tensor<8x2x18xi8>, %y: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %w = attn.dequantize %b format(q4_0) : tensor<8x2x18xi8> -> tensor<8x64xf32>
  %q = attn.fake_quantize %x : tensor<4x?x64xf32>
  %rows = tensor.collapse_shape %q [[0, 1], [2]] : tensor<4x?x64xf32> into tensor<?x64xf32>
  %r = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%rows, %w : tensor<?x64xf32>, tensor<8x64xf32>) outs(%y : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r2 = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x2, %w : tensor<?x64xf32>, tensor<8x64xf32>) outs(%y : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r, %r2 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// After columns have been split, blocks may have other places: the matmul reads the rounded numbers.
// CHECK-LABEL: @split_rows
// CHECK: attn.dequantize {{.*}} format(q4_0) : tensor
func.func @split_rows(%x: tensor<3x128xf32>, %b: tensor<8x2x18xi8>, %y: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %w = attn.dequantize %b format(q4_0) : tensor<8x2x18xi8> -> tensor<8x64xf32>
  %q = attn.fake_quantize %x : tensor<3x128xf32>
  %split = tensor.expand_shape %q [[0], [1, 2]] output_shape [3, 2, 64] : tensor<3x128xf32> into tensor<3x2x64xf32>
  %rows = tensor.collapse_shape %split [[0, 1], [2]] : tensor<3x2x64xf32> into tensor<6x64xf32>
  %r = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%rows, %w : tensor<6x64xf32>, tensor<8x64xf32>) outs(%y : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %r : tensor<6x8xf32>
}
