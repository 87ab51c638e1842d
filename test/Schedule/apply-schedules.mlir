// RUN: rm -rf %t && split-file %s %t
// RUN: saccade-opt %t/program.mlir "--attn-apply-schedules=table=%S/Inputs/table.json target=v4" | FileCheck %s
// RUN: saccade-opt %t/program.mlir "--attn-apply-schedules=table=%S/Inputs/table.json target=v3" | FileCheck %s --check-prefix=OTHER
// OTHER-COUNT-1: #attn.schedule
// OTHER-NOT: #attn.schedule

// The pipeline takes the table as an option of all tools, and other attention has the tile sizes that it has without.
// RUN: saccade-compile %t/program.mlir --target=v4 --schedule-table=%S/Inputs/table.json --stop-after=schedule | FileCheck %s --check-prefix=ALL
// RUN: saccade-opt %t/program.mlir --saccade-pipeline="target=v4 schedule-table=%S/Inputs/table.json stop=schedule" | FileCheck %s --check-prefix=ALL
// RUN: saccade-run %t/program.mlir --target=v3 --schedule-table=%t/v3.json --entry=one_class --check --arg=300x64:f32:1 --arg=300x32:f32:2 \
// RUN:   | FileCheck %s --check-prefix=AGREES
// ALL: @one_class{{.*}}body
// ALL: schedule = #attn.schedule<rows = 288, cols = 128>, split_kv =
// ALL: @other_classes{{.*}}body
// ALL: schedule = #attn.schedule<rows = 576, cols = 512>
// ALL: schedule = #attn.schedule<rows = 96, cols = 64>
// AGREES: agrees

// RUN: not saccade-opt %t/program.mlir --attn-apply-schedules=table=%t/missing.json 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: cannot read the schedule table '{{.*}}missing.json': No such file or directory
// RUN: not saccade-opt %t/program.mlir --attn-apply-schedules=table=%t/wrong.json 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: error: cannot read the schedule table '{{.*}}wrong.json': expected a number from 1 to 1048576 at table.entries[0].rows
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/newer.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=NEWER
// NEWER: error: cannot read the schedule table '{{.*}}newer.json': expected version 1 at table.version

// Entries that no kernel can compute, and contradictions, are reported at their line, whether the program has their class or not.
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/target.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: target.json:3:1: error: entry 1 of the schedule table: target 'v9' is not supported, expected one of
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/rows.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=ROWS
// ROWS: rows.json:3:1: error: entry 0 of the schedule table: rows are 50, expected a multiple of 12
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/gpu-rows.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=GPU-ROWS
// GPU-ROWS: gpu-rows.json:1:1: error: entry 0 of the schedule table: rows are 144, expected at most 128
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/element.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=ELEMENT
// ELEMENT: element.json:1:1: error: entry 0 of the schedule table: element 'i8' is not supported, expected f64, f32, f16 or bf16
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/twice.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: twice.json:4:1: error: entry 1 of the schedule table is for the class of entry 0
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/head.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=HEAD
// HEAD: error: cannot read the schedule table '{{.*}}head.json': expected a number from 1 to 1048576 at table.entries[0].head_size
// RUN: %python -c "print('[' * 100000)" > %t/deep.json
// RUN: not saccade-compile %t/program.mlir --schedule-table=%t/deep.json -o %t/x.o 2>&1 | FileCheck %s --check-prefix=DEEP
// DEEP: error: cannot read the schedule table '{{.*}}deep.json': it is nested more than 64 levels deep

//--- program.mlir
// EXAMPLE: "--attn-apply-schedules=table=test/Schedule/Inputs/table.json target=v4"
// CHECK-LABEL: @one_class
func.func @one_class(%x: tensor<?x64xf32>, %v: tensor<?x32xf32>) -> tensor<?x32xf32> {
  // CHECK: schedule = #attn.schedule<rows = 288, cols = 128>, split_kv = #attn.split_kv<queries = 8,
  %a = attn.attention %x[s,d], %x[s,d], %v[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x32xf32>) -> tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}

// CHECK-LABEL: @other_classes
func.func @other_classes(%x: tensor<?x64xf32>, %v: tensor<?x32xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>) {
  // Another head size, and a schedule of its own.
  // CHECK-NOT: #attn.schedule
  // CHECK: attn.attention {{.*}}schedule = #attn.schedule<rows = 96, cols = 64>
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  %b = attn.attention %x[s,d], %x[s,d], %v[s,d] {schedule = #attn.schedule<rows = 96, cols = 64>}
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x32xf32>) -> tensor<?x32xf32>
  return %a, %b : tensor<?x64xf32>, tensor<?x32xf32>
}
//--- v3.json
{"version": 1, "entries": [{"target": "v3", "element": "f32", "head_size": 64, "value_head_size": 32, "rows": 48, "cols": 64}]}
//--- wrong.json
{"version": 1, "entries": [{"target": "v4", "element": "f32", "head_size": 64, "value_head_size": 32, "rows": 0, "cols": 128}]}
//--- target.json
{"version": 1, "entries": [
  {"target": "v4", "element": "f32", "head_size": 64, "value_head_size": 32, "rows": 48, "cols": 128},
  {"target": "v9", "element": "f32", "head_size": 64, "value_head_size": 32, "rows": 48, "cols": 128}]}
//--- rows.json
{"version": 1, "note": "a { and a \"[",
 "entries": [
  {"target": "v3", "element": "f64", "head_size": 8, "value_head_size": 8, "rows": 50, "cols": 128}]}
//--- gpu-rows.json
{"version": 1, "entries": [{"target": "sm_80", "element": "f16", "head_size": 64, "value_head_size": 32, "rows": 144, "cols": 128}]}
//--- element.json
{"version": 1, "entries": [{"target": "v4", "element": "i8", "head_size": 64, "value_head_size": 32, "rows": 48, "cols": 128}]}
//--- twice.json
{"version": 1,
 "entries": [
  {"target": "v4", "element": "f32", "head_size": 64, "value_head_size": 32, "rows": 48, "cols": 128},
  {"target": "v4", "element": "f32", "head_size": 64, "value_head_size": 32, "rows": 96, "cols": 128}]}
//--- head.json
{"version": 1, "entries": [{"target": "v4", "element": "f32", "head_size": -3, "value_head_size": 32, "rows": 48, "cols": 128}]}
//--- newer.json
{"version": 2, "entries": []}
