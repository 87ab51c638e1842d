// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-pad-shared-buffers{target=sm_75})))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // Rows of 128 bytes are padded by 16. Views keep their extents and get the new stride.
  // CHECK-LABEL: func.func @rows_of_all_banks
  // CHECK: %[[MEMORY:.*]] = memref.alloc() : memref<8x36xf32>
  // CHECK: %[[BUFFER:.*]] = memref.subview %[[MEMORY]][0, 0] [8, 32] [1, 1] : memref<8x36xf32> to memref<8x32xf32, strided<[36, 1]>>
  // CHECK: memref.subview %[[BUFFER]][0, 0] [%{{.*}}, 32] [1, 1] : memref<8x32xf32, strided<[36, 1]>> to memref<?x32xf32, strided<[36, 1]>>
  // CHECK: linalg.fill {{.*}} memref<?x32xf32, strided<[36, 1]>>
  func.func @rows_of_all_banks(%rows: index, %x: f32) attributes {attn.kernel} {
    %buffer = memref.alloc() : memref<8x32xf32>
    %part = memref.subview %buffer[0, 0] [%rows, 32] [1, 1] : memref<8x32xf32> to memref<?x32xf32, strided<[32, 1]>>
    linalg.fill ins(%x : f32) outs(%part : memref<?x32xf32, strided<[32, 1]>>)
    return
  }

  // CHECK-LABEL: func.func @rows_in_other_banks
  // CHECK: memref.alloc() : memref<8x36xf32>
  // CHECK: linalg.fill {{.*}} memref<8x36xf32>
  func.func @rows_in_other_banks(%x: f32) attributes {attn.kernel} {
    %buffer = memref.alloc() : memref<8x36xf32>
    linalg.fill ins(%x : f32) outs(%buffer : memref<8x36xf32>)
    return
  }

  // A user that requires a compact buffer.
  // CHECK-LABEL: func.func @compact
  // CHECK: memref.alloc() : memref<8x32xf32>
  func.func @compact(%x: f32) attributes {attn.kernel} {
    %buffer = memref.alloc() : memref<8x32xf32>
    %flat = memref.collapse_shape %buffer [[0, 1]] : memref<8x32xf32> into memref<256xf32>
    linalg.fill ins(%x : f32) outs(%flat : memref<256xf32>)
    return
  }

  // More than half of 64 KiB.
  // CHECK-LABEL: func.func @large
  // CHECK: memref.alloc() : memref<80x128xf32>
  func.func @large(%x: f32) attributes {attn.kernel} {
    %buffer = memref.alloc() : memref<80x128xf32>
    linalg.fill ins(%x : f32) outs(%buffer : memref<80x128xf32>)
    return
  }
}
