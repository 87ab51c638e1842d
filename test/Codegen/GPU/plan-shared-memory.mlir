// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-plan-shared-memory{target=sm_80})))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // The live ranges of the first and third buffer are disjoint: 2 * 64 bytes suffice.
  // CHECK-LABEL: func @reuses_memory
  // CHECK-SAME: attn.shared_bytes = 128
  func.func @reuses_memory(%a: memref<16xf32>) attributes {attn.kernel} {
    // CHECK: %[[SHARED:.*]] = llvm.mlir.addressof @saccade_shared
    // CHECK: llvm.getelementptr %[[SHARED]][0]
    // CHECK: llvm.getelementptr %{{.*}}[64]
    // CHECK: llvm.getelementptr %{{.*}}[0]
    %x = memref.alloc() : memref<16xf32>
    linalg.copy ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    %y = memref.alloc() : memref<16xf32>
    linalg.copy ins(%x : memref<16xf32>) outs(%y : memref<16xf32>)
    %z = memref.alloc() : memref<16xf32>
    linalg.copy ins(%y : memref<16xf32>) outs(%z : memref<16xf32>)
    linalg.copy ins(%z : memref<16xf32>) outs(%a : memref<16xf32>)
    return
  }

  // All threads load an element of the first buffer. Stores into the second one are not ordered after the loads, those
  // into the third one are.
  // CHECK-LABEL: func @keeps_loaded_memory
  // CHECK-SAME: attn.shared_bytes = 128
  func.func @keeps_loaded_memory(%a: memref<16xf32>) attributes {attn.kernel} {
    // CHECK: llvm.getelementptr %{{.*}}[0]
    // CHECK: llvm.getelementptr %{{.*}}[64]
    // CHECK: llvm.getelementptr %{{.*}}[0]
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<16xf32>
    linalg.copy ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    nvvm.barrier0
    %first = memref.load %x[%c0] : memref<16xf32>
    %y = memref.alloc() : memref<16xf32>
    linalg.fill ins(%first : f32) outs(%y : memref<16xf32>)
    nvvm.barrier0
    %z = memref.alloc() : memref<16xf32>
    linalg.copy ins(%y : memref<16xf32>) outs(%z : memref<16xf32>)
    nvvm.barrier0
    linalg.copy ins(%z : memref<16xf32>) outs(%a : memref<16xf32>)
    return
  }

  // Buffers that are created at the start take memory from their first use on. The larger one comes first.
  // CHECK-LABEL: func @from_first_use
  // CHECK-SAME: attn.shared_bytes = 192
  func.func @from_first_use(%a: memref<16xf32>, %b: memref<32xf32>) attributes {attn.kernel} {
    // CHECK: llvm.getelementptr %{{.*}}[128]
    // CHECK: llvm.getelementptr %{{.*}}[0]
    // CHECK: llvm.getelementptr %{{.*}}[128]
    %x = memref.alloc() : memref<16xf32>
    %y = memref.alloc() : memref<32xf32>
    %z = memref.alloc() : memref<16xf32>
    linalg.copy ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    linalg.copy ins(%b : memref<32xf32>) outs(%y : memref<32xf32>)
    linalg.copy ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    linalg.copy ins(%a : memref<16xf32>) outs(%z : memref<16xf32>)
    linalg.copy ins(%z : memref<16xf32>) outs(%a : memref<16xf32>)
    linalg.copy ins(%y : memref<32xf32>) outs(%b : memref<32xf32>)
    return
  }

  // A sum of elements, which are read by their address, is a use of the buffer until it is stored.
  // CHECK-LABEL: func @address
  // CHECK-SAME: attn.shared_bytes = 128
  func.func @address(%a: memref<16xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<16xf32>
    %y = memref.alloc() : memref<16xf32>
    linalg.copy ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    %address = memref.extract_aligned_pointer_as_index %x : memref<16xf32> -> index
    %bits = arith.index_cast %address : index to i64
    %pointer = llvm.inttoptr %bits : i64 to !llvm.ptr
    %element = llvm.load %pointer : !llvm.ptr -> f32
    %sum = arith.addf %element, %element : f32
    memref.store %sum, %y[%c0] : memref<16xf32>
    linalg.copy ins(%y : memref<16xf32>) outs(%a : memref<16xf32>)
    return
  }
}
