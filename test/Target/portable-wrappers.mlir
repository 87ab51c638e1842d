// Exported functions run before the runtime selects or refuses a target, so they use instructions that every processor
// has.
// RUN: saccade-compile %s --target=v3 --emit=so -o %t.so && llvm-objdump -d --no-show-raw-insn %t.so | FileCheck %s
// RUN: saccade-compile %s --target=portable,v3 --emit=so -o %t.so
// RUN: llvm-objdump -d --no-show-raw-insn %t.so | FileCheck %s

// CHECK: <saccade_scale>:
// CHECK-NOT: vmov
// CHECK: callq
// CHECK: <saccade_scale_shapes>:
// CHECK-NOT: vmov
// CHECK: callq
func.func @scale(%x: tensor<?xf64>, %factor: f64, %other: f32) -> tensor<?xf64> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf64>
  %wide = arith.extf %other : f32 to f64
  %empty = tensor.empty(%n) : tensor<?xf64>
  %y = linalg.map ins(%x : tensor<?xf64>) outs(%empty : tensor<?xf64>)
    (%e: f64, %o: f64) {
      %scaled = arith.mulf %e, %factor : f64
      %sum = arith.addf %scaled, %wide : f64
      linalg.yield %sum : f64
    }
  return %y : tensor<?xf64>
}
