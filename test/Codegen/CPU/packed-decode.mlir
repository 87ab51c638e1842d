// RUN: saccade-compile %s --target=v3 --emit=mlir --stop-after=bufferize \
// RUN:   | saccade-opt --attn-lower-unpacked-accumulate=target=v3 -canonicalize | FileCheck %s
// RUN: saccade-compile %s --target=v4 --emit=mlir --stop-after=bufferize \
// RUN:   | saccade-opt --attn-lower-unpacked-accumulate=target=v4 -canonicalize | FileCheck %s --check-prefix=WIDE

// Words of eight codes, scales and zero points are read in their pages. Eight lanes are one word, sixteen are two; a scale
// of 32 elements is one number for all lanes. The decode task has no tile of floats and gathers nothing.
// CHECK-LABEL: func.func private @attention.attention.split_kv(
// CHECK-SAME:    attn.family = "v3 unpacked in pages, f32 multiply-add"
// CHECK-NOT:     memref.alloc() {{.*}} : memref<1024x64xf32>
// CHECK-NOT:     linalg.generic
// CHECK-NOT:     attn.load_pages
// CHECK-NOT:     vector.gather
// CHECK:         %[[WORD:.*]] = memref.load %{{.*}} : memref<?x8xi32, strided<[1, 1], offset: ?>>
// CHECK-NEXT:    %[[WORDS:.*]] = vector.broadcast %[[WORD]] : i32 to vector<8xi32>
// CHECK:         %[[SHIFTED:.*]] = arith.shrui %[[WORDS]], %{{.*}} : vector<8xi32>
// CHECK-NEXT:    %[[CODES:.*]] = arith.andi %[[SHIFTED]], %{{.*}} : vector<8xi32>
// CHECK-NEXT:    arith.sitofp %[[CODES]] : vector<8xi32> to vector<8xf32>
// CHECK-NEXT:    %[[ZERO:.*]] = memref.load %{{.*}} : memref<?x2xf32, strided<[1, 1], offset: ?>>
// CHECK-NEXT:    vector.broadcast %[[ZERO]] : f32 to vector<8xf32>
// CHECK:         memref.prefetch %{{.*}} : memref<?x8xi32, strided<[1, 1], offset: ?>>
// CHECK-NOT:     vector.gather
// CHECK-LABEL: func.func private @attention.attention(

// WIDE-LABEL:  func.func private @attention.attention.split_kv(
// WIDE:          %[[PAIR:.*]] = vector.load %{{.*}} : memref<?x8xi32, strided<[1, 1], offset: ?>>, vector<2xi32>
// WIDE:          vector.shuffle %[[PAIR]], %[[PAIR]] [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
#all = affine_map<(b, h, s, d) -> (b, h, s, d)>
#position = affine_map<(b, h, s, d) -> (b, h, s, 0)>
func.func @attention(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x8xi32>, %v: tensor<?x?x?x8xi32>, %kv_len: tensor<?xi32>, %page_table: tensor<?x?xi32>, %k_scale: tensor<?x?x?x2xf32>, %v_scale: tensor<?x?x?x1xf32>, %k_zero: tensor<?x?x?x2xf32>)
    -> (tensor<?x?x?x64xf32>) {
  %k_paged = attn.paged %k[b,h,s,d], %page_table : tensor<?x?x?x8xi32>, tensor<?x?xi32> -> tensor<?x?x?x8xi32>
  %v_paged = attn.paged %v[b,h,s,d], %page_table : tensor<?x?x?x8xi32>, tensor<?x?xi32> -> tensor<?x?x?x8xi32>
  %k_zero_paged = attn.paged %k_zero[b,h,s,d], %page_table : tensor<?x?x?x2xf32>, tensor<?x?xi32> -> tensor<?x?x?x2xf32>
  %k_scale_paged = attn.paged %k_scale[b,h,s,d], %page_table : tensor<?x?x?x2xf32>, tensor<?x?xi32> -> tensor<?x?x?x2xf32>
  %at_k_float_b = arith.constant 0 : index
  %k_float_b = tensor.dim %k_paged, %at_k_float_b : tensor<?x?x?x8xi32>
  %at_k_float_h = arith.constant 1 : index
  %k_float_h = tensor.dim %k_paged, %at_k_float_h : tensor<?x?x?x8xi32>
  %at_k_float_s = arith.constant 2 : index
  %k_float_s = tensor.dim %k_paged, %at_k_float_s : tensor<?x?x?x8xi32>
  %k_float_empty = tensor.empty(%k_float_b, %k_float_h, %k_float_s) : tensor<?x?x?x64xf32>
  %k_float = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      outs(%k_float_empty : tensor<?x?x?x64xf32>) {
  ^bb0(%_: f32):
    %b = linalg.index 0 : index
    %h = linalg.index 1 : index
    %s = linalg.index 2 : index
    %d = linalg.index 3 : index
    %x_three = arith.constant 3 : index
    %x_at = arith.shrui %d, %x_three : index
    %x_word = tensor.extract %k_paged[%b, %h, %s, %x_at] : tensor<?x?x?x8xi32>
    %x_seven = arith.constant 7 : index
    %x_in = arith.andi %d, %x_seven : index
    %x_n = arith.index_cast %x_in : index to i32
    %x_two = arith.constant 2 : i32
    %x_shift = arith.shli %x_n, %x_two : i32
    %x_low = arith.shrui %x_word, %x_shift : i32
    %x_mask = arith.constant 15 : i32
    %x = arith.andi %x_low, %x_mask : i32
    %x_wide = arith.sitofp %x : i32 to f32
    %x_wide_bits = arith.constant 5 : index
    %x_wide_block = arith.shrui %d, %x_wide_bits : index
    %x_wide_block_zero = tensor.extract %k_zero_paged[%b, %h, %s, %x_wide_block] : tensor<?x?x?x2xf32>
    %x_wide_moved = arith.subf %x_wide, %x_wide_block_zero : f32
    %x_wide_block_scale = tensor.extract %k_scale_paged[%b, %h, %s, %x_wide_block] : tensor<?x?x?x2xf32>
    %x_wide_moved_scaled = arith.mulf %x_wide_moved, %x_wide_block_scale : f32
    linalg.yield %x_wide_moved_scaled : f32
  } -> tensor<?x?x?x64xf32>
  %v_scale_paged = attn.paged %v_scale[b,h,s,d], %page_table : tensor<?x?x?x1xf32>, tensor<?x?xi32> -> tensor<?x?x?x1xf32>
  %at_v_float_b = arith.constant 0 : index
  %v_float_b = tensor.dim %v_paged, %at_v_float_b : tensor<?x?x?x8xi32>
  %at_v_float_h = arith.constant 1 : index
  %v_float_h = tensor.dim %v_paged, %at_v_float_h : tensor<?x?x?x8xi32>
  %at_v_float_s = arith.constant 2 : index
  %v_float_s = tensor.dim %v_paged, %at_v_float_s : tensor<?x?x?x8xi32>
  %v_float_empty = tensor.empty(%v_float_b, %v_float_h, %v_float_s) : tensor<?x?x?x64xf32>
  %v_float = linalg.generic {indexing_maps = [#position, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v_scale_paged : tensor<?x?x?x1xf32>) outs(%v_float_empty : tensor<?x?x?x64xf32>) {
  ^bb0(%factor: f32, %_: f32):
    %b = linalg.index 0 : index
    %h = linalg.index 1 : index
    %s = linalg.index 2 : index
    %d = linalg.index 3 : index
    %x_three = arith.constant 3 : index
    %x_at = arith.shrui %d, %x_three : index
    %x_word = tensor.extract %v_paged[%b, %h, %s, %x_at] : tensor<?x?x?x8xi32>
    %x_seven = arith.constant 7 : index
    %x_in = arith.andi %d, %x_seven : index
    %x_n = arith.index_cast %x_in : index to i32
    %x_two = arith.constant 2 : i32
    %x_shift = arith.shli %x_n, %x_two : i32
    %x_low = arith.shrui %x_word, %x_shift : i32
    %x_mask = arith.constant 15 : i32
    %x = arith.andi %x_low, %x_mask : i32
    %x_wide = arith.sitofp %x : i32 to f32
    %x_wide_zero = arith.constant 8.0 : f32
    %x_wide_moved = arith.subf %x_wide, %x_wide_zero : f32
    %product = arith.mulf %x_wide_moved, %factor : f32
    linalg.yield %product : f32
  } -> tensor<?x?x?x64xf32>
  %out = attn.attention %q[b,h,s,d], %k_float[b,h,s,d], %v_float[b,h,s,d]
    kv_len(%kv_len : tensor<?xi32>)
    : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>) -> (tensor<?x?x?x64xf32>)
  return %out : tensor<?x?x?x64xf32>
}
