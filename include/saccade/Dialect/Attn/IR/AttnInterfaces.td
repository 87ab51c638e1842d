//===- AttnInterfaces.td - What whole and tiled attention share -*- tablegen -*-===//
#ifndef SACCADE_ATTN_INTERFACES_TD
#define SACCADE_ATTN_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Attn_ScoringOpInterface : OpInterface<"ScoringOpInterface"> {
  let cppNamespace = "::saccade::attn";
  let description = [{
    An op that scores queries against keys: it has query, key and value operands with named dimensions, a
    scale, and regions, each optional: score `(s, b, h, q, k, captures...) -> s`, mask `(b, h, q, k, captures...) -> i1`,
    weight `(p, b, h, q, k, captures...) -> p` and any number of tallies
    `(s, b, h, q, k, captures...) -> (bin, weight)`. Analyses and code generators see attention through this interface, so
    that they need not know whether it is whole (`attn.attention`) or one step over keys (`attn.accumulate`).
  }];
  let methods = [
    InterfaceMethod<"Query, key and value.", "::mlir::Value", "getQuery">,
    InterfaceMethod<"", "::mlir::Value", "getKey">,
    InterfaceMethod<"", "::mlir::Value", "getValue">,
    InterfaceMethod<"The captured tensors and scalars, in region argument order.", "::mlir::OperandRange", "getCaptures">,
    InterfaceMethod<"Absolute (b, h, q, k) of element 0; empty means 0.", "::mlir::OperandRange", "getAt">,
    InterfaceMethod<"The scale as a run-time scalar, or null.", "::mlir::Value", "getScaleValue">,
    InterfaceMethod<"The scale as a constant, or null. With neither, 1/sqrt(d_k).", "::mlir::FloatAttr", "getScaleAttr">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getQueryDims">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getKeyDims">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getValueDims">,
    InterfaceMethod<"Empty where scores stay as they are.", "::mlir::Region &", "getScore">,
    InterfaceMethod<"Empty where every key is visible.", "::mlir::Region &", "getMask">,
    InterfaceMethod<"Empty where weights stay as they are.", "::mlir::Region &", "getWeight">,
    InterfaceMethod<"One a tally.", "::mlir::MutableArrayRef<::mlir::Region>", "getTallyRegions">,
  ];
  let extraSharedClassDeclaration = [{
    /// The type in which scores and sums are held: f64 for f64 inputs, else f32.
    ::mlir::FloatType getScoreType() {
      return ::saccade::attn::getScoreType(::mlir::getElementTypeOrSelf($_op.getQuery().getType()));
    }
  }];
}

#endif // SACCADE_ATTN_INTERFACES_TD
