// The loop over sections of keys becomes one section with all keys, for both roles, so that its bounds take no registers in
// the loop over tiles. Results go through shared memory, where a lane reads 16 bytes of a row after the warp has met.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-attention-sm90))' | FileCheck %s

gpu.module @saccade_device {
  func.func @attend(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %rows = arith.constant 128 : index
    %step = arith.constant 16384 : index
    %n = memref.dim %k, %c0 : memref<?x64xbf16>
    %cta = nvvm.read.ptx.sreg.ctaid.x : i32
    %item = arith.index_castui %cta : i32 to index
    %first = arith.muli %item, %rows : index
    %queries = memref.subview %q[%first, 0] [128, 64] [1, 1] : memref<?x64xbf16> to memref<128x64xbf16, strided<[64, 1], offset: ?>>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    scf.for %key = %c0 to %n step %step {
      %next = arith.addi %key, %step : index
      %end = arith.minsi %next, %n : index
      %count = arith.subi %end, %key : index
      %keys = memref.subview %k[%key, 0] [%count, 64] [1, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1], offset: ?>>
      %values = memref.subview %v[%key, 0] [%count, 64] [1, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1], offset: ?>>
      attn.accumulate %queries[s,d], %keys[s,d], %values[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %first, %key)
        into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
        : (memref<128x64xbf16, strided<[64, 1], offset: ?>>, memref<?x64xbf16, strided<[64, 1], offset: ?>>, memref<?x64xbf16, strided<[64, 1], offset: ?>>)
    }
    %result = memref.subview %out[%first, 0] [128, 64] [1, 1] : memref<?x64xbf16> to memref<128x64xbf16, strided<[64, 1], offset: ?>>
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%result[s,d] : memref<128x64xbf16, strided<[64, 1], offset: ?>>)
    return
  }

  // CHECK: func.func @attend_sm_90a
  // CHECK: nvvm.setmaxregister decrease
  // CHECK: %[[END:.*]] = memref.dim
  // CHECK-NOT: scf.for
  // CHECK: %[[ANY:.*]] = arith.cmpi slt, %{{.*}}, %[[END]] : index
  // CHECK: scf.if %[[ANY]]
  // CHECK-NEXT: arith.minsi %[[END]], %[[END]]
  // CHECK: scf.for
  // CHECK-NOT: scf.for
  // CHECK: nvvm.setmaxregister increase
  // CHECK: %[[END:.*]] = memref.dim
  // CHECK-NOT: scf.for
  // CHECK: arith.cmpi slt, %{{.*}}, %[[END]] : index
  // CHECK: scf.for
  // CHECK-NOT: scf.for
  // CHECK: llvm.store %{{.*}} : i32, !llvm.ptr<3>
  // CHECK: nvvm.bar.warp.sync
  // CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<4xi32>
  // CHECK: llvm.store %{{.*}} : vector<4xi32>, !llvm.ptr<1>
}
