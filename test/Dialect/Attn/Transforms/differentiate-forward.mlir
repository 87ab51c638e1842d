// Functions of tangents: the attribute attn.jvp.
// RUN: saccade-opt %s -attn-differentiate -canonicalize | FileCheck %s

// The function itself does not change. One pass over the keys computes the sums of the tangents.
// CHECK-LABEL: func.func @plain
// CHECK-SAME:    -> tensor<?x64xf32> {
// CHECK-LABEL: func.func @plain_jvp(
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<?x64xf32>, %[[K:[^:]*]]: tensor<?x64xf32>, %[[V:[^:]*]]: tensor<?x64xf32>,
// CHECK-SAME:    %[[DQ:[^:]*]]: tensor<?x64xf32>, %[[DK:[^:]*]]: tensor<?x64xf32>, %[[DV:[^:]*]]: tensor<?x64xf32>)
// CHECK-SAME:    -> (tensor<?x64xf32> {attn.name = "output"}, tensor<?x64xf32> {attn.name = "output_tangent"})
// CHECK:         %[[O:.*]]:3 = attn.attention %[[Q]][s,d], %[[K]][s,d], %[[V]][s,d] lse lse_low
// CHECK:         %[[SUMS:.*]]:2 = attn.jvp %[[Q]][s,d], %[[K]][s,d], %[[V]][s,d] query_tangent(%[[DQ]] : tensor<?x64xf32>)
// CHECK-SAME:      key_tangent(%[[DK]] : tensor<?x64xf32>) value_tangent(%[[DV]] : tensor<?x64xf32>) lse(%[[O]]#1 : tensor<?xf32>) lse_low(%[[O]]#2
// CHECK-NOT:       tangent(
// CHECK:         %[[DO:.*]] = linalg.generic {{.*}} ins(%[[SUMS]]#1, %[[O]]#0 {{.*}}) outs(%[[SUMS]]#0
// CHECK:         return %[[O]]#0, %[[DO]]
func.func @plain(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> attributes {attn.jvp} {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// The tangent of a table is a further capture, which is read at the same element. Integers and arguments that are left out
// have none.
// CHECK-LABEL: func.func @table_jvp(
// CHECK-SAME:    %[[T:[^:]*]]: tensor<?xbf16>, %[[N:[^:]*]]: tensor<?xi32>, %[[DT:[^:]*]]: tensor<?xbf16>)
// CHECK:         attn.jvp {{.*}} captures(%[[T]], %[[N]], %[[DT]] : tensor<?xbf16>, tensor<?xi32>, tensor<?xbf16>) lse(
// CHECK:           tangent(%[[P:.*]], %[[S:.*]], %[[DS:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %[[J:.*]], %[[TABLE:.*]], %[[NUMBER:.*]], %[[TANGENT:.*]]) {
// CHECK:             %[[N_J:.*]] = tensor.extract %[[NUMBER]][%[[J]]]
// CHECK:             %[[PLACE:.*]] = arith.index_cast %[[N_J]]
// CHECK:             %[[E:.*]] = tensor.extract %[[TANGENT]][%[[PLACE]]] : tensor<?xbf16>
// CHECK:             %[[WIDE:.*]] = arith.extf %[[E]] : bf16 to f32
// CHECK:             %[[SUM:.*]] = arith.addf %[[DS]], %[[WIDE]] : f32
// CHECK:             %[[DP:.*]] = arith.mulf %[[P]], %[[SUM]] : f32
// CHECK-NEXT:        attn.yield %[[DP]], %[[DP]] : f32, f32
func.func @table(%q: tensor<2x4x?x64xbf16> {attn.no_gradient}, %table: tensor<?xbf16>, %number: tensor<?xi32>)
    -> tensor<2x4x?x64xbf16> attributes {attn.jvp} {
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%table, %number : tensor<?xbf16>, tensor<?xi32>)
    score(%s, %b, %h, %i, %j, %t, %n) {
      %0 = tensor.extract %n[%j] : tensor<?xi32>
      %1 = arith.index_cast %0 : i32 to index
      %2 = tensor.extract %t[%1] : tensor<?xbf16>
      %3 = arith.extf %2 : bf16 to f32
      %4 = arith.addf %s, %3 : f32
      attn.yield %4 : f32
    } : (tensor<2x4x?x64xbf16>, tensor<2x4x?x64xbf16>, tensor<2x4x?x64xbf16>) -> tensor<2x4x?x64xbf16>
  return %o : tensor<2x4x?x64xbf16>
}

// The tangents of a projection are matmuls, one for each factor.
// CHECK-LABEL: func.func @matmul_jvp(
// CHECK:         linalg.matmul
// CHECK-COUNT-2: linalg.generic {{.*}} iterator_types = [{{.*}}"reduction"{{.*}}]
// CHECK:         return
func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<16x32xf32>, %into: tensor<?x32xf32> {attn.no_gradient})
    -> tensor<?x32xf32> attributes {attn.jvp} {
  %y = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x32xf32>) outs(%into : tensor<?x32xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// Both kinds of derivatives: the function of tangents returns the results before the gradient function adds some.
// CHECK-LABEL: func.func @both(
// CHECK-SAME:    -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
// CHECK-LABEL: func.func @both_gradient(
// CHECK-LABEL: func.func @both_jvp(
// CHECK-SAME:    -> (tensor<4x8xf32> {{.*}}, tensor<4x8xf32> {{.*}}) {
func.func @both(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {attn.gradient, attn.jvp} {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The tangent of a recurrence is one recurrence with twice the positions and twice the head size; that of a decay is
// accumulated over positions by another.
// CHECK-LABEL: func.func @linear_jvp(
// CHECK:         attn.linear {{.*}}-> (tensor<4x5x6xf32>, tensor<4x8x6xf32>)
// CHECK:         attn.linear {{.*}}-> (tensor<5x4x1xf32>, tensor<4x1x1xf32>)
// CHECK:         attn.linear {{.*}} erase({{.*}} -> (tensor<4x10x6xf32>, tensor<4x16x6xf32>)
// CHECK-NOT:     attn.linear
// CHECK:         return
func.func @linear(%k: tensor<2x5x8xf32>, %v: tensor<4x5x6xf32>, %g: tensor<4x5xf32>, %b: tensor<4x5xf32>)
    -> (tensor<4x5x6xf32>, tensor<4x8x6xf32>) attributes {attn.jvp} {
  %o, %s = attn.linear %k[h,s,d], %k[h,s,d], %v[h,s,d] causal decay(%g[h,s] : tensor<4x5xf32>)
      beta(%b[h,s] : tensor<4x5xf32>)
      : (tensor<2x5x8xf32>, tensor<2x5x8xf32>, tensor<4x5x6xf32>) -> (tensor<4x5x6xf32>, tensor<4x8x6xf32>)
  return %o, %s : tensor<4x5x6xf32>, tensor<4x8x6xf32>
}
