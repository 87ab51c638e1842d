// Rows are those of a CTA, key tiles are long, and an existing schedule is kept.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-assign-gpu-schedule{target=sm_80}))' | FileCheck %s

// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-assign-gpu-schedule{target=sm_90a}))' | FileCheck %s --check-prefix=SM90A

// CHECK-LABEL: @rows_of_a_cta
// CHECK: attn.attention {{.*}}schedule = #attn.schedule<rows = 128, cols = 16384>, split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
func.func @rows_of_a_cta(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// A warpgroup of sm_90a computes 64 rows of split-KV, unless queries are ragged, keys are computed, the op has other results, or
// rows are not multiples of 16 bytes.
// SM90A-LABEL: @rows_of_a_warpgroup
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 64, cols = 256>
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
func.func @rows_of_a_warpgroup(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>, %cu: tensor<?xi32>)
    -> (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?xf32>) {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  %r = attn.attention %q[s,d], %k[s,d], %v[s,d] cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)
    : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  %twice = linalg.add ins(%k, %k : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%k : tensor<?x64xbf16>) -> tensor<?x64xbf16>
  %c = attn.attention %q[s,d], %twice[s,d], %v[s,d] : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  %l, %max = attn.attention %q[s,d], %k[s,d], %v[s,d] max : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> (tensor<?x64xbf16>, tensor<?xf32>)
  return %o, %r, %c, %l, %max : tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?xf32>
}

// Rows of 72 bytes, of keys or of values.
// SM90A-LABEL: @rows_of_unaligned_heads
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
// SM90A: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 64, cols = 256>
func.func @rows_of_unaligned_heads(%x: tensor<?x36xbf16>, %y: tensor<?x40xbf16>) -> (tensor<?x36xbf16>, tensor<?x40xbf16>, tensor<?x36xbf16>, tensor<?x40xbf16>) {
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x36xbf16>, tensor<?x36xbf16>, tensor<?x36xbf16>) -> tensor<?x36xbf16>
  %b = attn.attention %x[s,d], %x[s,d], %y[s,d] : (tensor<?x36xbf16>, tensor<?x36xbf16>, tensor<?x40xbf16>) -> tensor<?x40xbf16>
  %c = attn.attention %y[s,d], %y[s,d], %x[s,d] : (tensor<?x40xbf16>, tensor<?x40xbf16>, tensor<?x36xbf16>) -> tensor<?x36xbf16>
  %d = attn.attention %y[s,d], %y[s,d], %y[s,d] : (tensor<?x40xbf16>, tensor<?x40xbf16>, tensor<?x40xbf16>) -> tensor<?x40xbf16>
  return %a, %b, %c, %d : tensor<?x36xbf16>, tensor<?x40xbf16>, tensor<?x36xbf16>, tensor<?x40xbf16>
}

// CHECK-LABEL: @deep_values_halve_the_rows
// CHECK: attn.attention {{.*}}schedule = #attn.schedule<rows = 64, cols = 16384>
func.func @deep_values_halve_the_rows(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x256xbf16>) -> tensor<?x256xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  return %o : tensor<?x256xbf16>
}

// CHECK-LABEL: @square_matmul_blocks
// CHECK: linalg.matmul {schedule = #attn.schedule<rows = 64, cols = 64, depth = 16>}
func.func @square_matmul_blocks(%a: tensor<?x64xf32>, %b: tensor<64x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %d = linalg.matmul ins(%a, %b : tensor<?x64xf32>, tensor<64x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %d : tensor<?x?xf32>
}

// CHECK-LABEL: @existing_schedule_is_kept
// CHECK: attn.attention {{.*}}schedule = #attn.schedule<rows = 64, cols = 512>
func.func @existing_schedule_is_kept(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] {schedule = #attn.schedule<rows = 64, cols = 512>} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// EXAMPLE
// No split-KV schedule for many queries, or if eight keys and values do not fit in the shared memory of a CTA. Ragged
// queries may be few of each sequence.
// CHECK-LABEL: @no_split_kv
// CHECK: attn.attention
// CHECK-NOT: split_kv =
func.func @no_split_kv(%q: tensor<17x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>, %x: tensor<?x800xf32>) -> (tensor<17x64xf32>, tensor<?x800xf32>) {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<17x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<17x64xf32>
  %p = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x800xf32>, tensor<?x800xf32>, tensor<?x800xf32>) -> tensor<?x800xf32>
  return %o, %p : tensor<17x64xf32>, tensor<?x800xf32>
}

// The largest head sizes that fit, of 32 and 64 bits, and the next ones.
// CHECK-LABEL: @largest_head_sizes
// CHECK: attn.attention {{.*}}split_kv =
// CHECK-NOT: split_kv =
// CHECK: attn.attention {{.*}}tensor<?x769xf32>
// CHECK: attn.attention {{.*}}split_kv =
// CHECK-NOT: split_kv =
// CHECK: attn.attention {{.*}}tensor<?x385xf64>
func.func @largest_head_sizes(%q: tensor<1x768xf32>, %k: tensor<?x768xf32>, %v: tensor<?x769xf32>, %x: tensor<1x384xf64>, %y: tensor<?x384xf64>, %z: tensor<?x385xf64>) -> (tensor<1x768xf32>, tensor<1x769xf32>, tensor<1x384xf64>, tensor<1x385xf64>) {
  %a = attn.attention %q[s,d], %k[s,d], %k[s,d] : (tensor<1x768xf32>, tensor<?x768xf32>, tensor<?x768xf32>) -> tensor<1x768xf32>
  %b = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<1x768xf32>, tensor<?x768xf32>, tensor<?x769xf32>) -> tensor<1x769xf32>
  %c = attn.attention %x[s,d], %y[s,d], %y[s,d] : (tensor<1x384xf64>, tensor<?x384xf64>, tensor<?x384xf64>) -> tensor<1x384xf64>
  %d = attn.attention %x[s,d], %y[s,d], %z[s,d] : (tensor<1x384xf64>, tensor<?x384xf64>, tensor<?x385xf64>) -> tensor<1x385xf64>
  return %a, %b, %c, %d : tensor<1x768xf32>, tensor<1x769xf32>, tensor<1x384xf64>, tensor<1x385xf64>
}

// CHECK-LABEL: @large_heads_and_ragged_queries
// CHECK: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
// CHECK: attn.attention {{.*}}split_kv = #attn.split_kv<queries = 16, rows = 16, cols = 256>
func.func @large_heads_and_ragged_queries(%x: tensor<?x320xf32>, %q: tensor<99x64xf32>, %cu: tensor<?xi32>) -> (tensor<?x320xf32>, tensor<99x64xf32>) {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x320xf32>, tensor<?x320xf32>, tensor<?x320xf32>) -> tensor<?x320xf32>
  %p = attn.attention %q[s,d], %q[s,d], %q[s,d] cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>) : (tensor<99x64xf32>, tensor<99x64xf32>, tensor<99x64xf32>) -> tensor<99x64xf32>
  return %o, %p : tensor<?x320xf32>, tensor<99x64xf32>
}

// Two warpgroups of sm_90a compute 128 rows. Operands that bulk copies cannot read, by their type or their strides, and
// fewer tiles than multiprocessors have smaller tiles.
// CHECK-LABEL: @matmuls_of_halves
// CHECK-COUNT-5: linalg.matmul {schedule = #attn.schedule<rows = 64, cols = 64, depth = 16>}
// SM90A-LABEL: @matmuls_of_halves
// SM90A: linalg.matmul {schedule = #attn.schedule<rows = 128, cols = 128, depth = 16>} {{.*}} tensor<?x512xf32>
// SM90A: linalg.matmul {schedule = #attn.schedule<rows = 64, cols = 64, depth = 16>} {{.*}} tensor<?x516xf32>
// SM90A: linalg.matmul {schedule = #attn.schedule<rows = 64, cols = 64, depth = 16>} {{.*}} tensor<1408x1408xf32>
// SM90A: linalg.matmul {schedule = #attn.schedule<rows = 128, cols = 128, depth = 16>} {{.*}} tensor<1409x1416xf32>
// SM90A: linalg.matmul {schedule = #attn.schedule<rows = 64, cols = 64, depth = 16>} {{.*}} tensor<?x512xf32>
func.func @matmuls_of_halves(%a: tensor<?x64xf16>, %b: tensor<64x512xf16>, %c: tensor<?x512xf32>, %d: tensor<64x516xf16>, %e: tensor<?x516xf32>,
    %f: tensor<1408x64xf16>, %g: tensor<64x1408xf16>, %h: tensor<1408x1408xf32>, %i: tensor<1409x64xf16>, %j: tensor<64x1416xf16>, %k: tensor<1409x1416xf32>, %l: tensor<?x64xf32>, %m: tensor<64x512xf32>)
    -> (tensor<?x512xf32>, tensor<?x516xf32>, tensor<1408x1408xf32>, tensor<1409x1416xf32>, tensor<?x512xf32>) {
  %x = linalg.matmul ins(%a, %b : tensor<?x64xf16>, tensor<64x512xf16>) outs(%c : tensor<?x512xf32>) -> tensor<?x512xf32>
  %y = linalg.matmul ins(%a, %d : tensor<?x64xf16>, tensor<64x516xf16>) outs(%e : tensor<?x516xf32>) -> tensor<?x516xf32>
  %z = linalg.matmul ins(%f, %g : tensor<1408x64xf16>, tensor<64x1408xf16>) outs(%h : tensor<1408x1408xf32>) -> tensor<1408x1408xf32>
  %u = linalg.matmul ins(%i, %j : tensor<1409x64xf16>, tensor<64x1416xf16>) outs(%k : tensor<1409x1416xf32>) -> tensor<1409x1416xf32>
  %v = linalg.matmul ins(%l, %m : tensor<?x64xf32>, tensor<64x512xf32>) outs(%c : tensor<?x512xf32>) -> tensor<?x512xf32>
  return %x, %y, %z, %u, %v : tensor<?x512xf32>, tensor<?x516xf32>, tensor<1408x1408xf32>, tensor<1409x1416xf32>, tensor<?x512xf32>
}
