// The parser knows the op by the dialect of the plugin, and the import stage lowers it by a pass of the plugin. --check
// interprets the lowered program.
// RUN: saccade-opt %s %{dialect} %{plugin} "--pass-pipeline=builtin.module(func.func(example-lower-quick-gelu))" | FileCheck %s
// RUN: saccade-compile %s %{dialect} -o %t.o
// RUN: saccade-run %s %{dialect} --check --arg=3x8:f32:1 \
// RUN:   | FileCheck %s --check-prefix=AGREES
// RUN: not saccade-run %s --arg=3x8:f32:1 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: math.exp
// CHECK: arith.divf
// AGREES: agrees
// UNKNOWN: Dialect `example' not found for custom op 'example.quick_gelu'
func.func @activate(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %y = example.quick_gelu %x : tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}
