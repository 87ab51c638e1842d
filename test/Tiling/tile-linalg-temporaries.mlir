// A group may have two temporaries of the tile of its matmul beyond the limit of one temporary: here the sums and one of two
// ops on them; an op before them is a loop of its own. A temporary of 64 bits is not one of them.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-tile-linalg{temporary-elements=4096},cse))' | FileCheck %s

#all = affine_map<(m, n) -> (m, n)>

// CHECK-LABEL: func.func @chain(
// CHECK: scf.forall
// CHECK: math.absf
// CHECK-NOT: linalg.matmul
// CHECK: scf.forall {{.*}} step (128, 128)
// CHECK: linalg.matmul
// CHECK: math.exp
// CHECK: arith.mulf
// CHECK-NOT: scf.forall (
func.func @chain(%x: tensor<512x64xf16>, %w: tensor<64x512xf16>, %y: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %abs = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<512x512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.absf %a : f32
    linalg.yield %r : f32
  } -> tensor<512x512xf32>
  %exp = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%abs : tensor<512x512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<512x512xf32>
  %p = linalg.matmul {schedule = #attn.schedule<rows = 128, cols = 128, depth = 16>} ins(%x, %w : tensor<512x64xf16>, tensor<64x512xf16>) outs(%init : tensor<512x512xf32>) -> tensor<512x512xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%p, %exp : tensor<512x512xf32>, tensor<512x512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}

// CHECK-LABEL: func.func @wide(
// CHECK: scf.forall
// CHECK: arith.extf
// CHECK: scf.forall {{.*}} step (128, 128)
// CHECK: linalg.matmul
// CHECK: arith.mulf
func.func @wide(%x: tensor<512x64xf16>, %w: tensor<64x512xf16>, %y: tensor<512x512xf32>) -> tensor<512x512xf64> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %d = tensor.empty() : tensor<512x512xf64>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %ext = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<512x512xf32>) outs(%d : tensor<512x512xf64>) {
  ^bb0(%a: f32, %o: f64):
    %r = arith.extf %a : f32 to f64
    linalg.yield %r : f64
  } -> tensor<512x512xf64>
  %p = linalg.matmul {schedule = #attn.schedule<rows = 128, cols = 128, depth = 16>} ins(%x, %w : tensor<512x64xf16>, tensor<64x512xf16>) outs(%init : tensor<512x512xf32>) -> tensor<512x512xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%p, %ext : tensor<512x512xf32>, tensor<512x512xf64>) outs(%d : tensor<512x512xf64>) {
  ^bb0(%a: f32, %b: f64, %o: f64):
    %aw = arith.extf %a : f32 to f64
    %m = arith.mulf %aw, %b : f64
    linalg.yield %m : f64
  } -> tensor<512x512xf64>
  return %r : tensor<512x512xf64>
}
