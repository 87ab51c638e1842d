// Tiles of gradients of attention: products, an elementwise op and sums in registers.
// RUN: saccade-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(func.func(attn-lower-gradient-sm80)))' | FileCheck %s

// Rows are queries, which are copied before the loop. In each half of a tile, 32 keys are multiplied: 4 products for each
// of the scores and the products with the values, and 2 × 2 for the sums. The first half of the next keys is copied between
// the halves of this tile.
// EXAMPLE
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#pairs = affine_map<(i, j) -> (i, j)>
#queries = affine_map<(i, j) -> (i)>
gpu.module @saccade_device {
  // CHECK-LABEL: func.func @queries
  // CHECK-SAME: attn.family = "sm_80, gradient"
  // CHECK: memref.alloca() : memref<8xf32>
  // CHECK: nvvm.cp.async.commit.group
  // CHECK: scf.for
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.cp.async.commit.group
  // CHECK-COUNT-8: nvvm.mma.sync
  // CHECK: llvm.nvvm.ex2.approx.ftz.f
  // CHECK-COUNT-4: nvvm.mma.sync
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: nvvm.barrier0
  // CHECK: nvvm.cp.async.commit.group
  // CHECK-COUNT-12: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  // CHECK: nvvm.cp.async.wait.group 0
  // CHECK: memref.store {{.*}} {attn.per_thread_store} : memref<64x16xbf16>
  // CHECK-NOT: linalg.generic
  func.func @queries(%query: memref<64x16xbf16>, %output: memref<64x16xbf16>, %key: memref<?x16xbf16>, %value: memref<?x16xbf16>,
                     %lse: memref<64xf32>, %delta: memref<64xf32>, %result: memref<64x16xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant 0.0 : f32
    %count = memref.dim %key, %c0 : memref<?x16xbf16>
    %sum = memref.alloc() : memref<64x16xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<64x16xf32>)
    scf.for %first = %c0 to %count step %c64 {
      %left = arith.subi %count, %first : index
      %size = arith.minsi %left, %c64 : index
      %keys = memref.subview %key[%first, 0] [%size, 16] [1, 1] : memref<?x16xbf16> to memref<?x16xbf16, strided<[16, 1], offset: ?>>
      %values = memref.subview %value[%first, 0] [%size, 16] [1, 1] : memref<?x16xbf16> to memref<?x16xbf16, strided<[16, 1], offset: ?>>
      %scores_buffer = memref.alloc() : memref<64x64xf32>
      %scores = memref.subview %scores_buffer[0, 0] [64, %size] [1, 1] : memref<64x64xf32> to memref<64x?xf32, strided<[64, 1]>>
      %products_buffer = memref.alloc() : memref<64x64xf32>
      %products = memref.subview %products_buffer[0, 0] [64, %size] [1, 1] : memref<64x64xf32> to memref<64x?xf32, strided<[64, 1]>>
      linalg.fill ins(%zero : f32) outs(%scores : memref<64x?xf32, strided<[64, 1]>>)
      linalg.fill ins(%zero : f32) outs(%products : memref<64x?xf32, strided<[64, 1]>>)
      linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%query, %keys : memref<64x16xbf16>, memref<?x16xbf16, strided<[16, 1], offset: ?>>)
        outs(%scores : memref<64x?xf32, strided<[64, 1]>>) attrs = {attn.tile_matmul} {
      ^body(%x: bf16, %y: bf16, %z: f32):
        %a = arith.extf %x : bf16 to f32
        %b = arith.extf %y : bf16 to f32
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %z, %p : f32
        linalg.yield %s : f32
      }
      linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%output, %values : memref<64x16xbf16>, memref<?x16xbf16, strided<[16, 1], offset: ?>>)
        outs(%products : memref<64x?xf32, strided<[64, 1]>>) attrs = {attn.tile_matmul} {
      ^body(%x: bf16, %y: bf16, %z: f32):
        %a = arith.extf %x : bf16 to f32
        %b = arith.extf %y : bf16 to f32
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %z, %p : f32
        linalg.yield %s : f32
      }
      %weights_buffer = memref.alloc() : memref<64x64xbf16>
      %weights = memref.subview %weights_buffer[0, 0] [64, %size] [1, 1] : memref<64x64xbf16> to memref<64x?xbf16, strided<[64, 1]>>
      linalg.generic {indexing_maps = [#pairs, #pairs, #queries, #queries, #pairs], iterator_types = ["parallel", "parallel"]}
        ins(%scores, %products, %lse, %delta : memref<64x?xf32, strided<[64, 1]>>, memref<64x?xf32, strided<[64, 1]>>, memref<64xf32>, memref<64xf32>)
        outs(%weights : memref<64x?xbf16, strided<[64, 1]>>) {
      ^body(%s: f32, %p: f32, %l: f32, %d: f32, %unused: bf16):
        %a = arith.subf %s, %l : f32
        %e = math.exp2 %a : f32
        %b = arith.subf %p, %d : f32
        %g = arith.mulf %e, %b : f32
        %r = arith.truncf %g : f32 to bf16
        linalg.yield %r : bf16
      }
      linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%weights, %keys : memref<64x?xbf16, strided<[64, 1]>>, memref<?x16xbf16, strided<[16, 1], offset: ?>>)
        outs(%sum : memref<64x16xf32>) attrs = {attn.tile_matmul} {
      ^body(%x: bf16, %y: bf16, %z: f32):
        %a = arith.extf %x : bf16 to f32
        %b = arith.extf %y : bf16 to f32
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %z, %p : f32
        linalg.yield %s : f32
      }
    }
    linalg.generic {indexing_maps = [#pairs, #pairs], iterator_types = ["parallel", "parallel"]}
      ins(%sum : memref<64x16xf32>) outs(%result : memref<64x16xbf16>) {
    ^body(%x: f32, %unused: bf16):
      %r = arith.truncf %x : f32 to bf16
      linalg.yield %r : bf16
    }
    return
  }
}

// -----

// Another reader of the weights needs them in memory.
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#pairs = affine_map<(i, j) -> (i, j)>
gpu.module @saccade_device {
  // CHECK-LABEL: func.func @other_reader
  // CHECK-NOT: attn.family
  // CHECK-NOT: nvvm.mma.sync
  // CHECK-COUNT-4: linalg.generic
  func.func @other_reader(%query: memref<64x16xbf16>, %key: memref<64x16xbf16>, %copy: memref<64x64xbf16>,
                          %result: memref<64x16xbf16>) attributes {attn.kernel} {
    %zero = arith.constant 0.0 : f32
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %sum = memref.alloc() : memref<64x16xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<64x16xf32>)
    scf.for %i = %c0 to %c1 step %c1 {
      %scores = memref.alloc() : memref<64x64xf32>
      linalg.fill ins(%zero : f32) outs(%scores : memref<64x64xf32>)
      linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%query, %key : memref<64x16xbf16>, memref<64x16xbf16>) outs(%scores : memref<64x64xf32>) attrs = {attn.tile_matmul} {
      ^body(%x: bf16, %y: bf16, %z: f32):
        %a = arith.extf %x : bf16 to f32
        %b = arith.extf %y : bf16 to f32
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %z, %p : f32
        linalg.yield %s : f32
      }
      %weights = memref.alloc() : memref<64x64xbf16>
      linalg.generic {indexing_maps = [#pairs, #pairs], iterator_types = ["parallel", "parallel"]}
        ins(%scores : memref<64x64xf32>) outs(%weights : memref<64x64xbf16>) {
      ^body(%s: f32, %unused: bf16):
        %r = arith.truncf %s : f32 to bf16
        linalg.yield %r : bf16
      }
      linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%weights, %key : memref<64x64xbf16>, memref<64x16xbf16>) outs(%sum : memref<64x16xf32>) attrs = {attn.tile_matmul} {
      ^body(%x: bf16, %y: bf16, %z: f32):
        %a = arith.extf %x : bf16 to f32
        %b = arith.extf %y : bf16 to f32
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %z, %p : f32
        linalg.yield %s : f32
      }
      memref.copy %weights, %copy : memref<64x64xbf16> to memref<64x64xbf16>
    }
    linalg.generic {indexing_maps = [#pairs, #pairs], iterator_types = ["parallel", "parallel"]}
      ins(%sum : memref<64x16xf32>) outs(%result : memref<64x16xbf16>) {
    ^body(%x: f32, %unused: bf16):
      %r = arith.truncf %x : f32 to bf16
      linalg.yield %r : bf16
    }
    return
  }
}
