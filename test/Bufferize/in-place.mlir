// Keys and values are appended to the memory of the caller, which attention reads: no cache is copied.
// RUN: saccade-compile %s --target=v3 --stop-after=bufferize | FileCheck %s

// The only copy is in the task that appends, of rows.
// CHECK-LABEL: func.func @step.body(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<{{[^%]*}} %[[K:[a-z0-9]+]]: memref<{{[^%]*}} %[[V:[a-z0-9]+]]: memref<{{[^%]*}}
// CHECK-SAME:    %[[KC:[a-z0-9]+]]: memref<{{[^%]*}} %[[VC:[a-z0-9]+]]: memref<{{[^%]*}} %[[LEN:[a-z0-9]+]]: memref<{{[^%]*}}
// CHECK-SAME:    %[[END:[a-z0-9]+]]: memref<{{[^%]*}} %[[OUT:[a-z0-9]+]]: memref<?x8x?x64xf32, strided<[?, ?, ?, ?], offset: ?>>)
// CHECK-SAME:    name = "step", names = ["q", "k", "v", "k_cache", "v_cache", "len", "end", "output"], {{.*}}, updated_by = array<i64: -1, -1, -1, 1, 2, -1, -1>}
// CHECK-NOT:     memref.alloc{{.*}}x2x?x64xf32
// CHECK-NOT:     linalg.copy
// CHECK:         attn.launch @[[APPEND:step.append[_0-9]*]]({{.*}}%[[KC]], %[[K]],
// CHECK-NOT:     memref.alloc{{.*}}x2x?x64xf32
// CHECK-NOT:     linalg.copy
// CHECK:         attn.launch @[[APPEND]]({{.*}}%[[VC]], %[[V]],
// CHECK-NOT:     memref.alloc{{.*}}x2x?x64xf32
// CHECK-NOT:     linalg.copy
// CHECK:         attn.launch @{{.*}}(%[[Q]], {{.*}}%[[KC]], %[[VC]], {{.*}}%[[OUT]],
// CHECK-NOT:     memref.alloc{{.*}}x2x?x64xf32
// CHECK-NOT:     linalg.copy
// CHECK:         attn.launch @{{.*}}({{.*}}%[[KC]], %[[VC]],
// CHECK-NOT:     linalg.copy
// CHECK:       func.func private @[[APPEND]](
// CHECK-NOT:     memref.alloc
// CHECK-COUNT-1: linalg.copy ins(%{{.*}} : memref<2x?x64xf32, strided<[?, ?, ?], offset: ?>>) outs(
// CHECK-NOT:     linalg.copy
func.func @step(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>,
                %k_cache: tensor<?x2x?x64xf32> {attn.updated_by = 1}, %v_cache: tensor<?x2x?x64xf32> {attn.updated_by = 2},
                %len: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) {
  %ks = attn.append %k[b,h,s,d] to %k_cache[b,h,s,d] at(%len : tensor<?xi32>)
    : (tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
  %vs = attn.append %v[b,h,s,d] to %v_cache[b,h,s,d] at(%len : tensor<?xi32>)
    : (tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
  %o = attn.attention %q[b,h,s,d], %ks[b,h,s,d], %vs[b,h,s,d] kv_len(%end : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o, %ks, %vs : tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>
}

// So are those of a page pool, and attention reads its pages in place.
// CHECK-LABEL: func.func @paged_step.body(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<{{[^%]*}} %[[K:[a-z0-9]+]]: memref<{{[^%]*}} %[[V:[a-z0-9]+]]: memref<{{[^%]*}}
// CHECK-SAME:    %[[KP:[a-z0-9]+]]: memref<?x16x2x64xf32, {{[^%]*}} %[[VP:[a-z0-9]+]]: memref<?x16x2x64xf32,
// CHECK-NOT:     memref.alloc{{.*}}x2x64xf32
// CHECK-NOT:     {{linalg|memref}}.copy
// CHECK:         attn.launch @{{.*}}%[[K]], {{.*}}%[[KP]],
// CHECK-NOT:     memref.alloc{{.*}}x2x64xf32
// CHECK-NOT:     {{linalg|memref}}.copy
// CHECK:         attn.launch @{{.*}}%[[V]], {{.*}}%[[VP]],
// CHECK-NOT:     memref.alloc{{.*}}x2x64xf32
// CHECK-NOT:     {{linalg|memref}}.copy
// CHECK:         attn.launch @{{.*}}(%[[Q]], {{.*}}%[[KP]], {{.*}}%[[VP]],
// CHECK-NOT:     memref.alloc{{.*}}x2x64xf32
// CHECK-NOT:     {{linalg|memref}}.copy
// CHECK:         return
func.func @paged_step(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>,
                      %k_pool: tensor<?x16x2x64xf32> {attn.updated_by = 1}, %v_pool: tensor<?x16x2x64xf32> {attn.updated_by = 2},
                      %table: tensor<?x?xi32>, %len: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x8x?x64xf32>, tensor<?x16x2x64xf32>, tensor<?x16x2x64xf32>) {
  %kp = attn.append %k[b,h,s,d] to %k_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
    : (tensor<?x2x?x64xf32>, tensor<?x16x2x64xf32>) -> tensor<?x16x2x64xf32>
  %vp = attn.append %v[b,h,s,d] to %v_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
    : (tensor<?x2x?x64xf32>, tensor<?x16x2x64xf32>) -> tensor<?x16x2x64xf32>
  %ks = attn.paged %kp[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %vs = attn.paged %vp[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %o = attn.attention %q[b,h,s,d], %ks[b,s,h,d], %vs[b,s,h,d] kv_len(%end : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x64xf32>) -> tensor<?x8x?x64xf32>
  return %o, %kp, %vp : tensor<?x8x?x64xf32>, tensor<?x16x2x64xf32>, tensor<?x16x2x64xf32>
}
