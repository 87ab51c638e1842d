// One task per batch and KV head carries the state through chunks of 64 positions, or 16 if the decay differs by row.
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
// CHECK: scf.for %{{.*}} step %c16
// CHECK: math.exp
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

// The transposed op visits the last chunk first, and adds the heads of keys of a group to one state.
// CHECK-LABEL: func.func @transposed
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (1, 2)
// CHECK: scf.for %[[CHUNK:.*]] = %c0{{.*}} step %c64
// CHECK: arith.subi %{{.*}}, %[[CHUNK]]
// CHECK: scf.for %[[MEMBER:.*]] = %c0{{.*}} to %c2
// CHECK: arith.muli %{{.*}}, %c2
func.func @transposed(%q: tensor<2x?x8xf32>, %k: tensor<4x?x8xf32>) -> tensor<2x?x8xf32> {
  %o = attn.linear %q[h,s,d], %k[h,s,d], %k[h,s,d] causal transposed
    : (tensor<2x?x8xf32>, tensor<4x?x8xf32>, tensor<4x?x8xf32>) -> tensor<2x?x8xf32>
  return %o : tensor<2x?x8xf32>
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
