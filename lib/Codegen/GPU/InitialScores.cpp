//===- InitialScores.cpp - Products that start from a bias --------------------===//
//
// A bias that is linear in the key is the sum of a multiple of the slope that repeats in each tile, from which the
// products of queries and keys start, and a part of each row and some columns, which is a part of the base of weights.
// So no score takes an instruction for its bias.
//
//===----------------------------------------------------------------------===//
#include "FragmentScores.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

void FragmentScores::permitInitialScores() {
  auto scoring = cast<attn::ScoringOpInterface>(op.getOperation());
  std::optional<double> constant = attn::getConstantScale(scoring);
  // A head of each row would have a slope of its own.
  if (heads || !constant || !std::isnormal(static_cast<float>(*constant)) || *constant < 0 ||
      !std::isnormal(static_cast<float>(1 / *constant)))
    return;
  std::optional<LinearBias> found = LinearBias::find(scoring);
  Value ofKey = found ? found->prepare(e, {at.head, at.query}) : Value();
  // A bias of rows alone does not change the weights.
  if (!ofKey)
    return;
  bias = std::move(found);
  // Each eight columns take four registers in the loop over tiles, and others an instruction for each row. Masks with
  // several bounds need the registers: a window with head size 128 would spill 32 bytes (ptxas 13.5).
  initialColumns = bounds.isExact() && bounds.getConstraints().size() <= 1 ? 32 : 16;
  scale = {};
  toBase2 = e.scalar(*constant * std::numbers::log2e);
  biasScale = 1 / *constant;
  slope = e.mulf(ofKey, e.scalar(biasScale));
}

/// The columns at which the initial scores of the two rows of a fragment of mma.sync would be 0. They differ, so that
/// its four initial scores do: ptxas would copy a value that is at two places of fragments in each step.
static constexpr std::array<int64_t, 2> origins = {-1, 2};

int64_t FragmentScores::originOf(unsigned row) const {
  // At the same distance, the biases of rows are the same value.
  return origins[row % 2] + (bias->isOfDistance() ? fragment.rows[row] : 0);
}

SmallVector<Value> FragmentScores::initialScores() {
  if (!bias)
    return SmallVector<Value>(fragment.columns.size(), e.scalar(0.0));
  SmallVector<Value> values;
  for (auto [column, r] : llvm::zip_equal(fragment.columns, fragment.rowOf))
    values.push_back(e.mulf(slope, e.scalar(static_cast<double>(column % initialColumns - originOf(r % 2)))));
  return values;
}

SmallVector<Value> FragmentScores::biasesOfRows(Value first) {
  Value column = e.toIndex(e.add(first, e.optimizationBarrier(fragment.column)));
  SmallVector<Value> values;
  for (auto [r, row] : llvm::enumerate(emitRowPositions()))
    values.push_back(bias->evaluate(e, row, e.add(at.key, e.add(column, originOf(r)))));
  return values;
}

Value FragmentScores::addColumns(Value x, Value perColumn, unsigned row, int64_t column) {
  int64_t offset = column / initialColumns * initialColumns - (originOf(row) - originOf(row % 2));
  return offset ? e.fma(perColumn, e.scalar(static_cast<double>(offset)), x) : x;
}

SmallVector<Value> FragmentScores::addBias(ArrayRef<Value> scores, Value first) {
  SmallVector<Value> complete(scores), ofRows = biasesOfRows(first);
  Value perColumn = e.optimizationBarrier(slope);
  for (auto [score, r, column] : llvm::zip_equal(complete, fragment.rowOf, fragment.columns))
    score = addColumns(e.fma(ofRows[r], e.scalar(biasScale), score), perColumn, r, column);
  return complete;
}

Value FragmentScores::subtractBias(MutableArrayRef<Value> bases, Value first) {
  for (auto [base, ofRow] : llvm::zip_equal(bases, biasesOfRows(first)))
    base = e.fma(e.mulf(ofRow, e.scalar(-biasScale)), toBase2, base);
  return e.mulf(e.optimizationBarrier(slope), toBase2);
}
