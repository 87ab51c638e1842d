// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-torch --canonicalize --cse --split-input-file | FileCheck %s
// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-torch --attn-raise-attention --split-input-file | FileCheck %s --check-prefix=RAISED
// The example of the pass description, and one op per family. Declared intermediate types are ignored.

// EXAMPLE
// CHECK-LABEL: func.func @softmax
// CHECK: linalg.softmax dimension(1) ins(%{{.*}} : tensor<?x8xf32>)
func.func @softmax(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = "torch.aten.softmax"(%x) {arguments = ["self"], dim = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Type promotion: tensors take precedence over 0-D tensors, and these over scalars.
// CHECK-LABEL: func.func @promotion
// CHECK: -> tensor<3xbf16>
// CHECK: -> tensor<3xi1>
func.func @promotion(%x: tensor<3xbf16>, %y: tensor<f32>) -> (tensor<3xbf16>, tensor<3xi1>) {
  %z = "torch.aten.add"(%x, %y) {arguments = ["self", "other"], alpha = 2 : i64} : (tensor<3xbf16>, tensor<f32>) -> !torch.value
  %w = "torch.aten.mul"(%z) {arguments = ["self"], other = 0.5 : f64} : (!torch.value) -> !torch.value
  %c = "torch.aten.ge"(%w) {arguments = ["self"], other = 1 : i64} : (!torch.value) -> !torch.value
  %r = "torch.aten.alias"(%w) {arguments = ["self"]} : (!torch.value) -> tensor<3xbf16>
  %s = "torch.aten.alias"(%c) {arguments = ["self"]} : (!torch.value) -> tensor<3xi1>
  return %r, %s : tensor<3xbf16>, tensor<3xi1>
}

// -----

// Sizes computed in Python are extents; `unit` marks their positions.
// CHECK-LABEL: func.func @computed_size
// CHECK-NOT: from_elements
// CHECK: tensor.collapse_shape %{{.*}} {{\[\[}}0, 1], [2]] : tensor<?x?x12xf32> into tensor<?x12xf32>
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2]]
func.func @computed_size(%x: tensor<?x?x12xf32>) -> tensor<?x3x4xf32> {
  %m = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?x?x12xf32>) -> !torch.value
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 1 : i64} : (tensor<?x?x12xf32>) -> !torch.value
  %mn = "torch.sym.mul"(%m, %n) {arguments = ["self", "other"]} : (!torch.value, !torch.value) -> !torch.value
  %y = "torch.aten.view"(%x, %mn) {arguments = ["self", "size"], size = [unit, 3, -1]}
    : (tensor<?x?x12xf32>, !torch.value) -> tensor<?x3x4xf32>
  return %y : tensor<?x3x4xf32>
}

// -----

// Dimensions of one name share one SSA value: no tensor.dim of the second tensor.
// CHECK-LABEL: func.func @equal_extents
// CHECK-SAME: (%[[X:[^ :]*]]: tensor<?x4xf32> {attn.dim_names = ["n", ""]}, %[[Y:[^ :]*]]: tensor<?x4xf32> {attn.dim_names = ["n", ""]})
// CHECK-NOT: tensor.dim %[[Y]]
func.func @equal_extents(%x: tensor<?x4xf32> {attn.dim_names = ["n", ""]}, %y: tensor<?x4xf32> {attn.dim_names = ["n", ""]})
    -> tensor<?x4xf32> {
  %z = "torch.aten.cat"(%y, %y) {arguments = ["tensors", "tensors"], dim = 1 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> !torch.value
  %s = "torch.aten.slice"(%z) {arguments = ["self"], dim = 1 : i64, start = 2 : i64, end = 6 : i64} : (!torch.value) -> !torch.value
  %w = "torch.aten.sub"(%s, %x) {arguments = ["self", "other"]} : (!torch.value, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %w : tensor<?x4xf32>
}

// -----

// Extents are polynomials of the sizes of arguments: after a concatenation and a padding the inferred extent is static,
// and two sums of one value are one.
// CHECK-LABEL: func.func @quotient_of_polynomials
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1], [2, 3]] output_shape [%{{.*}}, %[[N:.*]], 4, 8]
// CHECK: linalg.generic {{.*}}tensor<?x?x4x8xf32>
func.func @quotient_of_polynomials(%x: tensor<?x?x32xf32>, %row: tensor<1x1x32xf32>) -> tensor<?x?x4x8xf32> {
  %b = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?x?x32xf32>) -> !torch.value
  %rows = "torch.aten.expand"(%row, %b) {arguments = ["self", "size"], size = [unit, -1, -1]} : (tensor<1x1x32xf32>, !torch.value) -> !torch.value
  %y = "torch.aten.cat"(%rows, %x) {arguments = ["tensors", "tensors"], dim = 1 : i64} : (!torch.value, tensor<?x?x32xf32>) -> !torch.value
  %z = "torch.aten.pad"(%y) {arguments = ["self"], pad = [0, 0, 0, 2]} : (!torch.value) -> !torch.value
  %m = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 1 : i64} : (tensor<?x?x32xf32>) -> !torch.value
  %n = "torch.sym.add"(%m) {arguments = ["self"], other = 3 : i64} : (!torch.value) -> !torch.value
  %h = "torch.aten.view"(%z, %b, %n) {arguments = ["self", "size", "size"], size = [unit, unit, 4, -1]}
    : (!torch.value, !torch.value, !torch.value) -> !torch.value
  %w = "torch.aten.neg"(%h) {arguments = ["self"]} : (!torch.value) -> tensor<?x?x4x8xf32>
  return %w : tensor<?x?x4x8xf32>
}

// -----

// What the exporter knows: a slice of n extents from the second on has n - 1, and -1 in the map is not known.
// CHECK-LABEL: func.func @declared_extents
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1], [2, 3]] output_shape [%{{.*}}, %{{.*}}, 4, 8]
// CHECK-NOT: {extents
func.func @declared_extents(%x: tensor<?x?x32xf32> {attn.dim_names = ["b", "n", ""]}) -> tensor<?x?x4x8xf32> {
  %b = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?x?x32xf32>) -> !torch.value
  %m = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 1 : i64} : (tensor<?x?x32xf32>) -> !torch.value
  %n = "torch.sym.sub"(%m) {arguments = ["self"], other = 1 : i64} : (!torch.value) -> !torch.value
  %y = "torch.aten.slice"(%x) {arguments = ["self"], dim = 1 : i64, start = 1 : i64, end = 9223372036854775807 : i64,
    extents = [affine_map<()[b, n] -> (-1, n - 1, 32)>]} : (tensor<?x?x32xf32>) -> !torch.value
  %h = "torch.aten.view"(%y, %b, %n) {arguments = ["self", "size", "size"], size = [unit, unit, 4, -1],
    extents = [affine_map<()[b, n] -> (b, n - 1, 4, -1)>]} : (!torch.value, !torch.value, !torch.value) -> tensor<?x?x4x8xf32>
  return %h : tensor<?x?x4x8xf32>
}

// -----

// A missing tensor of a list has type none.
// CHECK-LABEL: func.func @indexed
// CHECK: tensor.extract
// CHECK: -> tensor<5x7x4xf32>
func.func @indexed(%x: tensor<5x6x4xf32>, %i: tensor<7xi64>) -> tensor<5x7x4xf32> {
  %none = "torch.NoValue"() : () -> none
  %y = "torch.aten.index"(%x, %none, %i) {arguments = ["self", "indices", "indices"]}
    : (tensor<5x6x4xf32>, none, tensor<7xi64>) -> tensor<5x7x4xf32>
  return %y : tensor<5x7x4xf32>
}

// -----

// Attention is expanded, then raised with the surrounding ops: two KV heads shared by four query heads, a causal mask.
// RAISED-LABEL: func.func @attention
// RAISED: attn.attention %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d]
// RAISED-SAME: scale(5.000000e-01)
// RAISED-NEXT: mask(
// RAISED: arith.cmpi
// RAISED: (tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32>) -> tensor<2x4x?x16xf32>
// RAISED-NOT: linalg.softmax
func.func @attention(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %v: tensor<2x2x?x16xf32>) -> tensor<2x4x?x16xf32> {
  %y = "torch.aten.scaled_dot_product_attention"(%q, %k, %v)
    {arguments = ["query", "key", "value"], is_causal = true, enable_gqa = true, scale = 0.5 : f64}
    : (tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32>) -> tensor<2x4x?x16xf32>
  return %y : tensor<2x4x?x16xf32>
}

// -----

// Extents that are not known are taken to fit.
// CHECK-LABEL: func.func @copies_of_unknown_extents
// CHECK: return {{.*}} : tensor<4xf32>, tensor<?xf32>
func.func @copies_of_unknown_extents(%x: tensor<4xf32>, %y: tensor<?xf32>) -> (tensor<4xf32>, tensor<?xf32>) {
  %a = "torch.aten.copy"(%x, %y) {arguments = ["self", "src"]} : (tensor<4xf32>, tensor<?xf32>) -> tensor<4xf32>
  %b = "torch.aten.copy"(%y, %x) {arguments = ["self", "src"]} : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>
  return %a, %b : tensor<4xf32>, tensor<?xf32>
}

// -----

// Steps along an open extent: the number of elements is rounded up, and the program is one strided slice.
// CHECK-LABEL: func.func @steps_of_open_lengths
// CHECK-SAME: (%[[X:[^ :]*]]: tensor<?x4xf32>)
// CHECK: arith.divsi
// CHECK: tensor.extract_slice %[[X]][%{{.*}}, 0] [%{{.*}}, 4] [3, 1] : tensor<?x4xf32> to tensor<?x4xf32>
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<?xi64>)
func.func @steps_of_open_lengths(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?xi64>) {
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?x4xf32>) -> !torch.value
  %y = "torch.aten.slice"(%x) {arguments = ["self"], dim = 0 : i64, start = 1 : i64, step = 3 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %r = "torch.aten.arange"(%n) {arguments = ["start"], end = 0 : i64, start = unit, step = -2 : i64} : (!torch.value) -> tensor<?xi64>
  return %y, %r : tensor<?x4xf32>, tensor<?xi64>
}

// -----

// A scatter is a reduction over the updates of each position. It writes the last one, or the sum of all.
// CHECK-LABEL: func.func @scatter
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.maxsi
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: tensor.extract %{{.*}} : tensor<2x3xf32>
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.addf
func.func @scatter(%x: tensor<2x8xf32>, %i: tensor<2x3xi64>, %u: tensor<2x3xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %y = "torch.aten.scatter"(%x, %i, %u) {arguments = ["self", "index", "src"], dim = -1 : i64}
    : (tensor<2x8xf32>, tensor<2x3xi64>, tensor<2x3xf32>) -> tensor<2x8xf32>
  %z = "torch.aten.scatter_add"(%x, %i, %u) {arguments = ["self", "index", "src"], dim = 1 : i64}
    : (tensor<2x8xf32>, tensor<2x3xi64>, tensor<2x3xf32>) -> tensor<2x8xf32>
  return %y, %z : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// The places of elements are counted; the positions of the first two are found by their places.
// CHECK-LABEL: func.func @topk
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]{{.*}} outs(%{{.*}} : tensor<?x16xi64>)
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]{{.*}} outs(%{{.*}} : tensor<?x2xi64>)
// CHECK: return {{.*}} : tensor<?x2xf32>, tensor<?x2xi64>
func.func @topk(%x: tensor<?x16xf32>) -> (tensor<?x2xf32>, tensor<?x2xi64>) {
  %y:2 = "torch.aten.topk"(%x) {arguments = ["self"], k = 2 : i64} : (tensor<?x16xf32>) -> (tensor<?x2xf32>, tensor<?x2xi64>)
  return %y#0, %y#1 : tensor<?x2xf32>, tensor<?x2xi64>
}

// -----

// Complex numbers are pairs of reals; the program has none.
// CHECK-LABEL: func.func @rotary
// CHECK-NOT: complex
// CHECK: math.cos
// CHECK: math.sin
// CHECK-NOT: unrealized_conversion_cast
// CHECK: tensor.concat dim(2)
func.func @rotary(%x: tensor<?x4x2xf32>, %a: tensor<4xf32>) -> tensor<?x4x2xf32> {
  %one = "torch.aten.ones_like"(%a) {arguments = ["self"]} : (tensor<4xf32>) -> !torch.value
  %f = "torch.aten.polar"(%one, %a) {arguments = ["abs", "angle"]} : (!torch.value, tensor<4xf32>) -> !torch.value
  %g = "torch.aten.unsqueeze"(%f) {arguments = ["self"], dim = 0 : i64} : (!torch.value) -> !torch.value
  %c = "torch.aten.view_as_complex"(%x) {arguments = ["self"]} : (tensor<?x4x2xf32>) -> !torch.value
  %p = "torch.aten.mul"(%c, %g) {arguments = ["self", "other"]} : (!torch.value, !torch.value) -> !torch.value
  %y = "torch.aten.view_as_real"(%p) {arguments = ["self"]} : (!torch.value) -> tensor<?x4x2xf32>
  return %y : tensor<?x4x2xf32>
}

// -----

// Windows of an open dimension.
// CHECK-LABEL: func.func @windows
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<2x?x3xf32>)
// CHECK: tensor.extract
func.func @windows(%x: tensor<2x?xf32>) -> tensor<2x?x3xf32> {
  %y = "torch.aten.unfold"(%x) {arguments = ["self"], dimension = 1 : i64, size = 3 : i64, step = 2 : i64} : (tensor<2x?xf32>) -> tensor<2x?x3xf32>
  return %y : tensor<2x?x3xf32>
}
