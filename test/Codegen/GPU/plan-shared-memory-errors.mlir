// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-plan-shared-memory{target=sm_75})))' --verify-diagnostics

gpu.module @saccade_device {
  // expected-error@+1 {{requires 80000 bytes of shared memory, expected at most 65536 on sm_75}}
  func.func @exceeds_capacity(%a: memref<20000xf32>) attributes {attn.kernel} {
    %x = memref.alloc() : memref<20000xf32>
    linalg.copy ins(%a : memref<20000xf32>) outs(%x : memref<20000xf32>)
    linalg.copy ins(%x : memref<20000xf32>) outs(%a : memref<20000xf32>)
    return
  }

  llvm.mlir.global internal @static() {addr_space = 3 : i32} : !llvm.array<4096 x f32>

  // expected-error@+1 {{requires 66384 bytes of shared memory, expected at most 65536 on sm_75}}
  func.func @static_memory_counts(%a: memref<12500xf32>) attributes {attn.kernel} {
    %s = llvm.mlir.addressof @static : !llvm.ptr<3>
    %t = llvm.mlir.addressof @static : !llvm.ptr<3>
    %x = memref.alloc() : memref<12500xf32>
    linalg.copy ins(%a : memref<12500xf32>) outs(%x : memref<12500xf32>)
    linalg.copy ins(%x : memref<12500xf32>) outs(%a : memref<12500xf32>)
    return
  }
}
