// Diagnostics of the parser and verifier of attn.jvp.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @no_lse(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has no clause 'lse(...)'}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] 
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @delta(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{'delta' belongs to attn.gradient}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @sink(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %s: f32) {
  // expected-error @+1 {{do not belong to attn.jvp; the tangent region and the log-sum-exp include tallies, dropout and sinks}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) sink(%s : f32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @results(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has 1 result types, expected those of output, row and the tallies}}
  %r:1 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>)
  return
}

// -----

func.func @tangent(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %t: tensor<5x8xf32>) {
  // expected-error @+1 {{tangent of key has type 'tensor<5x8xf32>', but key has type 'tensor<4x8xf32>'}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) key_tangent(%t : tensor<5x8xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @element(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %t: tensor<4x8xf64>) {
  // expected-error @+1 {{tangent of value has type 'tensor<4x8xf64>', but value has type 'tensor<4x8xf32>'}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) value_tangent(%t : tensor<4x8xf64>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @constant_scale(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %s: f32) {
  // expected-error @+1 {{has a tangent of the scale, which is a constant}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) scale_tangent(%s : f32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @scale(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %s: f32, %t: f64) {
  // expected-error @+1 {{tangent of scale has type 'f64', but scale has type 'f32'}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>) scale(%s : f32) scale_tangent(%t : f64)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rows(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %t: tensor<5xf32>) {
  // expected-error @+1 {{log-sum-exp has extent of 's' 5, but query has 4}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%t : tensor<5xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @row(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{row has rank 2, expected 1}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>)
  return
}

// -----

func.func @output(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{output has head size 9, but value has 8}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x9xf32>, tensor<4xf32>)
  return
}

// -----

func.func @output_element(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{output has element type 'f64', expected 'f32'}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf64>, tensor<4xf32>)
  return
}

// -----

func.func @no_region(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has no tangent region, expected one for a score or weight region and for tallies}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    score(%s, %b, %h, %i, %j) {
      %t = math.tanh %s : f32
      attn.yield %t : f32
    }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @yields(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{tangent region yields 'f32', expected 'f32', 'f32', the tangents of probability and weight, and a bin and a number per tally}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    tangent(%p, %s, %ds, %b, %h, %i, %j) {
      attn.yield %p : f32
    }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @two_passes(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has a weight region that is not proved proportional to its argument}}
  %r:2 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    weight(%p, %b, %h, %i, %j) {
      %t = arith.mulf %p, %p : f32
      attn.yield %t : f32
    }
    tangent(%p, %s, %ds, %b, %h, %i, %j) {
      attn.yield %p, %p : f32, f32
    }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @bins(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{tally 0 has type 'tensor<4x?xf32>', expected a static number of bins, at least 1}}
  %r:3 = attn.jvp %x[s,d], %x[s,d], %x[s,d] lse(%l : tensor<4xf32>)
    tangent(%p, %s, %ds, %b, %h, %i, %j) {
      attn.yield %p, %p, %j, %p : f32, f32, index, f32
    }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4x?xf32>)
  return
}

// -----

func.func @of_attention(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'key_tangent' belongs to attn.jvp}}
  %r = attn.attention %x[s,d], %x[s,d], %x[s,d] key_tangent(%x : tensor<4x8xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
