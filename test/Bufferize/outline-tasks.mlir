// RUN: saccade-opt --attn-outline-tasks --canonicalize %s | FileCheck %s
// RUN: saccade-opt --attn-outline-tasks=gpu --canonicalize %s | FileCheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @iterations_are_counted_row_major(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?xf32>, %[[N:[a-z0-9]+]]: index)
// CHECK-DAG:     %[[ROWS:.*]] = arith.maxsi %[[N]], %c0
// CHECK-DAG:     %[[TILES:.*]] = affine.apply #{{.*}}()[%[[N]]]
// CHECK-DAG:     %[[COLUMNS:.*]] = arith.maxsi %[[TILES]], %c0
// CHECK:         %[[COUNT:.*]] = arith.muli %[[ROWS]], %[[COLUMNS]]
// CHECK:         attn.launch @iterations_are_counted_row_major.loop(%[[X]], %[[ROWS]], %[[COLUMNS]]) count(%[[COUNT]])
// CHECK-SAME:      : (memref<?xf32>, index, index)

// CHECK:       func.func private @iterations_are_counted_row_major.loop(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?xf32>, %[[ROWS:[a-z0-9]+]]: index, %[[COLUMNS:[a-z0-9]+]]: index,
// CHECK-SAME:    %[[BEGIN:[a-z0-9]+]]: index, %[[END:[a-z0-9]+]]: index, %[[SCRATCH:[a-z0-9]+]]: memref<?xi8>) attributes {attn.task}
// CHECK:         scf.for %[[ITEM:.*]] = %[[BEGIN]] to %[[END]] step %c1
// CHECK:           %[[POSITION:.*]]:2 = affine.delinearize_index %[[ITEM]] into (%[[ROWS]], %[[COLUMNS]])
// CHECK:           %[[J:.*]] = affine.apply #{{.*}}(%[[POSITION]]#1)
// CHECK:           %[[PLACE:.*]] = arith.addi %[[POSITION]]#0, %[[J]]
// CHECK:           memref.store %{{.*}}, %[[X]][%[[PLACE]]]
func.func @iterations_are_counted_row_major(%x: memref<?xf32>, %n: index) {
  %one = arith.constant 1.0 : f32
  scf.forall (%i, %j) = (0, 3) to (%n, %n) step (1, 96) {
    %place = arith.addi %i, %j : index
    memref.store %one, %x[%place] : memref<?xf32>
  }
  return
}

// Constants, extents and views are recomputed, not captured.
// CHECK-LABEL: func.func @cheap_ops_are_recomputed(
// CHECK:         attn.launch @cheap_ops_are_recomputed.loop(%{{[a-z0-9]+}}) count(%c12) : (memref<?xf32>)
// CHECK:       func.func private @cheap_ops_are_recomputed.loop(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?xf32>, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: memref<?xi8>)
// CHECK-DAG:     %[[ONE:.*]] = arith.constant 1.0
// CHECK-DAG:     %[[EXTENT:.*]] = memref.dim %[[X]], %c0
// CHECK:         %[[POSITION:.*]]:2 = affine.delinearize_index %{{.*}} into (4, 3)
// CHECK:         %[[J:.*]] = arith.addi %[[POSITION]]#1, %[[EXTENT]]
// CHECK:         memref.store %[[ONE]], %[[X]][%[[J]]]
func.func @cheap_ops_are_recomputed(%x: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.forall (%i, %j) in (4, 3) {
    %place = arith.addi %j, %n : index
    memref.store %one, %x[%place] : memref<?xf32>
  }
  return
}

// CHECK-LABEL: func.func @every_loop_is_a_task(
// CHECK:         attn.launch @every_loop_is_a_task.loop(
// CHECK:         attn.launch @every_loop_is_a_task.loop_2(
func.func @every_loop_is_a_task(%x: memref<8xf32>) {
  %one = arith.constant 1.0 : f32
  scf.forall (%i) in (8) {
    memref.store %one, %x[%i] : memref<8xf32>
  }
  scf.forall (%i) in (8) {
    %y = memref.load %x[%i] : memref<8xf32>
    %z = arith.addf %y, %one : f32
    memref.store %z, %x[%i] : memref<8xf32>
  }
  return
}

// EXAMPLE
// A loop with trip count 0 becomes a task without work items.
// CHECK-LABEL: func.func @loop_without_iterations(
// CHECK:         attn.launch @loop_without_iterations.loop({{.*}}) count(%{{.*}})
// CHECK-LABEL: func.func private @loop_without_iterations.loop(
// CHECK:         scf.for
// CHECK:           memref.store
func.func @loop_without_iterations(%x: memref<4xf32>) {
  %c0 = arith.constant 0.0 : f32
  scf.forall (%i, %j) = (0, 0) to (0, 4) step (1, 1) {
    memref.store %c0, %x[%j] : memref<4xf32>
  }
  return
}

// A task refers to a constant tensor, and to a part of it, instead of capturing it.
// CHECK-LABEL: func.func @constants(
// CHECK:         attn.launch @constants.loop(%arg1, %arg0)
// CHECK-LABEL: func.func private @constants.loop(
// CHECK:         %[[TABLE:.*]] = memref.get_global @table : memref<8xf32>
// CHECK:         %[[PART:.*]] = memref.subview %[[TABLE]][%{{.*}}] [4] [1]
// CHECK:         memref.load %[[PART]]
memref.global "private" constant @table : memref<8xf32> = dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]>
func.func @constants(%x: memref<4xf32>, %from: index) {
  %table = memref.get_global @table : memref<8xf32>
  %part = memref.subview %table[%from] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1], offset: ?>>
  scf.forall (%i) in (4) {
    %y = memref.load %part[%i] : memref<4xf32, strided<[1], offset: ?>>
    memref.store %y, %x[%i] : memref<4xf32>
  }
  return
}

// A task reshapes what it captures, except on a GPU, whose tensor maps describe captures.
// CHECK-LABEL: func.func @reshaped(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?x4xf32>
// CHECK:         attn.launch @reshaped.loop(%[[X]]
// GPU-LABEL: func.func @reshaped(
// GPU:         %[[ROW:.*]] = memref.collapse_shape
// GPU:         attn.launch @reshaped.loop(%[[ROW]],
// GPU-LABEL: func.func private @reshaped.loop(%{{.*}}: memref<?xf32>
// GPU-NOT:     collapse_shape
func.func @reshaped(%x: memref<?x4xf32>, %n: index) {
  %one = arith.constant 1.0 : f32
  %row = memref.collapse_shape %x [[0, 1]] : memref<?x4xf32> into memref<?xf32>
  scf.forall (%i) in (%n) {
    memref.store %one, %row[%i] : memref<?xf32>
  }
  return
}
