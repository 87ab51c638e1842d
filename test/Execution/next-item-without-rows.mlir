// The next work item of a task may have no valid queries. Its operands are not prefetched; the call terminates.
// RUN: timeout 60 saccade-run %s --threads=1 --check --arg=8x30x64:f32:1 --arg=2x47x64:f32:2 --arg=2x47x32:f32:3 --arg=21 --arg=2 --arg=7 | FileCheck %s
// RUN: timeout 60 saccade-run %s --threads=1 --check --arg=8x30x64:f32:1 --arg=2x47x64:f32:2 --arg=2x47x32:f32:3 --arg=17 --arg=2 --arg=16 | FileCheck %s
// CHECK: check result #0{{.*}}agrees
func.func @later_queries(%q: tensor<8x30x64xf32>, %k: tensor<2x47x64xf32>, %v: tensor<2x47x32xf32>, %n: index,
    %query: index, %key: index) -> tensor<8x30x32xf32> {
  %c0 = arith.constant 0 : index
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] q_len(%n : index) at(%c0, %c0, %query, %key)
    {schedule = #attn.schedule<rows = 12, cols = 64>}
    : (tensor<8x30x64xf32>, tensor<2x47x64xf32>, tensor<2x47x32xf32>) -> tensor<8x30x32xf32>
  return %o : tensor<8x30x32xf32>
}
