//===- MatchSoftmax.h - Match the variants of softmax -----------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_MATCHSOFTMAX_H
#define SACCADE_LIB_IMPORT_RAISE_MATCHSOFTMAX_H

#include "Trace.h"

namespace saccade::raise {

/// A recognised softmax.
struct SoftmaxMatch {
  Node weight;                 ///< the result of the softmax
  Node score;                  ///< its input; −∞ or a large negative number for masked keys
  mlir::Operation *anchor;     ///< the op that remarks are attached to: the softmax or its sum
  Node guardedScore = nullptr; ///< the score with terms that are the same for all keys, which can be −∞; null if equal
  bool isStable = true;        ///< whether a maximum is subtracted before the exponential
  bool isGuarded = false;      ///< whether the graph handles fully masked rows
  bool replacesNaN = false;    ///< whether a guard selects 0 for weights that are NaN
};

/// Finds the softmax over loop `key` in `weight`, which may be a function of it. Recognises linalg.softmax, exp(s) / Σ
/// exp(s) with any shift and with masking before or after the exponential, and exp(s − log Σ exp(s)).
std::optional<SoftmaxMatch> findSoftmax(Graph &graph, Tracer &tracer, Node weight, unsigned key);

/// Removes guards from `weight` that select 0 if the softmax of `match` is NaN, which attention never yields.
Node dropGuards(Graph &graph, Tracer &tracer, Node weight, SoftmaxMatch &match, unsigned key);

/// Whether `op` sums exponentials along one dimension: the op at which a softmax is reported as not raised.
bool sumsExponentials(mlir::linalg::LinalgOp op);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_MATCHSOFTMAX_H
