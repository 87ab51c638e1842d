// RUN: saccade-opt %s -split-input-file -attn-create-shape-functions | FileCheck %s

// EXAMPLE
// The extents of a result are computed from those of the arguments; static extents are not compared.
// CHECK-LABEL: func.func @output_has_query_rows_and_value_depth
// CHECK-SAME:    attn.entry
// CHECK-SAME:    llvm.emit_c_interface
// CHECK-LABEL: func.func @output_has_query_rows_and_value_depth.shapes(
// CHECK-SAME:    %[[Q:.*]]: tensor<2x?x64xf32>, %[[K:.*]]: tensor<2x?x64xf32>, %[[V:.*]]: tensor<2x?x32xf32>)
// CHECK-SAME:    attn.messages = [
// CHECK-SAME:    value has another length than key
// CHECK-SAME:    attn.shapes_of = "output_has_query_rows_and_value_depth"
// CHECK-NOT:     attn.attention
// CHECK-DAG:     %[[KEYS:.*]] = tensor.dim %[[K]], %c1
// CHECK-DAG:     %[[VALUES:.*]] = tensor.dim %[[V]], %c1
// CHECK-DAG:     %[[ROWS:.*]] = tensor.dim %[[Q]], %c1
// CHECK-DAG:     %[[BAD:.*]] = arith.cmpi ne, %[[VALUES]], %[[KEYS]]
// CHECK-DAG:     %[[NUMBER:.*]] = arith.select %[[BAD]], %c1, %c0
// CHECK:         return %[[NUMBER]], %{{.*}}, %{{.*}}, %c0, %c2, %[[ROWS]], %c32
func.func @output_has_query_rows_and_value_depth(%q: tensor<2x?x64xf32>, %k: tensor<2x?x64xf32>, %v: tensor<2x?x32xf32>)
    -> tensor<2x?x32xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
    : (tensor<2x?x64xf32>, tensor<2x?x64xf32>, tensor<2x?x32xf32>) -> tensor<2x?x32xf32>
  return %o : tensor<2x?x32xf32>
}

// -----

// Without KV heads the remainder is not computed.
// CHECK-LABEL: func.func @query_heads_are_a_multiple_of_key_heads.shapes(
// CHECK-SAME:    number of query heads is not a multiple of the number of KV heads\00a multiple of \00"
// CHECK:         %[[DIVISOR:.*]] = arith.maxsi %{{.*}}, %c1
// CHECK:         arith.remsi %{{.*}}, %[[DIVISOR]]
func.func @query_heads_are_a_multiple_of_key_heads(%q: tensor<?x8x64xf32>, %k: tensor<?x8x64xf32>) -> tensor<?x8x64xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d]
    : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8x64xf32>) -> tensor<?x8x64xf32>
  return %o : tensor<?x8x64xf32>
}

// -----

// A captured table that is read by head is checked to have a row for every head.
// CHECK-LABEL: func.func @captures_reach_as_far_as_they_are_read.shapes(
// CHECK-SAME:    capture #0 is read by head count and is too small for it
// CHECK:         %[[THERE:.*]] = tensor.dim %arg1, %c0
// CHECK:         arith.cmpi {{slt|sgt}}, %[[THERE]]
func.func @captures_reach_as_far_as_they_are_read(%q: tensor<8x16x64xf32>, %slope: tensor<?xf32>) -> tensor<8x16x64xf32> {
  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] captures(%slope : tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<?xf32>
      %r = arith.addf %s, %m : f32
      attn.yield %r : f32
    } : (tensor<8x16x64xf32>, tensor<8x16x64xf32>, tensor<8x16x64xf32>) -> tensor<8x16x64xf32>
  return %o : tensor<8x16x64xf32>
}

// -----

// Dimensions that share a loop have the same extent.
// CHECK-LABEL: func.func @structured_operands_agree_along_a_loop.shapes(
// CHECK-SAME:    'linalg.matmul' op dimension 0 of argument 'arg1' differs from dimension 1 of argument 'arg0'
// CHECK-NOT:     linalg
// CHECK:         return
func.func @structured_operands_agree_along_a_loop(%a: tensor<4x?xf32>, %b: tensor<?x8xf32>, %c: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %o = linalg.matmul ins(%a, %b : tensor<4x?xf32>, tensor<?x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// -----

// A message names the argument that an extent comes from.
// CHECK-LABEL: func.func @extents_of_arguments.shapes(
// CHECK-SAME:    'linalg.exp' op dimension 0 of argument 'arg1' differs from dimension 0 of argument 'arg0'
func.func @extents_of_arguments(%x: tensor<?xf32>, %n: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %size = tensor.dim %n, %c0 : tensor<?xf32>
  %empty = tensor.empty(%size) : tensor<?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %o = linalg.exp ins(%x : tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  return %o : tensor<?xf32>
}

// -----

// Checks of reshapes that always match, such as splitting and merging heads, are folded.
// CHECK-LABEL: func.func @splitting_heads_that_fit_is_not_checked.shapes(
// CHECK-NOT:     arith.cmpi
// CHECK:         return
func.func @splitting_heads_that_fit_is_not_checked(%a: tensor<?x?x384xf32>) -> tensor<?x?x12x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b = tensor.dim %a, %c0 : tensor<?x?x384xf32>
  %s = tensor.dim %a, %c1 : tensor<?x?x384xf32>
  %x = tensor.collapse_shape %a [[0, 1], [2]] : tensor<?x?x384xf32> into tensor<?x384xf32>
  %y = tensor.expand_shape %x [[0, 1], [2, 3]] output_shape [%b, %s, 12, 32]
    : tensor<?x384xf32> into tensor<?x?x12x32xf32>
  return %y : tensor<?x?x12x32xf32>
}

// -----

// CHECK-LABEL: func.func @slices_stay_inside.shapes(
// CHECK-SAME:    slice leaves its tensor in dimension 0
func.func @slices_stay_inside(%a: tensor<?xf32>, %from: index, %n: index) -> tensor<?xf32> {
  %s = tensor.extract_slice %a[%from] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  return %s : tensor<?xf32>
}

// -----

// Private functions and declarations are not entries.
// CHECK-LABEL: func.func private @helper
// CHECK-NOT:   .shapes
func.func private @helper(%a: tensor<?xf32>) -> tensor<?xf32> {
  return %a : tensor<?xf32>
}

// -----

// `at` is checked not to be negative for captures that are read by position.
// CHECK-LABEL: func.func @captures_are_not_read_before_their_start.shapes(
// CHECK-SAME:    %[[START:[^ ,:]*]]: index) -> {{.*}}attn.messages
// CHECK-SAME:    capture #0 is read by key length and 'at' begins before it
// CHECK:         arith.cmpi {{slt|sge}}, %[[START]], %c0
func.func @captures_are_not_read_before_their_start(%q: tensor<16x64xf32>, %t: tensor<99xf32>, %start: index) -> tensor<16x64xf32> {
  %zero = arith.constant 0 : index
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%t : tensor<99xf32>) at(%zero, %zero, %zero, %start)
    score(%s, %b, %h, %i, %j, %t1) {
      %m = tensor.extract %t1[%j] : tensor<99xf32>
      %r = arith.addf %s, %m : f32
      attn.yield %r : f32
    } : (tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  return %o : tensor<16x64xf32>
}

// -----

// Dimensions of the same name are checked to be equal, even if they are unused. The names are removed.
// CHECK-LABEL: func.func @names.body(
// CHECK-NOT:   attn.dim_names
// CHECK-LABEL: func.func @names.shapes(
// CHECK-SAME:    argument 'arg1' has another extent in dimension 0 than argument 'arg0' in dimension 1
// CHECK-NOT:     attn.dim_names
// CHECK:         %[[M:.*]] = tensor.dim %arg1, %c0
// CHECK:         %[[K:.*]] = tensor.dim %arg0, %c1
// CHECK:         arith.cmpi ne, %[[M]], %[[K]]
func.func @names(%k: tensor<?x?xf32> {attn.dim_names = ["b", "n"]}, %m: tensor<?xi1> {attn.dim_names = ["n"]}) -> tensor<?x?xf32> {
  return %k : tensor<?x?xf32>
}

// -----

// A dimension without a name, or with an empty one, is equal to no other.
// CHECK-LABEL: func.func @unnamed_extents.shapes(
// CHECK-SAME:    attn.messages = ["argument 'arg1' has another extent in dimension 0 than argument 'arg0' in dimension 0{{[^"]*}}"]
// CHECK:         arith.cmpi ne
// CHECK-NOT:     arith.cmpi ne
func.func @unnamed_extents(%k: tensor<?x?x?xf32> {attn.dim_names = ["n", "", ""]}, %m: tensor<?x?x?xi1> {attn.dim_names = ["n", ""]},
                           %l: tensor<?x?xf32>) -> tensor<?x?x?xf32> {
  return %k : tensor<?x?x?xf32>
}

// -----

// A result that updates an argument has no extents: they are compared with those of the argument. The violation of the
// first sequence is reported with its number.
// CHECK-LABEL: func.func @append.body(
// CHECK-SAME:    attn.entry = {name = "append", names = ["arg0", "arg1", "arg2"], type = (tensor<2x3x8xf32>, tensor<2x?x8xf32>, tensor<2xi32>) -> (), updated_by = array<i64: -1, 0, -1>}
// CHECK-LABEL: func.func @append.shapes(
// CHECK-SAME:    %{{.*}}: tensor<2x3x8xf32>, %[[CACHE:.*]]: tensor<2x?x8xf32>, %[[AT:.*]]: tensor<2xi32>) -> (index, index, index, index)
// CHECK-SAME:    position of the first new row is negative\00at least \00sequence
// CHECK-SAME:    cache is full: end of the new rows\00at most \00sequence
// CHECK-DAG:     %[[ROWS:.*]] = tensor.dim %[[CACHE]], %c1
// CHECK:         scf.for %[[I:.*]] = %c0 to %c2
// CHECK:           tensor.extract %[[AT]][%[[I]]]
// CHECK:           arith.cmpi sgt, %{{.*}}, %[[ROWS]]
func.func @append(%new: tensor<2x3x8xf32>, %cache: tensor<2x?x8xf32> {attn.updated_by = 0}, %at: tensor<2xi32>)
    -> tensor<2x?x8xf32> {
  %c = attn.append %new[b,s,d] to %cache[b,s,d] at(%at : tensor<2xi32>)
    : (tensor<2x3x8xf32>, tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  return %c : tensor<2x?x8xf32>
}

// -----

// The pages of new rows are in the pool and not used twice: a set of bits on the stack marks them.
// CHECK-LABEL: func.func @append_to_pages.shapes(
// CHECK-SAME:    %{{.*}}: tensor<2x1x8xf32>, %[[POOL:.*]]: tensor<?x16x8xf32>, %[[TABLE:.*]]: tensor<2x?xi32>, %[[AT:.*]]: tensor<2xi32>)
// CHECK-SAME:    page table is full: end of the new rows\00at most \00sequence
// CHECK-SAME:    has a page that is not in the pool\000 or more and less than \00sequence
// CHECK-SAME:    writes to a page twice\00a page other than those of sequence \00sequence
// CHECK:         scf.for
// CHECK:           tensor.extract %[[AT]]
// CHECK:           scf.for
// CHECK:             tensor.extract %[[TABLE]]
// CHECK:         memref.alloca() : memref<1024xi64>
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK:             scf.for
// CHECK:               tensor.extract %[[TABLE]]
// CHECK:               memref.store %c0_i64
// CHECK:           scf.for
// CHECK:             scf.for
// CHECK:               tensor.extract %[[TABLE]]
// CHECK:               memref.load
// CHECK:               memref.store
func.func @append_to_pages(%new: tensor<2x1x8xf32>, %pool: tensor<?x16x8xf32> {attn.updated_by = 0}, %table: tensor<2x?xi32>,
                           %at: tensor<2xi32>) -> tensor<?x16x8xf32> {
  %p = attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<2x?xi32>) at(%at : tensor<2xi32>)
    : (tensor<2x1x8xf32>, tensor<?x16x8xf32>) -> tensor<?x16x8xf32>
  return %p : tensor<?x16x8xf32>
}

// -----

// CHECK-LABEL: func.func @other_extents.shapes(
// CHECK-SAME:    result 0 has another extent in dimension 0 than argument 'arg0', which it updates in place
func.func @other_extents(%x: tensor<?xf32> {attn.updated_by = 0}, %y: tensor<?xf32>) -> tensor<?xf32> {
  return %y : tensor<?xf32>
}
