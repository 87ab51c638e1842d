// An argument that is updated in place is no constant, and the result that updates it is no parameter.
// RUN: saccade-compile %s --emit=header -o %t.h && FileCheck %s --input-file=%t.h

// CHECK:      /* append
// CHECK-NEXT:  *   new_     input   tensor<?x8xf32>
// CHECK-NEXT:  *   cache    updated tensor<?x8xf32>
// CHECK-NEXT:  *   at       input   index
// CHECK-NEXT:  *   result0  result  tensor<?x8xf32>
// CHECK-NEXT:  */
// CHECK-NEXT: const char *saccade_append(const DLTensor *new_, DLTensor *cache, int64_t at, DLTensor *result0);
// CHECK-NEXT: const char *saccade_append_shapes(const DLTensor *new_, const DLTensor *cache, int64_t at, int64_t sizes[2]);
func.func @append(%new: tensor<?x8xf32>, %cache: tensor<?x8xf32> {attn.updated_by = 1}, %at: index)
    -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %twice = arith.addf %new, %new : tensor<?x8xf32>
  %c = attn.append %new[s,d] to %cache[s,d] at(%at : index) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %twice, %c : tensor<?x8xf32>, tensor<?x8xf32>
}
