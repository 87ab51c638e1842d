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

#endif // SACCADE_IMPORT_PASSES_TD
