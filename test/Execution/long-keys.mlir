// Split-KV of long keys that many heads share, as in latent attention: a task has up to 64 rows, which it multiplies with
// one copy of the keys and of the values; 32 rows at a time in tile registers, then 16. Numbers of rows on both sides of
// these limits, also of several queries, with keys that are no multiple of a chunk; scratch memory that was not written holds NaN.

// RUN: saccade-compile %s --target=%{v4-amx} --explain | FileCheck %s --check-prefix=EXPLAIN
// EXPLAIN: shared.attention.split_kv: kernel family {{.*}}amx{{.*}} unpacked, bf16 tiles
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=shared --arg=1x64x1x576:bf16:1 --arg=1x1x700x576:bf16:2
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=shared --arg=1x17x1x576:bf16:1 --arg=1x1x300x576:bf16:2
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=shared --arg=1x33x1x576:bf16:1 --arg=1x1x33x576:bf16:2
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=shared --arg=1x130x1x576:bf16:1 --arg=1x1x270x576:bf16:2
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=shared --arg=1x12x8x576:bf16:1 --arg=1x1x270x576:bf16:2
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=shared --arg=2x40x3x576:bf16:1 --arg=2x1x1x576:bf16:2

// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=everything --arg=2x35x2x528:bf16:1 --arg=2x1x601x528:bf16:2 --arg=2x1x601x520:bf16:3 --arg=35:f32:4 --arg=2:i32:=37 --arg=35:f32:5
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=int8 --arg=1x19x1x576:bf16:1 --arg=1x1x300x576:i8:2 --arg=1x1x300x1:f32:=0.01

// A known number of heads.
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=heads_128 --arg=1x128x1x576:bf16:1 --arg=1x1x400x576:bf16:2

// Chunks of 512 keys, whose values are copied in two blocks.
// RUN: saccade-run %s --target=%{v4-amx} --guard --check --entry=blocks --arg=1x40x1x512:bf16:1 --arg=1x1x700x512:bf16:2

// The same bits as by tasks of another number of threads.
// RUN: saccade-run %s --target=%{v4-amx} --threads=1 --entry=shared --arg=1x100x1x576:bf16:1 --arg=1x1x900x576:bf16:2 --out=%t.one.npy
// RUN: saccade-run %s --target=%{v4-amx} --threads=2 --entry=shared --arg=1x100x1x576:bf16:1 --arg=1x1x900x576:bf16:2 --out=%t.two.npy
// RUN: cmp %t.one.npy %t.two.npy

func.func @shared(%q: tensor<?x?x?x576xbf16>, %k: tensor<?x1x?x576xbf16>) -> tensor<?x?x?x512xbf16> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %k, %c0 : tensor<?x1x?x576xbf16>
  %n = tensor.dim %k, %c2 : tensor<?x1x?x576xbf16>
  %v = tensor.extract_slice %k[0, 0, 0, 0] [%b, 1, %n, 512] [1, 1, 1, 1]
    : tensor<?x1x?x576xbf16> to tensor<?x1x?x512xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x?x?x576xbf16>, tensor<?x1x?x576xbf16>, tensor<?x1x?x512xbf16>) -> tensor<?x?x?x512xbf16>
  return %o : tensor<?x?x?x512xbf16>
}

// A score of the head and the positions, a causal mask and a window, lengths, sinks and a log-sum-exp.
func.func @everything(%q: tensor<?x?x?x528xbf16>, %k: tensor<?x1x?x528xbf16>, %v: tensor<?x1x?x520xbf16>,
                      %slopes: tensor<?xf32>, %lengths: tensor<?xi32>, %sinks: tensor<?xf32>)
    -> (tensor<?x?x?x520xbf16>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%slopes : tensor<?xf32>)
      kv_len(%lengths : tensor<?xi32>) sink(%sinks : tensor<?xf32>)
      mask causal<bottom_right> mask window<400, *>
      score(%x, %b, %h, %i, %j, %s) {
        %m = tensor.extract %s[%h] : tensor<?xf32>
        %d = arith.subi %j, %i : index
        %d32 = arith.index_cast %d : index to i32
        %df = arith.sitofp %d32 : i32 to f32
        %small = arith.constant 0.01 : f32
        %scaled = arith.mulf %df, %small : f32
        %bias = arith.mulf %m, %scaled : f32
        %r = arith.addf %x, %bias : f32
        attn.yield %r : f32
      } lse : (tensor<?x?x?x528xbf16>, tensor<?x1x?x528xbf16>, tensor<?x1x?x520xbf16>)
           -> (tensor<?x?x?x520xbf16>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x520xbf16>, tensor<?x?x?xf32>
}

// Keys of 8 bits with a factor for each position, which are widened when they are copied.
func.func @int8(%q: tensor<?x?x?x576xbf16>, %k8: tensor<?x1x?x576xi8>, %scale: tensor<?x1x?x1xf32>) -> tensor<?x?x?x512xbf16> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %k8, %c0 : tensor<?x1x?x576xi8>
  %n = tensor.dim %k8, %c2 : tensor<?x1x?x576xi8>
  %empty = tensor.empty(%b, %n) : tensor<?x1x?x576xbf16>
  %k = linalg.generic {indexing_maps = [affine_map<(b, h, s, d) -> (b, h, s, d)>, affine_map<(b, h, s, d) -> (b, h, s, 0)>,
                                        affine_map<(b, h, s, d) -> (b, h, s, d)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k8, %scale : tensor<?x1x?x576xi8>, tensor<?x1x?x1xf32>) outs(%empty : tensor<?x1x?x576xbf16>) {
    ^bb0(%x: i8, %f: f32, %old: bf16):
      %wide = arith.sitofp %x : i8 to f32
      %product = arith.mulf %wide, %f : f32
      %small = arith.truncf %product : f32 to bf16
      linalg.yield %small : bf16
  } -> tensor<?x1x?x576xbf16>
  %v = tensor.extract_slice %k[0, 0, 0, 0] [%b, 1, %n, 512] [1, 1, 1, 1]
    : tensor<?x1x?x576xbf16> to tensor<?x1x?x512xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x?x?x576xbf16>, tensor<?x1x?x576xbf16>, tensor<?x1x?x512xbf16>) -> tensor<?x?x?x512xbf16>
  return %o : tensor<?x?x?x512xbf16>
}

func.func @heads_128(%q: tensor<1x128x1x576xbf16>, %k: tensor<1x1x?x576xbf16>) -> tensor<1x128x1x576xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d]
    : (tensor<1x128x1x576xbf16>, tensor<1x1x?x576xbf16>, tensor<1x1x?x576xbf16>) -> tensor<1x128x1x576xbf16>
  return %o : tensor<1x128x1x576xbf16>
}

func.func @blocks(%q: tensor<?x?x?x512xbf16>, %k: tensor<?x1x?x512xbf16>) -> tensor<?x?x?x512xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d]
    : (tensor<?x?x?x512xbf16>, tensor<?x1x?x512xbf16>, tensor<?x1x?x512xbf16>) -> tensor<?x?x?x512xbf16>
  return %o : tensor<?x?x?x512xbf16>
}
