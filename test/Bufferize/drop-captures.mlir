// RUN: saccade-opt %s --attn-drop-captures | FileCheck %s

// Unused captures are removed; the range of work items and the scratch argument are kept even if unused.
// CHECK-LABEL: func.func @half(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>
// CHECK-NEXT:    attn.launch @half_task0(%[[Y]]) count(%{{.*}}) : (memref<?xf32>)
// CHECK-NEXT:    attn.launch @half_task0(%[[X]]) count(%{{.*}}) : (memref<?xf32>)
// CHECK-NEXT:    attn.launch @half_task1(%[[X]]) count(%{{.*}}) : (memref<?xf32>)
func.func @half(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  attn.launch @half_task0(%x, %y, %n) count(%n) : (memref<?xf32>, memref<?xf32>, index)
  attn.launch @half_task0(%y, %x, %n) count(%n) : (memref<?xf32>, memref<?xf32>, index)
  attn.launch @half_task1(%x) count(%n) : (memref<?xf32>)
  return
}

// EXAMPLE
// CHECK: func.func private @half_task0(%{{.*}}: memref<?xf32>, %{{.*}}: index, %{{.*}}: index, %{{.*}}: memref<?xi8>)
func.func private @half_task0(%x: memref<?xf32>, %y: memref<?xf32>, %n: index, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %one = arith.constant 1.0 : f32
  memref.store %one, %y[%begin] : memref<?xf32>
  return
}
// CHECK: func.func private @half_task1(%{{.*}}: memref<?xf32>, %{{.*}}: index, %{{.*}}: index, %{{.*}}: memref<?xi8>)
func.func private @half_task1(%x: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %one = arith.constant 1.0 : f32
  memref.store %one, %x[%begin] : memref<?xf32>
  return
}
