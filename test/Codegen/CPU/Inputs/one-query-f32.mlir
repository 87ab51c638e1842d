func.func @attention(%q: tensor<?x32x1x128xf32>, %k: tensor<?x8x?x128xf32>, %v: tensor<?x8x?x128xf32>) -> (tensor<?x32x1x128xf32>) {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x32x1x128xf32>, tensor<?x8x?x128xf32>, tensor<?x8x?x128xf32>) -> (tensor<?x32x1x128xf32>)
  return %o : tensor<?x32x1x128xf32>
}
