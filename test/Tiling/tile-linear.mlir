// One task per batch and head of values carries the state through chunks of 32 positions, or of 64 if operands of matmuls
// are bf16. Within a chunk, a decay of rows is computed in blocks of 16.
// RUN: saccade-opt %s -attn-tile-linear | FileCheck %s
// RUN: saccade-opt %s -attn-tile-linear | FileCheck %s --check-prefix=BLOCKS
// BLOCKS-NOT: #attn.schedule<rows = {{[0-9]?[0-9]}},
// BLOCKS: #attn.schedule<rows = 128, cols = 128, depth = 128>
// BLOCKS-NOT: #attn.schedule<rows = {{[0-9]?[0-9]}},

// CHECK-LABEL: func.func @causal
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (2, 3) shared_outs(%{{.*}} = %{{.*}}) -> (tensor<2x6x?x16xbf16>)
// CHECK: %[[STATE:.*]] = linalg.fill {{.*}} -> tensor<8x16xf32>
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c64{{.*}} iter_args(%{{.*}} = %[[STATE]]
// CHECK-NOT: attn.linear
// CHECK: scf.for
// CHECK: tensor.parallel_insert_slice
func.func @causal(%q: tensor<2x6x?x8xbf16>, %k: tensor<2x3x?x8xbf16>, %v: tensor<2x3x?x16xbf16>) -> tensor<2x6x?x16xbf16> {
  %o = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal
    : (tensor<2x6x?x8xbf16>, tensor<2x3x?x8xbf16>, tensor<2x3x?x16xbf16>) -> tensor<2x6x?x16xbf16>
  return %o : tensor<2x6x?x16xbf16>
}

// CHECK-LABEL: func.func @rows_decay
// CHECK: scf.for %{{.*}} step %c32
// CHECK: math.exp
// CHECK: scf.for %{{.*}} step %c16
func.func @rows_decay(%x: tensor<?x8xf32>, %g: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal decay(%g[s,d] : tensor<?x8xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// EXAMPLE
// Without `causal`: a loop over keys, then one over queries.
// CHECK-LABEL: func.func @all_keys
// CHECK: %[[FINAL:.*]] = scf.for {{.*}} -> (tensor<8x8xf32>)
// CHECK: scf.for
// CHECK: ins(%{{.*}}, %[[FINAL]] :
func.func @all_keys(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.linear %q[s,d], %k[s,d], %k[s,d] : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// A gradient: one loop stores the states before the chunks, the other begins with the last chunk.
// CHECK-LABEL: func.func @gradient
// CHECK: %[[STATES:.*]] = scf.forall {{.*}} -> (tensor<1x?x8x8xf32>)
// CHECK: linalg.copy
// CHECK: scf.forall
// CHECK: scf.for %[[CHUNK:.*]] = %c0{{.*}} step %c64
// CHECK: arith.subi %{{.*}}, %[[CHUNK]]
// CHECK: tensor.extract_slice %[[STATES]]
func.func @gradient(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %dq, %dk, %dv = attn.linear_gradient %x[s,d], %x[s,d], %x[s,d] causal output_gradient(%x[s,d] : tensor<?x8xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %dk : tensor<?x8xf32>
}

// A short sequence is computed position by position.
// CHECK-LABEL: func.func @step
// CHECK: arith.cmpi sle, %{{.*}}, %c8
// CHECK: scf.if
// CHECK: scf.for %{{.*}} step %c1
func.func @step(%x: tensor<?x8xf32>, %b: tensor<?xf32>) -> tensor<?x8xf32> {
  %o = attn.linear %x[s,d], %x[s,d], %x[s,d] causal beta(%b[s] : tensor<?xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// Results without elements need no task.
// CHECK-LABEL: func.func @no_batches
// CHECK-NOT: scf.forall
// CHECK: return
func.func @no_batches(%x: tensor<0x?x8xf32>) -> tensor<0x?x8xf32> {
  %o = attn.linear %x[b,s,d], %x[b,s,d], %x[b,s,d] causal
    : (tensor<0x?x8xf32>, tensor<0x?x8xf32>, tensor<0x?x8xf32>) -> tensor<0x?x8xf32>
  return %o : tensor<0x?x8xf32>
}

// Columns of values in blocks of 32, each of which has its own part of the state. The last chunk is filled with zeros, so
// that all matmuls have 32 positions.
// CHECK-LABEL: func.func @columns
// CHECK: linalg.fill {{.*}} -> tensor<2x8x32xf32>
// CHECK: scf.for %{{.*}} step %c32
// CHECK: linalg.copy ins({{.*}} -> tensor<?x8xf32>
// CHECK: linalg.fill {{.*}} -> tensor<?x8xf32>
// CHECK: tensor.insert_slice {{.*}} : tensor<?x8xf32> into tensor<32x8xf32>
// CHECK: scf.for %[[BLOCK:.*]] = %c0{{.*}} to %c2
// CHECK: tensor.extract_slice %{{.*}}[%[[BLOCK]], 0, 0] [1, 8, 32] [1, 1, 1] : tensor<2x8x32xf32> to tensor<8x32xf32>
func.func @columns(%q: tensor<?x8xf32>, %v: tensor<?x64xf32>, %b: tensor<?xf32>) -> tensor<?x64xf32> {
  %o = attn.linear %q[s,d], %q[s,d], %v[s,d] causal beta(%b[s] : tensor<?xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Heads of values that share queries and keys are one task, at most 8 of them. It multiplies queries and keys once.
// CHECK-LABEL: func.func @shared
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (%{{.*}}, 3)
// CHECK: scf.for %{{.*}} step %c32
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<32x8xf32>, tensor<32x8xf32>) outs(%{{.*}} : tensor<32x32xf32>) attrs = {attn.tile_matmul
// CHECK: scf.for %[[HEAD:.*]] = %c0{{.*}} to %c8
// CHECK: tensor.extract_slice %{{.*}}[%[[HEAD]], 0, 0, 0] [1, 2, 8, 32] [1, 1, 1, 1] : tensor<8x2x8x32xf32> to tensor<2x8x32xf32>
// CHECK-NOT: tensor<32x8xf32>, tensor<32x8xf32>) outs(%{{.*}} : tensor<32x32xf32>)
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (%{{.*}}, 24)
func.func @shared(%q: tensor<1x?x8xf32>, %v: tensor<24x?x64xf32>, %g: tensor<24x?xf32>) -> tensor<24x?x64xf32> {
  %o = attn.linear %q[h,s,d], %q[h,s,d], %v[h,s,d] causal decay(%g[h,s] : tensor<24x?xf32>)
    : (tensor<1x?x8xf32>, tensor<1x?x8xf32>, tensor<24x?x64xf32>) -> tensor<24x?x64xf32>
  return %o : tensor<24x?x64xf32>
}

// With fewer tasks than threads, the first loop has no tasks. Segments of positions are prepared by chunks, and divided by
// columns of the state.
// CHECK-LABEL: func.func @split
// CHECK: attn.threads
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (%{{.*}}, 1)
// CHECK: scf.for %{{.*}} step %c2048
// CHECK: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (%{{.*}}, 1, %{{.*}})
// CHECK: {attn.tiled_from = "linear_attention.chunks"
// CHECK: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (%{{.*}}, 1, 2)
// CHECK: tensor<1x1x2x8x32xf32> to tensor<2x8x32xf32>
func.func @split(%q: tensor<1x?x8xf32>, %v: tensor<1x?x128xf32>, %b: tensor<1x?xf32>) -> tensor<1x?x128xf32> {
  %o = attn.linear %q[h,s,d], %q[h,s,d], %v[h,s,d] causal beta(%b[h,s] : tensor<1x?xf32>)
    : (tensor<1x?x8xf32>, tensor<1x?x8xf32>, tensor<1x?x128xf32>) -> tensor<1x?x128xf32>
  return %o : tensor<1x?x128xf32>
}
