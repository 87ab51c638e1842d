//===- Torch.h - Translators of PyTorch's operators, by family ----*- C++ -*-===//
//
// Ops are named as PyTorch's are, without the overload: `torch.aten.add`. What tells overloads apart are arguments,
// which all have the names of the operator's schema: numbers, lists and types are attributes, tensors are operands,
// whose names stand in the attribute `arguments`. Sizes that only the run time knows are operands, too, tensors of one
// integer; where one is part of a list, `unit` keeps its place there.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_IMPORT_TORCH_TORCH_H
#define SACCADE_LIB_IMPORT_TORCH_TORCH_H

#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"
#include "llvm/ADT/StringSet.h"

namespace saccade::torch {

using frontend::FrontendOp;
using frontend::elementOf;
using frontend::Extents;
using frontend::rankOf;
using mlir::failed;
using mlir::failure;
using mlir::FailureOr;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;
using Values = llvm::SmallVectorImpl<Value>;

/// The arguments of one op by their names.
class Arguments {
public:
  explicit Arguments(FrontendOp &op) : op(op) {}

  /// Refuses an op that does not name all of its operands, or with types that the common form does not have.
  LogicalResult verify();
  /// Refuses an op with an argument that its translator has not asked for, or only as something that it is not: the op
  /// would mean something else.
  LogicalResult verifyAllConsumed();
  /// Refuses an argument for what it is: says so once an op, and lets the translator go on with something else.
  void refuse(llvm::StringRef name, mlir::Attribute found, llvm::StringRef expected) const;
  bool isRefused() const { return refused; }
  /// Says that the rest of the arguments does not matter.
  void ignoreRest() { ignoresRest = true; }

  bool has(llvm::StringRef name) const { return tensor(name) || attribute(name); }
  /// An attribute, null where it is missing.
  mlir::Attribute attribute(llvm::StringRef name) const;
  /// A tensor, null where it is missing.
  Value tensor(llvm::StringRef name) const;
  /// The same, refused where it is missing.
  FailureOr<Value> required(llvm::StringRef name) const;
  /// All tensors of a list; null for one that is None.
  llvm::SmallVector<Value> list(llvm::StringRef name) const;

  /// A list of sizes or one size, of constants and of extents; nothing where it is missing.
  FailureOr<std::optional<Extents>> sizes(llvm::StringRef name) const;
  FailureOr<Extents> requiredSizes(llvm::StringRef name) const;
  /// Extents of a new tensor: refuses constants below 0, and more elements than any memory holds.
  FailureOr<Extents> shape(const Extents &sizes) const;
  FailureOr<mlir::OpFoldResult> size(llvm::StringRef name, int64_t defaultValue) const;
  /// Constants only; one number is a list of one.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name, int64_t defaultValue) const;
  bool flag(llvm::StringRef name) const { return integer(name, 0) != 0; }
  llvm::StringRef text(llvm::StringRef name, llvm::StringRef defaultValue) const;
  /// A number, an integer or not.
  double number(llvm::StringRef name, double defaultValue) const;
  /// A type of elements; `otherwise` where it is missing.
  mlir::Type type(llvm::StringRef name, mlir::Type defaultValue = nullptr) const;

  /// One dimension of a tensor, which must have some, and several: all where the argument is missing or empty.
  FailureOr<int64_t> axis(llvm::StringRef name, int64_t defaultValue, int64_t rank) const;
  FailureOr<llvm::SmallVector<int64_t>> axes(llvm::StringRef name, int64_t rank) const;

  FrontendOp &op;

private:
  mutable llvm::StringSet<> consumedOperands, consumedAttributes;
  mutable bool refused = false;
  bool ignoresRest = false;
};

/// Translates an op by its arguments.
using ArgumentTranslator = LogicalResult (*)(Arguments &arguments, Values &results);
void add(frontend::Frontend &frontend, llvm::StringRef name, ArgumentTranslator translate);

/// Passes on a result, or the failure.
LogicalResult append(FailureOr<Value> result, Values &results);

/// The larger or the smaller of `self` and `other`, element by element.
FailureOr<Value> extremeOf(Arguments &arguments, bool isLargest);

// Each adds the operators of a family to the frontend.
void addAttention(frontend::Frontend &frontend);
void addCreations(frontend::Frontend &frontend);
void addElementwise(frontend::Frontend &frontend);
void addGathers(frontend::Frontend &frontend);
void addConcats(frontend::Frontend &frontend);
void addSlices(frontend::Frontend &frontend);
void addMatmuls(frontend::Frontend &frontend);
void addReductions(frontend::Frontend &frontend);
void addShapes(frontend::Frontend &frontend);
void addSizes(frontend::Frontend &frontend);
void addStrides(frontend::Frontend &frontend);

//===- Types --------------------------------------------------------------===//

/// A tensor, or a number of Python: an attribute.
using TensorOrScalar = llvm::PointerUnion<mlir::Attribute, Value>;

/// The argument `name`, a tensor or a number; null where it is missing.
TensorOrScalar tensorOrScalar(const Arguments &arguments, llvm::StringRef name);
/// The type that PyTorch promotes operands to: tensors with dimensions count more than those without, and these more
/// than numbers, unless the kind of number (bool, integer, floating point) is a higher one.
mlir::Type promote(mlir::MLIRContext *context, llvm::ArrayRef<TensorOrScalar> numbers);
/// The element type that both hold.
mlir::Type promote(mlir::Type x, mlir::Type y);
/// A number of Python as an element of `type`.
mlir::TypedAttr elementAttr(mlir::Attribute number, mlir::Type type);

} // namespace saccade::torch

#endif // SACCADE_LIB_IMPORT_TORCH_TORCH_H
