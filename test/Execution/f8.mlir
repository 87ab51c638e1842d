// Elements of f8E4M3FN and f8E5M2, against the reference, on all CPU targets of this machine: all codes, conversions to
// them, and caches to which quantized rows are appended.

// RUN: %python -c "import numpy; numpy.save('%t.codes.npy', numpy.arange(256, dtype='u1'))"
// Ties, the limits of both types and their neighbours, infinity and NaN.
// RUN: %python -c "import numpy; numpy.save('%t.values.npy', numpy.array([0, -0.0, 448, 464, 464.1, -480, 1e9, 57344, 61439, 61440, -1e9, 2**-10, 1.5 * 2**-9, 2**-17, 1.5 * 2**-16, 1.0625, 1.1875, 1e-40, numpy.inf, -numpy.inf, numpy.nan], 'f4'))"
// RUN: %python -c "import numpy; numpy.save('%t.npy', numpy.array([[7, 0, 3, -1], [6, 5, 1, 99], [4, 8, 2, -1]], 'i4'))"
// DEFINE: %{target} = portable
// DEFINE: %{run} = saccade-run %s --check --target=%{target}
// DEFINE: %{pools} = --arg=9x16x2x64:f8E4M3FN:4 --arg=9x16x2x48:f8E5M2:5 --arg=9x16x2x1:f32:=0.01 --arg=9x16x2x1:f32:=0.02 --arg=%t.npy
// DEFINE: %{cases} = %{run} --entry=widen --arg=%t.codes.npy:f8E4M3FN --arg=%t.codes.npy:f8E5M2 && \
// DEFINE:   %{run} --entry=narrow --arg=%t.values.npy --arg=%t.values.npy:bf16 --arg=%t.values.npy:f16 && \
// DEFINE:   %{run} --entry=narrow --arg=999:f32:1 --arg=999:bf16:2 --arg=999:f16:3 && \
// DEFINE:   %{run} --entry=moves --arg=4x37:f8E4M3FN:1 --arg=40:i8:1 && \
// DEFINE:   %{run} --entry=step --arg=3x8x40x64:f32:1 --arg=3x40x2x64:f32:2 --arg=3x40x2x48:f32:3 %{pools} --arg=3:i32:=5 --arg=3:i32:=38 --arg=3:i32:=43 && \
// DEFINE:   %{run} --entry=step --arg=3x8x1x64:f32:1 --arg=3x1x2x64:f32:2 --arg=3x1x2x48:f32:3 %{pools} --arg=3:i32:=31 --arg=3:i32:=1 --arg=3:i32:=32 && \
// DEFINE:   %{run} --entry=ring --arg=2x4x1x32:bf16:1 --arg=2x1x3x32:bf16:2 --arg=2x1x70x32:f8E5M2:3 --arg=2:i32:=69 && \
// DEFINE:   %{run} --entry=blocks --arg=2x4x1x64:f32:1 --arg=2x2x100x64:f8E4M3FN:2 --arg=2x2x7:f32:3 && \
// DEFINE:   %{run} --entry=blocks --arg=2x4x50x64:f32:1 --arg=2x2x100x64:f8E4M3FN:2 --arg=2x2x7:f32:3

// RUN: %{cases}
// REDEFINE: %{target} = v3
// RUN: %{cases}
// REDEFINE: %{target} = %{v4}
// RUN: %{cases}
// REDEFINE: %{target} = %{v4-bf16}
// RUN: %{cases}

// Memory before and after the tensors is not accessed.
// REDEFINE: %{run} = saccade-run %s --guard
// RUN: %{cases}
// REDEFINE: %{run} = saccade-run %s --guard=begin
// RUN: %{cases}

// RUN: not saccade-run %s --entry=widen --arg=%t.codes.npy --arg=256:f8E5M2 2>&1 | FileCheck %s --check-prefix=BITS
// BITS: contains 8-bit data; append ':f8E4M3FN' to convert it to f8E4M3FN

func.func @widen(%x: tensor<?xf8E4M3FN>, %y: tensor<?xf8E5M2>)
    -> (tensor<?xf32>, tensor<?xf32>, tensor<?xbf16>, tensor<?xbf16>, tensor<?xf16>, tensor<?xf64>) {
  %a = arith.extf %x : tensor<?xf8E4M3FN> to tensor<?xf32>
  %b = arith.extf %y : tensor<?xf8E5M2> to tensor<?xf32>
  %c = arith.extf %x : tensor<?xf8E4M3FN> to tensor<?xbf16>
  %d = arith.extf %y : tensor<?xf8E5M2> to tensor<?xbf16>
  %e = arith.extf %y : tensor<?xf8E5M2> to tensor<?xf16>
  %f = arith.extf %x : tensor<?xf8E4M3FN> to tensor<?xf64>
  return %a, %b, %c, %d, %e, %f : tensor<?xf32>, tensor<?xf32>, tensor<?xbf16>, tensor<?xbf16>, tensor<?xf16>, tensor<?xf64>
}

func.func @narrow(%x: tensor<?xf32>, %y: tensor<?xbf16>, %z: tensor<?xf16>)
    -> (tensor<?xf8E4M3FN>, tensor<?xf8E5M2>, tensor<?xf8E4M3FN>, tensor<?xf8E5M2>) {
  %a = arith.truncf %x : tensor<?xf32> to tensor<?xf8E4M3FN>
  %b = arith.truncf %x : tensor<?xf32> to tensor<?xf8E5M2>
  %c = arith.truncf %y : tensor<?xbf16> to tensor<?xf8E4M3FN>
  %d = arith.truncf %z : tensor<?xf16> to tensor<?xf8E5M2>
  return %a, %b, %c, %d : tensor<?xf8E4M3FN>, tensor<?xf8E5M2>, tensor<?xf8E4M3FN>, tensor<?xf8E5M2>
}

func.func @moves(%x: tensor<4x?xf8E4M3FN>, %bits: tensor<?xi8>)
    -> (tensor<?x4xf8E4M3FN>, tensor<2x?xf8E4M3FN>, tensor<3xf8E5M2>, tensor<?xf8E5M2>, tensor<5xf8E4M3FN>) {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c1 : tensor<4x?xf8E4M3FN>
  %e = tensor.empty(%n) : tensor<?x4xf8E4M3FN>
  %transposed = linalg.transpose ins(%x : tensor<4x?xf8E4M3FN>) outs(%e : tensor<?x4xf8E4M3FN>) permutation = [1, 0]
  %slice = tensor.extract_slice %x[1, 0] [2, %n] [1, 1] : tensor<4x?xf8E4M3FN> to tensor<2x?xf8E4M3FN>
  %constant = arith.constant dense<[1.0, -0.5, 3.0]> : tensor<3xf8E5M2>
  %cast = arith.bitcast %bits : tensor<?xi8> to tensor<?xf8E5M2>
  %two = arith.constant 2.0 : f8E4M3FN
  %five = tensor.empty() : tensor<5xf8E4M3FN>
  %filled = linalg.fill ins(%two : f8E4M3FN) outs(%five : tensor<5xf8E4M3FN>) -> tensor<5xf8E4M3FN>
  return %transposed, %slice, %constant, %cast, %filled
    : tensor<?x4xf8E4M3FN>, tensor<2x?xf8E4M3FN>, tensor<3xf8E5M2>, tensor<?xf8E5M2>, tensor<5xf8E4M3FN>
}

// New rows are quantized with a scale for each position and head, and both are appended to pools.
#tokens = affine_map<(b, s, h, d) -> (b, s, h, d)>
#scales = affine_map<(b, s, h, d) -> (b, s, h, 0)>
func.func private @scales_of(%x: tensor<?x?x2x?xf32>, %largest: f32) -> tensor<?x?x2x1xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?x2x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x2x?xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x2xf32>) -> tensor<?x?x2xf32>
  %max = linalg.generic {indexing_maps = [#tokens, affine_map<(b, s, h, d) -> (b, s, h)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x : tensor<?x?x2x?xf32>) outs(%f : tensor<?x?x2xf32>) {
  ^bb0(%y: f32, %o: f32):
    %size = math.absf %y : f32
    %r = arith.maximumf %size, %o : f32
    linalg.yield %r : f32
  } -> tensor<?x?x2xf32>
  %scale = linalg.generic {indexing_maps = [affine_map<(b, s, h) -> (b, s, h)>, affine_map<(b, s, h) -> (b, s, h)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%max : tensor<?x?x2xf32>) outs(%e : tensor<?x?x2xf32>) {
  ^bb0(%y: f32, %o: f32):
    %s = arith.divf %y, %largest : f32
    linalg.yield %s : f32
  } -> tensor<?x?x2xf32>
  %columns = tensor.expand_shape %scale [[0], [1], [2, 3]] output_shape [%n, %m, 2, 1] : tensor<?x?x2xf32> into tensor<?x?x2x1xf32>
  return %columns : tensor<?x?x2x1xf32>
}

func.func @step(%q: tensor<?x8x?x64xf32>, %k: tensor<?x?x2x64xf32>, %v: tensor<?x?x2x48xf32>,
    %k_pool: tensor<?x16x2x64xf8E4M3FN> {attn.updated_by = 1}, %v_pool: tensor<?x16x2x48xf8E5M2> {attn.updated_by = 2},
    %k_scales: tensor<?x16x2x1xf32> {attn.updated_by = 3}, %v_scales: tensor<?x16x2x1xf32> {attn.updated_by = 4},
    %table: tensor<?x?xi32>, %len: tensor<?xi32>, %count: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x8x?x48xf32>, tensor<?x16x2x64xf8E4M3FN>, tensor<?x16x2x48xf8E5M2>, tensor<?x16x2x1xf32>, tensor<?x16x2x1xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %k, %c0 : tensor<?x?x2x64xf32>
  %m = tensor.dim %k, %c1 : tensor<?x?x2x64xf32>
  %k_largest = arith.constant 448.0 : f32
  %v_largest = arith.constant 57344.0 : f32
  %k_any = tensor.cast %k : tensor<?x?x2x64xf32> to tensor<?x?x2x?xf32>
  %v_any = tensor.cast %v : tensor<?x?x2x48xf32> to tensor<?x?x2x?xf32>
  %ks = call @scales_of(%k_any, %k_largest) : (tensor<?x?x2x?xf32>, f32) -> tensor<?x?x2x1xf32>
  %vs = call @scales_of(%v_any, %v_largest) : (tensor<?x?x2x?xf32>, f32) -> tensor<?x?x2x1xf32>
  %k_empty = tensor.empty(%n, %m) : tensor<?x?x2x64xf8E4M3FN>
  %k8 = linalg.generic {indexing_maps = [#tokens, #scales, #tokens], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k, %ks : tensor<?x?x2x64xf32>, tensor<?x?x2x1xf32>) outs(%k_empty : tensor<?x?x2x64xf8E4M3FN>) {
  ^bb0(%x: f32, %s: f32, %o: f8E4M3FN):
    %y = arith.divf %x, %s : f32
    %z = arith.truncf %y : f32 to f8E4M3FN
    linalg.yield %z : f8E4M3FN
  } -> tensor<?x?x2x64xf8E4M3FN>
  %v_empty = tensor.empty(%n, %m) : tensor<?x?x2x48xf8E5M2>
  %v8 = linalg.generic {indexing_maps = [#tokens, #scales, #tokens], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v, %vs : tensor<?x?x2x48xf32>, tensor<?x?x2x1xf32>) outs(%v_empty : tensor<?x?x2x48xf8E5M2>) {
  ^bb0(%x: f32, %s: f32, %o: f8E5M2):
    %y = arith.divf %x, %s : f32
    %z = arith.truncf %y : f32 to f8E5M2
    linalg.yield %z : f8E5M2
  } -> tensor<?x?x2x48xf8E5M2>
  %kp = attn.append %k8[b,s,h,d] to %k_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>) count(%count : tensor<?xi32>)
    : (tensor<?x?x2x64xf8E4M3FN>, tensor<?x16x2x64xf8E4M3FN>) -> tensor<?x16x2x64xf8E4M3FN>
  %vp = attn.append %v8[b,s,h,d] to %v_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>) count(%count : tensor<?xi32>)
    : (tensor<?x?x2x48xf8E5M2>, tensor<?x16x2x48xf8E5M2>) -> tensor<?x16x2x48xf8E5M2>
  %ksp = attn.append %ks[b,s,h,d] to %k_scales[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>) count(%count : tensor<?xi32>)
    : (tensor<?x?x2x1xf32>, tensor<?x16x2x1xf32>) -> tensor<?x16x2x1xf32>
  %vsp = attn.append %vs[b,s,h,d] to %v_scales[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>) count(%count : tensor<?xi32>)
    : (tensor<?x?x2x1xf32>, tensor<?x16x2x1xf32>) -> tensor<?x16x2x1xf32>
  %k_view = attn.paged %kp[b,s,h,d], %table : tensor<?x16x2x64xf8E4M3FN>, tensor<?x?xi32> -> tensor<?x?x2x64xf8E4M3FN>
  %v_view = attn.paged %vp[b,s,h,d], %table : tensor<?x16x2x48xf8E5M2>, tensor<?x?xi32> -> tensor<?x?x2x48xf8E5M2>
  %ks_view = attn.paged %ksp[b,s,h,d], %table : tensor<?x16x2x1xf32>, tensor<?x?xi32> -> tensor<?x?x2x1xf32>
  %vs_view = attn.paged %vsp[b,s,h,d], %table : tensor<?x16x2x1xf32>, tensor<?x?xi32> -> tensor<?x?x2x1xf32>
  %rows = tensor.dim %k_view, %c1 : tensor<?x?x2x64xf8E4M3FN>
  %kf_empty = tensor.empty(%n, %rows) : tensor<?x?x2x64xf32>
  %kf = linalg.generic {indexing_maps = [#tokens, #scales, #tokens], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k_view, %ks_view : tensor<?x?x2x64xf8E4M3FN>, tensor<?x?x2x1xf32>) outs(%kf_empty : tensor<?x?x2x64xf32>) {
  ^bb0(%x: f8E4M3FN, %s: f32, %o: f32):
    %y = arith.extf %x : f8E4M3FN to f32
    %z = arith.mulf %y, %s : f32
    linalg.yield %z : f32
  } -> tensor<?x?x2x64xf32>
  %vf_empty = tensor.empty(%n, %rows) : tensor<?x?x2x48xf32>
  %vf = linalg.generic {indexing_maps = [#tokens, #scales, #tokens], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v_view, %vs_view : tensor<?x?x2x48xf8E5M2>, tensor<?x?x2x1xf32>) outs(%vf_empty : tensor<?x?x2x48xf32>) {
  ^bb0(%x: f8E5M2, %s: f32, %o: f32):
    %y = arith.extf %x : f8E5M2 to f32
    %z = arith.mulf %y, %s : f32
    linalg.yield %z : f32
  } -> tensor<?x?x2x48xf32>
  %out = attn.attention %q[b,h,s,d], %kf[b,s,h,d], %vf[b,s,h,d] q_len(%count : tensor<?xi32>) kv_len(%end : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x48xf32>) -> tensor<?x8x?x48xf32>
  return %out, %kp, %vp, %ksp, %vsp
    : tensor<?x8x?x48xf32>, tensor<?x16x2x64xf8E4M3FN>, tensor<?x16x2x48xf8E5M2>, tensor<?x16x2x1xf32>, tensor<?x16x2x1xf32>
}

// A ring without scales. Its keys are converted in the tile load.
#rows = affine_map<(b, h, s, d) -> (b, h, s, d)>
func.func @ring(%q: tensor<?x4x?x32xbf16>, %new: tensor<?x1x?x32xbf16>, %cache: tensor<?x1x?x32xf8E5M2> {attn.updated_by = 1}, %len: tensor<?xi32>)
    -> (tensor<?x4x?x32xbf16>, tensor<?x1x?x32xf8E5M2>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %narrow = arith.truncf %new : tensor<?x1x?x32xbf16> to tensor<?x1x?x32xf8E5M2>
  %c = attn.append %narrow[b,h,s,d] to %cache[b,h,s,d] at(%len : tensor<?xi32>) ring<4>
    : (tensor<?x1x?x32xf8E5M2>, tensor<?x1x?x32xf8E5M2>) -> tensor<?x1x?x32xf8E5M2>
  %n = tensor.dim %c, %c0 : tensor<?x1x?x32xf8E5M2>
  %m = tensor.dim %c, %c2 : tensor<?x1x?x32xf8E5M2>
  %e = tensor.empty(%n, %m) : tensor<?x1x?x32xbf16>
  %f = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<?x1x?x32xf8E5M2>) outs(%e : tensor<?x1x?x32xbf16>) {
  ^bb0(%x: f8E5M2, %o: bf16):
    %y = arith.extf %x : f8E5M2 to bf16
    linalg.yield %y : bf16
  } -> tensor<?x1x?x32xbf16>
  %out = attn.attention %q[b,h,s,d], %f[b,h,s,d], %f[b,h,s,d]
    : (tensor<?x4x?x32xbf16>, tensor<?x1x?x32xbf16>, tensor<?x1x?x32xbf16>) -> tensor<?x4x?x32xbf16>
  return %out, %c : tensor<?x4x?x32xbf16>, tensor<?x1x?x32xf8E5M2>
}

// A scale for each block of 16 positions of a head.
func.func @blocks(%q: tensor<?x4x?x64xf32>, %k: tensor<?x2x?x64xf8E4M3FN>, %scales: tensor<?x2x?xf32>) -> tensor<?x4x?x64xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %k, %c0 : tensor<?x2x?x64xf8E4M3FN>
  %m = tensor.dim %k, %c2 : tensor<?x2x?x64xf8E4M3FN>
  %e = tensor.empty(%n, %m) : tensor<?x2x?x64xf32>
  %f = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k : tensor<?x2x?x64xf8E4M3FN>) outs(%e : tensor<?x2x?x64xf32>) {
  ^bb0(%x: f8E4M3FN, %o: f32):
    %four = arith.constant 4 : index
    %b = linalg.index 0 : index
    %h = linalg.index 1 : index
    %s = linalg.index 2 : index
    %block = arith.shrui %s, %four : index
    %scale = tensor.extract %scales[%b, %h, %block] : tensor<?x2x?xf32>
    %y = arith.extf %x : f8E4M3FN to f32
    %z = arith.mulf %y, %scale : f32
    linalg.yield %z : f32
  } -> tensor<?x2x?x64xf32>
  %out = attn.attention %q[b,h,s,d], %f[b,h,s,d], %f[b,h,s,d]
    : (tensor<?x4x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x4x?x64xf32>
  return %out : tensor<?x4x?x64xf32>
}
