// Programs similar to attention that must not be raised entirely: slices of scores, weights and operands, bounded sums,
// masks that depend on scores, penalties that are not masks.

func.func @part_of_a_cache(%q: tensor<8x64xf32>, %kf: tensor<64x128xf32>, %vf: tensor<128x64xf32>, %n: index) -> tensor<8x64xf32> {
  %v = tensor.extract_slice %vf[0,0][%n,64][1,1] : tensor<128x64xf32> to tensor<?x64xf32>
  %k = tensor.extract_slice %kf[0,0][64,%n][1,1] : tensor<64x128xf32> to tensor<64x?xf32>
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty(%n) : tensor<8x?xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x?xf32>) -> tensor<8x?xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x?xf32>) outs(%s0 : tensor<8x?xf32>) -> tensor<8x?xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<8x?xf32>) outs(%se : tensor<8x?xf32>) -> tensor<8x?xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x?xf32>, tensor<?x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @part_of_keys(%q: tensor<8x64xf32>, %kf: tensor<64x32xf32>, %vf: tensor<32x64xf32>) -> tensor<8x64xf32> {
  %v = tensor.extract_slice %vf[0,0][16,64][1,1] : tensor<32x64xf32> to tensor<16x64xf32>
  %k = tensor.extract_slice %kf[0,0][64,16][1,1] : tensor<64x32xf32> to tensor<64x16xf32>
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @part_of_the_depth(%qf: tensor<8x96xf32>, %kf: tensor<96x16xf32>, %v: tensor<16x64xf32>) -> tensor<8x64xf32> {
  %q = tensor.extract_slice %qf[0,0][8,64][1,1] : tensor<8x96xf32> to tensor<8x64xf32>
  %k = tensor.extract_slice %kf[0,0][64,16][1,1] : tensor<96x16xf32> to tensor<64x16xf32>
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

// queries sliced: half of a fused projection, sequence slice of q
func.func @parts_of_one_projection(%qkv: tensor<16x192xf32>) -> tensor<16x64xf32> {
  %q = tensor.extract_slice %qkv[0,0][16,64][1,1] : tensor<16x192xf32> to tensor<16x64xf32>
  %k = tensor.extract_slice %qkv[0,64][16,64][1,1] : tensor<16x192xf32> to tensor<16x64xf32>
  %v = tensor.extract_slice %qkv[0,128][16,64][1,1] : tensor<16x192xf32> to tensor<16x64xf32>
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<16x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<16x16xf32>) -> tensor<16x16xf32>
  %te = tensor.empty() : tensor<64x16xf32>
  %kt = linalg.transpose ins(%k : tensor<16x64xf32>) outs(%te : tensor<64x16xf32>) permutation = [1, 0]
  %s = linalg.matmul ins(%q, %kt : tensor<16x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<16x16xf32>) -> tensor<16x16xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<16x16xf32>) outs(%se : tensor<16x16xf32>) -> tensor<16x16xf32>
  %oe = tensor.empty() : tensor<16x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<16x64xf32>) -> tensor<16x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<16x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<16x64xf32>) -> tensor<16x64xf32>
  return %o : tensor<16x64xf32>
}

func.func @sum_of_some_keys(%q: tensor<8x64xf32>, %k: tensor<64x16xf32>, %v: tensor<16x64xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %ze = tensor.empty() : tensor<8x16xf32>
  %re = tensor.empty() : tensor<8xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%re : tensor<8xf32>) -> tensor<8xf32>
  %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x16xf32>) outs(%ze : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %es = tensor.extract_slice %e[0,0][8,8][1,1] : tensor<8x16xf32> to tensor<8x8xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%es : tensor<8x8xf32>) outs(%r0 : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%e, %sum : tensor<8x16xf32>, tensor<8xf32>) outs(%ze : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @bounded_sum(%q: tensor<8x64xf32>, %k: tensor<64x16xf32>, %v: tensor<16x64xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %ze = tensor.empty() : tensor<8x16xf32>
  %re = tensor.empty() : tensor<8xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%re : tensor<8xf32>) -> tensor<8xf32>
  %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x16xf32>) outs(%ze : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<8x16xf32>) outs(%r0 : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i)->(i)>, affine_map<(i)->(i)>], iterator_types = ["parallel"]}
      ins(%sum : tensor<8xf32>) outs(%re : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %th = arith.constant 1000.0 : f32
    %c = arith.cmpf ogt, %x, %th : f32
    %r = arith.select %c, %x, %th : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%e, %g : tensor<8x16xf32>, tensor<8xf32>) outs(%ze : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @mask_of_scores(%q: tensor<8x64xf32>, %k: tensor<64x16xf32>, %v: tensor<16x64xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %th = arith.constant 0.1 : f32
    %ni = arith.constant 0xFF800000 : f32
    %c = arith.cmpf ogt, %x, %th : f32
    %r = arith.select %c, %x, %ni : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @some_weights(%q: tensor<8x64xf32>, %k: tensor<64x16xf32>, %v: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %ze = tensor.empty() : tensor<8x16xf32>
  %re = tensor.empty() : tensor<8xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%re : tensor<8xf32>) -> tensor<8xf32>
  %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x16xf32>) outs(%ze : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<8x16xf32>) outs(%r0 : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%e, %sum : tensor<8x16xf32>, tensor<8xf32>) outs(%ze : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %ps = tensor.extract_slice %p[0,0][8,8][1,1] : tensor<8x16xf32> to tensor<8x8xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%ps, %v : tensor<8x8xf32>, tensor<8x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @soft_penalty(%q: tensor<8x64xf32>, %k: tensor<64x16xf32>, %v: tensor<16x64xf32>, %d: tensor<8x16xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s, %d : tensor<8x16xf32>, tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) {
  ^bb0(%x: f32, %p: f32, %y: f32):
    %c = arith.constant -1.0e4 : f32
    %t = arith.mulf %p, %c : f32
    %r = arith.addf %x, %t : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @sentinel_scaled_away(%q: tensor<8x64xf32>, %k: tensor<64x16xf32>, %v: tensor<16x64xf32>, %d: tensor<8x16xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x16xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x16xf32>) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s, %d : tensor<8x16xf32>, tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) {
  ^bb0(%x: f32, %p: f32, %y: f32):
    %c = arith.constant -1.0e4 : f32
    %sc = arith.constant 0.0005 : f32
    %hf = arith.constant 0.5 : f32
    %cc = arith.cmpf ogt, %p, %hf : f32
    %t = arith.select %cc, %x, %c : f32
    %r = arith.mulf %t, %sc : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<8x16xf32>) outs(%se : tensor<8x16xf32>) -> tensor<8x16xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

func.func @unsigned_distance(%q: tensor<8x64xf32>, %k: tensor<64x300xf32>, %v: tensor<300x64xf32>) -> tensor<8x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<8x300xf32>
  %s0 = linalg.fill ins(%c0 : f32) outs(%se : tensor<8x300xf32>) -> tensor<8x300xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x64xf32>, tensor<64x300xf32>) outs(%s0 : tensor<8x300xf32>) -> tensor<8x300xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x300xf32>) outs(%se : tensor<8x300xf32>) {
  ^bb0(%x: f32, %y: f32):
    %ni = arith.constant -1.0e9 : f32
    %j = linalg.index 1 : index
    %i = linalg.index 0 : index
    %ww = arith.index_cast %j : index to i32
    %wi = arith.index_cast %i : index to i32
    %w = arith.subi %wi, %ww : i32
    %wx = arith.extui %w : i32 to i64
    %lim = arith.constant 4 : i64
    %c = arith.cmpi slt, %wx, %lim : i64
    %r = arith.select %c, %x, %ni : f32
    linalg.yield %r : f32
  } -> tensor<8x300xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<8x300xf32>) outs(%se : tensor<8x300xf32>) -> tensor<8x300xf32>
  %oe = tensor.empty() : tensor<8x64xf32>
  %o0 = linalg.fill ins(%c0 : f32) outs(%oe : tensor<8x64xf32>) -> tensor<8x64xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x300xf32>, tensor<300x64xf32>) outs(%o0 : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}
