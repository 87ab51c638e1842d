// RUN: saccade-opt --saccade-bufferize %s | FileCheck %s

// The whole stage on tiled attention: results are written directly, K and V are not copied, and the state of a tile is a
// static buffer of the task.

// CHECK-LABEL: func.func @tiles_read_and_write_the_callers_memory(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf32, strided<[?, ?, ?, ?], offset: ?>>,
// CHECK-SAME:    %[[K:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>,
// CHECK-SAME:    %[[BIAS:[a-z0-9]+]]: memref<8xf32, {{[^%]*}}>,
// CHECK-SAME:    %[[O:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32, {{[^%]*}}>)
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     linalg.copy
// CHECK:         attn.launch @tiles_read_and_write_the_callers_memory.attention(%[[Q]], %[[K]], %[[V]], %[[BIAS]], %[[O]], %[[LSE]],
// CHECK-NOT:     linalg.copy
// CHECK:         return

// CHECK:       func.func private @tiles_read_and_write_the_callers_memory.attention(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>,
// CHECK-SAME:    %[[BIAS:[a-z0-9]+]]: memref<8xf32, {{[^%]*}}>,
// CHECK-SAME:    %[[O:[a-z0-9]+]]: memref<?x?x?x64xf32, {{[^%]*}}>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32,
// CHECK-NOT:     linalg.copy
// CHECK:         scf.for
// CHECK-DAG:       memref.subview %[[Q]]
// CHECK-DAG:       %[[ACC:.*]] = memref.alloc() {{.*}} : memref<96x64xf32>
// CHECK-DAG:       memref.alloc() {{.*}} : memref<96xf32>
// CHECK-DAG:       memref.alloc() {{.*}} : memref<96xf32>
// CHECK-NOT:       memref.alloc
// CHECK-NOT:       linalg.copy
// CHECK:           scf.for
// CHECK-DAG:         %[[KEYS:.*]] = memref.subview %[[K]]
// CHECK-DAG:         %[[VALUES:.*]] = memref.subview %[[V]]
// CHECK:             attn.accumulate %{{.*}}[s,d], %[[KEYS]][s,d], %[[VALUES]][s,d] captures(%[[BIAS]] : {{.*}} into(%[[ACC]],
// CHECK-NOT:       linalg.copy
// CHECK-DAG:       %[[ROWS:.*]] = memref.subview %[[O]]
// CHECK-DAG:       %[[SUMS:.*]] = memref.subview %[[LSE]]
// CHECK:           attn.finalize %[[ACC]], {{.*}} into(%[[ROWS]][s,d] : {{.*}}, %[[SUMS]] :
// CHECK-NOT:       linalg.copy
// CHECK:         return
#map = affine_map<(d0)[s0] -> (-d0 + s0, 96)>
#mapk = affine_map<(d0)[s0] -> (-d0 + s0, 512)>
func.func @tiles_read_and_write_the_callers_memory(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>, %bias: tensor<8xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c512 = arith.constant 512 : index
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %b = tensor.dim %q, %c0 : tensor<?x?x?x64xf32>
  %h = tensor.dim %q, %c1 : tensor<?x?x?x64xf32>
  %s = tensor.dim %q, %c2 : tensor<?x?x?x64xf32>
  %n = tensor.dim %k, %c2 : tensor<?x?x?x64xf32>
  %e = tensor.empty(%b, %h, %s) : tensor<?x?x?x64xf32>
  %el = tensor.empty(%b, %h, %s) : tensor<?x?x?xf32>
  %a0 = tensor.empty() : tensor<96x64xf32>
  %m0 = tensor.empty() : tensor<96xf32>
  %r:2 = scf.forall (%i, %j, %t) = (0, 0, 0) to (%b, %h, %s) step (1, 1, 96) shared_outs(%o = %e, %l = %el) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
    %sz = affine.min #map(%t)[%s]
    %qt = tensor.extract_slice %q[%i, %j, %t, 0] [1, 1, %sz, 64] [1, 1, 1, 1] : tensor<?x?x?x64xf32> to tensor<?x64xf32>
    %acc0 = linalg.fill ins(%zero : f32) outs(%a0 : tensor<96x64xf32>) -> tensor<96x64xf32>
    %max0 = linalg.fill ins(%ninf : f32) outs(%m0 : tensor<96xf32>) -> tensor<96xf32>
    %sum0 = linalg.fill ins(%zero : f32) outs(%m0 : tensor<96xf32>) -> tensor<96xf32>
    %st:3 = scf.for %kk = %c0 to %n step %c512 iter_args(%a = %acc0, %m = %max0, %su = %sum0) -> (tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>) {
      %szk = affine.min #mapk(%kk)[%n]
      %kt = tensor.extract_slice %k[%i, %j, %kk, 0] [1, 1, %szk, 64] [1, 1, 1, 1] : tensor<?x?x?x64xf32> to tensor<?x64xf32>
      %vt = tensor.extract_slice %v[%i, %j, %kk, 0] [1, 1, %szk, 64] [1, 1, 1, 1] : tensor<?x?x?x64xf32> to tensor<?x64xf32>
      %x:3 = attn.accumulate %qt[s,d], %kt[s,d], %vt[s,d] captures(%bias : tensor<8xf32>) kv_len(%n : index) at(%i, %j, %t, %kk)
        into(%a, %m, %su : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
        mask(%mb, %mh, %mq, %mk, %mc) {
          %len = attn.length key
          %in = arith.cmpi slt, %mk, %len : index
          attn.yield %in : i1
        }
        score(%sc, %sb, %sh, %sq, %sk, %sl) {
          %bb = tensor.extract %sl[%sh] : tensor<8xf32>
          %rr = arith.addf %sc, %bb : f32
          attn.yield %rr : f32
        }
        : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
      scf.yield %x#0, %x#1, %x#2 : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>
    }
    %os = tensor.extract_slice %o[%i, %j, %t, 0] [1, 1, %sz, 64] [1, 1, 1, 1] : tensor<?x?x?x64xf32> to tensor<?x64xf32>
    %ls = tensor.extract_slice %l[%i, %j, %t] [1, 1, %sz] [1, 1, 1] : tensor<?x?x?xf32> to tensor<?xf32>
    %f:2 = attn.finalize %st#0, %st#1, %st#2 : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32> into(%os[s,d] : tensor<?x64xf32>, %ls : tensor<?xf32>)
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %f#0 into %o[%i, %j, %t, 0] [1, 1, %sz, 64] [1, 1, 1, 1] : tensor<?x64xf32> into tensor<?x?x?x64xf32>
      tensor.parallel_insert_slice %f#1 into %l[%i, %j, %t] [1, 1, %sz] [1, 1, 1] : tensor<?xf32> into tensor<?x?x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}
