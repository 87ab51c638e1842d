// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-plan-shared-memory{target=sm_75})))' --verify-diagnostics

gpu.module @saccade_device {
  // expected-error@+1 {{requires 80000 bytes of shared memory, expected at most 65536 on sm_75}}
  func.func @exceeds_capacity(%a: memref<20000xf32>) attributes {attn.kernel} {
    %x = memref.alloc() : memref<20000xf32>
    linalg.copy ins(%a : memref<20000xf32>) outs(%x : memref<20000xf32>)
    linalg.copy ins(%x : memref<20000xf32>) outs(%a : memref<20000xf32>)
    return
  }
}
