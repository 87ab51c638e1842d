// Keys and values in pages, whose number of rows is known in a call only. A lane of the producer's warp loads the entry of the
// page table for a box, if the box has rows of the sequence, and one lane issues the copies of all boxes. Values after the
// last key of the sequence are cleared. Pages of a number of rows that is not a multiple of eight, and tiles that do not
// start at a multiple of the rows of a box, have no second kernel.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-attention-sm90))' | FileCheck %s

gpu.module @saccade_device {
  // CHECK: func.func @attend(%{{.*}}) attributes {attn.bulk_kernel = "attend_sm_90a", attn.kernel}
  // CHECK: attn.load_pages
  func.func @attend(%q: memref<?x64xbf16>, %pool: memref<?x?x64xbf16>, %table: memref<?xi32>, %n: index, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    %memory = memref.alloc() : memref<16384x64xbf16>
    %k = memref.subview %memory[0, 0] [%n, 64] [1, 1] : memref<16384x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
    attn.load_pages %pool[b,s,d], %table from %c0 into(%k) : (memref<?x?x64xbf16>, memref<?xi32>, index, memref<?x64xbf16, strided<[64, 1]>>) -> ()
    attn.accumulate %q[s,d], %k[s,d], %k[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16, strided<[64, 1]>>, memref<?x64xbf16, strided<[64, 1]>>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    return
  }

  // CHECK: func.func @pages_of_12(%{{.*}}) attributes {attn.bulk_obstacle = "the number of keys of a page is not a multiple of eight", attn.kernel}
  func.func @pages_of_12(%q: memref<?x64xbf16>, %pool: memref<?x12x64xbf16>, %table: memref<?xi32>, %n: index, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    %memory = memref.alloc() : memref<16384x64xbf16>
    %k = memref.subview %memory[0, 0] [%n, 64] [1, 1] : memref<16384x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
    attn.load_pages %pool[b,s,d], %table from %c0 into(%k) : (memref<?x12x64xbf16>, memref<?xi32>, index, memref<?x64xbf16, strided<[64, 1]>>) -> ()
    attn.accumulate %q[s,d], %k[s,d], %k[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %c0)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16, strided<[64, 1]>>, memref<?x64xbf16, strided<[64, 1]>>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    return
  }

  // CHECK: func.func @at_another_position(%{{.*}}) attributes {attn.bulk_obstacle = "tiles of keys start at any position of a page", attn.kernel}
  func.func @at_another_position(%q: memref<?x64xbf16>, %pool: memref<?x16x64xbf16>, %table: memref<?xi32>, %n: index, %first: index, %out: memref<?x64xbf16>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %none = arith.constant 0xFF800000 : f32
    %acc = memref.alloc() : memref<128x64xf32>
    linalg.fill ins(%zero : f32) outs(%acc : memref<128x64xf32>)
    %max = memref.alloc() : memref<128xf32>
    linalg.fill ins(%none : f32) outs(%max : memref<128xf32>)
    %sum = memref.alloc() : memref<128xf32>
    linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32>)
    %memory = memref.alloc() : memref<16384x64xbf16>
    %k = memref.subview %memory[0, 0] [%n, 64] [1, 1] : memref<16384x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
    attn.load_pages %pool[b,s,d], %table from %c0 into(%k) : (memref<?x16x64xbf16>, memref<?xi32>, index, memref<?x64xbf16, strided<[64, 1]>>) -> ()
    attn.accumulate %q[s,d], %k[s,d], %k[s,d] q_len(%n : index) kv_len(%n : index) at(%c0, %c0, %c0, %first)
      into(%acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32>)
      : (memref<?x64xbf16>, memref<?x64xbf16, strided<[64, 1]>>, memref<?x64xbf16, strided<[64, 1]>>)
    attn.finalize %acc, %max, %sum : memref<128x64xf32>, memref<128xf32>, memref<128xf32> into(%out[s,d] : memref<?x64xbf16>)
    return
  }

  // The boxes of keys have as many rows as a power of two that divides 128 and a page.
  // CHECK: func.func @attend_sm_90a(
  // CHECK-SAME: attn.family = "sm_90a, in pages"
  // CHECK-SAME: attn.tensor_maps = [array<i64: 0, 9, 2, 3, 2, 1, 0, 64, 128>, array<i64: 1, 9, 2, 3, 3, 2, 1, 0, 64, -128, 1>, array<i64: 1, 9, 2, 3, 3, 2, 1, 0, 64, -128, 1>]
  // CHECK-NOT: attn.load_pages
  // CHECK: nvvm.setmaxregister decrease 40
  // CHECK: %[[PAGE:.*]] = scf.if
  // CHECK: memref.load
  // CHECK: } else {
  // CHECK-NEXT: arith.constant -1
  // CHECK: nvvm.mbarrier.arrive.expect_tx
  // CHECK: scf.for
  // CHECK: nvvm.shfl.sync idx
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
  // CHECK: nvvm.setmaxregister increase 232
  // CHECK-NOT: func.func
}
