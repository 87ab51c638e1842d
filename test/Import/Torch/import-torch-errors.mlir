// RUN: saccade-opt %s --allow-unregistered-dialect --attn-import-torch --split-input-file --verify-diagnostics

func.func @unknown_op(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.frobnicate: this op is not supported}}
  %y = "torch.aten.frobnicate"(%x) {arguments = ["self"]} : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @nameless_operand(%x: tensor<3xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.neg: found 0 argument names, expected one for each of 1 operands}}
  %y = "torch.aten.neg"(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

func.func @missing_argument(%x: tensor<3xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.add: the argument 'other' is missing}}
  %y = "torch.aten.add"(%x) {arguments = ["self"]} : (tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

func.func @shapes_do_not_broadcast(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.add: the inputs 'tensor<3xf32>' 'tensor<4xf32>' do not broadcast to one another}}
  %z = "torch.aten.add"(%x, %y) {arguments = ["self", "other"]} : (tensor<3xf32>, tensor<4xf32>) -> tensor<3xf32>
  return %z : tensor<3xf32>
}

// -----

func.func @size_known_too_late(%x: tensor<6xf32>, %n: tensor<i64>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.view: 'size' must be constant or computed from shapes, found the run-time value 'tensor<i64>'}}
  %y = "torch.aten.view"(%x, %n) {arguments = ["self", "size"], size = [unit]} : (tensor<6xf32>, tensor<i64>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @elements_that_only_data_choose(%x: tensor<6xf32>, %m: tensor<6xi1>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.index: a bool mask as index is not supported}}
  %y = "torch.aten.index"(%x, %m) {arguments = ["self", "indices"]} : (tensor<6xf32>, tensor<6xi1>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @key_of_other_depth(%q: tensor<2x4x8xf32>, %k: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  // expected-error @+1 {{torch.aten.scaled_dot_product_attention: the depth of the key: found 6, expected 8}}
  %y = "torch.aten.scaled_dot_product_attention"(%q, %k, %k) {arguments = ["query", "key", "value"]}
    : (tensor<2x4x8xf32>, tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  return %y : tensor<2x4x6xf32>
}

// -----

func.func @mask_of_numbers(%q: tensor<2x4x8xf32>, %m: tensor<4x4xi64>) -> tensor<2x4x8xf32> {
  // expected-error @+1 {{torch.aten.scaled_dot_product_attention: the mask is 'tensor<4x4xi64>', expected bool or floating point}}
  %y = "torch.aten.scaled_dot_product_attention"(%q, %q, %q, %m) {arguments = ["query", "key", "value", "attn_mask"]}
    : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<4x4xi64>) -> tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}

// -----

func.func @overlapping_gaps(%x: tensor<4x4xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{torch.aten.as_strided: a tensor with a non-dense memory layout is not supported}}
  %y = "torch.aten.as_strided"(%x) {arguments = ["self"], size = [2], stride = [1], self_stride = [8, 1]} : (tensor<4x4xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

func.func @argument_that_nobody_reads(%x: tensor<6xf32>) -> tensor<6xf32> {
  // expected-error @+1 {{torch.aten.relu: the argument 'slope' is not supported}}
  %y = "torch.aten.relu"(%x) {arguments = ["self"], slope = 0.5 : f64} : (tensor<6xf32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----

func.func @size_where_a_constant_is_wanted(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?xf32>) -> tensor<i64>
  // expected-error @+1 {{torch.aten.slice: the argument 'step' must be constant}}
  %y = "torch.aten.slice"(%x, %n) {arguments = ["self", "step"], dim = 0 : i64} : (tensor<?xf32>, tensor<i64>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @size_beside_floating_point(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?xf32>) -> tensor<i64>
  // expected-error @+1 {{torch.aten.arange: the argument 'start' must be constant}}
  %y = "torch.aten.arange"(%n) {arguments = ["start"], end = 9.5 : f64} : (tensor<i64>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @number_where_a_tensor_is_wanted(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @+1 {{torch.aten.linear: the argument 'bias' must be a tensor}}
  %y = "torch.aten.linear"(%x, %x) {arguments = ["input", "weight"], bias = 1.0 : f64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

func.func @declared_otherwise(%x: tensor<6xf32>) -> tensor<6xf16> {
  %y = "torch.aten.neg"(%x) {arguments = ["self"]} : (tensor<6xf32>) -> tensor<6xf16>
  // expected-error @+1 {{result 0 is 'tensor<6xf32>', declared is 'tensor<6xf16>'}}
  return %y : tensor<6xf16>
}

// -----

func.func @number_that_is_a_word(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.add: 'other' is "x", expected a scalar or tensor}}
  %r = "torch.aten.add"(%x) {arguments = ["self"], other = "x"} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @alpha_that_is_a_word(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.add: 'alpha' is "x", expected a scalar or tensor}}
  %r = "torch.aten.add"(%x, %x) {arguments = ["self", "other"], alpha = "x"} : (tensor<8x4xf32>, tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @fill_with_a_list(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.full_like: 'fill_value' is [1, 2], expected a scalar or tensor}}
  %r = "torch.aten.full_like"(%x) {arguments = ["self"], fill_value = [1, 2]} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @pad_with_a_word(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.pad: 'value' is unit, expected a scalar or tensor}}
  %r = "torch.aten.pad"(%x) {arguments = ["self"], pad = [1, 0], value} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @type_of_a_tensor(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten._to_copy: 'dtype' is tensor<4xf32>, expected an element type}}
  %r = "torch.aten._to_copy"(%x) {arguments = ["self"], dtype = tensor<4xf32>} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @slice_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.slice: axis 0 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.slice"(%x) {arguments = ["self"]} : (tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @narrow_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.narrow: axis 0 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.narrow"(%x) {arguments = ["self"], length = 1 : i64} : (tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @diff_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.diff: axis -1 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.diff"(%x) {arguments = ["self"]} : (tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @repeat_interleave_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.repeat_interleave: axis 0 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.repeat_interleave"(%x) {arguments = ["self"], repeats = 2 : i64, dim = 0 : i64} : (tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @unflatten_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.unflatten: axis 0 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.unflatten"(%x) {arguments = ["self"], sizes = [1, 1]} : (tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @split_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.split: axis 0 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.split"(%x) {arguments = ["self"], split_size = 1 : i64} : (tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @cat_without_dimensions(%x: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.cat: axis 0 is outside of a tensor with 0 dimensions}}
  %r = "torch.aten.cat"(%x, %x) {arguments = ["tensors", "tensors"]} : (tensor<f32>, tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @table_without_rows(%x: tensor<f32>, %i: tensor<3xi64>) -> !torch.value {
  // expected-error @+1 {{torch.aten.embedding: the weight is 'tensor<f32>', expected a matrix}}
  %r = "torch.aten.embedding"(%x, %i) {arguments = ["weight", "indices"]} : (tensor<f32>, tensor<3xi64>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @row_of_other_rank(%x: tensor<8x4xf32>, %y: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.select_scatter: the source is 'tensor<f32>', expected one dimension less than 'tensor<8x4xf32>'}}
  %r = "torch.aten.select_scatter"(%x, %y) {arguments = ["self", "src"], dim = 1 : i64, index = 1 : i64} : (tensor<8x4xf32>, tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @row_of_other_length(%x: tensor<8x4xf32>, %y: tensor<9xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.select_scatter: an extent of the source: found 9, expected 4}}
  %r = "torch.aten.select_scatter"(%x, %y) {arguments = ["self", "src"], index = 1 : i64} : (tensor<8x4xf32>, tensor<9xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @whole_of_other_rank(%x: tensor<8x4xf32>, %y: tensor<2xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.slice_scatter: the source has 1 dimensions, expected 2}}
  %r = "torch.aten.slice_scatter"(%x, %y) {arguments = ["self", "src"]} : (tensor<8x4xf32>, tensor<2xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @roll_by_nothing(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.roll: found 0 shifts for the flattened tensor, expected 1}}
  %r = "torch.aten.roll"(%x) {arguments = ["self"], shifts = []} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @fewer_than_none() -> !torch.value {
  // expected-error @+1 {{torch.aten.ones: extent 0 of the shape is -3}}
  %r = "torch.aten.ones"() {arguments = [], size = [-3, 4]} : () -> !torch.value
  return %r : !torch.value
}

// -----

func.func @fewer_copies_than_none(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.repeat: extent 0 of the shape is -1}}
  %r = "torch.aten.repeat"(%x) {arguments = ["self"], repeats = [-1, 1]} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @too_many_copies(%x: tensor<8x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.repeat: the shape has too many elements}}
  %r = "torch.aten.repeat"(%x) {arguments = ["self"], repeats = [9223372036854775807, 1]} : (tensor<8x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @range_without_end() -> !torch.value {
  // expected-error @+1 {{torch.aten.arange: a floating-point range must have constant, finite bounds}}
  %r = "torch.aten.arange"() {arguments = [], end = 0x7FF0000000000000 : f64} : () -> !torch.value
  return %r : !torch.value
}

// -----

func.func @integer_range_with_fractions() -> !torch.value {
  // expected-error @+1 {{torch.aten.arange: a range of 'i32' has floating-point bounds, expected integers}}
  %r = "torch.aten.arange"() {arguments = [], end = 3.5 : f64, dtype = i32} : () -> !torch.value
  return %r : !torch.value
}

// -----

func.func @half_of_nothing(%x: tensor<?x4xf32>) -> !torch.value {
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?x4xf32>) -> tensor<i64>
  // expected-error @+1 {{torch.sym.floordiv: the divisor is 0, expected at least 1}}
  %r = "torch.sym.floordiv"(%n) {arguments = ["self"], other = 0 : i64} : (tensor<i64>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @part_behind_the_end(%x: tensor<8xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.narrow: 'start' and 'length' are out of range for dimension 0 of 'tensor<8xf32>'}}
  %r = "torch.aten.narrow"(%x) {arguments = ["self"], start = 6 : i64, length = 9 : i64} : (tensor<8xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @mask_larger_than_tensor(%x: tensor<1x4xf32>, %m: tensor<3x4xi1>, %v: tensor<f32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.index_put: an extent of the mask: found 3, expected 1}}
  %r = "torch.aten.index_put"(%x, %m, %v) {arguments = ["self", "indices", "values"]} : (tensor<1x4xf32>, tensor<3x4xi1>, tensor<f32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @copy_of_more_dimensions(%x: tensor<4xf32>, %y: tensor<4x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.copy: 'tensor<4x4xf32>' does not broadcast to the shape of 'tensor<4xf32>'}}
  %r = "torch.aten.copy"(%x, %y) {arguments = ["self", "src"]} : (tensor<4xf32>, tensor<4x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @minus_true(%x: tensor<4xi1>) -> !torch.value {
  // expected-error @+1 {{torch.aten.neg: found elements of i1, expected numbers}}
  %r = "torch.aten.neg"(%x) {arguments = ["self"]} : (tensor<4xi1>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @gelu_of_integers(%x: tensor<4xi32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.gelu: found elements of 'i32', expected floating point}}
  %r = "torch.aten.gelu"(%x) {arguments = ["self"]} : (tensor<4xi32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @elements_indices(%x: tensor<4xindex>) -> !torch.value {
  // expected-error @+1 {{torch.aten.add: the type 'tensor<4xindex>' is not supported}}
  %r = "torch.aten.add"(%x, %x) {arguments = ["self", "other"]} : (tensor<4xindex>, tensor<4xindex>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @elements_unsigned(%x: tensor<4xui8>) -> !torch.value {
  // expected-error @+1 {{torch.aten.add: the type 'tensor<4xui8>' is not supported}}
  %r = "torch.aten.add"(%x, %x) {arguments = ["self", "other"]} : (tensor<4xui8>, tensor<4xui8>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @elements_complex(%x: tensor<4xcomplex<f32>>) -> !torch.value {
  // expected-error @+1 {{torch.aten.add: the type 'tensor<4xcomplex<f32>>' is not supported}}
  %r = "torch.aten.add"(%x, %x) {arguments = ["self", "other"]} : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @open_heads(%q: tensor<2x?x4x8xf32>, %k: tensor<2x2x4x8xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.scaled_dot_product_attention: found the query 'tensor<2x?x4x8xf32>' and the key 'tensor<2x2x4x8xf32>', expected static head counts}}
  %r = "torch.aten.scaled_dot_product_attention"(%q, %k, %k) {arguments = ["query", "key", "value"], enable_gqa = true} : (tensor<2x?x4x8xf32>, tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @mask_of_more_batches(%q: tensor<1x2x4x8xf32>, %m: tensor<3x2x4x4xf32>) -> !torch.value {
  // expected-error @+1 {{torch.aten.scaled_dot_product_attention: 'tensor<3x2x4x4xf32>' does not broadcast to the shape of 'tensor<1x2x4x4xf32>'}}
  %r = "torch.aten.scaled_dot_product_attention"(%q, %q, %q, %m) {arguments = ["query", "key", "value", "attn_mask"]} : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<3x2x4x4xf32>) -> !torch.value
  return %r : !torch.value
}

// -----

func.func @truth_values_are_not_subtracted(%x: tensor<3xf32>, %y: tensor<3xi1>) -> tensor<3xf32> {
  // expected-error @+1 {{torch.aten.sub: found elements of i1, expected numbers}}
  %z = "torch.aten.sub"(%x, %y) {arguments = ["self", "other"]} : (tensor<3xf32>, tensor<3xi1>) -> tensor<3xf32>
  return %z : tensor<3xf32>
}

// -----

func.func @dimensions_known_too_late(%x: tensor<2x3xf32>, %d: tensor<i64>) -> tensor<2x3xf32> {
  // expected-error @+1 {{torch.aten.flip: 'dims' must be constant dimensions}}
  %y = "torch.aten.flip"(%x, %d) {arguments = ["self", "dims"], dims = [unit]} : (tensor<2x3xf32>, tensor<i64>) -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}

// -----

func.func @dimensions_that_are_text(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // expected-error @+1 {{torch.aten.flip: 'dims' must be constant dimensions}}
  %y = "torch.aten.flip"(%x) {arguments = ["self"], dims = "last"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}

// -----

func.func @program_without_attention(%q: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{torch.saccade.attention: the program has 0 functions, expected 1, or the op no tensors}}
  %r = "torch.saccade.attention"(%q) {arguments = ["tensors"], program = ""} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

func.func @program_with_another_argument(%q: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{torch.saccade.attention: argument 0 of the program, 'tensor<?x8xf32>', is missing or has another type}}
  %r = "torch.saccade.attention"(%q) {arguments = ["tensors"],
    program = "func.func @attention(%q: tensor<?x8xf32>) -> tensor<?x8xf32> { return %q : tensor<?x8xf32> }"}
    : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

func.func @program_with_fewer_arguments(%q: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{torch.saccade.attention: found more arguments than those of the program, 1}}
  %r = "torch.saccade.attention"(%q, %q) {arguments = ["tensors", "tensors"],
    program = "func.func @attention(%q: tensor<?x4xf32>) -> tensor<?x4xf32> { return %q : tensor<?x4xf32> }"}
    : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

func.func @scatter_of_another_type(%x: tensor<4xf32>, %i: tensor<2xi64>, %u: tensor<2xf64>) -> tensor<4xf32> {
  // expected-error @+1 {{torch.aten.scatter: updates are 'tensor<2xf64>', expected elements of 'f32'}}
  %y = "torch.aten.scatter"(%x, %i, %u) {arguments = ["self", "index", "src"], dim = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf64>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @scatter_of_too_few(%x: tensor<4xf32>, %i: tensor<3xi64>, %u: tensor<2xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{torch.aten.scatter_add: 'src' is 'tensor<2xf32>', expected extents of at least those of the index, 'tensor<3xi64>'}}
  %y = "torch.aten.scatter_add"(%x, %i, %u) {arguments = ["self", "index", "src"], dim = 0 : i64} : (tensor<4xf32>, tensor<3xi64>, tensor<2xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @reduction_without_a_name(%x: tensor<4xf32>, %i: tensor<2xi64>, %u: tensor<2xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{torch.aten.scatter_reduce: the reduction 'median' is not supported}}
  %y = "torch.aten.scatter_reduce"(%x, %i, %u) {arguments = ["self", "index", "src"], dim = 0 : i64, reduce = "median"} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @values_that_a_mask_counts(%x: tensor<4xf32>, %m: tensor<4xi1>, %v: tensor<2xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{torch.aten.index_put: values for each element that a mask selects are not supported: their number depends on the data}}
  %y = "torch.aten.index_put"(%x, %m, %v) {arguments = ["self", "indices", "values"]} : (tensor<4xf32>, tensor<4xi1>, tensor<2xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @more_than_there_are(%x: tensor<4xf32>) -> tensor<5xf32> {
  // expected-error @+1 {{torch.aten.topk: 'k' is 5, expected at most the extent of dimension 0 of 'tensor<4xf32>'}}
  %y:2 = "torch.aten.topk"(%x) {arguments = ["self"], k = 5 : i64} : (tensor<4xf32>) -> (tensor<5xf32>, tensor<5xi64>)
  return %y#0 : tensor<5xf32>
}

// -----

func.func @windows_that_do_not_fit(%x: tensor<4xf32>) -> tensor<1x5xf32> {
  // expected-error @+1 {{torch.aten.unfold: found windows of 5 elements every 1 elements, which do not fit dimension 0 of 'tensor<4xf32>'}}
  %y = "torch.aten.unfold"(%x) {arguments = ["self"], dimension = 0 : i64, size = 5 : i64, step = 1 : i64} : (tensor<4xf32>) -> tensor<1x5xf32>
  return %y : tensor<1x5xf32>
}

// -----

func.func @copies_without_a_size(%x: tensor<4xf32>, %n: tensor<4xi64>) -> tensor<?xf32> {
  // expected-error @+1 {{torch.aten.repeat_interleave: the result shape depends on the data of 'repeats': pass its sum as 'output_size'}}
  %y = "torch.aten.repeat_interleave"(%x, %n) {arguments = ["self", "repeats"], dim = 0 : i64} : (tensor<4xf32>, tensor<4xi64>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @function_of_complex_numbers(%x: tensor<4x2xf32>) -> tensor<4xf32> {
  %c = "torch.aten.view_as_complex"(%x) {arguments = ["self"]} : (tensor<4x2xf32>) -> !torch.value
  // expected-error @+1 {{torch.aten.exp: complex numbers are not supported by this op}}
  %y = "torch.aten.exp"(%c) {arguments = ["self"]} : (!torch.value) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @three_parts(%x: tensor<4x3xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{torch.aten.view_as_complex: found 'tensor<4x3xf32>', expected floats with a last dimension of 2}}
  %c = "torch.aten.view_as_complex"(%x) {arguments = ["self"]} : (tensor<4x3xf32>) -> !torch.value
  %y = "torch.aten.abs"(%c) {arguments = ["self"]} : (!torch.value) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
