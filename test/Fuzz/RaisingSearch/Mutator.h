//===- Mutator.h - One change of a graph -----------------------------*- C++ -*-===//
#ifndef SACCADE_TEST_FUZZ_RAISINGSEARCH_MUTATOR_H
#define SACCADE_TEST_FUZZ_RAISINGSEARCH_MUTATOR_H

#include "Search.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace saccade::search {

using namespace mlir;

/// Draws one near miss of a function. Each kind returns a description, or an empty text if it is not possible here.
class Mutator {
public:
  Mutator(func::FuncOp function, Random &random) : function(function), random(random), b(function.getContext()) {
    function.walk([&](Operation *op) {
      if (op != function)
        ops.push_back(op);
    });
  }

  std::string run();

private:
  template <typename Predicate> Operation *pickOp(Predicate predicate) {
    SmallVector<Operation *> fit = llvm::filter_to_vector(ops, predicate);
    return fit.empty() ? nullptr : random.pick(fit);
  }
  /// A use of a value that matters to the result.
  OpOperand *pickUse(llvm::function_ref<bool(OpOperand &)> predicate);
  SmallVector<Value> valuesBefore(Operation *op, Type type);
  Value constant(Type type, double value);
  /// A number that hides keys, or another; factors must be small, because the plain graph overflows otherwise.
  double drawNumber(bool mayHide);
  Value drawCondition();
  Value change(Value value, std::string &what);
  Value changeReal(Value value, std::string &what);
  Value changeInteger(Value value, std::string &what);

  std::string otherOperand();
  std::string otherMap();
  std::string otherConstant();
  std::string otherOp();
  std::string otherPredicate();
  std::string swappedOperands();
  std::string changedUse();
  std::string changedTensor();
  std::string skippedOp();
  std::string repeatedOp();
  std::string extraResult();
  /// The elements of `input` at `index`, as a tensor of `extents`.
  Value reindex(Value input, ArrayRef<AffineExpr> index, ArrayRef<int64_t> extents);
  /// Each element of dimension `dim` several times, or all of them.
  Value repeat(Value input, unsigned dim, int64_t times, bool isTiled);
  /// Half of the elements along `dim`; `how` is below `readings`.
  Value readPart(Value input, unsigned dim, unsigned how);
  static constexpr unsigned readings = 8;

  std::string otherShape();
  std::string otherReduction();
  std::string longerArgument();
  std::string otherDimension();

  func::FuncOp function;
  Random &random;
  OpBuilder b;
  SmallVector<Operation *> ops;
};

inline bool isSize(Operation *op) { return isa<tensor::DimOp, tensor::EmptyOp>(op); }

/// Whether `value` is an element or the whole of a tensor.empty.
inline bool isUndefined(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    if (auto op = dyn_cast<linalg::GenericOp>(argument.getOwner()->getParentOp()))
      value = op.getMatchingOpOperand(argument)->get();
  return isa_and_nonnull<tensor::EmptyOp>(value.getDefiningOp());
}

inline std::string nameOf(Operation *op) { return op->getName().getStringRef().str(); }

} // namespace saccade::search

#endif // SACCADE_TEST_FUZZ_RAISINGSEARCH_MUTATOR_H
