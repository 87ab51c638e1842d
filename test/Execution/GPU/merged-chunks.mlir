// Split-KV with more than 32 chunks of keys: a warp merges the states of 32 chunks at a time. 24 columns are fewer than its lanes.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --explain --arg=1x2x1x40:f32:1 --arg=1x1x9000x40:f32:2 --arg=1x1x9000x24:f32:3 | FileCheck %s
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
