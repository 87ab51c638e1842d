// Matmuls whose RHS is packed once for all rows, and matmuls with too few rows for packing. Rows with a stride that is a
// multiple of 4096 bytes are copied.
// RUN: saccade-run %s --entry=layer --arg=400x70:f32 --arg=70x90:f32 --arg=90:f32 --check
// RUN: saccade-run %s --entry=layer --arg=401x33:f32 --arg=33x300:f32 --arg=300:f32 --check --target=v3
// RUN: saccade-run %s --entry=layer --arg=401x1:f32 --arg=1x1:f32 --arg=1:f32 --check --target=portable
// RUN: saccade-run %s --entry=layer --arg=191x2:f32 --arg=2x33:f32 --arg=33:f32 --check --target=portable
// RUN: saccade-run %s --entry=layer --arg=211x1024:f32 --arg=1024x33:f32 --arg=33:f32 --check
// RUN: saccade-run %s --entry=layer --arg=383x1024:f32 --arg=1024x33:f32 --arg=33:f32 --check --target=portable
// RUN: saccade-run %s --entry=rounded_layer --arg=251x2048:bf16 --arg=300x2048:bf16 --arg=300:bf16 --check
// RUN: saccade-run %s --entry=rounded_layer --arg=193x2048:bf16 --arg=40x2048:bf16 --arg=40:bf16 --check --target=v3
// RUN: saccade-run %s --entry=layer --arg=193x0:f32 --arg=0x40:f32 --arg=40:f32 --check
// RUN: saccade-run %s --entry=rounded_layer --arg=387x128:bf16 --arg=290x128:bf16 --arg=290:bf16 --check
// RUN: saccade-run %s --entry=rounded_layer --arg=387x127:bf16 --arg=290x127:bf16 --arg=290:bf16 --check
// RUN: saccade-run %s --entry=rounded_layer --arg=387x128:bf16 --arg=290x128:bf16 --arg=290:bf16 --check --target=%{v4}
// RUN: saccade-run %s --entry=sequences --arg=3x250x48:f32 --arg=48x80:f32 --check
// RUN: saccade-run %s --entry=sequences --arg=5x1x48:f32 --arg=48x80:f32 --check
// RUN: saccade-run %s --entry=columns --arg=64x500:f32 --arg=64x80:f32 --check

#all = affine_map<(m, n) -> (m, n)>
#column = affine_map<(m, n) -> (n)>

// tanh(x W + b) with a temporary tile.
func.func @layer(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %w, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%e: f32, %f: f32, %o: f32):
      %s = arith.addf %e, %f : f32
      %t = math.tanh %s : f32
      linalg.yield %t : f32
    } -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// x Wᵀ + b, accumulated in f32 and rounded once.
func.func @rounded_layer(%x: tensor<?x?xbf16>, %w: tensor<?x?xbf16>, %b: tensor<?xbf16>) -> tensor<?x?xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xbf16>
  %n = tensor.dim %w, %c0 : tensor<?x?xbf16>
  %wide = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%x, %w : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xbf16>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %b : tensor<?x?xf32>, tensor<?xbf16>) outs(%empty : tensor<?x?xbf16>) {
    ^bb0(%e: f32, %f: bf16, %o: bf16):
      %g = arith.extf %f : bf16 to f32
      %s = arith.addf %e, %g : f32
      %t = arith.truncf %s : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<?x?xbf16>
  return %y : tensor<?x?xbf16>
}

func.func @sequences(%x: tensor<?x?x48xf32>, %w: tensor<48x80xf32>) -> tensor<?x?x80xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %l = tensor.dim %x, %c0 : tensor<?x?x48xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x48xf32>
  %empty = tensor.empty(%l, %m) : tensor<?x?x80xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?x80xf32>) -> tensor<?x?x80xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(l, m, n, k) -> (l, m, k)>, affine_map<(l, m, n, k) -> (k, n)>,
                                        affine_map<(l, m, n, k) -> (l, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%x, %w : tensor<?x?x48xf32>, tensor<48x80xf32>) outs(%zeros : tensor<?x?x80xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %t = arith.mulf %a, %b : f32
      %s = arith.addf %c, %t : f32
      linalg.yield %s : f32
    } -> tensor<?x?x80xf32>
  return %y : tensor<?x?x80xf32>
}

// xᵀ W: the rows of the LHS are not contiguous.
func.func @columns(%x: tensor<?x?xf32>, %w: tensor<?x80xf32>) -> tensor<?x80xf32> {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m) : tensor<?x80xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x80xf32>) -> tensor<?x80xf32>
  %y = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%x, %w : tensor<?x?xf32>, tensor<?x80xf32>) outs(%zeros : tensor<?x80xf32>) -> tensor<?x80xf32>
  return %y : tensor<?x80xf32>
}
