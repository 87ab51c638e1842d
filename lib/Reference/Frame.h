//===- Frame.h - The values of one run of a region ----------------*- C++ -*-===//
//
// A frame holds the values that one run of a function, a branch or a loop iteration defines, and
// computes them when they are asked for. What an op means is looked up in a table of semantics.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_FRAME_H
#define SACCADE_REFERENCE_FRAME_H

#include "Cells.h"
#include "mlir/IR/Operation.h"
#include "saccade/Reference/Interpreter.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>

namespace saccade::reference {

class Frame;
class Program;
using Shape = llvm::SmallVector<int64_t>;

/// What an op means. `evaluate` must make at least the elements `box` of result number `result` known, and may fill
/// more; the caller marks `box` as known. `shape` is asked only where the result's type is dynamic.
struct Semantics {
  std::function<mlir::LogicalResult(mlir::Operation *, Frame &, unsigned result, Shape &)> shape;
  std::function<mlir::LogicalResult(mlir::Operation *, Frame &, unsigned result, const Box &)> evaluate;
};

/// The semantics of `op`, or null where it is not known.
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

// One function a family of ops.
void addAttentionSemantics(SemanticsTable &table);
void addAttentionTileSemantics(SemanticsTable &table);
void addLinearSemantics(SemanticsTable &table);
void addControlFlowSemantics(SemanticsTable &table);
void addTensorSemantics(SemanticsTable &table);
void addSliceSemantics(SemanticsTable &table);
void addReshapeSemantics(SemanticsTable &table);
void addSoftmaxSemantics(SemanticsTable &table);
const Semantics &linalgSemantics();
const Semantics &elementwiseSemantics();

class Frame {
public:
  /// The frame of the function that is evaluated.
  Frame(mlir::Region &region, Precision precision) : region(&region), precision(precision) {}
  /// A frame made while `creator` is evaluated; `isNested` where its region reads values of the creator's.
  Frame(mlir::Region &region, Frame &creator, bool isNested)
      : region(&region), parent(isNested ? &creator : nullptr), precision(creator.precision), depth(creator.depth) {}
  Frame(const Frame &) = delete;

  Precision getPrecision() const { return precision; }
  bool isRounded() const { return precision != Precision::Exact; }
  bool isReversed() const { return precision == Precision::RoundedReversed; }
  /// The position of what a sum of `count` terms takes as its term number `i`.
  int64_t term(int64_t i, int64_t count) const { return isReversed() ? count - 1 - i : i; }
  /// `value` as a result of type `type` holds it.
  double rounded(mlir::Type type, double value) const { return isRounded() ? roundTo(type, value) : value; }

  /// Gives a block argument its value.
  void bind(mlir::Value argument, std::shared_ptr<Cells> cells) { values[argument] = std::move(cells); }
  /// Makes a block argument another name of `value` of `frame`, which is computed there on demand.
  void alias(mlir::Value argument, Frame &frame, mlir::Value value) { aliases[argument] = {&frame, value}; }

  /// The storage of `value`: its shape is settled, its elements may be unknown.
  mlir::FailureOr<Cells *> cells(mlir::Value value);
  /// The storage of `value` with the elements of `box` known.
  mlir::FailureOr<Cells *> demand(mlir::Value value, const Box &box);
  mlir::FailureOr<Cells *> demandAll(mlir::Value value);
  /// The same, as something that outlives the frame.
  mlir::FailureOr<std::shared_ptr<Cells>> take(mlir::Value value);

  mlir::FailureOr<Scalar> scalar(mlir::Value value);
  mlir::FailureOr<int64_t> index(mlir::OpFoldResult value);
  mlir::LogicalResult indices(llvm::ArrayRef<mlir::OpFoldResult> values, llvm::SmallVectorImpl<int64_t> &numbers);

  /// The frame of a branch or callee of `op` over `body`, made at the first call.
  Frame &child(mlir::Operation *op, mlir::Region &body, bool isNested);
  /// The compiled form of a scalar region, kept between two demands; null at first.
  std::shared_ptr<Program> &program(mlir::Region *body);

private:
  /// The frame that holds `value`, and its name there.
  std::pair<Frame *, mlir::Value> resolve(mlir::Value value);

  /// Counts the demands that wait for one another; too many, and `enter` fails with a diagnostic rather than overflow
  /// the stack.
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
