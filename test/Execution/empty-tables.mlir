// A table without rows is rejected if something is to be read from it; a row can be put behind one that is read alone.
// RUN: saccade-run %s --entry=rows_by_number --arg=4x3:f32 --arg=2:i64:1 --check
// RUN: saccade-run %s --entry=rows_by_number --arg=0x3:f32 --arg=0:i64 --check
// RUN: not saccade-run %s --entry=rows_by_number --arg=0x3:f32 --arg=2:i64:1 2>&1 | FileCheck %s
// CHECK: reads elements of a tensor that is too small in dimension 0
// RUN: saccade-run %s --entry=scalars_behind_each_other --arg=:f32:1 --check

func.func @rows_by_number(%table: tensor<?x3xf32>, %numbers: tensor<?xi64>) -> tensor<?x3xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = tensor.dim %numbers, %zero : tensor<?xi64>
  %rows = tensor.dim %table, %zero : tensor<?x3xf32>
  %last = arith.subi %rows, %one : index
  %empty = tensor.empty(%count) : tensor<?x3xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%numbers : tensor<?xi64>) outs(%empty : tensor<?x3xf32>) {
  ^bb0(%number: i64, %out: f32):
    %i = arith.index_cast %number : i64 to index
    %low = arith.maxsi %i, %zero : index
    %row = arith.minsi %low, %last : index
    %j = linalg.index 1 : index
    %x = tensor.extract %table[%row, %j] : tensor<?x3xf32>
    linalg.yield %x : f32
  } -> tensor<?x3xf32>
  return %r : tensor<?x3xf32>
}

func.func @scalars_behind_each_other(%s: tensor<f32>) -> tensor<2xf32> {
  %empty = tensor.empty() : tensor<f32>
  %double = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%s : tensor<f32>) outs(%empty : tensor<f32>) {
  ^bb0(%x: f32, %out: f32):
    %sum = arith.addf %x, %x : f32
    linalg.yield %sum : f32
  } -> tensor<f32>
  %a = tensor.expand_shape %s [] output_shape [1] : tensor<f32> into tensor<1xf32>
  %b = tensor.expand_shape %double [] output_shape [1] : tensor<f32> into tensor<1xf32>
  %c = tensor.concat dim(0) %a, %b : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  return %c : tensor<2xf32>
}
