// Diagnostics of the clause dropout.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @rate_above_one(%x: tensor<4x8xf32>, %seed: i64) {
  // expected-error @+1 {{dropout has the rate 1.500000e+00, expected one in [0, 1]}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(1.5, %seed : i64)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @negative_rate(%x: tensor<4x8xf32>, %seed: i64) {
  // expected-error @+1 {{dropout has the rate -1.000000e-01, expected one in [0, 1]}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(-0.1, %seed : i64)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @rate_of_another_type(%x: tensor<4x8xf32>, %rate: f64, %seed: i64) {
  // expected-error @+1 {{dropout has a rate of type 'f64', expected f32, or a tensor with one element of it}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(%rate, %seed : f64, i64)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @seed_of_another_type(%x: tensor<4x8xf32>, %seed: i32) {
  // expected-error @+1 {{dropout has a seed of type 'i32', expected i64, or a tensor with one element of it}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed : i32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @seed_of_two_elements(%x: tensor<4x8xf32>, %seed: tensor<2xi64>) {
  // expected-error @+1 {{dropout has a seed of type 'tensor<2xi64>', expected i64, or a tensor with one element of it}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed : tensor<2xi64>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @seed_of_unknown_extent(%x: tensor<4x8xf32>, %seed: tensor<?xi64>) {
  // expected-error @+1 {{dropout has a seed of type 'tensor<?xi64>', expected i64, or a tensor with one element of it}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed : tensor<?xi64>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @heads_of_another_type(%x: tensor<4x8xf32>, %seed: i64, %n: i32) {
  // expected-error @+1 {{dropout has a number of heads of type 'i32', expected index, or a tensor with one element of it}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed, %n : i64, i32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @two_dropouts(%x: tensor<4x8xf32>, %seed: i64) {
  // expected-error @+1 {{clause 'dropout' is given twice}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed : i64) dropout(0.1, %seed : i64)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @weight_that_yields_nothing(%x: tensor<4x8xf32>, %seed: i64) {
  // expected-error @+1 {{dropout needs a weight region of one block that yields a number of type 'f32'}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed : i64) weight(%p, %b, %h, %i, %j) {
      attn.yield %j : index
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @dropout_of_a_tile(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %seed: i64) {
  // expected-error @+1 {{'dropout' belongs to attn.attention and attn.gradient}}
  attn.accumulate %x[s,d], %x[s,d], %x[s,d] dropout(0.1, %seed : i64)
    into(%x, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
}
