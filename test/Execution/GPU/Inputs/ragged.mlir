// Ragged batches, and one of their sequences as a dense call.

func.func @ragged(%q: tensor<?x4x64xf16>, %k: tensor<?x2x64xf16>, %v: tensor<?x2x64xf16>, %cu_q: tensor<?xi32>,
                  %cu_k: tensor<?xi32>) -> tensor<?x4x64xf16> {
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu_q : tensor<?xi32>)
      cu_seqlens_k(%cu_k : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x4x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> tensor<?x4x64xf16>
  return %o : tensor<?x4x64xf16>
}

func.func @alone(%q: tensor<?x?x4x64xf16>, %k: tensor<?x?x2x64xf16>, %v: tensor<?x?x2x64xf16>) -> tensor<?x?x4x64xf16> {
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<bottom_right>
    : (tensor<?x?x4x64xf16>, tensor<?x?x2x64xf16>, tensor<?x?x2x64xf16>) -> tensor<?x?x4x64xf16>
  return %o : tensor<?x?x4x64xf16>
}

// All parts of the state.
func.func @everything(%q: tensor<?x4x64xf16>, %k: tensor<?x2x64xf16>, %v: tensor<?x2x64xf16>, %cu_q: tensor<?xi32>,
                      %cu_k: tensor<?xi32>) -> (tensor<?x4x64xf16>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xi64>,
                                                tensor<4x?x3xf32>) {
  %o, %lse, %max, %argmax, %tally = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cu_q : tensor<?xi32>)
      cu_seqlens_k(%cu_k : tensor<?xi32>) mask window<300, 0> lse max argmax
    weight(%p, %b, %h, %i, %j) {
      %c = arith.constant 0.01 : f32
      %x = arith.subf %p, %c : f32
      %zero = arith.constant 0.0 : f32
      %y = arith.maximumf %x, %zero : f32
      attn.yield %y : f32
    }
    tally<3>(%s, %b, %h, %i, %j) {
      %c3 = arith.constant 3 : index
      %bin = arith.remui %j, %c3 : index
      %one = arith.constant 1.0 : f32
      attn.yield %bin, %one : index, f32
    }
    : (tensor<?x4x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16>) -> (tensor<?x4x64xf16>, tensor<4x?xf32>, tensor<4x?xf32>,
                                                                      tensor<4x?xi64>, tensor<4x?x3xf32>)
  return %o, %lse, %max, %argmax, %tally : tensor<?x4x64xf16>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xi64>, tensor<4x?x3xf32>
}
