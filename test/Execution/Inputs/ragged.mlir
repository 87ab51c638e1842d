// Ragged sequences, concatenated.

func.func @plain(%q: tensor<?x?x64xf32>, %k: tensor<?x?x64xf32>, %v: tensor<?x?x40xf32>, %cu_q: tensor<?xi32>,
                 %cu_k: tensor<?xi32>) -> (tensor<?x?x40xf32>, tensor<?x?xf32>) {
  %o, %lse = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu_q : tensor<?xi32>)
      cu_seqlens_k(%cu_k : tensor<?xi32>) lse
    : (tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x40xf32>) -> (tensor<?x?x40xf32>, tensor<?x?xf32>)
  return %o, %lse : tensor<?x?x40xf32>, tensor<?x?xf32>
}

func.func @causal(%q: tensor<?x?x64xf32>, %k: tensor<?x?x64xf32>, %v: tensor<?x?x64xf32>, %cu_q: tensor<?xi32>,
                  %cu_k: tensor<?xi32>) -> tensor<?x?x64xf32> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu_q : tensor<?xi32>)
      cu_seqlens_k(%cu_k : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %o : tensor<?x?x64xf32>
}

// One cu_seqlens tensor for all operands, head_dim first, all region arguments and all results.
func.func @everything(%q: tensor<?x4x33xbf16>, %k: tensor<2x?x33xbf16>, %v: tensor<?x2x24xbf16>, %cu: tensor<?xi64>,
                      %q_len: tensor<?xi32>, %kv_len: tensor<?xi32>, %table: tensor<?x4xf32>, %sink: tensor<4xf32>,
                      %at: index)
    -> (tensor<4x24x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xi64>, tensor<4x?x3xf32>) {
  %c0 = arith.constant 0 : index
  %o, %lse, %max, %argmax, %tally = attn.attention %q[s,h,d], %k[h,s,d], %v[s,h,d] captures(%table : tensor<?x4xf32>)
      q_len(%q_len : tensor<?xi32>) kv_len(%kv_len : tensor<?xi32>) cu_seqlens_q(%cu : tensor<?xi64>)
      cu_seqlens_k(%cu : tensor<?xi64>) at(%at, %c0, %at, %at) sink(%sink : tensor<4xf32>) out[h,d,s] mask window<100, *>
    mask(%b, %h, %i, %j, %t) {
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      %x = arith.addi %i, %j : index
      %y = arith.addi %x, %b : index
      %z = arith.remui %y, %c3 : index
      %r = arith.cmpi ne, %z, %c1 : index
      attn.yield %r : i1
    }
    score(%s, %b, %h, %i, %j, %t) {
      %m = tensor.extract %t[%b, %h] : tensor<?x4xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    }
    tally<3>(%s, %b, %h, %i, %j, %t) {
      %one = arith.constant 1.0 : f32
      %c3 = arith.constant 3 : index
      %bin = arith.remui %j, %c3 : index
      attn.yield %bin, %one : index, f32
    } lse max argmax
    : (tensor<?x4x33xbf16>, tensor<2x?x33xbf16>, tensor<?x2x24xbf16>)
      -> (tensor<4x24x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xi64>, tensor<4x?x3xf32>)
  return %o, %lse, %max, %argmax, %tally
    : tensor<4x24x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xi64>, tensor<4x?x3xf32>
}

// Ragged queries that attend to a batched KV cache with kv_len.
func.func @cache(%q: tensor<?x4x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x32xf32>, %cu_q: tensor<?xi32>,
                 %kv_len: tensor<?xi32>) -> (tensor<?x4x32xf32>, tensor<4x?xf32>) {
  %o, %lse = attn.attention %q[s,h,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%kv_len : tensor<?xi32>)
      cu_seqlens_q(%cu_q : tensor<?xi32>) mask causal<bottom_right> lse
    : (tensor<?x4x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>) -> (tensor<?x4x32xf32>, tensor<4x?xf32>)
  return %o, %lse : tensor<?x4x32xf32>, tensor<4x?xf32>
}

// Batched queries that attend to ragged keys.
func.func @packed_keys(%q: tensor<?x3x?x16xf64>, %k: tensor<?x16xf64>, %v: tensor<?x16xf64>, %cu_k: tensor<?xindex>)
    -> tensor<?x3x?x16xf64> {
  %o = attn.attention %q[b,h,s,d], %k[s,d], %v[s,d] cu_seqlens_k(%cu_k : tensor<?xindex>)
    : (tensor<?x3x?x16xf64>, tensor<?x16xf64>, tensor<?x16xf64>) -> tensor<?x3x?x16xf64>
  return %o : tensor<?x3x?x16xf64>
}

// Computed offsets are not checked before the kernel runs: no task may access memory out of bounds.
func.func @computed_offsets(%q: tensor<?x2x64xf32>, %n: tensor<?xi32>, %c: i32) -> tensor<?x2x64xf32> {
  %c0 = arith.constant 0 : index
  %size = tensor.dim %n, %c0 : tensor<?xi32>
  %e = tensor.empty(%size) : tensor<?xi32>
  %cu = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%n : tensor<?xi32>) outs(%e : tensor<?xi32>) {
    ^bb0(%x: i32, %y: i32):
      %z = arith.muli %x, %c : i32
      linalg.yield %z : i32
    } -> tensor<?xi32>
  %o = attn.attention %q[s,h,d], %q[s,h,d], %q[s,h,d] cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)
    : (tensor<?x2x64xf32>, tensor<?x2x64xf32>, tensor<?x2x64xf32>) -> tensor<?x2x64xf32>
  return %o : tensor<?x2x64xf32>
}
