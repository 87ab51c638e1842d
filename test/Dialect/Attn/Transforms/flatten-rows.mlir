// RUN: saccade-opt %s --attn-flatten-rows --canonicalize --cse | FileCheck %s

#left = affine_map<(b, s, n, k) -> (b, s, k)>
#right = affine_map<(b, s, n, k) -> (k, n)>
#result = affine_map<(b, s, n, k) -> (b, s, n)>
#token = affine_map<(b, s, n) -> (b, s, n)>
#column = affine_map<(b, s, n) -> (n)>
#position = affine_map<(b, s, n) -> (s, n)>

// Batch and sequence are collapsed, also in the elementwise op between the matmuls, so that no reshape remains there.
// CHECK-LABEL: func.func @two_layers(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x64xf32>, %[[V:.*]]: tensor<64x32xf32>, %{{.*}}, %[[W:.*]]: tensor<32x16xf32>
// CHECK:         %[[ROWS:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]]
// CHECK:         %[[H:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[ROWS]], %[[V]] :
// CHECK:         %[[T:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[H]],
// CHECK:           math.tanh
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[T]], %[[W]] :
// CHECK:         %[[RESULT:.*]] = tensor.expand_shape %[[Y]] {{\[}}[0, 1], [2]]
// CHECK:         return %[[RESULT]]
func.func @two_layers(%x: tensor<?x?x64xf32>, %v: tensor<64x32xf32>, %bias: tensor<32xf32>, %w: tensor<32x16xf32>) -> tensor<?x?x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %s = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %wide = tensor.empty(%b, %s) : tensor<?x?x32xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  %h = linalg.generic {indexing_maps = [#left, #right, #result], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%x, %v : tensor<?x?x64xf32>, tensor<64x32xf32>) outs(%zeros : tensor<?x?x32xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<?x?x32xf32>
  %t = linalg.generic {indexing_maps = [#token, #column, #token], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%h, %bias : tensor<?x?x32xf32>, tensor<32xf32>) outs(%wide : tensor<?x?x32xf32>) {
    ^bb0(%e: f32, %c: f32, %o: f32):
      %sum = arith.addf %e, %c : f32
      %y = math.tanh %sum : f32
      linalg.yield %y : f32
    } -> tensor<?x?x32xf32>
  %narrow = tensor.empty(%b, %s) : tensor<?x?x16xf32>
  %none = linalg.fill ins(%zero : f32) outs(%narrow : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %y = linalg.generic {indexing_maps = [#left, #right, #result], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%t, %w : tensor<?x?x32xf32>, tensor<32x16xf32>) outs(%none : tensor<?x?x16xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<?x?x16xf32>
  return %y : tensor<?x?x16xf32>
}

#heads = affine_map<(b, s, n, h, d) -> (b, s, h, d)>
#joined = affine_map<(b, s, n, h, d) -> (h, d, n)>
#out = affine_map<(b, s, n, h, d) -> (b, s, n)>

// EXAMPLE
// The reduced dimensions of heads and their elements are collapsed. An addition by position keeps its dimensions.
// CHECK-LABEL: func.func @joined_heads(
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME:      tensor<?x64xf32>, tensor<64x32xf32>
// CHECK:         %[[Y:.*]] = tensor.expand_shape
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[Y]]
func.func @joined_heads(%x: tensor<?x?x4x16xf32>, %w: tensor<4x16x32xf32>, %p: tensor<?x32xf32>, %init: tensor<?x?x32xf32>) -> tensor<?x?x32xf32> {
  %y = linalg.generic {indexing_maps = [#heads, #joined, #out],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
    ins(%x, %w : tensor<?x?x4x16xf32>, tensor<4x16x32xf32>) outs(%init : tensor<?x?x32xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<?x?x32xf32>
  %z = linalg.generic {indexing_maps = [#token, #position, #token], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%y, %p : tensor<?x?x32xf32>, tensor<?x32xf32>) outs(%init : tensor<?x?x32xf32>) {
    ^bb0(%e: f32, %f: f32, %o: f32):
      %sum = arith.addf %e, %f : f32
      linalg.yield %sum : f32
    } -> tensor<?x?x32xf32>
  return %z : tensor<?x?x32xf32>
}
