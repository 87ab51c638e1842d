// RUN: saccade-opt %s --attn-verify-input=for-gpu --verify-diagnostics

// expected-error@+1 {{'func.func' has an argument of type 'tensor<4xf8E4M3FN>', which is not supported on GPUs}}
func.func @floats_of_8_bits(%x: tensor<4xf8E4M3FN>) -> tensor<4xf32> {
  %y = arith.extf %x : tensor<4xf8E4M3FN> to tensor<4xf32>
  return %y : tensor<4xf32>
}
