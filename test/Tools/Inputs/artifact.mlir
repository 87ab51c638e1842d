// The program of the shared library tests: several results, integer and float scalars, 16-bit tensors, a function of
// libm, and names that are keywords of C.
func.func @attend(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %v: tensor<?x?x?x8xf32>, %factor: f32,
                  %keys: index) -> (tensor<?x?x?x8xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%keys : index) scale(%factor : f32)
    mask causal<bottom_right> lse
    : (tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x8xf32>) -> (tensor<?x?x?x8xf32>, tensor<?x?x?xf32>)
  return %o, %l : tensor<?x?x?x8xf32>, tensor<?x?x?xf32>
}

func.func @attend_bf16(%q: tensor<?x8xbf16>, %k: tensor<?x8xbf16>, %v: tensor<?x8xbf16>) -> tensor<?x8xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x8xbf16>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

func.func @exponential(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.exp %x : tensor<?xf64>
  return %y : tensor<?xf64>
}

func.func @keywords(%class: tensor<?xf32>, %int: i1, %sizes: i32, %_x.y: index) -> tensor<?xf32> {
  %zero = arith.constant 0 : i32
  %double = arith.addi %sizes, %sizes : i32
  %chosen = arith.select %int, %double, %zero : i32
  %number = arith.sitofp %chosen : i32 to f32
  %n = tensor.dim %class, %_x.y : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%number : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = arith.addf %class, %f : tensor<?xf32>
  return %r : tensor<?xf32>
}
