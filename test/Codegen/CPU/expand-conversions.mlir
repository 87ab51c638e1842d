// Conversions without an instruction of the CPU target become integer arithmetic.
// RUN: saccade-opt %s --attn-expand-conversions=target=v4-bf16 | FileCheck %s --check-prefix=KEPT
// RUN: saccade-opt %s --attn-expand-conversions=target=v3 | FileCheck %s --check-prefixes=BF16,V3
// RUN: saccade-opt %s --attn-expand-conversions=target=portable | FileCheck %s --check-prefixes=BF16,PORTABLE
// RUN: not saccade-opt %s --attn-expand-conversions=target=v5 2>&1 | FileCheck %s --check-prefix=TARGET

// KEPT-LABEL: func.func @to_bf16(
// KEPT-NEXT:    arith.truncf %{{.*}} : vector<8xf32> to vector<8xbf16>
// BF16-LABEL: func.func @to_bf16(
// BF16-NOT:     arith.truncf
// BF16:         arith.shrui
// BF16:         return
func.func @to_bf16(%x: vector<8xf32>) -> vector<8xbf16> {
  %y = arith.truncf %x : vector<8xf32> to vector<8xbf16>
  return %y : vector<8xbf16>
}

// KEPT-LABEL: func.func @to_f16_and_back(
// KEPT:         arith.truncf
// KEPT:         arith.extf
// V3-LABEL: func.func @to_f16_and_back(
// V3:         arith.truncf %{{.*}} : f32 to f16
// V3:         arith.extf %{{.*}} : f16 to f32
// PORTABLE-LABEL: func.func @to_f16_and_back(
// PORTABLE-NOT:     arith.{{truncf|extf}}
// PORTABLE:         return
func.func @to_f16_and_back(%x: f32) -> f32 {
  %y = arith.truncf %x : f32 to f16
  %z = arith.extf %y : f16 to f32
  return %z : f32
}

// Conversions of f64 are kept.
// PORTABLE-LABEL: func.func @others_stay(
// PORTABLE:         arith.truncf %{{.*}} : vector<4xf64> to vector<4xf32>
func.func @others_stay(%x: vector<4xf64>) -> vector<4xf32> {
  %y = arith.truncf %x : vector<4xf64> to vector<4xf32>
  return %y : vector<4xf32>
}

// TARGET: error: unknown target 'v5', expected one of host, portable, v3, v4, v4-bf16
