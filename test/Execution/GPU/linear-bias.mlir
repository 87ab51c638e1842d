// Score regions whose bias is linear in the key: products start from a part of it, on sm_80.
// RUN: split-file %s %t
// RUN: saccade-run %t/alibi.mlir --device=ptxsim --target=sm_80 --check --arg=1x3x128x64:bf16:1 --arg=1x3x200x64:bf16:2 --arg=1x3x200x64:bf16:3 --arg=3:f32:4 | FileCheck %s
// RUN: saccade-run %t/alibi.mlir --device=ptxsim --target=sm_80 --check --arg=1x2x130x64:bf16:1 --arg=1x2x300x64:bf16:2 --arg=1x2x300x64:bf16:3 --arg=2:f32:=6.5 | FileCheck %s
// RUN: sed 's/x64x/x128x/g; s,// mask none,mask window<90\, *>,' %t/alibi.mlir > %t/window.mlir
// RUN: saccade-run %t/window.mlir --device=ptxsim --target=sm_80 --check --arg=1x2x200x128:bf16:1 --arg=1x2x200x128:bf16:2 --arg=1x2x200x128:bf16:3 --arg=2:f32:=0.3 | FileCheck %s
// RUN: sed 's,// mask none,mask causal<top_left>,' %t/alibi.mlir > %t/causal.mlir
// RUN: saccade-run %t/causal.mlir --device=ptxsim --target=sm_80 --check --arg=1x1x128x64:bf16:1 --arg=1x1x200x64:bf16:2 --arg=1x1x200x64:bf16:3 --arg=1:f32:=1 | FileCheck %s
// RUN: saccade-run %t/causal.mlir --device=ptxsim --target=sm_80 --check --arg=1x1x128x64:bf16:1 --arg=1x1x200x64:bf16:2 --arg=1x1x200x64:bf16:3 --arg=1:f32:=1e8 | FileCheck %s
// RUN: saccade-run %t/causal.mlir --device=ptxsim --target=sm_80 --check --arg=1x1x128x64:bf16:1 --arg=1x1x200x64:bf16:2 --arg=1x1x200x64:bf16:3 --arg=1:f32:=-1e12 | FileCheck %s
// RUN: saccade-run %t/causal.mlir --device=ptxsim --target=sm_80 --check --arg=1x1x128x64:bf16:1 --arg=1x1x200x64:bf16:2 --arg=1x1x200x64:bf16:3 --arg=1:f32:=1e30 | FileCheck %s
// RUN: saccade-run %t/alibi.mlir --device=ptxsim --target=sm_80 --check --arg=1x1x128x64:bf16:1 --arg=1x1x200x64:bf16:2 --arg=1x1x200x64:bf16:3 --arg=1:f32:=5e7 | FileCheck %s
// RUN: saccade-run %t/forms.mlir --device=ptxsim --target=sm_80 --check --arg=128x64:f16:1 --arg=260x64:f16:2 --arg=260x64:f16:3 --arg=128:f32:4 | FileCheck %s
// RUN: saccade-run %t/no-slope.mlir --device=ptxsim --target=sm_80 --check --arg=128x64:f16:1 --arg=260x64:f16:2 --arg=260x64:f16:3 --arg=128:f32:=50 | FileCheck %s
// RUN: saccade-run %t/nonlinear.mlir --device=ptxsim --target=sm_80 --check --arg=128x64:f16:1 --arg=260x64:f16:2 --arg=260x64:f16:3 --arg=128:f32:4 | FileCheck %s
// CHECK: agrees

// A log-sum-exp is exact where the bias of the largest score is small.
// RUN: saccade-run %t/lse.mlir --device=ptxsim --target=sm_80 --check --arg=128x64:f16:1 --arg=128x64:f16:2 --arg=128x64:f16:3 --arg=1000.0 | FileCheck %s
// RUN: saccade-run %t/no-slope.mlir --device=ptxsim --target=sm_80 --check --arg=128x64:f16:1 --arg=260x64:f16:2 --arg=260x64:f16:3 --arg=128:f32:=-1e38 | FileCheck %s

// A product starts from multiples of the slope, or from 0.
// RUN: saccade-compile %t/alibi.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=PTX
// RUN: saccade-compile %t/nonlinear.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=ZERO
// RUN: saccade-compile %t/no-slope.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=ZERO
// RUN: saccade-compile %t/lse.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=ZERO
// PTX: mul.rn.f32 [[SLOPE:%r[0-9]+]], %r{{[0-9]+}}, 0f41000000;
// PTX: mul.rn.f32 [[NINE:%r[0-9]+]], [[SLOPE]], 0f41100000;
// PTX: mul.rn.f32 [[TEN:%r[0-9]+]], [[SLOPE]], 0f41200000;
// PTX: {[[NINE]], [[TEN]], %r{{[0-9]+}}, %r{{[0-9]+}}};
// ZERO: {[[ZERO:%r[0-9]+]], [[ZERO]], [[ZERO]], [[ZERO]]};

//--- alibi.mlir
func.func @attend(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>, %slope: tensor<?xf32>)
    -> tensor<?x?x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%slope : tensor<?xf32>)
    // mask none
    score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<?xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}
//--- forms.mlir
// s + a(i) − (2 j · 0.03 − (i − j) · 0.125), not a function of the distance.
func.func @attend(%q: tensor<128x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>, %a: tensor<?xf32>) -> tensor<128x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%a : tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %as) {
      %two = arith.constant 2 : index
      %c = arith.constant 0.03 : f32
      %g = arith.constant 0.125 : f32
      %ofRow = tensor.extract %as[%i] : tensor<?xf32>
      %x = arith.addf %s, %ofRow : f32
      %twice = arith.muli %j, %two : index
      %t64 = arith.index_cast %twice : index to i64
      %t = arith.sitofp %t64 : i64 to f32
      %first = arith.mulf %t, %c : f32
      %d = arith.subi %i, %j : index
      %d64 = arith.index_cast %d : index to i64
      %df = arith.sitofp %d64 : i64 to f32
      %scaled = arith.mulf %g, %df : f32
      %second = arith.subf %first, %scaled : f32
      %r = arith.subf %x, %second : f32
      attn.yield %r : f32
    } : (tensor<128x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<128x64xf16>
  return %o : tensor<128x64xf16>
}
//--- no-slope.mlir
func.func @attend(%q: tensor<128x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>, %a: tensor<?xf32>) -> tensor<128x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%a : tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %as) {
      %ofRow = tensor.extract %as[%i] : tensor<?xf32>
      %r = arith.addf %s, %ofRow : f32
      attn.yield %r : f32
    } : (tensor<128x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<128x64xf16>
  return %o : tensor<128x64xf16>
}
//--- nonlinear.mlir
// The slope depends on the query; the region is evaluated for each score.
func.func @attend(%q: tensor<128x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>, %a: tensor<?xf32>) -> tensor<128x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%a : tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %as) {
      %m = tensor.extract %as[%i] : tensor<?xf32>
      %j64 = arith.index_cast %j : index to i64
      %f = arith.sitofp %j64 : i64 to f32
      %bias = arith.mulf %m, %f : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<128x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<128x64xf16>
  return %o : tensor<128x64xf16>
}
//--- lse.mlir
func.func @attend(%q: tensor<128x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>, %slope: f32) -> (tensor<128x64xf16>, tensor<128xf32>) {
  %o, %lse = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%slope : f32)
    mask causal<top_left>
    score(%s, %b, %h, %i, %j, %m) {
      %d = arith.subi %j, %i : index
      %d64 = arith.index_cast %d : index to i64
      %f = arith.sitofp %d64 : i64 to f32
      %bias = arith.mulf %m, %f : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } lse : (tensor<128x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> (tensor<128x64xf16>, tensor<128xf32>)
  return %o, %lse : tensor<128x64xf16>, tensor<128xf32>
}
