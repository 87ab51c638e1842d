// RUN: saccade-opt %s --attn-apply-script=file=%src/examples/schedules/tile-sizes.mlir -canonicalize -cse | FileCheck %s

// The program is not changed otherwise, and the script is not part of it.
// CHECK-NOT: transform.
// CHECK-NOT: attn.target
// CHECK-LABEL: @tiled_by_a_script
// CHECK: scf.forall {{.*}} to (1, 1, 200) step (1, 1, 72)
// CHECK: attn.accumulate {{.*}}#attn.schedule<rows = 96, cols = 64>
// EXAMPLE: --attn-apply-script=file=examples/schedules/tile-sizes.mlir -canonicalize -cse
func.func @tiled_by_a_script(%x: tensor<200x64xf32>) -> tensor<200x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 288, cols = 512>}
      : (tensor<200x64xf32>, tensor<200x64xf32>, tensor<200x64xf32>) -> tensor<200x64xf32>
  return %o : tensor<200x64xf32>
}

// The target decides which rows kernels compute: at most 128 on a GPU, where a task has one CTA.
// RUN: rm -rf %t && mkdir %t
// RUN: sed s/96/192/ %src/examples/schedules/tile-sizes.mlir > %t/rows.mlir
// RUN: saccade-opt %s "--attn-apply-script=file=%t/rows.mlir target=v3" -o /dev/null
// RUN: not saccade-opt %s "--attn-apply-script=file=%t/rows.mlir target=sm_80" 2>&1 | FileCheck %s --check-prefix=GPU
// GPU: rows.mlir:7:{{.*}}: error: transform.attn.tile_queries has 192 rows, expected at most 128, the threads of a CTA
// GPU: apply-script.mlir:11:{{.*}}: note: the target

// RUN: not saccade-opt %s --attn-apply-script=file=%t/missing.mlir 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: {{.*}}missing.mlir
// RUN: echo "module {}" > %t/empty.mlir
// RUN: not saccade-opt %s --attn-apply-script=file=%t/empty.mlir 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: could not find a nested named sequence with name: __transform_main
// RUN: echo "nonsense" > %t/text.mlir
// RUN: not saccade-opt %s --attn-apply-script=file=%t/text.mlir 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: text.mlir:1:1: error:

// RUN: sed "s/.*tabulate.*/transform.structured.tile_using_forall %%attention tile_sizes [0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)/" \
// RUN:   %src/examples/schedules/tile-sizes.mlir > %t/none.mlir
// RUN: not saccade-opt %s --attn-apply-script=file=%t/none.mlir 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: none.mlir:6:{{.*}}: error: 'transform.structured.tile_using_forall' op tiles no dimension, expected a tile size that is not 0

// A script whose matches find nothing says so.
// RUN: sed "s/attn.attention/attn.append/" %src/examples/schedules/tile-sizes.mlir > %t/unmatched.mlir
// RUN: saccade-opt %s --attn-apply-script=file=%t/unmatched.mlir 2>&1 | FileCheck %s --check-prefix=UNMATCHED
// UNMATCHED: unmatched.mlir:4:{{.*}}: warning: the script changes nothing; an op that it matches may be one that the program does not have before this stage
