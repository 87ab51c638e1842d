// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-convert-kernels-to-llvm))' --verify-diagnostics

gpu.module @saccade_device {
  func.func @integer_power(%a: memref<?xi32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %x = memref.load %a[%c0] : memref<?xi32>
    // expected-error@+1 {{'math.ipowi' op on 'i32' is not supported on GPUs}}
    %y = math.ipowi %x, %x : i32
    memref.store %y, %a[%c0] : memref<?xi32>
    return
  }
}
