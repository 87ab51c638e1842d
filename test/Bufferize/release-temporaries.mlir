// RUN: saccade-opt --attn-release-temporaries %s | FileCheck %s

func.func private @use(memref<?xf32>)
func.func private @other()

// EXAMPLE
// CHECK-LABEL: func.func @memory_is_freed_after_its_last_use(
// CHECK:         call @use
// CHECK-NEXT:    memref.dealloc %[[MEMORY:.*]] :
// CHECK-NEXT:    call @other
func.func @memory_is_freed_after_its_last_use(%n: index) {
  %memory = memref.alloc(%n) : memref<?xf32>
  call @use(%memory) : (memref<?xf32>) -> ()
  call @other() : () -> ()
  return
}

// CHECK-LABEL: func.func @a_view_keeps_memory_alive(
// CHECK:         call @other
// CHECK-NEXT:    scf.if
// CHECK:         }
// CHECK-NEXT:    memref.dealloc
// CHECK-NEXT:    call @other
func.func @a_view_keeps_memory_alive(%n: index, %c: i1, %x: memref<?xf32>) {
  %memory = memref.alloc() : memref<8xf32>
  %view = memref.cast %memory : memref<8xf32> to memref<?xf32>
  %either = arith.select %c, %view, %x : memref<?xf32>
  call @other() : () -> ()
  scf.if %c {
    func.call @use(%either) : (memref<?xf32>) -> ()
  }
  call @other() : () -> ()
  return
}

// CHECK-LABEL: func.func @a_loop_that_carries_memory_keeps_it_alive(
// CHECK:         scf.for
// CHECK:         }
// CHECK-NEXT:    call @use
// CHECK-NEXT:    memref.dealloc
func.func @a_loop_that_carries_memory_keeps_it_alive(%n: index, %x: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %memory = memref.alloc(%n) : memref<?xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%m = %x) -> memref<?xf32> {
    scf.yield %memory : memref<?xf32>
  }
  call @use(%last) : (memref<?xf32>) -> ()
  call @other() : () -> ()
  return
}

// CHECK-LABEL: func.func @unused_memory_is_freed_at_once(
// CHECK:         memref.alloc
// CHECK-NEXT:    memref.dealloc
func.func @unused_memory_is_freed_at_once() {
  %memory = memref.alloc() : memref<8xf32>
  call @other() : () -> ()
  return
}

// CHECK-LABEL: func.func private @scratch_of_tasks_is_not_freed(
// CHECK-NOT:     memref.dealloc
func.func private @scratch_of_tasks_is_not_freed(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %memory = memref.alloc() : memref<8xf32>
  call @other() : () -> ()
  return
}
