// RUN: saccade-opt %s --attn-fuse-elementwise --canonicalize --cse | FileCheck %s

#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>

// CHECK-LABEL: func.func @a_chain_becomes_one_op(
// CHECK:         linalg.generic
// CHECK:           arith.addf
// CHECK:           math.tanh
// CHECK:           arith.mulf
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @a_chain_becomes_one_op(%x: tensor<?x64xf32>, %y: tensor<?x64xf32>, %out: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %sum = linalg.add ins(%x, %y : tensor<?x64xf32>, tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  %tanh = linalg.tanh ins(%sum : tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  %product = linalg.mul ins(%tanh, %x : tensor<?x64xf32>, tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %product : tensor<?x64xf32>
}

// The sum has two users, so it is not fused.
// CHECK-LABEL: func.func @nothing_is_computed_twice(
// CHECK:         %[[SUM:.*]] = linalg.generic
// CHECK:           arith.addf
// CHECK:         linalg.generic {{.*}} ins(%[[SUM]]
// CHECK:           math.exp
// CHECK:         return %[[SUM]]
func.func @nothing_is_computed_twice(%x: tensor<?x64xf32>, %out: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %sum = linalg.add ins(%x, %x : tensor<?x64xf32>, tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  %exp = linalg.exp ins(%sum : tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %sum, %exp : tensor<?x64xf32>, tensor<?x64xf32>
}

// EXAMPLE
// CHECK-LABEL: func.func @reductions_take_what_they_sum(
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @reductions_take_what_they_sum(%x: tensor<?x64xf32>, %out: tensor<?x64xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %square = linalg.mul ins(%x, %x : tensor<?x64xf32>, tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  %sum = linalg.reduce { arith.addf } ins(%square : tensor<?x64xf32>) outs(%init : tensor<?xf32>) dimensions = [1]
  return %sum : tensor<?xf32>
}

// CHECK-LABEL: func.func @products_and_attention_are_left_alone(
// CHECK:         %[[X:.*]] = linalg.generic
// CHECK:         %[[BIAS:.*]] = linalg.broadcast
// CHECK:         linalg.matmul ins(%[[X]], {{.*}} outs(%[[BIAS]]
// CHECK:         %[[K:.*]] = linalg.generic
// CHECK:         attn.attention {{.*}}, %[[K]][s,d],
func.func @products_and_attention_are_left_alone(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %b: tensor<64xf32>, %out: tensor<?x64xf32>)
    -> tensor<?x64xf32> {
  %exp = linalg.exp ins(%x : tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  %bias = linalg.broadcast ins(%b : tensor<64xf32>) outs(%out : tensor<?x64xf32>) dimensions = [0]
  %p = linalg.matmul ins(%exp, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%bias : tensor<?x64xf32>) -> tensor<?x64xf32>
  %k = linalg.tanh ins(%p : tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  %o = attn.attention %p[s,d], %k[s,d], %p[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Σ over nothing: every element of x yᵀ is added to 0 once, not once for each element of z.
// CHECK-LABEL: func.func @what_adds_to_its_output_is_no_part_of_more_loops(
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK:           arith.addf
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel"]
// CHECK:         return
func.func @what_adds_to_its_output_is_no_part_of_more_loops(%x: tensor<3xf32>, %y: tensor<4xf32>, %z: tensor<5xf32>,
                                                           %out: tensor<3x4xf32>, %all: tensor<3x4x5xf32>) -> tensor<3x4x5xf32> {
  %zero = arith.constant 0.0 : f32
  %start = linalg.fill ins(%zero : f32) outs(%out : tensor<3x4xf32>) -> tensor<3x4xf32>
  %xy = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<3xf32>, tensor<4xf32>) outs(%start : tensor<3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32
  } -> tensor<3x4xf32>
  %xyz = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j)>, affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%xy, %z : tensor<3x4xf32>, tensor<5xf32>) outs(%all : tensor<3x4x5xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<3x4x5xf32>
  return %xyz : tensor<3x4x5xf32>
}

// CHECK-LABEL: func.func @softmax_is_four_steps(
// CHECK:         arith.maxnumf
// CHECK:         math.exp
// CHECK:         arith.addf
// CHECK:         arith.divf
// CHECK-NOT:     linalg.softmax
// CHECK:         return
func.func @softmax_is_four_steps(%x: tensor<?x64xf32>, %out: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = linalg.softmax dimension(1) ins(%x : tensor<?x64xf32>) outs(%out : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @pieces_become_structured_ops(
// CHECK-NOT:     tensor.{{concat|pad|generate|splat}}
// CHECK:         return
func.func @pieces_become_structured_ops(%x: tensor<4x6xf32>, %zero: f32) -> (tensor<4x12xf32>, tensor<5x6xf32>, tensor<3xf32>, tensor<2xf32>) {
  %joined = tensor.concat dim(1) %x, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
  %padded = tensor.pad %x low[1, 0] high[0, 0] {
    ^bb0(%i: index, %j: index):
      tensor.yield %zero : f32
    } : tensor<4x6xf32> to tensor<5x6xf32>
  %made = tensor.generate {
    ^bb0(%i: index):
      %e = tensor.extract %x[%i, %i] : tensor<4x6xf32>
      tensor.yield %e : f32
    } : tensor<3xf32>
  %filled = tensor.splat %zero : tensor<2xf32>
  return %joined, %padded, %made, %filled : tensor<4x12xf32>, tensor<5x6xf32>, tensor<3xf32>, tensor<2xf32>
}
