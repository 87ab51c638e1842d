// Kernels get NVVM attributes; math functions become instructions, polynomials, or libdevice calls.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-convert-kernels-to-llvm))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // CHECK: llvm.func @hyperbolic_tangent(
  // CHECK-SAME: nvvm.kernel
  // CHECK-SAME: nvvm.reqntid = array<i32: 128>
  // CHECK-NOT: tanh
  // CHECK: llvm.fdiv
  func.func @hyperbolic_tangent(%a: memref<?xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %x = memref.load %a[%c0] : memref<?xf32>
    %y = math.tanh %x : f32
    memref.store %y, %a[%c0] : memref<?xf32>
    return
  }

  // CHECK: llvm.func @sine(
  // CHECK: llvm.call @__nv_sin(
  func.func @sine(%a: memref<?xf64>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %x = memref.load %a[%c0] : memref<?xf64>
    %y = math.sin %x : f64
    memref.store %y, %a[%c0] : memref<?xf64>
    return
  }
}
