// RUN: saccade-opt %s --attn-lower-state=target=v4 -canonicalize | FileCheck %s

// EXAMPLE
// The accumulator of an empty row may hold NaN, so its output is selected.
// CHECK-LABEL: @empty_row_gives_zero
func.func @empty_row_gives_zero(%acc: memref<24x16xf32>, %max: memref<24xf32>, %sum: memref<24xf32>, %out: memref<?x16xbf16>, %lse: memref<?xf32>) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<16xf32>
  // CHECK: %[[SUM:.*]] = memref.load
  // CHECK: %[[EMPTY:.*]] = arith.cmpf oeq, %[[SUM]]
  // CHECK: %[[ROW:.*]] = arith.select %[[EMPTY]], %[[ZERO]], %{{.*}} : vector<16xf32>
  // CHECK: %[[NARROW:.*]] = arith.truncf %[[ROW]] : vector<16xf32> to vector<16xbf16>
  // CHECK: vector.store %[[NARROW]]
  // CHECK: math.log
  attn.finalize %acc, %max, %sum : memref<24x16xf32>, memref<24xf32>, memref<24xf32> into(%out[s,d] : memref<?x16xbf16>, %lse : memref<?xf32>)
  return
}

// CHECK-LABEL: @merging_rescales_both_states
func.func @merging_rescales_both_states(%a: memref<24x16xf32>, %m: memref<24xf32>, %s: memref<24xf32>, %a2: memref<24x16xf32>, %m2: memref<24xf32>, %s2: memref<24xf32>) {
  // CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
  // CHECK-NOT: attn.merge
  attn.merge (%a2, %m2, %s2) into(%a, %m, %s) : (memref<24x16xf32>, memref<24xf32>, memref<24xf32>, memref<24x16xf32>, memref<24xf32>, memref<24xf32>) -> ()
  return
}

// Bins are divided like the accumulator; positions are copied.
// CHECK-LABEL: @tallies_are_finalized
// CHECK-SAME: %[[BINS:[^ ]*]]: memref<24x3xf32>, %[[AT:[^ ]*]]: memref<24xi64>
func.func @tallies_are_finalized(%acc: memref<24x16xf32>, %max: memref<24xf32>, %sum: memref<24xf32>,
    %bins: memref<24x3xf32>, %at: memref<24xi64>, %out: memref<?x16xf32>, %tally: memref<?x3xf32>, %where: memref<?xi64>) {
  // CHECK: %[[S:.*]] = memref.load %{{.*}}[%[[R:.*]]] : memref<24xf32>
  // CHECK: %[[BIN:.*]] = memref.load %[[BINS]][%[[ROW:.*]], %{{.*}}]
  // CHECK: %[[SHARE:.*]] = arith.mulf %[[BIN]]
  // CHECK: %[[RESULT:.*]] = arith.select %{{.*}}, %{{.*}}, %[[SHARE]] : f32
  // CHECK: memref.store %[[RESULT]], %{{.*}}[%[[ROW]], %{{.*}}] : memref<?x3xf32>
  // CHECK: %[[POSITION:.*]] = memref.load %[[AT]]
  // CHECK: memref.store %[[POSITION]], %{{.*}} : memref<?xi64>
  attn.finalize %acc, %max, %sum : memref<24x16xf32>, memref<24xf32>, memref<24xf32>
    with(%bins, %at : memref<24x3xf32>, memref<24xi64>)
    into(%out[s,d] : memref<?x16xf32>, %tally : memref<?x3xf32>, %where : memref<?xi64>)
  return
}
