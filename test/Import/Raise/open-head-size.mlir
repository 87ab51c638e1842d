// Attention whose head size is open, or larger than kernels support, stays plain ops with a remark.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention{remarks=true}))' 2>&1 | FileCheck %s
// RUN: saccade-compile %s --emit=mlir -o /dev/null

// CHECK: remark: not raised to attention: its head size is known only at run time
// CHECK: remark: not raised to attention: its head size is known only at run time
// CHECK: remark: not raised to attention: its head size is more than 8192

// CHECK-LABEL: func.func @open_keys
// CHECK-NOT: attn.attention
// CHECK-LABEL: func.func @open_values
// CHECK-NOT: attn.attention
// CHECK-LABEL: func.func @wide
// CHECK-NOT: attn.attention
// CHECK-LABEL: func.func @largest
// CHECK: attn.attention
func.func @open_keys(%q: tensor<4x?xf32>, %k: tensor<?x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x?xf32>, tensor<?x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

func.func @open_values(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1 : index
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = tensor.dim %v, %one : tensor<4x?xf32>
  %oe = tensor.empty(%d) : tensor<4x?xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x?xf32>) -> tensor<4x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x?xf32>) outs(%oz : tensor<4x?xf32>) -> tensor<4x?xf32>
  return %o : tensor<4x?xf32>
}

func.func @wide(%q: tensor<4x8193xf32>, %k: tensor<8193x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8193xf32>, tensor<8193x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

func.func @largest(%q: tensor<4x8192xf32>, %k: tensor<8192x4xf32>, %v: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<4x8192xf32>, tensor<8192x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x4xf32>, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}
