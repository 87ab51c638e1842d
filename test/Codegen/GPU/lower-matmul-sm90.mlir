// A second kernel with two warpgroups that multiply and a warp that copies, whose first parameters are tensor maps. Stages have
// 64 of the reduction; three of them leave shared memory for a second CTA. The kernel of the task refers to it and stays as it is.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-matmul-sm90))' --split-input-file | FileCheck %s

#rows = affine_map<(m, n, k) -> (m, k)>
#columns = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>
#element = affine_map<(m, n) -> (m, n)>
#column = affine_map<(m, n) -> (n)>

// EXAMPLE
gpu.module @saccade_device {
  // CHECK: func.func @linear(%{{.*}}: memref<128x?xf16>, %{{.*}}) attributes {attn.bulk_kernel = "linear_sm_90a", attn.kernel}
  // CHECK: linalg.matmul
  // CHECK: func.func @linear_sm_90a(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: memref<128x?xf16>
  // CHECK-SAME: attn.equal_extents = array<i64: 0, 1, 1, 1>
  // CHECK-SAME: attn.family = "sm_90a, matmul"
  // CHECK-SAME: attn.shared_bytes = 98352
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 6, 2, 3, 2, 1, 0, 64, 128>, array<i64: 1, 6, 2, 3, 2, 1, 0, 64, 128>]
  // CHECK-SAME: attn.threads = 288
  // CHECK-SAME: nvvm.minctasm = 2
  // CHECK-NOT: memref.alloc
  // CHECK: nvvm.fence.mbarrier.init
  // CHECK: nvvm.barrier0
  // CHECK: scf.for
  // CHECK: mbarrier.try_wait.parity
  // CHECK: wgmma.fence{{.*}}m64n128k16.f32.f16.f16{{.*}}lhs, rhs, 1, 1, 1, 0, 0;{{.*}}m64n128k16{{.*}}m64n128k16{{.*}}m64n128k16{{.*}}commit_group
  // CHECK: wgmma.wait_group.sync.aligned 1
  // CHECK: mbarrier.arrive
  // CHECK: wgmma.wait_group.sync.aligned 0
  // CHECK-NOT: mbarrier.arrive
  // CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c256
  // CHECK: nvvm.bar.warp.sync
  // CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
  // CHECK: arith.addf
  // CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  // CHECK: memref.store {{.*}}attn.per_thread_store
  // CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c32768
  // CHECK-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global
  // CHECK-NOT: nvvm.cp.async.bulk.tensor
  func.func @linear(%x: memref<128x?xf16>, %w: memref<128x?xf16>, %bias: memref<128xf16>, %out: memref<128x128xf16>) attributes {attn.kernel} {
    %zero = arith.constant 0.0 : f32
    %sums = memref.alloc() : memref<128x128xf32>
    linalg.fill ins(%zero : f32) outs(%sums : memref<128x128xf32>)
    linalg.matmul indexing_maps = [#rows, #columns, #result] ins(%x, %w : memref<128x?xf16>, memref<128x?xf16>) outs(%sums : memref<128x128xf32>)
    linalg.generic {indexing_maps = [#element, #column, #element], iterator_types = ["parallel", "parallel"]}
        ins(%sums, %bias : memref<128x128xf32>, memref<128xf16>) outs(%out : memref<128x128xf16>) {
      ^bb0(%s: f32, %b: f16, %o: f16):
        %wide = arith.extf %b : f16 to f32
        %sum = arith.addf %s, %wide : f32
        %r = arith.truncf %sum : f32 to f16
        linalg.yield %r : f16
    }
    return
  }
}

// -----

// LHS is contiguous along m and RHS along n: boxes of 64 rows of k, one for each 64 columns. Sums in f32 are accumulated
// apart, 128 of the reduction at a time, which takes the registers of one CTA. k ends with a stage, so that extents are
// not compared.
gpu.module @saccade_device {
  // CHECK: func.func @transposed_sm_90a
  // CHECK-NOT: attn.equal_extents
  // CHECK-SAME: attn.shared_bytes = 131136
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 9, 2, 3, 2, 1, 0, 64, 64>, array<i64: 1, 9, 2, 3, 2, 1, 0, 64, 64>]
  // CHECK-SAME: nvvm.minctasm = 1
  // CHECK: lhs, rhs, 1, 1, 1, 1, 1;
  // CHECK-COUNT-64: arith.addf
  // CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c32768
  // CHECK-COUNT-4: nvvm.cp.async.bulk.tensor.shared.cluster.global
  // CHECK-NOT: nvvm.cp.async.bulk.tensor
  func.func @transposed(%x: memref<192x128xbf16>, %w: memref<192x128xbf16>, %out: memref<128x128xf32>) attributes {attn.kernel} {
    linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : memref<192x128xbf16>, memref<192x128xbf16>) outs(%out : memref<128x128xf32>)
    return
  }
}

// -----

// RHS is a constant, of which the map describes a part with static bounds, and LHS has no batch: the constant becomes visible to the
// host, and k ends with both tensors. The position in the batch of RHS is a coordinate of its copies.
gpu.module @saccade_device {
  // CHECK: memref.global constant @weights : memref<3x72x128xf16>
  memref.global "private" constant @weights : memref<3x72x128xf16> = dense<1.0>
  // CHECK: func.func @constant_sm_90a
  // CHECK-SAME: attn.mapped_constants = {{\[\[}}@weights, memref<3x40x128xf16, strided<[9216, 128, 1], offset: 1024>>]]
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 6, 2, 3, 2, 1, 0, 64, 128>, array<i64: -1, 6, 2, 3, 3, 2, 1, 0, 64, 64, 0>]
  func.func @constant(%x: memref<128x40xf16>, %at: index, %out: memref<1x128x128xf32>) attributes {attn.kernel} {
    %weights = memref.get_global @weights : memref<3x72x128xf16>
    %part = memref.subview %weights[0, 8, 0] [3, 40, 128] [1, 1, 1] : memref<3x72x128xf16> to memref<3x40x128xf16, strided<[9216, 128, 1], offset: 1024>>
    %one = memref.subview %part[%at, 0, 0] [1, 40, 128] [1, 1, 1] : memref<3x40x128xf16, strided<[9216, 128, 1], offset: 1024>> to memref<1x40x128xf16, strided<[9216, 128, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>],
                    iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%x, %one : memref<128x40xf16>, memref<1x40x128xf16, strided<[9216, 128, 1], offset: ?>>) outs(%out : memref<1x128x128xf32>) {
      ^bb0(%p: f16, %q: f16, %s: f32):
        %wide_p = arith.extf %p : f16 to f32
        %wide_q = arith.extf %q : f16 to f32
        %product = arith.mulf %wide_p, %wide_q : f32
        %sum = arith.addf %s, %product : f32
        linalg.yield %sum : f32
    }
    return
  }
}

// -----

// A stride of 0 along the batch: the tensor map has one position there, and the kernel uses it.
gpu.module @saccade_device {
  // CHECK: func.func @repeated_sm_90a
  // CHECK: %[[AT:.*]]: index
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}}:3, %[[STRIDES:.*]]:3 = memref.extract_strided_metadata
  // CHECK: %[[REPEATED:.*]] = arith.cmpi eq, %[[STRIDES]]#0
  // CHECK: arith.select %[[REPEATED]]
  func.func @repeated(%x: memref<?x128x64xf16, strided<[?, 64, 1]>>, %w: memref<64x128xf16>, %at: index, %out: memref<1x128x128xf32>) attributes {attn.kernel} {
    %one = memref.subview %x[%at, 0, 0] [1, 128, 64] [1, 1, 1] : memref<?x128x64xf16, strided<[?, 64, 1]>> to memref<1x128x64xf16, strided<[?, 64, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>],
                    iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%one, %w : memref<1x128x64xf16, strided<[?, 64, 1], offset: ?>>, memref<64x128xf16>) outs(%out : memref<1x128x128xf32>) {
      ^bb0(%p: f16, %q: f16, %s: f32):
        %wide_p = arith.extf %p : f16 to f32
        %wide_q = arith.extf %q : f16 to f32
        %product = arith.mulf %wide_p, %wide_q : f32
        %sum = arith.addf %s, %product : f32
        linalg.yield %sum : f32
    }
    return
  }
}

// -----

// Only the launch knows the number of tiles. A third kernel, to which the second one refers, divides a tile into 2 × 2 parts of
// 64 × 64: CTA i has part i mod 4 of item i / 4, if the part begins within the tile.
gpu.module @saccade_device {
  // CHECK: func.func @dynamic(
  // CHECK-SAME: attn.bulk_kernel = "dynamic_sm_90a"
  // CHECK: func.func @dynamic_sm_90a(
  // CHECK-SAME: attn.bulk_kernel = "dynamic_sm_90a_parts"
  // CHECK-NOT: attn.few_items
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 6, 2, 3, 2, 1, 0, 64, 128>, array<i64: 1, 6, 2, 3, 2, 1, 0, 64, 64>]
  // CHECK: func.func @dynamic_sm_90a_parts(
  // CHECK-NOT: attn.bulk_kernel
  // CHECK-SAME: attn.family = "sm_90a, matmul in parts", attn.few_items
  // CHECK-SAME: attn.parts = 4
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 6, 2, 3, 2, 1, 0, 64, 64>, array<i64: 1, 6, 2, 3, 2, 1, 0, 64, 64>]
  // CHECK-SAME: attn.threads = 160
  // CHECK: %[[CTA:.*]] = nvvm.read.ptx.sreg.ctaid.x
  // CHECK: %[[ITEM:.*]] = arith.divui %[[CTA]], %c4_i32
  // CHECK: %[[PART:.*]] = arith.remui %[[CTA]], %c4_i32
  // CHECK: arith.index_castui %[[ITEM]]
  // CHECK: arith.divui %[[PART]], %c2_i32
  // CHECK: arith.remui %[[PART]], %c2_i32
  // CHECK: scf.if
  // CHECK: nvvm.barrier0
  // CHECK: m64n64k16
  func.func @dynamic(%x: memref<?x64xf16>, %w: memref<64x128xf16>, %out: memref<?x128xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %cta = nvvm.read.ptx.sreg.ctaid.x : i32
    %item = arith.index_castui %cta : i32 to index
    %m = memref.dim %x, %c0 : memref<?x64xf16>
    %at = affine.apply affine_map<(i) -> (i * 128)>(%item)
    %rows = affine.min affine_map<(i)[m] -> (i * -128 + m, 128)>(%item)[%m]
    %a = memref.subview %x[%at, 0] [%rows, 64] [1, 1] : memref<?x64xf16> to memref<?x64xf16, strided<[64, 1], offset: ?>>
    %o = memref.subview %out[%at, 0] [%rows, 128] [1, 1] : memref<?x128xf32> to memref<?x128xf32, strided<[128, 1], offset: ?>>
    linalg.matmul ins(%a, %w : memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<64x128xf16>) outs(%o : memref<?x128xf32, strided<[128, 1], offset: ?>>)
    return
  }
}

// -----

// A kernel of one item, which does not read the number of its CTA.
gpu.module @saccade_device {
  // CHECK: func.func @one_item_sm_90a_parts(
  // CHECK: %[[CTA:.*]] = nvvm.read.ptx.sreg.ctaid.x
  // CHECK: arith.remui %[[CTA]], %c4_i32
  func.func @one_item(%x: memref<?x64xf16>, %w: memref<64x128xf16>, %out: memref<?x128xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %m = memref.dim %x, %c0 : memref<?x64xf16>
    %rows = affine.min affine_map<()[m] -> (m, 128)>()[%m]
    %a = memref.subview %x[0, 0] [%rows, 64] [1, 1] : memref<?x64xf16> to memref<?x64xf16, strided<[64, 1]>>
    %o = memref.subview %out[0, 0] [%rows, 128] [1, 1] : memref<?x128xf32> to memref<?x128xf32, strided<[128, 1]>>
    linalg.matmul ins(%a, %w : memref<?x64xf16, strided<[64, 1]>>, memref<64x128xf16>) outs(%o : memref<?x128xf32, strided<[128, 1]>>)
    return
  }
}

// -----

// No second kernel: few rows; an operand in f32; a part of k, after which the stage has other elements; a reader of the
// result at other positions; an operand that the kernel writes; a constant in bytes, whose view begins at any byte.
gpu.module @saccade_device {
  // CHECK-NOT: sm_90a
  func.func @few_rows(%x: memref<32x64xf16>, %w: memref<64x128xf16>, %out: memref<32x128xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%x, %w : memref<32x64xf16>, memref<64x128xf16>) outs(%out : memref<32x128xf32>)
    return
  }
  func.func @wide(%x: memref<128x64xf32>, %w: memref<64x128xf32>, %out: memref<128x128xf32>) attributes {attn.kernel} {
    linalg.matmul ins(%x, %w : memref<128x64xf32>, memref<64x128xf32>) outs(%out : memref<128x128xf32>)
    return
  }
  func.func @part(%x: memref<128x72xf16>, %w: memref<40x128xf16>, %out: memref<128x128xf32>) attributes {attn.kernel} {
    %part = memref.subview %x[0, 0] [128, 40] [1, 1] : memref<128x72xf16> to memref<128x40xf16, strided<[72, 1]>>
    linalg.matmul ins(%part, %w : memref<128x40xf16, strided<[72, 1]>>, memref<40x128xf16>) outs(%out : memref<128x128xf32>)
    return
  }
  func.func @symmetric(%x: memref<128x64xf16>, %w: memref<64x128xf16>, %out: memref<128x128xf32>) attributes {attn.kernel} {
    %zero = arith.constant 0.0 : f32
    %sums = memref.alloc() : memref<128x128xf32>
    linalg.fill ins(%zero : f32) outs(%sums : memref<128x128xf32>)
    linalg.matmul ins(%x, %w : memref<128x64xf16>, memref<64x128xf16>) outs(%sums : memref<128x128xf32>)
    linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n, m)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%sums, %sums : memref<128x128xf32>, memref<128x128xf32>) outs(%out : memref<128x128xf32>) {
      ^bb0(%s: f32, %t: f32, %o: f32):
        %sum = arith.addf %s, %t : f32
        linalg.yield %sum : f32
    }
    return
  }
  memref.global "private" constant @bytes : memref<16448xi8> = dense<1>
  func.func @shifted(%x: memref<128x64xf16>, %out: memref<128x128xf32>) attributes {attn.kernel} {
    %c64 = arith.constant 64 : index
    %bytes = memref.get_global @bytes : memref<16448xi8>
    %w = memref.view %bytes[%c64][] : memref<16448xi8> to memref<64x128xf16>
    linalg.matmul ins(%x, %w : memref<128x64xf16>, memref<64x128xf16>) outs(%out : memref<128x128xf32>)
    return
  }
  func.func @overwritten(%x: memref<128x128xf16>, %w: memref<128x128xf16>) attributes {attn.kernel} {
    linalg.matmul ins(%x, %w : memref<128x128xf16>, memref<128x128xf16>) outs(%x : memref<128x128xf16>)
    return
  }
}
