// Gradients of attention with as many heads as a call has, whose tests of tiles and elementwise ops take registers.
func.func @plain_128(%q: tensor<?x?x?x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
    attributes {attn.gradient} {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %r : tensor<?x?x?x128xbf16>
}

func.func @causal_128(%q: tensor<?x?x?x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
    attributes {attn.gradient} {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<bottom_right>
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %r : tensor<?x?x?x128xbf16>
}

func.func @soft_cap_window_128(%q: tensor<?x?x?x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
    attributes {attn.gradient} {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 20.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %r = arith.mulf %t, %cap : f32
      attn.yield %r : f32
    }
    mask causal<bottom_right> mask window<31, *>
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %r : tensor<?x?x?x128xbf16>
}

func.func @documents_64(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>, %ids: tensor<?xi32>) -> tensor<?x?x?x64xbf16>
    attributes {attn.gradient} {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    captures(%ids : tensor<?xi32>)
    mask(%b, %h, %i, %j, %ids) {
      %x = tensor.extract %ids[%i] : tensor<?xi32>
      %y = tensor.extract %ids[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }
    : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  return %r : tensor<?x?x?x64xbf16>
}

func.func @documents_128(%q: tensor<?x?x?x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>, %ids: tensor<?xi32>) -> tensor<?x?x?x128xbf16>
    attributes {attn.gradient} {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    captures(%ids : tensor<?xi32>)
    mask(%b, %h, %i, %j, %ids) {
      %x = tensor.extract %ids[%i] : tensor<?xi32>
      %y = tensor.extract %ids[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %r : tensor<?x?x?x128xbf16>
}

func.func @documents_causal_128(%q: tensor<?x?x?x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>, %ids: tensor<?xi32>) -> tensor<?x?x?x128xbf16>
    attributes {attn.gradient} {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    captures(%ids : tensor<?xi32>)
    mask(%b, %h, %i, %j, %ids) {
      %x = tensor.extract %ids[%i] : tensor<?xi32>
      %y = tensor.extract %ids[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }
    mask causal<bottom_right>
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %r : tensor<?x?x?x128xbf16>
}
