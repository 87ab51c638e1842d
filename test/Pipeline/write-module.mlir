// RUN: saccade-opt %s "-attn-write-module=file=%t.before" -cse "-attn-write-module=file=%t.after" -o /dev/null
// RUN: FileCheck %s --check-prefix=BEFORE --input-file=%t.before
// RUN: FileCheck %s --check-prefix=AFTER --input-file=%t.after

// EXAMPLE: --attn-write-module=file=-
// Each file has the module at its point of the pipeline; the module is unchanged.
// BEFORE-LABEL: func.func @same_sum_twice
// BEFORE-COUNT-2: arith.addf
// AFTER-LABEL: func.func @same_sum_twice
// AFTER: arith.addf
// AFTER-NOT: arith.addf
func.func @same_sum_twice(%a: f32) -> (f32, f32) {
  %0 = arith.addf %a, %a : f32
  %1 = arith.addf %a, %a : f32
  return %0, %1 : f32, f32
}
