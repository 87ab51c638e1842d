// RUN: saccade-opt %s --attn-prepack-rhs=target=aarch64-bf16 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-prepack-rhs="target=aarch64-bf16 prepack" -canonicalize -cse | FileCheck %s --check-prefix=PREPACK

// Where bf16 is multiplied in blocks of four elements of K, the LHS is copied, whatever its stride, and K is any number.
// CHECK-LABEL: func.func @k_is_not_a_multiple_of_a_block(
// CHECK-NOT:     scf.if
// CHECK:         memref.alloc() {alignment = 64 : i64} : memref<5x17x16xf32>
// CHECK:         attn.pack %{{.*}} into %{{.*}} form(blocks)
// CHECK-NOT:     scf.if
// CHECK:         attn.packed_matmul %{{.*}} form(blocks) blocked
func.func @k_is_not_a_multiple_of_a_block(%x: memref<384x66xbf16>, %w: memref<66x40xbf16>, %y: memref<384x40xbf16>) {
  %zero = arith.constant 0.0 : bf16
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 66] [1, 1] : memref<384x66xbf16> to memref<192x66xbf16, strided<[66, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 40] [1, 1] : memref<384x40xbf16> to memref<192x40xbf16, strided<[40, 1], offset: ?>>
    linalg.fill ins(%zero : bf16) outs(%e : memref<192x40xbf16, strided<[40, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x66xbf16, strided<[66, 1], offset: ?>>, memref<66x40xbf16>) outs(%e : memref<192x40xbf16, strided<[40, 1], offset: ?>>)
  }
  return
}

// Constants are packed for any number of rows.
// CHECK-LABEL: func.func @constants(
// CHECK-NOT:     attn.pack
// PREPACK-LABEL: func.func @constants(
// PREPACK:         memref.alloc() {alignment = 64 : i64} : memref<5x17x16xf32>
// PREPACK:         attn.packed_matmul %{{.*}} form(blocks) blocked
func.func @constants(%x: memref<1x66xbf16>, %w: memref<66x40xbf16> {attn.constant}, %y: memref<1x40xbf16>) {
  %zero = arith.constant 0.0 : bf16
  scf.forall (%m) = (0) to (1) step (192) {
    linalg.fill ins(%zero : bf16) outs(%y : memref<1x40xbf16>)
    linalg.matmul ins(%x, %w : memref<1x66xbf16>, memref<66x40xbf16>) outs(%y : memref<1x40xbf16>)
  }
  return
}
