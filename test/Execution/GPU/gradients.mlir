// Gradients under PtxSim, compared with the reference: every access, barrier and race of the kernels is checked. Sizes are
// not multiples of the tiles.

// RUN: saccade-run %s --entry=groups --arg=1x4x35x64:f16:1 --arg=1x2x70x64:f16:2 --arg=1x2x70x32:f16:3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=groups_gradient --check --arg=1x4x35x64:f16:1 --arg=1x2x70x64:f16:2 --arg=1x2x70x32:f16:3 --arg=%t.o.npy:f16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x4x35x32:f16:4
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=groups_gradient --check --arg=1x4x35x64:f16:1 --arg=1x2x70x64:f16:2 --arg=1x2x70x32:f16:3 --arg=%t.o.npy:f16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x4x35x32:f16:4
// Tensor cores multiply 16-bit operands.
// RUN: saccade-compile %s --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=PTX
// PTX: mma.sync
func.func @groups(%q: tensor<?x4x?x64xf16>, %k: tensor<?x2x?x64xf16>, %v: tensor<?x2x?x32xf16>) -> tensor<?x4x?x32xf16>
    attributes {attn.gradient} {
  // The first two rows see no key.
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<-2>
      : (tensor<?x4x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x32xf16>) -> tensor<?x4x?x32xf16>
  return %o : tensor<?x4x?x32xf16>
}

// Keys and values after the length of a batch are NaN, which a weight of 0 does not remove from a product.
// RUN: %python -c "import numpy as n; x = n.random.default_rng(1).standard_normal((2, 1, 130, 64)); x[0, :, 70:] = x[1, :, 127:] = n.nan; n.save(r'%t.x.npy', x.astype('f')); n.save(r'%t.n.npy', n.int32([70, 127]))"
// RUN: saccade-run %s --entry=invalid_keys --arg=2x1x80x64:f16:1 --arg=%t.x.npy:f16 --arg=%t.x.npy:f16 --arg=%t.n.npy --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=invalid_keys_gradient --check --explain --arg=2x1x80x64:f16:1 --arg=%t.x.npy:f16 --arg=%t.x.npy:f16 --arg=%t.n.npy --arg=%t.o.npy:f16 --arg=%t.l.npy --arg=%t.r.npy --arg=2x1x80x64:f16:4 | FileCheck %s --check-prefix=LENGTHS
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=invalid_keys_gradient --check --explain --arg=2x1x80x64:f16:1 --arg=%t.x.npy:f16 --arg=%t.x.npy:f16 --arg=%t.n.npy --arg=%t.o.npy:f16 --arg=%t.l.npy --arg=%t.r.npy --arg=2x1x80x64:f16:4 | FileCheck %s --check-prefixes=LENGTHS,WARPGROUPS
// LENGTHS-NOT: nan
// WARPGROUPS-DAG: attention_gradient_key_value_sm_90a: kernel family sm_90a, gradient, ran {{[0-9]+}} CTA{{s?}}, {{[0-9]+}} instructions of warps, {{[1-9][0-9]*}} of them mma or wgmma
// WARPGROUPS-DAG: attention_gradient_query_sm_90a: kernel family sm_90a, gradient, ran {{[0-9]+}} CTA{{s?}}, {{[0-9]+}} instructions of warps, {{[1-9][0-9]*}} of them mma or wgmma
func.func @invalid_keys(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>, %n: tensor<?xi32>)
    -> tensor<?x?x?x64xf16> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : tensor<?xi32>)
      : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16>
  return %o : tensor<?x?x?x64xf16>
}

// Ragged sequences: the tiles of a sequence are a loop in a task, which copies rows more than once, and has
// the kernels of sm_80.
// RUN: %python -c "import numpy as n; n.save(r'%t.cu.npy', n.int32([0, 70, 70, 200]))"
// RUN: saccade-run %s --entry=ragged_narrow --arg=200x2x64:f16:1 --arg=200x2x64:f16:2 --arg=200x2x64:f16:3 --arg=%t.cu.npy --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=ragged_narrow_gradient --check --arg=200x2x64:f16:1 --arg=200x2x64:f16:2 --arg=200x2x64:f16:3 --arg=%t.cu.npy --arg=%t.o.npy:f16 --arg=%t.l.npy --arg=%t.r.npy --arg=200x2x64:f16:4
// RUN: saccade-compile %s --target=sm_90a --explain | FileCheck %s --check-prefix=EXPLAIN
// EXPLAIN-DAG: invalid_keys_gradient_{{.*}}: kernel family sm_90a, gradient{{$}}
// EXPLAIN-DAG: ragged_narrow_gradient_{{.*}}: kernel family sm_80, gradient, without warpgroups: rows are copied in a loop
// Gradients without tiles in registers have the reason.
// EXPLAIN-DAG: captures_gradient_{{.*}}: kernel family simt, without tiles in registers: elements are f32{{$}}
// EXPLAIN-DAG: odd_head_gradient_{{.*}}: kernel family sm_80, matmul, without tiles in registers: head size 72 is not a multiple of 16{{$}}
// EXPLAIN-DAG: large_head_gradient_{{.*}}: kernel family sm_80, matmul, without tiles in registers: head size 192 exceeds 128{{$}}
// EXPLAIN-DAG: narrow_table_gradient_{{.*}}: kernel family sm_80, matmul, without tiles in registers: gradients of captured tensors are sums over the same tiles{{$}}
func.func @odd_head(%q: tensor<?x2x72xf16>, %k: tensor<?x2x72xf16>) -> tensor<?x2x72xf16> attributes {attn.gradient} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d] : (tensor<?x2x72xf16>, tensor<?x2x72xf16>, tensor<?x2x72xf16>) -> tensor<?x2x72xf16>
  return %o : tensor<?x2x72xf16>
}
func.func @large_head(%q: tensor<?x2x192xf16>, %k: tensor<?x2x192xf16>) -> tensor<?x2x192xf16> attributes {attn.gradient} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d] : (tensor<?x2x192xf16>, tensor<?x2x192xf16>, tensor<?x2x192xf16>) -> tensor<?x2x192xf16>
  return %o : tensor<?x2x192xf16>
}
func.func @narrow_table(%q: tensor<?x2x64xf16>, %k: tensor<?x2x64xf16>, %t: tensor<?x?xf32>) -> tensor<?x2x64xf16> attributes {attn.gradient} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d] captures(%t : tensor<?x?xf32>)
      score(%s, %b, %h, %i, %j, %table) {
        %x = tensor.extract %table[%i, %j] : tensor<?x?xf32>
        %r = arith.addf %s, %x : f32
        attn.yield %r : f32
      } : (tensor<?x2x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> tensor<?x2x64xf16>
  return %o : tensor<?x2x64xf16>
}

func.func @ragged_narrow(%q: tensor<?x2x64xf16>, %k: tensor<?x2x64xf16>, %v: tensor<?x2x64xf16>, %cu: tensor<?xi32>)
    -> tensor<?x2x64xf16> attributes {attn.gradient} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)
      : (tensor<?x2x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> tensor<?x2x64xf16>
  return %o : tensor<?x2x64xf16>
}

// A gradient for every kind of index: a scalar, an element per head, a row, a run of keys, a function of key − query, and
// a computed index.
// RUN: saccade-run %s --entry=captures --arg=2x40x16:f32:1 --arg=2x56x16:f32:2 --arg=2x56x16:f32:3 --arg=1.5 --arg=2:f32:4 --arg=2x40:f32:5 --arg=40x56:f32:6 --arg=16x2:f32:7 --arg=8:f32:8 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=captures_gradient --check --arg=2x40x16:f32:1 --arg=2x56x16:f32:2 --arg=2x56x16:f32:3 --arg=1.5 --arg=2:f32:4 --arg=2x40:f32:5 --arg=40x56:f32:6 --arg=16x2:f32:7 --arg=8:f32:8 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x40x16:f32:9
// RUN: saccade-run %s --entry=captures_gradient --check --arg=2x40x16:f32:1 --arg=2x56x16:f32:2 --arg=2x56x16:f32:3 --arg=1.5 --arg=2:f32:4 --arg=2x40:f32:5 --arg=40x56:f32:6 --arg=16x2:f32:7 --arg=8:f32:8 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x40x16:f32:9
func.func @captures(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>, %scalar: f32, %slope: tensor<2xf32>,
                    %rows: tensor<2x?xf32>, %pairs: tensor<?x?xf32>, %buckets: tensor<16x2xf32>, %any: tensor<8xf32>)
    -> tensor<2x?x16xf32> attributes {attn.gradient} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
    captures(%scalar, %slope, %rows, %pairs, %buckets, %any : f32, tensor<2xf32>, tensor<2x?xf32>, tensor<?x?xf32>, tensor<16x2xf32>, tensor<8xf32>)
    score(%s, %b, %h, %i, %j, %c, %sl, %r, %p, %bu, %a) {
      %eight = arith.constant 8 : index
      %fifteen = arith.constant 15 : index
      %distance = arith.subi %j, %i : index
      %positive = math.absi %distance : index
      %half = arith.divui %positive, %eight : index
      %bucket = arith.minsi %half, %fifteen : index
      %product = arith.muli %i, %j : index
      %hash = arith.remui %product, %eight : index
      %0 = arith.mulf %s, %c : f32
      %1 = tensor.extract %sl[%h] : tensor<2xf32>
      %2 = tensor.extract %r[%h, %i] : tensor<2x?xf32>
      %3 = tensor.extract %p[%i, %j] : tensor<?x?xf32>
      %4 = tensor.extract %bu[%bucket, %h] : tensor<16x2xf32>
      %5 = tensor.extract %a[%hash] : tensor<8xf32>
      // A term that is equal for all keys of a query would have gradient 0.
      %6 = arith.mulf %1, %3 : f32
      %7 = arith.addf %0, %6 : f32
      %8 = arith.mulf %4, %5 : f32
      %9 = arith.mulf %8, %2 : f32
      %10 = arith.addf %7, %9 : f32
      attn.yield %10 : f32
    } : (tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}

// Ragged sequences with lengths, one of them empty, and a mask of blocks.
// RUN: %python -c "import numpy as n; n.save(r'%t.cu.npy', n.int32([0, 30, 30, 85])); n.save(r'%t.n.npy', n.int32([25, 0, 55]))"
// RUN: saccade-run %s --entry=ragged --arg=90x2x8:f32:1 --arg=90x2x8:f32:2 --arg=90x2x8:f32:3 --arg=%t.cu.npy --arg=%t.n.npy --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=ragged_gradient --check --arg=90x2x8:f32:1 --arg=90x2x8:f32:2 --arg=90x2x8:f32:3 --arg=%t.cu.npy --arg=%t.n.npy --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=90x2x8:f32:4
// RUN: saccade-run %s --entry=ragged_gradient --check --arg=90x2x8:f32:1 --arg=90x2x8:f32:2 --arg=90x2x8:f32:3 --arg=%t.cu.npy --arg=%t.n.npy --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=90x2x8:f32:4
func.func @ragged(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %cu: tensor<4xi32>, %length: tensor<3xi32>)
    -> tensor<?x2x8xf32> attributes {attn.gradient} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] kv_len(%length : tensor<3xi32>) cu_seqlens_q(%cu : tensor<4xi32>)
      cu_seqlens_k(%cu : tensor<4xi32>) mask causal<top_left>
      mask(%b, %h, %i, %j) {
        %seven = arith.constant 7 : index
        %0 = arith.divui %i, %seven : index
        %1 = arith.divui %j, %seven : index
        %same = arith.cmpi eq, %0, %1 : index
        attn.yield %same : i1
      } : (tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// Lengths given by scalars: whole tiles of queries and of keys are beyond them, and their gradients are 0.
// RUN: saccade-run %s --entry=lengths --arg=2x150x16:f32:1 --arg=2x140x16:f32:2 --arg=2x140x16:f32:3 --arg=20 --arg=9 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=lengths_gradient --check --arg=2x150x16:f32:1 --arg=2x140x16:f32:2 --arg=2x140x16:f32:3 --arg=20 --arg=9 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x150x16:f32:4
// RUN: saccade-run %s --entry=lengths_gradient --check --arg=2x150x16:f32:1 --arg=2x140x16:f32:2 --arg=2x140x16:f32:3 --arg=20 --arg=9 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x150x16:f32:4
func.func @lengths(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>, %n: index, %m: index) -> tensor<2x?x16xf32>
    attributes {attn.gradient} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] q_len(%n : index) kv_len(%m : index)
      : (tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}

// Blocks of the matmuls: head sizes that are no multiples of 16 or of 8, in rows that are not aligned; and a size of which
// the columns and the reduced dimension take several blocks.
// RUN: saccade-run %s --entry=odd --arg=1x45x2x20:f16:1 --arg=1x67x2x20:f16:2 --arg=1x67x2x13:f16:3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=odd_gradient --check --arg=1x45x2x20:f16:1 --arg=1x67x2x20:f16:2 --arg=1x67x2x13:f16:3 --arg=%t.o.npy:f16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x45x2x13:f16:4
func.func @odd(%q: tensor<?x?x?x20xf16>, %k: tensor<?x?x?x20xf16>, %v: tensor<?x?x?x13xf16>) -> tensor<?x?x?x13xf16>
    attributes {attn.gradient} {
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<bottom_right>
      : (tensor<?x?x?x20xf16>, tensor<?x?x?x20xf16>, tensor<?x?x?x13xf16>) -> tensor<?x?x?x13xf16>
  return %o : tensor<?x?x?x13xf16>
}

// RUN: saccade-run %s --entry=deep --arg=1x1x256x21:bf16:1 --arg=1x1x256x35:bf16:2 --arg=1x1x256x35:bf16:3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=deep_gradient --check --arg=1x1x256x21:bf16:1 --arg=1x1x256x35:bf16:2 --arg=1x1x256x35:bf16:3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x1x256x21:bf16:4
func.func @deep(%q: tensor<?x?x256x?xbf16>, %k: tensor<?x?x256x?xbf16>, %v: tensor<?x?x256x?xbf16>) -> tensor<?x?x256x?xbf16>
    attributes {attn.gradient} {
  %o = attn.attention %q[b,h,d,s], %k[b,h,d,s], %v[b,h,d,s]
      : (tensor<?x?x256x?xbf16>, tensor<?x?x256x?xbf16>, tensor<?x?x256x?xbf16>) -> tensor<?x?x256x?xbf16>
  return %o : tensor<?x?x256x?xbf16>
}

// Lengths that leave whole tiles of keys without rows, with grouped heads; and static extents of one tile, whose views are at
// their uses and not before the loop.
// RUN: saccade-run %s --entry=registers --arg=1x4x70x32:bf16:1 --arg=1x2x90x32:bf16:2 --arg=1x2x90x32:bf16:3 --arg=20 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=registers_gradient --check --explain --arg=1x4x70x32:bf16:1 --arg=1x2x90x32:bf16:2 --arg=1x2x90x32:bf16:3 --arg=20 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x4x70x32:bf16:4 2>&1 | FileCheck %s --check-prefix=REGISTERS
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=registers_gradient --check --explain --arg=1x4x70x32:bf16:1 --arg=1x2x90x32:bf16:2 --arg=1x2x90x32:bf16:3 --arg=20 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x4x70x32:bf16:4 2>&1 | FileCheck %s --check-prefix=WARPGROUPS
// REGISTERS-COUNT-2: kernel family sm_80, gradient
func.func @registers(%q: tensor<?x?x?x32xbf16>, %k: tensor<?x?x?x32xbf16>, %v: tensor<?x?x?x32xbf16>, %n: index) -> tensor<?x?x?x32xbf16>
    attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : index)
      : (tensor<?x?x?x32xbf16>, tensor<?x?x?x32xbf16>, tensor<?x?x?x32xbf16>) -> tensor<?x?x?x32xbf16>
  return %o : tensor<?x?x?x32xbf16>
}

// RUN: saccade-run %s --entry=static --arg=2x128x32:bf16:1 --arg=1x64x32:bf16:2 --arg=1x64x32:bf16:3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=static_gradient --check --explain --arg=2x128x32:bf16:1 --arg=1x64x32:bf16:2 --arg=1x64x32:bf16:3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=2x128x32:bf16:4 2>&1 | FileCheck %s --check-prefix=REGISTERS
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=static_gradient --check --explain --arg=2x128x32:bf16:1 --arg=1x64x32:bf16:2 --arg=1x64x32:bf16:3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=2x128x32:bf16:4 2>&1 | FileCheck %s --check-prefix=WARPGROUPS
func.func @static(%q: tensor<2x128x32xbf16>, %k: tensor<1x64x32xbf16>, %v: tensor<1x64x32xbf16>) -> tensor<2x128x32xbf16>
    attributes {attn.gradient} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
      : (tensor<2x128x32xbf16>, tensor<1x64x32xbf16>, tensor<1x64x32xbf16>) -> tensor<2x128x32xbf16>
  return %o : tensor<2x128x32xbf16>
}

// RUN: saccade-run %s --entry=one_tile --arg=2x40x32:bf16:1 --arg=2x40x32:bf16:2 --arg=2x40x32:bf16:3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=one_tile_gradient --check --explain --arg=2x40x32:bf16:1 --arg=2x40x32:bf16:2 --arg=2x40x32:bf16:3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=2x40x32:bf16:4 2>&1 | FileCheck %s --check-prefix=REGISTERS
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=one_tile_gradient --check --explain --arg=2x40x32:bf16:1 --arg=2x40x32:bf16:2 --arg=2x40x32:bf16:3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=2x40x32:bf16:4 2>&1 | FileCheck %s --check-prefix=WARPGROUPS
func.func @one_tile(%q: tensor<2x40x32xbf16>, %k: tensor<2x40x32xbf16>, %v: tensor<2x40x32xbf16>) -> tensor<2x40x32xbf16>
    attributes {attn.gradient} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] mask causal<top_left>
      : (tensor<2x40x32xbf16>, tensor<2x40x32xbf16>, tensor<2x40x32xbf16>) -> tensor<2x40x32xbf16>
  return %o : tensor<2x40x32xbf16>
}

// A mask that reads a tensor, with one tile: both branches of the test of the tile yield a buffer.
// RUN: saccade-run %s --entry=tested_tile --arg=1x4x64x32:bf16:1 --arg=1x2x64x32:bf16:2 --arg=1x2x64x32:bf16:3 --arg=64:i32:=3 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=tested_tile_gradient --check --arg=1x4x64x32:bf16:1 --arg=1x2x64x32:bf16:2 --arg=1x2x64x32:bf16:3 --arg=64:i32:=3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x4x64x32:bf16:4
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=tested_tile_gradient --check --explain --arg=1x4x64x32:bf16:1 --arg=1x2x64x32:bf16:2 --arg=1x2x64x32:bf16:3 --arg=64:i32:=3 --arg=%t.o.npy:bf16 --arg=%t.l.npy --arg=%t.r.npy --arg=1x4x64x32:bf16:4 2>&1 | FileCheck %s --check-prefix=TESTED
// TESTED: tested_tile_gradient_attention_gradient_key_value_sm_90a: kernel family sm_90a, gradient, ran
func.func @tested_tile(%q: tensor<1x4x64x32xbf16>, %k: tensor<1x2x64x32xbf16>, %v: tensor<1x2x64x32xbf16>, %ids: tensor<?xi32>)
    -> tensor<1x4x64x32xbf16> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%ids : tensor<?xi32>)
    mask(%b, %h, %i, %j, %n) {
      %x = tensor.extract %n[%i] : tensor<?xi32>
      %y = tensor.extract %n[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    } : (tensor<1x4x64x32xbf16>, tensor<1x2x64x32xbf16>, tensor<1x2x64x32xbf16>) -> tensor<1x4x64x32xbf16>
  return %o : tensor<1x4x64x32xbf16>
}
