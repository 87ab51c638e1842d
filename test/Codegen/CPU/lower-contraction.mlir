// RUN: saccade-opt %s --attn-lower-contraction=target=v4 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-contraction=target=v4-bf16 -canonicalize -cse | FileCheck %s --check-prefix=PAIRS

// CHECK-LABEL: @matmul_is_packed_and_blocked
func.func @matmul_is_packed_and_blocked(%a: memref<?x768xf32, strided<[?, ?], offset: ?>>, %b: memref<768x256xf32>, %c: memref<?x256xf32>) {
  // CHECK-DAG: memref.alloc() {{.*}} : memref<8x512x32xf32>
  // CHECK: vector.fma
  // CHECK-NOT: linalg.matmul
  linalg.matmul ins(%a, %b : memref<?x768xf32, strided<[?, ?], offset: ?>>, memref<768x256xf32>) outs(%c : memref<?x256xf32>)
  return
}

// 16-bit operands are widened while they are packed, or stay bf16 pairs if the target multiplies these; the result is
// rounded once.
// CHECK-LABEL: @sixteen_bit_matmul_accumulates_in_f32
// PAIRS-LABEL: @sixteen_bit_matmul_accumulates_in_f32
func.func @sixteen_bit_matmul_accumulates_in_f32(%a: memref<96x64xbf16>, %b: memref<64x64xbf16>, %c: memref<96x64xbf16>) {
  // CHECK: arith.extf {{.*}} : vector<16xbf16> to vector<16xf32>
  // CHECK: vector.fma {{.*}} : vector<16xf32>
  // CHECK: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
  // PAIRS-DAG: memref.alloc() {{.*}} : memref<{{[0-9]+}}x48xf32>
  // PAIRS-DAG: memref.alloc() {{.*}} : memref<2x32x32xf32>
  // PAIRS-NOT: vector.fma
  // PAIRS: x86vector.avx512.dot
  // PAIRS: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
  linalg.matmul ins(%a, %b : memref<96x64xbf16>, memref<64x64xbf16>) outs(%c : memref<96x64xbf16>)
  return
}

// The indexing maps determine which operand is the LHS; batch loops are kept around the matmul.
#b = affine_map<(b, n, k, m) -> (b, k, n)>
#a = affine_map<(b, n, k, m) -> (k, b, m)>
#c = affine_map<(b, n, k, m) -> (b, m, n)>
// CHECK-LABEL: @any_order_of_dimensions
func.func @any_order_of_dimensions(%x: memref<?x?x?xf32>, %y: memref<?x?x?xf32>, %z: memref<?x?x?xf32>) {
  // CHECK: vector.fma
  // CHECK-NOT: linalg.generic
  linalg.generic {indexing_maps = [#b, #a, #c], iterator_types = ["parallel", "parallel", "reduction", "parallel"]}
      ins(%x, %y : memref<?x?x?xf32>, memref<?x?x?xf32>) outs(%z : memref<?x?x?xf32>) {
    ^bb0(%p: f32, %q: f32, %r: f32):
      %t = arith.mulf %q, %p : f32
      %u = arith.addf %t, %r : f32
      linalg.yield %u : f32
  }
  return
}

// Integer matmuls are not lowered by this pass.
// CHECK-LABEL: @integer_matmuls_are_left
func.func @integer_matmuls_are_left(%a: memref<4x4xi32>, %c: memref<4x4xi32>) {
  // CHECK: linalg.matmul
  linalg.matmul ins(%a, %a : memref<4x4xi32>, memref<4x4xi32>) outs(%c : memref<4x4xi32>)
  return
}

// EXAMPLE
// Operands are widened before they are multiplied, on either side.
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
// CHECK-LABEL: @widened_operands_are_a_matmul
// PAIRS-LABEL: @widened_operands_are_a_matmul
func.func @widened_operands_are_a_matmul(%a: memref<8x16xbf16>, %b: memref<16x8xf32>, %c: memref<8x8xf32>) {
  // CHECK: vector.fma
  // PAIRS-NOT: x86vector
  // PAIRS: vector.fma
  // CHECK-NOT: linalg.generic
  linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<8x16xbf16>, memref<16x8xf32>) outs(%c : memref<8x8xf32>) {
    ^bb0(%x: bf16, %y: f32, %o: f32):
      %w = arith.extf %x : bf16 to f32
      %p = arith.mulf %y, %w : f32
      %s = arith.addf %p, %o : f32
      linalg.yield %s : f32
  }
  return
}

// CHECK-LABEL: @other_bodies_are_left
func.func @other_bodies_are_left(%a: memref<8x16xf32>, %b: memref<16x8xf32>, %c: memref<8x8xf32>) {
  // CHECK-NOT: vector.fma
  // CHECK: linalg.generic
  linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<8x16xf32>, memref<16x8xf32>) outs(%c : memref<8x8xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %e = math.exp %x : f32
      %p = arith.mulf %e, %y : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
  }
  return
}
