// RUN: saccade-opt %s --attn-outline-kernels --split-input-file --verify-diagnostics

func.func @copies_on_the_host(%a: memref<4xf32>, %b: memref<4xf32>) {
  // expected-error@+1 {{'linalg.copy' op is not part of any task, which programs for a GPU do not support yet}}
  linalg.copy ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

func.func @reads_on_the_host(%a: memref<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{'memref.load' op is not part of any task, which programs for a GPU do not support yet}}
  %x = memref.load %a[%c0] : memref<4xf32>
  return %x : f32
}

// -----

// expected-error@+1 {{is a task without a loop over its items}}
func.func private @has_no_items(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  return
}
