//===- Signatures.h - What whoever calls a program is told of it --*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_SIGNATURES_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_SIGNATURES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace saccade::attn {

/// One public function.
struct Signature {
  std::string name;
  llvm::SmallVector<std::string> values; ///< names of arguments, then of results (`nameValues`)
  mlir::FunctionType type;               ///< on whole tensors
  mlir::Location loc;

  /// Of the value with this number, arguments first.
  mlir::Type valueType(size_t i) const {
    return i < type.getNumInputs() ? type.getInput(i) : type.getResult(i - type.getNumInputs());
  }
};

/// Those of a program as it was read; of one that is compiled where `recordSignatures` was called on the way.
llvm::SmallVector<Signature> getSignatures(mlir::ModuleOp program);

/// Keeps, as an attribute of the module, what the marks `attn.entry` say: the compiler has changed what a caller sees.
void recordSignatures(mlir::ModuleOp program);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_SIGNATURES_H
