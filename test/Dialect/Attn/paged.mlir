// Round trip of attn.paged and attn.load_pages, and the extents of a view of pages.
// RUN: saccade-opt %s | saccade-opt | FileCheck %s
// RUN: saccade-opt %s --attn-expand-paged -canonicalize | FileCheck %s --check-prefix=EXTENTS

// CHECK-LABEL: @keys_of_all_heads
// CHECK: attn.paged %{{.*}}[b,s,h,d], %{{.*}} : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
func.func @keys_of_all_heads(%pool: tensor<?x16x2x64xf32>, %table: tensor<?x?xi32>) -> tensor<?x?x2x64xf32> {
  %k = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  return %k : tensor<?x?x2x64xf32>
}

// A pool may have one head only, static extents, and elements that are not attention's.
// CHECK-LABEL: @quantized
// CHECK: attn.paged %{{.*}}[s,b,d], %{{.*}} : tensor<16x9x64xi8>, tensor<2x3xi64> -> tensor<48x2x64xi8>
func.func @quantized(%pool: tensor<16x9x64xi8>, %table: tensor<2x3xi64>) -> tensor<48x2x64xi8> {
  %k = attn.paged %pool[s,b,d], %table : tensor<16x9x64xi8>, tensor<2x3xi64> -> tensor<48x2x64xi8>
  return %k : tensor<48x2x64xi8>
}

// CHECK-LABEL: @tile_of_tensors
// CHECK: attn.load_pages %{{.*}}[b,s,d], %{{.*}} from %{{.*}} into(%{{.*}})
func.func @tile_of_tensors(%pool: tensor<?x16x64xf32>, %pages: tensor<?xi32>, %begin: index, %tile: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %k = attn.load_pages %pool[b,s,d], %pages from %begin into(%tile)
    : (tensor<?x16x64xf32>, tensor<?xi32>, index, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %k : tensor<?x64xf32>
}

// CHECK-LABEL: @tile_of_buffers
// CHECK: attn.load_pages %{{.*}}[b,d,s], %{{.*}} from %{{.*}} into(%{{.*}}) : (memref<?x64x16xf32>, memref<?xi32>, index, memref<?x64xf32>) -> ()
func.func @tile_of_buffers(%pool: memref<?x64x16xf32>, %pages: memref<?xi32>, %begin: index, %tile: memref<?x64xf32>) {
  attn.load_pages %pool[b,d,s], %pages from %begin into(%tile) : (memref<?x64x16xf32>, memref<?xi32>, index, memref<?x64xf32>) -> ()
  return
}

// EXTENTS-LABEL: @extents
// EXTENTS-SAME: %[[POOL:.*]]: tensor<?x?x2x64xf32>, %[[TABLE:.*]]: tensor<?x?xi32>
// EXTENTS-DAG: %[[C0:.*]] = arith.constant 0 : index
// EXTENTS-DAG: %[[C1:.*]] = arith.constant 1 : index
// EXTENTS-DAG: %[[SEQUENCES:.*]] = tensor.dim %[[TABLE]], %[[C0]]
// EXTENTS-DAG: %[[PAGES:.*]] = tensor.dim %[[TABLE]], %[[C1]]
// EXTENTS-DAG: %[[SIZE:.*]] = tensor.dim %[[POOL]], %[[C1]]
// EXTENTS: %[[POSITIONS:.*]] = arith.muli %[[PAGES]], %[[SIZE]]
// EXTENTS: return %[[SEQUENCES]], %[[POSITIONS]]
func.func @extents(%pool: tensor<?x?x2x64xf32>, %table: tensor<?x?xi32>) -> (index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k = attn.paged %pool[b,s,h,d], %table : tensor<?x?x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %n = tensor.dim %k, %c0 : tensor<?x?x2x64xf32>
  %m = tensor.dim %k, %c1 : tensor<?x?x2x64xf32>
  return %n, %m : index, index
}
