// RUN: saccade-opt %s --attn-prepack-rhs=target=v4-bf16 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-prepack-rhs="target=v4-bf16 prepack" -canonicalize -cse | FileCheck %s --check-prefix=PREPACK

// Several tasks read each block of columns, and all sizes are static: the RHS is packed before them, and the bias is fused.
// CHECK-LABEL: func.func @weights_are_packed_once(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<384x64xf32>, %[[W:[a-z0-9]*]]: memref<64x500xf32>
// CHECK:         %[[P:.*]] = memref.alloc() {alignment = 64 : i64} : memref<16x64x32xf32>
// CHECK:         scf.forall
// CHECK:           %[[T:.*]] = memref.transpose
// CHECK:           attn.pack %[[T]] into %{{.*}} form(multiply_add)
// CHECK:         scf.forall
// CHECK-NOT:       scf.if
// CHECK-NOT:       linalg.
// CHECK:           attn.packed_matmul %{{.*}}, %{{.*}} bias(%{{.*}}) into %{{.*}} form(multiply_add)
// CHECK-NOT:     linalg.
// CHECK:         return
func.func @weights_are_packed_once(%x: memref<384x64xf32>, %w: memref<64x500xf32>, %b: memref<500xf32>, %y: memref<384x500xf32>) {
  scf.forall (%m, %n) = (0, 0) to (384, 500) step (192, 256) {
    %columns = affine.min affine_map<(d0) -> (500 - d0, 256)>(%n)
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    %c = memref.subview %w[0, %n] [64, %columns] [1, 1] : memref<64x500xf32> to memref<64x?xf32, strided<[500, 1], offset: ?>>
    %d = memref.subview %b[%n] [%columns] [1] : memref<500xf32> to memref<?xf32, strided<[1], offset: ?>>
    %e = memref.subview %y[%m, %n] [192, %columns] [1, 1] : memref<384x500xf32> to memref<192x?xf32, strided<[500, 1], offset: ?>>
    linalg.broadcast ins(%d : memref<?xf32, strided<[1], offset: ?>>) outs(%e : memref<192x?xf32, strided<[500, 1], offset: ?>>) dimensions = [0]
    linalg.matmul ins(%a, %c : memref<192x64xf32, strided<[64, 1], offset: ?>>, memref<64x?xf32, strided<[500, 1], offset: ?>>) outs(%e : memref<192x?xf32, strided<[500, 1], offset: ?>>)
  }
  return
}

// Dynamic conditions are tested at run time: number of tasks, strides, even depth. The other branch allocates nothing and
// has the original loop.
// CHECK-LABEL: func.func @dynamic_conditions_are_tested(
// CHECK-DAG:     arith.cmpi sge, %{{.*}}, %c2
// CHECK-DAG:     arith.cmpi eq, %{{.*}}, %c1
// CHECK-DAG:     arith.cmpi eq, %{{.*}}, %c0
// CHECK:         scf.if
// CHECK:           %[[P:.*]] = memref.alloc(%{{.*}}, %{{.*}}) {alignment = 64 : i64} : memref<?x?x32xf32>
// CHECK:           scf.forall
// CHECK:             attn.pack %{{.*}} into %{{.*}} form(pairs)
// CHECK:           %[[CONFLICTS:.*]] = arith.cmpi eq
// CHECK:           scf.if %[[CONFLICTS]] {
// CHECK:             scf.forall
// CHECK-NOT:           linalg.
// CHECK:               attn.packed_matmul %{{.*}}, %{{.*}} into %{{.*}} form(pairs) blocked
// CHECK:           } else {
// CHECK:             scf.forall
// CHECK-NOT:           linalg.
// CHECK-NOT:           bias
// CHECK:               attn.packed_matmul %{{.*}}, %{{.*}} into %{{.*}} form(pairs) :
// CHECK:         } else {
// CHECK-NOT:       memref.alloc
// CHECK:           scf.forall
// CHECK-NOT:         attn.
// CHECK:             linalg.fill
// CHECK:             linalg.matmul
// CHECK:         return
func.func @dynamic_conditions_are_tested(%x: memref<?x?xbf16, strided<[?, ?], offset: ?>>, %w: memref<?x?xbf16, strided<[?, ?], offset: ?>>, %y: memref<?x?xbf16, strided<[?, ?], offset: ?>>, %rows: index, %depth: index, %all: index) {
  %zero = arith.constant 0.0 : bf16
  scf.forall (%m, %n) = (0, 0) to (%rows, %all) step (192, 256) {
    %r = affine.min affine_map<(d0)[s] -> (s - d0, 192)>(%m)[%rows]
    %columns = affine.min affine_map<(d0)[s] -> (s - d0, 256)>(%n)[%all]
    %a = memref.subview %x[%m, 0] [%r, %depth] [1, 1] : memref<?x?xbf16, strided<[?, ?], offset: ?>> to memref<?x?xbf16, strided<[?, ?], offset: ?>>
    %c = memref.subview %w[0, %n] [%depth, %columns] [1, 1] : memref<?x?xbf16, strided<[?, ?], offset: ?>> to memref<?x?xbf16, strided<[?, ?], offset: ?>>
    %e = memref.subview %y[%m, %n] [%r, %columns] [1, 1] : memref<?x?xbf16, strided<[?, ?], offset: ?>> to memref<?x?xbf16, strided<[?, ?], offset: ?>>
    linalg.fill ins(%zero : bf16) outs(%e : memref<?x?xbf16, strided<[?, ?], offset: ?>>)
    linalg.matmul ins(%a, %c : memref<?x?xbf16, strided<[?, ?], offset: ?>>, memref<?x?xbf16, strided<[?, ?], offset: ?>>) outs(%e : memref<?x?xbf16, strided<[?, ?], offset: ?>>)
  }
  return
}

// EXAMPLE
// The last panel is partial: the matmul reads it as well.
// CHECK-LABEL: func.func @columns_end_within_a_panel(
// CHECK:         memref.alloc() {alignment = 64 : i64} : memref<2x64x32xf32>
// CHECK:         attn.packed_matmul %{{.*}}, %{{.*}} into %{{.*}} form(multiply_add) : {{.*}}, memref<2x64x32xf32
func.func @columns_end_within_a_panel(%x: memref<384x64xf32>, %w: memref<64x40xf32>, %y: memref<384x40xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 40] [1, 1] : memref<384x40xf32> to memref<192x40xf32, strided<[40, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x40xf32, strided<[40, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xf32, strided<[64, 1], offset: ?>>, memref<64x40xf32>) outs(%e : memref<192x40xf32, strided<[40, 1], offset: ?>>)
  }
  return
}

// LHS rows whose stride is a multiple of 4096 bytes are copied.
// CHECK-LABEL: func.func @conflicting_rows_are_copied(
// CHECK-NOT:     scf.if
// CHECK:         attn.packed_matmul %{{.*}}, %{{.*}} into %{{.*}} form(multiply_add) blocked
func.func @conflicting_rows_are_copied(%x: memref<384x1024xf32>, %w: memref<1024x32xf32>, %y: memref<384x32xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 1024] [1, 1] : memref<384x1024xf32> to memref<192x1024xf32, strided<[1024, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 32] [1, 1] : memref<384x32xf32> to memref<192x32xf32, strided<[32, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x32xf32, strided<[32, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x1024xf32, strided<[1024, 1], offset: ?>>, memref<1024x32xf32>) outs(%e : memref<192x32xf32, strided<[32, 1], offset: ?>>)
  }
  return
}

// Not prepacked: a RHS block that one task reads, a matmul that accumulates into its output, one of f16, and one whose RHS
// is written by tasks.
// CHECK-LABEL: func.func @others_are_left(
// CHECK-NOT:     attn.
// CHECK:         return
func.func @others_are_left(%x: memref<192x64xf32>, %w: memref<64x512xf32>, %y: memref<192x512xf32>, %f: memref<384x64xf16>, %g: memref<64x32xf16>, %h: memref<384x32xf16>, %i: memref<384x64xf32>, %j: memref<64x32xf32>, %k: memref<384x32xf32>, %l: memref<384x384xf32>) {
  %zero = arith.constant 0.0 : f32
  %narrow = arith.constant 0.0 : f16
  scf.forall (%m, %n) = (0, 0) to (192, 512) step (192, 256) {
    %c = memref.subview %w[0, %n] [64, 256] [1, 1] : memref<64x512xf32> to memref<64x256xf32, strided<[512, 1], offset: ?>>
    %e = memref.subview %y[0, %n] [192, 256] [1, 1] : memref<192x512xf32> to memref<192x256xf32, strided<[512, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x256xf32, strided<[512, 1], offset: ?>>)
    linalg.matmul ins(%x, %c : memref<192x64xf32>, memref<64x256xf32, strided<[512, 1], offset: ?>>) outs(%e : memref<192x256xf32, strided<[512, 1], offset: ?>>)
  }
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %f[%m, 0] [192, 64] [1, 1] : memref<384x64xf16> to memref<192x64xf16, strided<[64, 1], offset: ?>>
    %e = memref.subview %h[%m, 0] [192, 32] [1, 1] : memref<384x32xf16> to memref<192x32xf16, strided<[32, 1], offset: ?>>
    linalg.fill ins(%narrow : f16) outs(%e : memref<192x32xf16, strided<[32, 1], offset: ?>>)
    linalg.matmul ins(%a, %g : memref<192x64xf16, strided<[64, 1], offset: ?>>, memref<64x32xf16>) outs(%e : memref<192x32xf16, strided<[32, 1], offset: ?>>)
  }
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %i[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    %e = memref.subview %k[%m, 0] [192, 32] [1, 1] : memref<384x32xf32> to memref<192x32xf32, strided<[32, 1], offset: ?>>
    linalg.matmul ins(%a, %j : memref<192x64xf32, strided<[64, 1], offset: ?>>, memref<64x32xf32>) outs(%e : memref<192x32xf32, strided<[32, 1], offset: ?>>)
  }
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %l[%m, 0] [192, 384] [1, 1] : memref<384x384xf32> to memref<192x384xf32, strided<[384, 1], offset: ?>>
    %c = memref.subview %l[0, 0] [384, 32] [1, 1] : memref<384x384xf32> to memref<384x32xf32, strided<[384, 1]>>
    %e = memref.subview %k[%m, 0] [192, 32] [1, 1] : memref<384x32xf32> to memref<192x32xf32, strided<[32, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%a : memref<192x384xf32, strided<[384, 1], offset: ?>>)
    linalg.fill ins(%zero : f32) outs(%e : memref<192x32xf32, strided<[32, 1], offset: ?>>)
    linalg.matmul ins(%a, %c : memref<192x384xf32, strided<[384, 1], offset: ?>>, memref<384x32xf32, strided<[384, 1]>>) outs(%e : memref<192x32xf32, strided<[32, 1], offset: ?>>)
  }
  return
}

// One task reads each block of columns, so packing does not pay off, except for constant weights, which are packed once for
// all calls.
// CHECK-LABEL:   func.func @one_task_packs_constants(
// CHECK-NOT:       attn.pack
// PREPACK-LABEL: func.func @one_task_packs_constants(
// PREPACK:         attn.pack
// PREPACK:         attn.packed_matmul
// PREPACK-NOT:     attn.pack
// PREPACK:         return
func.func @one_task_packs_constants(%x: memref<16x64xf32>, %w: memref<64x512xf32> {attn.constant}, %v: memref<64x512xf32>, %y: memref<16x512xf32>, %z: memref<16x512xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%n) = (0) to (512) step (256) {
    %c = memref.subview %w[0, %n] [64, 256] [1, 1] : memref<64x512xf32> to memref<64x256xf32, strided<[512, 1], offset: ?>>
    %e = memref.subview %y[0, %n] [16, 256] [1, 1] : memref<16x512xf32> to memref<16x256xf32, strided<[512, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<16x256xf32, strided<[512, 1], offset: ?>>)
    linalg.matmul ins(%x, %c : memref<16x64xf32>, memref<64x256xf32, strided<[512, 1], offset: ?>>) outs(%e : memref<16x256xf32, strided<[512, 1], offset: ?>>)
  }
  scf.forall (%n) = (0) to (512) step (256) {
    %c = memref.subview %v[0, %n] [64, 256] [1, 1] : memref<64x512xf32> to memref<64x256xf32, strided<[512, 1], offset: ?>>
    %e = memref.subview %z[0, %n] [16, 256] [1, 1] : memref<16x512xf32> to memref<16x256xf32, strided<[512, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<16x256xf32, strided<[512, 1], offset: ?>>)
    linalg.matmul ins(%x, %c : memref<16x64xf32>, memref<64x256xf32, strided<[512, 1], offset: ?>>) outs(%e : memref<16x256xf32, strided<[512, 1], offset: ?>>)
  }
  return
}

// A matrix with fewer columns than a vector has lanes is packed in every call, because its panels are mostly padding.
// CHECK-LABEL:   func.func @few_columns_are_packed_in_calls(
// PREPACK-LABEL: func.func @few_columns_are_packed_in_calls(
// PREPACK:         memref.alloc() {alignment = 64 : i64, attn.per_call} : memref<1x64x32xf32>
// PREPACK:         memref.alloc() {alignment = 64 : i64} : memref<1x64x32xf32>
// PREPACK:         return
func.func @few_columns_are_packed_in_calls(%x: memref<384x64xf32>, %w: memref<64x15xf32> {attn.constant}, %v: memref<64x16xf32> {attn.constant}, %y: memref<384x15xf32>, %z: memref<384x16xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    %e = memref.subview %y[%m, 0] [192, 15] [1, 1] : memref<384x15xf32> to memref<192x15xf32, strided<[15, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x15xf32, strided<[15, 1], offset: ?>>)
    linalg.matmul ins(%a, %w : memref<192x64xf32, strided<[64, 1], offset: ?>>, memref<64x15xf32>) outs(%e : memref<192x15xf32, strided<[15, 1], offset: ?>>)
  }
  scf.forall (%m) = (0) to (384) step (192) {
    %a = memref.subview %x[%m, 0] [192, 64] [1, 1] : memref<384x64xf32> to memref<192x64xf32, strided<[64, 1], offset: ?>>
    %e = memref.subview %z[%m, 0] [192, 16] [1, 1] : memref<384x16xf32> to memref<192x16xf32, strided<[16, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%e : memref<192x16xf32, strided<[16, 1], offset: ?>>)
    linalg.matmul ins(%a, %v : memref<192x64xf32, strided<[64, 1], offset: ?>>, memref<64x16xf32>) outs(%e : memref<192x16xf32, strided<[16, 1], offset: ?>>)
  }
  return
}
