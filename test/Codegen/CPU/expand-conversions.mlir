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

// EXAMPLE
// f8E4M3FN is widened through f16, with the shift of the mantissa and a factor for the exponent, and NaN by a select.
// KEPT-LABEL: func.func @from_f8(
// KEPT-SAME:    %[[X:.*]]: vector<8xf8E4M3FN>, %[[Y:.*]]: vector<8xf8E5M2>)
// KEPT:         %[[BITS:.*]] = arith.bitcast %[[X]] : vector<8xf8E4M3FN> to vector<8xi8>
// KEPT:         %[[WIDE:.*]] = arith.extsi %[[BITS]] : vector<8xi8> to vector<8xi16>
// KEPT:         arith.shli
// KEPT:         arith.select
// KEPT:         %[[HALF:.*]] = arith.extf %{{.*}} : vector<8xf16> to vector<8xf32>
// KEPT:         arith.mulf %[[HALF]], %{{.*}} : vector<8xf32>
// KEPT:         arith.bitcast %[[Y]] : vector<8xf8E5M2> to vector<8xi8>
// KEPT:         arith.shli
// KEPT-NOT:     arith.{{select|mulf}}
// KEPT:         arith.extf %{{.*}} : vector<8xf16> to vector<8xf32>
// PORTABLE-LABEL: func.func @from_f8(
// PORTABLE-NOT:     arith.extf
// PORTABLE:         return
func.func @from_f8(%x: vector<8xf8E4M3FN>, %y: vector<8xf8E5M2>) -> (vector<8xf32>, vector<8xf32>) {
  %a = arith.extf %x : vector<8xf8E4M3FN> to vector<8xf32>
  %b = arith.extf %y : vector<8xf8E5M2> to vector<8xf32>
  return %a, %b : vector<8xf32>, vector<8xf32>
}

// KEPT-LABEL: func.func @to_f8(
// KEPT-NOT:     arith.truncf
// KEPT:         arith.minsi
// KEPT:         arith.extf %{{.*}} : bf16 to f32
// KEPT-NOT:     arith.truncf
// KEPT:         return
func.func @to_f8(%x: vector<8xf32>, %y: bf16) -> (vector<8xf8E4M3FN>, f8E5M2) {
  %a = arith.truncf %x : vector<8xf32> to vector<8xf8E4M3FN>
  %b = arith.truncf %y : bf16 to f8E5M2
  return %a, %b : vector<8xf8E4M3FN>, f8E5M2
}

// Conversions of f64 are kept.
// PORTABLE-LABEL: func.func @others_stay(
// PORTABLE:         arith.truncf %{{.*}} : vector<4xf64> to vector<4xf32>
func.func @others_stay(%x: vector<4xf64>) -> vector<4xf32> {
  %y = arith.truncf %x : vector<4xf64> to vector<4xf32>
  return %y : vector<4xf32>
}

// TARGET: error: unknown target 'v5', expected one of host, portable, v3, v3-int8, v4, v4-bf16
