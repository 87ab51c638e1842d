// What belongs to a softmax is refused beside a normalizer.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @lse(%x: tensor<4x8xf32>) {
  // expected-error @+2 {{'lse' belongs to a softmax, but the weights are those of 'normalizer'}}
  %o, %l = attn.attention %x[s,d], %x[s,d], %x[s,d]
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
}

// -----

func.func @sink(%x: tensor<4x8xf32>, %t: f32) {
  // expected-error @+2 {{'sink' belongs to a softmax, but the weights are those of 'normalizer'}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] sink(%t : f32)
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @max(%x: tensor<4x8xf32>) {
  // expected-error @+2 {{'max' belongs to a softmax, but the weights are those of 'normalizer'}}
  %o, %m = attn.attention %x[s,d], %x[s,d], %x[s,d]
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } max : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
}

// -----

func.func @tally(%x: tensor<4x8xf32>) {
  // expected-error @+3 {{'tally' belongs to a softmax, but the weights are those of 'normalizer'}}
  %o, %m = attn.attention %x[s,d], %x[s,d], %x[s,d]
    tally<2>(%s, %b, %h, %i, %j) { attn.yield %j, %s : index, f32 }
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>)
}

// -----

func.func @twice(%x: tensor<4x8xf32>) {
  // expected-error @+3 {{clause 'normalizer' is given twice}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 }
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @type(%x: tensor<4x8xf64>) {
  // expected-error @+1 {{normalizer region has argument 0 of type 'f32', expected 'f64'}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf64>, tensor<4x8xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
  return
}

// -----

func.func @types_of_two_regions(%x: tensor<4x8xf32>) {
  // expected-error @+4 {{the normalizer yields 'f32', but the weight region takes 'f64'}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
    weight(%p: f64, %b, %h, %i, %j) { attn.yield %p : f64 }
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @without_region(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{is pointwise, expected a normalizer}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {pointwise} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @weights(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'normalizer' does not belong to attn.weights, which are those of a softmax}}
  %w = attn.weights %x[s,d], %x[s,d]
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
}

// -----

func.func @gradient_without_sums(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has no clause 'delta(...)'}}
  %a, %b, %c = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
}

// -----

func.func @gradient_with_sums(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+2 {{'lse' belongs to a softmax, but the weights are those of 'normalizer'}}
  %a, %b, %c = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>)
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
}

// -----

func.func @step_with_row_maxima(%x: tensor<4x8xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{has a normalizer, expected no final step, no natural maximum, no tallies and no row maxima}}
  %a, %n, %l, %r = attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%x, %m, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @sticks_and_lse(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'lse' belongs to a softmax, but the weights are those of 'normalizer'}}
  %o, %l = attn.attention %x[s,d], %x[s,d], %x[s,d] normalizer stick_breaking lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
}

// -----

func.func @sticks_and_a_region(%x: tensor<4x8xf32>) {
  // expected-error @+2 {{clause 'normalizer' is given twice}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] normalizer stick_breaking
    normalizer(%s, %b, %h, %i, %j) { attn.yield %s : f32 } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
}

// -----

func.func @sticks_and_another_attribute(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has the normalizer stick_breaking and a normalizer of each score, expected one of them}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] normalizer stick_breaking
    weight(%p, %b, %h, %i, %j) { attn.yield %p : f32 } {pointwise} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @square_of_a_part(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has a weight region that is not proved proportional to its argument, as the normalizer stick_breaking needs it}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] normalizer stick_breaking
    weight(%p, %b, %h, %i, %j) {
      %r = arith.mulf %p, %p : f32
      attn.yield %r : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @tangents_of_sticks(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'normalizer stick_breaking' does not belong to attn.jvp, which has no tangents of it}}
  %o, %r = attn.jvp %x[s,d], %x[s,d], %x[s,d] query_tangent(%x : tensor<4x8xf32>) normalizer stick_breaking : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
}
