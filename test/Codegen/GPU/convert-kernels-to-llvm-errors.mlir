// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-convert-kernels-to-llvm))' --verify-diagnostics

gpu.module @saccade_device {
  func.func @wide_tangent(%a: memref<?xf64>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %x = memref.load %a[%c0] : memref<?xf64>
    // expected-error@+1 {{'math.tanh' op on 'f64' has no form on a GPU}}
    %y = math.tanh %x : f64
    memref.store %y, %a[%c0] : memref<?xf64>
    return
  }
}
