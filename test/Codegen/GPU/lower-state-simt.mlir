// States in global memory: elements are distributed over the threads, and a barrier precedes the update of the maxima.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-state-simt)))' | FileCheck %s

// EXAMPLE
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

  // A loop over chunks is lowered as a whole: a warp has a row, and loads the maxima and sums of 32 chunks at once.
  // CHECK-LABEL: func.func @merges_all
  // CHECK: nvvm.barrier0
  // CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step %c4
  // CHECK:   scf.for %{{.*}} = %c0{{.*}} to %{{.*}} step %c32{{.*}} iter_args
  // CHECK-COUNT-10: nvvm.shfl.sync bfly
  // CHECK:     scf.for {{.*}} step %c16{{.*}} iter_args
  // CHECK-COUNT-32: memref.load
  // CHECK-COUNT-16: nvvm.shfl.sync idx
  // CHECK:   nvvm.bar.warp.sync
  // CHECK-COUNT-2: memref.store {{.*}}, %arg4[%[[ROW]], %{{.*}}] {attn.per_thread_store}
  // CHECK: nvvm.barrier0
  // CHECK-NOT: attn.merge
  func.func @merges_all(%acc: memref<?x4x64xf32>, %max: memref<?x4xf32>, %sum: memref<?x4xf32>, %count: index,
                        %acc0: memref<?x64xf32>, %max0: memref<?xf32>, %sum0: memref<?xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %i = %c0 to %count step %c1 {
      %a = memref.subview %acc[%i, 0, 0] [1, 4, 64] [1, 1, 1] : memref<?x4x64xf32> to memref<4x64xf32, strided<[64, 1], offset: ?>>
      %m = memref.subview %max[%i, 0] [1, 4] [1, 1] : memref<?x4xf32> to memref<4xf32, strided<[1], offset: ?>>
      %s = memref.subview %sum[%i, 0] [1, 4] [1, 1] : memref<?x4xf32> to memref<4xf32, strided<[1], offset: ?>>
      attn.merge (%a, %m, %s) into(%acc0, %max0, %sum0)
        : (memref<4x64xf32, strided<[64, 1], offset: ?>>, memref<4xf32, strided<[1], offset: ?>>,
           memref<4xf32, strided<[1], offset: ?>>, memref<?x64xf32>, memref<?xf32>, memref<?xf32>) -> ()
    }
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
