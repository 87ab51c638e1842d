// Performer (Choromanski et al. 2021): softmax attention by 256 positive random features of heads of 64, in O(n). With
// x' = x / d^(1/4), φ(x) = exp(w·x' − |x'|²/2), so that the mean of φ(q) · φ(k) over normal w is exp(q·k/√d).

!x = tensor<?x?x?x64xf32>
!v = tensor<?x?x?x64xf32>
!p = tensor<256x64xf32>
!xw = tensor<?x?x?x64xf32>
!vw = tensor<?x?x?x64xf32>
!pw = tensor<256x64xf32>
!f = tensor<?x?x?x256xf32>
!row = tensor<?x?x?xf32>
!head = tensor<?x?xf32>
!e = f32

#x = affine_map<(b, h, s, m, d) -> (b, h, s, d)>
#w = affine_map<(b, h, s, m, d) -> (m, d)>
#y = affine_map<(b, h, s, m, d) -> (b, h, s, m)>
#all = affine_map<(b, h, s, m) -> (b, h, s, m)>
#row = affine_map<(b, h, s, m) -> (b, h, s)>
#head = affine_map<(b, h, s, m) -> (b, h)>

// w·x / d^(1/4) − |x|² / (2 √d)
func.func private @exponents(%x: !x, %w: !p) -> !f {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : !e
  %half = arith.constant 0.0625 : !e
  %fourth = arith.constant 0.3535533905932738 : !e
  %b = tensor.dim %x, %c0 : !x
  %h = tensor.dim %x, %c1 : !x
  %s = tensor.dim %x, %c2 : !x
  %empty = tensor.empty(%b, %h, %s) : !f
  %start = linalg.fill ins(%zero : !e) outs(%empty : !f) -> !f
  %products = linalg.generic {indexing_maps = [#x, #w, #y],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : !x, !p) outs(%start : !f) {
  ^bb0(%l: !e, %r: !e, %o: !e):
    %p = arith.mulf %l, %r : !e
    %t = arith.addf %o, %p : !e
    linalg.yield %t : !e
  } -> !f
  %rows = tensor.empty(%b, %h, %s) : !row
  %none = linalg.fill ins(%zero : !e) outs(%rows : !row) -> !row
  %squares = linalg.generic {indexing_maps = [#all, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x : !x) outs(%none : !row) {
  ^bb0(%l: !e, %o: !e):
    %p = arith.mulf %l, %l : !e
    %t = arith.addf %o, %p : !e
    linalg.yield %t : !e
  } -> !row
  %result = linalg.generic {indexing_maps = [#all, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%products, %squares : !f, !row) outs(%empty : !f) {
  ^bb0(%p: !e, %n: !e, %o: !e):
    %a = arith.mulf %p, %fourth : !e
    %c = arith.mulf %n, %half : !e
    %t = arith.subf %a, %c : !e
    linalg.yield %t : !e
  } -> !f
  return %result : !f
}

func.func @performer_causal(%q: !x, %k: !x, %v: !v, %w: !p) -> !v {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %least = arith.constant 0xFF800000 : !e
  %qe = call @exponents(%q, %w) : (!x, !p) -> !f
  %ke = call @exponents(%k, %w) : (!x, !p) -> !f
  %qb = tensor.dim %q, %c0 : !x
  %qh = tensor.dim %q, %c1 : !x
  %qs = tensor.dim %q, %c2 : !x
  %kb = tensor.dim %k, %c0 : !x
  %kh = tensor.dim %k, %c1 : !x
  %ks = tensor.dim %k, %c2 : !x
  // A query may be scaled by anything, for it is normalized; the keys of a head by one number.
  %rows = tensor.empty(%qb, %qh, %qs) : !row
  %rows0 = linalg.fill ins(%least : !e) outs(%rows : !row) -> !row
  %top = linalg.generic {indexing_maps = [#all, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%qe : !f) outs(%rows0 : !row) {
  ^bb0(%l: !e, %o: !e):
    %t = arith.maximumf %o, %l : !e
    linalg.yield %t : !e
  } -> !row
  %heads = tensor.empty(%kb, %kh) : !head
  %heads0 = linalg.fill ins(%least : !e) outs(%heads : !head) -> !head
  %most = linalg.generic {indexing_maps = [#all, #head],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%ke : !f) outs(%heads0 : !head) {
  ^bb0(%l: !e, %o: !e):
    %t = arith.maximumf %o, %l : !e
    linalg.yield %t : !e
  } -> !head
  %qf0 = tensor.empty(%qb, %qh, %qs) : !f
  %qf = linalg.generic {indexing_maps = [#all, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%qe, %top : !f, !row) outs(%qf0 : !f) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %y = arith.subf %l, %m : !e
    %t = math.exp %y : !e
    linalg.yield %t : !e
  } -> !f
  %kf0 = tensor.empty(%kb, %kh, %ks) : !f
  %kf = linalg.generic {indexing_maps = [#all, #head, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%ke, %most : !f, !head) outs(%kf0 : !f) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %y = arith.subf %l, %m : !e
    %t = math.exp %y : !e
    linalg.yield %t : !e
  } -> !f
  %o = attn.linear %qf[b,h,s,d], %kf[b,h,s,d], %v[b,h,s,d] causal normalize : (!f, !f, !v) -> !v
  return %o : !v
}

// The same over all keys.
func.func @performer(%q: !x, %k: !x, %v: !v, %w: !p) -> !v {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %least = arith.constant 0xFF800000 : !e
  %qe = call @exponents(%q, %w) : (!x, !p) -> !f
  %ke = call @exponents(%k, %w) : (!x, !p) -> !f
  %qb = tensor.dim %q, %c0 : !x
  %qh = tensor.dim %q, %c1 : !x
  %qs = tensor.dim %q, %c2 : !x
  %kb = tensor.dim %k, %c0 : !x
  %kh = tensor.dim %k, %c1 : !x
  %ks = tensor.dim %k, %c2 : !x
  // A query may be scaled by anything, for it is normalized; the keys of a head by one number.
  %rows = tensor.empty(%qb, %qh, %qs) : !row
  %rows0 = linalg.fill ins(%least : !e) outs(%rows : !row) -> !row
  %top = linalg.generic {indexing_maps = [#all, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%qe : !f) outs(%rows0 : !row) {
  ^bb0(%l: !e, %o: !e):
    %t = arith.maximumf %o, %l : !e
    linalg.yield %t : !e
  } -> !row
  %heads = tensor.empty(%kb, %kh) : !head
  %heads0 = linalg.fill ins(%least : !e) outs(%heads : !head) -> !head
  %most = linalg.generic {indexing_maps = [#all, #head],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%ke : !f) outs(%heads0 : !head) {
  ^bb0(%l: !e, %o: !e):
    %t = arith.maximumf %o, %l : !e
    linalg.yield %t : !e
  } -> !head
  %qf0 = tensor.empty(%qb, %qh, %qs) : !f
  %qf = linalg.generic {indexing_maps = [#all, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%qe, %top : !f, !row) outs(%qf0 : !f) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %y = arith.subf %l, %m : !e
    %t = math.exp %y : !e
    linalg.yield %t : !e
  } -> !f
  %kf0 = tensor.empty(%kb, %kh, %ks) : !f
  %kf = linalg.generic {indexing_maps = [#all, #head, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%ke, %most : !f, !head) outs(%kf0 : !f) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %y = arith.subf %l, %m : !e
    %t = math.exp %y : !e
    linalg.yield %t : !e
  } -> !f
  %o = attn.linear %qf[b,h,s,d], %kf[b,h,s,d], %v[b,h,s,d] normalize : (!f, !f, !v) -> !v
  return %o : !v
}
