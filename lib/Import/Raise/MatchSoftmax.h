//===- MatchSoftmax.h - Softmax in all its forms ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_MATCHSOFTMAX_H
#define SACCADE_LIB_IMPORT_RAISE_MATCHSOFTMAX_H

#include "Trace.h"

namespace saccade::raise {

/// A softmax along a loop.
struct SoftmaxMatch {
  Node weight;             ///< what was recognised
  Node score;              ///< what it is the softmax of, −∞ or a large negative number where a key is not seen
  mlir::Operation *anchor; ///< the op that remarks stand at: the softmax, or its sum
  bool isStable = true;    ///< whether a maximum is subtracted before the exponential
  bool isGuarded = false;  ///< whether rows without keys were thought of
};

/// The softmax over loop `key` in `weight`, which may be a function of it. Recognised are linalg.softmax, the exponential
/// over the sum of exponentials, however shifted, masked behind the exponential or not, and the exponential of a score
/// less the logarithm of that sum.
std::optional<SoftmaxMatch> findSoftmax(Graph &graph, Tracer &tracer, Node weight, unsigned key);

/// `weight` without the guards that put 0 where the softmax of `match` is NaN, which it never is with us.
Node dropGuards(Graph &graph, Tracer &tracer, Node weight, SoftmaxMatch &match, unsigned key);

/// Whether `op` sums exponentials along one dimension: where a softmax that was not raised is seen.
bool sumsExponentials(mlir::linalg::LinalgOp op);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_MATCHSOFTMAX_H
