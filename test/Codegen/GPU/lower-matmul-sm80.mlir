// K steps of 64: a warp multiplies 2 × 4 mma tiles with four mma.sync each, while the next tiles are copied.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-matmul-sm80)))' | FileCheck %s

gpu.module @saccade_device {
  // CHECK-LABEL: func.func @matmul
  // CHECK-SAME: attn.family = "sm_80, matmul"
  // CHECK-SAME: attn.shared_bytes = 36864
  // CHECK: nvvm.cp.async.shared.global
  // CHECK: scf.for
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.cp.async.shared.global
  // CHECK-COUNT-32: nvvm.mma.sync
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK-COUNT-32: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @matmul(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%a, %b : memref<?x?xf16>, memref<?x?xf16>) outs(%c : memref<?x?xf32>)
    return
  }

  // Operands in shared memory and other element types are not lowered.
  // CHECK-LABEL: func.func @not_lowered
  // CHECK: linalg.matmul
  // CHECK: linalg.matmul
  func.func @not_lowered(%a: memref<?x64xf16>, %b: memref<64x?xf32>, %c: memref<?x?xf32>, %d: memref<64x?xf16>, %e: memref<?x64xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%e, %b : memref<?x64xf32>, memref<64x?xf32>) outs(%c : memref<?x?xf32>)
    %own = memref.alloc() : memref<64x64xf16>
    linalg.matmul ins(%own, %d : memref<64x64xf16>, memref<64x?xf16>) outs(%c : memref<?x?xf32>)
    return
  }
}
