// RUN: saccade-opt %s -attn-differentiate -canonicalize | FileCheck %s

// EXAMPLE
// The log-sum-exp is a further result; the gradient function reads results instead of computing them again.
// CHECK-LABEL: func.func @passes_output_and_log_sum_exp
// CHECK-SAME:    -> (tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>)
// CHECK-NOT:     attn.gradient}
// CHECK:         %[[O:.*]]:3 = attn.attention {{.*}} lse lse_low
// CHECK:         return %[[O]]#0, %[[O]]#1, %[[O]]#2
// CHECK-LABEL: func.func @passes_output_and_log_sum_exp_gradient(
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<?x64xf32>, %[[K:[^:]*]]: tensor<?x64xf32>, %[[V:[^:]*]]: tensor<?x64xf32>,
// CHECK-SAME:    %[[OUT:[^:]*]]: tensor<?x64xf32>, %[[LSE:[^:]*]]: tensor<?xf32>, %[[LOW:[^:]*]]: tensor<?xf32>,
// CHECK-SAME:    %[[DO:[^:]*]]: tensor<?x64xf32>)
// CHECK-SAME:    -> (tensor<?x64xf32> {attn.name = "{{.*}}_gradient"}, tensor<?x64xf32> {{.*}}, tensor<?x64xf32> {{.*}})
// CHECK-NOT:     attn.attention
// CHECK:         %[[DELTA:.*]] = linalg.generic {{.*}} ins(%[[OUT]], %[[DO]]
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK:         %[[G:.*]]:3 = attn.gradient %[[Q]][s,d], %[[K]][s,d], %[[V]][s,d]
// CHECK-SAME:      output_gradient(%[[DO]][s,d] {{.*}}) lse(%[[LSE]] {{.*}}) lse_low(%[[LOW]] {{.*}}) delta(%[[DELTA]]
// CHECK-NOT:       gradient<
// CHECK:         return %[[G]]#0, %[[G]]#1, %[[G]]#2
func.func @passes_output_and_log_sum_exp(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>)
    -> tensor<?x64xf32> attributes {attn.gradient} {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// The table has a gradient, the integers and the argument that is left out have none. Reads are sums in f32.
// CHECK-LABEL: func.func @adds_to_the_elements_that_were_read_gradient(
// CHECK-SAME:    -> (tensor<2x4x?x64xbf16> {{.*}}, tensor<2x4x?x64xbf16> {{.*}}, tensor<?xbf16> {attn.name = "{{.*}}_gradient"})
// CHECK:         attn.gradient
// CHECK:           mask(%{{.*}}, %{{.*}}, %[[I:.*]], %[[J:.*]], %{{.*}}, %{{.*}}) {
// CHECK:           gradient<0>(%[[P:.*]], %[[S:.*]], %[[DP:.*]], %[[DEL:.*]], %[[B:.*]], %[[H:.*]], %[[QI:.*]], %[[KI:.*]], %[[T:.*]], %[[N:.*]]) {
// CHECK:             %[[N_K:.*]] = tensor.extract %[[N]][%[[KI]]]
// CHECK:             %[[PLACE:.*]] = arith.index_cast %[[N_K]]
// CHECK:             %[[X:.*]] = arith.subf %[[DP]], %[[DEL]] : f32
// CHECK:             %[[DS:.*]] = arith.mulf %[[P]], %[[X]] : f32
// CHECK-NEXT:        attn.yield %[[DS]], %[[PLACE]], %[[DS]] : f32, index, f32
// CHECK:           -> (tensor<2x4x?x64xbf16>, tensor<2x4x?x64xbf16>, tensor<2x4x?x64xbf16>, tensor<?xf32>)
func.func @adds_to_the_elements_that_were_read(%q: tensor<2x4x?x64xbf16>, %k: tensor<2x4x?x64xbf16>,
    %v: tensor<2x4x?x64xbf16> {attn.no_gradient}, %table: tensor<?xbf16>, %number: tensor<?xi32>)
    -> tensor<2x4x?x64xbf16> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    captures(%table, %number : tensor<?xbf16>, tensor<?xi32>)
    mask causal<top_left>
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

// CHECK-LABEL: func.func @differentiates_a_soft_cap_gradient(
// CHECK:           gradient(%[[P:.*]], %[[S:.*]], %[[DP:.*]], %[[DEL:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK:             %[[C:.*]] = arith.divf %[[S]]
// CHECK:             %[[T:.*]] = math.tanh %[[C]]
// CHECK:             %[[DS1:.*]] = arith.mulf %[[P]], %{{.*}}
// CHECK:             arith.subf %{{.*}}, %[[T]]
// CHECK:             arith.addf %[[T]], %{{.*}}
// CHECK:             attn.yield
func.func @differentiates_a_soft_cap(%q: tensor<?x64xf32>) -> tensor<?x64xf32> attributes {attn.gradient} {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d]
    score(%s, %b, %h, %i, %j) {
      %c = arith.constant 30.0 : f32
      %0 = arith.divf %s, %c : f32
      %1 = math.tanh %0 : f32
      %2 = arith.mulf %1, %c : f32
      attn.yield %2 : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Gradients of a projection are matmuls.
// CHECK-LABEL: func.func @differentiates_a_matmul_gradient(
// CHECK-COUNT-2: linalg.generic {{.*}} iterator_types = [{{.*}}"reduction"{{.*}}]
// CHECK:         return
func.func @differentiates_a_matmul(%x: tensor<?x16xf32>, %w: tensor<16x32xf32>, %into: tensor<?x32xf32> {attn.no_gradient})
    -> tensor<?x32xf32> attributes {attn.gradient} {
  %y = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x32xf32>) outs(%into : tensor<?x32xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// CHECK-LABEL: func.func @is_not_marked
// CHECK-NOT: @is_not_marked_gradient
func.func @is_not_marked(%q: tensor<?x64xf32>) -> tensor<?x64xf32> {
  return %q : tensor<?x64xf32>
}

// Quantized keys have no gradient, their scale has one.
// CHECK-LABEL: func.func @differentiates_a_scale_gradient(
// CHECK-SAME:    -> (tensor<?x64xf32> {attn.name = "{{.*}}0_gradient"}, tensor<f32> {attn.name = "{{.*}}2_gradient"})
#rows = affine_map<(s, d) -> (s, d)>
func.func @differentiates_a_scale(%q: tensor<?x64xf32>, %k: tensor<?x64xf8E4M3FN>, %scale: f32) -> tensor<?x64xf32> attributes {attn.gradient} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %k, %c0 : tensor<?x64xf8E4M3FN>
  %e = tensor.empty(%n) : tensor<?x64xf32>
  %keys = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%k : tensor<?x64xf8E4M3FN>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%x: f8E4M3FN, %o: f32):
    %f = arith.extf %x : f8E4M3FN to f32
    %g = arith.mulf %f, %scale : f32
    linalg.yield %g : f32
  } -> tensor<?x64xf32>
  %o = attn.attention %q[s,d], %keys[s,d], %keys[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Probabilities are recomputed from the log-sum-exp, so it is that of unquantized scores.
// CHECK-LABEL: func.func @scores_are_not_quantized(
// CHECK-NOT: qk_type
// CHECK: attn.gradient
// CHECK-NOT: qk_type
func.func @scores_are_not_quantized(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?xf32>) attributes {attn.gradient} {
  %o, %lse = attn.attention %x[s,d], %x[s,d], %x[s,d] qk_type(i8) lse
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?xf32>)
  return %o, %lse : tensor<?x64xf32>, tensor<?xf32>
}
