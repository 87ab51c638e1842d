// Tangents under PtxSim, compared with the reference: every access, barrier and race of the kernels is checked. Sizes are
// not multiples of the tiles.

// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=groups_jvp --check --arg=1x4x35x64:f16:1 --arg=1x2x70x64:f16:2 --arg=1x2x70x32:f16:3 --arg=1x4x35x64:f16:4 --arg=1x2x70x64:f16:5 --arg=1x2x70x32:f16:6
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=groups_jvp --check --arg=1x4x35x64:f16:1 --arg=1x2x70x64:f16:2 --arg=1x2x70x32:f16:3 --arg=1x4x35x64:f16:4 --arg=1x2x70x64:f16:5 --arg=1x2x70x32:f16:6
// Tensor cores multiply 16-bit operands.
// RUN: saccade-compile %s --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=PTX
// PTX: mma.sync
func.func @groups(%q: tensor<?x4x?x64xf16>, %k: tensor<?x2x?x64xf16>, %v: tensor<?x2x?x32xf16>) -> tensor<?x4x?x32xf16>
    attributes {attn.jvp} {
  // The first two rows see no key.
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<-2>
      : (tensor<?x4x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x32xf16>) -> tensor<?x4x?x32xf16>
  return %o : tensor<?x4x?x32xf16>
}

// Tangents of captures that are read at every kind of index.
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=captures_jvp --check --arg=2x40x16:f32:1 --arg=2x56x16:f32:2 --arg=2x56x16:f32:3 --arg=1.5 --arg=2:f32:4 --arg=2x40:f32:5 --arg=40x56:f32:6 --arg=16x2:f32:7 --arg=8:f32:8 --arg=2x40x16:f32:11 --arg=2x56x16:f32:12 --arg=2x56x16:f32:13 --arg=0.5 --arg=2:f32:14 --arg=2x40:f32:15 --arg=40x56:f32:16 --arg=16x2:f32:17 --arg=8:f32:18
// RUN: saccade-run %s --entry=captures_jvp --check --arg=2x40x16:f32:1 --arg=2x56x16:f32:2 --arg=2x56x16:f32:3 --arg=1.5 --arg=2:f32:4 --arg=2x40:f32:5 --arg=40x56:f32:6 --arg=16x2:f32:7 --arg=8:f32:8 --arg=2x40x16:f32:11 --arg=2x56x16:f32:12 --arg=2x56x16:f32:13 --arg=0.5 --arg=2:f32:14 --arg=2x40:f32:15 --arg=40x56:f32:16 --arg=16x2:f32:17 --arg=8:f32:18
func.func @captures(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>, %scalar: f32, %slope: tensor<2xf32>,
                    %rows: tensor<2x?xf32>, %pairs: tensor<?x?xf32>, %buckets: tensor<16x2xf32>, %any: tensor<8xf32>)
    -> tensor<2x?x16xf32> attributes {attn.jvp} {
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
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=ragged_jvp --check --arg=90x2x8:f32:1 --arg=90x2x8:f32:2 --arg=90x2x8:f32:3 --arg=%t.cu.npy --arg=%t.n.npy --arg=90x2x8:f32:4 --arg=90x2x8:f32:5 --arg=90x2x8:f32:6
// RUN: saccade-run %s --entry=ragged_jvp --check --arg=90x2x8:f32:1 --arg=90x2x8:f32:2 --arg=90x2x8:f32:3 --arg=%t.cu.npy --arg=%t.n.npy --arg=90x2x8:f32:4 --arg=90x2x8:f32:5 --arg=90x2x8:f32:6
func.func @ragged(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %cu: tensor<4xi32>, %length: tensor<3xi32>)
    -> tensor<?x2x8xf32> attributes {attn.jvp} {
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

// Lengths given by scalars: whole tiles of queries and of keys are beyond them, and their tangents are 0.
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=lengths_jvp --check --arg=2x150x16:f32:1 --arg=2x140x16:f32:2 --arg=2x140x16:f32:3 --arg=20 --arg=9 --arg=2x150x16:f32:4 --arg=2x140x16:f32:5 --arg=2x140x16:f32:6
// RUN: saccade-run %s --entry=lengths_jvp --check --arg=2x150x16:f32:1 --arg=2x140x16:f32:2 --arg=2x140x16:f32:3 --arg=20 --arg=9 --arg=2x150x16:f32:4 --arg=2x140x16:f32:5 --arg=2x140x16:f32:6
func.func @lengths(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>, %n: index, %m: index) -> tensor<2x?x16xf32>
    attributes {attn.jvp} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] q_len(%n : index) kv_len(%m : index)
      : (tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}

// Tallies of a computed bin and of bin 0, a sink, a run-time scale.
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=tallies_jvp --check --arg=2x2x20x8:f32:1 --arg=2x2x33x8:f32:2 --arg=2x2x33x8:f32:3 --arg=2:f32:4 --arg=0.3 --arg=2x2x20x8:f32:5 --arg=2x2x33x8:f32:6 --arg=2x2x33x8:f32:7 --arg=2:f32:8 --arg=0.4
func.func @tallies(%q: tensor<2x2x?x8xf32>, %k: tensor<2x2x?x8xf32>, %v: tensor<2x2x?x8xf32>, %sink: tensor<2xf32>, %scale: f32)
    -> (tensor<2x2x?x8xf32>, tensor<2x2x?xf32>, tensor<2x2x?x4xf32>, tensor<2x2x?x1xf32>) attributes {attn.jvp} {
  %o, %l, %t, %u = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(%scale : f32) sink(%sink : tensor<2xf32>)
    tally<4>(%s: f32, %b, %h, %i, %j) {
      // The last bin of keys is outside of the tally.
      %seven = arith.constant 7 : index
      %bin = arith.divui %j, %seven : index
      attn.yield %bin, %s : index, f32
    }
    tally<1>(%s: f32, %b, %h, %i, %j) {
      %zero = arith.constant 0 : index
      %e = math.exp %s : f32
      attn.yield %zero, %e : index, f32
    } lse : (tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>)
      -> (tensor<2x2x?x8xf32>, tensor<2x2x?xf32>, tensor<2x2x?x4xf32>, tensor<2x2x?x1xf32>)
  return %o, %l, %t, %u : tensor<2x2x?x8xf32>, tensor<2x2x?xf32>, tensor<2x2x?x4xf32>, tensor<2x2x?x1xf32>
}
