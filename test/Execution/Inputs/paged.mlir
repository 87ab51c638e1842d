func.func @decode(%q: tensor<?x8x?x64xf32>, %kp: tensor<?x16x2x64xf32>, %vp: tensor<?x16x2x48xf32>, %table: tensor<?x?xi32>, %len: tensor<?xi32>) -> tensor<?x8x?x48xf32> {
  %k = attn.paged %kp[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %v = attn.paged %vp[b,s,h,d], %table : tensor<?x16x2x48xf32>, tensor<?x?xi32> -> tensor<?x?x2x48xf32>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %v[b,s,h,d] kv_len(%len : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x48xf32>) -> tensor<?x8x?x48xf32>
  return %o : tensor<?x8x?x48xf32>
}

func.func @decode_bf16(%q: tensor<?x8x?x64xbf16>, %kp: tensor<?x2x?x64xbf16>, %vp: tensor<?x2x?x48xbf16>, %table: tensor<?x?xi32>, %len: tensor<?xi32>) -> tensor<?x8x?x48xbf16> {
  %k = attn.paged %kp[b,h,s,d], %table : tensor<?x2x?x64xbf16>, tensor<?x?xi32> -> tensor<?x2x?x64xbf16>
  %v = attn.paged %vp[b,h,s,d], %table : tensor<?x2x?x48xbf16>, tensor<?x?xi32> -> tensor<?x2x?x48xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%len : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x48xbf16>) -> tensor<?x8x?x48xbf16>
  return %o : tensor<?x8x?x48xbf16>
}

#all = affine_map<(b, s, h, d) -> (b, s, h, d)>
#position = affine_map<(b, s, h, d) -> (b, s, h, 0)>

// Keys and values are the same 8-bit numbers.
func.func @quantized(%q: tensor<?x8x?x64xf32>, %pool: tensor<?x16x2x64xi8>, %scales: tensor<?x16x2x1xf32>, %table: tensor<?x?xi32>, %len: tensor<?xi32>) -> tensor<?x8x?x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xi8>, tensor<?x?xi32> -> tensor<?x?x2x64xi8>
  %s = attn.paged %scales[b,s,h,d], %table : tensor<?x16x2x1xf32>, tensor<?x?xi32> -> tensor<?x?x2x1xf32>
  %n = tensor.dim %x, %c0 : tensor<?x?x2x64xi8>
  %m = tensor.dim %x, %c1 : tensor<?x?x2x64xi8>
  %e = tensor.empty(%n, %m) : tensor<?x?x2x64xf32>
  %k = linalg.generic {indexing_maps = [#all, #position, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%x, %s : tensor<?x?x2x64xi8>, tensor<?x?x2x1xf32>) outs(%e : tensor<?x?x2x64xf32>) {
  ^bb0(%a: i8, %scale: f32, %out: f32):
    %f = arith.sitofp %a : i8 to f32
    %g = arith.mulf %f, %scale : f32
    linalg.yield %g : f32
  } -> tensor<?x?x2x64xf32>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %k[b,s,h,d] kv_len(%len : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}
