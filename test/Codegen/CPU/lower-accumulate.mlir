// RUN: saccade-opt %s --attn-lower-accumulate=target=v4 -canonicalize -cse | FileCheck %s

#tile = strided<[?, ?], offset: ?>

// CHECK-LABEL: @a_step_is_pack_scores_softmax_values
func.func @a_step_is_pack_scores_softmax_values(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // Queries in rows, keys in panels of 32 lanes, values in rows, the scores of twelve queries.
  // CHECK-DAG: memref.alloc() {{.*}} : memref<384x64xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<16x64x32xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<512x64xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<12x528xf32>
  // Keys are turned a register block at a time.
  // CHECK-COUNT-64: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
  // Scores: 24 accumulators.
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
  // CHECK: vector.fma
  // Softmax: our own exponential.
  // CHECK-NOT: math.exp
  // CHECK: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
  // CHECK-NOT: attn.accumulate
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// A mask that is a range of keys is a comparison of lane numbers; its region is not evaluated.
// CHECK-LABEL: @a_causal_mask_is_a_range
func.func @a_causal_mask_is_a_range(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK-NOT: arith.cmpi {{.*}} : vector<16x
  // CHECK: vector.create_mask
  // CHECK-NOT: arith.cmpi {{.*}} : vector<16x
  // CHECK: return
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      mask causal<top_left>
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// Any other mask is evaluated in the lanes that may be visible.
// CHECK-LABEL: @another_mask_is_evaluated
func.func @another_mask_is_evaluated(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: arith.remsi %{{.*}} : vector<16x
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      mask(%b, %h, %i, %j) {
        %two = arith.constant 2 : index
        %zero = arith.constant 0 : index
        %odd = arith.remsi %j, %two : index
        %even = arith.cmpi eq, %odd, %zero : index
        attn.yield %even : i1
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}
