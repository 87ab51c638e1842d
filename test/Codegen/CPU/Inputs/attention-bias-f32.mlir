func.func @attention(%q: tensor<?x?x4096x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>, %t: tensor<?x?x?xf32>) -> (tensor<?x?x4096x64xf32>) {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%t : tensor<?x?x?xf32>)
      score(%s, %b, %h, %i, %j, %table) {
        %x = tensor.extract %table[%h, %i, %j] : tensor<?x?x?xf32>
        %r = arith.addf %s, %x : f32
        attn.yield %r : f32
      } : (tensor<?x?x4096x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> (tensor<?x?x4096x64xf32>)
  return %o : tensor<?x?x4096x64xf32>
}
