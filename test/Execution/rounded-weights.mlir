// Weights of keys are rounded to bf16 before they are multiplied by values. Kernels round exp(score - max), which is 1 and
// 1/3 here. Plain evaluation also rounds the probabilities, which are 3/4 and 1/4: numbers of bf16, as 1/3 is not.

// RUN: saccade-run %s --target=v4-bf16-expanded --check --arg=12x16:bf16:=0.0 --arg=2x16:bf16:=0.0 --arg=2x16:bf16:3 | FileCheck %s
// CHECK: check result #0, 192 of 192 elements: agrees

func.func @probabilities_are_exact_but_weights_are_not(%q: tensor<12x16xbf16>, %k: tensor<2x16xbf16>, %v: tensor<2x16xbf16>) -> tensor<12x16xf32> {
  %bias = arith.constant dense<[0.0, -1.09861231]> : tensor<2xf32> // -ln 3
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%bias : tensor<2xf32>)
    score(%s, %b, %h, %i, %j, %table) {
      %added = tensor.extract %table[%j] : tensor<2xf32>
      %r = arith.addf %s, %added : f32
      attn.yield %r : f32
    } : (tensor<12x16xbf16>, tensor<2x16xbf16>, tensor<2x16xbf16>) -> tensor<12x16xf32>
  return %o : tensor<12x16xf32>
}
