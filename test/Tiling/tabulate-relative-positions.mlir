// RUN: saccade-opt %s --attn-tabulate-relative-positions --canonicalize | FileCheck %s

// Buckets of relative positions and their table lookup become a table over heads and relative positions, of queries + keys
// elements and 128 more on either side.
// CHECK-LABEL: func.func @buckets_are_tabulated(
// CHECK-SAME:    %[[Q:[a-z0-9]*]]: tensor<1x2x?x16xf32>, %[[K:[a-z0-9]*]]: tensor<1x2x?x16xf32>, %[[T:[a-z0-9]*]]: tensor<8x2xf32>)
// CHECK-DAG:     %[[PAD:.*]] = arith.constant 256 : index
// CHECK-DAG:     %[[SQ:.*]] = tensor.dim %[[Q]]
// CHECK-DAG:     %[[SK:.*]] = tensor.dim %[[K]]
// CHECK-DAG:     %[[SUM:.*]] = arith.addi %[[SQ]], %[[SK]]
// CHECK:         %[[N:.*]] = arith.addi %[[SUM]], %[[PAD]]
// CHECK:         %[[E:.*]] = tensor.empty(%[[N]]) : tensor<2x?xf32>
// CHECK:         %[[TABLE:.*]] = linalg.generic {{.*}} outs(%[[E]] : tensor<2x?xf32>)
// CHECK:           math.log
// CHECK:           tensor.extract %[[T]]
// CHECK:         attn.attention
// CHECK-SAME:      %[[TABLE]]
// CHECK:         score(%[[S:.*]], %{{.*}}, %[[H:.*]], %[[I:.*]], %[[J:[a-z0-9]*]], %{{[a-z0-9]*}}, %[[A:[a-z0-9]*]], %[[START:[a-z0-9]*]])
// CHECK-NEXT:      %[[D:.*]] = arith.subi %[[J]], %[[I]]
// CHECK-NEXT:      %[[P:.*]] = arith.subi %[[D]], %[[START]]
// CHECK-NEXT:      %[[X:.*]] = tensor.extract %[[A]][%[[H]], %[[P]]] {attn.in_bounds}
// CHECK-NEXT:      %[[R:.*]] = arith.addf %[[S]], %[[X]]
// CHECK-NEXT:      attn.yield %[[R]]
func.func @buckets_are_tabulated(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %t: tensor<8x2xf32>) -> tensor<1x2x?x16xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] captures(%t : tensor<8x2xf32>)
    score(%s, %b, %h, %i, %j, %table) {
      %zero = arith.constant 0 : i32
      %seven = arith.constant 7 : i32
      %i32 = arith.index_cast %i : index to i32
      %j32 = arith.index_cast %j : index to i32
      %d = arith.subi %i32, %j32 : i32
      %n = arith.maxsi %d, %zero : i32
      %x = arith.sitofp %n : i32 to f32
      %l = math.log %x : f32
      %w = arith.fptosi %l : f32 to i32
      %m = arith.minsi %w, %seven : i32
      %p = arith.index_cast %m : i32 to index
      %y = tensor.extract %table[%p, %h] : tensor<8x2xf32>
      %r = arith.addf %s, %y : f32
      attn.yield %r : f32
    } : (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) -> tensor<1x2x?x16xf32>
  return %o : tensor<1x2x?x16xf32>
}

// EXAMPLE
// With a KV cache, the table covers only the valid keys.
// CHECK-LABEL: func.func @only_valid_keys(
// CHECK-SAME:    %[[Q:[a-z0-9]*]]: tensor<1x2x?x16xf32>, %[[K:[a-z0-9]*]]: tensor<1x2x?x16xf32>, %{{.*}}: tensor<8xf32>, %[[LENGTH:[a-z0-9]*]]: index)
// CHECK:         %[[SK:.*]] = tensor.dim %[[K]]
// CHECK:         %[[LEAST:.*]] = arith.minsi %[[SK]], %[[LENGTH]]
// CHECK:         %[[KEYS:.*]] = arith.maxsi %[[LEAST]], %
// CHECK:         %[[SUM:.*]] = arith.addi %{{.*}}, %[[KEYS]]
// CHECK:         arith.addi %[[SUM]],
func.func @only_valid_keys(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %t: tensor<8xf32>, %n: index) -> tensor<1x2x?x16xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] captures(%t : tensor<8xf32>) kv_len(%n : index)
    score(%s, %b, %h, %i, %j, %table) {
      %c7 = arith.constant 7 : index
      %d = arith.subi %j, %i : index
      %p = arith.minsi %d, %c7 : index
      %y = tensor.extract %table[%p] : tensor<8xf32>
      %r = arith.addf %s, %y : f32
      attn.yield %r : f32
    } : (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) -> tensor<1x2x?x16xf32>
  return %o : tensor<1x2x?x16xf32>
}

// Not tabulated: a multiplication, which is cheaper than a load, and terms of the key alone or of key + query.
// CHECK-LABEL: func.func @not_tabulated(
// CHECK-NOT:     linalg.generic
// CHECK:         attn.attention
func.func @not_tabulated(%q: tensor<1x2x?x16xf32>, %t: tensor<?xf32>) -> tensor<1x2x?x16xf32> {
  %o = attn.attention %q[b,h,s,d], %q[b,h,s,d], %q[b,h,s,d] captures(%t : tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %table) {
      %slope = tensor.extract %table[%h] : tensor<?xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %x = arith.sitofp %d32 : i32 to f32
      %y = arith.mulf %slope, %x : f32
      %s1 = arith.addf %s, %y : f32
      %key = tensor.extract %table[%j] : tensor<?xf32>
      %s2 = arith.addf %s1, %key : f32
      %sum = arith.addi %i, %j : index
      %far = tensor.extract %table[%sum] : tensor<?xf32>
      %s3 = arith.addf %s2, %far : f32
      attn.yield %s3 : f32
    } : (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) -> tensor<1x2x?x16xf32>
  return %o : tensor<1x2x?x16xf32>
}

// Positions are relative to `at`: the first entry is that of the last query and key 0, minus 128. 3 · (k − q) depends on
// the relative position, also in 8 bits. It does not use the head, so the table has one row.
// CHECK-LABEL: func.func @positions_are_relative_to_at(
// CHECK-SAME:    %[[AT:[a-z0-9]*]]: index
// CHECK:         %[[LEAST:.*]] = arith.constant -138 : index
// CHECK:         %[[FIRST:.*]] = arith.subi %[[LEAST]], %[[AT]]
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel"]} outs(%{{.*}} : tensor<274xf32>)
// CHECK:         attn.attention {{.*}} captures(%{{.*}}, %[[FIRST]] :
// CHECK:         tensor.extract %{{[a-z0-9]*}}[%{{[a-z0-9]*}}] {attn.in_bounds}
func.func @positions_are_relative_to_at(%at: index, %q: tensor<10x16xf32>, %k: tensor<8x16xf32>) -> tensor<10x16xf32> {
  %c0 = arith.constant 0 : index
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] at(%c0, %c0, %at, %c0)
    score(%s, %b, %h, %i, %j) {
      %three = arith.constant 3 : index
      %q3 = arith.muli %i, %three : index
      %k3 = arith.muli %j, %three : index
      %q8 = arith.index_cast %q3 : index to i8
      %k8 = arith.index_cast %k3 : index to i8
      %d = arith.subi %k8, %q8 : i8
      %x = arith.sitofp %d : i8 to f32
      %y = math.sin %x : f32
      %r = arith.addf %s, %y : f32
      attn.yield %r : f32
    } : (tensor<10x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<10x16xf32>
  return %o : tensor<10x16xf32>
}

// A term that reads the batch has a row for each one. Ragged sequences have no such rows, and share the others.
// CHECK-LABEL: func.func @batches_and_ragged_sequences(
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<3x?xf32>)
// CHECK:           math.sin
// CHECK:         attn.attention
// CHECK:         score(%{{[^,]*}}, %[[B:[^,]*]],
// CHECK-NOT:     math.sin
// CHECK:         tensor.extract %{{.*}}[%[[B]], %{{.*}}] {attn.in_bounds}
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<?xf32>)
// CHECK:           math.sin
// CHECK:         attn.attention
// CHECK-NOT:     math.sin
// CHECK:         attn.yield
// CHECK-NOT:     linalg.generic
// CHECK:         attn.attention
// CHECK:         math.sin
func.func @batches_and_ragged_sequences(%q: tensor<3x?x16xf32>, %t: tensor<3xf32>, %r: tensor<?x16xf32>, %cu: tensor<?xi32>) -> (tensor<3x?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) {
  %o = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d] captures(%t : tensor<3xf32>)
    score(%s, %b, %h, %i, %j, %each) {
      %d = arith.subi %j, %i : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f32
      %e = math.absf %x : f32
      %l = math.log %e : f32
      %w = math.sin %l : f32
      %y = tensor.extract %each[%b] : tensor<3xf32>
      %z = arith.mulf %w, %y : f32
      %a = arith.addf %s, %z : f32
      attn.yield %a : f32
    } : (tensor<3x?x16xf32>, tensor<3x?x16xf32>, tensor<3x?x16xf32>) -> tensor<3x?x16xf32>
  %p = attn.attention %r[s,d], %r[s,d], %r[s,d] cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)
    score(%s, %b, %h, %i, %j) {
      %d = arith.subi %j, %i : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f32
      %e = math.absf %x : f32
      %l = math.log %e : f32
      %w = math.sin %l : f32
      %a = arith.addf %s, %w : f32
      attn.yield %a : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  %u = attn.attention %r[s,d], %r[s,d], %r[s,d] captures(%t : tensor<3xf32>) cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)
    score(%s, %b, %h, %i, %j, %each) {
      %d = arith.subi %j, %i : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f32
      %e = math.absf %x : f32
      %l = math.log %e : f32
      %w = math.sin %l : f32
      %y = tensor.extract %each[%b] : tensor<3xf32>
      %z = arith.mulf %w, %y : f32
      %a = arith.addf %s, %z : f32
      attn.yield %a : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o, %p, %u : tensor<3x?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>
}
