// An argument that is updated in place is not copied.
// RUN: saccade-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(func.func(attn-tile-append),attn-results-to-destinations,attn-bufferize-tensors)'

func.func @old_rows_are_read_later(%new: tensor<4x8xf32>, %cache: tensor<?x8xf32> {attn.updated_by = 0}, %at: index)
    -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // expected-error @+1 {{argument 'arg1' is updated in place ('attn.updated_by'), but this op would have to copy it, expected that nothing reads the contents that it overwrites}}
  %k = attn.append %new[s,d] to %cache[s,d] at(%at : index) : (tensor<4x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  // expected-note @+1 {{they are read here; use the updated tensor, or remove the attribute}}
  %l = attn.append %k[s,d] to %cache[s,d] at(%at : index) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %k, %l : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

func.func @exchange(%a: tensor<4x8xf32> {attn.updated_by = 1}, %b: tensor<4x8xf32> {attn.updated_by = 0})
    -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // expected-error @+1 {{argument 'arg1' is updated in place ('attn.updated_by'), but this op would have to copy it}}
  return %a, %b : tensor<4x8xf32>, tensor<4x8xf32>
}
