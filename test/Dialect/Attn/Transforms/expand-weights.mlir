// Weights become a contraction of queries and keys, and an elementwise op with the regions.
// RUN: saccade-opt --attn-expand-weights --canonicalize --cse %s | FileCheck %s

// Query heads of a KV head have a loop of their own. Positions are those of `at` plus the loops.
// CHECK-LABEL: func.func @groups
// CHECK-SAME:  %[[Q:[a-z0-9]+]]: tensor<?x4x?x16xbf16>, %[[K:[a-z0-9]+]]: tensor<?x2x?x16xbf16>, %[[L:[a-z0-9]+]]: tensor<?x4x?xf32>, %[[FIRST:[a-z0-9]+]]: index, %[[N:[a-z0-9]+]]: tensor<?xi32>
// CHECK:       %[[QUERY:.*]] = tensor.expand_shape %[[Q]] {{\[\[}}0], [1, 2], [3], [4]]
// CHECK:       %[[PRODUCTS:.*]] = linalg.generic {{.*}}"reduction"{{.*}} ins(%[[QUERY]], %[[K]] : tensor<?x2x2x?x16xbf16>, tensor<?x2x?x16xbf16>)
// CHECK-COUNT-2: arith.extf
// CHECK:       %[[ROWS:.*]] = tensor.expand_shape %[[L]] {{\[\[}}0], [1, 2], [3]]
// CHECK:       %[[WEIGHTS:.*]] = linalg.generic {{.*}} ins(%[[PRODUCTS]], %[[ROWS]] : tensor<?x2x2x?x?xf32>, tensor<?x2x2x?xf32>)
// CHECK:       linalg.index 3
// CHECK:       arith.addi %{{.*}}, %[[FIRST]]
// CHECK:       tensor.extract %[[N]]
// CHECK:       math.exp
// CHECK-NEXT:  arith.select
// CHECK:       tensor.collapse_shape %[[WEIGHTS]] {{\[\[}}0], [1, 2], [3], [4]] : tensor<?x2x2x?x?xf32> into tensor<?x4x?x?xf32>
func.func @groups(%q: tensor<?x4x?x16xbf16>, %k: tensor<?x2x?x16xbf16>, %l: tensor<?x4x?xf32>, %first: index, %n: tensor<?xi32>)
    -> tensor<?x4x?x?xf32> {
  %zero = arith.constant 0 : index
  %w = attn.weights %q[b,h,s,d], %k[b,h,s,d] at(%zero, %zero, %first, %zero) kv_len(%n : tensor<?xi32>) lse(%l : tensor<?x4x?xf32>)
      mask causal<0> : (tensor<?x4x?x16xbf16>, tensor<?x2x?x16xbf16>) -> tensor<?x4x?x?xf32>
  return %w : tensor<?x4x?x?xf32>
}

// EXAMPLE
// One KV head is read by all query heads, without a copy.
// CHECK-LABEL: func.func @shared
// CHECK-NOT:   expand_shape
// CHECK:       tensor.extract_slice %{{.*}} : tensor<?x1x8xf32> to tensor<?x8xf32>
// CHECK:       linalg.generic {{.*}}"reduction"{{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x?x8xf32>, tensor<?x8xf32>)
// CHECK-NOT:   collapse_shape
func.func @shared(%q: tensor<4x?x8xf32>, %k: tensor<?x1x8xf32>, %l: tensor<4x?xf32>) -> tensor<4x?x?xf32> {
  %w = attn.weights %q[h,s,d], %k[s,h,d] lse(%l : tensor<4x?xf32>) : (tensor<4x?x8xf32>, tensor<?x1x8xf32>) -> tensor<4x?x?xf32>
  return %w : tensor<4x?x?xf32>
}

// Reads are clamped to the tensor: the body is evaluated for masked pairs, too.
// CHECK-LABEL: func.func @reads
// CHECK-SAME:  %[[T:[a-z0-9]+]]: tensor<5xf32>)
// CHECK:       %[[LAST:.*]] = arith.constant 4 : index
// CHECK:       %[[AT:.*]] = arith.minsi %{{.*}}, %[[LAST]]
// CHECK:       tensor.extract %[[T]][%{{.*}}]
func.func @reads(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %l: tensor<?xf32>, %t: tensor<5xf32>) -> tensor<?x?xf32> {
  %w = attn.weights %q[s,d], %k[s,d] captures(%t : tensor<5xf32>) lse(%l : tensor<?xf32>)
      score(%s, %b, %h, %i, %j, %c) {
        %x = tensor.extract %c[%j] : tensor<5xf32>
        %y = arith.addf %s, %x : f32
        attn.yield %y : f32
      } : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x?xf32>
  return %w : tensor<?x?xf32>
}

// A static number of query heads and a dynamic number of KV heads.
// CHECK-LABEL: func.func @heads
// CHECK:       tensor.cast %{{.*}} : tensor<6x?x8xf32> to tensor<?x?x8xf32>
// CHECK:       tensor.collapse_shape
// CHECK-NEXT:  tensor.cast %{{.*}} : tensor<?x?x?xf32> to tensor<6x?x?xf32>
func.func @heads(%q: tensor<6x?x8xf32>, %k: tensor<?x?x8xf32>, %l: tensor<6x?xf32>) -> tensor<6x?x?xf32> {
  %w = attn.weights %q[h,s,d], %k[h,s,d] lse(%l : tensor<6x?xf32>) : (tensor<6x?x8xf32>, tensor<?x?x8xf32>) -> tensor<6x?x?xf32>
  return %w : tensor<6x?x?xf32>
}

// Without a sequence, query or key there is nothing to compute.
// CHECK-LABEL: func.func @empty
// CHECK-NEXT:  %[[E:.*]] = tensor.empty() : tensor<0x3x4xf32>
// CHECK-NEXT:  return %[[E]]
func.func @empty(%q: tensor<0x1x3x8xf32>, %k: tensor<0x1x4x8xf32>, %l: tensor<0x3xf32>) -> tensor<0x3x4xf32> {
  %part = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<0x1x3x8xf32> into tensor<0x3x8xf32>
  %w = attn.weights %part[b,s,d], %k[b,h,s,d] lse(%l : tensor<0x3xf32>) : (tensor<0x3x8xf32>, tensor<0x1x4x8xf32>) -> tensor<0x3x4xf32>
  return %w : tensor<0x3x4xf32>
}
