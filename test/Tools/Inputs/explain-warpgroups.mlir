// Attention and matmuls without kernels of warpgroups on sm_90a, or with kernels that dense tensors do not have.
func.func @large_head(%q: tensor<?x2x320xf16>, %k: tensor<?x2x320xf16>) -> tensor<?x2x320xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d]
    : (tensor<?x2x320xf16>, tensor<?x2x320xf16>, tensor<?x2x320xf16>) -> tensor<?x2x320xf16>
  return %o : tensor<?x2x320xf16>
}
func.func @wide(%q: tensor<?x2x64xf32>, %k: tensor<?x2x64xf32>) -> tensor<?x2x64xf32> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d]
    : (tensor<?x2x64xf32>, tensor<?x2x64xf32>, tensor<?x2x64xf32>) -> tensor<?x2x64xf32>
  return %o : tensor<?x2x64xf32>
}
func.func @tallied(%q: tensor<200x2x64xf16>, %k: tensor<?x2x64xf16>) -> (tensor<200x2x64xf16>, tensor<2x200x1xf32>) {
  %o, %t = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d]
    tally<1>(%s: f32, %b, %h, %i, %j) {
      %zero = arith.constant 0 : index
      attn.yield %zero, %s : index, f32
    } : (tensor<200x2x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> (tensor<200x2x64xf16>, tensor<2x200x1xf32>)
  return %o, %t : tensor<200x2x64xf16>, tensor<2x200x1xf32>
}
func.func @few(%q: tensor<16x2x64xf16>, %k: tensor<?x2x64xf16>) -> tensor<16x2x64xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d]
    : (tensor<16x2x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> tensor<16x2x64xf16>
  return %o : tensor<16x2x64xf16>
}
func.func @transposed(%q: tensor<200x2x64xf16>, %k: tensor<2x64x?xf16>, %v: tensor<?x2x64xf16>) -> tensor<200x2x64xf16> {
  %o = attn.attention %q[s,h,d], %k[h,d,s], %v[s,h,d]
    : (tensor<200x2x64xf16>, tensor<2x64x?xf16>, tensor<?x2x64xf16>) -> tensor<200x2x64xf16>
  return %o : tensor<200x2x64xf16>
}
func.func @odd_head(%q: tensor<200x2x60xf16>, %k: tensor<?x2x60xf16>) -> tensor<200x2x60xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %k[s,h,d]
    : (tensor<200x2x60xf16>, tensor<?x2x60xf16>, tensor<?x2x60xf16>) -> tensor<200x2x60xf16>
  return %o : tensor<200x2x60xf16>
}
func.func @pages(%q: tensor<1x2x200x64xf16>, %k: tensor<?x2x12x64xf16>, %n: tensor<1xi32>, %p: tensor<1x?xi32>)
    -> tensor<1x2x200x64xf16> {
  %kp = attn.paged %k[b,h,s,d], %p : tensor<?x2x12x64xf16>, tensor<1x?xi32> -> tensor<1x2x?x64xf16>
  %o = attn.attention %q[b,h,s,d], %kp[b,h,s,d], %kp[b,h,s,d] kv_len(%n : tensor<1xi32>)
    : (tensor<1x2x200x64xf16>, tensor<1x2x?x64xf16>, tensor<1x2x?x64xf16>) -> tensor<1x2x200x64xf16>
  return %o : tensor<1x2x200x64xf16>
}
func.func @narrow_matmul(%a: tensor<?x64xf16>, %b: tensor<64x30xf16>, %c: tensor<?x30xf16>) -> tensor<?x30xf16> {
  %r = linalg.matmul ins(%a, %b : tensor<?x64xf16>, tensor<64x30xf16>) outs(%c : tensor<?x30xf16>) -> tensor<?x30xf16>
  return %r : tensor<?x30xf16>
}
func.func @wide_matmul(%a: tensor<?x64xf32>, %b: tensor<64x64xf32>, %c: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x64xf32>, tensor<64x64xf32>) outs(%c : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
func.func @any_matmul(%a: tensor<?x?xf16>, %b: tensor<?x64xf16>, %c: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %r = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x64xf16>) outs(%c : tensor<?x64xf16>) -> tensor<?x64xf16>
  return %r : tensor<?x64xf16>
}
func.func @any_pages(%q: tensor<1x2x200x64xf16>, %k: tensor<?x2x?x64xf16>, %n: tensor<1xi32>, %p: tensor<1x?xi32>)
    -> tensor<1x2x200x64xf16> {
  %kp = attn.paged %k[b,h,s,d], %p : tensor<?x2x?x64xf16>, tensor<1x?xi32> -> tensor<1x2x?x64xf16>
  %o = attn.attention %q[b,h,s,d], %kp[b,h,s,d], %kp[b,h,s,d] kv_len(%n : tensor<1xi32>)
    : (tensor<1x2x200x64xf16>, tensor<1x2x?x64xf16>, tensor<1x2x?x64xf16>) -> tensor<1x2x200x64xf16>
  return %o : tensor<1x2x200x64xf16>
}
