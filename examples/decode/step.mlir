// One step of generation with a paged cache: 8 query heads, 2 key/value heads of 64 elements, pages of 16 positions.
//
// Each of the sequences b has n[b] new tokens after its first len[b] ones, end = len + n. Their keys and values are
// written into the pages table[b] of the pools, in the memory of the caller. Then the queries attend to all tokens up to
// their own. One program serves prompts and single tokens, and batches of both.

func.func @step(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x2x64xf32>, %v: tensor<?x?x2x64xf32>,
                %k_pool: tensor<?x16x2x64xf32> {attn.updated_by = 1}, %v_pool: tensor<?x16x2x64xf32> {attn.updated_by = 2},
                %table: tensor<?x?xi32>, %len: tensor<?xi32>, %n: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x?x8x64xf32>, tensor<?x16x2x64xf32>, tensor<?x16x2x64xf32>) {
  %kp = attn.append %k[b,s,h,d] to %k_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
    count(%n : tensor<?xi32>) : (tensor<?x?x2x64xf32>, tensor<?x16x2x64xf32>) -> tensor<?x16x2x64xf32>
  %vp = attn.append %v[b,s,h,d] to %v_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
    count(%n : tensor<?xi32>) : (tensor<?x?x2x64xf32>, tensor<?x16x2x64xf32>) -> tensor<?x16x2x64xf32>
  %ks = attn.paged %kp[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %vs = attn.paged %vp[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %o = attn.attention %q[b,s,h,d], %ks[b,s,h,d], %vs[b,s,h,d] q_len(%n : tensor<?xi32>) kv_len(%end : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x?x8x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x64xf32>) -> tensor<?x?x8x64xf32>
  return %o, %kp, %vp : tensor<?x?x8x64xf32>, tensor<?x16x2x64xf32>, tensor<?x16x2x64xf32>
}
