// Matmuls of tiles: an RHS that a loop does not change is packed before it, and a result that is a buffer of the task is
// accumulated in place, without reading the zeros that it begins with.
// RUN: saccade-opt %s --attn-lower-contraction=target=v4 -canonicalize -cse | FileCheck %s

#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#rhs_rows = affine_map<(m, n, k) -> (k, n)>
#sums = affine_map<(m, n, k) -> (m, n)>
#block_of_panel = affine_map<(m, n) -> (m, n)>
#loops = {indexing_maps = [#lhs, #rhs, #sums], iterator_types = ["parallel", "parallel", "reduction"],
          attn.tile_matmul, schedule = #attn.schedule<rows = 24, cols = 64, depth = 16>}
#rows_loops = {indexing_maps = [#lhs, #rhs_rows, #sums], iterator_types = ["parallel", "parallel", "reduction"],
               attn.tile_matmul, schedule = #attn.schedule<rows = 24, cols = 64, depth = 16>}

// CHECK-LABEL: @rhs_of_a_loop_is_packed_before_it
// CHECK: %[[PANELS:.*]] = memref.alloc() {{.*}} : memref<2x16x32xf32>
// CHECK: vector.shuffle
// CHECK: vector.store %{{.*}}, %[[PANELS]]
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c24
// No packing. Whole groups of rows are accumulated in place.
// CHECK-NOT: vector.shuffle
// CHECK: vector.load %[[PANELS]]
// CHECK: scf.yield {{.*}} : vector<16xf32>
// CHECK: %[[ROWS:.*]] = memref.subview %{{.*}} : memref<?x64xf32, strided<[64, 1]>> to memref<12x32xf32, strided<[64, 1], offset: ?>>
// CHECK: vector.load %[[ROWS]][
// CHECK: vector.store %{{.*}}, %[[ROWS]][
func.func @rhs_of_a_loop_is_packed_before_it(%a: memref<?x16xf32>, %b: memref<?x16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c24 = arith.constant 24 : index
  %c = memref.alloc() : memref<24x64xf32>
  %part = memref.subview %c[0, 0] [%n, %n] [1, 1] : memref<24x64xf32> to memref<?x?xf32, strided<[64, 1]>>
  scf.for %i = %c0 to %n step %c24 {
    linalg.generic #loops ins(%a, %b : memref<?x16xf32>, memref<?x16xf32>) outs(%part : memref<?x?xf32, strided<[64, 1]>>) {
      ^bb0(%x: f32, %y: f32, %s: f32):
        %p = arith.mulf %x, %y : f32
        %r = arith.addf %s, %p : f32
        linalg.yield %r : f32
    }
  }
  return
}

// A tile at the edge of a mask has the first rows of an RHS that does not change.
// CHECK-LABEL: @first_rows_of_an_rhs
// CHECK: vector.shuffle
// CHECK: scf.for
// CHECK-NOT: vector.shuffle
// CHECK: return
func.func @first_rows_of_an_rhs(%a: memref<?x16xf32>, %b: memref<?x16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c24 = arith.constant 24 : index
  %c = memref.alloc() : memref<24x64xf32>
  scf.for %i = %c0 to %n step %c24 {
    %first = memref.subview %b[0, 0] [%i, 16] [1, 1] : memref<?x16xf32> to memref<?x16xf32, strided<[16, 1]>>
    %part = memref.subview %c[0, 0] [24, %i] [1, 1] : memref<24x64xf32> to memref<24x?xf32, strided<[64, 1]>>
    linalg.generic #loops ins(%a, %first : memref<?x16xf32>, memref<?x16xf32, strided<[16, 1]>>)
        outs(%part : memref<24x?xf32, strided<[64, 1]>>) {
      ^bb0(%x: f32, %y: f32, %s: f32):
        %p = arith.mulf %x, %y : f32
        %r = arith.addf %s, %p : f32
        linalg.yield %r : f32
    }
  }
  return
}

// CHECK-LABEL: @other_rows_of_an_rhs
// CHECK-NOT: vector.shuffle
// CHECK: scf.for
// CHECK: vector.shuffle
func.func @other_rows_of_an_rhs(%a: memref<?x16xf32>, %b: memref<?x16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c24 = arith.constant 24 : index
  %c = memref.alloc() : memref<24x64xf32>
  scf.for %i = %c0 to %n step %c24 {
    %rows = memref.subview %b[%i, 0] [64, 16] [1, 1] : memref<?x16xf32> to memref<64x16xf32, strided<[16, 1], offset: ?>>
    linalg.generic #loops ins(%a, %rows : memref<?x16xf32>, memref<64x16xf32, strided<[16, 1], offset: ?>>)
        outs(%c : memref<24x64xf32>) {
      ^bb0(%x: f32, %y: f32, %s: f32):
        %p = arith.mulf %x, %y : f32
        %r = arith.addf %s, %p : f32
        linalg.yield %r : f32
    }
  }
  return
}

// A loop that changes the RHS, through another view of it.
// CHECK-LABEL: @changed_rhs
// CHECK-NOT: vector.shuffle
// CHECK: scf.for
// CHECK: vector.shuffle
func.func @changed_rhs(%a: memref<?x16xf32>, %b: memref<?x16xf32>, %n: index, %f: f32) {
  %c0 = arith.constant 0 : index
  %c24 = arith.constant 24 : index
  %c = memref.alloc() : memref<24x64xf32>
  %row = memref.subview %b[%n, 0] [1, 16] [1, 1] : memref<?x16xf32> to memref<16xf32, strided<[1], offset: ?>>
  scf.for %i = %c0 to %n step %c24 {
    memref.store %f, %row[%c0] : memref<16xf32, strided<[1], offset: ?>>
    linalg.generic #loops ins(%a, %b : memref<?x16xf32>, memref<?x16xf32>) outs(%c : memref<24x64xf32>) {
      ^bb0(%x: f32, %y: f32, %s: f32):
        %p = arith.mulf %x, %y : f32
        %r = arith.addf %s, %p : f32
        linalg.yield %r : f32
    }
  }
  return
}

// Two fills and two matmuls: both results begin with 0.
// CHECK-LABEL: @result_that_begins_with_zero
// CHECK-NOT: linalg.fill
// CHECK-NOT: vector.load %{{.*}} : memref<{{[0-9]+x[0-9]+}}xf32, strided<[64, 1]
// CHECK: return
func.func @result_that_begins_with_zero(%a: memref<24x16xf32>, %b: memref<16x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %c = memref.alloc() : memref<24x64xf32>
  %d = memref.alloc() : memref<24x64xf32>
  linalg.fill ins(%zero : f32) outs(%d : memref<24x64xf32>)
  linalg.fill ins(%zero : f32) outs(%c : memref<24x64xf32>)
  linalg.generic #rows_loops ins(%a, %b : memref<24x16xf32>, memref<16x64xf32>) outs(%c : memref<24x64xf32>) {
    ^bb0(%x: f32, %y: f32, %s: f32):
      %p = arith.mulf %x, %y : f32
      %r = arith.addf %s, %p : f32
      linalg.yield %r : f32
  }
  linalg.generic #rows_loops ins(%a, %b : memref<24x16xf32>, memref<16x64xf32>) outs(%d : memref<24x64xf32>) {
    ^bb0(%x: f32, %y: f32, %s: f32):
      %p = arith.mulf %x, %y : f32
      %r = arith.addf %s, %p : f32
      linalg.yield %r : f32
  }
  return
}

// CHECK-LABEL: @result_that_begins_with_one
// CHECK: linalg.fill
// CHECK: %[[BLOCK:.*]] = memref.subview %{{.*}} : memref<24x64xf32> to memref<12x32xf32
// CHECK: vector.load %[[BLOCK]]
func.func @result_that_begins_with_one(%a: memref<24x16xf32>, %b: memref<16x64xf32>) {
  %one = arith.constant 1.0 : f32
  %c = memref.alloc() : memref<24x64xf32>
  linalg.fill ins(%one : f32) outs(%c : memref<24x64xf32>)
  linalg.generic #rows_loops ins(%a, %b : memref<24x16xf32>, memref<16x64xf32>) outs(%c : memref<24x64xf32>) {
    ^bb0(%x: f32, %y: f32, %s: f32):
      %p = arith.mulf %x, %y : f32
      %r = arith.addf %s, %p : f32
      linalg.yield %r : f32
  }
  return
}

// Something is written between the zeros and the matmul.
// CHECK-LABEL: @result_that_changes_before
// CHECK: linalg.fill
// CHECK: %[[BLOCK:.*]] = memref.subview %{{.*}} : memref<24x64xf32> to memref<12x32xf32
// CHECK: vector.load %[[BLOCK]]
func.func @result_that_changes_before(%a: memref<24x16xf32>, %b: memref<16x64xf32>, %f: f32, %i: index) {
  %zero = arith.constant 0.0 : f32
  %c = memref.alloc() : memref<24x64xf32>
  linalg.fill ins(%zero : f32) outs(%c : memref<24x64xf32>)
  %row = memref.subview %c[%i, 0] [1, 64] [1, 1] : memref<24x64xf32> to memref<64xf32, strided<[1], offset: ?>>
  memref.store %f, %row[%i] : memref<64xf32, strided<[1], offset: ?>>
  linalg.generic #rows_loops ins(%a, %b : memref<24x16xf32>, memref<16x64xf32>) outs(%c : memref<24x64xf32>) {
    ^bb0(%x: f32, %y: f32, %s: f32):
      %p = arith.mulf %x, %y : f32
      %r = arith.addf %s, %p : f32
      linalg.yield %r : f32
  }
  return
}

// The other columns of the buffer are used: only those of the result are written.
// CHECK-LABEL: @columns_before_others
// CHECK: %[[BUFFER:.*]] = memref.alloc() : memref<24x64xf32>
// CHECK-NOT: vector.store %{{.*}}, %[[BUFFER]][
// CHECK-NOT: memref.subview %[[BUFFER]][%
// CHECK: memref.load %[[BUFFER]]
func.func @columns_before_others(%a: memref<24x16xf32>, %b: memref<16x40xf32>, %i: index) -> f32 {
  %c = memref.alloc() : memref<24x64xf32>
  %first = memref.subview %c[0, 0] [24, 40] [1, 1] : memref<24x64xf32> to memref<24x40xf32, strided<[64, 1]>>
  linalg.generic #rows_loops ins(%a, %b : memref<24x16xf32>, memref<16x40xf32>) outs(%first : memref<24x40xf32, strided<[64, 1]>>) {
    ^bb0(%x: f32, %y: f32, %s: f32):
      %p = arith.mulf %x, %y : f32
      %r = arith.addf %s, %p : f32
      linalg.yield %r : f32
  }
  %other = memref.load %c[%i, %i] : memref<24x64xf32>
  return %other : f32
}

// Rows of an RHS that are as wide as a panel are not packed, and the 8 rows after twelve are one group. A matmul prefetches
// the matrix that the op after it reads at the elements of the result.
// CHECK-LABEL: @rhs_in_rows_of_a_panel
// CHECK-SAME: %[[A:[^ ,]*]]: memref<20x16xf32>, %[[B:[^ ,]*]]: memref<16x32xf32>, %[[X:[^ ,]*]]: memref<20x32xf32>
// CHECK-NOT: memref.alloc
// CHECK: %[[C:.*]] = memref.alloc() : memref<20x32xf32>
// CHECK-NOT: memref.alloc
// CHECK: %[[PANELS:.*]] = memref.reinterpret_cast %[[B]] to offset: [0], sizes: [1, 16, 32], strides: [32, 32, 1]
// CHECK: memref.prefetch %[[X]][%c11, %c16], read
// CHECK: vector.load %[[PANELS]]
// CHECK: memref.prefetch %[[X]][%c12, %c0], read
// CHECK: vector.load %[[PANELS]]
// CHECK: memref.load %[[A]][%c19,
func.func @rhs_in_rows_of_a_panel(%a: memref<20x16xf32>, %b: memref<16x32xf32>, %x: memref<20x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %c = memref.alloc() : memref<20x32xf32>
  linalg.fill ins(%zero : f32) outs(%c : memref<20x32xf32>)
  linalg.generic #rows_loops ins(%a, %b : memref<20x16xf32>, memref<16x32xf32>) outs(%c : memref<20x32xf32>) {
    ^bb0(%l: f32, %r: f32, %s: f32):
      %p = arith.mulf %l, %r : f32
      %t = arith.addf %s, %p : f32
      linalg.yield %t : f32
  }
  linalg.generic {indexing_maps = [#block_of_panel, #block_of_panel], iterator_types = ["parallel", "parallel"]}
      ins(%c : memref<20x32xf32>) outs(%x : memref<20x32xf32>) {
    ^bb0(%l: f32, %r: f32):
      %p = arith.addf %l, %r : f32
      linalg.yield %p : f32
  }
  return
}

// Two matmuls with one RHS, which nothing changes in between, share its panels; the third follows a change.
// CHECK-LABEL: @shared_panels
// CHECK: %[[SHARED:.*]] = memref.alloc() {{.*}} : memref<1x16x32xf32>
// CHECK: vector.store %{{.*}}, %[[SHARED]]
// CHECK-NOT: memref.alloc() {{.*}} : memref<1x16x32xf32>
// CHECK: vector.load %[[SHARED]]
// CHECK-NOT: vector.store %{{.*}}, %[[SHARED]]
// CHECK: vector.load %[[SHARED]]
// CHECK: linalg.fill
// CHECK: %[[OWN:.*]] = memref.alloc() {{.*}} : memref<1x16x32xf32>
// CHECK: vector.load %[[OWN]]
func.func @shared_panels(%a: memref<24x16xf32>, %b: memref<32x16xf32>, %c: memref<24x32xf32>, %d: memref<24x32xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.generic #loops ins(%a, %b : memref<24x16xf32>, memref<32x16xf32>) outs(%c : memref<24x32xf32>) {
    ^bb0(%l: f32, %r: f32, %s: f32):
      %p = arith.mulf %l, %r : f32
      %t = arith.addf %s, %p : f32
      linalg.yield %t : f32
  }
  linalg.generic #loops ins(%a, %b : memref<24x16xf32>, memref<32x16xf32>) outs(%d : memref<24x32xf32>) {
    ^bb0(%l: f32, %r: f32, %s: f32):
      %p = arith.mulf %l, %r : f32
      %t = arith.addf %s, %p : f32
      linalg.yield %t : f32
  }
  linalg.fill ins(%zero : f32) outs(%b : memref<32x16xf32>)
  linalg.generic #loops ins(%a, %b : memref<24x16xf32>, memref<32x16xf32>) outs(%d : memref<24x32xf32>) {
    ^bb0(%l: f32, %r: f32, %s: f32):
      %p = arith.mulf %l, %r : f32
      %t = arith.addf %s, %p : f32
      linalg.yield %t : f32
  }
  return
}
