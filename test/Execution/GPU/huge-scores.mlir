// Scores beyond 2^24, whose base is rounded by more than a factor of two: the largest ones of a row share its weight, on the
// tensor cores and without, over parts of the keys that are joined, in tallies, and where a weight is asked for with its sum.
// RUN: saccade-run %s --device=ptxsim --check --explain --entry=steps --arg=70x64:f16:=3.0 --arg=330x64:f16:=5.0 --arg=330x64:f16:1 | FileCheck %s --check-prefix=UNITS
// RUN: saccade-run %s --device=ptxsim --check --explain --entry=steps --arg=2x64:f16:=3.0 --arg=700x64:f16:=5.0 --arg=700x64:f16:1 | FileCheck %s --check-prefix=SPLIT
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --check --entry=steps --arg=20x64:f16:=3.0 --arg=330x64:f16:=5.0 --arg=330x64:f16:1
// RUN: saccade-run %s --device=ptxsim --check --entry=steps --arg=70x64:f16:=-3.0 --arg=330x64:f16:=5.0 --arg=330x64:f16:1
// RUN: saccade-run %s --device=ptxsim --check --entry=equal --arg=5x16:f32:=3.0e6 --arg=70x16:f32:=1.7e6 --arg=70x16:f32:3
// RUN: saccade-run %s --device=ptxsim --check --entry=changed --arg=33x64:f16:=3.0 --arg=130x64:f16:=5.0 --arg=130x64:f16:1
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --explain --entry=steps --arg=70x64:f16:=3.0 --arg=430x64:f16:=5.0 --arg=430x64:f16:1 | FileCheck %s --check-prefix=GROUPS
// RUN: saccade-run %s --device=ptxsim --target=sm_90a --check --entry=steps --arg=70x64:f16:=-3.0 --arg=430x64:f16:=5.0 --arg=430x64:f16:1
// UNITS: kernel family sm_80, ran
// SPLIT: kernel family sm_80, split-KV, ran
// GROUPS: kernel family sm_90a{{.*}}, ran

// Of each 50 keys all have the same score, larger than that of the 50 before.
func.func @steps(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %fifty = arith.constant 50 : index
      %step = arith.constant 1.0e11 : f32
      %factor = arith.constant 1.0e9 : f32
      %n = arith.divui %j, %fifty : index
      %n32 = arith.index_cast %n : index to i32
      %f = arith.sitofp %n32 : i32 to f32
      %offset = arith.mulf %f, %step : f32
      %large = arith.mulf %s, %factor : f32
      %r = arith.addf %large, %offset : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}

func.func @equal(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] mask causal<bottom_right> : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// A weight that does not only grow with the sum asks for a second reading of the keys.
func.func @changed(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
      %factor = arith.constant 1.0e9 : f32
      %large = arith.mulf %s, %factor : f32
      attn.yield %large : f32
    } weight(%p, %b, %h, %i, %j) {
      %w = arith.mulf %p, %p : f32
      attn.yield %w : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}
