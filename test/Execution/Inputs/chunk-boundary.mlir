// Eight queries over two chunks of four keys. The first four see no key of the second chunk. Their running maximum is
// proved finite only if chunks are taken from the first one on, which split-KV does not.
func.func @causal(%q: tensor<2x8x64xf32>, %k: tensor<2x8x64xf32>, %v: tensor<2x8x64xf32>)
    -> (tensor<2x8x64xf32>, tensor<2x8xf32>) {
  %o, %lse = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] mask causal<top_left> lse
      score(%s, %b, %h, %i, %j) {
        %bounded = math.tanh %s : f32
        attn.yield %bounded : f32
      }
      {split_kv = #attn.split_kv<queries = 8, rows = 12, cols = 4>}
    : (tensor<2x8x64xf32>, tensor<2x8x64xf32>, tensor<2x8x64xf32>) -> (tensor<2x8x64xf32>, tensor<2x8xf32>)
  return %o, %lse : tensor<2x8x64xf32>, tensor<2x8xf32>
}
