// RUN: saccade-opt %s --attn-outline-kernels --split-input-file --verify-diagnostics

func.func @copies_on_the_host(%a: memref<4xf32>, %b: memref<4xf32>) {
  // expected-error@+1 {{'linalg.copy' op is not part of any task, which programs for a GPU do not support yet}}
  linalg.copy ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

// expected-error@+1 {{is a task without a loop over its items}}
func.func private @has_no_items(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  return
}
