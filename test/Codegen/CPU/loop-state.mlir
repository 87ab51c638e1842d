// RUN: saccade-opt %s --attn-lower-accumulate=target=v4 --attn-lower-state=target=v4 -canonicalize -cse | FileCheck %s

#tile = strided<[?, ?], offset: ?>

// This state is local to the loop: the first step does not read the accumulator, the last one finalizes each group of rows.
// CHECK-LABEL: @state_is_local_to_loop
// CHECK-SAME: %[[BEGIN:[^:,]*]]: index, %[[END:[^:,]*]]: index)
func.func @state_is_local_to_loop(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %o: memref<?x64xbf16, strided<[64, 1], offset: ?>>,
    %begin: index, %end: index) {
  %zero = arith.constant 0.0 : f32
  %minusInfinity = arith.constant 0xFF800000 : f32
  %c512 = arith.constant 512 : index
  %acc = memref.alloc() : memref<384x64xf32>
  %max = memref.alloc() : memref<384xf32>
  %sum = memref.alloc() : memref<384xf32>
  // CHECK-NOT: linalg.fill {{.*}} memref<384x64xf32>
  linalg.fill ins(%zero : f32) outs(%acc : memref<384x64xf32>)
  linalg.fill ins(%minusInfinity : f32) outs(%max : memref<384xf32>)
  linalg.fill ins(%zero : f32) outs(%sum : memref<384xf32>)
  // CHECK: scf.for %[[TILE:.*]] = %[[BEGIN]] to %[[END]] step %{{.*}} {
  scf.for %tile = %begin to %end step %c512 {
    // CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[TILE]], %[[BEGIN]]
    // CHECK: %[[NEXT:.*]] = arith.addi %[[TILE]], %c512
    // CHECK: %[[LAST:.*]] = arith.cmpi sge, %[[NEXT]], %[[END]]
    // CHECK: scf.if %[[FIRST]] {
    // CHECK-NOT: vector.load {{.*}} memref<384x64xf32>
    // CHECK: vector.store {{.*}} memref<384x64xf32>
    // CHECK: } else {
    // CHECK: vector.load {{.*}} memref<384x64xf32>
    // CHECK: vector.fma
    // CHECK: scf.if %[[LAST]] {
    // CHECK: scf.for
    // CHECK-COUNT-4: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
    attn.accumulate %q[s,d], %k[s,d], %k[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  }
  // The code after the loop finalizes the remaining rows.
  // CHECK: %[[HADSTEPS:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]]
  // CHECK: %[[DONE:.*]] = arith.select %[[HADSTEPS]], %{{.*}}, %c0
  // CHECK: scf.for %{{.*}} = %[[DONE]] to
  attn.finalize %acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32> into(%o[s,d] : memref<?x64xbf16, strided<[64, 1], offset: ?>>)
      {schedule = #attn.schedule<rows = 384, cols = 512>}
  return
}

// This state is merged with another, so it must be complete after the loop.
// CHECK-LABEL: @state_with_other_users
func.func @state_with_other_users(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %o: memref<?x64xbf16, strided<[64, 1], offset: ?>>,
    %acc2: memref<384x64xf32>, %max2: memref<384xf32>, %sum2: memref<384xf32>, %begin: index, %end: index) {
  %zero = arith.constant 0.0 : f32
  %minusInfinity = arith.constant 0xFF800000 : f32
  %c512 = arith.constant 512 : index
  %acc = memref.alloc() : memref<384x64xf32>
  %max = memref.alloc() : memref<384xf32>
  %sum = memref.alloc() : memref<384xf32>
  // CHECK: linalg.fill {{.*}} memref<384x64xf32>
  linalg.fill ins(%zero : f32) outs(%acc : memref<384x64xf32>)
  linalg.fill ins(%minusInfinity : f32) outs(%max : memref<384xf32>)
  linalg.fill ins(%zero : f32) outs(%sum : memref<384xf32>)
  scf.for %tile = %begin to %end step %c512 {
    // CHECK-NOT: arith.truncf
    // CHECK: llvm.x86.avx512.mask.scalef
    attn.accumulate %q[s,d], %k[s,d], %k[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  }
  attn.merge (%acc2, %max2, %sum2) into(%acc, %max, %sum) : (memref<384x64xf32>, memref<384xf32>, memref<384xf32>, memref<384x64xf32>, memref<384xf32>, memref<384xf32>) -> ()
  // CHECK: arith.truncf
  attn.finalize %acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32> into(%o[s,d] : memref<?x64xbf16, strided<[64, 1], offset: ?>>)
      {schedule = #attn.schedule<rows = 384, cols = 512>}
  return
}

// Values in the compute type with contiguous rows need no packing; this is tested at run time.
// CHECK-LABEL: @unpacked_values
func.func @unpacked_values(%q: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: scf.if %{{.*}} -> (memref<?x64xf32, strided<[64, 1], offset: ?>>) {
  // CHECK-NEXT: memref.reinterpret_cast
  // CHECK-NEXT: scf.yield
  // CHECK-NEXT: } else {
  // CHECK: vector.store {{.*}} memref<512x64xf32>
  attn.accumulate %q[s,d], %q[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// A table with dynamic strides is gathered only if its elements are not contiguous. Values that depend on the column only
// are computed outside of the loop over rows.
// CHECK-LABEL: @table_is_read_in_vectors
func.func @table_is_read_in_vectors(%q: memref<?x64xf32, #tile>, %table: memref<?x?xf32, #tile>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: arith.cmpi eq, %{{.*}}, %c1 : index
  // CHECK: scf.if %{{.*}} -> (vector<16xf32>) {
  // CHECK: vector.maskedload
  // CHECK: } else {
  // CHECK: vector.gather
  attn.accumulate %q[s,d], %q[s,d], %q[s,d] captures(%table : memref<?x?xf32, #tile>) into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      score(%s, %b, %h, %i, %j, %t) {
        %x = tensor.extract %t[%i, %j] : tensor<?x?xf32>
        %r = arith.addf %s, %x : f32
        attn.yield %r : f32
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}
