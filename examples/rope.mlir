// Rotary positions (Su et al. 2021, halves as in Llama): queries and keys are turned by an angle a position before
// attention, which reads what that leaves.

#row = affine_map<(h, s, d) -> (h, s, d)>
#table = affine_map<(h, s, d) -> (s, d)>

func.func private @turn(%x: tensor<?x?x64xf32>, %cos: tensor<?x32xf32>, %sin: tensor<?x32xf32>) -> tensor<?x?x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %h = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %s = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %low = tensor.extract_slice %x[0, 0, 0] [%h, %s, 32] [1, 1, 1] : tensor<?x?x64xf32> to tensor<?x?x32xf32>
  %high = tensor.extract_slice %x[0, 0, 32] [%h, %s, 32] [1, 1, 1] : tensor<?x?x64xf32> to tensor<?x?x32xf32>
  %empty = tensor.empty(%h, %s) : tensor<?x?x32xf32>
  %first = linalg.generic {indexing_maps = [#row, #row, #table, #table, #row],
                           iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%low, %high, %cos, %sin : tensor<?x?x32xf32>, tensor<?x?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>)
    outs(%empty : tensor<?x?x32xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %d: f32, %out: f32):
      %ac = arith.mulf %a, %c : f32
      %bd = arith.mulf %b, %d : f32
      %r = arith.subf %ac, %bd : f32
      linalg.yield %r : f32
    } -> tensor<?x?x32xf32>
  %second = linalg.generic {indexing_maps = [#row, #row, #table, #table, #row],
                            iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%low, %high, %cos, %sin : tensor<?x?x32xf32>, tensor<?x?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>)
    outs(%empty : tensor<?x?x32xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %d: f32, %out: f32):
      %bc = arith.mulf %b, %c : f32
      %ad = arith.mulf %a, %d : f32
      %r = arith.addf %bc, %ad : f32
      linalg.yield %r : f32
    } -> tensor<?x?x32xf32>
  %turned = tensor.concat dim(2) %first, %second : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x64xf32>
  return %turned : tensor<?x?x64xf32>
}

func.func @rope_attention(%q: tensor<?x?x64xf32>, %k: tensor<?x?x64xf32>, %v: tensor<?x?x64xf32>,
                          %cos: tensor<?x32xf32>, %sin: tensor<?x32xf32>) -> tensor<?x?x64xf32> {
  %tq = call @turn(%q, %cos, %sin) : (tensor<?x?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<?x?x64xf32>
  %tk = call @turn(%k, %cos, %sin) : (tensor<?x?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<?x?x64xf32>
  %o = attn.attention %tq[h,s,d], %tk[h,s,d], %v[h,s,d] mask causal<top_left>
    : (tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %o : tensor<?x?x64xf32>
}
