// Softmaxes outside attention.

// Attention weights that are also a result.
func.func @weights_returned(%q: tensor<?x?x16xf32>, %k: tensor<?x?x16xf32>, %v: tensor<?x?x16xf32>)
    -> (tensor<?x?x16xf32>, tensor<?x?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b = tensor.dim %q, %c0 : tensor<?x?x16xf32>
  %n = tensor.dim %q, %c1 : tensor<?x?x16xf32>
  %m = tensor.dim %k, %c1 : tensor<?x?x16xf32>
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty(%b, %n, %m) : tensor<?x?x?xf32>
  %eo = tensor.empty(%b, %n) : tensor<?x?x16xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, i, j, d) -> (b, i, d)>, affine_map<(b, i, j, d) -> (b, j, d)>,
                                        affine_map<(b, i, j, d) -> (b, i, j)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x?x16xf32>, tensor<?x?x16xf32>) outs(%zs : tensor<?x?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %xy = arith.mulf %x, %y : f32
    %next = arith.addf %sum, %xy : f32
    linalg.yield %next : f32
  } -> tensor<?x?x?xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<?x?x?xf32>) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%zo : tensor<?x?x16xf32>)
      -> tensor<?x?x16xf32>
  return %o, %p : tensor<?x?x16xf32>, tensor<?x?x?xf32>
}

// Softmax over queries, which is not attention.
func.func @over_queries(%q: tensor<?x?x16xf32>, %k: tensor<?x16x?xf32>, %v: tensor<?x?x16xf32>) -> tensor<?x?x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %q, %c0 : tensor<?x?x16xf32>
  %n = tensor.dim %q, %c1 : tensor<?x?x16xf32>
  %m = tensor.dim %k, %c2 : tensor<?x16x?xf32>
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty(%b, %n, %m) : tensor<?x?x?xf32>
  %eo = tensor.empty(%b, %n) : tensor<?x?x16xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%zs : tensor<?x?x?xf32>)
      -> tensor<?x?x?xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?x?xf32>) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%zo : tensor<?x?x16xf32>)
      -> tensor<?x?x16xf32>
  return %o : tensor<?x?x16xf32>
}

// Softmax over classes from single ops, without the maximum.
func.func @classes(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %exp = math.exp %x : tensor<?x?xf32>
  %sum = linalg.reduce ins(%exp : tensor<?x?xf32>) outs(%z : tensor<?xf32>) dimensions = [1]
    (%in: f32, %acc: f32) {
      %s = arith.addf %in, %acc : f32
      linalg.yield %s : f32
    }
  %er = tensor.empty(%n, %m) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%exp, %sum : tensor<?x?xf32>, tensor<?xf32>) outs(%er : tensor<?x?xf32>) {
  ^bb0(%a: f32, %s: f32, %out: f32):
    %d = arith.divf %a, %s : f32
    linalg.yield %d : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
