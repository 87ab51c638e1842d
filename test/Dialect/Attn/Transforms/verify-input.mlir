// RUN: saccade-opt %s --attn-verify-input | FileCheck %s

// CHECK-LABEL: func.func @everything_around_attention_is_known(
func.func @everything_around_attention_is_known(%x: tensor<?x8xbf16>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%n) : tensor<?x8xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = func.call @helper(%filled) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%t = %zero) -> f32 {
    %next = tensor.extract %y[%i, %c0] : tensor<?x8xf32>
    scf.yield %next : f32
  }
  %o = attn.attention %y[s,d], %y[s,d], %y[s,d] : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

func.func private @helper(%t: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %e = linalg.exp ins(%t : tensor<?x8xf32>) outs(%t : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %e : tensor<?x8xf32>
}
