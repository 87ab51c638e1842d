// RUN: saccade-opt --attn-verify-bufferized --split-input-file --verify-diagnostics %s

// expected-error @+1 {{still takes tensors after bufferization}}
func.func @tensor_argument(%x: tensor<8xf32>) {
  return
}

// -----

func.func @tensor_op() {
  // expected-error @+1 {{still works on tensors after bufferization}}
  %x = tensor.empty() : tensor<8xf32>
  return
}

// -----

func.func @parallel_loop(%x: memref<8xf32>) {
  // expected-error @+1 {{is a parallel loop that was not made a task}}
  scf.forall (%i) in (8) {
  }
  return
}

// -----

func.func @memory_in_a_loop(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{allocates in a loop outside of any task}}
    %tile = memref.alloc() : memref<8xf32>
  }
  return
}

// -----

func.func private @dynamic_memory_in_a_task(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  // expected-error @+1 {{has a size not known before run time}}
  %tile = memref.alloc(%end) : memref<?xf32>
  return
}
