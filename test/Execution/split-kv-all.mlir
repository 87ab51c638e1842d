// Split-KV for all numbers of queries, in blocks of eight, agrees with the reference.
// DEFINE: %{run} = saccade-run %s --entry=prompt --check --arg=2x5x37x24:f32:1 --arg=2x1x300x24:f32:2 --arg=2x1x300x16:f32:3 --arg=5:f32:4
// RUN: %{run} && %{run} --target=portable && %{run} --target=v4-expanded
// RUN: saccade-run %s --entry=prompt --check --arg=0x5x37x24:f32:1 --arg=0x1x300x24:f32:2 --arg=0x1x300x16:f32:3 --arg=5:f32:4
// RUN: saccade-run %s --entry=prompt --check --arg=1x5x0x24:f32:1 --arg=1x1x9x24:f32:2 --arg=1x1x9x16:f32:3 --arg=5:f32:4
// RUN: saccade-run %s --entry=prompt --check --arg=1x5x3x24:f32:1 --arg=1x1x0x24:f32:2 --arg=1x1x0x16:f32:3 --arg=5:f32:4
// RUN: saccade-compile %s --target=v3 --explain | FileCheck %s
// CHECK: prompt
// CHECK: schedule{{.*}}all queries in blocks of 8: tasks of 256 keys, unpacked; the bits of a query do not depend on other queries
func.func @prompt(%q: tensor<?x?x?x24xf32>, %k: tensor<?x1x?x24xf32>, %v: tensor<?x1x?x16xf32>, %s: tensor<?xf32>)
    -> (tensor<?x?x?x16xf32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>, tensor<?x?x?x16xf32>) {
  %o, %lse, %max = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] sink(%s : tensor<?xf32>) mask causal<bottom_right> lse max
    {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 256, all = true>}
    : (tensor<?x?x?x24xf32>, tensor<?x1x?x24xf32>, tensor<?x1x?x16xf32>) -> (tensor<?x?x?x16xf32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>)
  // An op that other programs apply to the result in the tasks.
  %e = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%o : tensor<?x?x?x16xf32>) outs(%o : tensor<?x?x?x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %t = math.tanh %x : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?x16xf32>
  return %o, %lse, %max, %e : tensor<?x?x?x16xf32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>, tensor<?x?x?x16xf32>
}
