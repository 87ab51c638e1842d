//===- Frame.h - Values of one execution of a region --------------*- C++ -*-===//
//
// A frame holds the values of one execution of a function, a branch or a loop iteration, and computes them on demand.
// Ops are evaluated through a table of semantics.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_FRAME_H
#define SACCADE_REFERENCE_FRAME_H

#include "Cells.h"
#include "Kernels.h"
#include "mlir/IR/Operation.h"
#include "saccade/Reference/Interpreter.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>

namespace saccade::reference {

class Frame;
class Program;
using Shape = llvm::SmallVector<int64_t>;

/// Whether results of `type` are rounded to it.
inline bool isRounded(Precision precision, mlir::Type type) {
  return mlir::isa<mlir::FloatType>(type) && (precision != Precision::Exact || type.getIntOrFloatBitWidth() == 8);
}

/// Semantics of an op. `evaluate` computes at least the elements `box` of result number `result`; the caller marks
/// `box` as known. `shape` is called only if the result type is dynamic.
struct Semantics {
  std::function<mlir::LogicalResult(mlir::Operation *, Frame &, unsigned result, Shape &)> shape;
  std::function<mlir::LogicalResult(mlir::Operation *, Frame &, unsigned result, const Box &)> evaluate;
};

/// The semantics of `op`, or null if it is not supported.
const Semantics *semanticsOf(mlir::Operation *op);

class SemanticsTable {
public:
  template <typename OpTy> using ShapeFn = mlir::LogicalResult (*)(OpTy, Frame &, unsigned, Shape &);
  template <typename OpTy> using EvaluateFn = mlir::LogicalResult (*)(OpTy, Frame &, unsigned, const Box &);

  template <typename OpTy> void add(ShapeFn<OpTy> shape, EvaluateFn<OpTy> evaluate) {
    table[OpTy::getOperationName()] = {[=](mlir::Operation *op, Frame &frame, unsigned result, Shape &extents) {
                                         return shape(llvm::cast<OpTy>(op), frame, result, extents);
                                       },
                                       [=](mlir::Operation *op, Frame &frame, unsigned result, const Box &box) {
                                         return evaluate(llvm::cast<OpTy>(op), frame, result, box);
                                       }};
  }
  const Semantics *find(llvm::StringRef name) const {
    auto it = table.find(name);
    return it == table.end() ? nullptr : &it->second;
  }

private:
  llvm::StringMap<Semantics> table;
};

// One function per family of ops.
void addAppendSemantics(SemanticsTable &table);
void addAttentionSemantics(SemanticsTable &table);
void addAttentionTileSemantics(SemanticsTable &table);
void addDequantizeSemantics(SemanticsTable &table);
void addGradientSemantics(SemanticsTable &table);
void addJvpSemantics(SemanticsTable &table);
void addPagedSemantics(SemanticsTable &table);
void addLinearSemantics(SemanticsTable &table);
void addLinearGradientSemantics(SemanticsTable &table);
void addControlFlowSemantics(SemanticsTable &table);
void addTensorSemantics(SemanticsTable &table);
void addSliceSemantics(SemanticsTable &table);
void addReshapeSemantics(SemanticsTable &table);
void addSoftmaxSemantics(SemanticsTable &table);
void addWeightsSemantics(SemanticsTable &table);
const Semantics &linalgSemantics();
const Semantics &elementwiseSemantics();

class Frame {
public:
  /// Frame of the evaluated function.
  Frame(mlir::Region &region, Precision precision) : region(&region), precision(precision) {}
  /// Frame of a region executed from `creator`; `isNested` if the region can use values of the creator's frame.
  Frame(mlir::Region &region, Frame &creator, bool isNested)
      : region(&region), parent(isNested ? &creator : nullptr), precision(creator.precision), depth(creator.depth) {}
  Frame(const Frame &) = delete;

  Precision getPrecision() const { return precision; }
  bool isRounded() const { return precision != Precision::Exact; }
  bool isReversed() const { return precision == Precision::RoundedReversed; }
  bool isOnGPU() const { return precision == Precision::GPU; }
  /// Position of the i-th of `count` terms in the order of summation.
  int64_t term(int64_t i, int64_t count) const { return isReversed() ? count - 1 - i : i; }
  /// A result of `type` of exponentials (size: the result), logarithms or tanh (size: 1), with the error of
  /// instructions of a GPU if they are approximate.
  double approximated(mlir::Type type, double value, double size) const {
    return isOnGPU() && type.isF32() ? approximateOnGPU(value, size) : value;
  }
  /// `value`, rounded to `type` if results of this type are; with Precision::Fused at least to f32.
  double rounded(mlir::Type type, double value) const {
    if (!reference::isRounded(precision, type))
      return value;
    if (precision == Precision::Fused && mlir::isa<mlir::FloatType>(type) && type.getIntOrFloatBitWidth() == 16)
      return static_cast<float>(value);
    return roundTo(type, value);
  }

  /// Sets the value of a block argument.
  void bind(mlir::Value argument, std::shared_ptr<Cells> cells) { values[argument] = std::move(cells); }
  /// Makes a block argument an alias of `value` in `frame`, computed there on demand.
  void alias(mlir::Value argument, Frame &frame, mlir::Value value) { aliases[argument] = {&frame, value}; }

  /// The storage of the value `name`. Its shape is final; its elements may be unknown.
  mlir::FailureOr<Cells *> cells(mlir::Value name);
  /// Computes the elements `box` of the value `name` and returns its storage.
  mlir::FailureOr<Cells *> demand(mlir::Value name, const Box &box);
  mlir::FailureOr<Cells *> demandAll(mlir::Value value);
  /// Like `demandAll`, with shared ownership, so that the storage can outlive the frame.
  mlir::FailureOr<std::shared_ptr<Cells>> take(mlir::Value name);

  mlir::FailureOr<Scalar> scalar(mlir::Value value);
  mlir::FailureOr<int64_t> index(mlir::OpFoldResult value);
  mlir::LogicalResult indices(llvm::ArrayRef<mlir::OpFoldResult> values, llvm::SmallVectorImpl<int64_t> &numbers);

  /// The storage of a value of which elements were demanded, or null.
  const Cells *computed(mlir::Value name);
  /// The frame of a branch or callee of `op` that was run, or null.
  Frame *existingChild(mlir::Operation *op) const;
  mlir::Region &getRegion() const { return *region; }

  /// The frame of a branch or callee `body` of `op`, created on the first call.
  Frame &child(mlir::Operation *op, mlir::Region &body, bool isNested);
  /// The cached program of a scalar region; null before it is compiled.
  std::shared_ptr<Program> &program(mlir::Region *body);

private:
  /// Follows aliases and parent frames to the frame that owns `value`, and the value there.
  std::pair<Frame *, mlir::Value> resolve(mlir::Value value);

  /// Counts nested demands. `enter` fails with a diagnostic beyond a limit, to avoid a stack overflow.
  class Nesting;
  mlir::FailureOr<Nesting> enter(mlir::Operation *op);

  mlir::Region *region;
  Frame *parent = nullptr;
  Precision precision;
  unsigned ownDepth = 0, *depth = &ownDepth;
  llvm::DenseMap<mlir::Value, std::shared_ptr<Cells>> values;
  llvm::DenseMap<mlir::Value, std::pair<Frame *, mlir::Value>> aliases;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<Frame>> children;
  llvm::DenseMap<mlir::Region *, std::shared_ptr<Program>> programs;
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_FRAME_H
