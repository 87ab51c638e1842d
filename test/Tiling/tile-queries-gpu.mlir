// On a GPU the last chunk of queries of a head comes first if there is a mask: under a causal mask it has the most keys.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-tile-queries{gpu=true}))' | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-tile-queries))' | FileCheck %s --check-prefixes=CHECK,CPU

// GPU: #[[REVERSED:.*]] = affine_map<(d0) -> (-d0 + 200)>
// CHECK-LABEL: func.func @causal
// CHECK: scf.forall (%{{.*}}, %{{.*}}, %[[I:.*]]) = (0, 0, 0) to (2, 4, 300) step (1, 1, 100)
// GPU:   %[[FIRST:.*]] = affine.apply #[[REVERSED]](%[[I]])
// GPU:   tensor.extract_slice %arg0[%{{.*}}, %{{.*}}, %[[FIRST]], 0] [1, 1, 100, 64]
// GPU:   tensor.parallel_insert_slice %{{.*}}[%{{.*}}, %{{.*}}, %[[FIRST]], 0] [1, 1, 100, 64]
// CPU:   tensor.extract_slice %arg0[%{{.*}}, %{{.*}}, %[[I]], 0] [1, 1, 100, 64]
func.func @causal(%q: tensor<2x4x300x64xf32>, %k: tensor<2x4x300x64xf32>, %v: tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32>
  return %o : tensor<2x4x300x64xf32>
}

// CHECK-LABEL: func.func @full
// CHECK: scf.forall (%{{.*}}, %{{.*}}, %[[I:.*]]) = (0, 0, 0) to (2, 4, 300) step (1, 1, 100)
// CHECK:   tensor.extract_slice %arg0[%{{.*}}, %{{.*}}, %[[I]], 0] [1, 1, 100, 64]
func.func @full(%q: tensor<2x4x300x64xf32>, %k: tensor<2x4x300x64xf32>, %v: tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {schedule = #attn.schedule<rows = 100, cols = 64>}
    : (tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>, tensor<2x4x300x64xf32>) -> tensor<2x4x300x64xf32>
  return %o : tensor<2x4x300x64xf32>
}
