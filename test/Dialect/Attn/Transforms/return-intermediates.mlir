// What ops compute becomes further results, in the order of the ops.
// RUN: saccade-opt --attn-return-intermediates %s | FileCheck %s

// EXAMPLE
// Not the constant, the fill, the copy, integers and what is returned already.
// CHECK-LABEL: func.func @all
// CHECK-SAME:  -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xbf16>, tensor<4xf32>)
// CHECK:       %[[EXP:.*]] = math.exp
// CHECK:       %[[NARROW:.*]] = arith.truncf
// CHECK:       %[[O:.*]]:2 = attn.attention
// CHECK:       return %[[O]]#0, %[[EXP]], %[[NARROW]], %[[O]]#1
func.func @all(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c = arith.constant dense<1.0> : tensor<4x8xf32>
  %n = arith.fptosi %x : tensor<4x8xf32> to tensor<4x8xi32>
  %y = math.exp %x : tensor<4x8xf32>
  %e = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%y : tensor<4x8xf32>) outs(%e : tensor<8x4xf32>) permutation = [1, 0]
  %z = tensor.cast %y : tensor<4x8xf32> to tensor<?x8xf32>
  %h = arith.truncf %y : tensor<4x8xf32> to tensor<4x8xbf16>
  %o, %l = attn.attention %x[s,d], %y[s,d], %c[s,d] lse
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %o : tensor<4x8xf32>
}

// A function that is no entry keeps its results.
// CHECK-LABEL: func.func private @inner
// CHECK-SAME:  -> tensor<4xf32> {
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = math.exp %x : tensor<4xf32>
  %z = math.exp %y : tensor<4xf32>
  return %z : tensor<4xf32>
}
