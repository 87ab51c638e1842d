// RUN: saccade-opt %s --attn-outline-kernels --split-input-file --verify-diagnostics

func.func @copy_on_host(%a: memref<4xf32>, %b: memref<4xf32>) {
  // expected-error@+1 {{'linalg.copy' op is not part of a task, which is not supported on GPUs}}
  linalg.copy ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

func.func @load_on_host(%a: memref<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{'memref.load' op is not part of a task, which is not supported on GPUs}}
  %x = memref.load %a[%c0] : memref<4xf32>
  return %x : f32
}

// -----

// expected-error@+1 {{is a task without a loop over its items, expected an scf.for from begin to end}}
func.func private @no_item_loop(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  return
}
