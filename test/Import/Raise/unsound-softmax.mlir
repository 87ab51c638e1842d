// Softmaxes that differ from that of attention by one step. Each has a twin without the step, which is raised.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention,canonicalize,cse))' | FileCheck %s


// exp / (1 + Σ exp) is the weight beside a sink of the score of the maximum.
// CHECK-LABEL: func.func @number_added_to_sum
// CHECK-NOT: attn.attention
// CHECK: return
func.func @number_added_to_sum(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %guard = arith.constant dense<1.0> : tensor<4xf32>
  %more = arith.addf %sum, %guard : tensor<4xf32>
  %sums = linalg.broadcast ins(%more : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @tiny_number_added_to_sum
// CHECK: attn.attention
func.func @tiny_number_added_to_sum(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %guard = arith.constant dense<1.0e-9> : tensor<4xf32>
  %more = arith.addf %sum, %guard : tensor<4xf32>
  %sums = linalg.broadcast ins(%more : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The weights of hidden keys are not 0.
// CHECK-LABEL: func.func @logarithm_of_masked_sum
// CHECK-NOT: attn.attention
// CHECK: return
func.func @logarithm_of_masked_sum(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %none = arith.constant dense<0.0> : tensor<4x4xf32>
  %kept = arith.select %c, %exp, %none : tensor<4x4xi1>, tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%kept : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %log = math.log %sum : tensor<4xf32>
  %logs = linalg.broadcast ins(%log : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %lower = arith.subf %below, %logs : tensor<4x4xf32>
  %p = math.exp %lower : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @logarithm_of_sum
// CHECK: attn.attention
func.func @logarithm_of_sum(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %none = arith.constant dense<0.0> : tensor<4x4xf32>
  %kept = arith.select %c, %exp, %none : tensor<4x4xi1>, tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %log = math.log %sum : tensor<4xf32>
  %logs = linalg.broadcast ins(%log : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %lower = arith.subf %below, %logs : tensor<4x4xf32>
  %p = math.exp %lower : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A key with the score 2e9 is not hidden.
// CHECK-LABEL: func.func @mask_before_negative_scale
// CHECK-NOT: mask(
// CHECK: return
func.func @mask_before_negative_scale(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %factor = arith.constant dense<-2.0> : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %m = arith.mulf %h, %factor : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @mask_before_positive_scale
// CHECK: mask(
func.func @mask_before_positive_scale(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %factor = arith.constant dense<2.0> : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %m = arith.mulf %h, %factor : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// Only flags that the mask requires may be dropped.
// CHECK-LABEL: func.func @flags_of_a_term
// CHECK: attn.attention
// CHECK: uitofp
func.func @flags_of_a_term(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>, %g: tensor<4x4xi1>, %bias: tensor<4x4xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<0xFF800000> : tensor<4x4xf32>
  %f = arith.uitofp %g : tensor<4x4xi1> to tensor<4x4xf32>
  %t = arith.mulf %bias, %f : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %m = arith.addf %h, %t : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @flags_of_the_mask
// CHECK: attn.attention
// CHECK-NOT: uitofp
// CHECK: return
func.func @flags_of_the_mask(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>, %bias: tensor<4x4xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<0xFF800000> : tensor<4x4xf32>
  %f = arith.uitofp %c : tensor<4x4xi1> to tensor<4x4xf32>
  %t = arith.mulf %bias, %f : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %m = arith.addf %h, %t : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The product is −2e9 for all keys.
// CHECK-LABEL: func.func @floor_before_negative_scale
// CHECK: maximumf
func.func @floor_before_negative_scale(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %floor = arith.constant dense<1.0e9> : tensor<4x4xf32>
  %factor = arith.constant dense<-2.0> : tensor<4x4xf32>
  %h = arith.maximumf %s, %floor : tensor<4x4xf32>
  %m = arith.mulf %h, %factor : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @floor_before_positive_scale
// CHECK: attn.attention
// CHECK-NOT: maximumf
// CHECK: return
func.func @floor_before_positive_scale(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %floor = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %factor = arith.constant dense<2.0> : tensor<4x4xf32>
  %h = arith.maximumf %s, %floor : tensor<4x4xf32>
  %m = arith.mulf %h, %factor : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The divisor is always 1.
// CHECK-LABEL: func.func @sum_replaced_unless_negative
// CHECK-NOT: attn.attention
// CHECK: return
func.func @sum_replaced_unless_negative(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %nothing = arith.constant dense<0.0> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %is = arith.cmpf olt, %sum, %nothing : tensor<4xf32>
  %other = arith.select %is, %sum, %one : tensor<4xi1>, tensor<4xf32>
  %sums = linalg.broadcast ins(%other : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @sum_replaced_unless_zero
// CHECK-NOT: attn.attention
// CHECK: return
func.func @sum_replaced_unless_zero(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %nothing = arith.constant dense<0.0> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %is = arith.cmpf oeq, %sum, %nothing : tensor<4xf32>
  %other = arith.select %is, %sum, %one : tensor<4xi1>, tensor<4xf32>
  %sums = linalg.broadcast ins(%other : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @sum_replaced_if_zero
// CHECK: attn.attention
func.func @sum_replaced_if_zero(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %nothing = arith.constant dense<0.0> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %is = arith.cmpf une, %sum, %nothing : tensor<4xf32>
  %other = arith.select %is, %sum, %one : tensor<4xi1>, tensor<4xf32>
  %sums = linalg.broadcast ins(%other : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @sum_replaced_unless_positive
// CHECK: attn.attention
func.func @sum_replaced_unless_positive(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %low = arith.constant 0xFF800000 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%low : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %nothing = arith.constant dense<0.0> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %is = arith.cmpf ogt, %sum, %nothing : tensor<4xf32>
  %other = arith.select %is, %sum, %one : tensor<4xi1>, tensor<4xf32>
  %sums = linalg.broadcast ins(%other : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A score that is 1e9 higher is not hidden.
// CHECK-LABEL: func.func @integers_that_raise_others
// CHECK: attn.attention
// CHECK-NOT: mask(
// CHECK: return
func.func @integers_that_raise_others(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %set = arith.constant dense<0> : tensor<4x4xi32>
  %unset = arith.constant dense<-1> : tensor<4x4xi32>
  %i = arith.select %c, %set, %unset : tensor<4x4xi1>, tensor<4x4xi32>
  %f = arith.sitofp %i : tensor<4x4xi32> to tensor<4x4xf32>
  %low = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %t = arith.mulf %f, %low : tensor<4x4xf32>
  %m = arith.addf %s, %t : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @integers_that_hide_others
// CHECK: mask(
func.func @integers_that_hide_others(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %set = arith.constant dense<0> : tensor<4x4xi32>
  %unset = arith.constant dense<1> : tensor<4x4xi32>
  %i = arith.select %c, %set, %unset : tensor<4x4xi1>, tensor<4x4xi32>
  %f = arith.sitofp %i : tensor<4x4xi32> to tensor<4x4xf32>
  %low = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %t = arith.mulf %f, %low : tensor<4x4xf32>
  %m = arith.addf %s, %t : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @integers_that_raise_set_scores
// CHECK: attn.attention
// CHECK-NOT: mask(
// CHECK: return
func.func @integers_that_raise_set_scores(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %set = arith.constant dense<-1> : tensor<4x4xi32>
  %unset = arith.constant dense<0> : tensor<4x4xi32>
  %i = arith.select %c, %set, %unset : tensor<4x4xi1>, tensor<4x4xi32>
  %f = arith.sitofp %i : tensor<4x4xi32> to tensor<4x4xf32>
  %low = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %t = arith.mulf %f, %low : tensor<4x4xf32>
  %m = arith.addf %s, %t : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @integers_that_hide_set_scores
// CHECK: mask(
func.func @integers_that_hide_set_scores(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %set = arith.constant dense<1> : tensor<4x4xi32>
  %unset = arith.constant dense<0> : tensor<4x4xi32>
  %i = arith.select %c, %set, %unset : tensor<4x4xi1>, tensor<4x4xi32>
  %f = arith.sitofp %i : tensor<4x4xi32> to tensor<4x4xf32>
  %low = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %t = arith.mulf %f, %low : tensor<4x4xf32>
  %m = arith.addf %s, %t : tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// With a maximum of at least 0 the sum may be smaller than the number added to it.
// CHECK-LABEL: func.func @maximum_from_a_score
// CHECK-NOT: attn.attention
// CHECK: return
func.func @maximum_from_a_score(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %first = arith.constant 0.0 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%first : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %guard = arith.constant dense<1.0e-9> : tensor<4xf32>
  %more = arith.addf %sum, %guard : tensor<4xf32>
  %sums = linalg.broadcast ins(%more : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @maximum_from_a_sentinel
// CHECK: attn.attention
func.func @maximum_from_a_sentinel(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %first = arith.constant -3.0e38 : f32
  %re = tensor.empty() : tensor<4xf32>
  %rl = linalg.fill ins(%first : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.reduce { arith.maximumf } ins(%s : tensor<4x4xf32>) outs(%rl : tensor<4xf32>) dimensions = [1]
  %wide = linalg.broadcast ins(%max : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %below = arith.subf %s, %wide : tensor<4x4xf32>
  %exp = math.exp %below : tensor<4x4xf32>
  %sum = linalg.reduce { arith.addf } ins(%exp : tensor<4x4xf32>) outs(%rz : tensor<4xf32>) dimensions = [1]
  %guard = arith.constant dense<1.0e-9> : tensor<4xf32>
  %more = arith.addf %sum, %guard : tensor<4xf32>
  %sums = linalg.broadcast ins(%more : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [1]
  %p = arith.divf %exp, %sums : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A weight of 0 becomes ∞.
// CHECK-LABEL: func.func @number_over_weights
// CHECK-NOT: attn.attention
// CHECK: return
func.func @number_over_weights(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<0xFF800000> : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%h : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %number = arith.constant dense<0.5> : tensor<4x4xf32>
  %w = arith.divf %number, %p : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @weights_over_number
// CHECK: attn.attention
func.func @weights_over_number(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<0xFF800000> : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%h : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %number = arith.constant dense<0.5> : tensor<4x4xf32>
  %w = arith.divf %p, %number : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @weights_to_negative_power
// CHECK-NOT: attn.attention
// CHECK: return
func.func @weights_to_negative_power(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<0xFF800000> : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%h : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %number = arith.constant dense<-0.5> : tensor<4x4xf32>
  %w = math.powf %p, %number : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @weights_to_positive_power
// CHECK: attn.attention
func.func @weights_to_positive_power(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>, %c: tensor<4x4xi1>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %hidden = arith.constant dense<0xFF800000> : tensor<4x4xf32>
  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%h : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %number = arith.constant dense<1.5> : tensor<4x4xf32>
  %w = math.powf %p, %number : tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%w, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}
