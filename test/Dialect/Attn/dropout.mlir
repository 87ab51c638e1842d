// The parser expands dropout to Philox4x32-10 at the end of the weight region. The generator has 10 rounds of two
// products.
// RUN: saccade-opt %s -split-input-file | FileCheck %s
// RUN: saccade-opt %s -split-input-file | saccade-opt -split-input-file | FileCheck %s
// RUN: saccade-opt %s -split-input-file -attn-assign-schedule -attn-tile-queries -attn-tile-keys | FileCheck %s --check-prefix=ONE-PASS

// The threshold of the rate 0.25 is 2^22 of 2^24, the factor 4/3.
// CHECK-LABEL: func.func @constant_rate
// CHECK: captures(%{{.*}} : i64)
// CHECK: weight(%[[P:.*]], %[[B:.*]], %[[H:.*]], %[[Q:.*]], %[[K:.*]], %[[SEED:.*]]) {
// CHECK-DAG: %[[HEADS:.*]] = arith.constant 6 : index
// CHECK: %[[FIRST:.*]] = arith.muli %[[B]], %[[HEADS]] : index
// CHECK: %[[ROW:.*]] = arith.addi %[[FIRST]], %[[H]] : index
// CHECK-DAG: %[[KEY:.*]] = arith.index_cast %[[K]] : index to i32
// CHECK-DAG: %[[COUNTER:.*]] = arith.index_cast %[[ROW]] : index to i32
// CHECK-DAG: %[[BLOCK:.*]] = arith.shrui %[[KEY]], %{{.*}} : i32
// CHECK-DAG: arith.trunci %[[SEED]] : i64 to i32
// CHECK: arith.mului_extended %[[COUNTER]], %{{.*}} : i32
// CHECK: arith.mului_extended %[[BLOCK]], %{{.*}} : i32
// CHECK-COUNT-18: arith.mului_extended
// CHECK-NOT: arith.mului_extended
// CHECK: %[[WORD:.*]] = arith.select
// CHECK: %[[C8:.*]] = arith.constant 8 : i32
// CHECK: %[[BITS:.*]] = arith.shrui %{{.*}}, %[[C8]] : i32
// CHECK: %[[THRESHOLD:.*]] = arith.constant 4194304 : i32
// CHECK: %[[KEPT:.*]] = arith.cmpi uge, %[[BITS]], %[[THRESHOLD]] : i32
// CHECK: %[[FACTOR:.*]] = arith.constant 1.33333337 : f32
// CHECK: %[[SCALED:.*]] = arith.mulf %[[P]], %[[FACTOR]] : f32
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[RESULT:.*]] = arith.select %[[KEPT]], %[[SCALED]], %[[ZERO]] : f32
// CHECK: attn.yield %[[RESULT]] : f32
// ONE-PASS-LABEL: func.func @constant_rate
// A proportional weight needs one pass over the keys, in the loop over tiles and with split-KV.
// ONE-PASS-COUNT-2: attn.accumulate
// ONE-PASS-NOT: attn.accumulate
// ONE-PASS: return
func.func @constant_rate(%q: tensor<?x6x?x8xf32>, %k: tensor<?x2x?x8xf32>, %seed: i64) -> tensor<?x6x?x8xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] dropout(0.25, %seed : i64)
    : (tensor<?x6x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) -> tensor<?x6x?x8xf32>
  return %o : tensor<?x6x?x8xf32>
}

// -----

// A rate and a number of heads from outside. The rate is clamped to [0, 1], and the factor of rate 1 is 0.
// CHECK-LABEL: func.func @run_time_operands
// CHECK: captures(%{{.*}}, %{{.*}}, %{{.*}} : tensor<f32>, tensor<1xi64>, index)
// CHECK: weight(%{{.*}}, %[[B:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %[[RATE:.*]], %[[SEED:.*]], %[[HEADS:.*]]) {
// CHECK-DAG: tensor.extract %[[SEED]][%{{.*}}] : tensor<1xi64>
// CHECK-DAG: %[[R:.*]] = tensor.extract %[[RATE]][] : tensor<f32>
// CHECK: %[[MAX:.*]] = arith.maxnumf %[[R]], %{{.*}} : f32
// CHECK: %[[CLAMPED:.*]] = arith.minnumf %[[MAX]], %{{.*}} : f32
// CHECK: arith.muli %[[B]], %[[HEADS]] : index
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[CLAMPED]], %{{.*}} : f32
// CHECK: %[[CEIL:.*]] = math.ceil %[[PRODUCT]] : f32
// CHECK: arith.fptosi %[[CEIL]] : f32 to i32
// CHECK: %[[WIDE:.*]] = arith.extf %[[CLAMPED]] : f32 to f64
// CHECK: %[[KEEP:.*]] = arith.subf %{{.*}}, %[[WIDE]] : f64
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[KEEP]], %{{.*}} : f64
// CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %[[KEEP]] : f64
// CHECK: arith.select %[[NONE]], %{{.*}}, %[[INVERSE]] : f64
func.func @run_time_operands(%x: tensor<?x2x?x8xf64>, %rate: tensor<f32>, %seed: tensor<1xi64>, %heads: index)
    -> tensor<?x2x?x8xf64> {
  %o = attn.attention %x[b,h,s,d], %x[b,h,s,d], %x[b,h,s,d]
    dropout(%rate, %seed, %heads : tensor<f32>, tensor<1xi64>, index)
    : (tensor<?x2x?x8xf64>, tensor<?x2x?x8xf64>, tensor<?x2x?x8xf64>) -> tensor<?x2x?x8xf64>
  return %o : tensor<?x2x?x8xf64>
}

// -----

// A dynamic number of heads is that of the captured query. Dropout applies to the result of the weight region, in any
// order of the clauses; other regions get the captures too.
// CHECK-LABEL: func.func @after_a_weight_region(
// CHECK-SAME: %[[Q:.*]]: tensor<?x?x8xf32>, %[[TABLE:.*]]: tensor<?xf32>, %[[SEED:.*]]: i64)
// CHECK: captures(%[[TABLE]], %[[SEED]], %[[Q]] : tensor<?xf32>, i64, tensor<?x?x8xf32>)
// CHECK: mask(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK: weight(%[[P:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[X:.*]]) {
// CHECK: %[[W:.*]] = arith.mulf %[[P]], %{{.*}} : f32
// CHECK: %[[C0:.*]] = arith.constant 0 : index
// CHECK: tensor.dim %[[X]], %[[C0]] : tensor<?x?x8xf32>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[W]], %{{.*}} : f32
// CHECK: %[[DROPPED:.*]] = arith.select %{{.*}}, %[[SCALED]], %{{.*}} : f32
// CHECK: attn.yield %[[DROPPED]] : f32
func.func @after_a_weight_region(%x: tensor<?x?x8xf32>, %t: tensor<?xf32>, %seed: i64) -> tensor<?x?x8xf32> {
  %o = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] captures(%t : tensor<?xf32>) dropout(0.5, %seed : i64)
    mask causal<top_left>
    weight(%p, %b, %h, %i, %j, %table) {
      %f = tensor.extract %table[%j] : tensor<?xf32>
      %w = arith.mulf %p, %f : f32
      attn.yield %w : f32
    }
    : (tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %o : tensor<?x?x8xf32>
}

// -----

// The gradient of attention with dropout: p · (keep · dp / (1 − rate) − delta).
// CHECK-LABEL: func.func @default_gradient
// CHECK: weight(
// CHECK: gradient(%[[P:.*]], %{{.*}}, %[[DP:.*]], %[[DELTA:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK: %[[SCALED:.*]] = arith.mulf %[[DP]], %{{.*}} : f32
// CHECK: %[[DROPPED:.*]] = arith.select %{{.*}}, %[[SCALED]], %{{.*}} : f32
// CHECK: %[[DIFFERENCE:.*]] = arith.subf %[[DROPPED]], %[[DELTA]] : f32
// CHECK: %[[DS:.*]] = arith.mulf %[[P]], %[[DIFFERENCE]] : f32
// CHECK: attn.yield %[[DS]] : f32
func.func @default_gradient(%x: tensor<?x8xf32>, %r: tensor<?xf32>, %seed: i64)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %dq, %dk, %dv = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<?x8xf32>)
    lse(%r : tensor<?xf32>) delta(%r : tensor<?xf32>) dropout(0.5, %seed : i64)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %dq, %dk, %dv : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}
