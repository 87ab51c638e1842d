// f16 in tile registers, as sums of two bf16: attention with results of f16 and of f32, whose scores are exact, and matmuls.

// Head sizes and numbers of keys that are no multiples of the rows of tiles, every layout, groups of 32 rows and of 16.
// RUN: saccade-run %s --target=%{v4-amx} --entry=odd_head --check --arg=2x37x33:f16:1 --arg=2x71x33:f16:2 --arg=2x71x15:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=odd_head --check --arg=1x81x33:f16:1 --arg=1x1025x33:f16:2 --arg=1x1025x15:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --guard --entry=odd_head --check --arg=1x65x33:f16:1 --arg=1x31x33:f16:2 --arg=1x31x15:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --guard --entry=columns_are_contiguous --check --arg=33x213:f16:1 --arg=33x213:f16:2 --arg=40x213:f16:3 --arg=0.2
// RUN: saccade-run %s --target=%{v4-amx} --entry=columns_are_contiguous --check --arg=33x40:f16:1 --arg=33x613:f16:2 --arg=40x613:f16:3 --arg=-0.2
// RUN: saccade-run %s --target=%{v4-amx} --entry=heads_are_contiguous --check=full --arg=37x64x3:f16:1 --arg=71x64x3:f16:2 --arg=71x64x3:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=heads_are_contiguous --check=full --arg=600x64x2:f16:1 --arg=1100x64x2:f16:2 --arg=1100x64x2:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --guard --entry=what_is_beside_a_window_is_not_seen --check --arg=300x32:f16:1 --arg=700x32:f16:2 --arg=700x32:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=a_sharp_row_is_its_value --check --arg=5x16:f16:=90.0 --arg=1400x16:f16:=37.0 --arg=1400x16:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=a_sharp_row_is_its_value --check --arg=45x16:f16:=90.0 --arg=1400x16:f16:=37.0 --arg=1400x16:f16:3

// Matmuls, of weights that are packed before the tasks too. One with a result of f32 does not use tiles.
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=300x1031:f16:1 --arg=1031x77:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=1x1:f16:1 --arg=1x1:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=33x33001:f16:1 --arg=33001x33:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --guard --entry=product --check --arg=45x1031:f16:1 --arg=1031x77:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=250x0:f16:1 --arg=0x77:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=product_with_rows --check --arg=29x515:f16:1 --arg=300x515:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=product_with_rows --check --arg=300x515:f16:1 --arg=300x515:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=product_in_f32 --check --arg=300x1031:f16:1 --arg=1031x77:f16:2
// RUN: saccade-run %s --target=%{v4-amx} --entry=layer --check --arg=387x127:f16 --arg=290x127:f16 --arg=290:f16
// RUN: saccade-run %s --target=%{v4-amx} --guard --entry=layer --check --arg=251x2048:f16 --arg=300x2048:f16 --arg=300:f16
// RUN: saccade-run %s --target=%{v4-amx} --entry=layer --check --arg=193x0:f16 --arg=40x0:f16 --arg=40:f16

// Infinite, large and subnormal numbers.
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=33x40:f16:=inf --arg=40x33:f16:=1.0
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=300x1:f16:=-inf --arg=1x33:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=300x1:f16:3 --arg=1x33:f16:=inf
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=33x40:f16:=inf --arg=40x33:f16:=0.0
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=33x40:f16:=nan --arg=40x33:f16:=1.0
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=300x40:f16:=6e-8 --arg=40x33:f16:=1000.0
// RUN: saccade-run %s --target=%{v4-amx} --entry=product --check --arg=300x1:f16:=65504 --arg=1x33:f16:=0.9995
// RUN: saccade-run %s --target=%{v4-amx} --entry=heads_are_contiguous --check --arg=37x64x3:f16:1 --arg=71x64x3:f16:2 --arg=71x64x3:f16:=-inf
// RUN: saccade-run %s --target=%{v4-amx} --entry=heads_are_contiguous --check --arg=37x64x3:f16:1 --arg=71x64x3:f16:2 --arg=71x64x3:f16:=65504

// Split-KV, and a group of 13 rows.
// RUN: saccade-run %s --target=%{v4-amx} --entry=odd_head --check --arg=1x1x33:f16:1 --arg=1x71x33:f16:2 --arg=1x71x15:f16:3
// RUN: saccade-run %s --target=%{v4-amx} --entry=odd_head --check --arg=1x13x33:f16:1 --arg=1x1025x33:f16:2 --arg=1x1025x15:f16:3

// The expanded kernels give the bits of the instructions.
// RUN: rm -rf %t && mkdir %t
// RUN: saccade-run %s --target=%{v4-amx} --entry=odd_head --out=%t/native.npy --arg=2x37x33:f16:1 --arg=2x71x33:f16:2 --arg=2x71x15:f16:3
// RUN: saccade-run %s --target=v4-amx-expanded --entry=odd_head --out=%t/expanded.npy --arg=2x37x33:f16:1 --arg=2x71x33:f16:2 --arg=2x71x15:f16:3
// RUN: cmp %t/native.npy %t/expanded.npy
// RUN: saccade-run %s --target=%{v4-amx} --entry=layer --out=%t/layer.npy --arg=203x127:f16 --arg=90x127:f16 --arg=90:f16
// RUN: saccade-run %s --target=v4-amx-expanded --entry=layer --out=%t/expanded-layer.npy --arg=203x127:f16 --arg=90x127:f16 --arg=90:f16
// RUN: cmp %t/layer.npy %t/expanded-layer.npy

// The kernels are named, and their code multiplies tiles. Split-KV and f32 results of matmuls do not.
// RUN: saccade-compile %s --target=v4-amx --explain | FileCheck %s --check-prefix=FAMILY
// FAMILY-DAG: odd_head{{.*}}: kernel family v4-amx packed, f16 as two bf16 in tiles (tdpbf16ps)
// FAMILY-DAG: odd_head{{.*}}: kernel family v4-amx unpacked, f32 multiply-add
// RUN: saccade-compile %s --target=v4-amx --emit=asm -o - | FileCheck %s --check-prefix=CODE
// CODE: {{^}}layer.body:
// CODE: tdpbf16ps
// CODE: {{^}}product_in_f32.body:
// CODE-NOT: tdpbf16ps
// CODE: {{^}}heads_are_contiguous.body:
// CODE: tdpbf16ps

func.func @odd_head(%q: tensor<?x?x33xf16>, %k: tensor<?x?x33xf16>, %v: tensor<?x?x15xf16>) -> (tensor<?x?x15xf32>, tensor<?x?xf32>) {
  %o, %lse = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] lse
    : (tensor<?x?x33xf16>, tensor<?x?x33xf16>, tensor<?x?x15xf16>) -> (tensor<?x?x15xf32>, tensor<?x?xf32>)
  return %o, %lse : tensor<?x?x15xf32>, tensor<?x?xf32>
}

func.func @columns_are_contiguous(%q: tensor<33x?xf16>, %k: tensor<33x?xf16>, %v: tensor<40x?xf16>, %scale: f32) -> tensor<40x?xf16> {
  %o = attn.attention %q[d,s], %k[d,s], %v[d,s] scale(%scale : f32) mask causal<bottom_right>
    : (tensor<33x?xf16>, tensor<33x?xf16>, tensor<40x?xf16>) -> tensor<40x?xf16>
  return %o : tensor<40x?xf16>
}

func.func @what_is_beside_a_window_is_not_seen(%q: tensor<?x32xf16>, %k: tensor<?x32xf16>, %v: tensor<?x32xf16>) -> tensor<?x32xf16> {
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
    } : (tensor<?x32xf16>, tensor<?x32xf16>, tensor<?x32xf16>) -> tensor<?x32xf16>
  return %o : tensor<?x32xf16>
}

// A weight of 1 is exactly 1.
func.func @a_sharp_row_is_its_value(%q: tensor<?x16xf16>, %k: tensor<?x16xf16>, %v: tensor<?x16xf16>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] : (tensor<?x16xf16>, tensor<?x16xf16>, tensor<?x16xf16>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#all = affine_map<(m, n) -> (m, n)>
#column = affine_map<(m, n) -> (n)>

func.func @product_with_rows(%a: tensor<?x515xf16>, %b: tensor<?x515xf16>) -> tensor<?x?xf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f16
  %m = tensor.dim %a, %c0 : tensor<?x515xf16>
  %n = tensor.dim %b, %c0 : tensor<?x515xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf16>
  %zeros = linalg.fill ins(%zero : f16) outs(%empty : tensor<?x?xf16>) -> tensor<?x?xf16>
  %c = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<?x515xf16>, tensor<?x515xf16>) outs(%zeros : tensor<?x?xf16>) {
    ^bb0(%x: f16, %y: f16, %o: f16):
      %p = arith.mulf %x, %y : f16
      %s = arith.addf %o, %p : f16
      linalg.yield %s : f16
    } -> tensor<?x?xf16>
  return %c : tensor<?x?xf16>
}

func.func @product(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f16
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf16>
  %zeros = linalg.fill ins(%zero : f16) outs(%empty : tensor<?x?xf16>) -> tensor<?x?xf16>
  %c = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%zeros : tensor<?x?xf16>) -> tensor<?x?xf16>
  return %c : tensor<?x?xf16>
}

func.func @layer(%x: tensor<?x?xf16>, %w: tensor<?x?xf16>, %b: tensor<?xf16>) -> tensor<?x?xf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf16>
  %n = tensor.dim %w, %c0 : tensor<?x?xf16>
  %wide = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%x, %w : tensor<?x?xf16>, tensor<?x?xf16>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf16>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
    ins(%p, %b : tensor<?x?xf32>, tensor<?xf16>) outs(%empty : tensor<?x?xf16>) {
    ^bb0(%e: f32, %f: f16, %o: f16):
      %g = arith.extf %f : f16 to f32
      %s = arith.addf %e, %g : f32
      %t = arith.truncf %s : f32 to f16
      linalg.yield %t : f16
    } -> tensor<?x?xf16>
  return %y : tensor<?x?xf16>
}

func.func @product_in_f32(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %c : tensor<?x?xf32>
}

func.func @heads_are_contiguous(%q: tensor<?x64x?xf16>, %k: tensor<?x64x?xf16>, %v: tensor<?x64x?xf16>) -> tensor<?x64x?xf16> {
  %o = attn.attention %q[s,d,h], %k[s,d,h], %v[s,d,h] scale(-0.125)
    : (tensor<?x64x?xf16>, tensor<?x64x?xf16>, tensor<?x64x?xf16>) -> tensor<?x64x?xf16>
  return %o : tensor<?x64x?xf16>
}
