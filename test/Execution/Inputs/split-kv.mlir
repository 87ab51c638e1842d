func.func @plain(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x40xf32>) -> (tensor<?x?x?x40xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] lse
      : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x40xf32>) -> (tensor<?x?x?x40xf32>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x40xf32>, tensor<?x?x?xf32>
}

// A mask that depends on the head, a score with a capture, lengths, and positions that do not start at 0.
func.func @everything(%q: tensor<?x?x?x33xbf16>, %k: tensor<?x?x?x33xbf16>, %v: tensor<?x?x?x24xbf16>, %slope: tensor<?xf32>,
    %ql: tensor<?xi32>, %kl: tensor<?xi32>, %first: index) -> (tensor<?x?x?x24xbf16>, tensor<?x?x?xf32>) {
  %zero = arith.constant 0 : index
  %o, %l = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] captures(%slope : tensor<?xf32>) q_len(%ql : tensor<?xi32>)
      kv_len(%kl : tensor<?xi32>) at(%zero, %zero, %first, %first)
      mask(%b, %h, %i, %j, %s) {
        %c200 = arith.constant 200 : index
        %reach = arith.muli %h, %c200 : index
        %least = arith.subi %i, %reach : index
        %seen = arith.cmpi sge, %j, %least : index
        attn.yield %seen : i1
      }
      score(%x, %b, %h, %i, %j, %s) {
        %m = tensor.extract %s[%h] : tensor<?xf32>
        %d = arith.subi %j, %i : index
        %d32 = arith.index_cast %d : index to i32
        %df = arith.sitofp %d32 : i32 to f32
        %bias = arith.mulf %m, %df : f32
        %r = arith.addf %x, %bias : f32
        attn.yield %r : f32
      } lse : (tensor<?x?x?x33xbf16>, tensor<?x?x?x33xbf16>, tensor<?x?x?x24xbf16>) -> (tensor<?x?x?x24xbf16>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x24xbf16>, tensor<?x?x?xf32>
}

func.func @keys_in_columns(%q: tensor<1x64xf64>, %k: tensor<64x?xf64>, %v: tensor<?x64xf64>) -> tensor<1x64xf64> {
  %o = attn.attention %q[s,d], %k[d,s], %v[s,d] : (tensor<1x64xf64>, tensor<64x?xf64>, tensor<?x64xf64>) -> tensor<1x64xf64>
  return %o : tensor<1x64xf64>
}

// A sink per head counts once, in the first chunk, also for grouped heads; queries after q_len have none.
func.func @sinks(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x40xf32>, %t: tensor<?xf32>, %n: tensor<?xi32>)
    -> (tensor<?x?x?x40xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%n : tensor<?xi32>) sink(%t : tensor<?xf32>)
      mask causal<bottom_right> lse
      : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x40xf32>) -> (tensor<?x?x?x40xf32>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x40xf32>, tensor<?x?x?xf32>
}
