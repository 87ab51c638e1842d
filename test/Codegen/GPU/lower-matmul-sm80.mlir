// K steps of 64: a warp multiplies 2 × 4 mma tiles with four mma.sync each, while the next tiles are copied.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-matmul-sm80)))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // CHECK-LABEL: func.func @matmul
  // CHECK-SAME: attn.family = "sm_80, matmul"
  // CHECK-SAME: attn.shared_bytes = 36864
  // CHECK: nvvm.cp.async.shared.global
  // CHECK: scf.for
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.cp.async.shared.global
  // CHECK-COUNT-32: nvvm.mma.sync
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK-COUNT-32: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @matmul(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%a, %b : memref<?x?xf16>, memref<?x?xf16>) outs(%c : memref<?x?xf32>)
    return
  }

  // A tile of a gradient, 32 queries × 64 keys: Pᵀ, which is in shared memory, times 32 rows of another operand. There is
  // one step of 32 and no loop. A warp loads two LHS fragments transposed and multiplies 2 × 4 mma tiles twice.
  // CHECK-LABEL: func.func @tile
  // CHECK-SAME: attn.shared_bytes = 9216
  // CHECK-NOT: scf.for {{.*}} iter_args
  // CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<8xf16>
  // CHECK: nvvm.cp.async.shared.global
  // CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
  // CHECK-COUNT-16: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  func.func @tile(%queries: index, %keys: index, %b: memref<?x64xf16>, %out: memref<?x64xf32>) attributes {attn.kernel} {
    %tile = memref.alloc() : memref<32x64xf16>
    %weights = memref.subview %tile[0, 0] [%queries, %keys] [1, 1] : memref<32x64xf16> to memref<?x?xf16, strided<[64, 1]>>
    %whole = memref.alloc() : memref<64x64xf32>
    %sums = memref.subview %whole[0, 0] [%keys, 64] [1, 1] : memref<64x64xf32> to memref<?x64xf32, strided<[64, 1]>>
    linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
                    iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%weights, %b : memref<?x?xf16, strided<[64, 1]>>, memref<?x64xf16>) outs(%sums : memref<?x64xf32, strided<[64, 1]>>) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %0 = arith.extf %x : f16 to f32
        %1 = arith.extf %y : f16 to f32
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %z, %2 : f32
        linalg.yield %3 : f32
    }
    return
  }

  // Whole buffers of a kernel are not copied: fragments are loaded where they are, rows of k transposed. There is one
  // barrier, after the result. Without a whole block of rows, both operands are copied.
  // CHECK-LABEL: func.func @whole_blocks
  // CHECK-NOT: attn.shared_bytes
  // CHECK-NOT: nvvm.barrier0
  // CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<row>
  // CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
  // CHECK-COUNT-16: nvvm.mma.sync
  // CHECK: nvvm.barrier0
  func.func @whole_blocks() attributes {attn.kernel} {
    %memory = memref.alloc() : memref<64x72xbf16>
    %lhs = memref.subview %memory[0, 0] [64, 64] [1, 1] : memref<64x72xbf16> to memref<64x64xbf16, strided<[72, 1]>>
    %rhs = memref.alloc() : memref<64x32xbf16>
    %sums = memref.alloc() : memref<64x32xf32>
    linalg.matmul ins(%lhs, %rhs : memref<64x64xbf16, strided<[72, 1]>>, memref<64x32xbf16>) outs(%sums : memref<64x32xf32>)
    return
  }

  // CHECK-LABEL: func.func @partial
  // CHECK-SAME: attn.shared_bytes
  // CHECK: nvvm.ldmatrix
  func.func @partial() attributes {attn.kernel} {
    %lhs = memref.alloc() : memref<40x40xbf16>
    %rhs = memref.alloc() : memref<40x40xbf16>
    %sums = memref.alloc() : memref<40x40xf32>
    linalg.matmul ins(%lhs, %rhs : memref<40x40xbf16>, memref<40x40xbf16>) outs(%sums : memref<40x40xf32>)
    return
  }

  // A result that was filled with zeros is stored, and the fill is erased unless the result was used since.
  // CHECK-LABEL: func.func @zero
  // CHECK-NOT: linalg.fill
  // CHECK: nvvm.mma.sync
  // CHECK-NOT: memref.load %{{.*}} : memref<32x32xf32>
  // CHECK: memref.store
  // CHECK: linalg.fill
  // CHECK: memref.store %{{.*}}, %{{.*}}[%c0{{.*}}, %c0
  // CHECK: nvvm.mma.sync
  // CHECK: memref.load %{{.*}} : memref<32x32xf32>
  func.func @zero(%a: memref<?x64xf16>, %b: memref<64x?xf16>, %x: f32) attributes {attn.kernel} {
    %zero = arith.constant 0.0 : f32
    %c0 = arith.constant 0 : index
    %one = memref.alloc() : memref<32x32xf32>
    %other = memref.alloc() : memref<32x32xf32>
    linalg.fill ins(%zero : f32) outs(%one : memref<32x32xf32>)
    memref.store %x, %other[%c0, %c0] : memref<32x32xf32>
    linalg.matmul ins(%a, %b : memref<?x64xf16>, memref<64x?xf16>) outs(%one : memref<32x32xf32>)
    linalg.fill ins(%zero : f32) outs(%other : memref<32x32xf32>)
    memref.store %x, %other[%c0, %c0] : memref<32x32xf32>
    linalg.matmul ins(%a, %b : memref<?x64xf16>, memref<64x?xf16>) outs(%other : memref<32x32xf32>)
    return
  }

  // Other element types are not lowered.
  // CHECK-LABEL: func.func @not_lowered
  // CHECK: linalg.matmul
  func.func @not_lowered(%b: memref<64x?xf32>, %c: memref<?x?xf32>, %e: memref<?x64xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%e, %b : memref<?x64xf32>, memref<64x?xf32>) outs(%c : memref<?x?xf32>)
    return
  }
}
