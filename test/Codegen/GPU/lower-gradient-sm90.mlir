// Kernels of gradients of attention with warpgroups, beside those of the task.
// RUN: saccade-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(attn-lower-gradient-sm90))' | FileCheck %s

// Rows are queries. The first warpgroup copies them, with the gradients of the output, and keys and values to a ring of
// four stages. The others compute.
// EXAMPLE
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#pairs = affine_map<(i, j) -> (i, j)>
#queries = affine_map<(i, j) -> (i)>
gpu.module @saccade_device {
  // CHECK-LABEL: func.func @queries(
  // CHECK-SAME: attn.bulk_kernel = "queries_sm_90a"
  // CHECK-COUNT-4: linalg.generic
  // CHECK-LABEL: func.func @queries_sm_90a(
  // CHECK-SAME: %arg0: !llvm.ptr, %arg1: !llvm.ptr, %arg2: !llvm.ptr, %arg3: !llvm.ptr, %arg4: memref<64x16xbf16>
  // CHECK-SAME: attn.family = "sm_90a, gradient"
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 9, 2, 3, 2, 1, 0, 64, 64>, array<i64: 1, {{.*}}>, array<i64: 2, {{.*}}>, array<i64: 3, {{.*}}>]
  // CHECK-SAME: attn.threads = 384
  // CHECK-COUNT-9: nvvm.mbarrier.init
  // CHECK: nvvm.barrier0
  // The producer.
  // CHECK: nvvm.setmaxregister decrease 72
  // CHECK: nvvm.mbarrier.arrive.expect_tx
  // CHECK-COUNT-2: nvvm.cp.async.bulk.tensor
  // CHECK: scf.for
  // CHECK: mbarrier.try_wait
  // CHECK: llvm.store {{.*}} : i64, !llvm.ptr<3>
  // CHECK: llvm.store {{.*}} : i32, !llvm.ptr<3>
  // CHECK: nvvm.mbarrier.arrive.expect_tx
  // CHECK-COUNT-2: nvvm.cp.async.bulk.tensor
  // The end of the tiles, for each of two warpgroups.
  // CHECK: mbarrier.try_wait
  // CHECK: nvvm.mbarrier.arrive.expect_tx
  // CHECK: mbarrier.try_wait
  // CHECK: nvvm.mbarrier.arrive.expect_tx
  // CHECK-NOT: nvvm.cp.async.bulk.tensor
  // The consumers: a tile is that of one of them.
  // CHECK: nvvm.setmaxregister increase 216
  // CHECK: mbarrier.try_wait
  // CHECK: scf.while
  // CHECK: mbarrier.try_wait
  // CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> i32
  // CHECK: scf.condition
  // CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> i64
  // Rows of keys after the last one are cleared.
  // CHECK: nvvm.fence.proxy
  // CHECK: nvvm.barrier id
  // CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
  // CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
  // CHECK: wgmma.wait_group.sync.aligned 0
  // CHECK: llvm.nvvm.ex2.approx.ftz.f
  // CHECK: wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
  // CHECK: wgmma.wait_group.sync.aligned 0
  // CHECK: mbarrier.arrive
  // The sums of the second one are passed to the first one, which stores them.
  // CHECK: nvvm.barrier id
  // CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
  // CHECK: nvvm.barrier id
  // CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f32
  // CHECK: arith.addf
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

// Both roles would execute another op that writes.
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#pairs = affine_map<(i, j) -> (i, j)>
gpu.module @saccade_device {
  // CHECK-LABEL: func.func @other_writer
  // CHECK-NOT: attn.bulk_kernel
  // CHECK-SAME: attn.bulk_obstacle = "another op of the kernel writes memory"
  // CHECK-NOT: sm_90a
  func.func @other_writer(%query: memref<64x16xbf16>, %key: memref<64x16xbf16>, %log: memref<64xf32>,
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
    }
    linalg.fill ins(%zero : f32) outs(%log : memref<64xf32>)
    linalg.generic {indexing_maps = [#pairs, #pairs], iterator_types = ["parallel", "parallel"]}
      ins(%sum : memref<64x16xf32>) outs(%result : memref<64x16xbf16>) {
    ^body(%x: f32, %unused: bf16):
      %r = arith.truncf %x : f32 to bf16
      linalg.yield %r : bf16
    }
    return
  }
}
