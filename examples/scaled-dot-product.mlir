// Scaled dot-product attention: softmax(Q Kᵀ / √d_k) V, from one matrix to batches of heads.
//
// An operand names its dimensions: b batch, h head, s sequence, d depth (the head size). The order in memory is
// whatever the tensor has; nothing is transposed or copied. Sizes written `?` are known when the function is called.

// The smallest case, N×d: 4 tokens, d_k = d_v = 8, in f64 as NumPy computes it.
func.func @numpy_example(%q: tensor<4x8xf64>, %k: tensor<4x8xf64>, %v: tensor<4x8xf64>) -> tensor<4x8xf64> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
  return %o : tensor<4x8xf64>
}

// The same for any number of queries and keys; values may be narrower or wider than keys (d_v ≠ d_k).
func.func @values_of_another_width(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x40xf32>)
    -> tensor<?x40xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x40xf32>) -> tensor<?x40xf32>
  return %o : tensor<?x40xf32>
}

// batch × heads × N × d.
func.func @batches_of_heads(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// batch × N × heads × d, the layout that a projection leaves behind; here in and out.
func.func @heads_beside_depth(%q: tensor<?x?x12x64xf32>, %k: tensor<?x?x12x64xf32>, %v: tensor<?x?x12x64xf32>)
    -> tensor<?x?x12x64xf32> {
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d]
    : (tensor<?x?x12x64xf32>, tensor<?x?x12x64xf32>, tensor<?x?x12x64xf32>) -> tensor<?x?x12x64xf32>
  return %o : tensor<?x?x12x64xf32>
}

// Every operand in an order of its own, and the output in another with `out`: keys stored transposed, for example.
func.func @every_operand_its_layout(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x64x?xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x64x?xf32> {
  %o = attn.attention %q[s,b,h,d], %k[b,h,d,s], %v[h,b,s,d] out[b,h,d,s]
    : (tensor<?x?x?x64xf32>, tensor<?x?x64x?xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x64x?xf32>
  return %o : tensor<?x?x64x?xf32>
}

// Every second token of a longer sequence, and every second element of a key: any stride may be given.
func.func @strided(%q: tensor<2x4x20x32xf32>, %k: tensor<2x4x30x64xf32>, %v: tensor<2x4x30x32xf32>)
    -> tensor<2x4x10x32xf32> {
  %q2 = tensor.extract_slice %q[0, 0, 0, 0] [2, 4, 10, 32] [1, 1, 2, 1]
    : tensor<2x4x20x32xf32> to tensor<2x4x10x32xf32>
  %k2 = tensor.extract_slice %k[0, 0, 0, 1] [2, 4, 30, 32] [1, 1, 1, 2]
    : tensor<2x4x30x64xf32> to tensor<2x4x30x32xf32>
  %o = attn.attention %q2[b,h,s,d], %k2[b,h,s,d], %v[b,h,s,d]
    : (tensor<2x4x10x32xf32>, tensor<2x4x30x32xf32>, tensor<2x4x30x32xf32>) -> tensor<2x4x10x32xf32>
  return %o : tensor<2x4x10x32xf32>
}

// Four query heads share each KV head (grouped-query attention); bf16 in and out, f32 inside.
func.func @grouped_queries(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>)
    -> tensor<?x8x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}

// f16 in, f32 out.
func.func @half_precision(%q: tensor<?x8x?x64xf16>, %k: tensor<?x8x?x64xf16>, %v: tensor<?x8x?x64xf16>)
    -> tensor<?x8x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x8x?x64xf16>, tensor<?x8x?x64xf16>, tensor<?x8x?x64xf16>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

// A scale of one's own, as a constant ...
func.func @given_scale(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(0.25)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// ... or as a value that the caller chooses, a learned temperature for example.
func.func @scale_at_run_time(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                             %scale: f32) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(%scale : f32)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// The natural logarithm of every row's sum of exponentials, as a second result: with it, partial results over
// disjoint sets of keys can be merged, and weights recomputed.
func.func @log_sum_exp(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %o, %lse = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] lse
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>)
  return %o, %lse : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}

// Scores of any size are safe: with this scale logits reach 10,000 and more, where exp would overflow.
func.func @huge_logits(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(1000.0)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
