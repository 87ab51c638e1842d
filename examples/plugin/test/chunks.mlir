// The mask is parsed by the plugin, and is a region from then on. It may be combined with other masks.
// RUN: saccade-opt %s %{dialect} -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: saccade-run %s %{dialect} --check --arg=50x32:f32:1 --arg=50x32:f32:2 --arg=50x32:f32:3 | FileCheck %s --check-prefix=AGREES
// RUN: not saccade-opt %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: sed s/chunks.16./chunks\<0\>/ %s | not saccade-opt %{dialect} 2>&1 | FileCheck %s --check-prefix=SIZE
// Programs with the region need no plugin.
// RUN: saccade-run %t.mlir --check --arg=50x32:f32:1 --arg=50x32:f32:2 --arg=50x32:f32:3 | FileCheck %s --check-prefix=AGREES

// CHECK: mask(%{{.*}}, %{{.*}}, %[[Q:.*]], %[[K:[^)]*]]) {
// CHECK: %[[PLACE:.*]] = arith.remui %[[Q]], %{{.*}} : index
// CHECK: %[[BEGIN:.*]] = arith.subi %[[Q]], %[[PLACE]] : index
// CHECK: arith.cmpi sge, %[[K]], %[[BEGIN]] : index
// CHECK: arith.cmpi sle, %[[K]], %[[Q]] : index
// AGREES: agrees
// UNKNOWN: unknown mask 'chunks', expected causal<...>, window<LEFT, RIGHT> or a region
// SIZE: mask 'chunks' has the size 0, expected at least 1
func.func @attend(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] mask chunks<16> mask causal<top_left>
      : (tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<?x32xf32>
  return %o : tensor<?x32xf32>
}
