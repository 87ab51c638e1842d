// Values that are equal in groups of lanes: a position divided by 4 and what depends on the lane only through it.
// RUN: saccade-opt %s --attn-lower-linalg=target=v4 --canonicalize --cse | FileCheck %s

// Four registers of positions are computed at a time, since their groups of four fill one register. The first position
// may be in the middle of a group, which is tested.
// CHECK-LABEL: func.func @groups_of_four(
// CHECK-SAME:    %[[FIRST:.*]]: index,
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %c64
// CHECK:           %[[J:.*]] = arith.addi %[[I]], %[[FIRST]] : index
// CHECK:           %[[K:.*]] = arith.index_cast %[[J]] : index to i32
// CHECK:           %[[REST:.*]] = arith.andi %[[K]], %c3_i32
// CHECK:           %[[IS_START:.*]] = arith.cmpi eq, %[[REST]], %c0_i32
// CHECK:           scf.if %[[IS_START]]
// CHECK-COUNT-9:     arith.muli {{.*}} : vector<16xi32>
// CHECK-NOT:         arith.muli
// CHECK:             %[[ALL:.*]] = vector.shuffle {{.*}} [0, 0, 0, 0, 1, 1, 1, 1, {{.*}}, 15, 15, 15, 15] : vector<16xi32>, vector<16xi32>
// CHECK:             arith.addi %[[ALL]], %{{.*}} : vector<64xi32>
// CHECK:           } else {
// CHECK-COUNT-9:     arith.muli {{.*}} : vector<64xi32>
// CHECK-NOT:       scf.if
// CHECK:           vector.store
func.func @groups_of_four(%first: index, %y: memref<?xi32>) {
  linalg.generic {indexing_maps = [affine_map<(n) -> (n)>], iterator_types = ["parallel"]} outs(%y : memref<?xi32>) {
    ^bb0(%o: i32):
      %two = arith.constant 2 : i32
      %three = arith.constant 3 : i32
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %i = linalg.index 0 : index
      %j = arith.addi %i, %first : index
      %k = arith.index_cast %j : index to i32
      %block = arith.shrui %k, %two : i32
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
      %place = arith.andi %k, %three : i32
      %r = arith.addi %x8, %place : i32
      linalg.yield %r : i32
  }
  return
}

// A few ops do not pay for the test.
// CHECK-LABEL: func.func @few_ops(
// CHECK:         scf.for {{.*}} step %c16
// CHECK-NOT:       scf.if
// CHECK:           vector.store
func.func @few_ops(%first: index, %y: memref<?xi32>) {
  linalg.generic {indexing_maps = [affine_map<(n) -> (n)>], iterator_types = ["parallel"]} outs(%y : memref<?xi32>) {
    ^bb0(%o: i32):
      %two = arith.constant 2 : i32
      %three = arith.constant 3 : i32
      %a = arith.constant 1664525 : i32
      %c = arith.constant 1013904223 : i32
      %i = linalg.index 0 : index
      %j = arith.addi %i, %first : index
      %k = arith.index_cast %j : index to i32
      %block = arith.shrui %k, %two : i32
      %m0 = arith.muli %block, %a : i32
      %x0 = arith.xori %m0, %c : i32
      %m1 = arith.muli %x0, %a : i32
      %x1 = arith.xori %m1, %c : i32
      %place = arith.andi %k, %three : i32
      %r = arith.addi %x1, %place : i32
      linalg.yield %r : i32
  }
  return
}

// A uniform 64-bit value does not halve the number of lanes.
// CHECK-LABEL: func.func @uniform_seed(
// CHECK:         scf.for {{.*}} step %c16
func.func @uniform_seed(%seed: i64, %y: memref<?xi32>) {
  linalg.generic {indexing_maps = [affine_map<(n) -> (n)>], iterator_types = ["parallel"]} outs(%y : memref<?xi32>) {
    ^bb0(%o: i32):
      %half = arith.constant 32 : i64
      %upper = arith.shrui %seed, %half : i64
      %word = arith.trunci %upper : i64 to i32
      %r = arith.xori %o, %word : i32
      linalg.yield %r : i32
  }
  return
}
