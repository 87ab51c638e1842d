// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-plan-shared-memory{target=sm_75})))' --verify-diagnostics

gpu.module @saccade_device {
  // expected-error@+1 {{takes 80000 bytes of shared memory, sm_75 has 65536}}
  func.func @needs_much(%a: memref<20000xf32>) attributes {attn.kernel} {
    %x = memref.alloc() : memref<20000xf32>
    linalg.copy ins(%a : memref<20000xf32>) outs(%x : memref<20000xf32>)
    linalg.copy ins(%x : memref<20000xf32>) outs(%a : memref<20000xf32>)
    return
  }
}
