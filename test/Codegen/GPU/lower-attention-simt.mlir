// Each thread computes one query; tiles of 16 keys and values are staged as f32 in shared memory. No tensor cores are used.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-attention-simt)))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // CHECK: llvm.mlir.global internal @attend_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<1280 x f32>
  // CHECK: func.func @attend(
  // CHECK: memref.alloca() : memref<1xf32>
  // CHECK-NEXT: %[[SECTION:.*]] = memref.alloca() : memref<40xf32>
  // CHECK-NEXT: memref.alloca() : memref<40xf32>
  // CHECK: %[[ACC:.*]] = memref.alloca() : memref<40xf32>
  // CHECK-NOT: nvvm.mma.sync
  // Sections of 512 keys start at 0; so do their tiles.
  // CHECK: %[[LENGTH:.*]] = arith.constant 512 : i32
  // CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %[[LENGTH]]
  // CHECK: memref.store %{{.*}}, %[[SECTION]]
  // CHECK: scf.for
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.barrier0
  // CHECK: %[[NEAR:.*]] = arith.minsi
  // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"
  // CHECK: %[[BEFORE:.*]] = memref.load %[[SECTION]]
  // CHECK: llvm.intr.fma(%[[BEFORE]]
  // CHECK: %[[OLD:.*]] = memref.load %[[ACC]]
  // CHECK: memref.load %[[SECTION]]
  // CHECK: llvm.intr.fma(%[[OLD]]
  // CHECK-NOT: attn.
  func.func @attend(%q: memref<?x40xf16>, %k: memref<?x40xf16>, %v: memref<?x40xf16>, %bias: memref<?xf32>, %out: memref<?x40xf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x40xf16>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x48xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x48xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] captures(%bias : memref<?xf32>) q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x48xf32>, memref<128xf32>, memref<128xf32>)
      score(%s, %b, %h, %i, %j, %t) {
        %x = tensor.extract %t[%j] : tensor<?xf32>
        %r = arith.addf %s, %x : f32
        attn.yield %r : f32
      } : (memref<?x40xf16>, memref<?x40xf16>, memref<?x40xf16>)
    attn.finalize %acc, %max, %sum : memref<128x48xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x40xf16>)
    return
  }
}
