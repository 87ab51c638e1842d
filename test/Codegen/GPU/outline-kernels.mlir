// A task becomes a kernel, its items become CTAs, and narrow captures are widened to 64 bits.
// RUN: saccade-opt %s --attn-outline-kernels | FileCheck %s

// CHECK-LABEL: func.func @fill(
// CHECK: attn.launch @fill.body_task0(%{{.*}}, %{{.*}}) count(%{{.*}})
func.func @fill(%a: memref<?xf32>, %x: f32, %n: index) {
  attn.launch @fill.body_task0(%a, %x) count(%n) : (memref<?xf32>, f32)
  return
}

// EXAMPLE
// CHECK: func.func private @fill.body_task0(memref<?xf32>, f32, index, index, memref<?xi8>)
// CHECK-SAME: attn.kernel = "fill_body_task0"
func.func private @fill.body_task0(%a: memref<?xf32>, %x: f32, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  scf.for %i = %begin to %end step %c1 {
    memref.store %x, %a[%i] : memref<?xf32>
  }
  return
}

// CHECK: gpu.module @saccade_device
// CHECK: func.func @fill_body_task0(%[[A:.*]]: memref<?xf32>, %[[WORD:.*]]: i64) attributes {attn.kernel}
// CHECK: %[[BITS:.*]] = arith.trunci %[[WORD]] : i64 to i32
// CHECK: %[[X:.*]] = arith.bitcast %[[BITS]] : i32 to f32
// CHECK: %[[CTA:.*]] = nvvm.read.ptx.sreg.ctaid.x : i32
// CHECK: %[[ITEM:.*]] = arith.index_castui %[[CTA]] : i32 to index
// CHECK-NOT: scf.for
// CHECK: memref.store %[[X]], %[[A]][%[[ITEM]]]

// The constants that kernels read are copied to the device module, once.
// CHECK: func.func @constant_body_task0(
// CHECK: memref.get_global @table : memref<4xf32>
// CHECK: memref.global "private" constant @table : memref<4xf32> = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]>
// CHECK-NOT: memref.global
memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
func.func private @constant.body_task0(%a: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  %table = memref.get_global @table : memref<4xf32>
  scf.for %i = %begin to %end step %c1 {
    %x = memref.load %table[%i] : memref<4xf32>
    memref.store %x, %a[%i] : memref<4xf32>
  }
  return
}
func.func private @constant.body_task1(%a: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  %table = memref.get_global @table : memref<4xf32>
  scf.for %i = %begin to %end step %c1 {
    %x = memref.load %table[%i] : memref<4xf32>
    memref.store %x, %a[%i] : memref<4xf32>
  }
  return
}
