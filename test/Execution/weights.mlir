// Compiled weights agree with the reference, which evaluates attn.weights pair by pair in float64.

// KV heads of two query heads each.
// RUN: saccade-run %s --entry=groups --check --arg=2x4x67x16:f32:1 --arg=2x2x80x16:f32:2 --arg=2x2x80x24:f32:3
// RUN: saccade-run %s --entry=groups --check --device=ptxsim --target=sm_80 --arg=2x4x9x16:f32:1 --arg=2x2x20x16:f32:2 --arg=2x2x20x24:f32:3
func.func @groups(%q: tensor<?x4x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x24xf32>)
    -> (tensor<?x4x?x24xf32>, tensor<?x4x?x?xf32>) {
  %o, %l, %low = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right> lse lse_low
      : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x24xf32>) -> (tensor<?x4x?x24xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>)
  %w = attn.weights %q[b,h,s,d], %k[b,h,s,d] mask causal<bottom_right> lse(%l : tensor<?x4x?xf32>) lse_low(%low : tensor<?x4x?xf32>)
      : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x4x?x?xf32>
  return %o, %w : tensor<?x4x?x24xf32>, tensor<?x4x?x?xf32>
}

// One sequence in f64: rows without a visible key, and with the log-sum-exp −inf.
// RUN: saccade-run %s --entry=sequence --check --arg=13x8:f64:1 --arg=21x8:f64:2
func.func @sequence(%q: tensor<?x8xf64>, %k: tensor<?x8xf64>) -> tensor<?x?xf64> {
  %o, %l = attn.attention %q[s,d], %k[s,d], %k[s,d] mask causal<-3> lse
      : (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>) -> (tensor<?x8xf64>, tensor<?xf64>)
  %w = attn.weights %q[s,d], %k[s,d] mask causal<-3> lse(%l : tensor<?xf64>) : (tensor<?x8xf64>, tensor<?x8xf64>) -> tensor<?x?xf64>
  return %w : tensor<?x?xf64>
}

// Rows of a given log-sum-exp of −inf have no weights.
// RUN: saccade-run %s --entry=given --check --arg=3x8:f32:1 --arg=5x8:f32:2 --arg=3:f32:=-inf
func.func @given(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %l: tensor<?xf32>) -> tensor<?x?xf32> {
  %w = attn.weights %q[s,d], %k[s,d] lse(%l : tensor<?xf32>) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x?xf32>
  return %w : tensor<?x?xf32>
}

// A tile of 3 queries of heads 2 and 3, with captures read at positions of the whole attention, lengths of batches, a
// run-time scale, a sink, and a capture that ends before the keys that the lengths exclude.
// RUN: saccade-run %s --entry=tile --check --arg=2x4x12x16:bf16:1 --arg=2x2x30x16:bf16:2 --arg=4x12x25:f32:3 --arg=4:f32:4 --arg=0.3 --arg=2:i32:=25
// RUN: saccade-run %s --entry=tile --check --device=ptxsim --target=sm_80 --arg=2x4x12x16:bf16:1 --arg=2x2x30x16:bf16:2 --arg=4x12x25:f32:3 --arg=4:f32:4 --arg=0.3 --arg=2:i32:=25
func.func @tile(%q: tensor<2x4x12x16xbf16>, %k: tensor<2x2x30x16xbf16>, %t: tensor<4x12x25xf32>, %sink: tensor<4xf32>,
                %scale: f32, %n: tensor<2xi32>) -> tensor<2x2x3x30xf32> {
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %five = arith.constant 5 : index
  %all = arith.constant 12 : index
  %part = tensor.extract_slice %q[0, 2, 5, 0] [2, 2, 3, 16] [1, 1, 1, 1] : tensor<2x4x12x16xbf16> to tensor<2x2x3x16xbf16>
  %keys = tensor.extract_slice %k[0, 1, 0, 0] [2, 1, 30, 16] [1, 1, 1, 1] : tensor<2x2x30x16xbf16> to tensor<2x1x30x16xbf16>
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] captures(%t : tensor<4x12x25xf32>)
      kv_len(%n : tensor<2xi32>) scale(%scale : f32) sink(%sink : tensor<4xf32>) mask causal<bottom_right>
      score(%s, %b, %h, %i, %j, %c) {
        %x = tensor.extract %c[%h, %i, %j] : tensor<4x12x25xf32>
        %y = arith.addf %s, %x : f32
        attn.yield %y : f32
      } lse : (tensor<2x4x12x16xbf16>, tensor<2x2x30x16xbf16>, tensor<2x2x30x16xbf16>) -> (tensor<2x4x12x16xbf16>, tensor<2x4x12xf32>)
  %rows = tensor.extract_slice %l[0, 2, 5] [2, 2, 3] [1, 1, 1] : tensor<2x4x12xf32> to tensor<2x2x3xf32>
  %w = attn.weights %part[b,h,s,d], %keys[b,h,s,d] captures(%t : tensor<4x12x25xf32>) q_len(%all : index)
      kv_len(%n : tensor<2xi32>) scale(%scale : f32) at(%zero, %two, %five, %zero) lse(%rows : tensor<2x2x3xf32>)
      mask causal<bottom_right>
      score(%s, %b, %h, %i, %j, %c) {
        %x = tensor.extract %c[%h, %i, %j] : tensor<4x12x25xf32>
        %y = arith.addf %s, %x : f32
        attn.yield %y : f32
      } : (tensor<2x2x3x16xbf16>, tensor<2x1x30x16xbf16>) -> tensor<2x2x3x30xf32>
  return %w : tensor<2x2x3x30xf32>
}

// Queries up to q_len, a weight region that is not proportional, dropout, layouts with heads last and keys without heads.
// RUN: saccade-run %s --entry=weighted --check --arg=2x9x4x8:f16:1 --arg=2x17x8:f16:2 --arg=7 --arg=42
// RUN: saccade-run %s --entry=weighted --check --device=ptxsim --target=sm_75 --arg=2x9x4x8:f16:1 --arg=2x17x8:f16:2 --arg=7 --arg=42
func.func @weighted(%q: tensor<?x?x4x8xf16>, %k: tensor<?x?x8xf16>, %n: index, %seed: i64) -> tensor<?x4x?x?xf32> {
  %o, %l = attn.attention %q[b,s,h,d], %k[b,s,d], %k[b,s,d] q_len(%n : index) lse
      : (tensor<?x?x4x8xf16>, tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> (tensor<?x?x4x8xf16>, tensor<?x4x?xf32>)
  %w = attn.weights %q[b,s,h,d], %k[b,s,d] q_len(%n : index) lse(%l : tensor<?x4x?xf32>) dropout(0.25, %seed : i64)
      weight(%p, %b, %h, %i, %j) {
        %c = arith.constant 0.125 : f32
        %y = arith.addf %p, %c : f32
        attn.yield %y : f32
      } : (tensor<?x?x4x8xf16>, tensor<?x?x8xf16>) -> tensor<?x4x?x?xf32>
  return %w : tensor<?x4x?x?xf32>
}

// Run-time numbers of heads, keys of a page pool.
// RUN: saccade-run %s --entry=paged --check --arg=3x8x2x64:f32:1 --arg=9x16x2x64:f32:2 --arg=%S/Inputs/paged-table.npy --arg=3:i32:=40 --arg=3x8x2:f32:3
// RUN: saccade-run %s --entry=paged --check --device=ptxsim --arg=3x8x2x64:f32:1 --arg=9x16x2x64:f32:2 --arg=%S/Inputs/paged-table.npy --arg=3:i32:=40 --arg=3x8x2:f32:3
func.func @paged(%q: tensor<?x?x?x64xf32>, %pool: tensor<?x16x?x64xf32>, %table: tensor<?x?xi32>, %n: tensor<?xi32>, %l: tensor<?x?x?xf32>)
    -> tensor<?x?x?x?xf32> {
  %k = attn.paged %pool[b,s,h,d], %table : tensor<?x16x?x64xf32>, tensor<?x?xi32> -> tensor<?x?x?x64xf32>
  %w = attn.weights %q[b,h,s,d], %k[b,s,h,d] kv_len(%n : tensor<?xi32>) lse(%l : tensor<?x?x?xf32>)
      : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x?xf32>
  return %w : tensor<?x?x?x?xf32>
}

// Extents that disagree are refused before anything runs.
// RUN: not saccade-run %s --entry=paged --arg=3x8x2x64:f32:1 --arg=9x16x2x64:f32:2 --arg=%S/Inputs/paged-table.npy --arg=3:i32:=40 --arg=3x8x3:f32:3 2>&1 | FileCheck %s --check-prefix=ROWS
// ROWS: 'attn.weights' op log-sum-exp has another extent of 's' than query: found 3, expected 2
// RUN: not saccade-run %s --entry=paged --arg=3x7x2x64:f32:1 --arg=9x16x2x64:f32:2 --arg=%S/Inputs/paged-table.npy --arg=3:i32:=40 --arg=3x7x2:f32:3 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: 'attn.weights' op number of query heads is not a multiple of the number of KV heads: found 7, expected a multiple of 2
