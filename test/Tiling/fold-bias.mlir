// RUN: saccade-opt %s --attn-fold-bias -canonicalize | FileCheck %s

#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>

// EXAMPLE
// The matmul is initialized with the bias, for either operand order of the addition, and keeps its schedule.
// CHECK-LABEL: func.func @bias_becomes_init(
// CHECK-SAME:    %[[B:[a-z0-9]*]]: tensor<?xf32>, %[[E:[a-z0-9]*]]: tensor<?x?xf32>)
// CHECK:         %[[START:.*]] = linalg.broadcast ins(%[[B]] : tensor<?xf32>) outs(%[[E]] : tensor<?x?xf32>) dimensions = [0]
// CHECK-NEXT:    %[[P:.*]] = linalg.matmul {schedule = #attn.schedule<rows = 192, cols = 256>} {{.*}} outs(%[[START]]
// CHECK-NEXT:    return %[[P]]
func.func @bias_becomes_init(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %b: tensor<?xf32>, %e: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul {schedule = #attn.schedule<rows = 192, cols = 256>} ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#column, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%b, %p : tensor<?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%s: f32, %t: f32, %o: f32):
      %r = arith.addf %s, %t : f32
      linalg.yield %r : f32
    } -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// A truncation is folded: the matmul is computed in the type of its operands, with f32 accumulation.
// CHECK-LABEL: func.func @truncation_is_folded(
// CHECK:         %[[START:.*]] = linalg.broadcast ins(%{{.*}} : tensor<?xbf16>)
// CHECK-NEXT:    %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} {{.*}} outs(%[[START]] : tensor<?x?xbf16>)
// CHECK-NOT:     arith.truncf
// CHECK:         return %[[P]] : tensor<?x?xbf16>
func.func @truncation_is_folded(%x: tensor<?x?xbf16>, %w: tensor<?x?xbf16>, %b: tensor<?xbf16>, %wide: tensor<?x?xf32>, %e: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %zero = arith.constant 0.0 : f32
  %z = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %b : tensor<?x?xf32>, tensor<?xbf16>) outs(%e : tensor<?x?xbf16>) {
    ^bb0(%t: f32, %s: bf16, %o: bf16):
      %u = arith.extf %s : bf16 to f32
      %v = arith.addf %t, %u : f32
      %r = arith.truncf %v : f32 to bf16
      linalg.yield %r : bf16
    } -> tensor<?x?xbf16>
  return %y : tensor<?x?xbf16>
}

// A bias of higher precision than the result would be rounded twice.
// CHECK-LABEL: func.func @wider_bias_is_not_folded(
// CHECK:         linalg.matmul
// CHECK:         arith.truncf
func.func @wider_bias_is_not_folded(%x: tensor<?x?xbf16>, %w: tensor<?x?xbf16>, %b: tensor<?xf32>, %wide: tensor<?x?xf32>, %e: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %zero = arith.constant 0.0 : f32
  %z = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xbf16>) {
    ^bb0(%t: f32, %s: f32, %o: bf16):
      %v = arith.addf %t, %s : f32
      %r = arith.truncf %v : f32 to bf16
      linalg.yield %r : bf16
    } -> tensor<?x?xbf16>
  return %y : tensor<?x?xbf16>
}

// Not folded: a bias along the rows, a matmul that is not initialized with 0, and a matmul with two uses.
// CHECK-LABEL: func.func @not_folded(
// CHECK-COUNT-3: arith.addf
// CHECK:         return
func.func @not_folded(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %b: tensor<?xf32>, %e: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  %zero = arith.constant 0.0 : f32
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%t: f32, %s: f32, %o: f32):
      %r = arith.addf %t, %s : f32
      linalg.yield %r : f32
    } -> tensor<?x?xf32>
  %q = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%x : tensor<?x?xf32>) -> tensor<?x?xf32>
  %v = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%q, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%t: f32, %s: f32, %o: f32):
      %r = arith.addf %t, %s : f32
      linalg.yield %r : f32
    } -> tensor<?x?xf32>
  %p2 = linalg.matmul ins(%w, %x : tensor<?x?xf32>, tensor<?x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %u = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p2, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%t: f32, %s: f32, %o: f32):
      %r = arith.addf %t, %s : f32
      linalg.yield %r : f32
    } -> tensor<?x?xf32>
  return %y, %v, %u, %p2 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}
