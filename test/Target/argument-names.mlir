// The signature of an entry: argument names of the source and tensor types.
// RUN: saccade-compile %s --stop-after=transforms | FileCheck %s

// The pipeline preserves the names.
// RUN: saccade-compile %s --emit=llvm | FileCheck %s --check-prefix=LLVM
// LLVM-DAG: c"query\00"
// LLVM-DAG: c"tensor<2x?x4xf32>\00"
// LLVM-DAG: [3 x i64] [i64 2, i64 -1, i64 4]

// Bytecode does not store names.
// RUN: saccade-opt %s -emit-bytecode -o %t.bc && saccade-compile %t.bc --stop-after=transforms | FileCheck %s --check-prefix=BYTECODE
// BYTECODE: func.func @results_of_an_attention
// BYTECODE-SAME: names = ["arg0", "arg1", "arg2", "output", "lse"]

// CHECK-LABEL: func.func @results_of_an_attention
// CHECK-SAME:    attn.entry = {name = "results_of_an_attention", names = ["query", "k", "v", "output", "lse"], type =
// CHECK-SAME:    (tensor<2x?x4xf32>, tensor<2x?x4xf32>, tensor<2x?x4xf32>) -> (tensor<2x?x4xf32>, tensor<2x?xf32>)}
func.func @results_of_an_attention(%query: tensor<2x?x4xf32>, %k: tensor<2x?x4xf32>, %v: tensor<2x?x4xf32>)
    -> (tensor<2x?x4xf32>, tensor<2x?xf32>) {
  %o, %l = attn.attention %query[h,s,d], %k[h,s,d], %v[h,s,d] lse
    : (tensor<2x?x4xf32>, tensor<2x?x4xf32>, tensor<2x?x4xf32>) -> (tensor<2x?x4xf32>, tensor<2x?xf32>)
  return %o, %l : tensor<2x?x4xf32>, tensor<2x?xf32>
}

// Numbers are replaced by names, names are made unique, and characters that are invalid in C are replaced.
// CHECK-LABEL: func.func @names_that_are_none
// CHECK-SAME:    names = ["arg0", "a_b", "a_b_1", "result", "result_1"]
func.func @names_that_are_none(%0: tensor<?xf32>, %a.b: index, %a$b: f16, %result: i1) -> tensor<?xf32> {
  return %0 : tensor<?xf32>
}

// CHECK-LABEL: func.func @several_results
// CHECK-SAME:    names = ["a", "result0", "result1"]
func.func @several_results(%a: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  return %a, %a : tensor<?xf32>, tensor<?xf32>
}
