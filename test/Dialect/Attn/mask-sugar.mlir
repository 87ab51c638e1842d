// The parser expands mask sugar and conjoins repeated masks in textual order.
// RUN: saccade-opt %s | FileCheck %s

// CHECK-LABEL: func.func @causal_top_left
// CHECK: mask(%[[B:.*]], %[[H:.*]], %[[Q:.*]], %[[K:.*]]) {
// CHECK-NEXT: %[[HOLDS:.*]] = arith.cmpi sle, %[[K]], %[[Q]] : index
// CHECK-NEXT: attn.yield %[[HOLDS]] : i1
func.func @causal_top_left(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_left>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// Aligned at the lengths: key − number of keys ≤ query − number of queries.
// CHECK-LABEL: func.func @causal_bottom_right
// CHECK: mask(%{{.*}}, %{{.*}}, %[[Q:.*]], %[[K:.*]]) {
// CHECK-DAG: %[[KEYS:.*]] = attn.length key
// CHECK-DAG: %[[QUERIES:.*]] = attn.length query
// CHECK: %[[SHIFT:.*]] = arith.subi %[[KEYS]], %[[QUERIES]] : index
// CHECK: %[[LIMIT:.*]] = arith.addi %[[Q]], %[[SHIFT]] : index
// CHECK: arith.cmpi sle, %[[K]], %[[LIMIT]] : index
func.func @causal_bottom_right(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<bottom_right>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @causal_offset
// CHECK: mask(%{{.*}}, %{{.*}}, %[[Q:.*]], %[[K:.*]]) {
// CHECK: %[[C:.*]] = arith.constant -2 : index
// CHECK: %[[LIMIT:.*]] = arith.addi %[[Q]], %[[C]] : index
// CHECK: arith.cmpi sle, %[[K]], %[[LIMIT]] : index
func.func @causal_offset(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<-2>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @window_is_closed_on_both_sides
// CHECK: mask(%{{.*}}, %{{.*}}, %[[Q:.*]], %[[K:.*]]) {
// CHECK: %[[L:.*]] = arith.constant -4 : index
// CHECK: %[[FIRST:.*]] = arith.addi %[[Q]], %[[L]] : index
// CHECK: %[[AFTER:.*]] = arith.cmpi sge, %[[K]], %[[FIRST]] : index
// CHECK: %[[R:.*]] = arith.constant 3 : index
// CHECK: %[[LAST:.*]] = arith.addi %[[Q]], %[[R]] : index
// CHECK: %[[BEFORE:.*]] = arith.cmpi sle, %[[K]], %[[LAST]] : index
// CHECK: %[[HOLDS:.*]] = arith.andi %[[AFTER]], %[[BEFORE]] : i1
// CHECK: attn.yield %[[HOLDS]] : i1
func.func @window_is_closed_on_both_sides(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<4, 3>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @half_open_windows
// CHECK: mask(
// CHECK: arith.cmpi sge
// CHECK-NOT: arith.cmpi
// CHECK: attn.yield
// CHECK: mask(
// CHECK: arith.cmpi sle
// CHECK-NOT: arith.cmpi
// CHECK: attn.yield
func.func @half_open_windows(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %left = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<4, *>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %right = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<*, 0>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %left, %right : tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @window_without_bounds_always_holds
// CHECK: mask(
// CHECK-NEXT: %[[TRUE:.*]] = arith.constant true
// CHECK-NEXT: attn.yield %[[TRUE]] : i1
func.func @window_without_bounds_always_holds(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask window<*, *>
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @masks_are_joined_in_textual_order
// CHECK: mask(%{{.*}}, %{{.*}}, %[[Q:.*]], %[[K:.*]], %[[KEEP:.*]]) {
// CHECK: %[[CAUSAL:.*]] = arith.cmpi sle, %[[K]], %[[Q]] : index
// CHECK: %[[KEPT:.*]] = tensor.extract %[[KEEP]][%[[K]]] : tensor<?xi1>
// CHECK: %[[BOTH:.*]] = arith.andi %[[CAUSAL]], %[[KEPT]] : i1
// CHECK: %[[NEAR:.*]] = arith.cmpi sge, %[[K]]
// CHECK: %[[ALL:.*]] = arith.andi %[[BOTH]], %[[NEAR]] : i1
// CHECK: attn.yield %[[ALL]] : i1
// CHECK-NOT: mask
// CHECK: return
func.func @masks_are_joined_in_textual_order(%x: tensor<?x8xf32>, %keep: tensor<?xi1>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%keep : tensor<?xi1>)
    mask causal<top_left>
    mask(%b, %h, %i, %j, %flags) {
      %holds = tensor.extract %flags[%j] : tensor<?xi1>
      attn.yield %holds : i1
    }
    mask window<7, *> : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}
