func.func @attend(%q: tensor<7x5x64xf32>, %k: tensor<2x5x64xf32>) -> tensor<7x5x64xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d]
    : (tensor<7x5x64xf32>, tensor<2x5x64xf32>, tensor<2x5x64xf32>) -> tensor<7x5x64xf32>
  return %o : tensor<7x5x64xf32>
}
