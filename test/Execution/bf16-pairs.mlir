// bf16 matmuls with k-packs of two: odd head dimensions and numbers of keys, every layout, full and partial tiles.

// RUN: saccade-run %s --target=%{v4-bf16} --entry=odd_head --check --arg=2x37x33:bf16:1 --arg=2x71x33:bf16:2 --arg=2x71x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=odd_head --check --arg=1x1x33:bf16:1 --arg=1x1x33:bf16:2 --arg=1x1x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=odd_head --check --arg=1x13x33:bf16:1 --arg=1x1025x33:bf16:2 --arg=1x1025x15:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=one_less_than_a_vector_of_pairs --check --arg=2x37x31:bf16:1 --arg=2x71x31:bf16:2 --arg=2x71x31:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=columns_are_contiguous --check --arg=33x40:bf16:1 --arg=33x71:bf16:2 --arg=40x71:bf16:3 --arg=0.2
// RUN: saccade-run %s --target=%{v4-bf16} --entry=columns_are_contiguous --check --arg=33x40:bf16:1 --arg=33x71:bf16:2 --arg=40x71:bf16:3 --arg=-0.2
// RUN: saccade-run %s --target=%{v4-bf16} --entry=heads_are_contiguous --check --arg=37x64x3:bf16:1 --arg=71x64x3:bf16:2 --arg=71x64x3:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=what_is_beside_a_window_is_not_seen --check --arg=50x32:bf16:1 --arg=301x32:bf16:2 --arg=301x32:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=what_ends_before_the_operand_has_no_tile --check --arg=4x16:bf16:1 --arg=12x16:bf16:2 --arg=12x16:bf16:3 --arg=7
// RUN: saccade-run %s --target=%{v4-bf16} --entry=a_sharp_row_is_its_value --check --arg=5x16:bf16:=90.0 --arg=1x16:bf16:=37.0 --arg=1x16:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=a_sharp_row_is_its_value --check --arg=5x16:bf16:=90.0 --arg=1400x16:bf16:=37.0 --arg=1400x16:bf16:3
// RUN: saccade-run %s --target=%{v4-bf16} --entry=product --check --arg=300x1031:bf16:1 --arg=1031x77:bf16:2
// RUN: saccade-run %s --target=%{v4-bf16} --entry=product --check --arg=1x1:bf16:1 --arg=1x1:bf16:2
// RUN: saccade-run %s --target=%{v4-bf16} --entry=product_with_rows --check --arg=29x515:bf16:1 --arg=300x515:bf16:2

// The last of 16 pairs of a row has one element, and so has the last pair of rows of the values.
func.func @one_less_than_a_vector_of_pairs(%q: tensor<?x?x31xbf16>, %k: tensor<?x?x31xbf16>, %v: tensor<?x?x31xbf16>) -> tensor<?x?x31xbf16> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
    : (tensor<?x?x31xbf16>, tensor<?x?x31xbf16>, tensor<?x?x31xbf16>) -> tensor<?x?x31xbf16>
  return %o : tensor<?x?x31xbf16>
}

func.func @odd_head(%q: tensor<?x?x33xbf16>, %k: tensor<?x?x33xbf16>, %v: tensor<?x?x15xbf16>) -> (tensor<?x?x15xf32>, tensor<?x?xf32>) {
  %o, %lse = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] lse
    : (tensor<?x?x33xbf16>, tensor<?x?x33xbf16>, tensor<?x?x15xbf16>) -> (tensor<?x?x15xf32>, tensor<?x?xf32>)
  return %o, %lse : tensor<?x?x15xf32>, tensor<?x?xf32>
}

func.func @columns_are_contiguous(%q: tensor<33x?xbf16>, %k: tensor<33x?xbf16>, %v: tensor<40x?xbf16>, %scale: f32) -> tensor<40x?xbf16> {
  %o = attn.attention %q[d,s], %k[d,s], %v[d,s] scale(%scale : f32) mask causal<bottom_right>
    : (tensor<33x?xbf16>, tensor<33x?xbf16>, tensor<40x?xbf16>) -> tensor<40x?xbf16>
  return %o : tensor<40x?xbf16>
}

func.func @heads_are_contiguous(%q: tensor<?x64x?xbf16>, %k: tensor<?x64x?xbf16>, %v: tensor<?x64x?xbf16>) -> tensor<?x64x?xbf16> {
  %o = attn.attention %q[s,d,h], %k[s,d,h], %v[s,d,h] scale(-0.125)
    : (tensor<?x64x?xbf16>, tensor<?x64x?xbf16>, tensor<?x64x?xbf16>) -> tensor<?x64x?xbf16>
  return %o : tensor<?x64x?xbf16>
}

func.func @what_is_beside_a_window_is_not_seen(%q: tensor<?x32xbf16>, %k: tensor<?x32xbf16>, %v: tensor<?x32xbf16>) -> tensor<?x32xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] mask(%b, %h, %i, %j) {
      %two = arith.constant 2 : index
      %one = arith.constant 1 : index
      %width = arith.constant 10 : index
      %twice = arith.muli %i, %two : index
      %first = arith.addi %twice, %one : index
      %end = arith.addi %first, %width : index
      %from = arith.cmpi sge, %j, %first : index
      %to = arith.cmpi slt, %j, %end : index
      %r = arith.andi %from, %to : i1
      attn.yield %r : i1
    } : (tensor<?x32xbf16>, tensor<?x32xbf16>, tensor<?x32xbf16>) -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

func.func @what_ends_before_the_operand_has_no_tile(%q: tensor<?x16xbf16>, %k: tensor<?x16xbf16>, %v: tensor<?x16xbf16>, %first: index) -> tensor<?x16xbf16> {
  %zero = arith.constant 0 : index
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] at(%zero, %zero, %zero, %first) mask causal<top_left>
    : (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return %o : tensor<?x16xbf16>
}

// Large logits: a weight of 1 must be exactly 1, or rounding it to bf16 would show in an f32 result.
func.func @a_sharp_row_is_its_value(%q: tensor<?x16xbf16>, %k: tensor<?x16xbf16>, %v: tensor<?x16xbf16>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @product(%a: tensor<?x?xbf16>, %b: tensor<?x?xbf16>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xbf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xbf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.matmul ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %c : tensor<?x?xf32>
}

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @product_with_rows(%a: tensor<?x515xbf16>, %b: tensor<?x515xbf16>) -> tensor<?x?xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %m = tensor.dim %a, %c0 : tensor<?x515xbf16>
  %n = tensor.dim %b, %c0 : tensor<?x515xbf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x?xbf16>) -> tensor<?x?xbf16>
  %c = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<?x515xbf16>, tensor<?x515xbf16>) outs(%zeros : tensor<?x?xbf16>) {
    ^bb0(%x: bf16, %y: bf16, %o: bf16):
      %p = arith.mulf %x, %y : bf16
      %s = arith.addf %o, %p : bf16
      linalg.yield %s : bf16
    } -> tensor<?x?xbf16>
  return %c : tensor<?x?xbf16>
}
