// 64 steps a block: a warp has two bands of four tiles, four products deep for each; the next tiles come meanwhile.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-matmul-sm80)))' | FileCheck %s

gpu.module @saccade_device {
  // CHECK-LABEL: func.func @multiplies
  // CHECK-SAME: attn.family = "sm_80, product"
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
  func.func @multiplies(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%a, %b : memref<?x?xf16>, memref<?x?xf16>) outs(%c : memref<?x?xf32>)
    return
  }

  // What a kernel has computed itself, and other types, are others' affair.
  // CHECK-LABEL: func.func @leaves
  // CHECK: linalg.matmul
  // CHECK: linalg.matmul
  func.func @leaves(%a: memref<?x64xf16>, %b: memref<64x?xf32>, %c: memref<?x?xf32>, %d: memref<64x?xf16>, %e: memref<?x64xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%e, %b : memref<?x64xf32>, memref<64x?xf32>) outs(%c : memref<?x?xf32>)
    %own = memref.alloc() : memref<64x64xf16>
    linalg.matmul ins(%own, %d : memref<64x64xf16>, memref<64x?xf16>) outs(%c : memref<?x?xf32>)
    return
  }
}
