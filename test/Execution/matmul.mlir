// Matmuls with producers and epilogues, and matmuls assembled from slices.
// RUN: saccade-run %s --entry=gated_layer_in_one_go --arg=50x70:f32 --arg=70x90:f32 --arg=70x90:f32 --arg=90:f32 --check
// RUN: saccade-run %s --entry=gated_layer_in_one_go --arg=300x70:f32 --arg=70x600:f32 --arg=70x600:f32 --arg=600:f32 --check
// RUN: saccade-run %s --entry=gated_layer_in_one_go --arg=1x1:f32 --arg=1x1:f32 --arg=1x1:f32 --arg=1:f32 --check --target=v3
// RUN: saccade-run %s --entry=batches_of_products --arg=3x20x30:bf16 --arg=3x30x40:bf16 --check
// RUN: saccade-run %s --entry=batches_of_products --arg=3x20x30:bf16 --arg=3x30x40:bf16 --check --target=portable
// RUN: saccade-run %s --entry=result_is_used_twice --arg=200x32:f32 --arg=32x48:f32 --check
// RUN: saccade-run %s --entry=products_start_from_results --arg=70x16:f32 --arg=16x16:f32 --check
// RUN: saccade-run %s --entry=pieces_become_one --arg=5x6:f32 --arg=5x7:f32 --check
// RUN: saccade-run %s --entry=one_row_of_each_batch --arg=1x64x3:f32 --arg=3x5x64:f32 --check

#all = affine_map<(m, n) -> (m, n)>
#column = affine_map<(m, n) -> (n)>

// silu(x W) * (x V + b): two matmuls share the loop.
func.func @gated_layer_in_one_go(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %v: tensor<?x?xf32>, %b: tensor<?xf32>)
    -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %w, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %gate = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  %bias = linalg.broadcast ins(%b : tensor<?xf32>) outs(%empty : tensor<?x?xf32>) dimensions = [0]
  %up = linalg.matmul ins(%x, %v : tensor<?x?xf32>, tensor<?x?xf32>) outs(%bias : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%gate, %up : tensor<?x?xf32>, tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%g: f32, %u: f32, %o: f32):
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %g : f32
      %exp = math.exp %minus : f32
      %below = arith.addf %exp, %one : f32
      %silu = arith.divf %g, %below : f32
      %r = arith.mulf %silu, %u : f32
      linalg.yield %r : f32
    } -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

func.func @batches_of_products(%a: tensor<?x?x?xbf16>, %b: tensor<?x?x40xbf16>) -> tensor<?x?x40xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %l = tensor.dim %a, %c0 : tensor<?x?x?xbf16>
  %m = tensor.dim %a, %c1 : tensor<?x?x?xbf16>
  %wide = tensor.empty(%l, %m) : tensor<?x?x40xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x?x40xf32>) -> tensor<?x?x40xf32>
  %c = linalg.batch_matmul ins(%a, %b : tensor<?x?x?xbf16>, tensor<?x?x40xbf16>) outs(%zeros : tensor<?x?x40xf32>)
    -> tensor<?x?x40xf32>
  %narrow = tensor.empty(%l, %m) : tensor<?x?x40xbf16>
  %r = linalg.elementwise kind=#linalg.elementwise_kind<abs> ins(%c : tensor<?x?x40xf32>) outs(%wide : tensor<?x?x40xf32>)
    -> tensor<?x?x40xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j, k)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%r : tensor<?x?x40xf32>) outs(%narrow : tensor<?x?x40xbf16>) {
    ^bb0(%e: f32, %o: bf16):
      %t = arith.truncf %e : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<?x?x40xbf16>
  return %d : tensor<?x?x40xbf16>
}

// The matmul and its epilogue are both results.
func.func @result_is_used_twice(%x: tensor<?x32xf32>, %w: tensor<32x48xf32>)
    -> (tensor<?x48xf32>, tensor<?x48xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x32xf32>
  %empty = tensor.empty(%m) : tensor<?x48xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x48xf32>) -> tensor<?x48xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x32xf32>, tensor<32x48xf32>) outs(%zeros : tensor<?x48xf32>) -> tensor<?x48xf32>
  %t = linalg.tanh ins(%p : tensor<?x48xf32>) outs(%empty : tensor<?x48xf32>) -> tensor<?x48xf32>
  %rows = tensor.empty(%m) : tensor<?xf32>
  %rows0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.reduce { arith.addf } ins(%t : tensor<?x48xf32>) outs(%rows0 : tensor<?xf32>) dimensions = [1]
  return %p, %t, %s : tensor<?x48xf32>, tensor<?x48xf32>, tensor<?xf32>
}

// The initial value of a matmul is also a result: it must not be overwritten.
func.func @products_start_from_results(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>)
    -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x16xf32>
  %empty = tensor.empty(%m) : tensor<?x16xf32>
  %t = linalg.tanh ins(%x : tensor<?x16xf32>) outs(%empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x16xf32>) outs(%t : tensor<?x16xf32>) -> tensor<?x16xf32>
  %q = linalg.matmul ins(%t, %w : tensor<?x16xf32>, tensor<16x16xf32>) outs(%p : tensor<?x16xf32>) -> tensor<?x16xf32>
  %s = linalg.add ins(%q, %t : tensor<?x16xf32>, tensor<?x16xf32>) outs(%empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %s, %p, %t : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>
}

func.func @pieces_become_one(%a: tensor<?x6xf32>, %b: tensor<?x7xf32>) -> (tensor<?x13xf32>, tensor<?x10xf32>, tensor<4x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %joined = tensor.concat dim(1) %a, %b : (tensor<?x6xf32>, tensor<?x7xf32>) -> tensor<?x13xf32>
  %padded = tensor.pad %a low[0, 1] high[0, 3] {
    ^bb0(%i: index, %j: index):
      tensor.yield %zero : f32
    } : tensor<?x6xf32> to tensor<?x10xf32>
  %made = tensor.generate {
    ^bb0(%i: index, %j: index):
      %p = arith.muli %i, %j : index
      %q = arith.index_cast %p : index to i32
      %r = arith.sitofp %q : i32 to f32
      tensor.yield %r : f32
    } : tensor<4x5xf32>
  return %joined, %padded, %made : tensor<?x13xf32>, tensor<?x10xf32>, tensor<4x5xf32>
}

// The rows of the second product are columns of the first, whose last column ends at the end of memory.
// RUN: saccade-run %s --entry=transposed_product --check --target=v3 --arg=32x20:f32:1 --arg=20x12:f32:2 --arg=32x40:f32:3
// RUN: saccade-run %s --entry=transposed_product --check --target=%{v4} --arg=32x20:f32:1 --arg=20x24:f32:2 --arg=32x40:f32:3
func.func @transposed_product(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %k = tensor.dim %x, %c0 : tensor<?x?xf32>
  %m = tensor.dim %w, %c1 : tensor<?x?xf32>
  %n = tensor.dim %y, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%k, %m) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f = tensor.empty(%m, %n) : tensor<?x?xf32>
  %none = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%a, %y : tensor<?x?xf32>, tensor<?x?xf32>) outs(%none : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

// Of the row and the batch, both of extent 1 in a tile, the row is kept, though it comes first.
func.func @one_row_of_each_batch(%x: tensor<1x64x3xf32>, %y: tensor<3x?x64xf32>) -> tensor<3x1x?xf32> {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %y, %c1 : tensor<3x?x64xf32>
  %empty = tensor.empty(%n) : tensor<3x1x?xf32>
  %zero = arith.constant 0.0 : f32
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<3x1x?xf32>) -> tensor<3x1x?xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (m, k, b)>, affine_map<(b, m, n, k) -> (b, n, k)>,
      affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%x, %y : tensor<1x64x3xf32>, tensor<3x?x64xf32>) outs(%zeros : tensor<3x1x?xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %product = arith.mulf %a, %b : f32
      %sum = arith.addf %c, %product : f32
      linalg.yield %sum : f32
    } -> tensor<3x1x?xf32>
  return %p : tensor<3x1x?xf32>
}
