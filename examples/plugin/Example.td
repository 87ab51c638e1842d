//===- Example.td - A dialect with one op -----------------------*- tablegen -*-===//
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Example_Dialect : Dialect {
  let name = "example";
  let cppNamespace = "::example";
}

def Example_QuickGeluOp : Op<Example_Dialect, "quick_gelu", [Pure, SameOperandsAndResultType]> {
  let summary = "x · sigmoid(1.702 x), the activation of CLIP";
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}
