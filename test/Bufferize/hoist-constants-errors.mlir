// RUN: saccade-opt %s --attn-hoist-constants --verify-diagnostics

// expected-error @below {{prepack function 'weigh__prepack' of entry 'weigh' is already defined, expected a unique name}}
func.func @weigh.body(%w: memref<8xf32> {attn.constant}, %y: memref<8xf32>)
    attributes {attn.entry = {name = "weigh", names = ["w", "y"], type = (tensor<8xf32>) -> tensor<8xf32>}} {
  %made = memref.alloc() : memref<8xf32>
  linalg.exp ins(%w : memref<8xf32>) outs(%made : memref<8xf32>)
  linalg.exp ins(%made : memref<8xf32>) outs(%y : memref<8xf32>)
  return
}
func.func @weigh__prepack.body(%y: memref<8xf32>) {
  return
}
