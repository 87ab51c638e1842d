// Batches of sequences of different lengths, padded to one. A length is a bound, as if what lies beyond it were not
// there: whatever the padding holds, even NaN, it never reaches a result.

// Keys from a batch's length on are padding. Where a length is 0 the whole output of that batch is 0, never NaN.
func.func @padded_keys(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                       %lengths: tensor<?xi32>) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%lengths : tensor<?xi32>)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// Queries too: rows of padding are 0, and their log-sum-exp is −inf.
func.func @padded_queries_and_keys(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                                   %queries: tensor<?xi64>, %keys: tensor<?xi64>)
    -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %o, %lse = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    q_len(%queries : tensor<?xi64>) kv_len(%keys : tensor<?xi64>) lse
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>)
  return %o, %lse : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}

// One length for the whole batch: a cache of which only the first %n keys are filled.
func.func @partly_filled_cache(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                               %n: index) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : index)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// Padding as a mask, one flag for every key, for where it is not a suffix. −inf before the softmax, so a padded key's
// weight is exactly 0; a row whose keys are all padding gives 0.
func.func @padding_mask(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                        %keep: tensor<?x?xi1>) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%keep : tensor<?x?xi1>)
    mask(%b, %h, %i, %j, %flags) {
      %holds = tensor.extract %flags[%b, %j] : tensor<?x?xi1>
      attn.yield %holds : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
