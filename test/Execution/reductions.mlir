// Sums, norms and maxima along any dimension, on every CPU target.
// RUN: saccade-run %s --entry=norms_agree_with_the_reference --arg=5x100:f32 --arg=100:f32 --check
// RUN: saccade-run %s --entry=norms_agree_with_the_reference --arg=70x100:f32 --arg=100:f32 --check --target=v3
// RUN: saccade-run %s --entry=norms_agree_with_the_reference --arg=1x100:f32 --arg=100:f32 --check --target=portable
// RUN: saccade-run %s --entry=softmax_over_any_dimension --arg=6x5x33:f32 --check
// RUN: saccade-run %s --entry=every_dimension_is_reduced --arg=6x70x33:f32 --check
// RUN: saccade-run %s --entry=every_dimension_is_reduced --arg=6x1x3:f32 --check --target=v3
// RUN: saccade-run %s --entry=largest_and_where --arg=9x50:f32 --check
// RUN: saccade-run %s --entry=vectors_are_multiplied --arg=40x70:f32 --arg=70:f32 --check

#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
#cube = affine_map<(i, j, k) -> (i, j, k)>
#none = affine_map<(i, j, k) -> ()>

// Root mean square over a width known before run time, scaled by a weight; the input of the norm is used again.
func.func @norms_agree_with_the_reference(%x: tensor<?x100xf32>, %g: tensor<100xf32>)
    -> (tensor<?x100xf32>, tensor<?x100xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x100xf32>
  %empty = tensor.empty(%m) : tensor<?x100xf32>
  %rows = tensor.empty(%m) : tensor<?xf32>
  %twice = linalg.add ins(%x, %x : tensor<?x100xf32>, tensor<?x100xf32>) outs(%empty : tensor<?x100xf32>)
    -> tensor<?x100xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%twice : tensor<?x100xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%e: f32, %o: f32):
      %q = arith.mulf %e, %e : f32
      %s = arith.addf %q, %o : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
  %normal = linalg.generic {indexing_maps = [#all, #row, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%twice, %squares, %g : tensor<?x100xf32>, tensor<?xf32>, tensor<100xf32>) outs(%empty : tensor<?x100xf32>) {
    ^bb0(%e: f32, %q: f32, %w: f32, %o: f32):
      %width = arith.constant 100.0 : f32
      %mean = arith.divf %q, %width : f32
      %inverse = math.rsqrt %mean : f32
      %unit = arith.mulf %e, %inverse : f32
      %r = arith.mulf %unit, %w : f32
      linalg.yield %r : f32
    } -> tensor<?x100xf32>
  %sum = linalg.add ins(%normal, %twice : tensor<?x100xf32>, tensor<?x100xf32>) outs(%empty : tensor<?x100xf32>)
    -> tensor<?x100xf32>
  return %sum, %normal : tensor<?x100xf32>, tensor<?x100xf32>
}

func.func @softmax_over_any_dimension(%x: tensor<?x?x?xf32>) -> (tensor<?x?x?xf32>, tensor<?x?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %l = tensor.dim %x, %c0 : tensor<?x?x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x?xf32>
  %n = tensor.dim %x, %c2 : tensor<?x?x?xf32>
  %empty = tensor.empty(%l, %m, %n) : tensor<?x?x?xf32>
  %last = linalg.softmax dimension(2) ins(%x : tensor<?x?x?xf32>) outs(%empty : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %first = linalg.softmax dimension(0) ins(%x : tensor<?x?x?xf32>) outs(%empty : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  return %last, %first : tensor<?x?x?xf32>, tensor<?x?x?xf32>
}

func.func @every_dimension_is_reduced(%x: tensor<?x?x?xf32>)
    -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %l = tensor.dim %x, %c0 : tensor<?x?x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x?xf32>
  %n = tensor.dim %x, %c2 : tensor<?x?x?xf32>
  %mn = tensor.empty(%m, %n) : tensor<?x?xf32>
  %mn0 = linalg.fill ins(%zero : f32) outs(%mn : tensor<?x?xf32>) -> tensor<?x?xf32>
  %first = linalg.reduce { arith.addf } ins(%x : tensor<?x?x?xf32>) outs(%mn0 : tensor<?x?xf32>) dimensions = [0]
  %ln = tensor.empty(%l, %n) : tensor<?x?xf32>
  %ln0 = linalg.fill ins(%least : f32) outs(%ln : tensor<?x?xf32>) -> tensor<?x?xf32>
  %second = linalg.reduce { arith.maximumf } ins(%x : tensor<?x?x?xf32>) outs(%ln0 : tensor<?x?xf32>) dimensions = [1]
  %lm = tensor.empty(%l, %m) : tensor<?x?xf32>
  %lm0 = linalg.fill ins(%zero : f32) outs(%lm : tensor<?x?xf32>) -> tensor<?x?xf32>
  %third = linalg.reduce { arith.addf } ins(%x : tensor<?x?x?xf32>) outs(%lm0 : tensor<?x?xf32>) dimensions = [2]
  %scalar = tensor.empty() : tensor<f32>
  %scalar0 = linalg.fill ins(%zero : f32) outs(%scalar : tensor<f32>) -> tensor<f32>
  %all = linalg.generic {indexing_maps = [#cube, #none], iterator_types = ["reduction", "reduction", "reduction"]}
    ins(%x : tensor<?x?x?xf32>) outs(%scalar0 : tensor<f32>) {
    ^bb0(%e: f32, %o: f32):
      %a = math.absf %e : f32
      %s = arith.addf %a, %o : f32
      linalg.yield %s : f32
    } -> tensor<f32>
  return %first, %second, %third, %all : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<f32>
}

// A reduction with two interdependent accumulators is not a simple combiner.
func.func @largest_and_where(%x: tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %least = arith.constant 0xFF800000 : f32
  %nowhere = arith.constant -1 : i32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e0 = tensor.empty(%m) : tensor<?xf32>
  %e1 = tensor.empty(%m) : tensor<?xi32>
  %f0 = linalg.fill ins(%least : f32) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
  %f1 = linalg.fill ins(%nowhere : i32) outs(%e1 : tensor<?xi32>) -> tensor<?xi32>
  %max, %arg = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%f0, %f1 : tensor<?xf32>, tensor<?xi32>) {
    ^bb0(%e: f32, %v: f32, %p: i32):
      %j = linalg.index 1 : index
      %j32 = arith.index_cast %j : index to i32
      %larger = arith.cmpf ogt, %e, %v : f32
      %nv = arith.select %larger, %e, %v : f32
      %np = arith.select %larger, %j32, %p : i32
      linalg.yield %nv, %np : f32, i32
    } -> (tensor<?xf32>, tensor<?xi32>)
  return %max, %arg : tensor<?xf32>, tensor<?xi32>
}

func.func @vectors_are_multiplied(%a: tensor<?x?xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %e0 = tensor.empty(%m) : tensor<?xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
  %av = linalg.matvec ins(%a, %v : tensor<?x?xf32>, tensor<?xf32>) outs(%f0 : tensor<?xf32>) -> tensor<?xf32>
  %e1 = tensor.empty() : tensor<f32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<f32>) -> tensor<f32>
  %vv = linalg.dot ins(%v, %v : tensor<?xf32>, tensor<?xf32>) outs(%f1 : tensor<f32>) -> tensor<f32>
  return %av, %vv : tensor<?xf32>, tensor<f32>
}
