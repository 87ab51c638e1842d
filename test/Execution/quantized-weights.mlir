// Matmuls with quantized weights agree with the reference. test_quantized_weights.py has more forms, and random bytes.
// DEFINE: %{args} = --arg=41x4x18:i8:2 --arg=41:f32:3
// DEFINE: %{few} = saccade-run %s --entry=layer --check --arg=5x128:f32:1 %{args}
// DEFINE: %{many} = saccade-run %s --entry=layer --check --arg=37x128:f32:1 %{args}

// In registers, and in packing, on all targets that code here can run for.
// RUN: %{few} --target=portable && %{many} --target=portable
// RUN: %{few} --target=v3 && %{many} --target=v3
// RUN: %{few} --target=v4-expanded && %{many} --target=v4-expanded
// RUN: %{few} && %{many}
// RUN: saccade-run %s --entry=layer --check --arg=19x128:f32:1 --arg=41x4x18:i8:2 --arg=41:f32:3
// RUN: %{few} --device=ptxsim --target=sm_80
func.func @layer(%x: tensor<?x128xf32>, %b: tensor<41x4x18xi8>, %bias: tensor<41xf32>) -> tensor<?x41xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %w = attn.dequantize %b format(q4_0) : tensor<41x4x18xi8> -> tensor<41x128xf32>
  %n = tensor.dim %x, %c0 : tensor<?x128xf32>
  %e = tensor.empty(%n) : tensor<?x41xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x41xf32>) -> tensor<?x41xf32>
  %te = tensor.empty() : tensor<128x41xf32>
  %t = linalg.transpose ins(%w : tensor<41x128xf32>) outs(%te : tensor<128x41xf32>) permutation = [1, 0]
  %y = linalg.matmul ins(%x, %t : tensor<?x128xf32>, tensor<128x41xf32>) outs(%z : tensor<?x41xf32>) -> tensor<?x41xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%y, %bias : tensor<?x41xf32>, tensor<41xf32>) outs(%e : tensor<?x41xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %a = arith.addf %p, %q : f32
    %h = math.tanh %a : f32
    linalg.yield %h : f32
  } -> tensor<?x41xf32>
  return %r : tensor<?x41xf32>
}

// The weights of 16 MiB in f32 are nowhere in memory.
// RUN: saccade-run %s --entry=large --arg=40x2048:f32:1 --arg=2048x64x18:i8:2 --time | FileCheck %s --check-prefix=MEMORY
// MEMORY: memory {{.*}} MiB peak, {{[0-9](\.[0-9]+)?}} MiB of it beyond program, arguments and results
// RUN: saccade-compile %s --target=v4 --explain | FileCheck %s --check-prefix=EXPLAIN
// EXPLAIN-DAG: layer.dequantize_matmul_bias_tanh: kernel family v4 q4_0 weights dequantized in registers or in packing, f32 multiply-add
// EXPLAIN-DAG: large.dequantize_matmul: kernel family v4 q4_0 weights dequantized in packing, f32 multiply-add
// EXPLAIN-DAG: decode.dequantize_matmul: kernel family v4 q8_0 weights dequantized in registers, f32 multiply-add
func.func @large(%x: tensor<40x2048xf32>, %b: tensor<2048x64x18xi8> {attn.constant}) -> tensor<40x2048xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.dequantize %b format(q4_0) : tensor<2048x64x18xi8> -> tensor<2048x2048xf32>
  %e = tensor.empty() : tensor<40x2048xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<40x2048xf32>) -> tensor<40x2048xf32>
  %y = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %w : tensor<40x2048xf32>, tensor<2048x2048xf32>) outs(%z : tensor<40x2048xf32>) -> tensor<40x2048xf32>
  return %y : tensor<40x2048xf32>
}

// RUN: saccade-run %s --entry=decode --check --arg=1x1024:f32:1 --arg=24x32x34:i8:2
func.func @decode(%x: tensor<1x1024xf32>, %b: tensor<24x32x34xi8>) -> tensor<1x24xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.dequantize %b format(q8_0) : tensor<24x32x34xi8> -> tensor<24x1024xf32>
  %e = tensor.empty() : tensor<1x24xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x24xf32>) -> tensor<1x24xf32>
  %y = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %w : tensor<1x1024xf32>, tensor<24x1024xf32>) outs(%z : tensor<1x24xf32>) -> tensor<1x24xf32>
  return %y : tensor<1x24xf32>
}

// Gradients and tangents of the LHS; scales have none.
// RUN: saccade-run %s --entry=differentiated_gradient --check --arg=3x64:f32:1 --arg=7x2x16:i8:2 --arg=7x2:f32:3 --arg=3x7:f32:4 --arg=3x7:f32:5
// RUN: sed 's/{attn.no_gradient}//' %s > %t.mlir
// RUN: not saccade-compile %t.mlir --emit=asm -o %t.s 2>&1 | FileCheck %s --check-prefix=SCALES
// SCALES: 'differentiated' cannot be differentiated: no rule for 'attn.dequantize'
func.func @differentiated(%x: tensor<3x64xf32>, %b: tensor<7x2x16xi8>, %s: tensor<7x2xf32> {attn.no_gradient}) -> tensor<3x7xf32>
    attributes {attn.gradient} {
  %zero = arith.constant 0.0 : f32
  %w = attn.dequantize %b scales(%s : tensor<7x2xf32>) format(u4) : tensor<7x2x16xi8> -> tensor<7x64xf32>
  %e = tensor.empty() : tensor<3x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3x7xf32>) -> tensor<3x7xf32>
  %y = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<7x64xf32>) outs(%z : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %y : tensor<3x7xf32>
}

// A rounded LHS: products of integers for few rows, and the rounded numbers for many and where there are no instructions.
// DEFINE: %{few8} = saccade-run %s --entry=rounded --check --arg=2x3x256:f32:1 --arg=29x144:i8:2
// DEFINE: %{many8} = saccade-run %s --entry=rounded --check --arg=7x11x256:f32:1 --arg=29x144:i8:2
// RUN: %{few8} --target=portable && %{many8} --target=portable
// RUN: %{few8} --target=v3 && %{many8} --target=v3
// RUN: %{few8} --target=v4-expanded && %{few8} --target=v4-bf16-expanded
// RUN: %{few8} && %{many8}
// RUN: saccade-run %s --entry=rounded --check --device=ptxsim --target=sm_80 --arg=2x3x256:f32:1 --arg=29x144:i8:2
// RUN: saccade-compile %s --target=v3 --explain | FileCheck %s --check-prefix=INT8
// RUN: saccade-compile %s --target=portable --explain | FileCheck %s --check-prefix=NO-INT8
// INT8-DAG: rounded.dequantize_matmul: kernel family v3 q4_k weights multiplied in int8 in registers or dequantized in packing
// NO-INT8-DAG: rounded.dequantize_matmul: kernel family portable q4_k weights dequantized in registers or in packing
func.func @rounded(%x: tensor<?x?x256xf32>, %b: tensor<29x144xi8>) -> tensor<?x?x29xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %blocks = tensor.expand_shape %b [[0], [1, 2]] output_shape [29, 1, 144] : tensor<29x144xi8> into tensor<29x1x144xi8>
  %w = attn.dequantize %blocks format(q4_k) : tensor<29x1x144xi8> -> tensor<29x256xf32>
  %r = attn.fake_quantize %x : tensor<?x?x256xf32>
  %n = tensor.dim %r, %c0 : tensor<?x?x256xf32>
  %m = tensor.dim %r, %c1 : tensor<?x?x256xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?x29xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x29xf32>) -> tensor<?x?x29xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, i, j, k) -> (a, i, k)>, affine_map<(a, i, j, k) -> (j, k)>,
      affine_map<(a, i, j, k) -> (a, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%r, %w : tensor<?x?x256xf32>, tensor<29x256xf32>) outs(%z : tensor<?x?x29xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %product = arith.mulf %p, %q : f32
    %sum = arith.addf %o, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?x29xf32>
  return %y : tensor<?x?x29xf32>
}
