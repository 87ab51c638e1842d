//===- Frontend.h - Ops of other projects, by their names -------------*- C++ -*-===//
//
// Graphs of other projects come as unregistered ops in generic form. A frontend is a prefix of such names with a table of
// translators. Ops are translated one by one in the order of the text, so that each finds operands that are already in
// the common form (`linalg`, `tensor`, `arith`, `math`, `attn` on ranked tensors) and knows their types; the types that
// the text gives to results in between are not needed, and may be any.
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

/// Tensors with more elements are refused: no address space holds them, and products of their extents may overflow.
inline constexpr int64_t maxTensorElements = int64_t(1) << 46;

/// Makes what computes the results of an op in front of it, or says why it cannot.
using Translator = std::function<mlir::LogicalResult(FrontendOp &op, llvm::SmallVectorImpl<mlir::Value> &results)>;

/// The ops that a frontend knows, by their names without the prefix.
struct Frontend {
  /// "onnx.", with the dot.
  llvm::StringRef prefix;
  llvm::StringMap<Translator> translators;
  /// Prefixes of further dialects, whose ops come between those of the first ("chlo.").
  llvm::SmallVector<llvm::StringRef, 1> others = {};

  /// The name of an op of this frontend without its prefix; nothing for any other op.
  std::optional<llvm::StringRef> nameOf(mlir::Operation *op) const;
};

/// An op that is being translated: its parts by name, and where to build.
class FrontendOp {
public:
  FrontendOp(mlir::Operation *op, const Frontend &frontend);

  /// The name without the frontend's prefix.
  llvm::StringRef getName() const { return name; }
  mlir::Operation *getOperation() const { return op; }
  mlir::ImplicitLocOpBuilder &builder() { return b; }

  /// Operand `i`; null where there are fewer, or where it is of type `none`: a missing one.
  mlir::Value operand(unsigned i) const;
  unsigned numOperands() const { return op->getNumOperands(); }
  /// Operands up to the last that is not missing.
  mlir::SmallVector<mlir::Value> operands() const;
  /// Whether somebody reads result `i`.
  bool isUsed(unsigned i) const { return i < op->getNumResults() && !op->getResult(i).use_empty(); }

  /// Attributes by name, or what stands for a missing one.
  mlir::Attribute attribute(llvm::StringRef attribute) const { return op->getAttr(attribute); }
  int64_t integer(llvm::StringRef attribute, int64_t defaultValue) const;
  double number(llvm::StringRef attribute, double defaultValue) const;
  llvm::StringRef text(llvm::StringRef attribute, llvm::StringRef defaultValue) const;
  /// An array of integers, or a constant of them, row by row; nothing where it is missing.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef attribute) const;

  /// Begins a diagnostic at the op that names it, by the node's own name where its location has one.
  mlir::InFlightDiagnostic error();
  mlir::LogicalResult requireRankedTensors();

  /// Translates what stands in `region` for `arguments` here; `results` are the operands of its terminator.
  mlir::LogicalResult inlineRegion(mlir::Region &region, mlir::ValueRange arguments,
                                   llvm::SmallVectorImpl<mlir::Value> &results);

private:
  mlir::Operation *op;
  const Frontend &frontend;
  llvm::StringRef name;
  mlir::ImplicitLocOpBuilder b;
};

/// Whether the common form has elements of this type: floating point of 16, 32 and 64 bits, signless integers of 8, 16,
/// 32 and 64, and i1.
bool isElementType(mlir::Type type);
/// Refuses an op with operands or results of other element types: unsigned and odd integers, complex numbers, 8-bit
/// floats.
mlir::LogicalResult verifyTypes(mlir::Operation *op);

/// Translates every op of `frontend` in `function`. Results of the function that now have more or fewer static extents are
/// cast to the declared types; one that is declared with an opaque type becomes what it turns out to be. The op
/// `NoValue` of a frontend stands for a missing operand.
mlir::LogicalResult translate(mlir::func::FuncOp function, const Frontend &frontend);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_FRONTEND_H
