// RUN: saccade-opt %s "-attn-write-module=file=%t.before" -cse "-attn-write-module=file=%t.after" -o /dev/null
// RUN: FileCheck %s --check-prefix=BEFORE --input-file=%t.before
// RUN: FileCheck %s --check-prefix=AFTER --input-file=%t.after

// The file is replaced when the new one is complete: another link to the old one keeps its text.
// RUN: rm -f %t.link && cp %t.before %t.stage && ln %t.stage %t.link
// RUN: saccade-opt %s -cse "-attn-write-module=file=%t.stage" -o /dev/null
// RUN: cmp %t.link %t.before
// RUN: cmp %t.stage %t.after

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
