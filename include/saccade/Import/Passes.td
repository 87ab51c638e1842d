//===- Passes.td - Passes of the import stage --------------*- tablegen -*-===//
#ifndef SACCADE_IMPORT_PASSES_TD
#define SACCADE_IMPORT_PASSES_TD

include "mlir/Pass/PassBase.td"

def ImportOnnx : Pass<"attn-import-onnx", "::mlir::ModuleOp"> {
  let summary = "translate ONNX ops to linalg and attn";
  let description = [{
    Translates `onnx.*` ops in generic form to `attn`, `linalg` and `tensor` ops. Attributes have ONNX's names; a missing
    input is a value of type `none`; a subgraph is a region. Declared types of intermediate results are ignored. The
    module attribute `onnx.opset` selects the operator version; the default is the newest supported one. Shape
    computations in the graph are folded as far as extents are known.

    ```mlir
    %y = "onnx.Softmax"(%x) {axis = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::saccade::attn::AttnDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def ImportTorch : Pass<"attn-import-torch", "::mlir::ModuleOp"> {
  let summary = "translate PyTorch ATen ops to linalg";
  let description = [{
    Translates `torch.aten.*` ops in generic form to `linalg` and `tensor` ops. Op names are those of PyTorch's operators
    without the overload, and arguments are named as in the operator schema: tensors are operands, listed in the
    attribute `arguments`; all others are attributes. Dynamic sizes are operands, too: `torch.aten.sym_size` produces
    them, `torch.sym.*` computes with them, and `unit` marks their place in a list. Declared types of intermediate
    results are ignored.

    ```mlir
    %y = "torch.aten.softmax"(%x) {arguments = ["self"], dim = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ImportStablehlo : Pass<"attn-import-stablehlo", "::mlir::ModuleOp"> {
  let summary = "translate StableHLO ops to linalg";
  let description = [{
    Translates `stablehlo.*` and `chlo.*` ops in generic form, as JAX exports them, to `linalg` and `tensor` ops. Calls
    are inlined first, because JAX passes shapes to functions as tensors; shape computations are folded as far as
    extents are known. Attributes of these dialects are parsed from their text. Loops with a constant trip count are
    unrolled.

    ```mlir
    %z = "stablehlo.add"(%x, %y) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ImportTosa : Pass<"attn-import-tosa", "::mlir::ModuleOp"> {
  let summary = "lower TOSA ops to linalg";
  let description = [{
    Lowers `tosa` ops to `linalg`, `tensor` and `arith` with MLIR's own passes. Programs without `tosa` ops are
    unchanged; emits an error for ops that MLIR does not lower.

    ```mlir
    %y = tosa.exp %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
    ```
  }];
  // MLIR's passes create ops of these dialects without loading them.
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::index::IndexDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::tosa::TosaDialect"];
}

#endif // SACCADE_IMPORT_PASSES_TD
