// Ops that only resemble a matmul keep their body.
// RUN: saccade-run %s --entry=factor_goes_through_a_function --arg=9x16:f32:1 --arg=16x21:f32:2 --arg=9x21:f32:3 --check
// RUN: saccade-run %s --entry=product_is_subtracted --arg=9x16:f32:1 --arg=16x21:f32:2 --arg=9x21:f32:3 --check
// RUN: saccade-run %s --entry=factor_is_rounded_first --arg=9x16:f32:1 --arg=16x21:f32:2 --arg=9x21:f32:3 --check
// RUN: saccade-run %s --entry=one_factor_is_squared --arg=9x16:f32:1 --arg=16x21:f32:2 --arg=9x21:f32:3 --check
// RUN: saccade-run %s --entry=factor_goes_through_a_function --arg=9x16:f32:1 --arg=16x21:f32:2 --arg=9x21:f32:3 --check --target=portable

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @factor_goes_through_a_function(%a: tensor<?x16xf32>, %b: tensor<16x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<?x16xf32>, tensor<16x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %e = math.exp %x : f32
      %p = arith.mulf %e, %y : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

func.func @product_is_subtracted(%a: tensor<?x16xf32>, %b: tensor<16x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<?x16xf32>, tensor<16x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %p = arith.mulf %x, %y : f32
      %m = arith.negf %p : f32
      %s = arith.addf %m, %o : f32
      linalg.yield %s : f32
    } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

func.func @factor_is_rounded_first(%a: tensor<?x16xf32>, %b: tensor<16x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<?x16xf32>, tensor<16x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %t = arith.truncf %x : f32 to bf16
      %e = arith.extf %t : bf16 to f32
      %p = arith.mulf %e, %y : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

func.func @one_factor_is_squared(%a: tensor<?x16xf32>, %b: tensor<16x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<?x16xf32>, tensor<16x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %p = arith.mulf %x, %x : f32
      %q = arith.mulf %p, %y : f32
      %s = arith.addf %o, %q : f32
      linalg.yield %s : f32
    } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
