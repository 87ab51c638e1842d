// RUN: saccade-opt %s %{plugin} "--example-limit-window=window=4" | FileCheck %s
// RUN: saccade-compile %s %{plugin} "--insert-after=transforms.raise:example-limit-window{window=4}" --stop-after=transforms \
// RUN:   | FileCheck %s
// The window is proved from the mask: most tiles are not computed.
// RUN: saccade-compile %s %{plugin} "--insert-after=transforms.raise:example-limit-window{window=4}" --explain | FileCheck %s --check-prefix=EXPLAIN

// CHECK: attn.attention
// CHECK: mask(%b, %h, %[[Q:[^,]*]], %[[K:[^,)]*]]
// CHECK: %[[DISTANCE:.*]] = arith.subi %[[Q]], %[[K]]
// CHECK: arith.cmpi sle, %[[DISTANCE]]
// CHECK: arith.cmpi sge, %[[DISTANCE]]
// EXPLAIN: mask
func.func @attend(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] mask causal<top_left>
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
