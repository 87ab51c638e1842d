// Regions that compute numbers for groups of keys, from the position divided by a constant: one number for each group,
// for positions that begin in a group or at its start. The tile of keys is longer than a register and ends within one.
// RUN: saccade-run %s --entry=quarters --check --arg=2x2x20x32:f32:1 --arg=2x2x703x32:f32:2 --arg=2x2x703x32:f32:3 --arg=8
// RUN: saccade-run %s --entry=quarters --check --arg=2x2x20x32:f32:1 --arg=2x2x703x32:f32:2 --arg=2x2x703x32:f32:3 --arg=7
// RUN: saccade-run %s --entry=quarters --check --arg=1x2x3x32:f32:1 --arg=1x2x1100x32:f32:2 --arg=1x2x1100x32:f32:3 --arg=-4
// RUN: saccade-run %s --entry=quarters --check --target=v3 --arg=2x2x20x32:f32:1 --arg=2x2x703x32:f32:2 --arg=2x2x703x32:f32:3 --arg=16
// RUN: saccade-run %s --entry=quarters --check --target=portable --arg=1x2x20x32:f32:1 --arg=1x2x70x32:f32:2 --arg=1x2x70x32:f32:3 --arg=12
// RUN: saccade-run %s --entry=halves --check --arg=2x2x20x32:bf16:1 --arg=2x2x703x32:bf16:2 --arg=2x2x703x32:bf16:3 --arg=6
// RUN: saccade-run %s --entry=halves --check --arg=2x2x20x32:bf16:1 --arg=2x2x703x32:bf16:2 --arg=2x2x703x32:bf16:3 --arg=-3

func.func @quarters(%q: tensor<?x2x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x32xf32>, %j0: index)
    -> (tensor<?x2x?x32xf32>, tensor<?x2x?x3xf32>) {
  %zero = arith.constant 0 : index
  %o, %t = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] at(%zero, %zero, %zero, %j0)
    mask(%b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.shrui %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %keeps = arith.cmpi ne, %small, %mask : i32
      attn.yield %keeps : i1
    }
    score(%s, %b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.shrui %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %f = arith.sitofp %small : i32 to f32
      %r = arith.addf %s, %f : f32
      attn.yield %r : f32
    }
    weight(%p, %b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.shrui %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %three = arith.constant 3 : i32
      %place = arith.andi %k, %three : i32
      %sum = arith.addi %small, %place : i32
      %f = arith.sitofp %sum : i32 to f32
      %r = arith.mulf %p, %f : f32
      attn.yield %r : f32
    }
    tally<3>(%s, %b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.shrui %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %f = arith.sitofp %small : i32 to f32
      %one = arith.constant 1 : index
      %bin = arith.addi %h, %one : index
      attn.yield %bin, %f : index, f32
    }
    : (tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>)
    -> (tensor<?x2x?x32xf32>, tensor<?x2x?x3xf32>)
  return %o, %t : tensor<?x2x?x32xf32>, tensor<?x2x?x3xf32>
}

func.func @halves(%q: tensor<?x2x?x32xbf16>, %k: tensor<?x2x?x32xbf16>, %v: tensor<?x2x?x32xbf16>, %j0: index)
    -> (tensor<?x2x?x32xbf16>, tensor<?x2x?x3xf32>) {
  %zero = arith.constant 0 : index
  %o, %t = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] at(%zero, %zero, %zero, %j0)
    mask(%b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.floordivsi %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %keeps = arith.cmpi ne, %small, %mask : i32
      attn.yield %keeps : i1
    }
    score(%s, %b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.floordivsi %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %f = arith.sitofp %small : i32 to f32
      %r = arith.addf %s, %f : f32
      attn.yield %r : f32
    }
    weight(%p, %b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.floordivsi %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %three = arith.constant 3 : i32
      %place = arith.andi %k, %three : i32
      %sum = arith.addi %small, %place : i32
      %f = arith.sitofp %sum : i32 to f32
      %r = arith.mulf %p, %f : f32
      attn.yield %r : f32
    }
    tally<3>(%s, %b, %h, %i, %j) {
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %k = arith.index_cast %j : index to i32
      %by = arith.constant 2 : i32
      %block = arith.floordivsi %k, %by : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %m2 = arith.muli %x1, %a : i32
      %x2 = arith.xori %m2, %c : i32
      %m3 = arith.muli %x2, %a : i32
      %x3 = arith.xori %m3, %c : i32
      %m4 = arith.muli %x3, %a : i32
      %x4 = arith.xori %m4, %c : i32
      %m5 = arith.muli %x4, %a : i32
      %x5 = arith.xori %m5, %c : i32
      %m6 = arith.muli %x5, %a : i32
      %x6 = arith.xori %m6, %c : i32
      %m7 = arith.muli %x6, %a : i32
      %x7 = arith.xori %m7, %c : i32
      %m8 = arith.muli %x7, %a : i32
      %x8 = arith.xori %m8, %c : i32
      %mask = arith.constant 7 : i32
      %upper = arith.shrui %x8, %mask : i32
      %small = arith.andi %upper, %mask : i32
      %f = arith.sitofp %small : i32 to f32
      %one = arith.constant 1 : index
      %bin = arith.addi %h, %one : index
      attn.yield %bin, %f : index, f32
    }
    : (tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>)
    -> (tensor<?x2x?x32xbf16>, tensor<?x2x?x3xf32>)
  return %o, %t : tensor<?x2x?x32xbf16>, tensor<?x2x?x3xf32>
}
