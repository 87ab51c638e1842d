// Local attention: a query sees the keys near it, so that time grows with n·w instead of n². Only tiles of keys that
// the window reaches are visited.

// 128 keys to either side (Longformer's encoder window).
func.func @both_sides(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask window<128, 128>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// The last 256 keys and itself, never the future (Mistral's decoder window). Masks that follow one another must all
// hold; `*` leaves a side open.
func.func @causal_window(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<top_left> mask window<256, *>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// A narrow window, to be tried on short sequences.
func.func @narrow(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask window<3, 1>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// The window and, for every query, the first four keys: what keeps streaming decoders stable (attention sinks,
// Xiao et al. 2024). Any set can be written as a region.
func.func @window_and_first_keys(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<top_left>
    mask(%b, %h, %i, %j) {
      %reach = arith.constant 32 : index
      %count = arith.constant 4 : index
      %first_near = arith.subi %i, %reach : index
      %near = arith.cmpi sge, %j, %first_near : index
      %early = arith.cmpi slt, %j, %count : index
      %holds = arith.ori %near, %early : i1
      attn.yield %holds : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
