//===- AttnInterfaces.td - Interface of attention ops -*- tablegen -*-===//
#ifndef SACCADE_ATTN_INTERFACES_TD
#define SACCADE_ATTN_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Attn_ScoringOpInterface : OpInterface<"ScoringOpInterface"> {
  let cppNamespace = "::saccade::attn";
  let description = [{
    An op that computes scores of queries and keys: `attn.attention` on whole tensors, `attn.gradient` and `attn.jvp` for
    its derivatives, `attn.weights` for its weights, `attn.accumulate` on a tile of keys. It has query, key and value operands
    with named dimensions (the key is also the value of `attn.weights`), a scale, and optional regions:
    score `(s, b, h, q, k, captures...) -> s`, mask `(b, h, q, k, captures...) -> i1`,
    weight `(p, b, h, q, k, captures...) -> p`, or normalizer `(s, b, h, q, k, captures...) -> p` in its place, and any number
    of tallies `(s, b, h, q, k, captures...) -> (bin, number)`.
  }];
  let methods = [
    InterfaceMethod<"Query, key and value.", "::mlir::Value", "getQuery">,
    InterfaceMethod<"", "::mlir::Value", "getKey">,
    InterfaceMethod<"", "::mlir::Value", "getValue">,
    InterfaceMethod<"The captured tensors and scalars, in region argument order.", "::mlir::OperandRange", "getCaptures">,
    InterfaceMethod<"", "::mlir::MutableOperandRange", "getCapturesMutable">,
    InterfaceMethod<"Absolute position (b, h, q, k) of element 0; empty for all 0.", "::mlir::OperandRange", "getAt">,
    InterfaceMethod<"The number of queries, an index for a tile, or one element per batch; null for all.", "::mlir::Value", "getQLen">,
    InterfaceMethod<"The number of keys, likewise.", "::mlir::Value", "getKvLen">,
    InterfaceMethod<"Cumulative lengths of ragged queries; null for dense ones, and for a tile.", "::mlir::Value",
                    "getCuSeqlensQ", (ins), "", "return ::mlir::Value();">,
    InterfaceMethod<"The same of keys and values.", "::mlir::Value", "getCuSeqlensK", (ins), "",
                    "return ::mlir::Value();">,
    InterfaceMethod<"The scale as a run-time scalar, or null.", "::mlir::Value", "getScaleValue">,
    InterfaceMethod<"The scale as a constant, or null. Without both the scale is 1/sqrt(d_k).", "::mlir::FloatAttr", "getScaleAttr">,
    InterfaceMethod<"The type to which queries and keys may be quantized for their dot products, or null.",
                    "::mlir::TypeAttr", "getQkTypeAttr", (ins), "", "return ::mlir::TypeAttr();">,
    InterfaceMethod<"Whether the weight region is a normalizer: it takes the score of a key, not its softmax weight.",
                    "bool", "getPointwise", (ins), "", "return false;">,
    InterfaceMethod<"Whether keys break the rest of a stick of length 1 in place of a softmax, the last key first.",
                    "bool", "getStickBreaking", (ins), "", "return false;">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getQueryDims">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getKeyDims">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getValueDims">,
    InterfaceMethod<"Empty for the identity.", "::mlir::Region &", "getScore">,
    InterfaceMethod<"Empty if every key is visible.", "::mlir::Region &", "getMask">,
    InterfaceMethod<"Empty for the identity. Never empty if `getPointwise`.", "::mlir::Region &", "getWeight">,
    InterfaceMethod<"One region per tally.", "::mlir::MutableArrayRef<::mlir::Region>", "getTallyRegions">,
  ];
  let extraSharedClassDeclaration = [{
    /// The type of scores and sums: f64 for f64 inputs, else f32.
    ::mlir::FloatType getScoreType() {
      return ::saccade::attn::getScoreType(::mlir::getElementTypeOrSelf($_op.getQuery().getType()));
    }
    /// Whether a softmax makes the weights, so that a row has a log-sum-exp.
    bool hasSoftmax() { return !$_op.getPointwise() && !$_op.getStickBreaking(); }
    /// Whether queries or keys are ragged.
    bool isRagged() { return $_op.getCuSeqlensQ() || $_op.getCuSeqlensK(); }
    /// The cumulative sequence lengths of queries, or of keys and values; null if they are not ragged.
    ::mlir::Value getCuSeqlens(::saccade::attn::Role role) {
      return role == ::saccade::attn::Role::Query ? $_op.getCuSeqlensQ() : $_op.getCuSeqlensK();
    }
  }];
}

def Attn_DerivativeOpInterface : OpInterface<"DerivativeOpInterface", [Attn_ScoringOpInterface]> {
  let cppNamespace = "::saccade::attn";
  let description = [{
    An op that computes derivatives of an `attn.attention`: `attn.gradient` in reverse mode, `attn.jvp` in forward mode.
    It computes probabilities from the log-sum-exp, and has an optional region of scalar code with the derivatives of
    its score, weight and tally regions.
  }];
  let methods = [
    InterfaceMethod<"The log-sum-exp of every row; null with a normalizer.", "::mlir::Value", "getLse">,
    InterfaceMethod<"What the rounding of the log-sum-exp took; null for 0.", "::mlir::Value", "getLseLow">,
    InterfaceMethod<"The dimensions of the output of the attention.", "::saccade::attn::DimsAttr", "getOutputDims">,
    InterfaceMethod<"Tile sizes; null before the schedule stage.", "::saccade::attn::ScheduleAttr", "getScheduleAttr">,
    InterfaceMethod<"", "void", "setScheduleAttr", (ins "::saccade::attn::ScheduleAttr":$schedule)>,
    InterfaceMethod<"The region of derivatives; empty for those of attention without score and weight regions.",
                    "::mlir::Region &", "getDerivative">,
    StaticInterfaceMethod<"The clause of this region.", "::llvm::StringRef", "getDerivativeName">,
    StaticInterfaceMethod<"The names of its arguments before the positions.",
                          "::llvm::ArrayRef<::llvm::StringRef>", "getDerivativeNumbers">,
    InterfaceMethod<"The types that it yields.", "::llvm::SmallVector<::mlir::Type>",
                    "getDerivativeTypes">,
  ];
  let extraSharedClassDeclaration = [{
    /// The dimensions of the log-sum-exp: those of b, h, s that the output has, in this order.
    ::llvm::SmallVector<::saccade::attn::Dim> getRowDims() { return ::saccade::attn::getRowDims($_op.getOutputDims()); }
  }];
}

def Attn_LinearOpInterface : OpInterface<"LinearOpInterface"> {
  let cppNamespace = "::saccade::attn";
  let description = [{
    The recurrence of linear attention: `attn.linear`, and `attn.linear_gradient` for its gradients. Every batch and every
    head of the value has a state. A ragged sequence is a batch.
  }];
  let methods = [
    InterfaceMethod<"Query, key and value.", "::mlir::Value", "getQuery">,
    InterfaceMethod<"", "::mlir::Value", "getKey">,
    InterfaceMethod<"", "::mlir::Value", "getValue">,
    InterfaceMethod<"Logarithms of the decay factors, or null.", "::mlir::Value", "getDecay">,
    InterfaceMethod<"The rate of the delta rule, or null for 1.", "::mlir::Value", "getBeta">,
    InterfaceMethod<"The keys at which the delta rule reads, or null for the keys.", "::mlir::Value", "getErase">,
    InterfaceMethod<"The initial state, or null for 0.", "::mlir::Value", "getState">,
    InterfaceMethod<"Cumulative lengths of ragged sequences; null for dense ones.", "::mlir::Value", "getCuSeqlens">,
    InterfaceMethod<"The length of each batch; null for all positions.", "::mlir::Value", "getKvLen">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getQueryDims">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getKeyDims">,
    InterfaceMethod<"", "::saccade::attn::DimsAttr", "getValueDims">,
    InterfaceMethod<"The dimensions of the output.", "::saccade::attn::DimsAttr", "getOutputDims">,
    InterfaceMethod<"The dimensions of `erase`; null without.", "::saccade::attn::DimsAttr", "getEraseDimsAttr">,
    InterfaceMethod<"The dimensions of the decay; null without.", "::saccade::attn::AxesAttr", "getDecayAxesAttr">,
    InterfaceMethod<"The dimensions of beta; null without.", "::saccade::attn::AxesAttr", "getBetaAxesAttr">,
    InterfaceMethod<"The factor of the output; null for 1.", "::mlir::FloatAttr", "getScaleAttr">,
    InterfaceMethod<"Whether a query reads the state of its own position.", "bool", "getCausal">,
  ];
  let extraSharedClassDeclaration = [{
    /// The type of features and of the state: f64 for f64 inputs, else f32.
    ::mlir::FloatType getStateType() {
      return ::saccade::attn::getScoreType(::mlir::getElementTypeOrSelf($_op.getQuery().getType()));
    }
    /// Whether positions write the difference of their value and what the state has for their key.
    bool hasDeltaRule() { return $_op.getBeta() || $_op.getErase(); }
    /// Whether the rows of a state have different decay factors.
    bool hasMatrixDecay() {
      return $_op.getDecay() && $_op.getDecayAxesAttr().position(::saccade::attn::Dim::Depth);
    }
    /// The dimensions of the state before its rows and columns: those of b and h that the value has; b for ragged ones.
    ::llvm::SmallVector<::saccade::attn::Dim> getStateDims() {
      ::llvm::SmallVector<::saccade::attn::Dim> dims;
      if ($_op.getCuSeqlens() || $_op.getValueDims().position(::saccade::attn::Dim::Batch))
        dims.push_back(::saccade::attn::Dim::Batch);
      if ($_op.getValueDims().position(::saccade::attn::Dim::Head))
        dims.push_back(::saccade::attn::Dim::Head);
      return dims;
    }
    /// The dimensions of decay and beta at each position and head of the value, as in their gradients; with the rows of
    /// the state if `isMatrix`.
    ::llvm::SmallVector<::saccade::attn::Dim> getFactorDims(bool isMatrix) {
      using ::saccade::attn::Dim;
      ::llvm::SmallVector<Dim> dims;
      for (Dim dim : {Dim::Batch, Dim::Seq, Dim::Head, Dim::Depth})
        if (dim == Dim::Depth ? isMatrix : $_op.getValueDims().position(dim).has_value())
          dims.push_back(dim);
      return dims;
    }
    /// The operand whose size of `dim` decay, beta and the state have.
    ::saccade::attn::NamedOperand getFactorOwner(::saccade::attn::Dim dim) {
      if (dim == ::saccade::attn::Dim::Depth)
        return {"key", $_op.getKey(), $_op.getKeyDims()};
      return {"value", $_op.getValue(), $_op.getValueDims()};
    }
  }];
}

#endif // SACCADE_ATTN_INTERFACES_TD
