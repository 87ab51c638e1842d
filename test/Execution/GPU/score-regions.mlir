// Score and weight regions whose cheaper arithmetic could change a result: steps after a division, integers that wrap,
// tanh of f32, and weights while the maximum of a row grows.
// RUN: saccade-run %s --device=ptxsim --check --entry=growth --arg=20x64:f16:1 --arg=128x64:f16:2 --arg=128x64:f16:3
// RUN: saccade-run %s --device=ptxsim --check --entry=growth_of_tiles --arg=20x64:f16:1 --arg=300x64:f16:2 --arg=300x64:f16:3
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --explain --entry=growth_of_tiles --arg=128x64:f16:1 --arg=256x64:f16:2 --arg=256x64:f16:3 | FileCheck %s
// RUN: saccade-run %s --device=ptxsim --check --entry=weights --arg=20x64:f16:=0.01 --arg=128x64:f16:2 --arg=128x64:f16:3
// RUN: saccade-run %s --device=ptxsim --check --entry=floor --arg=20x64:f16:1 --arg=90x64:f16:2 --arg=90x64:f16:3
// RUN: saccade-run %s --device=ptxsim --check --entry=narrow --arg=20x64:f16:1 --arg=130x64:f16:2 --arg=130x64:f16:3
// RUN: saccade-run %s --device=ptxsim --check --entry=cap_f32 --arg=20x64:f32:1 --arg=130x64:f32:2 --arg=130x64:f32:3
// RUN: saccade-run %s --device=ptxsim --check --entry=large_cap --arg=20x64:f16:1 --arg=130x64:f16:2 --arg=130x64:f16:3
// CHECK: kernel family sm_90a{{.*}}, ran

// The scores of each 64 keys are larger by 12 as base-e exponents.
func.func @growth(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> (tensor<?x64xf16>, tensor<?xf32>) {
  %o, %lse = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %tile = arith.constant 64 : index
      %step = arith.constant 12.0 : f32
      %n = arith.divui %j, %tile : index
      %n32 = arith.index_cast %n : index to i32
      %f = arith.sitofp %n32 : i32 to f32
      %offset = arith.mulf %f, %step : f32
      %r = arith.addf %s, %offset : f32
      attn.yield %r : f32
    } lse : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> (tensor<?x64xf16>, tensor<?xf32>)
  return %o, %lse : tensor<?x64xf16>, tensor<?xf32>
}

// The scores of each 128 keys are. On sm_80 these are two steps: the second one does not increase the maximum, so weights of
// the third one are computed before it.
func.func @growth_of_tiles(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> (tensor<?x64xf16>, tensor<?xf32>) {
  %o, %lse = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %tile = arith.constant 128 : index
      %step = arith.constant 12.0 : f32
      %n = arith.divui %j, %tile : index
      %n32 = arith.index_cast %n : index to i32
      %f = arith.sitofp %n32 : i32 to f32
      %offset = arith.mulf %f, %step : f32
      %r = arith.addf %s, %offset : f32
      attn.yield %r : f32
    } lse : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> (tensor<?x64xf16>, tensor<?xf32>)
  return %o, %lse : tensor<?x64xf16>, tensor<?xf32>
}

// A weight of 2^8 times 400 is not an f16.
func.func @weights(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %tile = arith.constant 64 : index
      %step = arith.constant 5.4 : f32
      %n = arith.divui %j, %tile : index
      %n32 = arith.index_cast %n : index to i32
      %f = arith.sitofp %n32 : i32 to f32
      %offset = arith.mulf %f, %step : f32
      %r = arith.addf %s, %offset : f32
      attn.yield %r : f32
    } weight(%p, %b, %h, %i, %j) {
      %w = arith.constant 400.0 : f32
      %r = arith.mulf %p, %w : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}

// 41 times the rounded reciprocal of 41 is less than 1.
func.func @floor(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %c = arith.constant 41.0 : f32
      %five = arith.constant 5.0 : f32
      %j32 = arith.index_cast %j : index to i32
      %f = arith.sitofp %j32 : i32 to f32
      %x = arith.divf %f, %c : f32
      %y = math.floor %x : f32
      %z = arith.mulf %y, %five : f32
      %r = arith.addf %s, %z : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}

// The distances wrap.
func.func @narrow(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %c = arith.constant 0.1 : f32
      %hundred = arith.constant 100 : index
      %distance = arith.subi %j, %i : index
      %shifted = arith.addi %distance, %hundred : index
      %j8 = arith.index_cast %shifted : index to i8
      %f = arith.sitofp %j8 : i8 to f32
      %z = arith.mulf %f, %c : f32
      %r = arith.addf %s, %z : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}

func.func @cap_f32(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 50.0 : f32
      %x = arith.divf %s, %cap : f32
      %y = math.tanh %x : f32
      %r = arith.mulf %y, %cap : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @large_cap(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 1.0e5 : f32
      %x = arith.divf %s, %cap : f32
      %y = math.tanh %x : f32
      %r = arith.mulf %y, %cap : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}
