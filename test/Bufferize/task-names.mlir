// Tasks are named after their ops, not after their places.
// RUN: saccade-opt --attn-outline-tasks %s | grep -o "attn.launch @[^(]*" | FileCheck %s
// Names do not depend on the run, and stay different as kernels of a GPU, whose names have '_' in place of '.'.
// RUN: saccade-opt --attn-outline-tasks %s -o %t.1 && saccade-opt --attn-outline-tasks %s -o %t.2 && cmp %t.1 %t.2
// RUN: grep -o "attn.launch @[^(]*" %t.1 | tr . _ | sort | uniq -d | count 0

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
#sums = affine_map<(i, j) -> (i)>

// CHECK: @layer.matmul_bias_gelu{{$}}
// CHECK-NEXT: @layer.layer_norm{{$}}
// CHECK-NEXT: @layer.softmax{{$}}
// CHECK-NEXT: @layer.matmul_add{{$}}
// CHECK-NEXT: @layer.matmul_add_2{{$}}
// CHECK-NEXT: @layer.attention_gradient.query{{$}}
func.func @layer.body(%x: memref<8x8xf32>, %w: memref<8x8xf32>, %bias: memref<8xf32>, %s: memref<8xf32>, %y: memref<8x8xf32>) {
  %half = arith.constant 0.5 : f32
  scf.forall (%n) in (1) {
    linalg.broadcast ins(%bias : memref<8xf32>) outs(%y : memref<8x8xf32>) dimensions = [0]
    linalg.matmul ins(%x, %w : memref<8x8xf32>, memref<8x8xf32>) outs(%y : memref<8x8xf32>)
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%y : memref<8x8xf32>) outs(%x : memref<8x8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = math.erf %a : f32
      %1 = arith.addf %0, %half : f32
      %2 = arith.mulf %a, %1 : f32
      linalg.yield %2 : f32
    }
  }
  scf.forall (%n) in (1) {
    linalg.generic {indexing_maps = [#id, #sums], iterator_types = ["parallel", "reduction"]} ins(%x : memref<8x8xf32>) outs(%s : memref<8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %o, %a : f32
      linalg.yield %0 : f32
    }
    linalg.generic {indexing_maps = [#id, #sums, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %s : memref<8x8xf32>, memref<8xf32>) outs(%y : memref<8x8xf32>) {
    ^bb0(%a: f32, %mean: f32, %o: f32):
      %0 = arith.subf %a, %mean : f32
      %1 = math.rsqrt %mean : f32
      %2 = arith.mulf %0, %1 : f32
      linalg.yield %2 : f32
    }
  }
  scf.forall (%n) in (1) {
    linalg.generic {indexing_maps = [#id, #sums], iterator_types = ["parallel", "reduction"]} ins(%x : memref<8x8xf32>) outs(%s : memref<8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.maximumf %o, %a : f32
      linalg.yield %0 : f32
    }
    linalg.generic {indexing_maps = [#id, #sums], iterator_types = ["parallel", "reduction"]} ins(%x : memref<8x8xf32>) outs(%s : memref<8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = math.exp %a : f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    }
  }
  // A sum with another matrix is no bias. The second loop has the same ops.
  scf.forall (%n) in (1) {
    linalg.matmul ins(%x, %w : memref<8x8xf32>, memref<8x8xf32>) outs(%y : memref<8x8xf32>)
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<8x8xf32>) outs(%y : memref<8x8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %a, %o : f32
      linalg.yield %0 : f32
    }
  }
  scf.forall (%n) in (1) {
    linalg.matmul ins(%x, %w : memref<8x8xf32>, memref<8x8xf32>) outs(%y : memref<8x8xf32>)
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<8x8xf32>) outs(%y : memref<8x8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %a, %o : f32
      linalg.yield %0 : f32
    }
  }
  scf.forall (%n) in (1) {
    linalg.fill ins(%half : f32) outs(%y : memref<8x8xf32>)
  } {attn.tiled_from = "attention_gradient.query"}
  return
}

// The ops of a task have at most 28 characters if the name of the function is long: the last words are left out.
// CHECK-NEXT: @a_function_with_a_long_name_as_some_have.sin_cos_ceil_floor_log_exp{{$}}
func.func @a_function_with_a_long_name_as_some_have(%x: memref<8x8xf32>, %y: memref<8x8xf32>) {
  scf.forall (%n) in (1) {
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<8x8xf32>) outs(%y : memref<8x8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = math.sin %a : f32
      %1 = math.cos %0 : f32
      %2 = math.ceil %1 : f32
      %3 = math.floor %2 : f32
      linalg.yield %3 : f32
    }
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<8x8xf32>) outs(%y : memref<8x8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = math.log %a : f32
      %1 = math.exp %0 : f32
      %2 = math.sqrt %1 : f32
      linalg.yield %2 : f32
    }
  }
  return
}

// A task that the program itself names keeps its name to itself.
// CHECK-NEXT: @taken.copy_2{{$}}
func.func private @taken_copy(memref<8x8xf32>)
func.func @taken(%x: memref<8x8xf32>, %y: memref<8x8xf32>) {
  scf.forall (%n) in (1) {
    linalg.copy ins(%x : memref<8x8xf32>) outs(%y : memref<8x8xf32>)
  }
  return
}
