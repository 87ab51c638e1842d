// RUN: saccade-opt %s --attn-import-tosa --split-input-file --verify-diagnostics

func.func @no_lowering(%x: tensor<1x8x4xf32>, %y: tensor<1x8x4xf32>) -> (tensor<1x8x4xf32>, tensor<1x8x4xf32>) {
  // expected-error @+1 {{failed to legalize operation 'tosa.custom'}}
  %z:2 = tosa.custom %x, %y {operator_name = "unknown", domain_name = "mine", implementation_attrs = ""} : (tensor<1x8x4xf32>, tensor<1x8x4xf32>) -> (tensor<1x8x4xf32>, tensor<1x8x4xf32>)
  return %z#0, %z#1 : tensor<1x8x4xf32>, tensor<1x8x4xf32>
}
