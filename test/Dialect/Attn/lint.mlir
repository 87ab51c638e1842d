// RUN: saccade-opt %s --attn-lint --split-input-file --verify-diagnostics -o %t
// RUN: FileCheck %s --input-file=%t

//===----------------------------------------------------------------------===//
// Scale
//===----------------------------------------------------------------------===//

// EXAMPLE
// The pass does not change the module.
// CHECK-LABEL: func.func @scale_of_all_heads
// CHECK: scale(0.044194173824159216)
func.func @scale_of_all_heads(%x: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  // expected-warning @+1 {{scale is 1/√512, the width of all 8 heads together; expected 1/√64, the head size}}
  %o = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] scale(0.044194173824159216)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

// The width is that of the query heads, not of the KV heads.
func.func @scale_of_all_query_heads(%q: tensor<8x?x64xf32>, %k: tensor<2x?x64xf32>) -> tensor<8x?x64xf32> {
  // expected-warning @+1 {{scale is 1/√512, the width of all 8 heads together}}
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d] scale(0.0442)
    : (tensor<8x?x64xf32>, tensor<2x?x64xf32>, tensor<2x?x64xf32>) -> tensor<8x?x64xf32>
  return %o : tensor<8x?x64xf32>
}

func.func @scale_of_one_head(%x: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  %0 = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] scale(0.125)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  %1 = attn.attention %0[b,h,s,d], %0[b,h,s,d], %0[b,h,s,d]
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %1 : tensor<?x8x?x64xf32>
}

// No warning for other scales.
func.func @learned_scale(%x: tensor<?x8x?x64xf32>, %t: f32) -> tensor<?x8x?x64xf32> {
  %0 = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] scale(10.0)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  %1 = attn.attention %0[b,h,s,d], %0[b,h,s,d], %0[b,h,s,d] scale(%t : f32)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %1 : tensor<?x8x?x64xf32>
}

func.func @scale_computed_from_the_width(%x: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  %one = arith.constant 1.0 : f32
  %width = arith.constant 512.0 : f32
  %root = math.sqrt %width : f32
  %scale = arith.divf %one, %root : f32
  // expected-warning @+1 {{scale is 1/√512, the width of all 8 heads together}}
  %o = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] scale(%scale : f32)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

func.func @scale_computed_from_the_head_size(%x: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  %size = arith.constant 64.0 : f32
  %scale = math.rsqrt %size : f32
  %o = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] scale(%scale : f32)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

func.func @scale_without_the_root(%x: tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32> {
  // expected-warning @+1 {{scale is 1/64, without the square root; expected 1/√64, the head size}}
  %o = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d] scale(0.015625)
    : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o : tensor<?x8x?x64xf32>
}

// -----

// The head count is dynamic, but the width is static before a transpose, a reshape and a slice.
func.func @heads_cut_from_a_width(%x: tensor<?x?x1536xf32>, %b: index, %s: index, %h: index) -> tensor<?x?x?x64xf32> {
  %part = tensor.extract_slice %x[0, 0, 512] [%b, %s, 512] [1, 1, 1] : tensor<?x?x1536xf32> to tensor<?x?x512xf32>
  %width = tensor.cast %part : tensor<?x?x512xf32> to tensor<?x?x?xf32>
  %heads = tensor.expand_shape %width [[0], [1], [2, 3]] output_shape [%b, %s, %h, 64]
    : tensor<?x?x?xf32> into tensor<?x?x?x64xf32>
  %empty = tensor.empty(%b, %h, %s) : tensor<?x?x?x64xf32>
  %q = linalg.transpose ins(%heads : tensor<?x?x?x64xf32>) outs(%empty : tensor<?x?x?x64xf32>) permutation = [0, 2, 1, 3]
  // expected-warning @+1 {{scale is 1/√512, the width that the heads are cut from; expected 1/√64, the head size}}
  %0 = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] scale(0.044194)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  %1 = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] scale(0.125)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  %2 = linalg.add ins(%0, %1 : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) outs(%empty : tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32>
  return %2 : tensor<?x?x?x64xf32>
}

// A head that is sliced from all, with a dropped dimension before it.
func.func @one_head_cut_from_a_width(%x: tensor<2x?x512xf32>, %s: index, %head: index) -> tensor<?x64xf32> {
  %q = tensor.extract_slice %x[1, 0, %head] [1, %s, 64] [1, 1, 1] : tensor<2x?x512xf32> to tensor<?x64xf32>
  // expected-warning @+1 {{scale is 1/√512, the width that the heads are cut from}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(0.044194)
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// A single head that is projected from the embedding, with a bias, and scaled by the width of the embedding.
func.func @head_projected_from_a_width(%x: tensor<?x384xf32>, %w: tensor<384x64xf32>, %bias: tensor<?x64xf32>,
                                       %init: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %product = linalg.matmul ins(%x, %w : tensor<?x384xf32>, tensor<384x64xf32>) outs(%init : tensor<?x64xf32>)
    -> tensor<?x64xf32>
  %q = linalg.add ins(%product, %bias : tensor<?x64xf32>, tensor<?x64xf32>) outs(%init : tensor<?x64xf32>)
    -> tensor<?x64xf32>
  // expected-warning @+1 {{scale is 1/√384, the width that queries are projected from; expected 1/√64, the head size}}
  %0 = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(0.0510310363)
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  %1 = attn.attention %0[s,d], %0[s,d], %0[s,d] scale(0.0510310363)
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %1 : tensor<?x64xf32>
}

// Unreachable code may have cyclic uses.
func.func @walks_in_circles(%n: index) {
  return
^never:
  %t = tensor.cast %u : tensor<?x64xf32> to tensor<?x64xf32>
  %u = tensor.cast %t : tensor<?x64xf32> to tensor<?x64xf32>
  %o = attn.attention %u[s,d], %u[s,d], %u[s,d] scale(0.044194)
    : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  cf.br ^never
}

// -----

//===----------------------------------------------------------------------===//
// Mask
//===----------------------------------------------------------------------===//

func.func @mask_of_the_head_size(%x: tensor<?x64xf32>, %tril: tensor<64x64xi1>) -> tensor<?x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%tril : tensor<64x64xi1>)
    mask(%b, %h, %i, %j, %m) {
      // expected-warning @+1 {{mask covers 64 × 64 positions, which is the head size; expected the sequence lengths}}
      %allowed = tensor.extract %m[%i, %j] : tensor<64x64xi1>
      attn.yield %allowed : i1
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @padding_mask_of_the_head_size(%x: tensor<2x128x64xf32>, %valid: tensor<2x64xi1>) -> tensor<2x128x64xf32> {
  %o = attn.attention %x[b,s,d], %x[b,s,d], %x[b,s,d] captures(%valid : tensor<2x64xi1>)
    mask(%b, %h, %i, %j, %m) {
      // expected-warning @+1 {{mask covers 64 keys, which is the head size; expected the length of the key}}
      %allowed = tensor.extract %m[%b, %j] : tensor<2x64xi1>
      attn.yield %allowed : i1
    } : (tensor<2x128x64xf32>, tensor<2x128x64xf32>, tensor<2x128x64xf32>) -> tensor<2x128x64xf32>
  return %o : tensor<2x128x64xf32>
}

// No warning: a length equal to the head size, an unrelated extent, and an index that is the head.
func.func @masks_of_the_sequence(%x: tensor<64x64x64xf32>, %y: tensor<?x64xf32>, %tril: tensor<64x64xi1>,
                                 %block: tensor<256x256xi1>) -> (tensor<64x64x64xf32>, tensor<?x64xf32>) {
  %0 = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] captures(%tril : tensor<64x64xi1>)
    mask(%b, %h, %i, %j, %m) {
      %causal = tensor.extract %m[%i, %j] : tensor<64x64xi1>
      %sparse = tensor.extract %m[%h, %j] : tensor<64x64xi1>
      %allowed = arith.andi %causal, %sparse : i1
      attn.yield %allowed : i1
    } : (tensor<64x64x64xf32>, tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
  %1 = attn.attention %y[s,d], %y[s,d], %y[s,d] captures(%block : tensor<256x256xi1>)
    mask(%b, %h, %i, %j, %m) {
      %allowed = tensor.extract %m[%i, %j] : tensor<256x256xi1>
      attn.yield %allowed : i1
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %0, %1 : tensor<64x64x64xf32>, tensor<?x64xf32>
}

func.func @position_compared_with_the_head_size(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    mask causal<top_left>
    mask(%b, %h, %i, %j) {
      %size = arith.constant 64 : i32
      %key = arith.index_cast %j : index to i32
      // expected-warning @+1 {{mask compares positions of the key with 64, which is the head size; expected its length}}
      %within = arith.cmpi sgt, %size, %key : i32
      attn.yield %within : i1
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// No warning: comparisons with the length, of a distance, with another number, and for equality.
func.func @positions_compared_with_others(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    mask window<64, *>
    mask(%b, %h, %i, %j) {
      %n = attn.length key
      %within = arith.cmpi slt, %j, %n : index
      %limit = arith.constant 100 : index
      %early = arith.cmpi slt, %j, %limit : index
      %size = arith.constant 64 : index
      %other = arith.cmpi ne, %j, %size : index
      %same = arith.cmpi eq, %size, %i : index
      %0 = arith.andi %within, %early : i1
      %1 = arith.andi %0, %other : i1
      %2 = arith.ori %1, %same : i1
      attn.yield %2 : i1
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Alignment
//===----------------------------------------------------------------------===//

func.func @decoding_from_the_top_left(%q: tensor<1x64xf32>, %k: tensor<512x64xf32>) -> tensor<1x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d]
    // expected-warning @+1 {{top_left alignment with 1 query and 512 keys lets the query attend to the first key only; bottom_right was probably meant}}
    mask causal<top_left> : (tensor<1x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>) -> tensor<1x64xf32>
  return %o : tensor<1x64xf32>
}

func.func @last_queries_from_the_top_left(%q: tensor<16x64xf32>, %k: tensor<512x64xf32>) -> tensor<16x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] mask window<128, *>
    // expected-warning @+1 {{top_left alignment with 16 queries and 512 keys lets no query attend beyond the first 16 keys; bottom_right was probably meant}}
    mask causal<top_left> : (tensor<16x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>) -> tensor<16x64xf32>
  return %o : tensor<16x64xf32>
}

func.func @decoding_from_the_bottom_right(%q: tensor<1x64xf32>, %k: tensor<512x64xf32>) -> tensor<1x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] mask causal<bottom_right>
    : (tensor<1x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>) -> tensor<1x64xf32>
  return %o : tensor<1x64xf32>
}

// No warning: `at` gives the position of the queries, or there are as many queries as keys.
func.func @top_left_with_a_position(%q: tensor<1x64xf32>, %k: tensor<512x64xf32>, %n: index)
    -> (tensor<1x64xf32>, tensor<512x64xf32>) {
  %zero = arith.constant 0 : index
  %0 = attn.attention %q[s,d], %k[s,d], %k[s,d] at(%zero, %zero, %n, %zero) mask causal<top_left>
    : (tensor<1x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>) -> tensor<1x64xf32>
  %1 = attn.attention %k[s,d], %k[s,d], %k[s,d] mask causal<top_left>
    : (tensor<512x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>) -> tensor<512x64xf32>
  return %0, %1 : tensor<1x64xf32>, tensor<512x64xf32>
}

// No warning: a prefix that is visible to all queries.
func.func @prefix_or_causal(%q: tensor<16x64xf32>, %k: tensor<512x64xf32>, %n: index) -> tensor<16x64xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] captures(%n : index)
    mask(%b, %h, %i, %j, %prefix) {
      %in_prefix = arith.cmpi slt, %j, %prefix : index
      %causal = arith.cmpi sle, %j, %i : index
      %allowed = arith.ori %in_prefix, %causal : i1
      attn.yield %allowed : i1
    } : (tensor<16x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>) -> tensor<16x64xf32>
  return %o : tensor<16x64xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Large negative scores in place of masks
//===----------------------------------------------------------------------===//

func.func @chooses_a_sentinel(%q: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%n : index) score(%s, %b, %h, %i, %j, %length) {
      %sentinel = arith.constant -1.0e9 : f32
      %isSeen = arith.cmpi slt, %j, %length : index
      // expected-warning @+1 {{score chooses -1.000000e+09, a number in place of a mask; expected a mask region: rows without visible keys are then exact, and empty tiles are skipped}}
      %r = arith.select %isSeen, %s, %sentinel : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @chooses_a_sum_with_a_sentinel(%q: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%n : index) score(%s, %b, %h, %i, %j, %length) {
      %large = arith.constant 1.0e9 : f32
      %isSeen = arith.cmpi slt, %j, %length : index
      %t = arith.subf %s, %large : f32
      // expected-warning @+1 {{score chooses -1.000000e+09, a number in place of a mask}}
      %r = arith.select %isSeen, %s, %t : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @scales_a_captured_flag(%q: tensor<?x64xf32>, %hidden: tensor<?xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%hidden : tensor<?xf32>) score(%s, %b, %h, %i, %j, %flags) {
      %sentinel = arith.constant -1.0e4 : f32
      %flag = tensor.extract %flags[%j] : tensor<?xf32>
      // expected-warning @+1 {{score is lowered by multiples of -1.000000e+04, a number in place of a mask}}
      %less = arith.mulf %flag, %sentinel : f32
      %r = arith.addf %s, %less : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @reads_a_tensor_of_sentinels(%q: tensor<?x64xf32>, %hidden: tensor<?xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0 : index
  %n = tensor.dim %hidden, %zero : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %bias = linalg.map { math.absf } ins(%hidden : tensor<?xf32>) outs(%e : tensor<?xf32>)
  %lowered = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]}
    ins(%bias : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%x: f32, %out: f32):
      %sentinel = arith.constant 0xFF800000 : f32
      %none = arith.constant 0.0 : f32
      %isHidden = arith.cmpf ogt, %x, %none : f32
      %y = arith.select %isHidden, %sentinel, %none : f32
      linalg.yield %y : f32
    } -> tensor<?xf32>
  // expected-warning @+1 {{score reads a tensor that is made of −inf, a number in place of a mask}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%lowered : tensor<?xf32>) score(%s, %b, %h, %i, %j, %flags) {
      %less = tensor.extract %flags[%j] : tensor<?xf32>
      %r = arith.addf %s, %less : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @sentinel_behind_seven_casts(%q: tensor<?x64xf32>, %flags: tensor<?xf32>) -> tensor<?x64xf32> {
  %lowest = arith.constant -1.0e9 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %flags, %c0 : tensor<?xf32>
  %empty = tensor.empty(%n) : tensor<?xf32>
  %x0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%flags : tensor<?xf32>) outs(%empty : tensor<?xf32>) {
    ^bb0(%flag: f32, %old: f32):
      %y = arith.mulf %flag, %lowest : f32
      linalg.yield %y : f32
    } -> tensor<?xf32>
  %x1 = tensor.cast %x0 : tensor<?xf32> to tensor<100xf32>
  %x2 = tensor.cast %x1 : tensor<100xf32> to tensor<?xf32>
  %x3 = tensor.cast %x2 : tensor<?xf32> to tensor<100xf32>
  %x4 = tensor.cast %x3 : tensor<100xf32> to tensor<?xf32>
  %x5 = tensor.cast %x4 : tensor<?xf32> to tensor<100xf32>
  %x6 = tensor.cast %x5 : tensor<100xf32> to tensor<?xf32>
  %x7 = tensor.cast %x6 : tensor<?xf32> to tensor<100xf32>
  // expected-warning @+1 {{score reads a tensor that is made of -1.000000e+09, a number in place of a mask}}
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%x7 : tensor<100xf32>) score(%s, %b, %h, %i, %j, %table) {
      %less = tensor.extract %table[%j] : tensor<100xf32>
      %r = arith.addf %s, %less : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// No warning: too many ops, a lower bound, and a slope.
func.func @sentinel_behind_eight_casts(%q: tensor<?x64xf32>, %flags: tensor<?xf32>) -> tensor<?x64xf32> {
  %lowest = arith.constant -1.0e9 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %flags, %c0 : tensor<?xf32>
  %empty = tensor.empty(%n) : tensor<?xf32>
  %x0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%flags : tensor<?xf32>) outs(%empty : tensor<?xf32>) {
    ^bb0(%flag: f32, %old: f32):
      %y = arith.mulf %flag, %lowest : f32
      linalg.yield %y : f32
    } -> tensor<?xf32>
  %x1 = tensor.cast %x0 : tensor<?xf32> to tensor<100xf32>
  %x2 = tensor.cast %x1 : tensor<100xf32> to tensor<?xf32>
  %x3 = tensor.cast %x2 : tensor<?xf32> to tensor<100xf32>
  %x4 = tensor.cast %x3 : tensor<100xf32> to tensor<?xf32>
  %x5 = tensor.cast %x4 : tensor<?xf32> to tensor<100xf32>
  %x6 = tensor.cast %x5 : tensor<100xf32> to tensor<?xf32>
  %x7 = tensor.cast %x6 : tensor<?xf32> to tensor<100xf32>
  %x8 = tensor.cast %x7 : tensor<100xf32> to tensor<?xf32>
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%x8 : tensor<?xf32>) score(%s, %b, %h, %i, %j, %table) {
      %less = tensor.extract %table[%j] : tensor<?xf32>
      %r = arith.addf %s, %less : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

func.func @large_numbers_of_another_kind(%q: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] score(%s, %b, %h, %i, %j) {
      %least = arith.constant -1.0e9 : f32
      %slope = arith.constant -9000.0 : f32
      %limited = arith.maximumf %s, %least : f32
      %r = arith.mulf %limited, %slope : f32
      attn.yield %r : f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
