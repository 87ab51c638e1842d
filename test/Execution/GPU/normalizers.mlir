// Attention without a softmax under PtxSim, on each family of kernels, long and with split keys, and its gradient.

// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=squared --check --arg=1x4x35x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=squared --check --explain --arg=1x4x35x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4 | FileCheck %s --check-prefix=SM80
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=squared --check --explain --arg=1x4x70x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4 | FileCheck %s --check-prefix=SM90
// SM80: kernel family sm_80, ran
// SM90: kernel family sm_90a, ran
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=squared --check --arg=1x4x2x64:f16:1 --arg=1x2x600x64:f16:2 --arg=1x2x600x64:f16:3 --arg=4:f32:4
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=squared --check --arg=1x4x2x64:f16:1 --arg=1x2x600x64:f16:2 --arg=1x2x600x64:f16:3 --arg=4:f32:4
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=squared --check --arg=1x4x2x64:f16:1 --arg=1x2x600x64:f16:2 --arg=1x2x600x64:f16:3 --arg=4:f32:4
// RUN: saccade-run %s --entry=squared --arg=1x4x35x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4 --out=%t.o.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=squared_gradient --check --arg=1x4x35x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4 --arg=%t.o.npy:f16 --arg=1x4x35x64:f16:5
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=squared_gradient --check --arg=1x4x35x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4 --arg=%t.o.npy:f16 --arg=1x4x35x64:f16:5
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=squared_jvp --check --arg=1x4x35x64:f16:1 --arg=1x2x170x64:f16:2 --arg=1x2x170x64:f16:3 --arg=4:f32:4 --arg=1x4x35x64:f16:5 --arg=1x2x170x64:f16:6 --arg=1x2x170x64:f16:7 --arg=4:f32:8
func.func @squared(%q: tensor<?x4x?x64xf16>, %k: tensor<?x2x?x64xf16>, %v: tensor<?x2x?x64xf16>, %g: tensor<4xf32>)
    -> tensor<?x4x?x64xf16> attributes {attn.gradient, attn.jvp} {
  // The first two rows see no key.
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%g : tensor<4xf32>) mask causal<-2>
    normalizer(%s, %b, %h, %i, %j, %gates) {
      %zero = arith.constant 0.0 : f32
      %part = arith.constant 0.0625 : f32
      %gate = tensor.extract %gates[%h] : tensor<4xf32>
      %x = arith.maximumf %s, %zero : f32
      %y = arith.mulf %x, %x : f32
      %z = arith.mulf %y, %part : f32
      %r = arith.mulf %z, %gate : f32
      attn.yield %r : f32
    } : (tensor<?x4x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>) -> tensor<?x4x?x64xf16>
  return %o : tensor<?x4x?x64xf16>
}

// Without captures the gradient has the kernels of tensor cores; the sigmoid in f32 has those without.
// RUN: saccade-run %s --entry=sigmoid --arg=35x64:f16:1 --arg=170x64:f16:2 --arg=170x64:f16:3 --out=%t.o.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=sigmoid_gradient --check --explain --arg=35x64:f16:1 --arg=170x64:f16:2 --arg=170x64:f16:3 --arg=%t.o.npy:f16 --arg=35x64:f16:5 | FileCheck %s --check-prefix=GRADIENT80
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --entry=sigmoid_gradient --check --explain --arg=35x64:f16:1 --arg=170x64:f16:2 --arg=170x64:f16:3 --arg=%t.o.npy:f16 --arg=35x64:f16:5 | FileCheck %s --check-prefix=GRADIENT90
// GRADIENT80: kernel family sm_80, gradient, ran
// GRADIENT90: kernel family sm_90a, gradient, ran
func.func @sigmoid(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16>
    attributes {attn.gradient} {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] mask causal<40>
    normalizer(%s, %b, %h, %i, %j) {
      %one = arith.constant 1.0 : f32
      %n = arith.negf %s : f32
      %e = math.exp %n : f32
      %d = arith.addf %e, %one : f32
      %r = arith.divf %one, %d : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}
