// RUN: saccade-opt %s --attn-expand-math=target=v4 | FileCheck %s
// RUN: saccade-opt %s --attn-expand-math=target=portable | FileCheck %s --check-prefix=PORTABLE

// CHECK-LABEL: func.func @exponentials_are_polynomials(
// CHECK-COUNT-6: math.fma
// CHECK:         llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// CHECK-NOT:     math.exp
// PORTABLE-LABEL: func.func @exponentials_are_polynomials(
// PORTABLE-NOT:    math.
// PORTABLE-NOT:    llvm.
// PORTABLE:        arith.shli
// PORTABLE:        return
func.func @exponentials_are_polynomials(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @scalars_are_expanded_too(
// CHECK-NOT:     math.{{exp|tanh|erf|sin|log}}{{.*}} : f32
// CHECK:         return
func.func @scalars_are_expanded_too(%x: f32) -> f32 {
  %a = math.exp2 %x : f32
  %b = math.tanh %a : f32
  %c = math.erf %b : f32
  %d = math.sin %c : f32
  %e = math.log %d : f32
  return %e : f32
}

// The angle is reduced in double precision.
// CHECK-LABEL: func.func @large_angles_keep_their_fraction(
// CHECK:         arith.extf %{{.*}} : vector<8xf32> to vector<8xf64>
// CHECK:         arith.truncf %{{.*}} : vector<8xf64> to vector<8xf32>
// CHECK-NOT:     math.cos {{.*}} : vector<8xf32>
// CHECK:         return
func.func @large_angles_keep_their_fraction(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.cos %x : vector<8xf32>
  return %y : vector<8xf32>
}

// CHECK-LABEL: func.func @narrow_types_are_computed_in_f32(
// CHECK:         arith.extf %{{.*}} : vector<16xbf16> to vector<16xf32>
// CHECK-NOT:     math.erf
// CHECK:         arith.truncf %{{.*}} : vector<16xf32> to vector<16xbf16>
func.func @narrow_types_are_computed_in_f32(%x: vector<16xbf16>) -> vector<16xbf16> {
  %y = math.erf %x : vector<16xbf16>
  return %y : vector<16xbf16>
}

// EXAMPLE
// CHECK-LABEL: func.func @small_powers_are_multiplications(
// CHECK-COUNT-2: arith.mulf
// CHECK-NOT:     math.powf
// CHECK:         return
func.func @small_powers_are_multiplications(%x: vector<16xf32>) -> vector<16xf32> {
  %three = arith.constant dense<3.0> : vector<16xf32>
  %y = math.powf %x, %three : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @f64_is_left_to_the_library(
// CHECK:         math.exp %{{.*}} : vector<8xf64>
func.func @f64_is_left_to_the_library(%x: vector<8xf64>) -> vector<8xf64> {
  %y = math.exp %x : vector<8xf64>
  return %y : vector<8xf64>
}

// If any lane is too large, the C library computes it.
// CHECK-LABEL: func.func @huge_angles_go_to_the_library(
// CHECK:         vector.reduction <or>
// CHECK:         scf.if
// CHECK:           math.sin %{{.*}} : vector<16xf64>
// CHECK:           arith.select
func.func @huge_angles_go_to_the_library(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.sin %x : vector<16xf32>
  return %y : vector<16xf32>
}
