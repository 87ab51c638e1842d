// A kernel whose CTAs take work items from a counter gets a CTA for each multiprocessor, or as many as its `minctasm` says, or
// one for each item if these are fewer. The number of items and the counter are its last words; the counter exists only if there are fewer CTAs than
// items, and is released after the launch. The other kernel of the task has a CTA for each item and none of these words.
// RUN: saccade-opt %s --attn-lower-launches | FileCheck %s

// EXAMPLE
// CHECK-LABEL: func.func @fill(
// CHECK-SAME: %{{.*}}: memref<?xf32>, %[[N:.*]]: index)
// CHECK: memref.alloca() {alignment = 64 : i64} : memref<23xi64>
// CHECK: call @saccade_encode_tensor_map
// CHECK: scf.if
// CHECK: %[[ITEMS:.*]] = arith.index_cast %[[N]] : index to i64
// CHECK: %[[LIMIT:.*]] = func.call @saccade_multiprocessors() : () -> i64
// CHECK: %[[SHARED:.*]] = arith.cmpi slt, %[[LIMIT]], %[[ITEMS]]
// CHECK: %[[COUNTER:.*]] = scf.if %[[SHARED]] -> (!llvm.ptr)
// CHECK-NEXT: func.call @saccade_device_counter()
// CHECK: llvm.mlir.zero
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[WORDS:.*]][21]
// CHECK-NEXT: llvm.store %[[ITEMS]], %[[AT]]
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[WORDS]][22]
// CHECK-NEXT: llvm.store %[[COUNTER]], %[[AT]]
// CHECK: %[[CTAS:.*]] = arith.minsi %[[ITEMS]], %[[LIMIT]]
// CHECK: func.call @saccade_launch(%{{.*}}, %[[WORDS]], %c23_i64{{.*}}, %[[CTAS]], %c384_i64
// CHECK: func.call @saccade_device_release(%[[COUNTER]])
// CHECK: } else {
// CHECK: %[[ALL:.*]] = arith.index_cast %[[N]] : index to i64
// CHECK: func.call @saccade_launch(%{{.*}}, %{{.*}}, %c5_i64{{.*}}, %[[ALL]], %c128_i64
func.func @fill(%a: memref<?xf32>, %n: index) {
  attn.launch @fill_task0(%a) count(%n) : (memref<?xf32>)
  return
}
func.func private @fill_task0(memref<?xf32>, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "fill_task0"}

// CHECK-LABEL: func.func @pair(
// CHECK: %[[MULTIPROCESSORS:.*]] = func.call @saccade_multiprocessors() : () -> i64
// CHECK: %[[LIMIT:.*]] = arith.muli %[[MULTIPROCESSORS]], %c2_i64
// CHECK: %[[CTAS:.*]] = arith.minsi %{{.*}}, %[[LIMIT]]
// CHECK: func.call @saccade_launch(%{{.*}}, %c23_i64{{.*}}, %[[CTAS]], %c160_i64
func.func @pair(%a: memref<?xf32>, %n: index) {
  attn.launch @pair_task0(%a) count(%n) : (memref<?xf32>)
  return
}
func.func private @pair_task0(memref<?xf32>, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "pair_task0"}
gpu.module @saccade_device {
  llvm.func @pair_task0() attributes {attn.kernel, attn.bulk_kernel = "pair_task0_sm_90a"} {
    llvm.return
  }
  llvm.func @pair_task0_sm_90a() attributes {attn.kernel, attn.item_counter, attn.threads = 160 : i64, nvvm.minctasm = 2 : i32, attn.tensor_maps = [array<i64: 0, 9, 2, 3, 1, 0, 64>]} {
    llvm.return
  }
  llvm.func @fill_task0() attributes {attn.kernel, attn.bulk_kernel = "fill_task0_sm_90a"} {
    llvm.return
  }
  llvm.func @fill_task0_sm_90a() attributes {attn.kernel, attn.item_counter, attn.threads = 384 : i64, attn.tensor_maps = [array<i64: 0, 9, 2, 3, 1, 0, 64>]} {
    llvm.return
  }
}
