//===- Torch.h - Translators of PyTorch operators by family -----*- C++ -*-===//
//
// Ops have the names of PyTorch operators without the overload, such as `torch.aten.add`. Overloads differ in their
// arguments, which are named as in the operator schema: scalars, lists and types are attributes; tensors are operands,
// whose names are in the attribute `arguments`. Dynamic sizes are operands, too: 0-D integer tensors. In a list, `unit`
// marks their position.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_IMPORT_TORCH_TORCH_H
#define SACCADE_LIB_IMPORT_TORCH_TORCH_H

#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"
#include "llvm/ADT/StringSet.h"

namespace saccade::torch {

using frontend::append;
using frontend::elementOf;
using frontend::Extents;
using frontend::FrontendOp;
using frontend::rankOf;
using mlir::failed;
using mlir::failure;
using mlir::FailureOr;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;
using Values = llvm::SmallVectorImpl<Value>;

/// A tensor and one of its dimensions.
struct TensorDim {
  Value tensor;
  int64_t dim;
};

/// The arguments of one op by name. Records which ones were read.
class Arguments {
public:
  explicit Arguments(FrontendOp &op) : op(op) {}

  /// Emits an error if operands have no names or unsupported types.
  LogicalResult verify();
  /// Emits an error if the op has an argument that its translator did not read, because ignoring it would change the
  /// meaning.
  LogicalResult verifyAllConsumed();
  /// Reports an unsupported argument, at most once per op. Translation continues with a default value and fails at the
  /// end.
  void refuse(llvm::StringRef name, mlir::Attribute found, llvm::StringRef expected) const;
  bool isRefused() const { return refused; }
  /// Allows all remaining arguments to be ignored.
  void ignoreRest() { ignoresRest = true; }

  bool has(llvm::StringRef name) const { return tensor(name) || attribute(name); }
  /// An attribute argument; null if missing.
  mlir::Attribute attribute(llvm::StringRef name) const;
  /// A tensor argument; null if missing.
  Value tensor(llvm::StringRef name) const;
  /// A tensor argument; emits an error if missing.
  FailureOr<Value> required(llvm::StringRef name) const;
  /// All tensors of a list; None elements are null.
  llvm::SmallVector<Value> list(llvm::StringRef name) const;

  /// One size or a list of sizes, constant or dynamic; nullopt if missing.
  FailureOr<std::optional<Extents>> sizes(llvm::StringRef name) const;
  FailureOr<Extents> requiredSizes(llvm::StringRef name) const;
  /// Verifies the shape of a new tensor: emits an error for negative extents or more than `maxTensorElements` elements.
  FailureOr<Extents> shape(const Extents &sizes) const;
  FailureOr<mlir::OpFoldResult> size(llvm::StringRef name, int64_t defaultValue) const;
  /// Constant integers; a single number is a list of one element.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name, int64_t defaultValue) const;
  bool flag(llvm::StringRef name) const { return integer(name, 0) != 0; }
  llvm::StringRef text(llvm::StringRef name, llvm::StringRef defaultValue) const;
  /// A floating-point or integer number.
  double number(llvm::StringRef name, double defaultValue) const;
  /// An element type; `defaultValue` if missing.
  mlir::Type type(llvm::StringRef name, mlir::Type defaultValue = nullptr) const;

  /// Dimensions of a tensor of `rank`: one, or several, where a missing or empty list means all.
  FailureOr<int64_t> axis(llvm::StringRef name, int64_t defaultValue, int64_t rank) const;
  FailureOr<llvm::SmallVector<int64_t>> axes(llvm::StringRef name, int64_t rank) const;
  /// The tensor "self", and the dimension "dim" of it, by default the first.
  FailureOr<TensorDim> tensorAndDim() const;

  FrontendOp &op;

private:
  mutable llvm::StringSet<> consumedOperands, consumedAttributes;
  mutable bool refused = false;
  bool ignoresRest = false;
};

/// Translates an op given its arguments.
using ArgumentTranslator = LogicalResult (*)(Arguments &arguments, Values &results);
void add(frontend::Frontend &frontend, llvm::StringRef name, ArgumentTranslator translate);

/// Elementwise maximum or minimum of `self` and `other`.
FailureOr<Value> extremeOf(Arguments &arguments, bool isLargest);

// Each function adds the operators of one family to the frontend.
void addAttention(frontend::Frontend &frontend);
void addComplex(frontend::Frontend &frontend);
void addCreations(frontend::Frontend &frontend);
void addElementwise(frontend::Frontend &frontend);
void addGathers(frontend::Frontend &frontend);
void addConcats(frontend::Frontend &frontend);
void addSlices(frontend::Frontend &frontend);
void addMatmuls(frontend::Frontend &frontend);
void addPrograms(frontend::Frontend &frontend);
void addReductions(frontend::Frontend &frontend);
void addRefusals(frontend::Frontend &frontend);
void addScatters(frontend::Frontend &frontend);
void addShapes(frontend::Frontend &frontend);
void addSizes(frontend::Frontend &frontend);
void addSorts(frontend::Frontend &frontend);
void addStrides(frontend::Frontend &frontend);
void addWindows(frontend::Frontend &frontend);

//===- Types --------------------------------------------------------------===//

/// A tensor, or a Python scalar as an attribute.
using TensorOrScalar = llvm::PointerUnion<mlir::Attribute, Value>;

/// The argument `name`, a tensor or a scalar; null if missing.
TensorOrScalar tensorOrScalar(const Arguments &arguments, llvm::StringRef name);
/// The type that operands are promoted to by PyTorch's rules: tensors take precedence over 0-D tensors, and these over
/// scalars, unless the category (bool, integer, floating point) of the latter is higher.
mlir::Type promote(mlir::MLIRContext *context, llvm::ArrayRef<TensorOrScalar> numbers);
/// The type that two types of one priority are promoted to.
mlir::Type promote(mlir::Type x, mlir::Type y);
/// A Python scalar as a constant of `type`.
mlir::TypedAttr elementAttr(mlir::Attribute number, mlir::Type type);

} // namespace saccade::torch

#endif // SACCADE_LIB_IMPORT_TORCH_TORCH_H
