// RUN: saccade-opt %s --attn-fold-transposes --canonicalize --cse | FileCheck %s

// EXAMPLE
// Heads split as by exporters, with transposes of all operands and of the output.
// CHECK-LABEL: func.func @heads(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x12x64xf32>
// CHECK-NOT:     linalg.transpose
// CHECK:         %[[O:.*]] = attn.attention %[[X]][b,s,h,d], %[[X]][b,s,h,d], %[[X]][b,s,h,d]
// CHECK-SAME:      -> tensor<?x?x12x64xf32>
// CHECK-NEXT:    return %[[O]]
func.func @heads(%x: tensor<?x?x12x64xf32>, %turned: tensor<?x12x?x64xf32>) -> tensor<?x?x12x64xf32> {
  %t = linalg.transpose ins(%x : tensor<?x?x12x64xf32>) outs(%turned : tensor<?x12x?x64xf32>) permutation = [0, 2, 1, 3]
  %o = attn.attention %t[b,h,s,d], %t[b,h,s,d], %t[b,h,s,d]
    : (tensor<?x12x?x64xf32>, tensor<?x12x?x64xf32>, tensor<?x12x?x64xf32>) -> tensor<?x12x?x64xf32>
  %y = linalg.transpose ins(%o : tensor<?x12x?x64xf32>) outs(%x : tensor<?x?x12x64xf32>) permutation = [0, 2, 1, 3]
  return %y : tensor<?x?x12x64xf32>
}

#written = affine_map<(a, b, c) -> (a, b, c)>
#read = affine_map<(a, b, c) -> (c, a, b)>

// A copy with permuted maps is a transpose. Dimension i of the operand is dimension i + 1 of the source.
// CHECK-LABEL: func.func @three_dimensions(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<?x8x64xf32>
// CHECK:         attn.attention %{{.*}}[h,s,d], %[[X]][s,h,d], %{{.*}}[h,s,d]
func.func @three_dimensions(%q: tensor<8x?x64xf32>, %x: tensor<?x8x64xf32>, %out: tensor<8x64x?xf32>) -> tensor<8x?x64xf32> {
  %t = linalg.generic {indexing_maps = [#read, #written], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x : tensor<?x8x64xf32>) outs(%out : tensor<8x64x?xf32>) {
    ^bb0(%e: f32, %o: f32):
      linalg.yield %e : f32
    } -> tensor<8x64x?xf32>
  %o = attn.attention %q[h,s,d], %t[h,d,s], %q[h,s,d]
    : (tensor<8x?x64xf32>, tensor<8x64x?xf32>, tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  return %o : tensor<8x?x64xf32>
}

// An output with another user is not folded.
// CHECK-LABEL: func.func @others_read_it(
// CHECK:         %[[O:.*]] = attn.attention
// CHECK-SAME:      -> tensor<8x?x64xf32>
// CHECK:         linalg.transpose ins(%[[O]]
func.func @others_read_it(%q: tensor<8x?x64xf32>, %out: tensor<?x8x64xf32>) -> (tensor<8x?x64xf32>, tensor<?x8x64xf32>) {
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d]
    : (tensor<8x?x64xf32>, tensor<8x?x64xf32>, tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  %y = linalg.transpose ins(%o : tensor<8x?x64xf32>) outs(%out : tensor<?x8x64xf32>) permutation = [1, 0, 2]
  return %o, %y : tensor<8x?x64xf32>, tensor<?x8x64xf32>
}
