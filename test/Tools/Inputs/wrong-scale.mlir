func.func @attend(%x: tensor<8x?x64xf32>) -> tensor<8x?x64xf32> {
  %o = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] scale(0.0442)
    : (tensor<8x?x64xf32>, tensor<8x?x64xf32>, tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  return %o : tensor<8x?x64xf32>
}
