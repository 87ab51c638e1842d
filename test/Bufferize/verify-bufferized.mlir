// RUN: saccade-opt --attn-verify-bufferized %s | FileCheck %s

// CHECK-LABEL: func.func @tensors_remain_in_regions_of_attn_ops(
func.func @tensors_remain_in_regions_of_attn_ops(%q: memref<4x8xf32>, %bias: memref<4xf32>, %acc: memref<4x8xf32>, %row: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  attn.accumulate %q[s,d], %q[s,d], %q[s,d] captures(%bias : memref<4xf32>) at(%c0, %c0, %c0, %c0)
    into(%acc, %row, %row : memref<4x8xf32>, memref<4xf32>, memref<4xf32>)
    score(%s, %b, %h, %i, %j, %c) {
      %slope = tensor.extract %c[%h] : tensor<4xf32>
      %biased = arith.addf %s, %slope : f32
      attn.yield %biased : f32
    } : (memref<4x8xf32>, memref<4x8xf32>, memref<4x8xf32>)
  return
}

// CHECK-LABEL: func.func private @static_memory_in_the_loop_of_a_task(
func.func private @static_memory_in_the_loop_of_a_task(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  scf.for %i = %begin to %end step %c1 {
    %tile = memref.alloc() : memref<8xf32>
  }
  return
}
