// A second kernel with three warpgroups, whose first parameters are tensor maps. The first warpgroup copies boxes to shared
// memory, the others multiply them; the kernel of the task refers to it and stays as it is. Values beyond a length that is
// not that of the tensor could be NaN, so they are cleared. A task that writes something else gets no second kernel. A CTA
// takes one work item after the other; the producer copies the first keys of an item before its queries, which wait for
// the end of the item before.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-attention-sm90))' | FileCheck %s

// EXAMPLE
gpu.module @saccade_device {
  // CHECK: llvm.mlir.global external @saccade_shared_1024() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
  // CHECK: func.func @attend(%{{.*}}: memref<?x64xbf16>, %{{.*}}) attributes {attn.bulk_kernel = "attend_sm_90a", attn.kernel}
  // CHECK: attn.accumulate
  func.func @attend(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x64xbf16>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16>, memref<?x64xbf16>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    return
  }

  // CHECK: func.func @with_length(%{{.*}}) attributes {attn.bulk_kernel = "with_length_sm_90a", attn.kernel}
  func.func @with_length(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %n: index, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16>, memref<?x64xbf16>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    return
  }

  // CHECK: func.func @with_another_result(%{{.*}}) attributes {attn.bulk_obstacle = "another op of the kernel writes memory", attn.kernel}
  func.func @with_another_result(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %n: index, %out: memref<?x64xbf16>, %count: memref<1xindex>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16>, memref<?x64xbf16>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    memref.store %n, %count[%c0] : memref<1xindex>
    return
  }

  // The same, of linalg.
  // CHECK: func.func @attend_and_fill({{.*}}) attributes {attn.bulk_obstacle = "another op of the kernel writes memory", attn.kernel}
  func.func @attend_and_fill(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %out: memref<?x64xbf16>, %ones: memref<8xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x64xbf16>
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16>, memref<?x64xbf16>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    linalg.fill ins(%one : f32) outs(%ones : memref<8xf32>)
    return
  }

  // Split-KV: the state is in memory. No second kernel if there is a fill of other memory, or the accumulator has too few
  // columns for whole fragments.
  // CHECK: func.func @split({{.*}}) attributes {attn.bulk_kernel = "split_sm_90a", attn.kernel}
  // CHECK: func.func @split_and_fill({{.*}}) attributes {attn.bulk_obstacle = "another op of the kernel writes memory", attn.kernel}
  // CHECK: func.func @split_narrow({{.*}}) attributes {attn.bulk_obstacle = "no tensor map describes an operand", attn.kernel}
  func.func @split(%q: memref<?x40xbf16>, %k: memref<?x40xbf16>, %v: memref<?x40xbf16>, %states: memref<?x?x48xf32>, %maxima: memref<?x?xf32>, %sums: memref<?x?xf32>, %rows: index) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x40xbf16>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %item = nvvm.read.ptx.sreg.ctaid.x : i32
    %i = arith.index_castui %item : i32 to index
    %acc = memref.subview %states[%i, 0, 0] [1, %rows, 48] [1, 1, 1] : memref<?x?x48xf32> to memref<?x48xf32, strided<[48, 1], offset: ?>>
    %max = memref.subview %maxima[%i, 0] [1, %rows] [1, 1] : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
    %sum = memref.subview %sums[%i, 0] [1, %rows] [1, 1] : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%acc : memref<?x48xf32, strided<[48, 1], offset: ?>>)
    linalg.fill ins(%none : f32) outs(%max : memref<?xf32, strided<[1], offset: ?>>)
    linalg.fill ins(%zero : f32) outs(%sum : memref<?xf32, strided<[1], offset: ?>>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<?x48xf32, strided<[48, 1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) {schedule = #attn.schedule<rows = 64, cols = 256>, unpacked}
      : (memref<?x40xbf16>, memref<?x40xbf16>, memref<?x40xbf16>)
    return
  }
  func.func @split_and_fill(%q: memref<?x40xbf16>, %k: memref<?x40xbf16>, %v: memref<?x40xbf16>, %states: memref<?x?x48xf32>, %maxima: memref<?x?xf32>, %sums: memref<?x?xf32>, %rows: index, %other: memref<?xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x40xbf16>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %item = nvvm.read.ptx.sreg.ctaid.x : i32
    %i = arith.index_castui %item : i32 to index
    %acc = memref.subview %states[%i, 0, 0] [1, %rows, 48] [1, 1, 1] : memref<?x?x48xf32> to memref<?x48xf32, strided<[48, 1], offset: ?>>
    %max = memref.subview %maxima[%i, 0] [1, %rows] [1, 1] : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
    %sum = memref.subview %sums[%i, 0] [1, %rows] [1, 1] : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%acc : memref<?x48xf32, strided<[48, 1], offset: ?>>)
    linalg.fill ins(%none : f32) outs(%max : memref<?xf32, strided<[1], offset: ?>>)
    linalg.fill ins(%zero : f32) outs(%sum : memref<?xf32, strided<[1], offset: ?>>)
    linalg.fill ins(%zero : f32) outs(%other : memref<?xf32>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<?x48xf32, strided<[48, 1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) {schedule = #attn.schedule<rows = 64, cols = 256>, unpacked}
      : (memref<?x40xbf16>, memref<?x40xbf16>, memref<?x40xbf16>)
    return
  }
  func.func @split_narrow(%q: memref<?x40xbf16>, %k: memref<?x40xbf16>, %v: memref<?x40xbf16>, %states: memref<?x?x40xf32>, %maxima: memref<?x?xf32>, %sums: memref<?x?xf32>, %rows: index) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %k, %c0 : memref<?x40xbf16>
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %item = nvvm.read.ptx.sreg.ctaid.x : i32
    %i = arith.index_castui %item : i32 to index
    %acc = memref.subview %states[%i, 0, 0] [1, %rows, 40] [1, 1, 1] : memref<?x?x40xf32> to memref<?x40xf32, strided<[40, 1], offset: ?>>
    %max = memref.subview %maxima[%i, 0] [1, %rows] [1, 1] : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
    %sum = memref.subview %sums[%i, 0] [1, %rows] [1, 1] : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%acc : memref<?x40xf32, strided<[40, 1], offset: ?>>)
    linalg.fill ins(%none : f32) outs(%max : memref<?xf32, strided<[1], offset: ?>>)
    linalg.fill ins(%zero : f32) outs(%sum : memref<?xf32, strided<[1], offset: ?>>)
    attn.accumulate %q[s,d], %k[s,d], %v[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<?x40xf32, strided<[40, 1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) {schedule = #attn.schedule<rows = 64, cols = 256>, unpacked}
      : (memref<?x40xbf16>, memref<?x40xbf16>, memref<?x40xbf16>)
    return
  }

  // CHECK: func.func @attend_sm_90a(%[[Q:.*]]: !llvm.ptr, %[[K:.*]]: !llvm.ptr, %[[V:.*]]: !llvm.ptr, %{{.*}}: memref<?x64xbf16>
  // CHECK-SAME: , %[[ITEMS:[^:]*]]: i64, %[[COUNTER:[^:]*]]: i64) attributes {attn.family = "sm_90a", attn.item_counter
  // The parameter; bf16 of 2 bytes, swizzle of 128 bytes; two dimensions, columns first; boxes of 64 columns and 128 rows.
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 9, 2, 3, 2, 1, 0, 64, 128>, array<i64: 1, 9, 2, 3, 2, 1, 0, 64, 128>, array<i64: 2, 9, 2, 3, 2, 1, 0, 64, 128>]
  // CHECK-SAME: attn.threads = 384
  // CHECK: %[[COUNT:.*]] = arith.trunci %[[ITEMS]] : i64 to i32
  // CHECK: %[[POINTER:.*]] = llvm.inttoptr %[[COUNTER]] : i64 to !llvm.ptr<1>
  // CHECK: nvvm.mbarrier.init
  // CHECK: nvvm.fence.mbarrier.init
  // CHECK: nvvm.barrier0
  // CHECK: scf.if
  // CHECK: nvvm.setmaxregister decrease 24
  // CHECK: %[[FIRST:.*]] = nvvm.read.ptx.sreg.ctaid.x
  // CHECK: scf.while (%[[ITEM:.*]] = %[[FIRST]],
  // CHECK-NEXT: arith.cmpi ult, %[[ITEM]], %[[COUNT]]
  // CHECK: scf.for
  // CHECK: mbarrier.try_wait
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[K]]
  // CHECK: scf.if
  // CHECK: mbarrier.try_wait
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[Q]]
  // CHECK: mbarrier.try_wait
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[V]]
  // An item without tiles has queries too.
  // CHECK: mbarrier.try_wait
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[Q]]
  // The next item, unless there is a CTA for each.
  // CHECK: %[[CTAS:.*]] = nvvm.read.ptx.sreg.nctaid.x
  // CHECK: arith.cmpi ult, %[[CTAS]], %[[COUNT]]
  // CHECK: %[[TAKEN:.*]] = llvm.atomicrmw add %[[POINTER]], %{{.*}} syncscope("device") monotonic
  // CHECK-NEXT: arith.addi %[[TAKEN]], %[[CTAS]]
  // CHECK: llvm.store %{{.*}} : i32, !llvm.ptr<3>
  // CHECK: mbarrier.arrive
  // CHECK-NOT: attn.
  // CHECK: } else {
  // CHECK: nvvm.setmaxregister increase 240
  // CHECK: scf.while
  // CHECK: mbarrier.try_wait
  // CHECK: scf.for
  // The first tile: Q·Kᵀ and the softmax.
  // CHECK: scf.if
  // CHECK: wgmma.fence.sync.aligned
  // CHECK-SAME: m64n128k16.f32.bf16.bf16
  // CHECK-SAME: wgmma.commit_group.sync.aligned
  // CHECK-NOT: m64n64k16
  // CHECK: wgmma.wait_group.sync.aligned 0
  // CHECK: mbarrier.arrive
  // The others: Q·Kᵀ, P·V of the tile before, and the softmax until the second wait. The mask is a branch.
  // CHECK: } else {
  // CHECK: mbarrier.try_wait
  // CHECK: mbarrier.try_wait
  // CHECK-NOT: scf.if
  // CHECK: m64n128k16.f32.bf16.bf16
  // CHECK-NOT: wgmma.wait_group
  // CHECK: m64n64k16.f32.bf16.bf16
  // CHECK: wgmma.wait_group.sync.aligned 1
  // CHECK: mbarrier.arrive
  // CHECK: scf.if
  // CHECK-NOT: ff2bf16x2.rn
  // CHECK: ex2.approx
  // CHECK-NOT: ff2bf16x2.rn
  // CHECK: wgmma.wait_group.sync.aligned 0
  // CHECK: mbarrier.arrive
  // CHECK: ff2bf16x2.rn
  // CHECK-NOT: nvvm.fence.proxy
  // The weights of the last tile.
  // CHECK: m64n64k16.f32.bf16.bf16
  // CHECK: wgmma.wait_group.sync.aligned 0
  // CHECK: mbarrier.arrive
  // The queries are released after the results, which take their place.
  // CHECK: llvm.store %{{.*}} : vector<4xi32>, !llvm.ptr<1>
  // CHECK: nvvm.fence.proxy
  // CHECK: nvvm.bar.warp.sync
  // CHECK: mbarrier.arrive
  // CHECK: mbarrier.try_wait
  // CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> i32
  // CHECK-NOT: attn.
  // CHECK: func.func @with_length_sm_90a
  // CHECK: llvm.store %{{.*}} : vector<4xi32>, !llvm.ptr<3>
  // CHECK: nvvm.fence.proxy
  // CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %{{.*}}
  // CHECK: m64n64k16.f32.bf16.bf16
  // CHECK: func.func @split_sm_90a
  // CHECK-NOT: func.func
}
