//===- SplitMask.h - Split masking off a score ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_SPLITMASK_H
#define SACCADE_LIB_IMPORT_RAISE_SPLITMASK_H

#include "Expr.h"

namespace saccade::raise {

/// Numbers up to this one mean "masked": −1e4 (representable in f16), −1e9, −3.4e38, −∞. The lint pass uses the same
/// limit.
constexpr double largestSentinel = -9999;

struct MaskedScore {
  Node score;                            ///< the score of visible keys
  llvm::SmallVector<Node, 2> conditions; ///< a key is visible if all hold
  bool isFinite = false;                 ///< whether a finite number masked keys
  bool isInfinite = false;               ///< whether −∞ masked keys
  bool mayBeNaN = false; ///< whether `score` may be ∞ or NaN, also of masked keys, if no tensor has such elements
};

/// Removes from `score` the ops that select or add −∞ or a number of at most −9999. Such a number is treated as a mask:
/// attention gives 0 for a fully masked row, where the graph gave the mean of all values. Removes nothing if the number
/// may be made up for by another term that differs between the keys, which are loop `key`.
MaskedScore splitMask(Graph &graph, Node score, unsigned key);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_SPLITMASK_H
