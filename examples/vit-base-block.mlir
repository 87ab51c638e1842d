// A block of ViT-Base (Dosovitskiy et al. 2021): width 768, 12 heads of 64, MLP of 3072; images of 224×224 in patches
// of 16×16 make 196 tokens, so the usual input is 32×196×768. Batch and sequence are dynamic.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>
#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>

// x + attention(norm(x)), then that + mlp(norm(that)): the norm stands in front of each half.
func.func @vit_base_block(%x: tensor<?x?x768xf32>,
    %gamma1: tensor<768xf32>, %beta1: tensor<768xf32>, %wqkv: tensor<2304x768xf32>, %bqkv: tensor<2304xf32>,
    %wo: tensor<768x768xf32>, %bo: tensor<768xf32>, %gamma2: tensor<768xf32>, %beta2: tensor<768xf32>,
    %w1: tensor<3072x768xf32>, %b1: tensor<3072xf32>, %w2: tensor<768x3072xf32>, %b2: tensor<768xf32>)
    -> tensor<?x?x768xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x768xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x768xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x768xf32> into tensor<?x768xf32>
  %count = tensor.dim %tokens, %c0 : tensor<?x768xf32>
  %empty = tensor.empty(%count) : tensor<?x768xf32>

  %normal1 = func.call @layer_norm(%tokens, %gamma1, %beta1)
    : (tensor<?x768xf32>, tensor<768xf32>, tensor<768xf32>) -> tensor<?x768xf32>
  %normal1b = tensor.expand_shape %normal1 [[0, 1], [2]] output_shape [%batch, %sequence, 768]
    : tensor<?x768xf32> into tensor<?x?x768xf32>
  %attended = func.call @vit_base_attention(%normal1b, %wqkv, %bqkv, %wo, %bo)
    : (tensor<?x?x768xf32>, tensor<2304x768xf32>, tensor<2304xf32>, tensor<768x768xf32>, tensor<768xf32>)
    -> tensor<?x?x768xf32>
  %attended2 = tensor.collapse_shape %attended [[0, 1], [2]] : tensor<?x?x768xf32> into tensor<?x768xf32>
  %half = linalg.add ins(%tokens, %attended2 : tensor<?x768xf32>, tensor<?x768xf32>)
    outs(%empty : tensor<?x768xf32>) -> tensor<?x768xf32>

  %normal2 = func.call @layer_norm(%half, %gamma2, %beta2)
    : (tensor<?x768xf32>, tensor<768xf32>, tensor<768xf32>) -> tensor<?x768xf32>
  %wide = tensor.empty(%count) : tensor<?x3072xf32>
  %bias1 = linalg.broadcast ins(%b1 : tensor<3072xf32>) outs(%wide : tensor<?x3072xf32>) dimensions = [0]
  %hidden = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%normal2, %w1 : tensor<?x768xf32>, tensor<3072x768xf32>) outs(%bias1 : tensor<?x3072xf32>)
    -> tensor<?x3072xf32>
  %active = func.call @gelu(%hidden) : (tensor<?x3072xf32>) -> tensor<?x3072xf32>
  %bias2 = linalg.broadcast ins(%b2 : tensor<768xf32>) outs(%empty : tensor<?x768xf32>) dimensions = [0]
  %mlp = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%active, %w2 : tensor<?x3072xf32>, tensor<768x3072xf32>) outs(%bias2 : tensor<?x768xf32>)
    -> tensor<?x768xf32>
  %sum = linalg.add ins(%half, %mlp : tensor<?x768xf32>, tensor<?x768xf32>) outs(%empty : tensor<?x768xf32>)
    -> tensor<?x768xf32>
  %y = tensor.expand_shape %sum [[0, 1], [2]] output_shape [%batch, %sequence, 768]
    : tensor<?x768xf32> into tensor<?x?x768xf32>
  return %y : tensor<?x?x768xf32>
}

// The attention half alone: 768·2304 + 768·768 weights, about 2.4 M.
func.func @vit_base_attention(%x: tensor<?x?x768xf32>, %wqkv: tensor<2304x768xf32>, %bqkv: tensor<2304xf32>,
                              %wo: tensor<768x768xf32>, %bo: tensor<768xf32>) -> tensor<?x?x768xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x768xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x768xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x768xf32> into tensor<?x768xf32>
  %count = tensor.dim %tokens, %c0 : tensor<?x768xf32>

  %wide = tensor.empty(%count) : tensor<?x2304xf32>
  %bias = linalg.broadcast ins(%bqkv : tensor<2304xf32>) outs(%wide : tensor<?x2304xf32>) dimensions = [0]
  %projected = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%tokens, %wqkv : tensor<?x768xf32>, tensor<2304x768xf32>) outs(%bias : tensor<?x2304xf32>)
    -> tensor<?x2304xf32>
  %qkv = tensor.expand_shape %projected [[0, 1], [2, 3, 4]] output_shape [%batch, %sequence, 3, 12, 64]
    : tensor<?x2304xf32> into tensor<?x?x3x12x64xf32>
  %q = tensor.extract_slice %qkv[0, 0, 0, 0, 0] [%batch, %sequence, 1, 12, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x12x64xf32> to tensor<?x?x12x64xf32>
  %k = tensor.extract_slice %qkv[0, 0, 1, 0, 0] [%batch, %sequence, 1, 12, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x12x64xf32> to tensor<?x?x12x64xf32>
  %v = tensor.extract_slice %qkv[0, 0, 2, 0, 0] [%batch, %sequence, 1, 12, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x12x64xf32> to tensor<?x?x12x64xf32>

  %heads = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d]
    : (tensor<?x?x12x64xf32>, tensor<?x?x12x64xf32>, tensor<?x?x12x64xf32>) -> tensor<?x?x12x64xf32>

  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x12x64xf32> into tensor<?x768xf32>
  %empty = tensor.empty(%count) : tensor<?x768xf32>
  %bias_out = linalg.broadcast ins(%bo : tensor<768xf32>) outs(%empty : tensor<?x768xf32>) dimensions = [0]
  %o = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%joined, %wo : tensor<?x768xf32>, tensor<768x768xf32>) outs(%bias_out : tensor<?x768xf32>)
    -> tensor<?x768xf32>
  %y = tensor.expand_shape %o [[0, 1], [2]] output_shape [%batch, %sequence, 768]
    : tensor<?x768xf32> into tensor<?x?x768xf32>
  return %y : tensor<?x?x768xf32>
}

// (x − mean) / √(variance + 1e-6) · gamma + beta, over the width.
func.func private @layer_norm(%x: tensor<?x768xf32>, %gamma: tensor<768xf32>, %beta: tensor<768xf32>)
    -> tensor<?x768xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %width = arith.constant 768.0 : f32
  %epsilon = arith.constant 1.0e-6 : f32
  %count = tensor.dim %x, %c0 : tensor<?x768xf32>
  %empty = tensor.empty(%count) : tensor<?x768xf32>
  %empty1 = tensor.empty(%count) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty1 : tensor<?xf32>) -> tensor<?xf32>
  %sums = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x768xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%e: f32, %acc: f32):
      %a = arith.addf %acc, %e : f32
      linalg.yield %a : f32
    } -> tensor<?xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x, %sums : tensor<?x768xf32>, tensor<?xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%e: f32, %sum: f32, %acc: f32):
      %mean = arith.divf %sum, %width : f32
      %centred = arith.subf %e, %mean : f32
      %square = arith.mulf %centred, %centred : f32
      %a = arith.addf %acc, %square : f32
      linalg.yield %a : f32
    } -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #row, #column, #column, #all],
                       iterator_types = ["parallel", "parallel"]}
    ins(%x, %sums, %squares, %gamma, %beta
        : tensor<?x768xf32>, tensor<?xf32>, tensor<?xf32>, tensor<768xf32>, tensor<768xf32>)
    outs(%empty : tensor<?x768xf32>) {
    ^bb0(%e: f32, %sum: f32, %sum2: f32, %g: f32, %b: f32, %out: f32):
      %mean = arith.divf %sum, %width : f32
      %centred = arith.subf %e, %mean : f32
      %variance = arith.divf %sum2, %width : f32
      %guarded = arith.addf %variance, %epsilon : f32
      %inverse = math.rsqrt %guarded : f32
      %unit = arith.mulf %centred, %inverse : f32
      %scaled = arith.mulf %unit, %g : f32
      %shifted = arith.addf %scaled, %b : f32
      linalg.yield %shifted : f32
    } -> tensor<?x768xf32>
  return %y : tensor<?x768xf32>
}

// x · (1 + erf(x / √2)) / 2
func.func private @gelu(%x: tensor<?x3072xf32>) -> tensor<?x3072xf32> {
  %c0 = arith.constant 0 : index
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %inverse_sqrt2 = arith.constant 0.707106781 : f32
  %count = tensor.dim %x, %c0 : tensor<?x3072xf32>
  %empty = tensor.empty(%count) : tensor<?x3072xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x3072xf32>) outs(%empty : tensor<?x3072xf32>) {
    ^bb0(%e: f32, %out: f32):
      %argument = arith.mulf %e, %inverse_sqrt2 : f32
      %erf = math.erf %argument : f32
      %twice = arith.addf %erf, %one : f32
      %cdf = arith.mulf %twice, %half : f32
      %g = arith.mulf %e, %cdf : f32
      linalg.yield %g : f32
    } -> tensor<?x3072xf32>
  return %y : tensor<?x3072xf32>
}
