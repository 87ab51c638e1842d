// RUN: saccade-opt %s --attn-lower-linalg=target=v4 --canonicalize --cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-linalg=target=v3 --canonicalize --cse | FileCheck %s --check-prefix=V3

#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
#turned = affine_map<(m, n) -> (n, m)>

// The bias varies along the lanes; the scale is uniform and loaded once before the vector loop.
// CHECK-LABEL: func.func @vectors_and_a_masked_remainder(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?x?xf32>, %[[S:[a-z0-9]+]]: memref<?xf32>,
// CHECK:         scf.for %[[I:.*]] =
// CHECK:           %[[SCALE:.*]] = memref.load %[[S]][%[[I]]]
// CHECK:           scf.for %[[J:.*]] = %{{.*}} to %[[WHOLE:.*]] step %c16
// CHECK:             vector.load %[[X]][%[[I]], %[[J]]] : memref<?x?xf32>, vector<16xf32>
// CHECK:             vector.broadcast %[[SCALE]] : f32 to vector<16xf32>
// CHECK:             vector.store
// CHECK:           scf.if
// CHECK:             %[[MASK:.*]] = arith.cmpi {{.*}} : vector<16xi32>
// CHECK:             vector.maskedload %[[X]][%[[I]], %[[WHOLE]]], %[[MASK]],
// CHECK:             vector.maskedstore {{.*}}, %[[MASK]],
// CHECK-NOT:     linalg.
// V3-LABEL:    func.func @vectors_and_a_masked_remainder(
// V3:            vector.load {{.*}} : memref<?x?xf32>, vector<8xf32>
func.func @vectors_and_a_masked_remainder(%x: memref<?x?xf32>, %s: memref<?xf32>, %b: memref<?xf32>, %y: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [#all, #row, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %s, %b : memref<?x?xf32>, memref<?xf32>, memref<?xf32>) outs(%y : memref<?x?xf32>) {
    ^bb0(%e: f32, %scale: f32, %bias: f32, %o: f32):
      %p = arith.mulf %e, %scale : f32
      %q = arith.addf %p, %bias : f32
      linalg.yield %q : f32
  }
  return
}

// EXAMPLE
// CHECK-LABEL: func.func @known_multiples_need_no_remainder(
// CHECK:         vector.store
// CHECK-NOT:     vector.maskedstore
// CHECK:         return
func.func @known_multiples_need_no_remainder(%y: memref<?x64xf32>, %value: f32) {
  linalg.fill ins(%value : f32) outs(%y : memref<?x64xf32>)
  return
}

// CHECK-LABEL: func.func @sums_have_four_accumulators(
// CHECK:         %[[SUMS:.*]]:4 = scf.for {{.*}} step %c64 iter_args(
// CHECK-COUNT-4:   vector.load
// CHECK:           scf.yield
// CHECK:         %[[FIRST:.*]] = arith.addf %[[SUMS]]#0, %[[SUMS]]#1
// CHECK:         %[[SECOND:.*]] = arith.addf %[[SUMS]]#2, %[[SUMS]]#3
// CHECK:         %[[ALL:.*]] = arith.addf %[[FIRST]], %[[SECOND]]
// CHECK:         %[[TOTAL:.*]] = scf.for {{.*}} step %c16 iter_args({{.*}} = %[[ALL]])
// CHECK:           vector.maskedload
// CHECK:           arith.select
// CHECK:         vector.reduction <add>, %[[TOTAL]] fastmath<reassoc>
// CHECK:         memref.store
func.func @sums_have_four_accumulators(%x: memref<?x?xf32>, %y: memref<?xf32>) {
  linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : memref<?x?xf32>) outs(%y : memref<?xf32>) {
    ^bb0(%e: f32, %o: f32):
      %s = arith.addf %o, %e : f32
      linalg.yield %s : f32
  }
  return
}

// A reduction over rows is elementwise along the columns.
// CHECK-LABEL: func.func @contiguous_loop_is_vectorized(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?x?xf32>, %[[Y:[a-z0-9]+]]: memref<?xf32>)
// CHECK:         scf.for %[[I:.*]] =
// CHECK:           scf.for %[[J:.*]] =
// CHECK-DAG:         vector.load %[[X]][%[[I]], %[[J]]]
// CHECK-DAG:         vector.load %[[Y]][%[[J]]]
// CHECK-NOT:     vector.reduction
// CHECK:         return
func.func @contiguous_loop_is_vectorized(%x: memref<?x?xf32>, %y: memref<?xf32>) {
  linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]}
    ins(%x : memref<?x?xf32>) outs(%y : memref<?xf32>) {
    ^bb0(%e: f32, %o: f32):
      %s = arith.addf %o, %e : f32
      linalg.yield %s : f32
  }
  return
}

// CHECK-LABEL: func.func @dynamic_strides_are_tested_once(
// CHECK:         %[[IS:.*]] = arith.cmpi eq, %{{.*}}, %c1
// CHECK:         scf.if %[[IS]]
// CHECK:           memref.reinterpret_cast {{.*}} to memref<?x?xf32, strided<[?, 1], offset: ?>>
// CHECK:           vector.load
// CHECK:         else
// CHECK-NOT:       vector.
// CHECK:           memref.load
// CHECK:           memref.store
func.func @dynamic_strides_are_tested_once(%x: memref<?x?xf32, strided<[?, ?], offset: ?>>, %y: memref<?x?xf32>) {
  linalg.copy ins(%x : memref<?x?xf32, strided<[?, ?], offset: ?>>) outs(%y : memref<?x?xf32>)
  return
}

// CHECK-LABEL: func.func @transposes_gather_and_store_vectors(
// CHECK:         vector.gather
// CHECK:         vector.store
func.func @transposes_gather_and_store_vectors(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  linalg.transpose ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) permutation = [1, 0]
  return
}

// An i1 is a byte in memory and a bit in a vector.
// CHECK-LABEL: func.func @booleans_are_bytes(
// CHECK:         %[[IS:.*]] = arith.cmpf ogt
// CHECK:         %[[BYTES:.*]] = arith.extui %[[IS]] : vector<16xi1> to vector<16xi8>
// CHECK:         llvm.store %[[BYTES]]
func.func @booleans_are_bytes(%x: memref<?xf32>, %y: memref<?xi1>) {
  %zero = arith.constant 0.0 : f32
  linalg.map ins(%x : memref<?xf32>) outs(%y : memref<?xi1>)
    (%e: f32, %o: i1) {
      %is = arith.cmpf ogt, %e, %zero : f32
      linalg.yield %is : i1
    }
  return
}

// Positions are compared without 64-bit vectors; converting a position to float takes one vector addition.
// CHECK-LABEL: func.func @positions_stay_scalars(
// CHECK-NOT:     vector<16xindex>
// CHECK-NOT:     vector<16xi64>
// CHECK:         arith.cmpi {{.*}} : vector<16xi32>
// CHECK:         arith.sitofp {{.*}} : i32 to f32
// CHECK:         arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT:     vector<16xindex>
// CHECK-NOT:     vector<16xi64>
// CHECK:         return
func.func @positions_stay_scalars(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
    ^bb0(%e: f32, %o: f32):
      %zero = arith.constant 0.0 : f32
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %causal = arith.cmpi sle, %j, %i : index
      %distance = arith.subi %j, %i : index
      %d32 = arith.index_cast %distance : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %b = arith.addf %e, %df : f32
      %r = arith.select %causal, %b, %zero : f32
      linalg.yield %r : f32
  }
  return
}

// CHECK-LABEL: func.func @reads_are_vectorized(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: memref<?x?xf32>, %[[K:[a-z0-9]+]]: index
// Lanes beyond the end of the row are masked.
// CHECK-DAG:     vector.maskedload {{.*}} into vector<16xf32>
// CHECK-DAG:     vector.gather
func.func @reads_are_vectorized(%t: memref<?x?xf32>, %k: index, %y: memref<?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%y : memref<?xf32>) {
    ^bb0(%o: f32):
      %i = linalg.index 0 : index
      %shifted = arith.addi %i, %k : index
      %along = memref.load %t[%k, %shifted] : memref<?x?xf32>
      %across = memref.load %t[%i, %k] : memref<?x?xf32>
      %s = arith.addf %along, %across : f32
      linalg.yield %s : f32
  }
  return
}

// CHECK-LABEL: func.func @control_flow_is_scalar(
// CHECK:         memref.load
// CHECK-NEXT:    arith.cmpf
// CHECK-NEXT:    scf.if
// CHECK:         memref.store
func.func @control_flow_is_scalar(%x: memref<?xf32>, %y: memref<?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.map ins(%x : memref<?xf32>) outs(%y : memref<?xf32>)
    (%e: f32, %o: f32) {
      %is = arith.cmpf ogt, %e, %zero : f32
      %r = scf.if %is -> f32 {
        %root = math.sqrt %e : f32
        scf.yield %root : f32
      } else {
        scf.yield %e : f32
      }
      linalg.yield %r : f32
    }
  return
}

// CHECK-LABEL: func.func @matmuls_are_left(
// CHECK:         linalg.matmul
func.func @matmuls_are_left(%a: memref<?x?xf32>, %b: memref<?x?xf32>, %c: memref<?x?xf32>) {
  linalg.matmul ins(%a, %b : memref<?x?xf32>, memref<?x?xf32>) outs(%c : memref<?x?xf32>)
  return
}
