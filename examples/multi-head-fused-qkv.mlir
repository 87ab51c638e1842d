// Multi-head self-attention with one fused projection, Linear(d, 3d): width 512, 8 heads of 64.
//
// The projection's output [b·s, 3·512] is read as [b, s, 3, 8, 64]; queries, keys and values are slices of it. Their
// tokens stand three widths apart, which attention takes as a stride: no copy splits them.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>

func.func @fused_projection(%x: tensor<?x?x512xf32>, %wqkv: tensor<1536x512xf32>, %bqkv: tensor<1536xf32>,
                            %wo: tensor<512x512xf32>, %bo: tensor<512xf32>) -> tensor<?x?x512xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x512xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x512xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x512xf32> into tensor<?x512xf32>
  %count = tensor.dim %tokens, %c0 : tensor<?x512xf32>

  %wide = tensor.empty(%count) : tensor<?x1536xf32>
  %bias = linalg.broadcast ins(%bqkv : tensor<1536xf32>) outs(%wide : tensor<?x1536xf32>) dimensions = [0]
  %projected = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%tokens, %wqkv : tensor<?x512xf32>, tensor<1536x512xf32>) outs(%bias : tensor<?x1536xf32>)
    -> tensor<?x1536xf32>
  %qkv = tensor.expand_shape %projected [[0, 1], [2, 3, 4]] output_shape [%batch, %sequence, 3, 8, 64]
    : tensor<?x1536xf32> into tensor<?x?x3x8x64xf32>
  %q = tensor.extract_slice %qkv[0, 0, 0, 0, 0] [%batch, %sequence, 1, 8, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x8x64xf32> to tensor<?x?x8x64xf32>
  %k = tensor.extract_slice %qkv[0, 0, 1, 0, 0] [%batch, %sequence, 1, 8, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x8x64xf32> to tensor<?x?x8x64xf32>
  %v = tensor.extract_slice %qkv[0, 0, 2, 0, 0] [%batch, %sequence, 1, 8, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x8x64xf32> to tensor<?x?x8x64xf32>

  %heads = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d]
    : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>

  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x8x64xf32> into tensor<?x512xf32>
  %empty = tensor.empty(%count) : tensor<?x512xf32>
  %bias_out = linalg.broadcast ins(%bo : tensor<512xf32>) outs(%empty : tensor<?x512xf32>) dimensions = [0]
  %o = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%joined, %wo : tensor<?x512xf32>, tensor<512x512xf32>) outs(%bias_out : tensor<?x512xf32>)
    -> tensor<?x512xf32>
  %y = tensor.expand_shape %o [[0, 1], [2]] output_shape [%batch, %sequence, 512]
    : tensor<?x512xf32> into tensor<?x?x512xf32>
  return %y : tensor<?x?x512xf32>
}

// The layout of einsum("nqhd,nkhd->nhqk"), then einsum("nhql,nlhd->nqhd"): heads beside depth, both times. That code
// divides by √512, the width, where √64, the head size, is meant; its scale is given here to reproduce it.
func.func @einsum_nqhd_nkhd(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>)
    -> tensor<?x?x8x64xf32> {
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] scale(0.04419417382415922)
    : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return %o : tensor<?x?x8x64xf32>
}
