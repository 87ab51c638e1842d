// Causal masks: a token sees itself and what came before it. Which key stands beside which query is never guessed;
// where there are more keys than queries (decoding, chunks of a prompt) the alignments differ.

// Query i sees keys 0..i: both sequences start at the same token.
func.func @top_left(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<top_left>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// The last query sees every key: both sequences end at the same token. Where there are fewer keys than queries, the
// first queries see nothing, and their output is 0.
func.func @bottom_right(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<bottom_right>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// Bottom-right counts from the lengths where they are given: every sequence of the batch ends where it ends.
func.func @bottom_right_of_lengths(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                                   %queries: tensor<?xi32>, %keys: tensor<?xi32>) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    q_len(%queries : tensor<?xi32>) kv_len(%keys : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// Query i sees keys 0..i+3.
func.func @offset(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<3>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// Query i sees keys 0..i−1, not even itself: the first row is empty.
func.func @strictly_before(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    mask causal<-1>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// A chunk of a prompt: its first query is token %start of the sequence whose keys are all there. With `at`, positions
// are absolute, so the mask is written as for the whole.
func.func @chunk(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>, %start: index)
    -> tensor<?x?x?x64xf32> {
  %zero = arith.constant 0 : index
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] at(%zero, %zero, %start, %zero)
    mask causal<top_left>
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
