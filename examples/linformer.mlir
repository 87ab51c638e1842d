// Linformer (Wang et al. 2020): keys and values are projected along the length, from n to a rank that may be any, and
// attention is over what they are projected to.

!x = tensor<?x?x?x64xf32>
!p = tensor<?x?xf32>
!e = f32

#from = affine_map<(b, h, r, d, s) -> (b, h, s, d)>
#by = affine_map<(b, h, r, d, s) -> (r, s)>
#to = affine_map<(b, h, r, d, s) -> (b, h, r, d)>

func.func @linformer(%q: !x, %k: !x, %v: !x, %e: !p, %f: !p) -> !x {
  %kp = call @project(%k, %e) : (!x, !p) -> !x
  %vp = call @project(%v, %f) : (!x, !p) -> !x
  %o = attn.attention %q[b,h,s,d], %kp[b,h,s,d], %vp[b,h,s,d] : (!x, !x, !x) -> !x
  return %o : !x
}

func.func private @project(%x: !x, %w: !p) -> !x {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : !e
  %b = tensor.dim %x, %c0 : !x
  %h = tensor.dim %x, %c1 : !x
  %r = tensor.dim %w, %c0 : !p
  %empty = tensor.empty(%b, %h, %r) : !x
  %start = linalg.fill ins(%zero : !e) outs(%empty : !x) -> !x
  %y = linalg.generic {indexing_maps = [#from, #by, #to],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : !x, !p) outs(%start : !x) {
  ^bb0(%l: !e, %m: !e, %o: !e):
    %p = arith.mulf %l, %m : !e
    %t = arith.addf %o, %p : !e
    linalg.yield %t : !e
  } -> !x
  return %y : !x
}
