// RUN: saccade-opt --attn-results-to-destinations --split-input-file --verify-diagnostics %s

// expected-error @+1 {{entry 'scalar_result' has result 1 of type 'f32', expected a tensor}}
func.func @scalar_result(%x: tensor<?xf32>, %y: f32) -> (tensor<?xf32>, f32) {
  return %x, %y : tensor<?xf32>, f32
}

// -----

// expected-error @+1 {{entry 'called_entry' is called from within the module}}
func.func @called_entry(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
func.func @caller(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = call @called_entry(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// expected-error @+1 {{entry 'branching' has 2 blocks}}
func.func @branching(%x: tensor<?xf32>) -> tensor<?xf32> {
  cf.br ^end
^end:
  return %x : tensor<?xf32>
}
