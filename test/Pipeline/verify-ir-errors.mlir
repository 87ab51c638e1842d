// The pass reports what the verifier reports; without the pass and without verification, the program is accepted.
// DEFINE: %{unverified} = saccade-opt %s --verify-each=false --mlir-very-unsafe-disable-verifier-on-parsing
// RUN: not %{unverified} --attn-verify-ir 2>&1 | FileCheck %s
// RUN: %{unverified} --mlir-print-op-generic -o %t

// EXAMPLE: --verify-each=false --mlir-very-unsafe-disable-verifier-on-parsing --attn-verify-ir
// CHECK: :[[# @LINE + 3]]:3: error: 'func.call' op incorrect number of operands for callee
func.func private @callee(i32)
func.func @caller() {
  call @callee() : () -> ()
  return
}
