//===- Passes.td - Passes over whole attention graphs -----------*- tablegen -*-===//
#ifndef SACCADE_ATTN_TRANSFORMS_PASSES_TD
#define SACCADE_ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def CreateShapeFunctions : Pass<"attn-create-shape-functions", "::mlir::ModuleOp"> {
  let summary = "give every entry a function that checks shapes and computes result extents";
  let description = [{
    Every public function with a body is an entry. It is marked `attn.entry`, and beside it comes a private function
    of the same arguments that returns, as index values, a message number (0 where the run-time shapes fit), the
    extent found, the extent wanted, and the extents of all results. It is marked `attn.shapes_of`, and
    `attn.messages` holds the texts. Both get `llvm.emit_c_interface`.

    Checked are the extents that `attn.attention`, structured ops and casts relate to one another and that are not
    known before run time. Calls must have been inlined.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // SACCADE_ATTN_TRANSFORMS_PASSES_TD
