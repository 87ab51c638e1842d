// RUN: not saccade-opt %s "-attn-write-module=file=%t.missing/folder/out.mlir" 2>&1 | FileCheck %s

// CHECK: error: cannot write '{{.*}}out.mlir': No such file or directory
module {}
