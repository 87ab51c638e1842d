// A valid program passes.
// RUN: saccade-opt %s --attn-verify-ir --verify-each=false | FileCheck %s

// CHECK: call @callee() : () -> ()
func.func private @callee()
func.func @caller() {
  call @callee() : () -> ()
  return
}
