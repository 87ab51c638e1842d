// RUN: saccade-opt %s --attn-verify-tiled -verify-diagnostics -split-input-file

// EXAMPLE
func.func @whole_attention_is_reported(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error @+1 {{is left after the tiling stage}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// -----

func.func @an_op_outside_of_a_task_is_reported(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{is outside of a task after the tiling stage}}
  %a = linalg.exp ins(%x : tensor<?xf32>) outs(%x : tensor<?xf32>) -> tensor<?xf32>
  return %a : tensor<?xf32>
}
