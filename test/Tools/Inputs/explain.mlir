func.func @causal(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>)
    -> tensor<?x?x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right>
    : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}

// A causal document mask.
func.func @documents(%q: tensor<?x?x?x64xf32>, %ids: tensor<?xi32>) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%ids : tensor<?xi32>) mask causal<top_left>
    mask(%b, %h, %i, %j, %of) {
      %mine = tensor.extract %of[%i] : tensor<?xi32>
      %its = tensor.extract %of[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %mine, %its : i32
      attn.yield %same : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

func.func @capped(%q: tensor<?x?x?x64xf32>, %n: index) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] kv_len(%n : index) mask causal<top_left>
    score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 30.0 : f32
      %0 = arith.divf %s, %cap : f32
      %1 = math.tanh %0 : f32
      %2 = arith.mulf %1, %cap : f32
      attn.yield %2 : f32
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// All keys but one, whose number is the last dimension of a tensor.
func.func @columns(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x64x?xf32>) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,d,s], %k[b,h,d,s] captures(%k : tensor<?x?x64x?xf32>)
    mask(%b, %h, %i, %j, %of) {
      %last = arith.constant 3 : index
      %columns = tensor.dim %of, %last : tensor<?x?x64x?xf32>
      %one = arith.constant 1 : index
      %most = arith.subi %columns, %one : index
      %visible = arith.cmpi slt, %j, %most : index
      attn.yield %visible : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x64x?xf32>, tensor<?x?x64x?xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// The window of each head is larger than that of the preceding head.
func.func @reach(%q: tensor<?x?x?x64xf32>, %reach: index) -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%reach : index)
    mask(%b, %h, %i, %j, %each) {
      %one = arith.constant 1 : index
      %number = arith.addi %h, %one : index
      %far = arith.muli %number, %each : index
      %distance = arith.subi %j, %i : index
      %zero = arith.constant 0 : index
      %ahead = arith.cmpi sge, %distance, %zero : index
      %near = arith.cmpi sle, %distance, %far : index
      %both = arith.andi %ahead, %near : i1
      attn.yield %both : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
