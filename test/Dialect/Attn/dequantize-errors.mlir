// Diagnostics of the verifiers of attn.dequantize and attn.load_dequantized.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @bytes(%b: tensor<6x2x18xi8>) {
  // expected-error @+1 {{codes have blocks of 18 bytes, expected 20 bytes of q4_1}}
  %w = attn.dequantize %b format(q4_1) : tensor<6x2x18xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @columns(%b: tensor<6x2x18xi8>) {
  // expected-error @+1 {{result is 'tensor<6x63xf32>', expected 64 columns for 2 blocks of 32 elements}}
  %w = attn.dequantize %b format(q4_0) : tensor<6x2x18xi8> -> tensor<6x63xf32>
  return
}

// -----

func.func @rows(%b: tensor<6x2x18xi8>) {
  // expected-error @+1 {{number of rows}}
  %w = attn.dequantize %b format(q4_0) : tensor<6x2x18xi8> -> tensor<7x64xf32>
  return
}

// -----

func.func @open_rows(%b: tensor<?x2x18xi8>) {
  // expected-error @+1 {{expected static extents}}
  %w = attn.dequantize %b format(q4_0) : tensor<?x2x18xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @block_size(%b: tensor<6x2x12xi8>, %s: tensor<6x2xf32>) {
  // expected-error @+1 {{codes have blocks of 24 elements of u4, expected 16, 32, 64, 128 or 256}}
  %w = attn.dequantize %b scales(%s : tensor<6x2xf32>) format(u4) : tensor<6x2x12xi8> -> tensor<6x48xf32>
  return
}

// -----

func.func @no_scales(%b: tensor<6x2x16xi8>) {
  // expected-error @+1 {{has no scales, expected one for each block of u4}}
  %w = attn.dequantize %b format(u4) : tensor<6x2x16xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @scales(%b: tensor<6x2x18xi8>, %s: tensor<6x2xf32>) {
  // expected-error @+1 {{has scales, expected none: they are in the blocks of q4_0}}
  %w = attn.dequantize %b scales(%s : tensor<6x2xf32>) format(q4_0) : tensor<6x2x18xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @zeros(%b: tensor<6x2x18xi8>, %s: tensor<6x2xf32>) {
  // expected-error @+1 {{has zeros, expected none for q4_0}}
  %w = attn.dequantize %b zeros(%s : tensor<6x2xf32>) format(q4_0) : tensor<6x2x18xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @scales_of_other_blocks(%b: tensor<6x2x16xi8>, %s: tensor<6x3xf32>) {
  // expected-error @+1 {{number of columns}}
  %w = attn.dequantize %b scales(%s : tensor<6x3xf32>) format(u4) : tensor<6x2x16xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @zeros_of_bytes(%b: tensor<6x3x16xi8>, %s: tensor<6x3xf32>, %z: tensor<6x3xi8>) {
  // expected-error @+1 {{number of columns}}
  %w = attn.dequantize %b scales(%s : tensor<6x3xf32>) zeros(%z : tensor<6x3xi8>) format(u4) : tensor<6x3x16xi8> -> tensor<6x96xf32>
  return
}

// -----

func.func @fewer_columns(%b: tensor<6x3x16xi8>, %s: tensor<6x3xf32>) {
  // expected-error @+1 {{expected 96 columns for 3 blocks of 32 elements, or fewer in the last block}}
  %w = attn.dequantize %b scales(%s : tensor<6x3xf32>) format(u4) : tensor<6x3x16xi8> -> tensor<6x64xf32>
  return
}

// -----

func.func @open_columns(%b: tensor<?x3x18xi8>, %t: tensor<?x?xf32>) {
  // expected-error @+1 {{expected blocks, and a matrix of floats with static columns}}
  %w = attn.load_dequantized %b format(q4_0) into(%t) : (tensor<?x3x18xi8>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return
}

// -----

func.func @open_blocks(%b: tensor<?x?x18xi8>, %t: tensor<?x96xf32>) {
  // expected-error @+1 {{expected a static number of blocks and of their bytes}}
  %w = attn.load_dequantized %b format(q4_0) into(%t) : (tensor<?x?x18xi8>, tensor<?x96xf32>) -> tensor<?x96xf32>
  return
}

// -----

func.func @part_of_block(%x: tensor<?x40xf32>) {
  // expected-error @+1 {{operand is 'tensor<?x40xf32>', expected a last dimension of whole blocks of 32 elements}}
  %r = attn.fake_quantize %x : tensor<?x40xf32>
  return
}

// -----

func.func @open_block(%x: tensor<64x?xf32>) {
  // expected-error @+1 {{expected a last dimension of whole blocks of 32 elements}}
  %r = attn.fake_quantize %x : tensor<64x?xf32>
  return
}

// -----

func.func @scalar(%x: tensor<f32>) {
  // expected-error @+1 {{expected a last dimension of whole blocks of 32 elements}}
  %r = attn.fake_quantize %x : tensor<f32>
  return
}
