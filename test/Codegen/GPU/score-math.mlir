// Score regions of 16-bit operands take cheap instructions: tanh is one if no result has the precision of f32, else two of
// the special function unit; divisions by constants are products, and distances are converted once.
// RUN: split-file %s %t
// RUN: saccade-compile %t/softcap.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=BF16 --implicit-check-not=div.rn.f32
// RUN: sed 's/bf16/f16/g' %t/softcap.mlir > %t/f16.mlir
// RUN: saccade-compile %t/f16.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=F16 --implicit-check-not=tanh.approx
// RUN: saccade-compile %t/lse.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=F16 --implicit-check-not=tanh.approx
// RUN: saccade-compile %t/max.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=MAX --implicit-check-not=tanh.approx --implicit-check-not=rcp.approx
// RUN: saccade-compile %t/distance.mlir --target=sm_80 --emit=ptx -o - | FileCheck %s --check-prefix=DISTANCE
// RUN: saccade-run %t/softcap.mlir --device=ptxsim --check --arg=64x64:bf16:1 --arg=150x64:bf16:2 --arg=150x64:bf16:3 | FileCheck %s --check-prefix=AGREES
// RUN: saccade-run %t/f16.mlir --device=ptxsim --check --arg=64x64:f16:1 --arg=150x64:f16:2 --arg=150x64:f16:3 | FileCheck %s --check-prefix=AGREES
// RUN: saccade-run %t/lse.mlir --device=ptxsim --check --arg=64x64:bf16:1 --arg=150x64:bf16:2 --arg=150x64:bf16:3 | FileCheck %s --check-prefix=AGREES
// RUN: saccade-run %t/distance.mlir --device=ptxsim --check --arg=64x64:bf16:1 --arg=150x64:bf16:2 --arg=150x64:bf16:3 | FileCheck %s --check-prefix=AGREES
// AGREES: agrees

// BF16: tanh.approx.f32
// F16: rcp.approx.ftz.f32
// MAX: div.rn.f32
// DISTANCE: cvt.rn.f32.s64
// DISTANCE-NOT: cvt.rn.f32.s64

//--- softcap.mlir
func.func @attend(%q: tensor<64x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> tensor<64x64xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
    %cap = arith.constant 20.0 : f32
    %x = arith.divf %s, %cap : f32
    %t = math.tanh %x : f32
    %r = arith.mulf %t, %cap : f32
    attn.yield %r : f32
  } : (tensor<64x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<64x64xbf16>
  return %o : tensor<64x64xbf16>
}
//--- lse.mlir
func.func @attend(%q: tensor<64x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> (tensor<64x64xbf16>, tensor<64xf32>) {
  %o, %l = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
    %t = math.tanh %s : f32
    attn.yield %t : f32
  } lse : (tensor<64x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> (tensor<64x64xbf16>, tensor<64xf32>)
  return %o, %l : tensor<64x64xbf16>, tensor<64xf32>
}
//--- max.mlir
func.func @attend(%q: tensor<64x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> (tensor<64x64xbf16>, tensor<64xf32>) {
  %o, %m = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
    %t = math.tanh %s : f32
    attn.yield %t : f32
  } max : (tensor<64x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> (tensor<64x64xbf16>, tensor<64xf32>)
  return %o, %m : tensor<64x64xbf16>, tensor<64xf32>
}
//--- distance.mlir
func.func @attend(%q: tensor<64x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> tensor<64x64xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
    %slope = arith.constant 0.0625 : f32
    %d = arith.subi %j, %i : index
    %d64 = arith.index_cast %d : index to i64
    %f = arith.sitofp %d64 : i64 to f32
    %bias = arith.mulf %f, %slope : f32
    %r = arith.addf %s, %bias : f32
    attn.yield %r : f32
  } : (tensor<64x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<64x64xbf16>
  return %o : tensor<64x64xbf16>
}
