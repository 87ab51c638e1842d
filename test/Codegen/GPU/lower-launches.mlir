// The host passes 64-bit words: a buffer is its pointer twice, its offset, its sizes and its strides.
// RUN: saccade-opt %s --attn-lower-launches | FileCheck %s

// EXAMPLE
// CHECK-DAG: func.func private @saccade_launch(!llvm.ptr, !llvm.ptr, i64, i64, i64, i64)
// CHECK-DAG: llvm.mlir.global internal constant @saccade.name.fill_task0("fill_task0\00")
// CHECK-LABEL: func.func @fill(
// CHECK-SAME: %[[A:.*]]: memref<?xf32>, %[[X:.*]]: f32, %[[N:.*]]: index)
// CHECK: %[[WORDS:.*]] = memref.alloca() : memref<6xi64>
// CHECK: %{{.*}}, %[[OFFSET:.*]], %[[SIZES:.*]], %[[STRIDES:.*]] = memref.extract_strided_metadata %[[A]]
// CHECK: %[[BITS:.*]] = arith.bitcast %[[X]] : f32 to i32
// CHECK: %[[WORD:.*]] = arith.extui %[[BITS]] : i32 to i64
// CHECK: memref.store %[[WORD]], %[[WORDS]][%{{.*}}]
// CHECK: call @saccade_launch(%{{.*}}, %{{.*}}, %c6_i64, %{{.*}}, %c128_i64, %c1024_i64)
// CHECK-NOT: fill_task0(memref
func.func @fill(%a: memref<?xf32>, %x: f32, %n: index) {
  attn.launch @fill_task0(%a, %x) count(%n) : (memref<?xf32>, f32)
  return
}
func.func private @fill_task0(memref<?xf32>, f32, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "fill_task0"}
gpu.module @saccade_device {
  llvm.func @fill_task0() attributes {attn.kernel, attn.shared_bytes = 1024 : i64} {
    llvm.return
  }
}
