// RUN: saccade-opt %s --attn-verify-facts -split-input-file -verify-diagnostics

func.func @a_true_claim_is_accepted(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d]
      score(%s, %b, %h, %q, %k) {
        %r = math.tanh %s : f32
        attn.yield %r : f32
      } {attn.stability = "in_order"} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

func.func @scores_without_bound_are_not_stable(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'attn.attention' op has attn.stability = "every_step", which its regions contradict: Q·Kᵀ may overflow to −∞}}
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] {attn.stability = "every_step"} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

func.func @a_step_without_bound_is_not_finite(%x: tensor<8x8xf32>, %acc: tensor<12x16xf32>, %max: tensor<12xf32>) -> tensor<12x16xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  // expected-error @+1 {{has attn.finite_max = "in_order", which its regions contradict: Q·Kᵀ may overflow}}
  %s:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] q_len(%c8 : index) kv_len(%c8 : index) at(%c0, %c0, %c0, %c0) into(%acc, %max, %max : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>) {attn.finite_max = "in_order", schedule = #attn.schedule<rows = 12, cols = 512>} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
  return %s#0 : tensor<12x16xf32>
}

// -----
// EXAMPLE

// expected-error @+1 {{entry 'attend' has 0 shape functions, expected one}}
func.func @attend.body(%x: tensor<4xf32>) attributes {attn.entry = {name = "attend", names = ["x"], type = (tensor<4xf32>) -> ()}} {
  return
}

// -----

// expected-error @+1 {{argument 0 of 'attend.body' is 'tensor<8xf32>', but that of entry 'attend' is 'tensor<4xf32>'}}
func.func @attend.body(%x: tensor<8xf32>) attributes {attn.entry = {name = "attend", names = ["x"], type = (tensor<4xf32>) -> ()}} {
  return
}
func.func @attend.shapes(%x: tensor<4xf32>) attributes {attn.shapes_of = "attend", attn.messages = []} {
  return
}

// -----

// expected-error @+1 {{'attend.shapes' has 0 arguments, but entry 'attend' has 1}}
func.func @attend.shapes() attributes {attn.shapes_of = "attend", attn.messages = []} {
  return
}
// A buffer takes the elements of a tensor.
func.func @attend.body(%x: memref<4xf32>) attributes {attn.entry = {name = "attend", names = ["x"], type = (tensor<4xf32>) -> ()}} {
  return
}

// -----

// expected-error @+1 {{'attend.body' of entry 'attend' is private, expected a public function}}
func.func private @attend.body(%x: tensor<4xf32>) attributes {attn.entry = {name = "attend", names = ["x"], type = (tensor<4xf32>) -> ()}} {
  return
}

// -----

// expected-error @+1 {{'attend.body' has a malformed 'attn.entry': {name = "attend"}}}
func.func @attend.body() attributes {attn.entry = {name = "attend"}} {
  return
}
