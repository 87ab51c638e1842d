// Diagnostics of the parser and verifier of attn.gradient.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @no_lse(%x: tensor<4x8xf32>, %d: tensor<4xf32>) {
  // expected-error @+1 {{has no clause 'lse(...)'}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse delta(%d : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @sink(%x: tensor<4x8xf32>, %d: tensor<4xf32>, %s: f32) {
  // expected-error @+1 {{do not belong to attn.gradient; the gradient region and the log-sum-exp include tallies and sinks}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%d : tensor<4xf32>) delta(%d : tensor<4xf32>) sink(%s : f32)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @of_attention(%x: tensor<4x8xf32>, %d: tensor<4xf32>) {
  // expected-error @+1 {{'delta' belongs to attn.gradient}}
  %r = attn.attention %x[s,d], %x[s,d], %x[s,d] delta(%d : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @rows(%x: tensor<4x8xf32>, %d: tensor<5xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{delta has extent of 's' 5, but query has 4}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%d : tensor<5xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @output(%x: tensor<4x8xf32>, %o: tensor<4x9xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{output gradient has head size 9, but value has 8}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%o[s,d] : tensor<4x9xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @result(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{gradient of key has type 'tensor<4x9xf32>', but key has type 'tensor<4x8xf32>'}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x9xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @capture(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+2 {{gradient of capture 0, but there are 0 captures}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    gradient<0>(%p, %s, %dp, %delta, %b, %h, %i, %j) {
      attn.yield %p : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @integers(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %t: tensor<4xi32>) {
  // expected-error @+1 {{has a gradient of capture 0, whose elements have type 'i32'}}
  %r:4 = attn.gradient %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<4xi32>) output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    gradient<0>(%p, %s, %dp, %delta, %b, %h, %i, %j, %c) {
      attn.yield %p, %i, %p : f32, index, f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @number_of_gradients(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %t: tensor<4xf32>) {
  // expected-error @+1 {{has 0 gradients of captures, expected 1}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<4xf32>) output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    gradient<0>(%p, %s, %dp, %delta, %b, %h, %i, %j, %c) {
      attn.yield %p, %i, %p : f32, index, f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @yields(%x: tensor<4x8xf32>, %l: tensor<4xf32>, %t: tensor<4xf32>) {
  // expected-error @+1 {{gradient region yields 'f32', expected 'f32', 'index', 'f32', the gradient of the score, and indices and a number per read}}
  %r:4 = attn.gradient %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<4xf32>) output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    gradient<0>(%p, %s, %dp, %delta, %b, %h, %i, %j, %c) {
      attn.yield %p : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @no_region(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has no gradient region, expected one for a score or weight region}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    score(%s, %b, %h, %i, %j) {
      %t = math.tanh %s : f32
      attn.yield %t : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @two_passes(%x: tensor<4x8xf32>, %l: tensor<4xf32>) {
  // expected-error @+1 {{has a weight region that is not proved proportional to its argument}}
  %r:3 = attn.gradient %x[s,d], %x[s,d], %x[s,d] output_gradient(%x[s,d] : tensor<4x8xf32>) lse(%l : tensor<4xf32>) delta(%l : tensor<4xf32>)
    weight(%p, %b, %h, %i, %j) {
      %t = arith.mulf %p, %p : f32
      attn.yield %t : f32
    }
    gradient(%p, %s, %dp, %delta, %b, %h, %i, %j) {
      attn.yield %p : f32
    } : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}
