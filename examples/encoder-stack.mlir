// A Transformer encoder of two layers (Vaswani et al. 2017): width 256, 4 heads of 64, feed-forward of 1024, the norm
// behind each residual. The positional encoding is an input, whichever it is (sinusoidal, learned).

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>
#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
#token = affine_map<(b, s, d) -> (b, s, d)>
#position = affine_map<(b, s, d) -> (s, d)>

// Both layers' weights are stacked along their first dimension. Tokens from a batch's length on are padding.
func.func @encoder_stack(%x: tensor<?x?x256xf32>, %positions: tensor<?x256xf32>, %lengths: tensor<?xi32>,
    %wqkv: tensor<2x768x256xf32>, %bqkv: tensor<2x768xf32>, %wo: tensor<2x256x256xf32>, %bo: tensor<2x256xf32>,
    %gamma1: tensor<2x256xf32>, %beta1: tensor<2x256xf32>, %w1: tensor<2x1024x256xf32>, %b1: tensor<2x1024xf32>,
    %w2: tensor<2x256x1024xf32>, %b2: tensor<2x256xf32>, %gamma2: tensor<2x256xf32>, %beta2: tensor<2x256xf32>)
    -> tensor<?x?x256xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x256xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x256xf32>
  %empty = tensor.empty(%batch, %sequence) : tensor<?x?x256xf32>
  %placed = linalg.generic {indexing_maps = [#token, #position, #token],
                            iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x, %positions : tensor<?x?x256xf32>, tensor<?x256xf32>) outs(%empty : tensor<?x?x256xf32>) {
    ^bb0(%e: f32, %p: f32, %out: f32):
      %sum = arith.addf %e, %p : f32
      linalg.yield %sum : f32
    } -> tensor<?x?x256xf32>

  %first = func.call @layer(%c0, %placed, %lengths, %wqkv, %bqkv, %wo, %bo, %gamma1, %beta1, %w1, %b1, %w2, %b2,
                            %gamma2, %beta2)
    : (index, tensor<?x?x256xf32>, tensor<?xi32>, tensor<2x768x256xf32>, tensor<2x768xf32>, tensor<2x256x256xf32>,
       tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x1024x256xf32>, tensor<2x1024xf32>,
       tensor<2x256x1024xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>) -> tensor<?x?x256xf32>
  %second = func.call @layer(%c1, %first, %lengths, %wqkv, %bqkv, %wo, %bo, %gamma1, %beta1, %w1, %b1, %w2, %b2,
                             %gamma2, %beta2)
    : (index, tensor<?x?x256xf32>, tensor<?xi32>, tensor<2x768x256xf32>, tensor<2x768xf32>, tensor<2x256x256xf32>,
       tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x1024x256xf32>, tensor<2x1024xf32>,
       tensor<2x256x1024xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>) -> tensor<?x?x256xf32>
  return %second : tensor<?x?x256xf32>
}

// norm(x + attention(x)), then norm(that + feed_forward(that)), with the weights of layer %i.
func.func private @layer(%i: index, %x: tensor<?x?x256xf32>, %lengths: tensor<?xi32>,
    %wqkv: tensor<2x768x256xf32>, %bqkv: tensor<2x768xf32>, %wo: tensor<2x256x256xf32>, %bo: tensor<2x256xf32>,
    %gamma1: tensor<2x256xf32>, %beta1: tensor<2x256xf32>, %w1: tensor<2x1024x256xf32>, %b1: tensor<2x1024xf32>,
    %w2: tensor<2x256x1024xf32>, %b2: tensor<2x256xf32>, %gamma2: tensor<2x256xf32>, %beta2: tensor<2x256xf32>)
    -> tensor<?x?x256xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %batch = tensor.dim %x, %c0 : tensor<?x?x256xf32>
  %sequence = tensor.dim %x, %c1 : tensor<?x?x256xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x256xf32> into tensor<?x256xf32>
  %count = tensor.dim %tokens, %c0 : tensor<?x256xf32>
  %empty = tensor.empty(%count) : tensor<?x256xf32>

  // Queries, keys and values from one projection.
  %wqkv_i = tensor.extract_slice %wqkv[%i, 0, 0] [1, 768, 256] [1, 1, 1]
    : tensor<2x768x256xf32> to tensor<768x256xf32>
  %bqkv_i = tensor.extract_slice %bqkv[%i, 0] [1, 768] [1, 1] : tensor<2x768xf32> to tensor<768xf32>
  %empty_qkv = tensor.empty(%count) : tensor<?x768xf32>
  %bias_qkv = linalg.broadcast ins(%bqkv_i : tensor<768xf32>) outs(%empty_qkv : tensor<?x768xf32>) dimensions = [0]
  %projected = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%tokens, %wqkv_i : tensor<?x256xf32>, tensor<768x256xf32>) outs(%bias_qkv : tensor<?x768xf32>)
    -> tensor<?x768xf32>
  %qkv = tensor.expand_shape %projected [[0, 1], [2, 3, 4]] output_shape [%batch, %sequence, 3, 4, 64]
    : tensor<?x768xf32> into tensor<?x?x3x4x64xf32>
  %q = tensor.extract_slice %qkv[0, 0, 0, 0, 0] [%batch, %sequence, 1, 4, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x4x64xf32> to tensor<?x?x4x64xf32>
  %k = tensor.extract_slice %qkv[0, 0, 1, 0, 0] [%batch, %sequence, 1, 4, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x4x64xf32> to tensor<?x?x4x64xf32>
  %v = tensor.extract_slice %qkv[0, 0, 2, 0, 0] [%batch, %sequence, 1, 4, 64] [1, 1, 1, 1, 1]
    : tensor<?x?x3x4x64xf32> to tensor<?x?x4x64xf32>

  %heads = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] kv_len(%lengths : tensor<?xi32>)
    : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x?x4x64xf32>

  // Output projection, residual, norm.
  %joined = tensor.collapse_shape %heads [[0, 1], [2, 3]] : tensor<?x?x4x64xf32> into tensor<?x256xf32>
  %wo_i = tensor.extract_slice %wo[%i, 0, 0] [1, 256, 256] [1, 1, 1] : tensor<2x256x256xf32> to tensor<256x256xf32>
  %bo_i = tensor.extract_slice %bo[%i, 0] [1, 256] [1, 1] : tensor<2x256xf32> to tensor<256xf32>
  %bias_o = linalg.broadcast ins(%bo_i : tensor<256xf32>) outs(%empty : tensor<?x256xf32>) dimensions = [0]
  %attended = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%joined, %wo_i : tensor<?x256xf32>, tensor<256x256xf32>) outs(%bias_o : tensor<?x256xf32>)
    -> tensor<?x256xf32>
  %sum1 = linalg.add ins(%tokens, %attended : tensor<?x256xf32>, tensor<?x256xf32>) outs(%empty : tensor<?x256xf32>)
    -> tensor<?x256xf32>
  %gamma1_i = tensor.extract_slice %gamma1[%i, 0] [1, 256] [1, 1] : tensor<2x256xf32> to tensor<256xf32>
  %beta1_i = tensor.extract_slice %beta1[%i, 0] [1, 256] [1, 1] : tensor<2x256xf32> to tensor<256xf32>
  %half = func.call @layer_norm(%sum1, %gamma1_i, %beta1_i)
    : (tensor<?x256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<?x256xf32>

  // Feed-forward with ReLU, residual, norm.
  %w1_i = tensor.extract_slice %w1[%i, 0, 0] [1, 1024, 256] [1, 1, 1]
    : tensor<2x1024x256xf32> to tensor<1024x256xf32>
  %b1_i = tensor.extract_slice %b1[%i, 0] [1, 1024] [1, 1] : tensor<2x1024xf32> to tensor<1024xf32>
  %empty_wide = tensor.empty(%count) : tensor<?x1024xf32>
  %bias1 = linalg.broadcast ins(%b1_i : tensor<1024xf32>) outs(%empty_wide : tensor<?x1024xf32>) dimensions = [0]
  %hidden = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%half, %w1_i : tensor<?x256xf32>, tensor<1024x256xf32>) outs(%bias1 : tensor<?x1024xf32>)
    -> tensor<?x1024xf32>
  %active = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%hidden : tensor<?x1024xf32>) outs(%empty_wide : tensor<?x1024xf32>) {
    ^bb0(%e: f32, %out: f32):
      %relu = arith.maximumf %e, %zero : f32
      linalg.yield %relu : f32
    } -> tensor<?x1024xf32>
  %w2_i = tensor.extract_slice %w2[%i, 0, 0] [1, 256, 1024] [1, 1, 1]
    : tensor<2x256x1024xf32> to tensor<256x1024xf32>
  %b2_i = tensor.extract_slice %b2[%i, 0] [1, 256] [1, 1] : tensor<2x256xf32> to tensor<256xf32>
  %bias2 = linalg.broadcast ins(%b2_i : tensor<256xf32>) outs(%empty : tensor<?x256xf32>) dimensions = [0]
  %fed = linalg.matmul indexing_maps = [#rows, #weights, #result]
    ins(%active, %w2_i : tensor<?x1024xf32>, tensor<256x1024xf32>) outs(%bias2 : tensor<?x256xf32>)
    -> tensor<?x256xf32>
  %sum2 = linalg.add ins(%half, %fed : tensor<?x256xf32>, tensor<?x256xf32>) outs(%empty : tensor<?x256xf32>)
    -> tensor<?x256xf32>
  %gamma2_i = tensor.extract_slice %gamma2[%i, 0] [1, 256] [1, 1] : tensor<2x256xf32> to tensor<256xf32>
  %beta2_i = tensor.extract_slice %beta2[%i, 0] [1, 256] [1, 1] : tensor<2x256xf32> to tensor<256xf32>
  %normal = func.call @layer_norm(%sum2, %gamma2_i, %beta2_i)
    : (tensor<?x256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<?x256xf32>
  %y = tensor.expand_shape %normal [[0, 1], [2]] output_shape [%batch, %sequence, 256]
    : tensor<?x256xf32> into tensor<?x?x256xf32>
  return %y : tensor<?x?x256xf32>
}

// (x − mean) / √(variance + 1e-5) · gamma + beta, over the width.
func.func private @layer_norm(%x: tensor<?x256xf32>, %gamma: tensor<256xf32>, %beta: tensor<256xf32>)
    -> tensor<?x256xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %width = arith.constant 256.0 : f32
  %epsilon = arith.constant 1.0e-5 : f32
  %count = tensor.dim %x, %c0 : tensor<?x256xf32>
  %empty = tensor.empty(%count) : tensor<?x256xf32>
  %empty1 = tensor.empty(%count) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty1 : tensor<?xf32>) -> tensor<?xf32>
  %sums = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x256xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%e: f32, %acc: f32):
      %a = arith.addf %acc, %e : f32
      linalg.yield %a : f32
    } -> tensor<?xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x, %sums : tensor<?x256xf32>, tensor<?xf32>) outs(%zeros : tensor<?xf32>) {
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
        : tensor<?x256xf32>, tensor<?xf32>, tensor<?xf32>, tensor<256xf32>, tensor<256xf32>)
    outs(%empty : tensor<?x256xf32>) {
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
    } -> tensor<?x256xf32>
  return %y : tensor<?x256xf32>
}
