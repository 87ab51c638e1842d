// The form of a product is that of target and element types.

// RUN: saccade-opt %s --attn-prepack-rhs="target=v3 prepack" | FileCheck %s --check-prefixes=CHECK,V3
// RUN: saccade-opt %s --attn-prepack-rhs="target=v4-bf16 prepack" | FileCheck %s --check-prefixes=CHECK,PAIRS
// RUN: saccade-opt %s --attn-prepack-rhs="target=v4-amx prepack" | FileCheck %s --check-prefixes=CHECK,TILES
// RUN: saccade-opt %s --attn-prepack-rhs="target=aarch64-bf16 prepack" | FileCheck %s --check-prefixes=CHECK,BLOCKS
// RUN: saccade-opt %s --attn-prepack-rhs="target=aarch64-sve256 prepack" | FileCheck %s --check-prefixes=CHECK,BLOCKS
// RUN: saccade-opt %s --attn-prepack-rhs="target=aarch64 prepack" | FileCheck %s --check-prefixes=CHECK,V3

// CHECK-LABEL: func.func @matmul_of_f32(
// CHECK:    attn.pack %{{.*}} form(multiply_add) :
// CHECK:    attn.packed_matmul %{{.*}} form(multiply_add) :
func.func @matmul_of_f32(%x: memref<384x64xf32>, %w: memref<64x64xf32> {attn.constant}, %y: memref<384x64xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x64xf32, strided<[64, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xf32, strided<[64, 1], offset: ?>>, memref<64x64xf32>) outs(%e : memref<192x64xf32, strided<[64, 1], offset: ?>>)
  }
  return
}

// CHECK-LABEL: func.func @matmul_of_f64(
// CHECK:    attn.pack %{{.*}} form(multiply_add) :
// CHECK:    attn.packed_matmul %{{.*}} form(multiply_add) :
func.func @matmul_of_f64(%x: memref<384x64xf64>, %w: memref<64x64xf64> {attn.constant}, %y: memref<384x64xf64>) {
  %zero = arith.constant 0.0 : f64
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf64> to memref<192x64xf64, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 64] [1, 1] : memref<384x64xf64> to memref<192x64xf64, strided<[64, 1], offset: ?>>
    linalg.fill ins(%zero : f64) outs(%e : memref<192x64xf64, strided<[64, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xf64, strided<[64, 1], offset: ?>>, memref<64x64xf64>) outs(%e : memref<192x64xf64, strided<[64, 1], offset: ?>>)
  }
  return
}

// An RHS that must be converted is not packed before the tasks.
// CHECK-LABEL: func.func @matmul_of_bf16(
// V3-NOT: attn.pack
// PAIRS:    attn.pack %{{.*}} form(pairs) :
// PAIRS:    attn.packed_matmul %{{.*}} form(pairs) :
// TILES:    attn.pack %{{.*}} form(tiles) :
// TILES:    attn.packed_matmul %{{.*}} form(tiles) :
// BLOCKS:   attn.pack %{{.*}} form(blocks) :
// BLOCKS:   attn.packed_matmul %{{.*}} form(blocks) blocked :
func.func @matmul_of_bf16(%x: memref<384x64xbf16>, %w: memref<64x64xbf16> {attn.constant}, %y: memref<384x64xbf16>) {
  %zero = arith.constant 0.0 : bf16
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xbf16> to memref<192x64xbf16, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 64] [1, 1] : memref<384x64xbf16> to memref<192x64xbf16, strided<[64, 1], offset: ?>>
    linalg.fill ins(%zero : bf16) outs(%e : memref<192x64xbf16, strided<[64, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xbf16, strided<[64, 1], offset: ?>>, memref<64x64xbf16>) outs(%e : memref<192x64xbf16, strided<[64, 1], offset: ?>>)
  }
  return
}

// CHECK-LABEL: func.func @bf16_to_f32(
// V3-NOT: attn.pack
// PAIRS:    attn.pack %{{.*}} form(pairs) :
// PAIRS:    attn.packed_matmul %{{.*}} form(pairs) :
// TILES:    attn.pack %{{.*}} form(tiles) :
// TILES:    attn.packed_matmul %{{.*}} form(tiles) :
// BLOCKS:   attn.pack %{{.*}} form(blocks) :
// BLOCKS:   attn.packed_matmul %{{.*}} form(blocks) blocked :
func.func @bf16_to_f32(%x: memref<384x64xbf16>, %w: memref<64x64xbf16> {attn.constant}, %y: memref<384x64xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xbf16> to memref<192x64xbf16, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x64xf32, strided<[64, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xbf16, strided<[64, 1], offset: ?>>, memref<64x64xbf16>) outs(%e : memref<192x64xf32, strided<[64, 1], offset: ?>>)
  }
  return
}

// CHECK-LABEL: func.func @matmul_of_f16(
// V3-NOT: attn.pack
// PAIRS-NOT: attn.pack
// TILES:    attn.pack %{{.*}} form(split_tiles) :
// TILES:    attn.packed_matmul %{{.*}} form(split_tiles) blocked :
// BLOCKS-NOT: attn.pack
func.func @matmul_of_f16(%x: memref<384x64xf16>, %w: memref<64x64xf16> {attn.constant}, %y: memref<384x64xf16>) {
  %zero = arith.constant 0.0 : f16
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf16> to memref<192x64xf16, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 64] [1, 1] : memref<384x64xf16> to memref<192x64xf16, strided<[64, 1], offset: ?>>
    linalg.fill ins(%zero : f16) outs(%e : memref<192x64xf16, strided<[64, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xf16, strided<[64, 1], offset: ?>>, memref<64x64xf16>) outs(%e : memref<192x64xf16, strided<[64, 1], offset: ?>>)
  }
  return
}

// In tile registers a product of two f16 has an error that is too large for f32.
// CHECK-LABEL: func.func @f16_to_f32(
// V3-NOT: attn.pack
// PAIRS-NOT: attn.pack
// TILES-NOT: attn.pack
// BLOCKS-NOT: attn.pack
func.func @f16_to_f32(%x: memref<384x64xf16>, %w: memref<64x64xf16> {attn.constant}, %y: memref<384x64xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf16> to memref<192x64xf16, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x64xf32, strided<[64, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xf16, strided<[64, 1], offset: ?>>, memref<64x64xf16>) outs(%e : memref<192x64xf32, strided<[64, 1], offset: ?>>)
  }
  return
}
