// One or two queries whose first visible key is at any place in a block of keys.

// RUN: saccade-run %s --check --target=v3 --arg=1x2x1x64:f32:1 --arg=1x2x100x64:f32:2 --arg=1x2x100x64:f32:3 --arg=21
// RUN: saccade-run %s --check --target=%{v4} --arg=1x2x1x64:f32:1 --arg=1x2x100x64:f32:2 --arg=1x2x100x64:f32:3 --arg=21
// RUN: saccade-run %s --check --target=%{v4} --arg=1x2x1x64:f32:1 --arg=1x2x100x64:f32:2 --arg=1x2x100x64:f32:3 --arg=22
// RUN: saccade-run %s --check --target=%{v4} --arg=1x2x2x64:f32:1 --arg=1x2x100x64:f32:2 --arg=1x2x100x64:f32:3 --arg=23
func.func @from(%q: tensor<?x2x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>, %first: index) -> tensor<?x2x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%first : index)
    mask(%b, %h, %i, %j, %f) {
      %begin = arith.addi %i, %f : index
      %visible = arith.cmpi sge, %j, %begin : index
      attn.yield %visible : i1
    } : (tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
  return %o : tensor<?x2x?x64xf32>
}
