// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-onnx --canonicalize --cse --split-input-file | FileCheck %s
// The example of the pass description, and one op per family. Declared intermediate types are ignored.

// EXAMPLE
// CHECK-LABEL: func.func @softmax
// CHECK: linalg.softmax dimension(1) ins(%{{.*}} : tensor<?x8xf32>)
func.func @softmax(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = "onnx.Softmax"(%x) {axis = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Broadcasting uses indexing maps.
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1, d2) -> (0, d2)>
// CHECK-DAG: #[[ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @bias_broadcasts
// CHECK: linalg.generic {indexing_maps = [#[[ALL]], #[[ROW]], #[[ALL]]]
// CHECK: arith.addf
func.func @bias_broadcasts(%x: tensor<?x?x8xf32>, %y: tensor<1x8xf32>) -> tensor<?x?x8xf32> {
  %z = "onnx.Add"(%x, %y) : (tensor<?x?x8xf32>, tensor<1x8xf32>) -> !onnx.value
  %r = "onnx.Identity"(%z) : (!onnx.value) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// -----

// CHECK-LABEL: func.func @matrices
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<8x4xf32>)
// CHECK: linalg.batch_matmul
func.func @matrices(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>, %a: tensor<2x3x4xf32>, %b: tensor<2x4x5xf32>)
    -> (tensor<?x4xf32>, tensor<2x3x5xf32>) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %z = "onnx.MatMul"(%a, %b) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %y, %z : tensor<?x4xf32>, tensor<2x3x5xf32>
}

// -----

// A computed shape is folded, and a dynamic extent stays dynamic: [batch, length, 12] becomes [batch, length, 3, 4].
// CHECK-LABEL: func.func @computed_shape
// CHECK-NOT: from_elements
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1], [2, 3]] output_shape [%{{.*}}, %{{.*}}, 3, 4]
func.func @computed_shape(%x: tensor<?x?x12xf32>) -> tensor<?x?x3x4xf32> {
  %zero = arith.constant dense<0> : tensor<1xi64>
  %two = arith.constant dense<2> : tensor<1xi64>
  %heads = arith.constant dense<[3, -1]> : tensor<2xi64>
  %shape = "onnx.Shape"(%x) : (tensor<?x?x12xf32>) -> tensor<3xi64>
  %front = "onnx.Slice"(%shape, %zero, %two) : (tensor<3xi64>, tensor<1xi64>, tensor<1xi64>) -> !onnx.value
  %target = "onnx.Concat"(%front, %heads) {axis = 0 : i64} : (!onnx.value, tensor<2xi64>) -> !onnx.value
  %y = "onnx.Reshape"(%x, %target) : (tensor<?x?x12xf32>, !onnx.value) -> tensor<?x?x3x4xf32>
  return %y : tensor<?x?x3x4xf32>
}

// -----

// A missing input has type none, and unused results are not computed.
// CHECK-LABEL: func.func @attention
// CHECK: attn.attention %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d]
// CHECK-SAME: scale(2.500000e-01)
// CHECK: tensor<2x4x?x16xf32>
func.func @attention(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %v: tensor<2x2x?x16xf32>)
    -> tensor<2x4x?x16xf32> {
  %none = "onnx.NoValue"() : () -> none
  %y:2 = "onnx.Attention"(%q, %k, %v, %none) {is_causal = 1 : i64}
    : (tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32>, none) -> (tensor<2x4x?x16xf32>, !onnx.value)
  return %y#0 : tensor<2x4x?x16xf32>
}

// -----

// The soft-cap is applied before the bias; −∞ in a bias masks a key.
// CHECK-LABEL: func.func @capped_and_biased
// CHECK: attn.attention
// CHECK: mask(
// CHECK: arith.cmpf une
// CHECK: score(
// CHECK: math.tanh
// CHECK: arith.addf
func.func @capped_and_biased(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %v: tensor<2x2x?x16xf32>,
                             %bias: tensor<?x?xf32>) -> tensor<2x4x?x16xf32> {
  %y = "onnx.Attention"(%q, %k, %v, %bias) {softcap = 2.0 : f32}
    : (tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32>, tensor<?x?xf32>) -> tensor<2x4x?x16xf32>
  return %y : tensor<2x4x?x16xf32>
}

// -----

// Positions that a subgraph computes from ranges become positions of the region; no tensor of the size of the scores is
// left.
// CHECK-LABEL: func.func @relative_positions
// CHECK-NOT: linalg.generic
// CHECK: attn.attention
// CHECK: score(%[[S:.*]], %{{.*}}, %{{.*}}, %[[I:.*]], %[[J:.*]])
// CHECK: arith.index_cast %[[I]]
// CHECK: arith.index_cast %[[J]]
// CHECK-NOT: linalg.generic
func.func @relative_positions(%q: tensor<1x2x?x8xf32>, %k: tensor<1x2x?x8xf32>, %v: tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32> {
  %y = "onnx.preview.FlexAttention"(%q, %k, %v) ({
  ^bb0(%s: !onnx.value):
    %zero = arith.constant dense<0> : tensor<i64>
    %one = arith.constant dense<1> : tensor<i64>
    %two = arith.constant dense<2> : tensor<i64>
    %three = arith.constant dense<3> : tensor<i64>
    %column = arith.constant dense<[-1, 1]> : tensor<2xi64>
    %row = arith.constant dense<[1, -1]> : tensor<2xi64>
    %shape = "onnx.Shape"(%s) : (!onnx.value) -> !onnx.value
    %l = "onnx.Gather"(%shape, %two) : (!onnx.value, tensor<i64>) -> !onnx.value
    %n = "onnx.Gather"(%shape, %three) : (!onnx.value, tensor<i64>) -> !onnx.value
    %queries = "onnx.Range"(%zero, %l, %one) : (tensor<i64>, !onnx.value, tensor<i64>) -> !onnx.value
    %keys = "onnx.Range"(%zero, %n, %one) : (tensor<i64>, !onnx.value, tensor<i64>) -> !onnx.value
    %i = "onnx.Reshape"(%queries, %column) : (!onnx.value, tensor<2xi64>) -> !onnx.value
    %j = "onnx.Reshape"(%keys, %row) : (!onnx.value, tensor<2xi64>) -> !onnx.value
    %distance = "onnx.Sub"(%i, %j) : (!onnx.value, !onnx.value) -> !onnx.value
    %number = "onnx.Cast"(%distance) {to = 1 : i64} : (!onnx.value) -> !onnx.value
    %r = "onnx.Add"(%s, %number) : (!onnx.value, !onnx.value) -> !onnx.value
    "onnx.Return"(%r) : (!onnx.value) -> ()
  }) {regions = ["score_mod"]} : (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32>
  return %y : tensor<1x2x?x8xf32>
}

// -----

// Decay has one value per row of the state, beta one for all heads. An unused state is not computed.
// CHECK-LABEL: func.func @linear_attention
// CHECK: %[[BETA:.*]] = tensor.collapse_shape %{{.*}} {{\[\[}}0], [1, 2]]
// CHECK: attn.linear %{{.*}}[b,s,h,d], %{{.*}}[b,s,h,d], %{{.*}}[b,s,h,d] causal
// CHECK-SAME: decay(%{{.*}}[b,s,h,d] : tensor<?x?x2x4xf32>)
// CHECK-SAME: beta(%[[BETA]][b,s] : tensor<?x?xf32>)
// CHECK-SAME: -> tensor<?x?x4x3xf32>
func.func @linear_attention(%q: tensor<?x?x16xf32>, %k: tensor<?x?x8xf32>, %v: tensor<?x?x6xf32>, %g: tensor<?x?x8xf32>,
    %beta: tensor<?x?x1xf32>) -> tensor<?x?x12xf32> {
  %none = "onnx.NoValue"() : () -> none
  %y:2 = "onnx.LinearAttention"(%q, %k, %v, %none, %g, %beta) {q_num_heads = 4 : i64, kv_num_heads = 2 : i64}
    : (tensor<?x?x16xf32>, tensor<?x?x8xf32>, tensor<?x?x6xf32>, none, tensor<?x?x8xf32>, tensor<?x?x1xf32>)
    -> (tensor<?x?x12xf32>, !onnx.value)
  return %y#0 : tensor<?x?x12xf32>
}

// -----

// The taps are slices of the state with the input behind it. An unused state is not computed.
// CHECK-LABEL: func.func @causal_convolution
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x6x?xf32>, %{{[^:]*}}: tensor<6x1x2xf32>, %[[PAST:[^:]*]]: tensor<?x6x1xf32>
// CHECK: %[[WHOLE:.*]] = tensor.concat dim(2) %[[PAST]], %[[X]]
// CHECK: %[[FIRST:.*]] = tensor.extract_slice %[[WHOLE]][0, 0, 0]
// CHECK: %[[SECOND:.*]] = tensor.extract_slice %[[WHOLE]][0, 0, 1]
// CHECK-NOT: tensor.extract_slice %[[WHOLE]]
// CHECK: linalg.generic {{.*}} ins(%[[FIRST]], %[[SECOND]], %{{.*}}, %{{.*}} : tensor<?x6x?xf32>, tensor<?x6x?xf32>, tensor<6x1xf32>, tensor<6x1xf32>)
// CHECK: math.exp
func.func @causal_convolution(%x: tensor<?x6x?xf32>, %w: tensor<6x1x2xf32>, %past: tensor<?x6x1xf32>)
    -> tensor<?x6x?xf32> {
  %none = "onnx.NoValue"() : () -> none
  %y:2 = "onnx.CausalConvWithState"(%x, %w, %none, %past) {activation = "silu"}
    : (tensor<?x6x?xf32>, tensor<6x1x2xf32>, none, tensor<?x6x1xf32>) -> (tensor<?x6x?xf32>, !onnx.value)
  return %y#0 : tensor<?x6x?xf32>
}

// -----

// Computed extents end as `arith`.
// CHECK-LABEL: func.func @computed_extent
// CHECK-NOT: affine.apply
// CHECK: arith.muli
func.func @computed_extent(%x: tensor<?x?x4xf32>) -> tensor<?xf32> {
  %n = "onnx.Size"(%x) : (tensor<?x?x4xf32>) -> tensor<i64>
  %one = arith.constant dense<1> : tensor<1xi64>
  %shape = "onnx.Reshape"(%n, %one) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
  %s = arith.constant dense<1.0> : tensor<1xf32>
  %r = "onnx.Expand"(%s, %shape) : (tensor<1xf32>, tensor<1xi64>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// A state of the dimensions that follow from key and value is taken.
// CHECK-LABEL: func.func @linear_attention_from_a_state
// CHECK-SAME: %[[S:[^:]*]]: tensor<?x2x4x3xf32>
// CHECK: attn.linear
// CHECK-SAME: state(%[[S]] :
func.func @linear_attention_from_a_state(%q: tensor<?x?x16xf32>, %k: tensor<?x?x8xf32>, %v: tensor<?x?x6xf32>,
    %s: tensor<?x2x4x3xf32>) -> tensor<?x?x12xf32> {
  %y:2 = "onnx.LinearAttention"(%q, %k, %v, %s) {q_num_heads = 4 : i64, kv_num_heads = 2 : i64, update_rule = "linear"}
    : (tensor<?x?x16xf32>, tensor<?x?x8xf32>, tensor<?x?x6xf32>, tensor<?x2x4x3xf32>) -> (tensor<?x?x12xf32>, !onnx.value)
  return %y#0 : tensor<?x?x12xf32>
}

// -----

// The position of the first query is the number of past keys, whose extent the mask reads.
// CHECK-LABEL: func.func @causal_after_a_past
// CHECK-SAME: , %[[PAST:[^:]*]]: tensor<1x2x?x8xf32>
// CHECK: %[[LENGTH:.*]] = tensor.dim %[[PAST]],
// CHECK: attn.attention
// CHECK-SAME: captures(%[[LENGTH]] : index)
// CHECK: mask(%{{[^,]*}}, %{{[^,]*}}, %[[I:[^,]*]], %[[J:[^,]*]], %[[FIRST:[^)]*]])
// CHECK: %[[OWN:.*]] = arith.addi %[[I]], %[[FIRST]]
// CHECK: arith.cmpi sle, %[[J]], %[[OWN]]
func.func @causal_after_a_past(%q: tensor<1x2x?x8xf32>, %past: tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32> {
  %none = "onnx.NoValue"() : () -> none
  %y = "onnx.Attention"(%q, %q, %q, %none, %past, %past) {is_causal = 1 : i64}
    : (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, none, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32>
  return %y : tensor<1x2x?x8xf32>
}

// -----

// The branch of a constant condition, and only that.
// CHECK-LABEL: func.func @constant_condition
// CHECK-NOT: arith.negf
// CHECK: math.absf
// CHECK-NOT: arith.negf
// CHECK: return
func.func @constant_condition(%x: tensor<2xf32>) -> tensor<2xf32> {
  %yes = arith.constant dense<true> : tensor<i1>
  %y = "onnx.If"(%yes) ({
    %a = "onnx.Neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    "onnx.Return"(%a) : (tensor<2xf32>) -> ()
  }, {
    %b = "onnx.Abs"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    "onnx.Return"(%b) : (tensor<2xf32>) -> ()
  }) {regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

// Fills, ranges, slices and views in a subgraph become numbers, positions and elements of the region: scores
// times 3, plus l + j, plus element 2 + j of the table.
// CHECK-LABEL: func.func @modified_by_computed_tensors
// CHECK-SAME: , %[[TABLE:[^:]*]]: tensor<1x?x1xf32>
// CHECK: %[[LENGTH:.*]] = tensor.dim %{{.*}}, %c2 : tensor<1x2x?x8xf32>
// CHECK: attn.attention
// CHECK-SAME: captures(%[[LENGTH]], %{{.*}}, %[[TABLE]] : index, index, tensor<1x?x1xf32>)
// CHECK-NEXT: score(%[[S:[^,]*]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[J:[^,]*]], %[[L:[^,]*]], %[[TWO:[^,]*]], %[[OF:[^)]*]])
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[THREE:.*]] = arith.constant 3.0
// CHECK: %[[A:.*]] = arith.mulf %[[S]], %[[THREE]]
// CHECK: %[[AFTER:.*]] = arith.addi %[[L]], %[[J]]
// CHECK: %[[WIDE:.*]] = arith.index_cast %[[AFTER]]
// CHECK: %[[NUMBER:.*]] = arith.sitofp %[[WIDE]]
// CHECK: %[[B:.*]] = arith.addf %[[A]], %[[NUMBER]]
// CHECK: %[[PLACE:.*]] = arith.addi %[[TWO]], %[[J]]
// CHECK: %[[LAST:.*]] = tensor.extract %[[OF]][%[[ZERO]], %[[PLACE]], %[[ZERO]]]
// CHECK: %[[C:.*]] = arith.addf %[[B]], %[[LAST]]
// CHECK: attn.yield %[[C]]
func.func @modified_by_computed_tensors(%q: tensor<1x2x?x8xf32>, %table: tensor<1x?x1xf32>) -> tensor<1x2x?x8xf32> {
  %y = "onnx.preview.FlexAttention"(%q, %q, %q) ({
  ^bb0(%s: !onnx.value):
    %one = arith.constant dense<1> : tensor<i64>
    %two = arith.constant dense<2> : tensor<i64>
    %first = arith.constant dense<2> : tensor<1xi64>
    %all = arith.constant dense<-1> : tensor<1xi64>
    %far = arith.constant dense<9223372036854775807> : tensor<1xi64>
    %shape = "onnx.Shape"(%s) : (!onnx.value) -> !onnx.value
    %filled = "onnx.ConstantOfShape"(%shape) {value = dense<3.0> : tensor<1xf32>} : (!onnx.value) -> !onnx.value
    %a = "onnx.Mul"(%s, %filled) : (!onnx.value, !onnx.value) -> !onnx.value
    %l = "onnx.Gather"(%shape, %two) : (!onnx.value, tensor<i64>) -> !onnx.value
    %twice = "onnx.Add"(%l, %l) : (!onnx.value, !onnx.value) -> !onnx.value
    %after = "onnx.Range"(%l, %twice, %one) : (!onnx.value, !onnx.value, tensor<i64>) -> !onnx.value
    %number = "onnx.Cast"(%after) {to = 1 : i64} : (!onnx.value) -> !onnx.value
    %b = "onnx.Add"(%a, %number) : (!onnx.value, !onnx.value) -> !onnx.value
    %list = "onnx.Reshape"(%table, %all) : (tensor<1x?x1xf32>, tensor<1xi64>) -> !onnx.value
    %last = "onnx.Slice"(%list, %first, %far) : (!onnx.value, tensor<1xi64>, tensor<1xi64>) -> !onnx.value
    %c = "onnx.Add"(%b, %last) : (!onnx.value, !onnx.value) -> !onnx.value
    "onnx.Return"(%c) : (!onnx.value) -> ()
  }) {regions = ["score_mod"]} : (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32>
  return %y : tensor<1x2x?x8xf32>
}

// -----

// A slice of an open length has one extent, also if two ops make the slice: the inferred extent is static.
// CHECK-LABEL: func.func @heads_of_a_slice
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1], [2, 3]] output_shape [%{{.*}}, %{{.*}}, 4, 8]
func.func @heads_of_a_slice(%x: tensor<?x?x32xf32>) -> tensor<?x?x4x8xf32> {
  %one = arith.constant dense<1> : tensor<1xi64>
  %zero = arith.constant dense<0> : tensor<1xi64>
  %end = arith.constant dense<9223372036854775807> : tensor<1xi64>
  %rest = arith.constant dense<[4, -1]> : tensor<2xi64>
  %y = "onnx.Slice"(%x, %one, %end, %one) : (tensor<?x?x32xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> !onnx.value
  %z = "onnx.Slice"(%x, %one, %end, %one) : (tensor<?x?x32xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> !onnx.value
  %s = "onnx.Shape"(%z) : (!onnx.value) -> !onnx.value
  %b = "onnx.Gather"(%s, %zero) {axis = 0 : i64} : (!onnx.value, tensor<1xi64>) -> !onnx.value
  %n = "onnx.Gather"(%s, %one) {axis = 0 : i64} : (!onnx.value, tensor<1xi64>) -> !onnx.value
  %t = "onnx.Concat"(%b, %n, %rest) {axis = 0 : i64} : (!onnx.value, !onnx.value, tensor<2xi64>) -> !onnx.value
  %w = "onnx.Reshape"(%y, %t) : (!onnx.value, !onnx.value) -> tensor<?x?x4x8xf32>
  return %w : tensor<?x?x4x8xf32>
}
