// Graphs that miss attention by one step: each is left as it is, or raised with the step.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention{remarks=true},canonicalize,cse))' 2>&1 | FileCheck %s

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#pair = affine_map<(i, j) -> (i, j)>

// CHECK: remark: not raised to attention: its weights are not 0 for masked keys
// CHECK: remark: not raised to attention: its weights are not 0 for masked keys
// CHECK: remark: not raised to attention: its head size is 0

// CHECK-LABEL: func.func @queries_repeated_along_the_sequence
// CHECK: %[[ALL:.*]] = tensor.collapse_shape
// CHECK: attn.attention %[[ALL]][s,d]
func.func @queries_repeated_along_the_sequence(%half: tensor<2x8xf32>, %k: tensor<4x8xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %we = tensor.empty() : tensor<2x2x8xf32>
  %wide = linalg.broadcast ins(%half : tensor<2x8xf32>) outs(%we : tensor<2x2x8xf32>) dimensions = [1]
  %q = tensor.collapse_shape %wide [[0, 1], [2]] : tensor<2x2x8xf32> into tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x8xf32>, tensor<4x8xf32>) outs(%z : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// exp(0) is 1, also for keys that the mask hides.
// CHECK-LABEL: func.func @weights_of_masked_keys_stay
// CHECK: linalg.softmax
func.func @weights_of_masked_keys_stay(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = linalg.generic {indexing_maps = [#pair, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %r = arith.select %c, %x, %low : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %w = math.exp %p : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The bias may be −∞.
// CHECK-LABEL: func.func @weights_under_a_bias_stay
// CHECK: linalg.softmax
func.func @weights_under_a_bias_stay(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %bias: tensor<4x4xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = arith.addf %s, %bias : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %w = math.exp %p : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// select(visible, s, −1e9) − select(visible, 0, −1e9) is s for hidden keys, too.
// CHECK-LABEL: func.func @numbers_that_cancel_are_no_mask
// CHECK: attn.attention
// CHECK-NOT: mask(
// CHECK: score(
func.func @numbers_that_cancel_are_no_mask(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %flags: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant -1.0e9 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = linalg.generic {indexing_maps = [#pair, #pair, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %flags : tensor<4x4xf32>, tensor<4x4xi1>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%x: f32, %c: i1, %y: f32):
    %0 = arith.select %c, %x, %low : f32
    %1 = arith.select %c, %zero, %low : f32
    %2 = arith.subf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The extents of the result are known from the operands only.
// CHECK-LABEL: func.func @result_of_unknown_extents
// CHECK: attn.attention
// CHECK: tensor.cast {{.*}} to tensor<?x?x8xf32>
func.func @result_of_unknown_extents(%q: tensor<2x4x8xf32>, %k: tensor<2x8x4xf32>, %v: tensor<2x4x8xf32>, %oe: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x4x8xf32>, tensor<2x8x4xf32>) outs(%z : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x4x4xf32>) outs(%e : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x4x4xf32>, tensor<2x4x8xf32>) outs(%oz : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %o : tensor<?x?x8xf32>
}

// The keys and values are the first halves of longer tensors, which are slices: tensors of their own.
// CHECK-LABEL: func.func @first_half_of_the_keys
// CHECK: %[[K:.*]] = linalg.generic
// CHECK: attn.attention %{{.*}}, %[[K]]
func.func @first_half_of_the_keys(%q: tensor<4x8xf32>, %ks: tensor<8x8xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %halves = tensor.expand_shape %ks [[0, 1], [2]] output_shape [2, 4, 8] : tensor<8x8xf32> into tensor<2x4x8xf32>
  %k = linalg.generic {indexing_maps = [affine_map<(i, j) -> (0, i, j)>, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%halves : tensor<2x4x8xf32>) outs(%oe : tensor<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<4x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x8xf32>, tensor<4x8xf32>) outs(%z : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The sum has each exponential twice.
// CHECK-LABEL: func.func @sum_of_repeated_exponentials
// CHECK-NOT: attn.attention
func.func @sum_of_repeated_exponentials(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %te = tensor.empty() : tensor<4x2x4xf32>
  %re = tensor.empty() : tensor<4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %x = math.exp %s : tensor<4x4xf32>
  %two = linalg.broadcast ins(%x : tensor<4x4xf32>) outs(%te : tensor<4x2x4xf32>) dimensions = [1]
  %all = tensor.collapse_shape %two [[0], [1, 2]] : tensor<4x2x4xf32> into tensor<4x8xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %sum = linalg.reduce {arith.addf} ins(%all : tensor<4x8xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%sum : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %x, %wide : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A bias is written to the diagonal, 1 elsewhere: it stays a tensor.
// CHECK-LABEL: func.func @bias_of_the_diagonal
// CHECK: %[[BIAS:.*]] = linalg.generic
// CHECK: attn.attention {{.*}} captures(%[[BIAS]] :
func.func @bias_of_the_diagonal(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %bias: tensor<4xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %ones = linalg.fill ins(%one : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i, i)>], iterator_types = ["parallel"]}
      ins(%bias : tensor<4xf32>) outs(%ones : tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<4x4xf32>
  %m = arith.addf %s, %b : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A signed truth value is -1 or 0: (1 - m) · -1e9 hides all keys, some more than others. The number stays an addend.
// The product of positions overflows: it is compared as a 32-bit integer.
// CHECK-LABEL: func.func @signed_flags_and_overflowing_positions
// CHECK: attn.attention
// CHECK: mask(
// CHECK: %[[HASH:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: arith.cmpi {{.*}}%[[HASH]]{{.*}} : i32
// CHECK: score(
// CHECK: arith.sitofp %{{.*}} : i1 to f32
func.func @signed_flags_and_overflowing_positions(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %flags: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant -1.0e9 : f32
  %hidden = arith.constant 0xFF800000 : f32
  %factor = arith.constant 1664525000 : i32
  %limit = arith.constant 5 : i32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = linalg.generic {indexing_maps = [#pair, #pair, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %flags : tensor<4x4xf32>, tensor<4x4xi1>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%x: f32, %c: i1, %y: f32):
    %f = arith.sitofp %c : i1 to f32
    %r = arith.subf %one, %f : f32
    %a = arith.mulf %r, %low : f32
    %t = arith.addf %x, %a : f32
    %j = linalg.index 1 : index
    %i32 = arith.index_cast %j : index to i32
    %h = arith.muli %i32, %factor : i32
    %visible = arith.cmpi sle, %h, %limit : i32
    %u = arith.select %visible, %t, %hidden : f32
    linalg.yield %u : f32
  } -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A row whose bias is −∞ has NaN for weights, which are replaced by 1.
// CHECK-LABEL: func.func @weights_of_a_row_of_nan_are_one
// CHECK-NOT: attn.attention
// CHECK: return
func.func @weights_of_a_row_of_nan_are_one(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %bias: tensor<4xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = linalg.broadcast ins(%bias : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %x = arith.addf %s, %b : tensor<4x4xf32>
  %re = tensor.empty() : tensor<4xf32>
  %ml = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.reduce {arith.maximumf} ins(%x : tensor<4x4xf32>) outs(%ml : tensor<4xf32>) dimensions = [1]
  %mb = linalg.broadcast ins(%m : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %d = arith.subf %x, %mb : tensor<4x4xf32>
  %n = math.exp %d : tensor<4x4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %t = linalg.reduce {arith.addf} ins(%n : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %tb = linalg.broadcast ins(%t : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %n, %tb : tensor<4x4xf32>
  %isnan = arith.cmpf uno, %p, %p : tensor<4x4xf32>
  %ones = linalg.fill ins(%one : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %w = arith.select %isnan, %ones, %p : tensor<4x4xi1>, tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// −∞ − −∞ is NaN, which the guard replaces in the whole row.
// CHECK-LABEL: func.func @infinite_constants_before_a_guard
// CHECK: linalg.softmax
func.func @infinite_constants_before_a_guard(%q: tensor<2x8xf32>, %k: tensor<8x2xf32>, %v: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %a = arith.constant dense<[[0xFF800000, 0.0], [1.0, 2.0]]> : tensor<2x2xf32>
  %b = arith.constant dense<[[0xFF800000, 3.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %e = tensor.empty() : tensor<2x2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
  %s = linalg.matmul ins(%q, %k : tensor<2x8xf32>, tensor<8x2xf32>) outs(%z : tensor<2x2xf32>) -> tensor<2x2xf32>
  %d = arith.subf %a, %b : tensor<2x2xf32>
  %x = arith.addf %s, %d : tensor<2x2xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<2x2xf32>) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
  %isnan = arith.cmpf uno, %p, %p : tensor<2x2xf32>
  %w = arith.select %isnan, %z, %p : tensor<2x2xi1>, tensor<2x2xf32>
  %oe = tensor.empty() : tensor<2x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x8xf32>) -> tensor<2x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<2x2xf32>, tensor<2x8xf32>) outs(%oz : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %o : tensor<2x8xf32>
}

// The same without infinities: no score can be NaN.
// CHECK-LABEL: func.func @finite_constants_before_a_guard
// CHECK: attn.attention
func.func @finite_constants_before_a_guard(%q: tensor<2x8xf32>, %k: tensor<8x2xf32>, %v: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %a = arith.constant dense<[[3.0, 0.0], [1.0, 2.0]]> : tensor<2x2xf32>
  %b = arith.constant dense<[[1.0, 3.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %e = tensor.empty() : tensor<2x2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
  %s = linalg.matmul ins(%q, %k : tensor<2x8xf32>, tensor<8x2xf32>) outs(%z : tensor<2x2xf32>) -> tensor<2x2xf32>
  %d = arith.subf %a, %b : tensor<2x2xf32>
  %x = arith.addf %s, %d : tensor<2x2xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<2x2xf32>) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
  %isnan = arith.cmpf uno, %p, %p : tensor<2x2xf32>
  %w = arith.select %isnan, %z, %p : tensor<2x2xi1>, tensor<2x2xf32>
  %oe = tensor.empty() : tensor<2x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x8xf32>) -> tensor<2x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<2x2xf32>, tensor<2x8xf32>) outs(%oz : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %o : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @head_size_0
// CHECK: linalg.softmax
func.func @head_size_0(%q: tensor<4x0xf32>, %k: tensor<0x5xf32>, %v: tensor<5x3xf32>) -> tensor<4x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x5xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x5xf32>) -> tensor<4x5xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x0xf32>, tensor<0x5xf32>) outs(%z : tensor<4x5xf32>) -> tensor<4x5xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x5xf32>) outs(%e : tensor<4x5xf32>) -> tensor<4x5xf32>
  %oe = tensor.empty() : tensor<4x3xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x3xf32>) -> tensor<4x3xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x5xf32>, tensor<5x3xf32>) outs(%oz : tensor<4x3xf32>) -> tensor<4x3xf32>
  return %o : tensor<4x3xf32>
}
