// 64 keys per step: the copy of the values overlaps with the scores, that of the next keys with the accumulation of the
// values. With head size 64, each 16 × 8 tile of scores and of the accumulator takes four mma.sync.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-attention-sm80)))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // CHECK: llvm.mlir.global external @saccade_shared() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>
  // CHECK: func.func @attend(
  // CHECK-SAME: attn.shared_bytes = 36864
  // CHECK: %[[ACC:.*]] = memref.alloca() : memref<64xf32>
  // CHECK: scf.for
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.cp.async.shared.global
  // Scores are computed again, and maxima before weights, if the sums of weights are large.
  // CHECK: scf.while
  // CHECK: %[[REMAINING:.*]] = memref.load
  // CHECK: %[[EXACT:.*]] = arith.cmpi ne, %[[REMAINING]]
  // CHECK-COUNT-64: nvvm.mma.sync
  // CHECK: scf.if %[[EXACT]]
  // The accumulator is rescaled in a branch that the warp takes together.
  // CHECK: %[[UPDATES:.*]] = nvvm.vote.sync any
  // CHECK: scf.if %[[UPDATES]]
  // CHECK: nvvm.shfl.sync
  // CHECK: %[[BEFORE:.*]] = memref.load %[[ACC]]{{\[}}
  // CHECK: %[[RESCALED:.*]] = arith.mulf %[[BEFORE]]
  // CHECK: memref.store %[[RESCALED]], %[[ACC]]{{\[}}
  // CHECK: arith.cmpf ugt
  // CHECK: %[[LARGE:.*]] = nvvm.vote.sync any
  // CHECK: %[[REPEATS:.*]] = arith.andi %[[LARGE]]
  // CHECK: scf.condition(%[[REPEATS]])
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.cp.async.shared.global
  // Values are accumulated in place.
  // CHECK: %[[OLD:.*]] = memref.load %[[ACC]]{{\[}}
  // CHECK: nvvm.mma.sync {{.*}}C[%[[OLD]],
  // CHECK-COUNT-63: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  // CHECK-NOT: attn.
  func.func @attend(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x64xbf16>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16>, memref<?x64xbf16>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    return
  }
}
