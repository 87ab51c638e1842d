//===- Signatures.h - Names and types of a program's entries ------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_SIGNATURES_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_SIGNATURES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace saccade::attn {

/// The signature of a public function, as its callers see it: a result that updates an argument in place is none.
struct Signature {
  std::string name;
  llvm::SmallVector<std::string> values; ///< names of arguments, then of results (`nameValues`)
  mlir::FunctionType type;               ///< on whole tensors
  mlir::Location loc;
  /// For each argument: the result of the function in the program that updates it in place, or -1.
  llvm::SmallVector<int64_t> updatedBy;

  /// The signature of a function of the program.
  static Signature of(mlir::func::FuncOp function);
  /// Conversions from and to the attribute `attn.entry`; nullopt for a malformed one. The attribute has `updated_by`
  /// only if an argument is updated.
  static std::optional<Signature> from(mlir::DictionaryAttr entry, mlir::Location loc);
  mlir::DictionaryAttr toAttribute() const;

  /// The type of value `i` of `values`.
  mlir::Type valueType(size_t i) const {
    return i < type.getNumInputs() ? type.getInput(i) : type.getResult(i - type.getNumInputs());
  }
};

/// The signatures of a parsed program, or of one that stages have compiled, from the attributes of its entries, or from
/// those of `recordSignatures`.
llvm::SmallVector<Signature> getSignatures(mlir::ModuleOp program);

/// Copies the `attn.entry` attributes to an attribute of the module, before entries are lowered to another signature.
void recordSignatures(mlir::ModuleOp program);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_SIGNATURES_H
