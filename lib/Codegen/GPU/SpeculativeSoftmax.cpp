//===- SpeculativeSoftmax.cpp - Weights before maxima -------------------------===//
//
// A loop of one or two iterations around the scores, so that their code is emitted once. The maxima of rows rarely grow
// after the first tiles.
//
//===----------------------------------------------------------------------===//
#include "FragmentSoftmax.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The tiles without growth of a maximum after which weights are again computed before maxima.
static constexpr int64_t tilesAfterGrowth = 8;

SmallVector<Value> FragmentSoftmax::applySpeculatively(Value first, function_ref<SmallVector<Value>()> compute,
                                                       Value exactTiles,
                                                       function_ref<SmallVector<Value>(ArrayRef<Value>)> pack) {
  assert(canSpeculate() && "scores would be used twice");
  size_t rows = fragment.rows.size();
  SmallVector<Type> types(rows, e.type);
  types.append(fragment.rowOf.size() / 2, e.b.getI32Type());
  auto computeTile = [&](OpBuilder &, Location, ValueRange) {
    Value remaining = e.load(exactTiles, 0), isExact = e.compare(arith::CmpIPredicate::ne, remaining, e.i32(0));
    SmallVector<Value> scores = compute();
    auto update = [&] {
      LazyUpdate lazy = updateLazily(scoring.hasInitialScores() ? scoring.addBias(scores, first) : scores);
      e.store(e.select(lazy.updates, remaining, e.add(remaining, -1)), exactTiles, 0);
      return lazy.scores;
    };
    auto exponentsWithBias = [&] {
      ShiftedScores shifted = unshifted(scores);
      Value perColumn = scoring.subtractBias(shifted.bases, first);
      return exponentsOf(shifted, perColumn);
    };
    // Large biases would cancel in the exponents of shifted scores, so these are computed in the branches.
    SmallVector<Value> exponents = scoring.hasInitialScores()
                                       ? e.choose(
                                             isExact, [&] { return exponentsOf(update()); }, exponentsWithBias)
                                       : exponentsOf(chooseScores(isExact, update, [&] { return unshifted(scores); }));
    SmallVector<Value> results = computeWeights(scores, exponents, first);
    Value isLarge;
    for (Value sum : results) {
      // Unordered: before the first visible key, the maximum is −∞ and weights are NaN or ∞.
      Value exceeds = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UGT, sum, e.scalar(std::exp2(maxGrowth)));
      isLarge = isLarge ? arith::OrIOp::create(e.b, e.loc, isLarge, exceeds).getResult() : exceeds;
    }
    // LLVM would move the packing after the loop, where twice as many registers would be live.
    for (Value word : pack(scores))
      results.push_back(e.optimizationBarrier(word));
    Value isSpeculative = e.compare(arith::CmpIPredicate::eq, remaining, e.i32(0));
    scf::ConditionOp::create(e.b, e.loc, e.andi(e.anyLane(isLarge), isSpeculative), results);
  };
  auto repeat = [&](OpBuilder &, Location, ValueRange) {
    e.store(e.i32(tilesAfterGrowth), exactTiles, 0);
    scf::YieldOp::create(e.b, e.loc);
  };
  ValueRange results = scf::WhileOp::create(e.b, e.loc, types, ValueRange(), computeTile, repeat).getResults();
  for (size_t r = 0; r < rows; ++r)
    e.store(e.addf(e.load(state.sum, r), results[r]), state.sum, r);
  return SmallVector<Value>(results.drop_front(rows));
}
