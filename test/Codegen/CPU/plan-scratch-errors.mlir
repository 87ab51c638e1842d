// RUN: saccade-opt --attn-plan-scratch --split-input-file --verify-diagnostics %s

func.func private @dynamic_buffer(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  // expected-error @+1 {{has a dynamic size, expected buffers of a task to be static}}
  %a = memref.alloc(%end) : memref<?xf32>
  return
}

// -----

func.func private @padded_buffer(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  // expected-error @+1 {{expected a compact buffer in a task}}
  %a = memref.alloc() : memref<4x4xf32, strided<[8, 1]>>
  return
}

// -----

func.func private @large_stack_buffer(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  // expected-error @+1 {{takes 32768 bytes of stack, expected 16384 or less}}
  %a = memref.alloca() : memref<8192xf32>
  return
}
