// Queries after the length of their batch: the output is 0 and the log-sum-exp −inf, although the sink has a weight. Work
// items that end within a tile of queries, that contain the length, and that are after it; in split-KV all rows are one item.

// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --explain --arg=2x2x150x64:bf16:1 --arg=2x2x70x64:bf16:2 --arg=2x2x70x64:bf16:3 --arg=2:i64:=37 --arg=2:f32:4 | FileCheck %s --check-prefixes=CHECK,SM90
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --arg=2x2x150x64:bf16:1 --arg=2x2x70x64:bf16:2 --arg=2x2x70x64:bf16:3 --arg=2:i64:=37 --arg=2:f32:4 | FileCheck %s
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --check --arg=2x2x40x64:bf16:1 --arg=2x2x70x64:bf16:2 --arg=2x2x70x64:bf16:3 --arg=2:i64:=21 --arg=2:f32:4 | FileCheck %s
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --explain --arg=2x2x5x64:bf16:1 --arg=2x2x70x64:bf16:2 --arg=2x2x70x64:bf16:3 --arg=2:i64:=3 --arg=2:f32:4 | FileCheck %s --check-prefixes=CHECK,SPLIT90
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --arg=2x2x5x64:bf16:1 --arg=2x2x70x64:bf16:2 --arg=2x2x70x64:bf16:3 --arg=2:i64:=3 --arg=2:f32:4 | FileCheck %s

// SM90: kernel family sm_90a, ran
// SPLIT90: kernel family sm_90a, split-KV, ran
// CHECK: check result #0, {{.*}}: agrees
// CHECK: check result #1, {{.*}}: agrees

func.func @padded(%q: tensor<2x2x?x64xbf16>, %k: tensor<2x2x?x64xbf16>, %v: tensor<2x2x?x64xbf16>, %n: tensor<2xi64>, %sink: tensor<2xf32>)
    -> (tensor<2x2x?x64xbf16>, tensor<2x2x?xf32>) {
  %o, %lse = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%n : tensor<2xi64>) sink(%sink : tensor<2xf32>) lse
    : (tensor<2x2x?x64xbf16>, tensor<2x2x?x64xbf16>, tensor<2x2x?x64xbf16>) -> (tensor<2x2x?x64xbf16>, tensor<2x2x?xf32>)
  return %o, %lse : tensor<2x2x?x64xbf16>, tensor<2x2x?xf32>
}
