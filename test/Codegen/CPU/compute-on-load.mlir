// RUN: saccade-opt %s --attn-lower-unpacked-accumulate=target=v4-bf16 -canonicalize -cse | FileCheck %s

#tile = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#first = affine_map<(d0, d1) -> (d0, 0)>
#column = affine_map<(d0, d1) -> (d1)>

// Keys and values are dequantized in registers, without tiles of floats. The factor of a row multiplies its scores or its
// weights, and elements are not rounded to bf16.
// CHECK-LABEL: func.func @factors_of_rows(
// CHECK-SAME:    memref<4x64xbf16>, %[[K8:[a-z0-9]*]]: memref<?x64xi8, strided<[512, 1], offset: ?>>, %[[KS:[a-z0-9]*]]: memref<?xf32, strided<[8], offset: ?>>, %[[V8:[a-z0-9]*]]: memref<?x64xi8
// CHECK-NOT:     memref<256x64xbf16>
// CHECK-NOT:     linalg.generic
// CHECK:         %[[FACTOR:.*]] = memref.load %[[KS]]
// CHECK:         memref.prefetch %[[K8]]
// CHECK:         %[[BYTES:.*]] = vector.load %[[K8]]{{.*}} vector<16xi8>
// CHECK-NEXT:    %[[KEYS:.*]] = arith.sitofp %[[BYTES]] : vector<16xi8> to vector<16xf32>
// CHECK-NOT:     arith.truncf
// CHECK:         %[[FACTORS:.*]] = vector.from_elements %[[FACTOR]], %{{.*}}, %{{.*}}, %{{.*}} : vector<4xf32>
// CHECK:         %[[REPEATED:.*]] = vector.shuffle %[[FACTORS]]
// CHECK:         arith.mulf %{{.*}}, %[[REPEATED]] : vector<16xf32>
// CHECK:         vector.load %[[V8]]
func.func @factors_of_rows(%q: memref<4x64xbf16>, %k8: memref<?x64xi8, strided<[512, 1], offset: ?>>, %ks: memref<?xf32, strided<[8], offset: ?>>,
    %v8: memref<?x64xi8, strided<[512, 1], offset: ?>>, %vs: memref<?xf32, strided<[8], offset: ?>>, %n: index, %acc: memref<4x64xf32>, %max: memref<4xf32>, %sum: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %km = memref.alloc() : memref<256x64xbf16>
  %vm = memref.alloc() : memref<256x64xbf16>
  %k = memref.subview %km[0, 0] [%n, 64] [1, 1] : memref<256x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
  %v = memref.subview %vm[0, 0] [%n, 64] [1, 1] : memref<256x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
  linalg.generic {indexing_maps = [#tile, #row, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%k8, %ks : memref<?x64xi8, strided<[512, 1], offset: ?>>, memref<?xf32, strided<[8], offset: ?>>) outs(%k : memref<?x64xbf16, strided<[64, 1]>>) {
  ^bb0(%x: i8, %s: f32, %o: bf16):
    %f = arith.sitofp %x : i8 to f32
    %g = arith.mulf %f, %s : f32
    %t = arith.truncf %g : f32 to bf16
    linalg.yield %t : bf16
  }
  linalg.generic {indexing_maps = [#tile, #row, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%v8, %vs : memref<?x64xi8, strided<[512, 1], offset: ?>>, memref<?xf32, strided<[8], offset: ?>>) outs(%v : memref<?x64xbf16, strided<[64, 1]>>) {
  ^bb0(%x: i8, %s: f32, %o: bf16):
    %f = arith.sitofp %x : i8 to f32
    %g = arith.mulf %f, %s : f32
    %t = arith.truncf %g : f32 to bf16
    linalg.yield %t : bf16
  }
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%c0, %c0, %c0, %c0) into(%acc, %max, %sum : memref<4x64xf32>, memref<4xf32>, memref<4xf32>)
      {schedule = #attn.schedule<rows = 4, cols = 256>, unpacked}
      : (memref<4x64xbf16>, memref<?x64xbf16, strided<[64, 1]>>, memref<?x64xbf16, strided<[64, 1]>>)
  return
}

// Pages of a quantized cache and of its scales are read in place. One tile may be keys and values.
// CHECK-LABEL: func.func @pages(
// CHECK-SAME:    %{{.*}}: memref<4x64xf32>, %[[POOL:[a-z0-9]*]]: memref<?x16x64xi8>, %[[SCALES:[a-z0-9]*]]: memref<?x16x1xf32>
// CHECK-NOT:     attn.load_pages
// CHECK-NOT:     linalg.generic
// CHECK-DAG:     %[[ELEMENTS:.*]] = memref.reinterpret_cast %[[POOL]] {{.*}} to memref<?x64xi8, strided<[1, 1], offset: ?>>
// CHECK-DAG:     %[[FACTORS:.*]] = memref.reinterpret_cast %[[SCALES]] {{.*}} to memref<?x1xf32, strided<[1, 1], offset: ?>>
// CHECK:         memref.load %[[FACTORS]]
// CHECK:         memref.prefetch %[[FACTORS]]
// CHECK:         memref.prefetch %[[ELEMENTS]]
// CHECK:         vector.load %[[ELEMENTS]]
func.func @pages(%q: memref<4x64xf32>, %pool: memref<?x16x64xi8>, %scales: memref<?x16x1xf32>, %pages: memref<?xi32>, %begin: index, %n: index,
    %acc: memref<4x64xf32>, %max: memref<4xf32>, %sum: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %km = memref.alloc() : memref<256x64xf32>
  %bm = memref.alloc() : memref<256x64xi8>
  %sm = memref.alloc() : memref<256x1xf32>
  %k = memref.subview %km[0, 0] [%n, 64] [1, 1] : memref<256x64xf32> to memref<?x64xf32, strided<[64, 1]>>
  %b = memref.subview %bm[0, 0] [%n, 64] [1, 1] : memref<256x64xi8> to memref<?x64xi8, strided<[64, 1]>>
  %s = memref.subview %sm[0, 0] [%n, 1] [1, 1] : memref<256x1xf32> to memref<?x1xf32, strided<[1, 1]>>
  attn.load_pages %pool[b,s,d], %pages from %begin into(%b) : (memref<?x16x64xi8>, memref<?xi32>, index, memref<?x64xi8, strided<[64, 1]>>) -> ()
  attn.load_pages %scales[b,s,d], %pages from %begin into(%s) : (memref<?x16x1xf32>, memref<?xi32>, index, memref<?x1xf32, strided<[1, 1]>>) -> ()
  linalg.generic {indexing_maps = [#tile, #first, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%b, %s : memref<?x64xi8, strided<[64, 1]>>, memref<?x1xf32, strided<[1, 1]>>) outs(%k : memref<?x64xf32, strided<[64, 1]>>) {
  ^bb0(%x: i8, %y: f32, %o: f32):
    %f = arith.sitofp %x : i8 to f32
    %g = arith.mulf %f, %y : f32
    linalg.yield %g : f32
  }
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] at(%c0, %c0, %c0, %begin) into(%acc, %max, %sum : memref<4x64xf32>, memref<4xf32>, memref<4xf32>)
      {schedule = #attn.schedule<rows = 4, cols = 256>, unpacked}
      : (memref<4x64xf32>, memref<?x64xf32, strided<[64, 1]>>, memref<?x64xf32, strided<[64, 1]>>)
  return
}

// A factor of each column multiplies elements. Elements beyond the depth are 0 whatever the computation makes of 0. The
// values are needed after the step, so they are a tile.
// CHECK-LABEL: func.func @factors_of_columns(
// CHECK:         linalg.generic
// CHECK-NOT:     linalg.generic
// CHECK:         %[[BYTES:.*]] = vector.maskedload %{{.*}} vector<16xi8>
// CHECK:         arith.addf
// CHECK:         arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<16xi1>, vector<16xf32>
func.func @factors_of_columns(%q: memref<4x8xf32>, %k8: memref<?x8xi8>, %ks: memref<8xf32, strided<[?], offset: ?>>, %n: index, %acc: memref<4x16xf32>,
    %max: memref<4xf32>, %sum: memref<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %km = memref.alloc() : memref<256x8xf32>
  %vm = memref.alloc() : memref<256x8xf32>
  %k = memref.subview %km[0, 0] [%n, 8] [1, 1] : memref<256x8xf32> to memref<?x8xf32, strided<[8, 1]>>
  %v = memref.subview %vm[0, 0] [%n, 8] [1, 1] : memref<256x8xf32> to memref<?x8xf32, strided<[8, 1]>>
  linalg.generic {indexing_maps = [#tile, #column, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%k8, %ks : memref<?x8xi8>, memref<8xf32, strided<[?], offset: ?>>) outs(%k : memref<?x8xf32, strided<[8, 1]>>) {
  ^bb0(%x: i8, %y: f32, %o: f32):
    %f = arith.sitofp %x : i8 to f32
    %g = arith.mulf %f, %y : f32
    %h = arith.addf %g, %one : f32
    linalg.yield %h : f32
  }
  linalg.generic {indexing_maps = [#tile, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%k8 : memref<?x8xi8>) outs(%v : memref<?x8xf32, strided<[8, 1]>>) {
  ^bb0(%x: i8, %o: f32):
    %f = arith.sitofp %x : i8 to f32
    linalg.yield %f : f32
  }
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%c0, %c0, %c0, %c0) into(%acc, %max, %sum : memref<4x16xf32>, memref<4xf32>, memref<4xf32>)
      {schedule = #attn.schedule<rows = 4, cols = 256>, unpacked}
      : (memref<4x8xf32>, memref<?x8xf32, strided<[8, 1]>>, memref<?x8xf32, strided<[8, 1]>>)
  %x = memref.load %v[%c0, %c0] : memref<?x8xf32, strided<[8, 1]>>
  return %x : f32
}

// Floats of 8 bits are widened two registers at once, without the factor of f8E4M3FN, 256, which the factor of the row has.
// CHECK-LABEL: func.func @floats_of_8_bits(
// CHECK-SAME:    %{{.*}}: memref<4x64xbf16>, %[[K8:[a-z0-9]*]]: memref<?x64xf8E4M3FN>, %[[V8:[a-z0-9]*]]: memref<?x64xf8E5M2>
// CHECK-DAG:     %[[UNIT:.*]] = arith.constant 2.560000e+02 : f32
// CHECK-NOT:     linalg.generic
// CHECK:         arith.mulf %{{.*}}, %[[UNIT]] : f32
// CHECK:         %[[KEYS:.*]] = vector.load %[[K8]]{{.*}} vector<32xf8E4M3FN>
// CHECK:         %[[HALF:.*]] = arith.extf %{{.*}} : vector<32xf16> to vector<32xf32>
// CHECK-NEXT:    vector.extract_strided_slice %[[HALF]] {offsets = [0]
// CHECK-NEXT:    vector.extract_strided_slice %[[HALF]] {offsets = [16]
// CHECK:         vector.load %[[V8]]{{.*}} vector<32xf8E5M2>
func.func @floats_of_8_bits(%q: memref<4x64xbf16>, %k8: memref<?x64xf8E4M3FN>, %v8: memref<?x64xf8E5M2>, %scale: f32, %n: index,
    %acc: memref<4x64xf32>, %max: memref<4xf32>, %sum: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %km = memref.alloc() : memref<256x64xbf16>
  %vm = memref.alloc() : memref<256x64xbf16>
  %k = memref.subview %km[0, 0] [%n, 64] [1, 1] : memref<256x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
  %v = memref.subview %vm[0, 0] [%n, 64] [1, 1] : memref<256x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
  linalg.generic {indexing_maps = [#tile, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%k8 : memref<?x64xf8E4M3FN>) outs(%k : memref<?x64xbf16, strided<[64, 1]>>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %f = arith.extf %x : f8E4M3FN to f32
    %g = arith.mulf %f, %scale : f32
    %t = arith.truncf %g : f32 to bf16
    linalg.yield %t : bf16
  }
  linalg.generic {indexing_maps = [#tile, #tile], iterator_types = ["parallel", "parallel"]}
      ins(%v8 : memref<?x64xf8E5M2>) outs(%v : memref<?x64xbf16, strided<[64, 1]>>) {
  ^bb0(%x: f8E5M2, %o: bf16):
    %f = arith.extf %x : f8E5M2 to f32
    %g = arith.mulf %f, %scale : f32
    %t = arith.truncf %g : f32 to bf16
    linalg.yield %t : bf16
  }
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%c0, %c0, %c0, %c0) into(%acc, %max, %sum : memref<4x64xf32>, memref<4xf32>, memref<4xf32>)
      {schedule = #attn.schedule<rows = 4, cols = 256>, unpacked}
      : (memref<4x64xbf16>, memref<?x64xbf16, strided<[64, 1]>>, memref<?x64xbf16, strided<[64, 1]>>)
  return
}
