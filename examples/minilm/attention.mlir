// The attention block of the first encoder layer of MiniLM-L6 (a BERT): 12 heads of 32, width 384.
// Batch and sequence are dynamic. A projection's weights are stored as [out, in], as PyTorch stores them.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
#all = affine_map<(m, n) -> (m, n)>
#all4 = affine_map<(b, s, h, d) -> (b, s, h, d)>

// layer_norm(hidden + (softmax(Q Kᵀ / √32) V) Woᵀ + bo); tokens from `lengths` on are padding.
func.func @minilm_attention(%hidden: tensor<?x?x384xf32>,
    %wq: tensor<384x384xf32>, %bq: tensor<384xf32>, %wk: tensor<384x384xf32>, %bk: tensor<384xf32>,
    %wv: tensor<384x384xf32>, %bv: tensor<384xf32>, %wo: tensor<384x384xf32>, %bo: tensor<384xf32>,
    %gamma: tensor<384xf32>, %beta: tensor<384xf32>, %lengths: tensor<?xi32>) -> tensor<?x?x384xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %hidden, %c0 : tensor<?x?x384xf32>
  %sequence = tensor.dim %hidden, %c1 : tensor<?x?x384xf32>
  %x = tensor.collapse_shape %hidden [[0, 1], [2]] : tensor<?x?x384xf32> into tensor<?x384xf32>
  %tokens = tensor.dim %x, %c0 : tensor<?x384xf32>
  %empty = tensor.empty(%tokens) : tensor<?x384xf32>

  // Q, K, V: x Wᵀ + b; the matmul accumulates onto the bias.
  %q0 = linalg.broadcast ins(%bq : tensor<384xf32>) outs(%empty : tensor<?x384xf32>) dimensions = [0]
  %q1 = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %wq : tensor<?x384xf32>, tensor<384x384xf32>) outs(%q0 : tensor<?x384xf32>) -> tensor<?x384xf32>
  %k0 = linalg.broadcast ins(%bk : tensor<384xf32>) outs(%empty : tensor<?x384xf32>) dimensions = [0]
  %k1 = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %wk : tensor<?x384xf32>, tensor<384x384xf32>) outs(%k0 : tensor<?x384xf32>) -> tensor<?x384xf32>
  %v0 = linalg.broadcast ins(%bv : tensor<384xf32>) outs(%empty : tensor<?x384xf32>) dimensions = [0]
  %v1 = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %wv : tensor<?x384xf32>, tensor<384x384xf32>) outs(%v0 : tensor<?x384xf32>) -> tensor<?x384xf32>

  %q = tensor.expand_shape %q1 [[0, 1], [2, 3]] output_shape [%batch, %sequence, 12, 32]
    : tensor<?x384xf32> into tensor<?x?x12x32xf32>
  %k = tensor.expand_shape %k1 [[0, 1], [2, 3]] output_shape [%batch, %sequence, 12, 32]
    : tensor<?x384xf32> into tensor<?x?x12x32xf32>
  %v = tensor.expand_shape %v1 [[0, 1], [2, 3]] output_shape [%batch, %sequence, 12, 32]
    : tensor<?x384xf32> into tensor<?x?x12x32xf32>
  %heads = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] kv_len(%lengths : tensor<?xi32>)
    : (tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>) -> tensor<?x?x12x32xf32>
  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x12x32xf32> into tensor<?x384xf32>

  %o0 = linalg.broadcast ins(%bo : tensor<384xf32>) outs(%empty : tensor<?x384xf32>) dimensions = [0]
  %o = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%joined, %wo : tensor<?x384xf32>, tensor<384x384xf32>) outs(%o0 : tensor<?x384xf32>) -> tensor<?x384xf32>
  %residual = linalg.add ins(%o, %x : tensor<?x384xf32>, tensor<?x384xf32>) outs(%empty : tensor<?x384xf32>)
    -> tensor<?x384xf32>

  // Layer norm over the width: mean, variance about the mean, then scale and shift.
  %zero = arith.constant 0.0 : f32
  %width = arith.constant 384.0 : f32
  %epsilon = arith.constant 1.0e-12 : f32
  %empty1 = tensor.empty(%tokens) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty1 : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%residual : tensor<?x384xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%r: f32, %acc: f32):
      %a = arith.addf %acc, %r : f32
      linalg.yield %a : f32
    } -> tensor<?xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
    ins(%residual, %sum : tensor<?x384xf32>, tensor<?xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%r: f32, %total: f32, %acc: f32):
      %mean = arith.divf %total, %width : f32
      %centred = arith.subf %r, %mean : f32
      %square = arith.mulf %centred, %centred : f32
      %a = arith.addf %acc, %square : f32
      linalg.yield %a : f32
    } -> tensor<?xf32>
  %normal = linalg.generic {indexing_maps = [#all, #row, #row, #column, #column, #all],
                            iterator_types = ["parallel", "parallel"]}
    ins(%residual, %sum, %squares, %gamma, %beta
        : tensor<?x384xf32>, tensor<?xf32>, tensor<?xf32>, tensor<384xf32>, tensor<384xf32>)
    outs(%empty : tensor<?x384xf32>) {
    ^bb0(%r: f32, %total: f32, %total2: f32, %g: f32, %b: f32, %out: f32):
      %mean = arith.divf %total, %width : f32
      %centred = arith.subf %r, %mean : f32
      %variance = arith.divf %total2, %width : f32
      %guarded = arith.addf %variance, %epsilon : f32
      %inverse = math.rsqrt %guarded : f32
      %unit = arith.mulf %centred, %inverse : f32
      %scaled = arith.mulf %unit, %g : f32
      %shifted = arith.addf %scaled, %b : f32
      linalg.yield %shifted : f32
    } -> tensor<?x384xf32>
  %y = tensor.expand_shape %normal [[0, 1], [2]] output_shape [%batch, %sequence, 384]
    : tensor<?x384xf32> into tensor<?x?x384xf32>
  return %y : tensor<?x?x384xf32>
}

// Attention weights: attention whose values are the rows of the identity returns its weights,
// here for sequences of up to 32 tokens; [batch, query, head, key].
func.func @minilm_weights(%hidden: tensor<?x?x384xf32>,
    %wq: tensor<384x384xf32>, %bq: tensor<384xf32>, %wk: tensor<384x384xf32>, %bk: tensor<384xf32>,
    %lengths: tensor<?xi32>) -> tensor<?x?x12x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %hidden, %c0 : tensor<?x?x384xf32>
  %sequence = tensor.dim %hidden, %c1 : tensor<?x?x384xf32>
  %x = tensor.collapse_shape %hidden [[0, 1], [2]] : tensor<?x?x384xf32> into tensor<?x384xf32>
  %tokens = tensor.dim %x, %c0 : tensor<?x384xf32>
  %empty = tensor.empty(%tokens) : tensor<?x384xf32>
  %q0 = linalg.broadcast ins(%bq : tensor<384xf32>) outs(%empty : tensor<?x384xf32>) dimensions = [0]
  %q1 = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %wq : tensor<?x384xf32>, tensor<384x384xf32>) outs(%q0 : tensor<?x384xf32>) -> tensor<?x384xf32>
  %k0 = linalg.broadcast ins(%bk : tensor<384xf32>) outs(%empty : tensor<?x384xf32>) dimensions = [0]
  %k1 = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %wk : tensor<?x384xf32>, tensor<384x384xf32>) outs(%k0 : tensor<?x384xf32>) -> tensor<?x384xf32>
  %q = tensor.expand_shape %q1 [[0, 1], [2, 3]] output_shape [%batch, %sequence, 12, 32]
    : tensor<?x384xf32> into tensor<?x?x12x32xf32>
  %k = tensor.expand_shape %k1 [[0, 1], [2, 3]] output_shape [%batch, %sequence, 12, 32]
    : tensor<?x384xf32> into tensor<?x?x12x32xf32>

  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %square = tensor.empty(%batch, %sequence) : tensor<?x?x12x32xf32>
  %identity = linalg.generic {indexing_maps = [#all4],
                              iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    outs(%square : tensor<?x?x12x32xf32>) {
    ^bb0(%out: f32):
      %s = linalg.index 1 : index
      %d = linalg.index 3 : index
      %same = arith.cmpi eq, %s, %d : index
      %e = arith.select %same, %one, %zero : f32
      linalg.yield %e : f32
    } -> tensor<?x?x12x32xf32>
  %weights = attn.attention %q[b,s,h,d], %k[b,s,h,d], %identity[b,s,h,d] kv_len(%lengths : tensor<?xi32>)
    : (tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>) -> tensor<?x?x12x32xf32>
  return %weights : tensor<?x?x12x32xf32>
}
