// RUN: saccade-opt --attn-outline-tasks --split-input-file --verify-diagnostics %s

func.func @nested_parallel_loops(%x: memref<8x8xf32>) {
  %one = arith.constant 1.0 : f32
  scf.forall (%i) in (8) {
    // expected-error @+1 {{is nested in another parallel loop, expected one level}}
    scf.forall (%j) in (8) {
      memref.store %one, %x[%i, %j] : memref<8x8xf32>
    }
  }
  return
}

// -----

func.func @tensors(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{has tensor results, expected bufferized IR}}
  %r = scf.forall (%i) in (8) shared_outs(%o = %x) -> tensor<8xf32> {
  }
  return %r : tensor<8xf32>
}
