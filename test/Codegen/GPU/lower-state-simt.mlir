// States in global memory: elements are distributed over the threads, and a barrier precedes the update of the maxima.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-state-simt)))' | FileCheck %s

gpu.module @saccade_device {
  // CHECK-LABEL: func.func @merges
  // CHECK-SAME: attn.family = "simt, states merged"
  // CHECK: nvvm.barrier0
  // CHECK: scf.for
  // CHECK:   memref.store %{{.*}}, %arg3[%{{.*}}, %{{.*}}] {attn.per_thread_store}
  // CHECK: nvvm.barrier0
  // CHECK: scf.for
  // CHECK:   memref.store %{{.*}}, %arg4[%{{.*}}] {attn.per_thread_store}
  // CHECK:   memref.store %{{.*}}, %arg5[%{{.*}}] {attn.per_thread_store}
  // CHECK: nvvm.barrier0
  func.func @merges(%acc: memref<?x64xf32>, %max: memref<?xf32>, %sum: memref<?xf32>, %acc0: memref<?x64xf32>,
                   %max0: memref<?xf32>, %sum0: memref<?xf32>) attributes {attn.kernel} {
    attn.merge (%acc, %max, %sum) into(%acc0, %max0, %sum0)
      : (memref<?x64xf32>, memref<?xf32>, memref<?xf32>, memref<?x64xf32>, memref<?xf32>, memref<?xf32>) -> ()
    return
  }

  // CHECK-LABEL: func.func @finalizes
  // CHECK: scf.for
  // CHECK:   arith.divf
  // CHECK:   llvm.store
  // CHECK-NOT: attn.finalize
  func.func @finalizes(%acc: memref<?x64xf32>, %max: memref<?xf32>, %sum: memref<?xf32>, %out: memref<?x64xf16>)
      attributes {attn.kernel} {
    attn.finalize %acc, %max, %sum : memref<?x64xf32>, memref<?xf32>, memref<?xf32> into(%out[s,d] : memref<?x64xf16>)
    return
  }
}
