// Multi-head self-attention with three projections: width 512, 8 heads of 64. Batch and sequence are dynamic.
//
// A projection is one matrix product over all tokens; its weights are stored as [out, in], as PyTorch stores them.
// Splitting into heads only reads [b·s, 512] as [b, s, 8, 64]; nothing moves, because attention takes that layout and
// leaves its output in it, so that concatenating the heads is free too.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>

// Projections with bias. The bias is what the product is added to.
func.func @multi_head_attention(%x: tensor<?x?x512xf32>,
    %wq: tensor<512x512xf32>, %bq: tensor<512xf32>, %wk: tensor<512x512xf32>, %bk: tensor<512xf32>,
    %wv: tensor<512x512xf32>, %bv: tensor<512xf32>, %wo: tensor<512x512xf32>, %bo: tensor<512xf32>)
    -> tensor<?x?x512xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x512xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x512xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x512xf32> into tensor<?x512xf32>

  %q = func.call @linear(%tokens, %wq, %bq)
    : (tensor<?x512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %k = func.call @linear(%tokens, %wk, %bk)
    : (tensor<?x512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %v = func.call @linear(%tokens, %wv, %bv)
    : (tensor<?x512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %qh = tensor.expand_shape %q [[0, 1], [2, 3]] output_shape [%batch, %sequence, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>
  %kh = tensor.expand_shape %k [[0, 1], [2, 3]] output_shape [%batch, %sequence, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>
  %vh = tensor.expand_shape %v [[0, 1], [2, 3]] output_shape [%batch, %sequence, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>

  %heads = attn.attention %qh[b,s,h,d], %kh[b,s,h,d], %vh[b,s,h,d]
    : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>

  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x8x64xf32> into tensor<?x512xf32>
  %o = func.call @linear(%joined, %wo, %bo)
    : (tensor<?x512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %y = tensor.expand_shape %o [[0, 1], [2]] output_shape [%batch, %sequence, 512]
    : tensor<?x512xf32> into tensor<?x?x512xf32>
  return %y : tensor<?x?x512xf32>
}

// The same without bias, which is how many decoders have it.
func.func @multi_head_attention_without_bias(%x: tensor<?x?x512xf32>, %wq: tensor<512x512xf32>,
    %wk: tensor<512x512xf32>, %wv: tensor<512x512xf32>, %wo: tensor<512x512xf32>) -> tensor<?x?x512xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x512xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x512xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x512xf32> into tensor<?x512xf32>

  %q = func.call @linear_without_bias(%tokens, %wq) : (tensor<?x512xf32>, tensor<512x512xf32>) -> tensor<?x512xf32>
  %k = func.call @linear_without_bias(%tokens, %wk) : (tensor<?x512xf32>, tensor<512x512xf32>) -> tensor<?x512xf32>
  %v = func.call @linear_without_bias(%tokens, %wv) : (tensor<?x512xf32>, tensor<512x512xf32>) -> tensor<?x512xf32>
  %qh = tensor.expand_shape %q [[0, 1], [2, 3]] output_shape [%batch, %sequence, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>
  %kh = tensor.expand_shape %k [[0, 1], [2, 3]] output_shape [%batch, %sequence, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>
  %vh = tensor.expand_shape %v [[0, 1], [2, 3]] output_shape [%batch, %sequence, 8, 64]
    : tensor<?x512xf32> into tensor<?x?x8x64xf32>

  %heads = attn.attention %qh[b,s,h,d], %kh[b,s,h,d], %vh[b,s,h,d]
    : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>

  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x8x64xf32> into tensor<?x512xf32>
  %o = func.call @linear_without_bias(%joined, %wo) : (tensor<?x512xf32>, tensor<512x512xf32>) -> tensor<?x512xf32>
  %y = tensor.expand_shape %o [[0, 1], [2]] output_shape [%batch, %sequence, 512]
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

// x Wᵀ
func.func private @linear_without_bias(%x: tensor<?x512xf32>, %w: tensor<512x512xf32>) -> tensor<?x512xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x512xf32>
  %empty = tensor.empty(%tokens) : tensor<?x512xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x512xf32>) -> tensor<?x512xf32>
  %y = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%x, %w : tensor<?x512xf32>, tensor<512x512xf32>) outs(%zeros : tensor<?x512xf32>) -> tensor<?x512xf32>
  return %y : tensor<?x512xf32>
}
