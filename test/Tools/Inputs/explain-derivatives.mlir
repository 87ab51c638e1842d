func.func @attend(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>)
    -> tensor<?x16xf32> attributes {attn.gradient, attn.jvp} {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
