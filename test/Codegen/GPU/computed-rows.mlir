// Keys that are computed from elements of 8 bits: a thread loads eight stored elements at once if they are aligned,
// converts them, and stores them to shared memory. The tile and the op that computes it are erased.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-attention-sm80)))' | FileCheck %s

#matrix = affine_map<(p, d) -> (p, d)>
#row = affine_map<(p, d) -> (p)>
gpu.module @saccade_device {
  // CHECK-LABEL: func.func @attend(
  // CHECK-SAME: attn.family = "sm_80, computed on load"
  // CHECK-NOT: memref.alloc()
  // CHECK-NOT: linalg.generic
  // One word has eight elements.
  // CHECK: scf.if
  // CHECK: %[[WORD:.*]] = llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> i64
  // CHECK-COUNT-8: arith.shrui %[[WORD]]
  // CHECK: else
  // CHECK-COUNT-8: llvm.load {{.*}} : !llvm.ptr<1> -> i8
  // CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> f32
  // CHECK: arith.sitofp {{.*}} : i8 to f32
  // CHECK: arith.mulf
  // CHECK: arith.truncf {{.*}} : f32 to f16
  // CHECK: llvm.insertelement
  // CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<8xf16>, !llvm.ptr<3>
  // CHECK-NOT: memref.alloc()
  // CHECK-NOT: linalg.generic
  // CHECK: return
  func.func @attend(%q: memref<?x64xf16>, %k8: memref<?x64xi8>, %scale: memref<?xf32>, %v: memref<?x64xf16>,
                    %out: memref<?x64xf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k8, %c0 : memref<?x64xi8>
    %memory = memref.alloc() : memref<256x64xf16>
    %k = memref.subview %memory[0, 0] [%n, 64] [1, 1] : memref<256x64xf16> to memref<?x64xf16, strided<[64, 1]>>
    linalg.generic {indexing_maps = [#matrix, #row, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%k8, %scale : memref<?x64xi8>, memref<?xf32>) outs(%k : memref<?x64xf16, strided<[64, 1]>>) {
    ^bb0(%x: i8, %s: f32, %o: f16):
      %f = arith.sitofp %x : i8 to f32
      %g = arith.mulf %f, %s : f32
      %r = arith.truncf %g : f32 to f16
      linalg.yield %r : f16
    }
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
      : (memref<?x64xf16>, memref<?x64xf16, strided<[64, 1]>>, memref<?x64xf16>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xf16>)
    return
  }
}
