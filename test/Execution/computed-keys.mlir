// Keys that an elementwise op computes: values may be a part of them, and rows may be appended to the cache afterwards.
// REQUIRES: numpy

// RUN: %python -c "import numpy; numpy.save('%t.npy', numpy.array([[7, 0, 3], [6, 5, 1]], 'i4'))"
// DEFINE: %{target} = %{v4-bf16}
// DEFINE: %{cases} = saccade-run %s --target=%{target} --check --entry=values_are_a_part --arg=2x8x2x64:f32:1 --arg=8x16x2x64:f32:2 --arg=%t.npy && \
// DEFINE:   saccade-run %s --target=%{target} --check --entry=appended_later --arg=1x8x2x64:f32:1 --arg=1x100x2x64:f32:2 --arg=1x100x2x64:f32:3 --arg=1x4x2x64:f32:4 --arg=1:i32:=10 && \
// DEFINE:   saccade-run %s --target=%{target} --check --entry=booleans_of_the_depth --arg=2x5x64:f16:1 --arg=2x33x64:f16:2 --arg=64:i1:3 && \
// DEFINE:   saccade-run %s --target=%{target} --check --entry=f64_of_the_depth --arg=2x5x64:f16:1 --arg=2x33x64:f16:2 --arg=64:f64:3
// RUN: %{cases}
// REDEFINE: %{target} = v3
// RUN: %{cases}
// REDEFINE: %{target} = sm_80 --device=ptxsim
// RUN: %{cases}
// REDEFINE: %{target} = sm_75 --device=ptxsim
// RUN: %{cases}

#matrix = affine_map<(h, s, d) -> (h, s, d)>
#depth = affine_map<(h, s, d) -> (d)>
#all = affine_map<(b, s, h, d) -> (b, s, h, d)>

// The other element of a pair is not in the part.
func.func @values_are_a_part(%q: tensor<?x8x2x64xf32>, %pool: tensor<?x16x2x64xf32>, %table: tensor<?x?xi32>) -> tensor<?x8x2x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cache = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %m = tensor.dim %cache, %c0 : tensor<?x?x2x64xf32>
  %n = tensor.dim %cache, %c1 : tensor<?x?x2x64xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?x2x64xf32>
  %k = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%cache : tensor<?x?x2x64xf32>) outs(%e : tensor<?x?x2x64xf32>) {
  ^bb0(%x: f32, %out: f32):
    %half = arith.constant 32 : index
    %b = linalg.index 0 : index
    %s = linalg.index 1 : index
    %h = linalg.index 2 : index
    %d = linalg.index 3 : index
    %partner = arith.xori %d, %half : index
    %other = tensor.extract %cache[%b, %s, %h, %partner] : tensor<?x?x2x64xf32>
    %r = arith.subf %x, %other : f32
    linalg.yield %r : f32
  } -> tensor<?x?x2x64xf32>
  %v = tensor.extract_slice %k[0, 0, 0, 32] [%m, %n, 2, 32] [1, 1, 1, 1] : tensor<?x?x2x64xf32> to tensor<?x?x2x32xf32>
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d]
    : (tensor<?x8x2x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x32xf32>) -> tensor<?x8x2x32xf32>
  return %o : tensor<?x8x2x32xf32>
}

// The keys are those of the cache before the update in place, which must not be read later.
func.func @appended_later(%q: tensor<?x8x2x64xf32>, %cache: tensor<?x?x2x64xf32> {attn.updated_by = 1}, %v: tensor<?x?x2x64xf32>, %new: tensor<?x4x2x64xf32>, %at: tensor<?xi32>)
    -> (tensor<?x8x2x64xf32>, tensor<?x?x2x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %cache, %c0 : tensor<?x?x2x64xf32>
  %n = tensor.dim %cache, %c1 : tensor<?x?x2x64xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?x2x64xf32>
  %k = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%cache : tensor<?x?x2x64xf32>) outs(%e : tensor<?x?x2x64xf32>) {
  ^bb0(%x: f32, %out: f32):
    %two = arith.constant 2.0 : f32
    %r = arith.mulf %x, %two : f32
    linalg.yield %r : f32
  } -> tensor<?x?x2x64xf32>
  %updated = attn.append %new[b,s,h,d] to %cache[b,s,h,d] at(%at : tensor<?xi32>) : (tensor<?x4x2x64xf32>, tensor<?x?x2x64xf32>) -> tensor<?x?x2x64xf32>
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d]
    : (tensor<?x8x2x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x64xf32>) -> tensor<?x8x2x64xf32>
  return %o, %updated : tensor<?x8x2x64xf32>, tensor<?x?x2x64xf32>
}

// Booleans in memory are bytes, of which vectors are not those of i1.
func.func @booleans_of_the_depth(%q: tensor<?x?x64xf16>, %k: tensor<?x?x64xf16>, %x: tensor<64xi1>) -> tensor<?x?x64xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %h = tensor.dim %k, %c0 : tensor<?x?x64xf16>
  %s = tensor.dim %k, %c1 : tensor<?x?x64xf16>
  %e = tensor.empty(%h, %s) : tensor<?x?x64xf16>
  %zero = arith.constant 0.0 : f16
  %keys = linalg.generic {indexing_maps = [#matrix, #depth, #matrix], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %x : tensor<?x?x64xf16>, tensor<64xi1>) outs(%e : tensor<?x?x64xf16>) {
  ^bb0(%a: f16, %b: i1, %o: f16):
    %r = arith.select %b, %a, %zero : f16
    linalg.yield %r : f16
  } -> tensor<?x?x64xf16>
  %o = attn.attention %q[h,s,d], %keys[h,s,d], %k[h,s,d] : (tensor<?x?x64xf16>, tensor<?x?x64xf16>, tensor<?x?x64xf16>) -> tensor<?x?x64xf16>
  return %o : tensor<?x?x64xf16>
}

func.func @f64_of_the_depth(%q: tensor<?x?x64xf16>, %k: tensor<?x?x64xf16>, %x: tensor<64xf64>) -> tensor<?x?x64xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %h = tensor.dim %k, %c0 : tensor<?x?x64xf16>
  %s = tensor.dim %k, %c1 : tensor<?x?x64xf16>
  %e = tensor.empty(%h, %s) : tensor<?x?x64xf16>
  %zero = arith.constant 0.0 : f16
  %keys = linalg.generic {indexing_maps = [#matrix, #depth, #matrix], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %x : tensor<?x?x64xf16>, tensor<64xf64>) outs(%e : tensor<?x?x64xf16>) {
  ^bb0(%a: f16, %b: f64, %o: f16):
    %t = arith.truncf %b : f64 to f16
    %r = arith.mulf %t, %a : f16
    linalg.yield %r : f16
  } -> tensor<?x?x64xf16>
  %o = attn.attention %q[h,s,d], %keys[h,s,d], %k[h,s,d] : (tensor<?x?x64xf16>, tensor<?x?x64xf16>, tensor<?x?x64xf16>) -> tensor<?x?x64xf16>
  return %o : tensor<?x?x64xf16>
}
