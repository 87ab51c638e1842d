// Attention without a softmax agrees with the reference, which adds f(score) · value key by key in float64: packed and
// unpacked kernels, split keys, ragged batches, pages, and derivatives.

// Packed and unpacked; products in registers, pairs and tiles; a score region and a mask that hides whole rows.
// RUN: saccade-run %s --entry=sigmoid --check --arg=2x4x67x16:f32:1 --arg=2x2x1080x16:f32:2 --arg=2x2x1080x24:f32:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=sigmoid --check --arg=2x4x3x16:f32:1 --arg=2x2x3080x16:f32:2 --arg=2x2x3080x24:f32:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=sigmoid --target=portable --check --arg=1x4x67x16:f32:1 --arg=1x2x80x16:f32:2 --arg=1x2x80x24:f32:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=sigmoid --target=v4-expanded --check --arg=1x4x67x16:f32:1 --arg=1x2x80x16:f32:2 --arg=1x2x80x24:f32:3 --arg=4:f32:4
func.func @sigmoid(%q: tensor<?x4x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x24xf32>, %t: tensor<4xf32>)
    -> tensor<?x4x?x24xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%t : tensor<4xf32>) mask causal<-2>
    score(%s, %b, %h, %i, %j, %bias) {
      %x = tensor.extract %bias[%h] : tensor<4xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    }
    normalizer(%s, %b, %h, %i, %j, %bias) {
      %one = arith.constant 1.0 : f32
      %n = arith.negf %s : f32
      %e = math.exp %n : f32
      %d = arith.addf %e, %one : f32
      %r = arith.divf %one, %d : f32
      attn.yield %r : f32
    } : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x24xf32>) -> tensor<?x4x?x24xf32>
  return %o : tensor<?x4x?x24xf32>
}

// Without a mask and without a score region, the sigmoid of score + constant needs no test of hidden keys: the last tile
// has some. The scale is 0 in one call, and negative in another.
// RUN: saccade-run %s --entry=shifted --check --arg=2x67x64:bf16:1 --arg=2x1090x64:bf16:2 --arg=2x1090x64:bf16:3 --arg=0.2
// RUN: saccade-run %s --entry=shifted --check --arg=2x67x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=-0.2
// RUN: saccade-run %s --entry=shifted --check --arg=2x67x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=0.0
// RUN: saccade-run %s --entry=shifted --check --arg=2x2x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=0.0
// RUN: saccade-run %s --entry=shifted --target=v4-bf16-expanded --check --arg=2x67x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=0.1
func.func @shifted(%q: tensor<?x?x64xbf16>, %k: tensor<?x?x64xbf16>, %v: tensor<?x?x64xbf16>, %scale: f32) -> tensor<?x?x64xbf16> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] scale(%scale : f32)
    normalizer(%s, %b, %h, %i, %j) {
      %bias = arith.constant 7.0 : f32
      %one = arith.constant 1.0 : f32
      %x = arith.subf %s, %bias : f32
      %n = arith.negf %x : f32
      %e = math.exp %n : f32
      %d = arith.addf %one, %e : f32
      %r = arith.divf %one, %d : f32
      attn.yield %r : f32
    } : (tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, tensor<?x?x64xbf16>) -> tensor<?x?x64xbf16>
  return %o : tensor<?x?x64xbf16>
}

// Ragged batches with short and long sequences, dropout behind a normalizer of the position, f16.
// RUN: %python -c "import numpy as n; n.save(r'%t.n.npy', n.int32([0, 3, 3, 60])); n.save(r'%t.m.npy', n.int32([20, 33]))"
// RUN: saccade-run %s --entry=ragged --check --arg=60x2x32:f16:1 --arg=60x2x32:f16:2 --arg=60x2x32:f16:3 --arg=%t.n.npy --arg=5
func.func @ragged(%q: tensor<?x2x32xf16>, %k: tensor<?x2x32xf16>, %v: tensor<?x2x32xf16>, %n: tensor<?xi32>, %seed: i64)
    -> tensor<?x2x32xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%n : tensor<?xi32>) cu_seqlens_k(%n : tensor<?xi32>)
    mask causal<bottom_right> dropout(0.3, %seed : i64)
    normalizer(%s, %b, %h, %i, %j) {
      %zero = arith.constant 0.0 : f32
      %keys = attn.length key
      %n32 = arith.index_cast %keys : index to i32
      %length = arith.sitofp %n32 : i32 to f32
      %x = arith.maximumf %s, %zero : f32
      %y = arith.mulf %x, %x : f32
      %r = arith.divf %y, %length : f32
      attn.yield %r : f32
    } : (tensor<?x2x32xf16>, tensor<?x2x32xf16>, tensor<?x2x32xf16>) -> tensor<?x2x32xf16>
  return %o : tensor<?x2x32xf16>
}

// A score region hides keys by −inf; keys after a length; the gradient reads the normalizer's captures.
// RUN: saccade-run %s --entry=derived --check --arg=2x2x21x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=2x33:f64:4 --arg=%t.m.npy --out=%t.o.npy
// RUN: saccade-run %s --entry=derived_gradient --check --arg=2x2x21x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=2x33:f64:4 --arg=%t.m.npy --arg=%t.o.npy --arg=2x2x21x8:f64:5
// RUN: saccade-run %s --entry=derived_jvp --check --arg=2x2x21x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=2x33:f64:4 --arg=%t.m.npy --arg=2x2x21x8:f64:5 --arg=2x2x33x8:f64:6 --arg=2x2x33x8:f64:7 --arg=2x33:f64:8
func.func @derived(%q: tensor<2x2x?x8xf64>, %k: tensor<2x2x?x8xf64>, %v: tensor<2x2x?x8xf64>, %g: tensor<2x33xf64>,
                   %n: tensor<2xi32>) -> tensor<2x2x?x8xf64> attributes {attn.gradient, attn.jvp} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%g : tensor<2x33xf64>) kv_len(%n : tensor<2xi32>)
    mask causal<3>
    score(%s: f64, %b, %h, %i, %j, %gates) {
      %hidden = arith.constant 0xFFF0000000000000 : f64
      %two = arith.constant 2 : index
      %zero = arith.constant 0 : index
      %rest = arith.remui %j, %two : index
      %isEven = arith.cmpi eq, %rest, %zero : index
      %r = arith.select %isEven, %s, %hidden : f64
      attn.yield %r : f64
    }
    normalizer(%s: f64, %b, %h, %i, %j, %gates) {
      %one = arith.constant 1.0 : f64
      %gate = tensor.extract %gates[%h, %j] : tensor<2x33xf64>
      %m = arith.negf %s : f64
      %e = math.exp %m : f64
      %d = arith.addf %e, %one : f64
      %p = arith.divf %s, %d : f64
      %r = arith.mulf %p, %gate : f64
      attn.yield %r : f64
    } : (tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>) -> tensor<2x2x?x8xf64>
  return %o : tensor<2x2x?x8xf64>
}

// The example, with the bias of 2,048 keys.
// RUN: saccade-run %src/examples/normalizers.mlir --entry=sigmoid --check --arg=1x8x100x64:f32:1 --arg=1x2x140x64:f32:2 --arg=1x2x140x64:f32:3 --arg=-7.6
// RUN: saccade-run %src/examples/normalizers.mlir --entry=hstu --check --arg=2x4x100x64:f32:1 --arg=2x4x100x64:f32:2 --arg=2x4x100x64:f32:3 --arg=100x100:f32:4
// RUN: saccade-run %src/examples/normalizers.mlir --entry=relu_squared --check --arg=1x8x100x64:f32:1 --arg=1x8x140x64:f32:2 --arg=1x8x140x64:f32:3
