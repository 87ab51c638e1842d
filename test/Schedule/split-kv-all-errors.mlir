// What cannot use split-KV for all queries is refused.
// RUN: not saccade-compile %s --target=v3 -o /dev/null --emit=asm 2>&1 | FileCheck %s --check-prefix=RAGGED
// RUN: sed 's/@ragged/@other/; s/cu_seqlens_q.*//' %s > %t.mlir
// RUN: not saccade-compile %t.mlir --target=sm_80 -o /dev/null 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: sed 's/attributes {}/attributes {attn.gradient}/' %t.mlir > %t.gradient.mlir
// RUN: not saccade-compile %t.gradient.mlir --target=v3 --emit=asm -o /dev/null 2>&1 | FileCheck %s --check-prefix=GRADIENT
// RAGGED: error: 'attn.attention' op has ragged queries, and all of them use split-KV, expected a batch of sequences
// GPU: error: 'attn.attention' op uses split-KV for all queries, which has no kernels for GPUs
// GRADIENT: error: 'attn.attention' op has gradients or tangents, and all queries use split-KV, expected one of them
func.func @ragged(%q: tensor<?x4x64xf32>, %k: tensor<?x4x64xf32>, %v: tensor<?x4x64xf32>, %c: tensor<?xi32>) -> tensor<?x4x64xf32> attributes {} {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d]
    cu_seqlens_q(%c : tensor<?xi32>) cu_seqlens_k(%c : tensor<?xi32>)
    {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 256, all = true>}
    : (tensor<?x4x64xf32>, tensor<?x4x64xf32>, tensor<?x4x64xf32>) -> tensor<?x4x64xf32>
  return %o : tensor<?x4x64xf32>
}
