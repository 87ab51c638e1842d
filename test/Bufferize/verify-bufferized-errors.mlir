// RUN: saccade-opt --attn-verify-bufferized --split-input-file --verify-diagnostics %s

// EXAMPLE
// expected-error @+1 {{has tensor arguments, expected buffers}}
func.func @tensor_argument(%x: tensor<8xf32>) {
  return
}

// -----

func.func @tensor_op() {
  // expected-error @+1 {{has tensor operands or results, expected buffers}}
  %x = tensor.empty() : tensor<8xf32>
  return
}

// -----

func.func @parallel_loop(%x: memref<8xf32>) {
  // expected-error @+1 {{is a parallel loop, expected it to be outlined as a task}}
  scf.forall (%i) in (8) {
  }
  return
}

// -----

func.func @memory_in_a_loop(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{allocates in a loop, expected allocations in loops that launch tasks only}}
    %tile = memref.alloc() : memref<8xf32>
  }
  return
}

// -----

func.func private @dynamic_memory_in_a_task(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  // expected-error @+1 {{has a dynamic size, expected buffers of a task to be static}}
  %tile = memref.alloc(%end) : memref<?xf32>
  return
}
