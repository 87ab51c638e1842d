// Stick-breaking attention agrees with the reference, which breaks a stick key by key in float64: packed and unpacked
// kernels, split keys, ragged batches, masks that hide whole rows, weight regions, and derivatives.

// Products in registers; a score region and a mask that hides whole rows.
// RUN: saccade-run %s --entry=biased --check --arg=2x4x67x16:f32:1 --arg=2x2x1080x16:f32:2 --arg=2x2x1080x24:f32:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=biased --check --arg=2x4x3x16:f32:1 --arg=2x2x3080x16:f32:2 --arg=2x2x3080x24:f32:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=biased --target=portable --check --arg=1x4x67x16:f32:1 --arg=1x2x80x16:f32:2 --arg=1x2x80x24:f32:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=biased --target=v4-expanded --check --arg=1x4x67x16:f32:1 --arg=1x2x80x16:f32:2 --arg=1x2x80x24:f32:3 --arg=4:f32:4
func.func @biased(%q: tensor<?x4x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x24xf32>, %t: tensor<4xf32>)
    -> tensor<?x4x?x24xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%t : tensor<4xf32>) mask causal<-2>
    normalizer stick_breaking
    score(%s, %b, %h, %i, %j, %bias) {
      %x = tensor.extract %bias[%h] : tensor<4xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x24xf32>) -> tensor<?x4x?x24xf32>
  return %o : tensor<?x4x?x24xf32>
}

// Pairs and tiles of bf16. The scale is 0 in one call, and negative in another.
// RUN: saccade-run %s --entry=scaled --check --arg=2x67x64:bf16:1 --arg=2x1090x64:bf16:2 --arg=2x1090x64:bf16:3 --arg=0.2
// RUN: saccade-run %s --entry=scaled --check --arg=2x67x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=-0.2
// RUN: saccade-run %s --entry=scaled --check --arg=2x67x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=0.0
// RUN: saccade-run %s --entry=scaled --check --arg=2x2x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=0.0
// RUN: saccade-run %s --entry=scaled --target=v4-bf16-expanded --check --arg=2x67x64:bf16:1 --arg=2x90x64:bf16:2 --arg=2x90x64:bf16:3 --arg=0.1
// RUN: saccade-run %s --entry=scaled --target=v4-bf16-expanded --check --arg=2x35x64:bf16:1 --arg=2x1090x64:bf16:2 --arg=2x1090x64:bf16:3 --arg=0.02
// RUN: saccade-run %s --entry=scaled --target=v4-amx-expanded --check --arg=2x67x64:bf16:1 --arg=2x790x64:bf16:2 --arg=2x790x64:bf16:3 --arg=0.1
func.func @scaled(%q: tensor<?x?x64xbf16>, %k: tensor<?x?x64xbf16>, %v: tensor<?x?x64xbf16>, %scale: f32) -> tensor<?x?x64xbf16> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] scale(%scale : f32) normalizer stick_breaking
    : (tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, tensor<?x?x64xbf16>) -> tensor<?x?x64xbf16>
  return %o : tensor<?x?x64xbf16>
}

// Runs of visible columns, of which some leave nothing for those before.
// RUN: %python -c "import numpy as n; n.save(r'%t.d.npy', n.int32(n.arange(600) // 40 %% 3))"
// RUN: saccade-run %s --entry=runs --check --arg=600x64:bf16:1 --arg=600x64:bf16:2 --arg=600x64:bf16:3 --arg=%t.d.npy --arg=0.7
// RUN: saccade-run %s --entry=runs --target=v4-amx-expanded --check --arg=600x64:bf16:1 --arg=600x64:bf16:2 --arg=600x64:bf16:3 --arg=%t.d.npy --arg=0.7
func.func @runs(%q: tensor<600x64xbf16>, %k: tensor<600x64xbf16>, %v: tensor<600x64xbf16>, %d: tensor<600xi32>, %scale: f32)
    -> tensor<600x64xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] scale(%scale : f32) captures(%d : tensor<600xi32>)
    mask(%b, %h, %i, %j, %documents) {
      %x = tensor.extract %documents[%i] : tensor<600xi32>
      %y = tensor.extract %documents[%j] : tensor<600xi32>
      %r = arith.cmpi eq, %x, %y : i32
      attn.yield %r : i1
    } normalizer stick_breaking : (tensor<600x64xbf16>, tensor<600x64xbf16>, tensor<600x64xbf16>) -> tensor<600x64xbf16>
  return %o : tensor<600x64xbf16>
}

// Ragged batches with short and long sequences, dropout behind a weight region, f16.
// RUN: %python -c "import numpy as n; n.save(r'%t.n.npy', n.int32([0, 3, 3, 60])); n.save(r'%t.m.npy', n.int32([20, 33]))"
// RUN: saccade-run %s --entry=ragged --check --arg=60x2x32:f16:1 --arg=60x2x32:f16:2 --arg=60x2x32:f16:3 --arg=%t.n.npy --arg=5
// RUN: saccade-run %s --entry=ragged --target=v4-amx-expanded --check --arg=60x2x32:f16:1 --arg=60x2x32:f16:2 --arg=60x2x32:f16:3 --arg=%t.n.npy --arg=5
func.func @ragged(%q: tensor<?x2x32xf16>, %k: tensor<?x2x32xf16>, %v: tensor<?x2x32xf16>, %n: tensor<?xi32>, %seed: i64)
    -> tensor<?x2x32xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%n : tensor<?xi32>) cu_seqlens_k(%n : tensor<?xi32>)
    mask causal<bottom_right> dropout(0.3, %seed : i64) normalizer stick_breaking
    weight(%p, %b, %h, %i, %j) {
      %two = arith.constant 2.0 : f32
      %r = arith.mulf %p, %two : f32
      attn.yield %r : f32
    } : (tensor<?x2x32xf16>, tensor<?x2x32xf16>, tensor<?x2x32xf16>) -> tensor<?x2x32xf16>
  return %o : tensor<?x2x32xf16>
}

// A score region hides keys by −inf; keys after a length; queries and keys rounded to int8.
// RUN: saccade-run %s --entry=hidden --check --arg=2x2x61x32:f32:1 --arg=2x2x133x32:f32:2 --arg=2x2x133x32:f32:3 --arg=%t.m.npy
// RUN: saccade-run %s --entry=hidden --check --arg=2x2x2x32:f32:1 --arg=2x2x133x32:f32:2 --arg=2x2x133x32:f32:3 --arg=%t.m.npy
func.func @hidden(%q: tensor<2x2x?x32xf32>, %k: tensor<2x2x?x32xf32>, %v: tensor<2x2x?x32xf32>, %n: tensor<2xi32>)
    -> tensor<2x2x?x32xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : tensor<2xi32>) qk_type(i8)
    normalizer stick_breaking
    score(%s, %b, %h, %i, %j) {
      %hidden = arith.constant 0xFF800000 : f32
      %two = arith.constant 2 : index
      %zero = arith.constant 0 : index
      %rest = arith.remui %j, %two : index
      %isEven = arith.cmpi eq, %rest, %zero : index
      %r = arith.select %isEven, %s, %hidden : f32
      attn.yield %r : f32
    } : (tensor<2x2x?x32xf32>, tensor<2x2x?x32xf32>, tensor<2x2x?x32xf32>) -> tensor<2x2x?x32xf32>
  return %o : tensor<2x2x?x32xf32>
}

// The gradient reads the captures of the score and of the weight region.
// RUN: saccade-run %s --entry=derived --check --arg=2x4x21x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=4x33:f64:4 --arg=33:f64:6 --arg=%t.m.npy --out=%t.o.npy
// RUN: saccade-run %s --entry=derived_gradient --check --arg=2x4x21x8:f64:1 --arg=2x2x33x8:f64:2 --arg=2x2x33x8:f64:3 --arg=4x33:f64:4 --arg=33:f64:6 --arg=%t.m.npy --arg=%t.o.npy --arg=2x4x21x8:f64:5
func.func @derived(%q: tensor<2x4x?x8xf64>, %k: tensor<2x2x?x8xf64>, %v: tensor<2x2x?x8xf64>, %g: tensor<4x33xf64>,
                   %f: tensor<33xf64>, %n: tensor<2xi32>) -> tensor<2x4x?x8xf64> attributes {attn.gradient} {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%g, %f : tensor<4x33xf64>, tensor<33xf64>)
    kv_len(%n : tensor<2xi32>) mask causal<3> normalizer stick_breaking
    score(%s: f64, %b, %h, %i, %j, %bias, %factors) {
      %x = tensor.extract %bias[%h, %j] : tensor<4x33xf64>
      %r = arith.addf %s, %x : f64
      attn.yield %r : f64
    }
    weight(%p: f64, %b, %h, %i, %j, %bias, %factors) {
      %x = tensor.extract %factors[%j] : tensor<33xf64>
      %r = arith.mulf %p, %x : f64
      attn.yield %r : f64
    } : (tensor<2x4x?x8xf64>, tensor<2x2x?x8xf64>, tensor<2x2x?x8xf64>) -> tensor<2x4x?x8xf64>
  return %o : tensor<2x4x?x8xf64>
}
