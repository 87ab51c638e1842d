!f32 = tensor<?x?x?x64xf32>
!bf16 = tensor<?x?x?x64xbf16>
!table = tensor<?x?x?xf32>

func.func @full(%q: !f32, %k: !f32, %v: !f32) -> !f32 {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (!f32, !f32, !f32) -> !f32
  return %o : !f32
}

func.func @causal(%q: !bf16, %k: !bf16, %v: !bf16) -> !bf16 {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left> : (!bf16, !bf16, !bf16) -> !bf16
  return %o : !bf16
}

func.func @bias(%q: !f32, %k: !f32, %v: !f32, %bias: !table) -> !f32 {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%bias : !table)
    score(%s, %b, %h, %i, %j, %t) {
      %x = tensor.extract %t[%h, %i, %j] : !table
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : (!f32, !f32, !f32) -> !f32
  return %o : !f32
}

// The intermediate result has a dynamic size; its heap allocation is reused by later calls.
func.func @twice(%q: !f32, %k: !f32, %v: !f32) -> !f32 {
  %x = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (!f32, !f32, !f32) -> !f32
  %o = attn.attention %x[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (!f32, !f32, !f32) -> !f32
  return %o : !f32
}
