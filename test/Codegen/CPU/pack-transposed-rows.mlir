// Rows of an LHS of bf16 whose columns are contiguous are packed by registers: k-packs of 16 adjacent rows are read and
// transposed. 4 elements of K are left, which are copied one by one.
// RUN: saccade-opt %s --attn-lower-contraction=target=v4-amx -canonicalize -cse | FileCheck %s

// CHECK-LABEL: @transposed_rows
// CHECK-SAME: %[[A:[^ ,]*]]: memref<36x32xbf16>
// CHECK: %[[VIEW:.*]] = memref.transpose %{{.*}} (d0, d1) -> (d1, d0)
// CHECK: scf.for %[[ROW:.*]] = %c0 to %c32 step %c16
// CHECK-COUNT-32: vector.load {{.*}}vector<16xbf16>
// CHECK: vector.shuffle
// CHECK-COUNT-16: vector.store
// CHECK: memref.load {{.*}}bf16
func.func @transposed_rows(%a: memref<36x32xbf16>, %b: memref<36x32xbf16>, %c: memref<32x32xf32>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
                  iterator_types = ["parallel", "parallel", "reduction"],
                  attn.tile_matmul, schedule = #attn.schedule<rows = 128, cols = 128, depth = 128>}
      ins(%a, %b : memref<36x32xbf16>, memref<36x32xbf16>) outs(%c : memref<32x32xf32>) {
    ^bb0(%l: bf16, %r: bf16, %s: f32):
      %x = arith.extf %l : bf16 to f32
      %y = arith.extf %r : bf16 to f32
      %p = arith.mulf %x, %y : f32
      %t = arith.addf %s, %p : f32
      linalg.yield %t : f32
  }
  return
}
