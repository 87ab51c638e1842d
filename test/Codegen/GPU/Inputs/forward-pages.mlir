// Keys and values in pages: of 16 positions, or of a number that is known in a call only.
func.func @pages_128(%q: tensor<?x?x?x128xbf16>, %kp: tensor<?x16x?x128xbf16>, %vp: tensor<?x16x?x128xbf16>, %table: tensor<?x?xi32>, %lengths: tensor<?xi32>) -> tensor<?x?x?x128xbf16> {
  %k = attn.paged %kp[b,s,h,d], %table : tensor<?x16x?x128xbf16>, tensor<?x?xi32> -> tensor<?x?x?x128xbf16>
  %v = attn.paged %vp[b,s,h,d], %table : tensor<?x16x?x128xbf16>, tensor<?x?xi32> -> tensor<?x?x?x128xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %v[b,s,h,d] kv_len(%lengths : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %o : tensor<?x?x?x128xbf16>
}

func.func @pages_64(%q: tensor<?x?x?x64xf16>, %kp: tensor<?x?x?x64xf16>, %vp: tensor<?x?x?x64xf16>, %table: tensor<?x?xi32>) -> tensor<?x?x?x64xf16> {
  %k = attn.paged %kp[b,h,s,d], %table : tensor<?x?x?x64xf16>, tensor<?x?xi32> -> tensor<?x?x?x64xf16>
  %v = attn.paged %vp[b,h,s,d], %table : tensor<?x?x?x64xf16>, tensor<?x?xi32> -> tensor<?x?x?x64xf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16>
  return %o : tensor<?x?x?x64xf16>
}

func.func @pages_256(%q: tensor<?x?x?x256xbf16>, %kp: tensor<?x?x?x256xbf16>, %vp: tensor<?x?x?x256xbf16>, %table: tensor<?x?xi32>, %lengths: tensor<?xi32>) -> tensor<?x?x?x256xbf16> {
  %k = attn.paged %kp[b,s,h,d], %table : tensor<?x?x?x256xbf16>, tensor<?x?xi32> -> tensor<?x?x?x256xbf16>
  %v = attn.paged %vp[b,s,h,d], %table : tensor<?x?x?x256xbf16>, tensor<?x?xi32> -> tensor<?x?x?x256xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %v[b,s,h,d] kv_len(%lengths : tensor<?xi32>) mask causal<bottom_right> mask window<1023, 0>
    : (tensor<?x?x?x256xbf16>, tensor<?x?x?x256xbf16>, tensor<?x?x?x256xbf16>) -> tensor<?x?x?x256xbf16>
  return %o : tensor<?x?x?x256xbf16>
}

// Ragged chunks of prompts.
func.func @pages_ragged_128(%q: tensor<?x?x128xbf16>, %kp: tensor<?x?x?x128xbf16>, %vp: tensor<?x?x?x128xbf16>, %table: tensor<?x?xi32>, %lengths: tensor<?xi32>, %cu: tensor<?xi32>) -> tensor<?x?x128xbf16> {
  %k = attn.paged %kp[b,s,h,d], %table : tensor<?x?x?x128xbf16>, tensor<?x?xi32> -> tensor<?x?x?x128xbf16>
  %v = attn.paged %vp[b,s,h,d], %table : tensor<?x?x?x128xbf16>, tensor<?x?xi32> -> tensor<?x?x?x128xbf16>
  %o = attn.attention %q[s,h,d], %k[b,s,h,d], %v[b,s,h,d] cu_seqlens_q(%cu : tensor<?xi32>) kv_len(%lengths : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x128xbf16>
  return %o : tensor<?x?x128xbf16>
}

// The producer also executes the tests of tiles of a document mask.
func.func @pages_documents_128(%q: tensor<?x?x?x128xbf16>, %kp: tensor<?x?x?x128xbf16>, %vp: tensor<?x?x?x128xbf16>, %table: tensor<?x?xi32>, %lengths: tensor<?xi32>, %ids: tensor<?x?xi32>) -> tensor<?x?x?x128xbf16> {
  %k = attn.paged %kp[b,s,h,d], %table : tensor<?x?x?x128xbf16>, tensor<?x?xi32> -> tensor<?x?x?x128xbf16>
  %v = attn.paged %vp[b,s,h,d], %table : tensor<?x?x?x128xbf16>, tensor<?x?xi32> -> tensor<?x?x?x128xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %v[b,s,h,d] captures(%ids : tensor<?x?xi32>) kv_len(%lengths : tensor<?xi32>)
    mask(%b, %h, %i, %j, %ids) {
      %x = tensor.extract %ids[%b, %i] : tensor<?x?xi32>
      %y = tensor.extract %ids[%b, %j] : tensor<?x?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }
    : (tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16>) -> tensor<?x?x?x128xbf16>
  return %o : tensor<?x?x?x128xbf16>
}
