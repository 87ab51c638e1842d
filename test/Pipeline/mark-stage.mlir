// RUN: saccade-opt %s "--attn-mark-stage=stage=tiling target=v3" | FileCheck %s
// RUN: saccade-opt %s "--attn-mark-stage=stage=tiling target=v3" --attn-mark-stage | FileCheck %s --check-prefix=NONE

// EXAMPLE
// CHECK: module attributes {attn.stage = "tiling", attn.target = "v3"}
// NONE: module {
func.func @nothing() {
  return
}
