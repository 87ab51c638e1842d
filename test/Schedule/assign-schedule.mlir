// RUN: saccade-opt %s --attn-assign-schedule=target=v4 | FileCheck %s
// RUN: saccade-opt %s --attn-assign-schedule=target=v4-bf16 | FileCheck %s --check-prefix=PAIRS
// RUN: saccade-opt %s --attn-assign-schedule=target=v3 | FileCheck %s --check-prefix=SMALL

// EXAMPLE
// The schedule does not depend on sequence lengths, even if they are static and short.
// CHECK-LABEL: @lengths_do_not_change_the_schedule
func.func @lengths_do_not_change_the_schedule(%long: tensor<?x64xf32>, %short: tensor<7x64xf32>) -> (tensor<?x64xf32>, tensor<7x64xf32>) {
  // A split-KV schedule is added, which is selected at run time.
  // CHECK: attn.attention {{.*}} {schedule = #attn.schedule<rows = 576, cols = 512>, split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>}
  %a = attn.attention %long[s,d], %long[s,d], %long[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  // CHECK: attn.attention {{.*}} {schedule = #attn.schedule<rows = 576, cols = 512>, split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>}
  %b = attn.attention %short[s,d], %short[s,d], %short[s,d] : (tensor<7x64xf32>, tensor<7x64xf32>, tensor<7x64xf32>) -> tensor<7x64xf32>
  return %a, %b : tensor<?x64xf32>, tensor<7x64xf32>
}

// CHECK-LABEL: @large_heads_get_smaller_tiles
// SMALL-LABEL: @large_heads_get_smaller_tiles
func.func @large_heads_get_smaller_tiles(%x: tensor<?x256xf64>) -> tensor<?x256xf64> {
  // CHECK: schedule = #attn.schedule<rows = 72, cols = 64>, split_kv =
  // SMALL: schedule = #attn.schedule<rows = 72, cols = 64>, split_kv =
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x256xf64>, tensor<?x256xf64>, tensor<?x256xf64>) -> tensor<?x256xf64>
  return %a : tensor<?x256xf64>
}

// Packed bf16 pairs take half the memory of operands widened to f32.
// With 16 registers tiles fit in L1.
// CHECK-LABEL: @pairs_get_larger_tiles
// SMALL-LABEL: @pairs_get_larger_tiles
// PAIRS-LABEL: @pairs_get_larger_tiles
func.func @pairs_get_larger_tiles(%x: tensor<?x64xbf16>, %y: tensor<?x128xbf16>) -> (tensor<?x64xbf16>, tensor<?x128xbf16>) {
  // CHECK: schedule = #attn.schedule<rows = 576, cols = 512>, split_kv =
  // PAIRS: schedule = #attn.schedule<rows = 576, cols = 1024>, split_kv =
  // SMALL: schedule = #attn.schedule<rows = 288, cols = 128>, split_kv =
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  // CHECK: schedule = #attn.schedule<rows = 288, cols = 256>, split_kv =
  // PAIRS: schedule = #attn.schedule<rows = 576, cols = 512>, split_kv =
  %b = attn.attention %y[s,d], %y[s,d], %y[s,d] : (tensor<?x128xbf16>, tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  return %a, %b : tensor<?x64xbf16>, tensor<?x128xbf16>
}

// CHECK-LABEL: @a_given_schedule_is_kept
func.func @a_given_schedule_is_kept(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK: {schedule = #attn.schedule<rows = 24, cols = 64>}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// CHECK-LABEL: @no_split_kv_for_many_queries
func.func @no_split_kv_for_many_queries(%q: tensor<9x64xf32>, %x: tensor<?x64xf32>) -> tensor<9x64xf32> {
  // CHECK: {schedule = #attn.schedule<rows = 576, cols = 512>}
  %a = attn.attention %q[s,d], %x[s,d], %x[s,d] : (tensor<9x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<9x64xf32>
  return %a : tensor<9x64xf32>
}

// CHECK-LABEL: @contractions_are_scheduled_too
func.func @contractions_are_scheduled_too(%x: tensor<?x768xf32>, %w: tensor<768x768xf32>, %init: tensor<?x768xf32>) -> tensor<?x768xf32> {
  // CHECK: linalg.matmul {schedule = #attn.schedule<
  %a = linalg.matmul ins(%x, %w : tensor<?x768xf32>, tensor<768x768xf32>) outs(%init : tensor<?x768xf32>) -> tensor<?x768xf32>
  return %a : tensor<?x768xf32>
}

// A chunk of long keys has fewer of them, so that it stays in the L2 cache for all groups of heads.
// CHECK-LABEL: @long_keys
func.func @long_keys(%q: tensor<?x16x?x576xf32>, %k: tensor<?x1x?x576xf32>, %v: tensor<?x1x?x512xf32>) -> tensor<?x16x?x512xf32> {
  // CHECK: split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 256>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
      : (tensor<?x16x?x576xf32>, tensor<?x1x?x576xf32>, tensor<?x1x?x512xf32>) -> tensor<?x16x?x512xf32>
  return %o : tensor<?x16x?x512xf32>
}
