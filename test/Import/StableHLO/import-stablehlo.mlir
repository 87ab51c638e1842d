// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-stablehlo --canonicalize --cse --split-input-file | FileCheck %s
// The example of the pass description, and one op per family.

// EXAMPLE
// CHECK-LABEL: func.func @sum
// CHECK: linalg.generic
// CHECK: arith.addf
// CHECK-NOT: stablehlo
func.func @sum(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %z = "stablehlo.add"(%x, %y) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %z : tensor<2x8xf32>
}

// -----

// Helper functions are inlined and erased, and foreign argument attributes are dropped; our own are kept.
// CHECK-LABEL: func.func @calls(
// CHECK-SAME: %{{.*}}: tensor<8xf32> {attn.constant}) -> tensor<8xf32> {
// CHECK-NOT: call
// CHECK: math.tanh
// CHECK-NOT: func.func
module attributes {mhlo.num_partitions = 1 : i32} {
  func.func @calls(%x: tensor<8xf32> {attn.constant, jax.arg_info = "x"}) -> (tensor<8xf32> {jax.result_info = "result"}) {
    %y = func.call @twice_removed(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
  func.func private @twice_removed(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = func.call @once_removed(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
  func.func private @once_removed(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = "stablehlo.tanh"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}

// -----

// Plain matmuls become named ops; other layouts are expressed in the maps, not copied.
// CHECK-DAG: #[[LEFT:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1, d3, d5)>
// CHECK-DAG: #[[RIGHT:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d1, d5)>
// CHECK-LABEL: func.func @products
// CHECK: linalg.matmul
// CHECK-NOT: transpose
// CHECK: linalg.generic {indexing_maps = [#[[LEFT]], #[[RIGHT]], #{{.*}}]
func.func @products(%x: tensor<4x8xf32>, %w: tensor<8x5xf32>, %q: tensor<2x9x4x3x16xf32>, %k: tensor<2x7x4x16xf32>)
    -> (tensor<4x5xf32>, tensor<2x4x9x3x7xf32>) {
  %y = "stablehlo.dot_general"(%x, %w) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}>
    : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %s = "stablehlo.dot_general"(%q, %k) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 2], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [3]>}>
    : (tensor<2x9x4x3x16xf32>, tensor<2x7x4x16xf32>) -> tensor<2x4x9x3x7xf32>
  return %y, %s : tensor<4x5xf32>, tensor<2x4x9x3x7xf32>
}

// -----

// A computed shape is folded, and a broadcast that only adds unit dimensions is a reshape.
// CHECK-LABEL: func.func @shapes
// CHECK-NOT: from_elements
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2]] output_shape [%{{.*}}, 3, 4]
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0, 1], [2]] output_shape [1, 8, 5]
func.func @shapes(%x: tensor<?x12xf32>, %y: tensor<8x5xf32>) -> (tensor<?x3x4xf32>, tensor<1x8x5xf32>) {
  %n = "stablehlo.get_dimension_size"(%x) <{dimension = 0 : i64}> : (tensor<?x12xf32>) -> tensor<i32>
  %first = "stablehlo.reshape"(%n) : (tensor<i32>) -> tensor<1xi32>
  %rest = "stablehlo.constant"() <{value = dense<[3, 4]> : tensor<2xi32>}> : () -> tensor<2xi32>
  %shape = "stablehlo.concatenate"(%first, %rest) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
  %z = "stablehlo.dynamic_reshape"(%x, %shape) : (tensor<?x12xf32>, tensor<3xi32>) -> tensor<?x3x4xf32>
  %b = "stablehlo.broadcast_in_dim"(%y) <{broadcast_dimensions = array<i64: 1, 2>}> : (tensor<8x5xf32>) -> tensor<1x8x5xf32>
  return %z, %b : tensor<?x3x4xf32>, tensor<1x8x5xf32>
}

// -----

// A loop with a constant trip count is unrolled: three iterations.
// CHECK-LABEL: func.func @loop
// CHECK-NOT: scf
// CHECK-COUNT-3: arith.mulf
// CHECK-NOT: arith.mulf
func.func @loop(%x: tensor<3xf32>) -> tensor<3xf32> {
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %r:2 = "stablehlo.while"(%zero, %x) ({
  ^bb0(%i: tensor<i32>, %y: tensor<3xf32>):
    %n = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %c = "stablehlo.compare"(%i, %n) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%c) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %y: tensor<3xf32>):
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %j = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %z = "stablehlo.multiply"(%y, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    "stablehlo.return"(%j, %z) : (tensor<i32>, tensor<3xf32>) -> ()
  }) : (tensor<i32>, tensor<3xf32>) -> (tensor<i32>, tensor<3xf32>)
  return %r#1 : tensor<3xf32>
}

// -----

// A composite op is replaced by its decomposition, and a shape assertion is dropped; chlo ops may be mixed in.
// CHECK-LABEL: func.func @composite
// CHECK: math.erf
// CHECK-NOT: stablehlo
func.func @composite(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = "stablehlo.get_dimension_size"(%x) <{dimension = 0 : i64}> : (tensor<?xf32>) -> tensor<i32>
  %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %c = "stablehlo.compare"(%n, %one) <{comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
  "stablehlo.custom_call"(%c, %n) <{call_target_name = "shape_assertion", has_side_effect = true}> : (tensor<i1>, tensor<i32>) -> ()
  %y = "stablehlo.composite"(%x) <{name = "chlo.erf", decomposition = @erf}> : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func private @erf(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = "chlo.erf"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// A program without StableHLO ops is unchanged.
// CHECK-LABEL: func.func private @untouched
// CHECK: func.func @caller
// CHECK: call @untouched
func.func private @untouched(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}
func.func @caller(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = func.call @untouched(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// An empty update at the end of a dimension leaves the operand.
// CHECK-LABEL: func.func @empty_update
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %
// CHECK: return %[[X]]
func.func @empty_update(%x: tensor<4xf32>, %u: tensor<0xf32>) -> tensor<4xf32> {
  %i = "stablehlo.constant"() <{value = dense<9> : tensor<i32>}> : () -> tensor<i32>
  %y = "stablehlo.dynamic_update_slice"(%x, %u, %i) : (tensor<4xf32>, tensor<0xf32>, tensor<i32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// A dimension that is kept whole may be empty.
// CHECK-LABEL: func.func @rows_of_an_empty_table
// CHECK: return {{.*}} : tensor<2x0xf32>
func.func @rows_of_an_empty_table(%x: tensor<4x0xf32>, %i: tensor<2x1xi32>) -> tensor<2x0xf32> {
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 0>}> : (tensor<4x0xf32>, tensor<2x1xi32>) -> tensor<2x0xf32>
  return %y : tensor<2x0xf32>
}
