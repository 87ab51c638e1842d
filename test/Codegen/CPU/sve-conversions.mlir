// Conversions and predicated accesses of bf16 that LLVM 22 does not select for SVE registers.
// RUN: saccade-compile %s --target=aarch64-sve256 --emit=asm -o - | FileCheck %s
// RUN: %if aarch64 %{ saccade-run %s --entry=narrow --target=aarch64-sve256 %{on-aarch64} --check --arg=37:f64:1 %}
// RUN: %if aarch64 %{ saccade-run %s --entry=widen --target=aarch64-sve256 %{on-aarch64} --check --arg=37:bf16:1 %}
// RUN: %if aarch64 %{ saccade-run %s --entry=round --target=aarch64-sve256 %{on-aarch64} --check --arg=37:f32:1 %}

#identity = affine_map<(d0) -> (d0)>

// f64 is rounded once: to odd, then to nearest.
// CHECK-LABEL: narrow{{.*}}.convert:
// CHECK: fcvtxn s{{[0-9]+}}, d{{[0-9]+}}
// CHECK: bfcvt h{{[0-9]+}}, s{{[0-9]+}}
func.func @narrow(%x: tensor<?xf64>) -> tensor<?xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf64>
  %e = tensor.empty(%n) : tensor<?xbf16>
  %y = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf64>) outs(%e : tensor<?xbf16>) {
  ^bb0(%a: f64, %b: bf16):
    %t = arith.truncf %a : f64 to bf16
    linalg.yield %t : bf16
  } -> tensor<?xbf16>
  return %y : tensor<?xbf16>
}

// CHECK-LABEL: widen{{.*}}.convert:
// CHECK: fcvt z{{[0-9]+}}.d, p{{[0-9]+}}/m, z{{[0-9]+}}.s
func.func @widen(%x: tensor<?xbf16>) -> tensor<?xf64> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xbf16>
  %e = tensor.empty(%n) : tensor<?xf64>
  %y = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel"]}
      ins(%x : tensor<?xbf16>) outs(%e : tensor<?xf64>) {
  ^bb0(%a: bf16, %b: f64):
    %t = arith.extf %a : bf16 to f64
    linalg.yield %t : f64
  } -> tensor<?xf64>
  return %y : tensor<?xf64>
}

// CHECK-LABEL: round{{.*}}.convert:
// CHECK: bfcvt z{{[0-9]+}}.h, p{{[0-9]+}}/m, z{{[0-9]+}}.s
// CHECK: st1h
func.func @round(%x: tensor<?xf32>) -> tensor<?xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xbf16>
  %y = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?xbf16>) {
  ^bb0(%a: f32, %b: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<?xbf16>
  return %y : tensor<?xbf16>
}
