//===- Passes.td - From plain ops to attention ------------------*- tablegen -*-===//
#ifndef SACCADE_IMPORT_RAISE_PASSES_TD
#define SACCADE_IMPORT_RAISE_PASSES_TD

include "mlir/Pass/PassBase.td"

def RaiseAttention : Pass<"attn-raise-attention", "::mlir::func::FuncOp"> {
  let summary = "replace softmax(Q Kᵀ) V by attention";
  let description = [{
    A contraction of which one side is a softmax of another contraction becomes `attn.attention`. Looked at is what an element
    is computed from, so that neither the order of operands nor transposes, reshapes, slices, broadcasts and casts matter:
    repeated keys become grouped heads, factors of queries, keys and scores the scale.

    - The softmax is `linalg.softmax`, or exponentials over their sum, with any shift or none, or the exponential of a score
      less the logarithm of that sum.
    - What sets scores to −∞ or a number of at most −9999, or adds it, becomes the mask region, and what else is done to
      scores the score region. Tensors that they read become captures; comparisons of positions stay comparisons.
    - What is done to weights becomes the weight region; guards against NaN are left out.

    With `remarks` every softmax that is left says why. With `lint` softmaxes without a maximum, and rows that may be without
    keys, are warned of.

    ```mlir
    %p = linalg.softmax dimension(2) ins(%scores : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x64xf32>) outs(%z : tensor<?x?x64xf32>)
      -> tensor<?x?x64xf32>
    ```
  }];
  let options = [Option<"remarks", "remarks", "bool", "false", "Say why a softmax is not raised">,
                 Option<"lint", "lint", "bool", "false", "Warn about softmaxes that are hardly meant">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::saccade::attn::AttnDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // SACCADE_IMPORT_RAISE_PASSES_TD
