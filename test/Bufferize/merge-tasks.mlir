// RUN: saccade-opt %s --attn-merge-tasks | FileCheck %s

// Equal tasks are merged into the first of them; tasks that differ in a constant, a type or the order of ops are kept.
// CHECK-LABEL: func.func @layers(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>, %[[Z:[a-z0-9]*]]: memref<?xf64>
// CHECK-NEXT:    attn.launch @layers_task0(%[[X]]) count(%{{.*}}) : (memref<?xf32>)
// CHECK-NEXT:    attn.launch @layers_task0(%[[Y]]) count(%{{.*}}) : (memref<?xf32>)
// CHECK-NEXT:    attn.launch @layers_task2(%[[Y]]) count(%{{.*}}) : (memref<?xf32>)
// CHECK-NEXT:    attn.launch @layers_task3(%[[Z]]) count(%{{.*}}) : (memref<?xf64>)
func.func @layers(%x: memref<?xf32>, %y: memref<?xf32>, %z: memref<?xf64>, %n: index) {
  attn.launch @layers_task0(%x) count(%n) : (memref<?xf32>)
  attn.launch @layers_task1(%y) count(%n) : (memref<?xf32>)
  attn.launch @layers_task2(%y) count(%n) : (memref<?xf32>)
  attn.launch @layers_task3(%z) count(%n) : (memref<?xf64>)
  return
}

// EXAMPLE
// CHECK:     func.func private @layers_task0(
// CHECK-NOT: @layers_task1
// CHECK:     func.func private @layers_task2(
// CHECK:     func.func private @layers_task3(
func.func private @layers_task0(%x: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %one = arith.constant 1.0 : f32
  memref.store %one, %x[%begin] : memref<?xf32>
  return
}
func.func private @layers_task1(%other: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c = arith.constant 1.0 : f32
  memref.store %c, %other[%begin] : memref<?xf32>
  return
}
func.func private @layers_task2(%x: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %one = arith.constant 2.0 : f32
  memref.store %one, %x[%begin] : memref<?xf32>
  return
}
func.func private @layers_task3(%x: memref<?xf64>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %one = arith.constant 1.0 : f64
  memref.store %one, %x[%begin] : memref<?xf64>
  return
}
