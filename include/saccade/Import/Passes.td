//===- Passes.td - From graphs of other projects ----------------*- tablegen -*-===//
#ifndef SACCADE_IMPORT_PASSES_TD
#define SACCADE_IMPORT_PASSES_TD

include "mlir/Pass/PassBase.td"

def ImportOnnx : Pass<"attn-import-onnx", "::mlir::ModuleOp"> {
  let summary = "translate ops of ONNX";
  let description = [{
    Ops `onnx.*` in generic form become `attn`, `linalg` and `tensor` ops. Attributes have ONNX's names; a missing input
    is a value of type `none`; a subgraph is a region. What results in between are declared as does not count. The
    module's
    attribute `onnx.opset` says which version of the operators is meant, the newest known without it. Shapes that the
    graph
    computes are computed here as far as they are known.

    ```mlir
    %y = "onnx.Softmax"(%x) {axis = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::saccade::attn::AttnDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def ImportTorch : Pass<"attn-import-torch", "::mlir::ModuleOp"> {
  let summary = "translate ops of PyTorch";
  let description = [{
    Ops `torch.aten.*` in generic form become `linalg` and `tensor` ops. They have the names of PyTorch's operators without
    the overload; their arguments have those of its schema: tensors are operands, which the attribute `arguments` names,
    others are attributes. Sizes that only the run time knows are operands, too: `torch.aten.sym_size` makes them and
    `torch.sym.*` computes with them; `unit` keeps the place of one in a list. What results in between are declared as
    does not count.

    ```mlir
    %y = "torch.aten.softmax"(%x) {arguments = ["self"], dim = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ImportStablehlo : Pass<"attn-import-stablehlo", "::mlir::ModuleOp"> {
  let summary = "translate ops of StableHLO";
  let description = [{
    Ops `stablehlo.*` and `chlo.*` in generic form, as JAX writes them, become `linalg` and `tensor` ops. Functions are
    put in place of their calls first: shapes are handed to them as tensors, and are computed here as far as they are
    known. Attributes of these dialects stay text that this pass reads. Loops of a known number of steps are written
    out.

    ```mlir
    %z = "stablehlo.add"(%x, %y) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ImportTosa : Pass<"attn-import-tosa", "::mlir::ModuleOp"> {
  let summary = "lower ops of TOSA";
  let description = [{
    Ops of upstream's dialect `tosa` become `linalg`, `tensor` and `arith` ops, by upstream's passes. A program without
    any is not changed; an op that upstream does not lower is refused.

    ```mlir
    %y = tosa.exp %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
    ```
  }];
  // What upstream's passes make, which they cannot load themselves.
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::index::IndexDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::tosa::TosaDialect"];
}

#endif // SACCADE_IMPORT_PASSES_TD
