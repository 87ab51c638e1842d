// Cross-attention: the tokens of one sequence look at those of another, which has its own length, its own width and
// its own padding. Here a decoder of width 512 reads an encoder of width 768; 8 heads of 64.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>

// Source tokens from `lengths` on are padding. A source of length 0 adds nothing but the output bias.
func.func @cross_attention(%x: tensor<?x?x512xf32>, %source: tensor<?x?x768xf32>, %lengths: tensor<?xi32>,
    %wq: tensor<512x512xf32>, %bq: tensor<512xf32>, %wk: tensor<512x768xf32>, %bk: tensor<512xf32>,
    %wv: tensor<512x768xf32>, %bv: tensor<512xf32>, %wo: tensor<512x512xf32>, %bo: tensor<512xf32>)
    -> tensor<?x?x512xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x512xf32>
  %queries = tensor.dim %x, %c1 : tensor<?x?x512xf32>
  %keys = tensor.dim %source, %c1 : tensor<?x?x768xf32>
  %x2 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x512xf32> into tensor<?x512xf32>
  %source2 = tensor.collapse_shape %source [[0, 1], [2]] : tensor<?x?x768xf32> into tensor<?x768xf32>

  %q = func.call @linear(%x2, %wq, %bq)
    : (tensor<?x512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %k = func.call @linear_of_source(%source2, %wk, %bk)
    : (tensor<?x768xf32>, tensor<512x768xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %v = func.call @linear_of_source(%source2, %wv, %bv)
    : (tensor<?x768xf32>, tensor<512x768xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %qh = tensor.expand_shape %q [[0, 1], [2, 3]] output_shape [%batch, %queries, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>
  %kh = tensor.expand_shape %k [[0, 1], [2, 3]] output_shape [%batch, %keys, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>
  %vh = tensor.expand_shape %v [[0, 1], [2, 3]] output_shape [%batch, %keys, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>

  %heads = attn.attention %qh[b,s,h,d], %kh[b,s,h,d], %vh[b,s,h,d] kv_len(%lengths : tensor<?xi32>)
    : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>

  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x8x64xf32> into tensor<?x512xf32>
  %o = func.call @linear(%joined, %wo, %bo)
    : (tensor<?x512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %y = tensor.expand_shape %o [[0, 1], [2]] output_shape [%batch, %queries, 512]
    : tensor<?x512xf32> into tensor<?x?x512xf32>
  return %y : tensor<?x?x512xf32>
}

// x Wᵀ + b
func.func private @linear(%x: tensor<?x512xf32>, %w: tensor<512x512xf32>, %b: tensor<512xf32>) -> tensor<?x512xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x512xf32>
  %empty = tensor.empty(%tokens) : tensor<?x512xf32>
  %bias = linalg.broadcast ins(%b : tensor<512xf32>) outs(%empty : tensor<?x512xf32>) dimensions = [0]
  %y = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %w : tensor<?x512xf32>, tensor<512x512xf32>) outs(%bias : tensor<?x512xf32>) -> tensor<?x512xf32>
  return %y : tensor<?x512xf32>
}

// From the source's width to that of the queries.
func.func private @linear_of_source(%x: tensor<?x768xf32>, %w: tensor<512x768xf32>, %b: tensor<512xf32>)
    -> tensor<?x512xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x768xf32>
  %empty = tensor.empty(%tokens) : tensor<?x512xf32>
  %bias = linalg.broadcast ins(%b : tensor<512xf32>) outs(%empty : tensor<?x512xf32>) dimensions = [0]
  %y = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %w : tensor<?x768xf32>, tensor<512x768xf32>) outs(%bias : tensor<?x512xf32>) -> tensor<?x512xf32>
  return %y : tensor<?x512xf32>
}
