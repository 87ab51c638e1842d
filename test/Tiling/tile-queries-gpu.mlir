// On a GPU, heads form sections whose keys and values fit into 32 MiB. The last chunk of each head of a section comes first if
// there is a mask: under a causal mask it has the most keys.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-tile-queries{gpu=true},canonicalize))' | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-tile-queries,canonicalize))' | FileCheck %s --check-prefixes=CHECK,CPU

// All heads are one section.
// CHECK-LABEL: func.func @causal
// GPU:   scf.forall (%[[ITEM:.*]]) in (24)
// GPU:     %[[ANY:.*]] = arith.remui %[[ITEM]], %c8
// GPU:     %[[NUMBER:.*]] = arith.divui %[[ITEM]], %c8
// GPU:     %[[BATCH:.*]] = arith.divui %[[ANY]], %c4
// GPU:     %[[HEAD:.*]] = arith.remui %[[ANY]], %c4
// GPU:     %[[CHUNK:.*]] = arith.subi %c2, %[[NUMBER]]
// GPU:     %[[FIRST:.*]] = arith.muli %[[CHUNK]], %c100
// GPU:     tensor.extract_slice %arg0[%[[BATCH]], %[[HEAD]], %[[FIRST]], 0] [1, 1, 100, 64]
// GPU:     tensor.parallel_insert_slice %{{.*}}[%[[BATCH]], %[[HEAD]], %[[FIRST]], 0] [1, 1, 100, 64]
// CPU:   scf.forall (%{{.*}}, %{{.*}}, %[[I:.*]]) = (0, 0, 0) to (2, 4, 300) step (1, 1, 100)
// CPU:     tensor.extract_slice %arg0[%{{.*}}, %{{.*}}, %[[I]], 0] [1, 1, 100, 64]
func.func @causal(%q: tensor<2x4x300x64xf32>, %k: tensor<2x4x300x64xf32>, %v: tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32>
  return %o : tensor<2x4x300x64xf32>
}

// One KV head takes 25.6 MB, so the two query heads that share it are a section of six items.
// CHECK-LABEL: func.func @grouped
// GPU:   scf.forall (%[[ITEM:.*]]) in (18)
// GPU:     %[[SECTION:.*]] = arith.divui %[[ITEM]], %c6
// GPU:     %[[REST:.*]] = arith.remui %[[ITEM]], %c6
// GPU:     %[[START:.*]] = arith.muli %[[SECTION]], %c2
// GPU:     %[[MEMBER:.*]] = arith.remui %[[REST]], %c2
// GPU:     %[[HEAD:.*]] = arith.addi %[[START]], %[[MEMBER]]
// GPU:     %[[NUMBER:.*]] = arith.divui %[[REST]], %c2
// GPU:     %[[CHUNK:.*]] = arith.subi %c2, %[[NUMBER]]
// GPU:     %[[FIRST:.*]] = arith.muli %[[CHUNK]], %c100
// GPU:     tensor.extract_slice %arg0[0, %[[HEAD]], %[[FIRST]], 0]
func.func @grouped(%q: tensor<1x6x300x64xf16>, %k: tensor<1x3x100000x64xf16>, %v: tensor<1x3x100000x64xf16>) -> tensor<1x6x300x64xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<1x6x300x64xf16>, tensor<1x3x100000x64xf16>, tensor<1x3x100000x64xf16>) -> tensor<1x6x300x64xf16>
  return %o : tensor<1x6x300x64xf16>
}

// Two KV heads fit, so there are two sections, of two and one. The last one ends with the heads.
// CHECK-LABEL: func.func @remainder
// GPU:   scf.forall (%[[ITEM:.*]]) in (9)
// GPU:     %[[SECTION:.*]] = arith.divui %[[ITEM]], %c6
// GPU:     %[[REST:.*]] = arith.remui %[[ITEM]], %c6
// GPU:     %[[START:.*]] = arith.muli %[[SECTION]], %c2
// GPU:     %[[LEFT:.*]] = arith.subi %c3, %[[START]]
// GPU:     %[[HEADS:.*]] = arith.minsi %[[LEFT]], %c2
// GPU:     arith.remui %[[REST]], %[[HEADS]]
// GPU:     arith.divui %[[REST]], %[[HEADS]]
func.func @remainder(%q: tensor<1x3x300x64xf16>, %k: tensor<1x3x50000x64xf16>, %v: tensor<1x3x50000x64xf16>) -> tensor<1x3x300x64xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<1x3x300x64xf16>, tensor<1x3x50000x64xf16>, tensor<1x3x50000x64xf16>) -> tensor<1x3x300x64xf16>
  return %o : tensor<1x3x300x64xf16>
}

// The host computes the size of a section of dynamic extents. A position of keys and values takes 256 bytes.
// CHECK-LABEL: func.func @dynamic
// GPU:   %[[BYTES:.*]] = arith.muli %{{.*}}, %c256
// GPU:   %[[POSITIVE:.*]] = arith.maxsi %[[BYTES]], %c1
// GPU:   arith.divui %c33554432, %[[POSITIVE]]
// GPU:   scf.forall
// GPU-NOT: %c33554432
// GPU:     tensor.extract_slice
func.func @dynamic(%q: tensor<?x8x?x64xf16>, %k: tensor<?x2x?x64xf16>, %v: tensor<?x2x?x64xf16>) -> tensor<?x8x?x64xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<?x8x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>) -> tensor<?x8x?x64xf16>
  return %o : tensor<?x8x?x64xf16>
}

// CHECK-LABEL: func.func @full
// CHECK: scf.forall (%{{.*}}, %{{.*}}, %[[I:.*]]) = (0, 0, 0) to (2, 4, 300) step (1, 1, 100)
// CHECK:   tensor.extract_slice %arg0[%{{.*}}, %{{.*}}, %[[I]], 0] [1, 1, 100, 64]
func.func @full(%q: tensor<2x4x300x64xf32>, %k: tensor<2x4x300x64xf32>, %v: tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32>
  return %o : tensor<2x4x300x64xf32>
}

// Split-KV with more rows than a task merges: the states have as many rows as an item, three heads of nine queries rounded up,
// and a task merges the rows of one head, which are those of its tile with a distance of three.
// GPU-LABEL: func.func @merged_heads
// GPU:   scf.forall (%{{.*}}) in (12) shared_outs({{.*}}) -> (tensor<12x28x64xf32>, tensor<12x28xf32>, tensor<12x28xf32>
// GPU:   scf.forall (%{{.*}}, %{{.*}}, %[[HEAD:.*]]) in (1, 2, 6)
// GPU:     %[[TILE:.*]] = arith.divui %[[HEAD]], %c3
// GPU:     attn.merge
// GPU:     attn.finalize
func.func @merged_heads(%q: tensor<1x12x9x64xf16>, %k: tensor<1x2x600x64xf16>, %v: tensor<1x2x600x64xf16>) -> tensor<1x12x9x64xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    {schedule = #attn.schedule<rows = 128, cols = 16384>, split_kv = #attn.split_kv<queries = 16, rows = 32, cols = 256>}
    : (tensor<1x12x9x64xf16>, tensor<1x2x600x64xf16>, tensor<1x2x600x64xf16>) -> tensor<1x12x9x64xf16>
  return %o : tensor<1x12x9x64xf16>
}
