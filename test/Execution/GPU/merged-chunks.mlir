// Split-KV with more than 32 chunks of keys: a warp merges the states of 32 chunks at a time. 24 columns are fewer than its lanes.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --explain --entry=more_chunks_than_lanes --arg=1x2x1x40:f32:1 --arg=1x1x9000x40:f32:2 --arg=1x1x9000x24:f32:3 | FileCheck %s
// Scores that grow with the position, so that the last chunks rescale the others, and infinite values.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --entry=later_keys_weigh_more --arg=1x1x1x8:f32:1 --arg=1x1x9000x8:f32:2 --arg=1x1x9000x8:f32:3
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --entry=later_keys_weigh_more --arg=1x1x1x8:f32:1 --arg=1x1x9000x8:f32:2 --arg=1x1x9000x8:f32:=inf
// Half of the scores are equal and the largest: the first key counts, in a thread, among lanes and among chunks.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --entry=equal_scores --arg=1x1x1x8:f32:1 --arg=1x1x9000x8:f32:2 --arg=1x1x9000x8:f32:3
// CHECK: kernel family simt, split-KV, ran 36 CTAs
// CHECK: check result #0, 48 of 48 elements: agrees
// CHECK: check result #3, 2 of 2 elements: equal
func.func @more_chunks_than_lanes(%q: tensor<?x2x?x40xf32>, %k: tensor<?x1x?x40xf32>, %v: tensor<?x1x?x24xf32>) -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>, tensor<?x2x?xf32>, tensor<?x2x?xi64>, tensor<?x2x?x3xf32>) {
  %o, %lse, %max, %argmax, %tally = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] lse max argmax
    tally<3>(%s, %b, %h, %i, %j) {
      %c3 = arith.constant 3 : index
      %bin = arith.remui %j, %c3 : index
      %one = arith.constant 1.0 : f32
      attn.yield %bin, %one : index, f32
    }
    : (tensor<?x2x?x40xf32>, tensor<?x1x?x40xf32>, tensor<?x1x?x24xf32>) -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>, tensor<?x2x?xf32>, tensor<?x2x?xi64>, tensor<?x2x?x3xf32>)
  return %o, %lse, %max, %argmax, %tally : tensor<?x2x?x24xf32>, tensor<?x2x?xf32>, tensor<?x2x?xf32>, tensor<?x2x?xi64>, tensor<?x2x?x3xf32>
}

func.func @later_keys_weigh_more(%q: tensor<?x1x?x8xf32>, %k: tensor<?x1x?x8xf32>, %v: tensor<?x1x?x8xf32>) -> (tensor<?x1x?x8xf32>, tensor<?x1x?xf32>) {
  %o, %lse = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    score(%s, %b, %h, %i, %j) {
      %slope = arith.constant 0.002 : f32
      %j32 = arith.index_cast %j : index to i32
      %at = arith.sitofp %j32 : i32 to f32
      %bias = arith.mulf %at, %slope : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } lse
    : (tensor<?x1x?x8xf32>, tensor<?x1x?x8xf32>, tensor<?x1x?x8xf32>) -> (tensor<?x1x?x8xf32>, tensor<?x1x?xf32>)
  return %o, %lse : tensor<?x1x?x8xf32>, tensor<?x1x?xf32>
}

func.func @equal_scores(%q: tensor<?x1x?x8xf32>, %k: tensor<?x1x?x8xf32>, %v: tensor<?x1x?x8xf32>) -> (tensor<?x1x?x8xf32>, tensor<?x1x?xf32>, tensor<?x1x?xi64>) {
  %o, %max, %argmax = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    score(%s, %b, %h, %i, %j) {
      %zero = arith.constant 0.0 : f32
      %r = arith.minimumf %s, %zero : f32
      attn.yield %r : f32
    } max argmax
    : (tensor<?x1x?x8xf32>, tensor<?x1x?x8xf32>, tensor<?x1x?x8xf32>) -> (tensor<?x1x?x8xf32>, tensor<?x1x?xf32>, tensor<?x1x?xi64>)
  return %o, %max, %argmax : tensor<?x1x?x8xf32>, tensor<?x1x?xf32>, tensor<?x1x?xi64>
}
