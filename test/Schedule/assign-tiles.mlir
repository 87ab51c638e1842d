// RUN: saccade-opt %s --attn-assign-schedule=target=v4-amx | FileCheck %s

// bf16 is multiplied in tile registers, in groups of 32 rows. Split-KV uses them from five query heads of a KV head on, with
// one register of rows or two.
// CHECK-LABEL: @four_heads
func.func @four_heads(%q: tensor<4x?x64xbf16>, %k: tensor<1x?x64xbf16>) -> tensor<4x?x64xbf16> {
  // CHECK: schedule = #attn.schedule<rows = 512, cols = 512>, split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 1024>
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<4x?x64xbf16>, tensor<1x?x64xbf16>, tensor<1x?x64xbf16>) -> tensor<4x?x64xbf16>
  return %o : tensor<4x?x64xbf16>
}

// CHECK-LABEL: @five_heads
func.func @five_heads(%q: tensor<10x?x64xbf16>, %k: tensor<2x?x64xbf16>) -> tensor<10x?x64xbf16> {
  // CHECK: split_kv = #attn.split_kv<queries = 8, rows = 16, cols = 1024>
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<10x?x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>) -> tensor<10x?x64xbf16>
  return %o : tensor<10x?x64xbf16>
}

// Large heads get smaller tiles.
// CHECK-LABEL: @many_heads
func.func @many_heads(%q: tensor<17x?x1024xbf16>, %k: tensor<1x?x1024xbf16>) -> tensor<17x?x1024xbf16> {
  // CHECK: schedule = #attn.schedule<rows = 128, cols = 128>, split_kv = #attn.split_kv<queries = 8, rows = 32, cols = 256>
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<17x?x1024xbf16>, tensor<1x?x1024xbf16>, tensor<1x?x1024xbf16>) -> tensor<17x?x1024xbf16>
  return %o : tensor<17x?x1024xbf16>
}

// If head counts are not known, the number of rows decides at run time. Other types do not use them.
// CHECK-LABEL: @unknown_heads_and_other_types
func.func @unknown_heads_and_other_types(%q: tensor<?x?x64xbf16>, %k: tensor<1x?x64xbf16>, %x: tensor<8x?x64xf32>, %y: tensor<1x?x64xf32>) -> (tensor<?x?x64xbf16>, tensor<8x?x64xf32>) {
  // CHECK: split_kv = #attn.split_kv<queries = 8, rows = 16
  %a = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] : (tensor<?x?x64xbf16>, tensor<1x?x64xbf16>, tensor<1x?x64xbf16>) -> tensor<?x?x64xbf16>
  // CHECK: schedule = #attn.schedule<rows = 576, cols = 512>, split_kv = #attn.split_kv<queries = 8, rows = 12
  %b = attn.attention %x[h,s,d], %y[h,s,d], %y[h,s,d] : (tensor<8x?x64xf32>, tensor<1x?x64xf32>, tensor<1x?x64xf32>) -> tensor<8x?x64xf32>
  return %a, %b : tensor<?x?x64xbf16>, tensor<8x?x64xf32>
}
