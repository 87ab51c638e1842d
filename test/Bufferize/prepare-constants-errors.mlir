// RUN: saccade-opt %s --attn-prepare-constants --verify-diagnostics

// expected-error @below {{the weights of 'f' are prepared by a function 'f__prepare', which the program has already; give that another name}}
func.func @f.body(%w: memref<8xf32> {attn.constant}, %y: memref<8xf32>)
    attributes {attn.entry = {name = "f", names = ["w", "y"], type = (tensor<8xf32>) -> tensor<8xf32>}} {
  %made = memref.alloc() : memref<8xf32>
  linalg.exp ins(%w : memref<8xf32>) outs(%made : memref<8xf32>)
  linalg.exp ins(%made : memref<8xf32>) outs(%y : memref<8xf32>)
  return
}
func.func @f__prepare.body(%y: memref<8xf32>) {
  return
}
