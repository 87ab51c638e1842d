//===- Frontend.h - Translation of unregistered ops by name -----*- C++ -*-===//
//
// Models of other frameworks come as unregistered ops in generic form. A frontend is an op name prefix with a table of
// translators. Ops are translated one by one in program order, so the operands of each op are already in the
// linalg-on-tensors form (`linalg`, `tensor`, `arith`, `math`, `attn` on ranked tensors) and have known types. The
// declared types of intermediate results are ignored.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_FRONTEND_H
#define SACCADE_IMPORT_COMMON_FRONTEND_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace saccade::frontend {

class FrontendOp;

/// Larger tensors are rejected: they do not fit an address space, and the product of their extents may overflow.
inline constexpr int64_t maxTensorElements = int64_t(1) << 46;

/// Emits ops before the given op that compute its results, or reports why it cannot.
using Translator = std::function<mlir::LogicalResult(FrontendOp &op, llvm::SmallVectorImpl<mlir::Value> &results)>;

/// A frontend: the supported ops by name, without the prefix.
struct Frontend {
  /// The op name prefix including the dot, for example "onnx.".
  llvm::StringRef prefix;
  llvm::StringMap<Translator> translators;
  /// Prefixes of further dialects whose ops may be mixed in, for example "chlo.".
  llvm::SmallVector<llvm::StringRef, 1> others = {};

  /// The name of `op` without the prefix; nullopt if it is not an op of this frontend.
  std::optional<llvm::StringRef> nameOf(mlir::Operation *op) const;
};

/// The op being translated: accessors for its operands and attributes, and a builder.
class FrontendOp {
public:
  FrontendOp(mlir::Operation *op, const Frontend &frontend);

  /// The name without the frontend's prefix.
  llvm::StringRef getName() const { return name; }
  mlir::Operation *getOperation() const { return op; }
  mlir::ImplicitLocOpBuilder &builder() { return b; }

  /// Operand `i`; null if it is absent or has type `none` (a missing optional operand).
  mlir::Value operand(unsigned i) const;
  unsigned numOperands() const { return op->getNumOperands(); }
  /// Operands without trailing missing ones.
  mlir::SmallVector<mlir::Value> operands() const;
  /// Whether result `i` has uses.
  bool isUsed(unsigned i) const { return i < op->getNumResults() && !op->getResult(i).use_empty(); }

  /// Attributes by name, or `defaultValue` if missing.
  mlir::Attribute attribute(llvm::StringRef attribute) const { return op->getAttr(attribute); }
  int64_t integer(llvm::StringRef attribute, int64_t defaultValue) const;
  double number(llvm::StringRef attribute, double defaultValue) const;
  llvm::StringRef text(llvm::StringRef attribute, llvm::StringRef defaultValue) const;
  /// An array attribute or dense constant of integers in row-major order; nullopt if missing.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef attribute) const;

  /// Emits an error at the op, prefixed with the op name and the name of the graph node if its location has one.
  mlir::InFlightDiagnostic error();
  mlir::LogicalResult requireRankedTensors();

  /// Translates the body of `region` at the insertion point with `arguments` in place of its block arguments. `results`
  /// are the operands of its terminator.
  mlir::LogicalResult inlineRegion(mlir::Region &region, mlir::ValueRange arguments,
                                   llvm::SmallVectorImpl<mlir::Value> &results);

private:
  mlir::Operation *op;
  const Frontend &frontend;
  llvm::StringRef name;
  mlir::ImplicitLocOpBuilder b;
};

/// Whether `type` is a supported element type: f16, bf16, f32, f64, signless i8, i16, i32, i64 and i1.
bool isElementType(mlir::Type type);
/// Emits an error if `op` has operands or results with unsupported element types, such as unsigned integers, complex
/// numbers or 8-bit floats. `mayStore`: tensors of 8-bit floats are supported, because `op` computes nothing with them.
mlir::LogicalResult verifyTypes(mlir::Operation *op, bool mayStore = false);
/// Whether `type` is one of the floats of 8 bits that tensors may store: f8E4M3FN and f8E5M2.
bool isStoredFloat(mlir::Type type);

/// Translates all ops of `frontend` in `function`. Results whose static extents differ from the declared type are cast
/// to it; a result declared with an opaque type takes the type of the returned value. The op `NoValue` of a frontend
/// stands for a missing operand.
mlir::LogicalResult translate(mlir::func::FuncOp function, const Frontend &frontend);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_FRONTEND_H
