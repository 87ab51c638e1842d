// Round trip of attn.dequantize, attn.load_dequantized and attn.fake_quantize.
// RUN: saccade-opt %s | saccade-opt | FileCheck %s

// CHECK-LABEL: @blocks
// CHECK: attn.dequantize %{{.*}} format(q4_k) : tensor<6x2x144xi8> -> tensor<6x512xbf16>
func.func @blocks(%b: tensor<6x2x144xi8>) -> tensor<6x512xbf16> {
  %w = attn.dequantize %b format(q4_k) : tensor<6x2x144xi8> -> tensor<6x512xbf16>
  return %w : tensor<6x512xbf16>
}

// The last block has more elements than a row.
// CHECK-LABEL: @codes
// CHECK: attn.dequantize %{{.*}} scales(%{{.*}} : tensor<6x3xf32>) zeros(%{{.*}} : tensor<6x2xi8>) format(u4) : tensor<6x3x16xi8> -> tensor<6x70xf32>
func.func @codes(%b: tensor<6x3x16xi8>, %s: tensor<6x3xf32>, %z: tensor<6x2xi8>) -> tensor<6x70xf32> {
  %w = attn.dequantize %b scales(%s : tensor<6x3xf32>) zeros(%z : tensor<6x2xi8>) format(u4)
      : tensor<6x3x16xi8> -> tensor<6x70xf32>
  return %w : tensor<6x70xf32>
}

// CHECK-LABEL: @tile
// CHECK: attn.load_dequantized %{{.*}} scales(%{{.*}}) zeros(%{{.*}}) format(u8) into(%{{.*}}) : (tensor<?x3x32xi8>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x96xf32>) -> tensor<?x96xf32>
func.func @tile(%b: tensor<?x3x32xi8>, %s: tensor<?x3xf32>, %z: tensor<?x3xf32>, %t: tensor<?x96xf32>) -> tensor<?x96xf32> {
  %w = attn.load_dequantized %b scales(%s) zeros(%z) format(u8) into(%t)
      : (tensor<?x3x32xi8>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x96xf32>) -> tensor<?x96xf32>
  return %w : tensor<?x96xf32>
}

// CHECK-LABEL: @rounded
// CHECK: attn.fake_quantize %{{.*}} : tensor<?x4x64xf32>
// CHECK: attn.dequantize %{{.*}} format(q4_0) int8_lhs : tensor<6x2x18xi8> -> tensor<6x64xf32>
// CHECK: attn.load_dequantized %{{.*}} format(q4_0) int8_lhs into(%{{.*}}) :
func.func @rounded(%x: tensor<?x4x64xf32>, %b: tensor<6x2x18xi8>, %t: tensor<6x64xf32>) -> (tensor<?x4x64xf32>, tensor<6x64xf32>, tensor<6x64xf32>) {
  %r = attn.fake_quantize %x : tensor<?x4x64xf32>
  %w = attn.dequantize %b format(q4_0) int8_lhs : tensor<6x2x18xi8> -> tensor<6x64xf32>
  %l = attn.load_dequantized %b format(q4_0) int8_lhs into(%t) : (tensor<6x2x18xi8>, tensor<6x64xf32>) -> tensor<6x64xf32>
  return %r, %w, %l : tensor<?x4x64xf32>, tensor<6x64xf32>, tensor<6x64xf32>
}
