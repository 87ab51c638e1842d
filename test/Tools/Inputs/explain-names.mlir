// Scalars and tensors that masks read, as arguments and computed from arguments.
func.func @converted(%q: tensor<?x?x?x64xf32>, %reach: i32) -> tensor<?x?x?x64xf32> {
  %far = arith.index_cast %reach : i32 to index
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%far : index)
    mask(%b, %h, %i, %j, %most) {
      %distance = arith.subi %j, %i : index
      %near = arith.cmpi sle, %distance, %most : index
      attn.yield %near : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

func.func @computed(%q: tensor<?x?x?x64xf32>, %reach: index, %more: index) -> tensor<?x?x?x64xf32> {
  %far = arith.addi %reach, %more : index
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%far : index)
    mask(%b, %h, %i, %j, %most) {
      %distance = arith.subi %j, %i : index
      %near = arith.cmpi sle, %distance, %most : index
      attn.yield %near : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

func.func @cast(%q: tensor<?x?x?x64xf32>, %ids: tensor<64xi32>) -> tensor<?x?x?x64xf32> {
  %all = tensor.cast %ids : tensor<64xi32> to tensor<?xi32>
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%all : tensor<?xi32>)
    mask(%b, %h, %i, %j, %of) {
      %mine = tensor.extract %of[%i] : tensor<?xi32>
      %its = tensor.extract %of[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %mine, %its : i32
      attn.yield %same : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

func.func @doubled(%q: tensor<?x?x?x64xf32>, %ids: tensor<?xi32>) -> tensor<?x?x?x64xf32> {
  %n = arith.constant 0 : index
  %size = tensor.dim %ids, %n : tensor<?xi32>
  %empty = tensor.empty(%size) : tensor<?xi32>
  %twice = linalg.add ins(%ids, %ids : tensor<?xi32>, tensor<?xi32>) outs(%empty : tensor<?xi32>) -> tensor<?xi32>
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%twice : tensor<?xi32>)
    mask(%b, %h, %i, %j, %of) {
      %mine = tensor.extract %of[%i] : tensor<?xi32>
      %its = tensor.extract %of[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %mine, %its : i32
      attn.yield %same : i1
    } : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
