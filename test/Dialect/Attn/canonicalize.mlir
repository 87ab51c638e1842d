// Canonicalization of attention.
// RUN: saccade-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @transposes_fold_into_named_dimensions
// CHECK-SAME: %[[Q:.*]]: tensor<2x?x4x8xf32>, %[[K:.*]]: tensor<2x4x8x?xf32>, %[[V:.*]]: tensor<?x2x4x8xf32>
// CHECK-NOT: linalg.transpose
// CHECK: attn.attention %[[Q]][b,s,h,d], %[[K]][b,h,d,s], %[[V]][s,b,h,d] out[b,h,s,d]
func.func @transposes_fold_into_named_dimensions(%q: tensor<2x?x4x8xf32>, %k: tensor<2x4x8x?xf32>,
    %v: tensor<?x2x4x8xf32>, %e: tensor<2x4x?x8xf32>) -> tensor<2x4x?x8xf32> {
  %qt = linalg.transpose ins(%q : tensor<2x?x4x8xf32>) outs(%e : tensor<2x4x?x8xf32>) permutation = [0, 2, 1, 3]
  %kt = linalg.transpose ins(%k : tensor<2x4x8x?xf32>) outs(%e : tensor<2x4x?x8xf32>) permutation = [0, 1, 3, 2]
  %vt = linalg.transpose ins(%v : tensor<?x2x4x8xf32>) outs(%e : tensor<2x4x?x8xf32>) permutation = [1, 2, 0, 3]
  %o = attn.attention %qt[b,h,s,d], %kt[b,h,s,d], %vt[b,h,s,d]
    : (tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>) -> tensor<2x4x?x8xf32>
  return %o : tensor<2x4x?x8xf32>
}

// A permutation that is not its own inverse: dimension i of the result is dimension permutation[i] of the input.
// CHECK-LABEL: func.func @rotations_fold_too
// CHECK-SAME: %[[X:.*]]: tensor<3x4x5x6xf32>
// CHECK: attn.attention %[[X]][d,b,h,s], %[[X]][d,b,h,s], %[[X]][d,b,h,s] out[b,h,s,d]
func.func @rotations_fold_too(%x: tensor<3x4x5x6xf32>) -> tensor<4x5x6x3xf32> {
  %e = tensor.empty() : tensor<4x5x6x3xf32>
  %t = linalg.transpose ins(%x : tensor<3x4x5x6xf32>) outs(%e : tensor<4x5x6x3xf32>) permutation = [1, 2, 3, 0]
  %o = attn.attention %t[b,h,s,d], %t[b,h,s,d], %t[b,h,s,d]
    : (tensor<4x5x6x3xf32>, tensor<4x5x6x3xf32>, tensor<4x5x6x3xf32>) -> tensor<4x5x6x3xf32>
  return %o : tensor<4x5x6x3xf32>
}

// CHECK-LABEL: func.func @a_mask_that_always_holds_is_dropped
// CHECK-NOT: mask
// CHECK: return
func.func @a_mask_that_always_holds_is_dropped(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<*, *>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @a_score_that_is_its_argument_is_dropped
// CHECK: mask(
// CHECK-NOT: score
// CHECK: return
func.func @a_score_that_is_its_argument_is_dropped(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    score(%s, %b, %h, %i, %j) {
      %zero = arith.constant -0.0 : f32
      %same = arith.addf %s, %zero : f32
      attn.yield %same : f32
    }
    mask causal<top_left> : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @both_trivial_regions_go
// CHECK: attn.attention %{{.*}}[s,d], %{{.*}}[s,d], %{{.*}}[s,d] :
func.func @both_trivial_regions_go(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    mask window<*, *>
    score(%s, %b, %h, %i, %j) {
      attn.yield %s : f32
    } : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// A mask that never holds is kept: every row is empty.
// CHECK-LABEL: func.func @a_mask_that_never_holds_stays
// CHECK: mask(
// CHECK-NEXT: %[[FALSE:.*]] = arith.constant false
// CHECK-NEXT: attn.yield %[[FALSE]] : i1
func.func @a_mask_that_never_holds_stays(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    mask(%b, %h, %i, %j) {
      %never = arith.cmpi slt, %j, %j : index
      attn.yield %never : i1
    } : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @a_constant_scale_becomes_an_attribute
// CHECK-NOT: arith.constant
// CHECK: scale(1.250000e-01)
func.func @a_constant_scale_becomes_an_attribute(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %scale = arith.constant 0.125 : f32
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] scale(%scale : f32)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// Casts to less static shapes are folded into operands and captures; results are cast back.
// CHECK-LABEL: func.func @casts_fold_into_accumulate
// CHECK-SAME: %[[Q:.*]]: tensor<4x8xf32>, %[[T:.*]]: tensor<6xf32>
// CHECK-NOT: tensor.cast
// CHECK: %[[R:.*]]:3 = attn.accumulate %[[Q]][s,d], %[[Q]][s,d], %[[Q]][s,d] captures(%[[T]] : tensor<6xf32>)
// CHECK: score(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[K:.*]], %[[C:.*]]) {
// CHECK-NEXT: tensor.extract %[[C]][%[[K]]] : tensor<6xf32>
// CHECK: %[[ACC:.*]] = tensor.cast %[[R]]#0 : tensor<4x8xf32> to tensor<?x8xf32>
// CHECK: return %[[ACC]], %[[R]]#1
func.func @casts_fold_into_accumulate(%q: tensor<4x8xf32>, %t: tensor<6xf32>, %m: tensor<4xf32>)
    -> (tensor<?x8xf32>, tensor<4xf32>) {
  %q1 = tensor.cast %q : tensor<4x8xf32> to tensor<?x8xf32>
  %t1 = tensor.cast %t : tensor<6xf32> to tensor<?xf32>
  %r:3 = attn.accumulate %q1[s,d], %q[s,d], %q[s,d] captures(%t1 : tensor<?xf32>)
    into(%q1, %m, %m : tensor<?x8xf32>, tensor<4xf32>, tensor<4xf32>)
    score(%s, %b, %h, %i, %j, %c) {
      %e = tensor.extract %c[%j] : tensor<?xf32>
      %sum = arith.addf %s, %e : f32
      attn.yield %sum : f32
    } : (tensor<?x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return %r#0, %r#1 : tensor<?x8xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @casts_fold_into_accumulate_without_regions
// CHECK: attn.accumulate {{.*}} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
func.func @casts_fold_into_accumulate_without_regions(%q: tensor<4x8xf32>, %m: tensor<4xf32>) -> tensor<4x8xf32> {
  %q1 = tensor.cast %q : tensor<4x8xf32> to tensor<?x8xf32>
  %r:3 = attn.accumulate %q1[s,d], %q1[s,d], %q1[s,d] into(%q, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %r#0 : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @unused_attention_goes
// CHECK-NOT: attn.attention
// CHECK: return
func.func @unused_attention_goes(%x: tensor<?x8xf32>) {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// CHECK-LABEL: func.func @without_keys_all_is_zero
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : bf16
// CHECK-DAG: %[[NINF:.*]] = arith.constant 0xFF800000 : f32
// CHECK-DAG: %[[O:.*]] = linalg.fill ins(%[[ZERO]] : bf16) {{.*}} -> tensor<?x8xbf16>
// CHECK-DAG: %[[L:.*]] = linalg.fill ins(%[[NINF]] : f32) {{.*}} -> tensor<?xf32>
// CHECK: return %[[O]], %[[L]]
func.func @without_keys_all_is_zero(%q: tensor<?x8xbf16>, %k: tensor<0x8xbf16>) -> (tensor<?x8xbf16>, tensor<?xf32>) {
  %o, %l = attn.attention %q[s,d], %k[s,d], %k[s,d] lse : (tensor<?x8xbf16>, tensor<0x8xbf16>, tensor<0x8xbf16>) -> (tensor<?x8xbf16>, tensor<?xf32>)
  return %o, %l : tensor<?x8xbf16>, tensor<?xf32>
}

// CHECK-LABEL: func.func @without_heads_there_is_nothing_to_do
// CHECK-NOT: attn.attention
func.func @without_heads_there_is_nothing_to_do(%q: tensor<0x?x8xf32>, %k: tensor<0x?x8xf32>) -> tensor<0x?x8xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<0x?x8xf32>, tensor<0x?x8xf32>, tensor<0x?x8xf32>) -> tensor<0x?x8xf32>
  return %o : tensor<0x?x8xf32>
}

// CHECK-LABEL: func.func @without_keys_there_is_no_largest
// CHECK-DAG: %[[NONE:.*]] = arith.constant -1 : i64
// CHECK-DAG: %[[NINF:.*]] = arith.constant 0xFF800000 : f32
// CHECK-DAG: %[[M:.*]] = linalg.fill ins(%[[NINF]] : f32) {{.*}} -> tensor<?xf32>
// CHECK-DAG: %[[A:.*]] = linalg.fill ins(%[[NONE]] : i64) {{.*}} -> tensor<?xi64>
// CHECK-DAG: %[[T:.*]] = linalg.fill ins(%{{.*}} : f32) {{.*}} -> tensor<?x2xf32>
// CHECK: return %[[M]], %[[A]], %[[T]]
func.func @without_keys_there_is_no_largest(%q: tensor<?x8xbf16>, %k: tensor<0x8xbf16>, %sink: f32)
    -> (tensor<?xf32>, tensor<?xi64>, tensor<?x2xf32>) {
  %o, %m, %a, %t = attn.attention %q[s,d], %k[s,d], %k[s,d] max argmax sink(%sink : f32)
    tally<2>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<?x8xbf16>, tensor<0x8xbf16>, tensor<0x8xbf16>)
    -> (tensor<?x8xbf16>, tensor<?xf32>, tensor<?xi64>, tensor<?x2xf32>)
  return %m, %a, %t : tensor<?xf32>, tensor<?xi64>, tensor<?x2xf32>
}

// CHECK-LABEL: func.func @weights_that_stay_as_they_are
// CHECK-NOT: weight
// CHECK: return
func.func @weights_that_stay_as_they_are(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] weight(%p, %b, %h, %i, %j) { attn.yield %p : f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}
