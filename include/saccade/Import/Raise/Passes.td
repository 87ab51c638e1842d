//===- Passes.td - Raising plain ops to attention ----------*- tablegen -*-===//
#ifndef SACCADE_IMPORT_RAISE_PASSES_TD
#define SACCADE_IMPORT_RAISE_PASSES_TD

include "mlir/Pass/PassBase.td"

def RaiseAttention : Pass<"attn-raise-attention", "::mlir::func::FuncOp"> {
  let summary = "replace softmax(Q Kᵀ) V by attention";
  let description = [{
    A contraction with a softmax of another contraction as LHS or RHS becomes `attn.attention`. Matching works on the
    expression that computes one element, so the order of operands, transposes, reshapes, slices, broadcasts and casts
    do not matter. Repeated KV heads become grouped heads; constant factors of queries, keys and scores become the scale.

    - The softmax is `linalg.softmax`, exponentials divided by their sum (shifted or not), or the exponential of a score
      minus the logarithm of that sum.
    - Selecting or adding −∞ or a number of at most −9999 becomes the mask region; other ops on scores become the score
      region. Tensors they read become captures; comparisons of positions stay comparisons.
    - Ops on softmax weights become the weight region; guards against NaN are dropped.

    With `remarks`, the pass reports why a softmax was not raised. With `lint`, it warns about softmaxes that do not
    subtract the row maximum, and about rows that may have no visible keys.

    ```mlir
    %p = linalg.softmax dimension(2) ins(%scores : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x64xf32>) outs(%z : tensor<?x?x64xf32>)
      -> tensor<?x?x64xf32>
    ```
  }];
  let options = [Option<"remarks", "remarks", "bool", "false", "Report why a softmax is not raised">,
                 Option<"lint", "lint", "bool", "false", "Warn about softmaxes that are likely mistakes">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::saccade::attn::AttnDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // SACCADE_IMPORT_RAISE_PASSES_TD
