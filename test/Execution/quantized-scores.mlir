// Dot products of int8 (`qk_type`): head sizes that are no multiples of 16, every layout, tiles with few keys, masks, score
// regions, and elements that are not finite.

// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=plain --check --arg=2x37x33:bf16:1 --arg=1x71x33:bf16:2 --arg=1x71x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=plain --check --arg=2x13x33:bf16:1 --arg=1x1x33:bf16:2 --arg=1x1x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=plain --check --arg=2x49x33:bf16:1 --arg=2x2100x33:bf16:2 --arg=2x2100x15:bf16:3
// RUN: saccade-run %s --target=v4-bf16-expanded --entry=plain --check --arg=2x37x33:bf16:1 --arg=1x1071x33:bf16:2 --arg=1x1071x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=columns_are_contiguous --check --arg=32x700:f16:1 --arg=32x700:f16:2 --arg=40x700:f16:3 --arg=0.2
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=columns_are_contiguous --check --arg=32x700:f16:1 --arg=32x700:f16:2 --arg=40x700:f16:3 --arg=-0.2
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=the_score_region_sees_whole_scores --check --arg=3x50x64:f32:1 --arg=3x600x64:f32:2 --arg=3x600x64:f32:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=keys_with_a_common_part --check --arg=100x64:bf16:1 --arg=1500x64:bf16:2 --arg=1500x64:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=masked_keys_that_are_not_finite_are_harmless --check --arg=100x64:f32:1 --arg=100x64:f32:2 --arg=100x64:f32:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=equal_keys --check --arg=30x64:f32:1 --arg=60x64:f32:=0.0 --arg=60x64:f32:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=equal_keys --check --arg=30x64:f32:=0.0 --arg=60x64:f32:2 --arg=60x64:f32:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=equal_keys --check --arg=30x64:f32:1 --arg=60x64:f32:=1e-38 --arg=60x64:f32:3
// Ragged sequences, of which one uses split-KV, with sinks, grouped heads and a window; lengths and a weight region.
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=ragged_with_sinks --check --arg=150x4x33:bf16:1 --arg=460x2x33:bf16:2 --arg=460x2x24:bf16:3 --arg=4:f32:4
// RUN: saccade-run %s --target=%{v4-bf16} --guard --entry=lengths_and_weights --check --arg=2x3x40x48:f32:1 --arg=2x3x700x48:f32:2 --arg=2x3x700x20:f32:3 --arg=2:i32:=33 --arg=2:i32:=411
// RUN: saccade-run %s --target=%{v4-bf16} --entry=lengths_and_weights --check --arg=1x1x40x48:f32:1 --arg=1x1x7x48:f32:2 --arg=1x1x7x20:f32:3 --arg=1:i32:=40 --arg=1:i32:=0
// Scores with keys or queries that are not finite are NaN.
// RUN: saccade-run %s --target=%{v4-bf16} --entry=equal_keys --check --arg=30x64:f32:1 --arg=60x64:f32:=inf --arg=60x64:f32:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=equal_keys --check --arg=30x64:f32:=inf --arg=60x64:f32:2 --arg=60x64:f32:3

// Targets without int8 dot products, tile registers and split-KV compute unquantized products.
// RUN: saccade-run %s --target=v3 --entry=plain --check --arg=2x37x33:bf16:1 --arg=1x71x33:bf16:2 --arg=1x71x15:bf16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=plain --check --arg=2x37x33:bf16:1 --arg=1x71x33:bf16:2 --arg=1x71x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=plain --check --arg=2x3x33:bf16:1 --arg=1x71x33:bf16:2 --arg=1x71x15:bf16:3

// RUN: saccade-compile %s --target=v4-bf16 --explain | FileCheck %s --check-prefixes=FAMILY,BF16
// RUN: saccade-compile %s --target=v4-amx --explain | FileCheck %s --check-prefixes=FAMILY,AMX
// RUN: saccade-compile %s --target=aarch64-bf16 --explain | FileCheck %s --check-prefixes=FAMILY,AARCH64
// RUN: saccade-compile %s --target=v3-int8 --explain | FileCheck %s --check-prefixes=FAMILY,V3-INT8
// RUN: saccade-compile %s --target=v3 --explain | FileCheck %s --check-prefix=V3
// RUN: saccade-compile %s --target=sm_90a --explain | FileCheck %s --check-prefix=NO-KERNEL
// NO-KERNEL: int8 scores: not used, kernels of GPUs have none
// FAMILY: attention in 'plain'
// BF16: kernel family {{.*}}v4-bf16 packed, int8 scores (vpdpbusd), bf16 pairs (vdpbf16ps)
// AMX: kernel family {{.*}}v4-amx packed, bf16 tiles (tdpbf16ps)
// AMX: int8 scores: not used, tile registers multiply bf16 faster{{$}}
// AARCH64: kernel family {{.*}}aarch64-bf16 packed, int8 scores (smmla), bf16 blocks (bfmmla)
// V3-INT8: kernel family {{.*}}v3-int8 packed, int8 scores (vpdpbssd), f32 multiply-add
// V3-INT8-NOT: int8 scores: not used
// FAMILY: attention in 'the_score_region_sees_whole_scores'
// BF16: kernel family {{.*}}v4-bf16 packed, int8 scores (vpdpbusd), f32 multiply-add
// AMX: kernel family {{.*}}v4-amx packed, int8 scores (vpdpbusd), f32 multiply-add
// AARCH64: kernel family {{.*}}aarch64-bf16 packed, int8 scores (smmla), f32 multiply-add
// V3-INT8: kernel family {{.*}}v3-int8 packed, int8 scores (vpdpbssd), f32 multiply-add
// V3-NOT: int8 scores (
// V3: int8 scores: not used, target 'v3' has no instruction for products of int8{{$}}
// V3-NOT: int8 scores (

func.func @plain(%q: tensor<?x?x33xbf16>, %k: tensor<?x?x33xbf16>, %v: tensor<?x?x15xbf16>) -> (tensor<?x?x15xf32>, tensor<?x?xf32>) {
  %o, %lse = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] qk_type(i8) lse
    : (tensor<?x?x33xbf16>, tensor<?x?x33xbf16>, tensor<?x?x15xbf16>) -> (tensor<?x?x15xf32>, tensor<?x?xf32>)
  return %o, %lse : tensor<?x?x15xf32>, tensor<?x?xf32>
}

func.func @columns_are_contiguous(%q: tensor<32x?xf16>, %k: tensor<32x?xf16>, %v: tensor<40x?xf16>, %scale: f32) -> tensor<40x?xf16> {
  %o = attn.attention %q[d,s], %k[d,s], %v[d,s] scale(%scale : f32) qk_type(i8) mask causal<bottom_right> mask window<300, *>
    : (tensor<32x?xf16>, tensor<32x?xf16>, tensor<40x?xf16>) -> tensor<40x?xf16>
  return %o : tensor<40x?xf16>
}

func.func @the_score_region_sees_whole_scores(%q: tensor<?x?x64xf32>, %k: tensor<?x?x64xf32>, %v: tensor<?x?x64xf32>) -> tensor<?x?x64xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] qk_type(i8)
    score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 5.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %y = arith.mulf %t, %cap : f32
      attn.yield %y : f32
    } : (tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %o : tensor<?x?x64xf32>
}

// Without smoothing, the common part would take most of the 127 steps.
func.func @keys_with_a_common_part(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> tensor<?x64xbf16> {
  %shift = arith.constant 32.0 : bf16
  %shifted = linalg.generic {indexing_maps = [affine_map<(s, d) -> (s, d)>], iterator_types = ["parallel", "parallel"]}
      outs(%k : tensor<?x64xbf16>) {
  ^bb0(%x: bf16):
    %y = arith.addf %x, %shift : bf16
    linalg.yield %y : bf16
  } -> tensor<?x64xbf16>
  %o = attn.attention %q[s,d], %shifted[s,d], %v[s,d] qk_type(i8) mask causal<bottom_right>
    : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

func.func @masked_keys_that_are_not_finite_are_harmless(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %infinite = linalg.generic {indexing_maps = [affine_map<(s, d) -> (s, d)>], iterator_types = ["parallel", "parallel"]}
      outs(%k : tensor<?x64xf32>) {
  ^bb0(%x: f32):
    %i = linalg.index 0 : index
    %seven = arith.constant 7 : index
    %eight = arith.constant 8 : index
    %nan = arith.constant 0x7FC00000 : f32
    %inf = arith.constant 0xFF800000 : f32
    %is_seven = arith.cmpi eq, %i, %seven : index
    %is_eight = arith.cmpi eq, %i, %eight : index
    %y = arith.select %is_seven, %nan, %x : f32
    %z = arith.select %is_eight, %inf, %y : f32
    linalg.yield %z : f32
  } -> tensor<?x64xf32>
  %o = attn.attention %q[s,d], %infinite[s,d], %v[s,d] qk_type(i8) mask(%b, %h, %i, %j) {
    %seven = arith.constant 7 : index
    %eight = arith.constant 8 : index
    %is_other = arith.cmpi ne, %j, %seven : index
    %is_another = arith.cmpi ne, %j, %eight : index
    %holds = arith.andi %is_other, %is_another : i1
    attn.yield %holds : i1
  } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @equal_keys(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] qk_type(i8)
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @ragged_with_sinks(%q: tensor<?x4x33xbf16>, %k: tensor<?x2x33xbf16>, %v: tensor<?x2x24xbf16>, %sink: tensor<4xf32>)
    -> (tensor<?x4x24xbf16>, tensor<4x?xf32>) {
  %cu_q = arith.constant dense<[0, 37, 37, 40, 150]> : tensor<5xi32>
  %cu_k = arith.constant dense<[0, 71, 90, 350, 460]> : tensor<5xi32>
  %o, %lse = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu_q : tensor<5xi32>) cu_seqlens_k(%cu_k : tensor<5xi32>)
      qk_type(i8) sink(%sink : tensor<4xf32>) mask causal<bottom_right> mask window<60, *> lse
    : (tensor<?x4x33xbf16>, tensor<?x2x33xbf16>, tensor<?x2x24xbf16>) -> (tensor<?x4x24xbf16>, tensor<4x?xf32>)
  return %o, %lse : tensor<?x4x24xbf16>, tensor<4x?xf32>
}

func.func @lengths_and_weights(%q: tensor<?x?x?x48xf32>, %k: tensor<?x?x?x48xf32>, %v: tensor<?x?x?x20xf32>, %q_len: tensor<?xi32>,
                               %kv_len: tensor<?xi32>) -> (tensor<?x?x?x20xf32>, tensor<?x?x?xf32>) {
  %o, %max = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%q_len : tensor<?xi32>) kv_len(%kv_len : tensor<?xi32>)
      qk_type(i8) max mask causal<200>
    weight(%w, %b, %h, %i, %j) {
      %half = arith.constant 0.5 : f32
      %x = arith.mulf %w, %half : f32
      attn.yield %x : f32
    } : (tensor<?x?x?x48xf32>, tensor<?x?x?x48xf32>, tensor<?x?x?x20xf32>) -> (tensor<?x?x?x20xf32>, tensor<?x?x?xf32>)
  return %o, %max : tensor<?x?x?x20xf32>, tensor<?x?x?xf32>
}
