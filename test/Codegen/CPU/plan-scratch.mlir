// RUN: saccade-opt --attn-plan-scratch %s | FileCheck %s

// CHECK-LABEL: func.func @launch_gets_scratch_bytes(
// CHECK:         attn.launch @buffers_get_aligned_offsets(%{{.*}}) count(%{{.*}}) scratch(448) : (memref<8xf32>)
// CHECK:         attn.launch @consecutive_loops_share(%{{.*}}) count(%{{.*}}) scratch(384) :
// CHECK:         attn.launch @no_buffers() count(%{{.*}})
func.func @launch_gets_scratch_bytes(%x: memref<8xf32>, %n: index) {
  attn.launch @buffers_get_aligned_offsets(%x) count(%n) : (memref<8xf32>)
  attn.launch @consecutive_loops_share(%x) count(%n) : (memref<8xf32>)
  attn.launch @no_buffers() count(%n)
  return
}

// EXAMPLE
// 25 floats take 100 bytes, the next buffer begins at 128; 300 bfloats end at 192 and 64 are left for the last.
// CHECK-LABEL: func.func private @buffers_get_aligned_offsets(
// CHECK-SAME:    %[[SCRATCH:[a-z0-9]+]]: memref<?xi8>)
// CHECK-DAG:     %[[FIRST:.*]] = arith.constant 0 : index
// CHECK:         %[[A:.*]] = memref.view %[[SCRATCH]][%{{.*}}][] : memref<?xi8> to memref<25xf32>
// CHECK:         %[[AT:.*]] = arith.constant 128 : index
// CHECK:         memref.view %[[SCRATCH]][%[[AT]]][] : memref<?xi8> to memref<16x8xbf16>
// CHECK:         scf.for
// CHECK:           %[[AT:.*]] = arith.constant 384 : index
// CHECK:           %[[C:.*]] = memref.view %[[SCRATCH]][%[[AT]]][] : memref<?xi8> to memref<2xf64>
// CHECK:           memref.store %{{.*}}, %[[C]]
// CHECK-NOT:     memref.dealloc
// CHECK:         return
func.func private @buffers_get_aligned_offsets(%x: memref<8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f64
  %a = memref.alloc() : memref<25xf32>
  %b = memref.alloc() : memref<16x8xbf16>
  scf.for %i = %begin to %end step %c1 {
    %c = memref.alloc() {alignment = 64 : i64} : memref<2xf64>
    memref.store %zero, %c[%c0] : memref<2xf64>
  }
  memref.dealloc %a : memref<25xf32>
  return
}

// CHECK-LABEL: func.func private @consecutive_loops_share(
// CHECK:         %[[OUTER:.*]] = arith.constant 0 : index
// CHECK:         scf.for
// CHECK:           %[[AT:.*]] = arith.constant 128 : index
// CHECK:           memref.view %{{.*}}[%[[AT]]][] : memref<?xi8> to memref<16xf32>
// CHECK:           scf.for
// CHECK:             %[[AT:.*]] = arith.constant 192 : index
// CHECK:             memref.view %{{.*}}[%[[AT]]][] : memref<?xi8> to memref<16xf32>
// CHECK:         scf.for
// CHECK:           %[[AT:.*]] = arith.constant 128 : index
// CHECK:           memref.view %{{.*}}[%[[AT]]][] : memref<?xi8> to memref<64xf32>
func.func private @consecutive_loops_share(%x: memref<8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  %around = memref.alloc() : memref<32xf32>
  scf.for %i = %begin to %end step %c1 {
    %a = memref.alloc() : memref<16xf32>
    scf.for %j = %begin to %end step %c1 {
      %b = memref.alloc() : memref<16xf32>
    }
  }
  scf.for %i = %begin to %end step %c1 {
    %c = memref.alloc() : memref<64xf32>
  }
  return
}

// A buffer that a branch forwards is used after it, so later buffers must not overlap it.
// CHECK-LABEL: func.func private @forwarded_buffers_stay_alive(
// CHECK:         scf.if
// CHECK:           %[[AT:.*]] = arith.constant 0 : index
// CHECK:           memref.view %{{.*}}[%[[AT]]][]
// CHECK:         } else {
// CHECK:           %[[AT:.*]] = arith.constant 64 : index
// CHECK:           memref.view %{{.*}}[%[[AT]]][]
// CHECK:         scf.for
// CHECK:           %[[AT:.*]] = arith.constant 128 : index
// CHECK:           memref.view %{{.*}}[%[[AT]]][]
func.func private @forwarded_buffers_stay_alive(%c: i1, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  %either = scf.if %c -> memref<16xf32> {
    %a = memref.alloc() : memref<16xf32>
    scf.yield %a : memref<16xf32>
  } else {
    %b = memref.alloc() : memref<16xf32>
    scf.yield %b : memref<16xf32>
  }
  scf.for %i = %begin to %end step %c1 {
    %d = memref.alloc() : memref<16xf32>
    memref.copy %either, %d : memref<16xf32> to memref<16xf32>
  }
  return
}

func.func private @no_buffers(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  return
}

// CHECK-LABEL: func.func @buffers_outside_of_tasks_stay(
// CHECK-NEXT:    memref.alloc
func.func @buffers_outside_of_tasks_stay(%n: index) {
  %a = memref.alloc(%n) : memref<?xf32>
  memref.dealloc %a : memref<?xf32>
  return
}
