// Math functions without a PTX instruction in regions, with tensor cores and in f64.
// REQUIRES: libdevice
// RUN: saccade-run %s --device=ptxsim --check --explain --entry=wave --arg=70x64:f16:1 --arg=130x64:f16:2 --arg=130x64:f16:3 | FileCheck %s
// RUN: saccade-run %s --device=ptxsim --check --entry=wide --arg=20x16:f64:1 --arg=40x16:f64:2 --arg=40x16:f64:3
// The error of an approximate tanh would be multiplied by 128.
// RUN: saccade-run %s --device=ptxsim --check --arithmetic=hardware --entry=square --arg=70x64:bf16:1 --arg=130x64:bf16:2 --arg=130x64:bf16:3
// CHECK: kernel family sm_80, ran

func.func @wave(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %f = arith.sitofp %d32 : i32 to f32
      %w = math.sin %f : f32
      %r = arith.addf %s, %w : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}

func.func @wide(%q: tensor<?x16xf64>, %k: tensor<?x16xf64>, %v: tensor<?x16xf64>) -> tensor<?x16xf64> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s: f64, %b, %h, %i, %j) {
      %t = math.tanh %s : f64
      %c = math.cos %s : f64
      %r = arith.addf %t, %c : f64
      attn.yield %r : f64
    } : (tensor<?x16xf64>, tensor<?x16xf64>, tensor<?x16xf64>) -> tensor<?x16xf64>
  return %o : tensor<?x16xf64>
}

func.func @square(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> tensor<?x64xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %c = arith.constant 64.0 : f32
      %t = math.tanh %s : f32
      %t2 = arith.mulf %t, %t : f32
      %r = arith.mulf %t2, %c : f32
      attn.yield %r : f32
    } : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}
