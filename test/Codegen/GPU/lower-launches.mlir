// The host passes 64-bit words: a buffer is its pointer twice, its offset, its sizes and its strides.
// RUN: saccade-opt %s --attn-lower-launches | FileCheck %s

// EXAMPLE
// CHECK-DAG: func.func private @saccade_launch(!llvm.ptr, !llvm.ptr, i64, i64, i64, i64)
// CHECK-DAG: llvm.mlir.global internal constant @saccade.name.fill_task0("fill_task0\00")
// The kernels of @divided have equal plans, which are one constant.
// CHECK-DAG: llvm.mlir.global internal constant @[[PLAN:saccade.plan.*]](dense<[6, 2, 3, 1, 0, 64]> : tensor<6xi64>)
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
  llvm.func @multiply_task0() attributes {attn.kernel, attn.bulk_kernel = "multiply_task0_sm_90a"} {
    llvm.return
  }
  llvm.func @multiply_task0_sm_90a() attributes {attn.kernel, attn.equal_extents = array<i64: 0, 1, 1, 0, 2, -1>, attn.tensor_maps = [array<i64: 0, 6, 2, 3, 2, 1, 0, 64, 128>], attn.threads = 288 : i64} {
    llvm.return
  }
  llvm.func @weights_task0() attributes {attn.kernel, attn.bulk_kernel = "weights_task0_sm_90a"} {
    llvm.return
  }
  llvm.func @weights_task0_sm_90a() attributes {attn.kernel, attn.mapped_constants = [[@__constant_64x128xf16, memref<64x128xf16, strided<[128, 1], offset: 8>>]], attn.tensor_maps = [array<i64: -1, 6, 2, 3, 2, 1, 0, 64, 64>]} {
    llvm.return
  }
  llvm.func @divided_task0() attributes {attn.kernel, attn.bulk_kernel = "divided_task0_sm_90a"} {
    llvm.return
  }
  llvm.func @divided_task0_sm_90a() attributes {attn.kernel, attn.bulk_kernel = "divided_task0_sm_90a_parts", attn.tensor_maps = [array<i64: 0, 6, 2, 3, 1, 0, 64>], attn.threads = 288 : i64} {
    llvm.return
  }
  llvm.func @divided_task0_sm_90a_parts() attributes {attn.few_items, attn.kernel, attn.parts = 4 : i64, attn.tensor_maps = [array<i64: 0, 6, 2, 3, 1, 0, 64>], attn.threads = 160 : i64} {
    llvm.return
  }
}

// The kernel with tensor maps is launched if they can be made and extents are equal: of two buffers, and a number.
// CHECK-LABEL: func.func @multiply(
// CHECK-SAME: %[[A:.*]]: memref<?x?xf16>, %[[B:.*]]: memref<?x?xf16>, %[[K:.*]]: index, %[[N:.*]]: index)
// CHECK: %[[MADE:.*]] = call @saccade_encode_tensor_map
// CHECK: %[[IS_MADE:.*]] = arith.cmpi ne, %[[MADE]]
// CHECK: %[[KA:.*]] = memref.dim %[[A]], %c1
// CHECK: %[[KB:.*]] = memref.dim %[[B]], %c0
// CHECK: %[[SAME:.*]] = arith.cmpi eq, %[[KA]], %[[KB]]
// CHECK: %[[BOTH:.*]] = arith.andi %[[IS_MADE]], %[[SAME]]
// CHECK: %[[KA2:.*]] = memref.dim %[[A]], %c1
// CHECK: %[[SAME2:.*]] = arith.cmpi eq, %[[KA2]], %[[K]]
// CHECK: %[[ALL:.*]] = arith.andi %[[BOTH]], %[[SAME2]]
// CHECK: scf.if %[[ALL]]
// CHECK: call @saccade_launch({{.*}}, %c288_i64, %c0_i64
// CHECK: call @saccade_launch({{.*}}, %c128_i64, %c0_i64
func.func @multiply(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %k: index, %n: index) {
  attn.launch @multiply_task0(%a, %b, %k) count(%n) : (memref<?x?xf16>, memref<?x?xf16>, index)
  return
}
func.func private @multiply_task0(memref<?x?xf16>, memref<?x?xf16>, index, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "multiply_task0"}

// A tensor map of a constant is made from the address of the constant in the device module and its type.
// CHECK-LABEL: func.func @weights(
// CHECK: %[[BUFFER:.*]] = memref.alloca() : memref<7xi64>
// CHECK: %[[NAME:.*]] = llvm.mlir.addressof @saccade.name.__constant_64x128xf16
// CHECK: %[[FOUND:.*]] = call @saccade_device_constant(%[[NAME]]) : (!llvm.ptr) -> !llvm.ptr
// CHECK: %[[ADDRESS:.*]] = llvm.ptrtoint %[[FOUND]]
// CHECK: %[[OFFSET:.*]] = arith.constant 8 : i64
// CHECK: memref.store %[[ADDRESS]], %[[BUFFER]]
// CHECK: memref.store %[[ADDRESS]], %[[BUFFER]]
// CHECK: memref.store %[[OFFSET]], %[[BUFFER]]
// CHECK: %[[TO:.*]] = memref.extract_aligned_pointer_as_index %[[BUFFER]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[TO]]
// CHECK: %[[POINTER:.*]] = llvm.inttoptr %[[WORD]]
// CHECK: call @saccade_encode_tensor_map(%{{.*}}, %[[POINTER]], %{{.*}})
func.func @weights(%a: memref<?xf16>, %n: index) {
  attn.launch @weights_task0(%a) count(%n) : (memref<?xf16>)
  return
}
func.func private @weights_task0(memref<?xf16>, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "weights_task0"}

// A kernel that divides items into four parts is launched if there are fewer items than multiprocessors, and its maps can be made; else the
// one that refers to it, with its own maps in the same place, else that of the task.
// CHECK-LABEL: func.func @divided(
// CHECK-SAME: %{{.*}}: memref<?xf16>, %[[N:.*]]: index)
// CHECK: %[[WORDS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<21xi64>
// CHECK: %[[ITEMS:.*]] = arith.index_cast %[[N]]
// CHECK: %[[LIMIT:.*]] = call @saccade_multiprocessors()
// CHECK: %[[FEW:.*]] = arith.cmpi slt, %[[ITEMS]], %[[LIMIT]]
// CHECK: %[[DIVIDED:.*]] = scf.if %[[FEW]] -> (i1)
// CHECK: llvm.mlir.addressof @[[PLAN]] :
// CHECK: func.call @saccade_encode_tensor_map
// CHECK: scf.yield %false
// CHECK: scf.if %[[DIVIDED]]
// CHECK: %[[PARTS:.*]] = arith.muli %{{.*}}, %c4_i64
// CHECK: llvm.mlir.addressof @saccade.name.divided_task0_sm_90a_parts
// CHECK: func.call @saccade_launch(%{{.*}}, %{{.*}}, %c21_i64{{.*}}, %[[PARTS]], %c160_i64
// CHECK: } else {
// CHECK: llvm.mlir.addressof @[[PLAN]] :
// CHECK: func.call @saccade_encode_tensor_map
// CHECK: scf.if
// CHECK: llvm.mlir.addressof @saccade.name.divided_task0_sm_90a :
// CHECK: func.call @saccade_launch(%{{.*}}, %{{.*}}, %c21_i64{{.*}}, %c288_i64
// CHECK: } else {
// CHECK: llvm.mlir.addressof @saccade.name.divided_task0 :
// CHECK: func.call @saccade_launch(%{{.*}}, %{{.*}}, %c5_i64{{.*}}, %c128_i64
func.func @divided(%a: memref<?xf16>, %n: index) {
  attn.launch @divided_task0(%a) count(%n) : (memref<?xf16>)
  return
}
func.func private @divided_task0(memref<?xf16>, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "divided_task0"}
