// RUN: saccade-opt %s --attn-tile-keys --attn-skip-masked-tiles -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-tile-keys --attn-skip-masked-tiles -canonicalize -cse | FileCheck %s --check-prefix=TABLE
// RUN: saccade-opt %s --attn-tile-keys --attn-skip-masked-tiles=gpu=true -canonicalize -cse | FileCheck %s --check-prefix=GPU

// On a GPU code generation tests the tiles, and finds the tables among the captures. Unless a test reads it, a tensor has
// no table.
// GPU-NOT: scf.if
// GPU-LABEL: @unsupported_mask
// GPU-NOT: mask_tables
// GPU-LABEL: @documents
// GPU-SAME: %{{.*}}: tensor<?x64xf32>, %[[IDS:.*]]: tensor<?xi32>
// GPU: %[[TABLES:.*]]:2 = linalg.generic
// GPU: captures(%[[IDS]], %[[TABLES]]#0, %[[TABLES]]#1 : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
// GPU: attn.mask_tables = array<i64: 0>

// EXAMPLE
// An empty tile leaves the state unchanged.
// CHECK-LABEL: @blocks_on_the_diagonal
func.func @blocks_on_the_diagonal(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK: scf.for {{.*}} iter_args(%[[ACC:.*]] = %{{.*}}, %[[MAX:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}})
  // CHECK: %[[STATE:.*]]:3 = scf.if
  // CHECK: attn.accumulate
  // CHECK-NEXT: mask(
  // CHECK: } else {
  // CHECK: scf.yield %[[ACC]], %[[MAX]], %[[SUM]]
  // CHECK: scf.yield %[[STATE]]#0, %[[STATE]]#1, %[[STATE]]#2
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
      mask(%b, %h, %i, %j) {
        %size = arith.constant 100 : index
        %mine = arith.floordivsi %i, %size : index
        %theirs = arith.floordivsi %j, %size : index
        %holds = arith.cmpi eq, %mine, %theirs : index
        attn.yield %holds : i1
      } {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// If the loop bounds express the whole mask, tiles are not tested.
// CHECK-LABEL: @bounds_need_no_test
func.func @bounds_need_no_test(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK-NOT: scf.if
  // CHECK: attn.finalize
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask causal<top_left> mask window<100, *>
      {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// If the analysis does not support a mask, tiles are not skipped and keep their mask.
// CHECK-LABEL: @unsupported_mask
func.func @unsupported_mask(%x: tensor<?x64xf32>, %limits: tensor<?xf32>) -> tensor<?x64xf32> {
  // CHECK-NOT: scf.if
  // CHECK: attn.finalize
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%limits : tensor<?xf32>)
      mask(%b, %h, %i, %j, %t) {
        %zero = arith.constant 0.0 : f32
        %limit = tensor.extract %t[%j] : tensor<?xf32>
        %holds = arith.cmpf ogt, %limit, %zero : f32
        attn.yield %holds : i1
      } {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Tables of blocks are built once, outside of the task; bounds of the queries are computed before the key loop.
// TABLE-LABEL: @documents
// TABLE-SAME: %{{.*}}: tensor<?x64xf32>, %[[IDS:.*]]: tensor<?xi32>
func.func @documents(%x: tensor<?x64xf32>, %ids: tensor<?xi32>) -> tensor<?x64xf32> {
  // TABLE: %[[TABLES:.*]]:2 = linalg.generic {{.*}} outs(%{{.*}}, %{{.*}} : tensor<?xi32>, tensor<?xi32>)
  // TABLE-NOT: linalg.generic
  // TABLE: scf.forall
  // The ids of the queries: single elements, whole blocks, single elements.
  // TABLE: scf.for {{.*}} iter_args(%{{.*}}, %{{.*}}) -> (index, index)
  // TABLE: tensor.extract %[[IDS]]
  // TABLE: scf.for
  // TABLE: tensor.extract %[[TABLES]]#0
  // TABLE: tensor.extract %[[TABLES]]#1
  // TABLE: scf.for
  // TABLE: tensor.extract %[[IDS]]
  // The key loop.
  // TABLE: scf.for {{.*}} -> (tensor<384x64xf32>, tensor<384xf32>, tensor<384xf32>)
  // TABLE: tensor.extract %[[TABLES]]#0
  // TABLE: scf.if
  // TABLE: attn.accumulate
  %r = scf.forall (%t) in (4) shared_outs(%out = %x) -> tensor<?x64xf32> {
    %q = tensor.extract_slice %x[0, 0] [384, 64] [1, 1] : tensor<?x64xf32> to tensor<384x64xf32>
    %o = attn.attention %q[s,d], %x[s,d], %x[s,d] captures(%ids : tensor<?xi32>)
        mask(%b, %h, %i, %j, %doc) {
          %mine = tensor.extract %doc[%i] : tensor<?xi32>
          %theirs = tensor.extract %doc[%j] : tensor<?xi32>
          %holds = arith.cmpi eq, %mine, %theirs : i32
          attn.yield %holds : i1
        } {schedule = #attn.schedule<rows = 384, cols = 512>}
        : (tensor<384x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<384x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %o into %out[0, 0] [384, 64] [1, 1] : tensor<384x64xf32> into tensor<?x64xf32>
    }
  }
  return %r : tensor<?x64xf32>
}

// The table of a tensor that an iteration makes is made in that iteration, after the tensor and outside of the key loop.
// TABLE-LABEL: @tensor_of_an_iteration
// TABLE-SAME: %{{.*}}: tensor<?x64xf32>, %[[ALL:.*]]: tensor<?x?xi32>
func.func @tensor_of_an_iteration(%x: tensor<?x64xf32>, %all: tensor<?x?xi32>) -> tensor<?x64xf32> {
  // TABLE-NOT: linalg.generic
  // TABLE: scf.for %[[N:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(
  // TABLE: %[[IDS:.*]] = tensor.extract_slice %[[ALL]][%[[N]], 0]
  // TABLE: linalg.generic {{.*}} outs(%{{.*}}, %{{.*}} : tensor<?xi32>, tensor<?xi32>)
  // TABLE: tensor.extract %[[IDS]]
  // TABLE: scf.for
  // TABLE-NOT: linalg.generic
  // TABLE: attn.accumulate
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rows = tensor.dim %all, %zero : tensor<?x?xi32>
  %keys = tensor.dim %all, %one : tensor<?x?xi32>
  %r = scf.for %n = %zero to %rows step %one iter_args(%y = %x) -> tensor<?x64xf32> {
    %ids = tensor.extract_slice %all[%n, 0] [1, %keys] [1, 1] : tensor<?x?xi32> to tensor<?xi32>
    %o = attn.attention %y[s,d], %x[s,d], %x[s,d] captures(%ids : tensor<?xi32>)
        mask(%b, %h, %i, %j, %t) {
          %mine = tensor.extract %t[%i] : tensor<?xi32>
          %theirs = tensor.extract %t[%j] : tensor<?xi32>
          %holds = arith.cmpi eq, %mine, %theirs : i32
          attn.yield %holds : i1
        } {schedule = #attn.schedule<rows = 384, cols = 512>}
        : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
    scf.yield %o : tensor<?x64xf32>
  }
  return %r : tensor<?x64xf32>
}
