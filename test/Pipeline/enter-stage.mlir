// The mark is removed; a program without mark is accepted.
// RUN: saccade-opt %s "--attn-enter-stage=stage=bufferize target=v3" | FileCheck %s
// RUN: saccade-opt %s "--attn-enter-stage=stage=bufferize target=v3" "--attn-enter-stage=stage=codegen" | FileCheck %s
// CHECK: module {

// RUN: not saccade-opt %s --attn-enter-stage 2>&1 | FileCheck %s --check-prefix=STAGE
// STAGE: error: the program has passed the stage 'tiling', so it continues with 'bufferize', not with 'import'
// RUN: not saccade-opt %s "--attn-enter-stage=stage=bufferize target=v4" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: error: the stages up to 'tiling' have run for target 'v3', expected the same target instead of 'v4'
// RUN: sed s/tiling/carving/ %s | not saccade-opt --attn-enter-stage 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: 'attn.stage' is 'carving', which is no stage
// RUN: sed s/tiling/target/ %s | not saccade-opt --attn-enter-stage 2>&1 | FileCheck %s --check-prefix=LAST
// LAST: error: the program has passed all stages, so 'import' cannot run
// EXAMPLE
module attributes {attn.stage = "tiling", attn.target = "v3"} {
  func.func @nothing() {
    return
  }
}
