// Elementwise ops on the output of attention are computed by its tasks, also by those of split-KV and of ragged batches:
// no other task is left. The gradient function has a task for the gate of its own.

// RUN: saccade-compile %s --target=v3 --stop-after=bufferize -o - | FileCheck %s
// RUN: saccade-compile %s --target=sm_80 --stop-after=bufferize -o - | FileCheck %s
// CHECK-LABEL: func.func @gated.body
// CHECK-NOT:     attn.launch
// CHECK:         attn.launch @gated.attention(
// CHECK-NOT:     attn.launch
// CHECK:         attn.launch @gated.attention.split_kv(
// CHECK-NOT:     attn.launch
// CHECK:         attn.launch @gated.attention.merge(
// CHECK-NOT:     attn.launch
// CHECK:         return
// CHECK-LABEL: func.func @differential.body
// CHECK-NOT:     attn.launch @{{.*}}sub
// CHECK:         return
// CHECK-LABEL: func.func @joined.body
// CHECK-NOT:     attn.launch @{{.*}}mul
// CHECK:         return
// CHECK-LABEL: func.func @ragged.body
// CHECK-NOT:     attn.launch @{{.*}}mul
// CHECK:         return

// RUN: saccade-run %s --check --entry=gated --arg=1x2x150x64:bf16:1 --arg=1x1x170x64:bf16:2 --arg=1x1x170x64:bf16:3 --arg=1x2x150x64:bf16:4
// RUN: saccade-run %s --check --entry=gated --arg=1x4x3x64:bf16:1 --arg=1x2x700x64:bf16:2 --arg=1x2x700x64:bf16:3 --arg=1x4x3x64:bf16:4
// RUN: saccade-run %s --check --entry=differential --arg=2x70x4x40:f32:1 --arg=2x70x2x40:f32:2 --arg=2x70x2x24:f32:3 --arg=2x70x4x24:f32:4 --arg=4:f32:5
// RUN: saccade-run %s --check --entry=joined --arg=2x33x4x32:f16:1 --arg=2x33x2x32:f16:2 --arg=2x33x2x32:f16:3 --arg=2x33x128:f16:4

// Threads apply the op to the elements that they store. Queries without keys, which the first rows of bottom-right
// alignment are, give 0.
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --check --entry=gated --arg=1x2x70x64:bf16:1 --arg=1x1x50x64:bf16:2 --arg=1x1x50x64:bf16:3 --arg=1x2x70x64:bf16:4
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --explain --entry=gated --arg=1x2x150x64:bf16:1 --arg=1x1x70x64:bf16:2 --arg=1x1x70x64:bf16:3 --arg=1x2x150x64:bf16:4 | FileCheck %s --check-prefix=TC
// TC: gated_attention: kernel family sm_80, ran
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --explain --entry=gated --arg=1x2x150x64:bf16:1 --arg=1x1x170x64:bf16:2 --arg=1x1x170x64:bf16:3 --arg=1x2x150x64:bf16:4 | FileCheck %s --check-prefix=WG
// WG: gated_attention_sm_90a: kernel family sm_90a, ran
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --explain --entry=gated --arg=1x4x3x64:bf16:1 --arg=1x2x700x64:bf16:2 --arg=1x2x700x64:bf16:3 --arg=1x4x3x64:bf16:4 | FileCheck %s --check-prefix=SPLIT
// SPLIT-DAG: gated_attention_split_kv_sm_90a: kernel family sm_90a, split-KV, ran
// SPLIT-DAG: gated_attention_merge: kernel family simt, states merged, ran
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --entry=differential --arg=2x30x4x40:f32:1 --arg=2x30x2x40:f32:2 --arg=2x30x2x24:f32:3 --arg=2x30x4x24:f32:4 --arg=4:f32:5
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --entry=joined --arg=1x33x4x32:f16:1 --arg=1x33x2x32:f16:2 --arg=1x33x2x32:f16:3 --arg=1x33x128:f16:4

// An output gate of the shape of the output, as Qwen3-Next has it.
func.func @gated(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>, %gate: tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right>
    : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(b, h, s, d) -> (b, h, s, d)>, affine_map<(b, h, s, d) -> (b, h, s, d)>, affine_map<(b, h, s, d) -> (b, h, s, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%o, %gate : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) outs(%q : tensor<?x?x?x64xbf16>) {
  ^bb0(%x: bf16, %g: bf16, %out: bf16):
    %one = arith.constant 1.0 : f32
    %wide = arith.extf %g : bf16 to f32
    %negative = arith.negf %wide : f32
    %e = math.exp %negative : f32
    %d = arith.addf %e, %one : f32
    %y = arith.extf %x : bf16 to f32
    %z = arith.divf %y, %d : f32
    %narrow = arith.truncf %z : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<?x?x?x64xbf16>
  return %r : tensor<?x?x?x64xbf16>
}

// The second map of differential attention, with a factor a head, and a log-sum-exp as a further result.
func.func @differential(%q: tensor<2x?x4x40xf32>, %k: tensor<2x?x2x40xf32>, %v: tensor<2x?x2x24xf32>, %other: tensor<2x?x4x24xf32>, %lambda: tensor<4xf32>)
    -> (tensor<2x?x4x24xf32>, tensor<2x4x?xf32>) {
  %o, %lse = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<top_left> lse
    : (tensor<2x?x4x40xf32>, tensor<2x?x2x40xf32>, tensor<2x?x2x24xf32>) -> (tensor<2x?x4x24xf32>, tensor<2x4x?xf32>)
  %r = linalg.generic {indexing_maps = [affine_map<(b, s, h, d) -> (b, s, h, d)>, affine_map<(b, s, h, d) -> (h)>, affine_map<(b, s, h, d) -> (b, s, h, d)>, affine_map<(b, s, h, d) -> (b, s, h, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%other, %lambda, %o : tensor<2x?x4x24xf32>, tensor<4xf32>, tensor<2x?x4x24xf32>) outs(%other : tensor<2x?x4x24xf32>) {
  ^bb0(%x: f32, %l: f32, %second: f32, %out: f32):
    %scaled = arith.mulf %l, %second : f32
    %difference = arith.subf %x, %scaled : f32
    linalg.yield %difference : f32
  } -> tensor<2x?x4x24xf32>
  return %r, %lse : tensor<2x?x4x24xf32>, tensor<2x4x?xf32>
}

// As a frontend writes it: results of f32 that are rounded, transposed, and joined to rows of all heads, which the gate
// has, too.
func.func @joined(%q: tensor<?x?x4x32xf16>, %k: tensor<?x?x2x32xf16>, %v: tensor<?x?x2x32xf16>, %gate: tensor<?x?x128xf16>) -> tensor<?x?x128xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b = tensor.dim %q, %c0 : tensor<?x?x4x32xf16>
  %s = tensor.dim %q, %c1 : tensor<?x?x4x32xf16>
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<top_left> out[b,h,s,d]
    : (tensor<?x?x4x32xf16>, tensor<?x?x2x32xf16>, tensor<?x?x2x32xf16>) -> tensor<?x4x?x32xf32>
  %rounded = arith.truncf %o : tensor<?x4x?x32xf32> to tensor<?x4x?x32xf16>
  %e = tensor.empty(%b, %s) : tensor<?x?x4x32xf16>
  %t = linalg.transpose ins(%rounded : tensor<?x4x?x32xf16>) outs(%e : tensor<?x?x4x32xf16>) permutation = [0, 2, 1, 3]
  %joined = tensor.collapse_shape %t [[0], [1], [2, 3]] : tensor<?x?x4x32xf16> into tensor<?x?x128xf16>
  %r = arith.mulf %joined, %gate : tensor<?x?x128xf16>
  return %r : tensor<?x?x128xf16>
}

// A ragged batch with a gate a head and position.
func.func @ragged(%q: tensor<?x4x64xf16>, %k: tensor<?x2x64xf16>, %v: tensor<?x2x64xf16>, %offsets: tensor<?xi32>, %gate: tensor<?x4xf32>) -> tensor<?x4x64xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%offsets : tensor<?xi32>) cu_seqlens_k(%offsets : tensor<?xi32>)
    : (tensor<?x4x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> tensor<?x4x64xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(s, h, d) -> (s, h, d)>, affine_map<(s, h, d) -> (s, h)>, affine_map<(s, h, d) -> (s, h, d)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%o, %gate : tensor<?x4x64xf16>, tensor<?x4xf32>) outs(%q : tensor<?x4x64xf16>) {
  ^bb0(%x: f16, %g: f32, %out: f16):
    %y = arith.extf %x : f16 to f32
    %z = arith.mulf %y, %g : f32
    %narrow = arith.truncf %z : f32 to f16
    linalg.yield %narrow : f16
  } -> tensor<?x4x64xf16>
  return %r : tensor<?x4x64xf16>
}
