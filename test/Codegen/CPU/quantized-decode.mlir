// RUN: saccade-compile %s --target=v4-bf16 --emit=mlir --stop-after=bufferize \
// RUN:   | saccade-opt --attn-lower-unpacked-accumulate=target=v4-bf16 -canonicalize | FileCheck %s

// The decode task of a quantized paged cache has no tile of bf16 elements and copies no pages. The other task packs tiles.
// CHECK-LABEL: func.func private @attention.attention.split_kv(
// CHECK-SAME:    attn.family = "v4-bf16 unpacked in pages, f32 multiply-add"
// CHECK-NOT:     memref.alloc() {{.*}}x64xbf16>
// CHECK-NOT:     linalg.generic
// CHECK-NOT:     attn.load_pages
// CHECK-LABEL: func.func private @attention.attention(
// CHECK:         memref.alloc() {{.*}} : memref<1024x64xbf16>
#all = affine_map<(b, h, s, d) -> (b, h, s, d)>
#position = affine_map<(b, h, s, d) -> (b, h, s, 0)>
func.func @attention(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xi8>, %v: tensor<?x?x?x64xi8>, %kv_len: tensor<?xi32>, %page_table: tensor<?x?xi32>, %k_scale: tensor<?x?x?x1xf32>, %v_scale: f32)
    -> (tensor<?x?x?x64xbf16>) {
  %k_paged = attn.paged %k[b,h,s,d], %page_table : tensor<?x?x?x64xi8>, tensor<?x?xi32> -> tensor<?x?x?x64xi8>
  %v_paged = attn.paged %v[b,h,s,d], %page_table : tensor<?x?x?x64xi8>, tensor<?x?xi32> -> tensor<?x?x?x64xi8>
  %k_scale_paged = attn.paged %k_scale[b,h,s,d], %page_table : tensor<?x?x?x1xf32>, tensor<?x?xi32> -> tensor<?x?x?x1xf32>
  %at_k_float_b = arith.constant 0 : index
  %k_float_b = tensor.dim %k_paged, %at_k_float_b : tensor<?x?x?x64xi8>
  %at_k_float_h = arith.constant 1 : index
  %k_float_h = tensor.dim %k_paged, %at_k_float_h : tensor<?x?x?x64xi8>
  %at_k_float_s = arith.constant 2 : index
  %k_float_s = tensor.dim %k_paged, %at_k_float_s : tensor<?x?x?x64xi8>
  %k_float_empty = tensor.empty(%k_float_b, %k_float_h, %k_float_s) : tensor<?x?x?x64xbf16>
  %k_float = linalg.generic {indexing_maps = [#all, #position, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k_paged, %k_scale_paged : tensor<?x?x?x64xi8>, tensor<?x?x?x1xf32>) outs(%k_float_empty : tensor<?x?x?x64xbf16>) {
  ^bb0(%x: i8, %s: f32, %o: bf16):
    %f = arith.sitofp %x : i8 to f32
    %g = arith.mulf %f, %s : f32
    %r = arith.truncf %g : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<?x?x?x64xbf16>
  %at_v_float_b = arith.constant 0 : index
  %v_float_b = tensor.dim %v_paged, %at_v_float_b : tensor<?x?x?x64xi8>
  %at_v_float_h = arith.constant 1 : index
  %v_float_h = tensor.dim %v_paged, %at_v_float_h : tensor<?x?x?x64xi8>
  %at_v_float_s = arith.constant 2 : index
  %v_float_s = tensor.dim %v_paged, %at_v_float_s : tensor<?x?x?x64xi8>
  %v_float_empty = tensor.empty(%v_float_b, %v_float_h, %v_float_s) : tensor<?x?x?x64xbf16>
  %v_float = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v_paged : tensor<?x?x?x64xi8>) outs(%v_float_empty : tensor<?x?x?x64xbf16>) {
  ^bb0(%x: i8, %o: bf16):
    %f = arith.sitofp %x : i8 to f32
    %g = arith.mulf %f, %v_scale : f32
    %r = arith.truncf %g : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<?x?x?x64xbf16>
  %out = attn.attention %q[b,h,s,d], %k_float[b,h,s,d], %v_float[b,h,s,d]
    kv_len(%kv_len : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> (tensor<?x?x?x64xbf16>)
  return %out : tensor<?x?x?x64xbf16>
}
