// Constant sequences of integers are positions of a query or key, wherever the long dimension is and whatever they begin with.
// RUN: saccade-opt %s --pass-pipeline='builtin.module(func.func(attn-raise-attention),canonicalize,cse)' | FileCheck %s
// RUN: saccade-run %s --entry=sequences --check --arg=5x16:f32:1 --arg=5x16:f32:2 --arg=5x16:f32:3 | FileCheck %s --check-prefix=EXECUTED
// RUN: saccade-run %s --entry=no_sequence --check --arg=5x16:f32:1 --arg=5x16:f32:2 --arg=5x16:f32:3 | FileCheck %s --check-prefix=EXECUTED
// RUN: saccade-run %s --entry=computed_scalar --check --arg=5x16:f32:1 --arg=5x16:f32:2 --arg=5x16:f32:3 --arg=3.0 | FileCheck %s --check-prefix=EXECUTED
// RUN: saccade-run %s --entry=remainders_and_digits --check --arg=5x16:f32:1 --arg=12x16:f32:2 --arg=12x16:f32:3 --arg=3:f32:4 --arg=4:f32:5 | FileCheck %s --check-prefix=EXECUTED
// EXECUTED: agrees

#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i, 0)>
#column = affine_map<(i, j) -> (0, j)>
#first = affine_map<(i, j) -> (i)>
#second = affine_map<(i, j) -> (j)>

// Queries 7, 10, 13, ... as a column, keys 20, 18, 16, ... as a row, and keys 3, 4, ... as a vector.
// CHECK-LABEL: func.func @sequences
// CHECK-NOT: linalg
// CHECK: attn.attention
// CHECK-NOT: captures
// CHECK: mask(%{{.*}}, %{{.*}}, %[[I:.*]], %[[J:.*]]) {
// CHECK-DAG: arith.muli %[[I]], %c3
// CHECK-DAG: arith.muli %[[J]], %c-2
// CHECK-DAG: arith.addi %[[J]], %c3
// CHECK: return
func.func @sequences(%q: tensor<5x16xf32>, %k: tensor<5x16xf32>, %v: tensor<5x16xf32>) -> tensor<5x16xf32> {
  %queries = arith.constant dense<[[7], [10], [13], [16], [19]]> : tensor<5x1xi32>
  %falling = arith.constant dense<[[20, 18, 16, 14, 12]]> : tensor<1x5xi32>
  %rising = arith.constant dense<[3, 4, 5, 6, 7]> : tensor<5xi32>
  %six = arith.constant 6 : i32
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<5x5xf32>
  %eo = tensor.empty() : tensor<5x16xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x5xf32>) -> tensor<5x5xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x16xf32>) -> tensor<5x16xf32>
  %et = tensor.empty() : tensor<16x5xf32>
  %t = linalg.transpose ins(%k : tensor<5x16xf32>) outs(%et : tensor<16x5xf32>) permutation = [1, 0]
  %s = linalg.matmul ins(%q, %t : tensor<5x16xf32>, tensor<16x5xf32>) outs(%zs : tensor<5x5xf32>) -> tensor<5x5xf32>
  %m = linalg.generic {indexing_maps = [#all, #row, #column, #second, #all], iterator_types = ["parallel", "parallel"]}
      ins(%s, %queries, %falling, %rising : tensor<5x5xf32>, tensor<5x1xi32>, tensor<1x5xi32>, tensor<5xi32>) outs(%es : tensor<5x5xf32>) {
  ^bb0(%x: f32, %i: i32, %j: i32, %l: i32, %out: f32):
    %past = arith.cmpi sle, %j, %i : i32
    %near = arith.cmpi slt, %l, %six : i32
    %sees = arith.ori %past, %near : i1
    %y = arith.select %sees, %x, %low : f32
    linalg.yield %y : f32
  } -> tensor<5x5xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<5x5xf32>) outs(%es : tensor<5x5xf32>) -> tensor<5x5xf32>
  %o = linalg.matmul ins(%p, %v : tensor<5x5xf32>, tensor<5x16xf32>) outs(%zo : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %o : tensor<5x16xf32>
}

// Numbers without a common step are read.
// CHECK-LABEL: func.func @no_sequence
// CHECK: attn.attention
// CHECK-SAME: captures(
// CHECK: tensor.extract
func.func @no_sequence(%q: tensor<5x16xf32>, %k: tensor<5x16xf32>, %v: tensor<5x16xf32>) -> tensor<5x16xf32> {
  %queries = arith.constant dense<[1, 2, 3, 4, 6]> : tensor<5xi32>
  %keys = arith.constant dense<[[0, 1, 2, 4, 3]]> : tensor<1x5xi32>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<5x5xf32>
  %eo = tensor.empty() : tensor<5x16xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x5xf32>) -> tensor<5x5xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x16xf32>) -> tensor<5x16xf32>
  %et = tensor.empty() : tensor<16x5xf32>
  %t = linalg.transpose ins(%k : tensor<5x16xf32>) outs(%et : tensor<16x5xf32>) permutation = [1, 0]
  %s = linalg.matmul ins(%q, %t : tensor<5x16xf32>, tensor<16x5xf32>) outs(%zs : tensor<5x5xf32>) -> tensor<5x5xf32>
  %m = linalg.generic {indexing_maps = [#all, #first, #column, #all], iterator_types = ["parallel", "parallel"]}
      ins(%s, %queries, %keys : tensor<5x5xf32>, tensor<5xi32>, tensor<1x5xi32>) outs(%es : tensor<5x5xf32>) {
  ^bb0(%x: f32, %i: i32, %j: i32, %out: f32):
    %past = arith.cmpi slt, %j, %i : i32
    %y = arith.select %past, %x, %low : f32
    linalg.yield %y : f32
  } -> tensor<5x5xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<5x5xf32>) outs(%es : tensor<5x5xf32>) -> tensor<5x5xf32>
  %o = linalg.matmul ins(%p, %v : tensor<5x5xf32>, tensor<5x16xf32>) outs(%zo : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %o : tensor<5x16xf32>
}

// A scalar that several ops compute is computed in the region, whose constants need no captures.
// CHECK-LABEL: func.func @computed_scalar
// CHECK-SAME: %[[N:[^ ]*]]: f32
// CHECK: attn.attention
// CHECK-SAME: captures(%[[N]] : f32)
// CHECK: math.sqrt
// CHECK: math.tanh
func.func @computed_scalar(%q: tensor<5x16xf32>, %k: tensor<5x16xf32>, %v: tensor<5x16xf32>, %n: f32) -> tensor<5x16xf32> {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %half = arith.constant 0.5 : f32
  %root = math.sqrt %n : f32
  %sum = arith.addf %root, %two : f32
  %factor = math.tanh %sum : f32
  %scalar = arith.mulf %factor, %half : f32
  %es = tensor.empty() : tensor<5x5xf32>
  %eo = tensor.empty() : tensor<5x16xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x5xf32>) -> tensor<5x5xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x16xf32>) -> tensor<5x16xf32>
  %et = tensor.empty() : tensor<16x5xf32>
  %t = linalg.transpose ins(%k : tensor<5x16xf32>) outs(%et : tensor<16x5xf32>) permutation = [1, 0]
  %s = linalg.matmul ins(%q, %t : tensor<5x16xf32>, tensor<16x5xf32>) outs(%zs : tensor<5x5xf32>) -> tensor<5x5xf32>
  %m = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x5xf32>) outs(%es : tensor<5x5xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = arith.mulf %x, %scalar : f32
    linalg.yield %y : f32
  } -> tensor<5x5xf32>
  %p = linalg.softmax dimension(1) ins(%m : tensor<5x5xf32>) outs(%es : tensor<5x5xf32>) -> tensor<5x5xf32>
  %o = linalg.matmul ins(%p, %v : tensor<5x5xf32>, tensor<5x16xf32>) outs(%zo : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %o : tensor<5x16xf32>
}

// The remainder of a negative distance is not negative. The digits of a position are joined where one term is added.
// CHECK-LABEL: func.func @remainders_and_digits
// CHECK: attn.attention
// CHECK: %[[D:.*]] = arith.subi
// CHECK: %[[N:.*]] = arith.floordivsi %[[D]], %c3
// CHECK: %[[M:.*]] = arith.muli %[[N]], %c3
// CHECK: arith.subi %[[D]], %[[M]]
func.func @remainders_and_digits(%q: tensor<5x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %near: tensor<3xf32>, %far: tensor<4xf32>) -> tensor<5x16xf32> {
  %first = arith.constant 0 : index
  %m = tensor.dim %k, %first : tensor<?x16xf32>
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty(%m) : tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x16xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x?xf32>) -> tensor<5x?xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x16xf32>) -> tensor<5x16xf32>
  %et = tensor.empty(%m) : tensor<16x?xf32>
  %t = linalg.transpose ins(%k : tensor<?x16xf32>) outs(%et : tensor<16x?xf32>) permutation = [1, 0]
  %s = linalg.matmul ins(%q, %t : tensor<5x16xf32>, tensor<16x?xf32>) outs(%zs : tensor<5x?xf32>) -> tensor<5x?xf32>
  %b = linalg.generic {indexing_maps = [#all, affine_map<(i, j) -> ((i - j) mod 3)>,
                                        affine_map<(i, j) -> (((j floordiv 5) floordiv 3) * 3 + (j floordiv 5) mod 3 + 1)>, #all],
                       iterator_types = ["parallel", "parallel"]}
      ins(%s, %near, %far : tensor<5x?xf32>, tensor<3xf32>, tensor<4xf32>) outs(%es : tensor<5x?xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
    %0 = arith.addf %x, %y : f32
    %1 = arith.mulf %0, %z : f32
    linalg.yield %1 : f32
  } -> tensor<5x?xf32>
  %p = linalg.softmax dimension(1) ins(%b : tensor<5x?xf32>) outs(%es : tensor<5x?xf32>) -> tensor<5x?xf32>
  %o = linalg.matmul ins(%p, %v : tensor<5x?xf32>, tensor<?x16xf32>) outs(%zo : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %o : tensor<5x16xf32>
}
