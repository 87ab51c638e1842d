//===- SplitMask.h - Which part of a score hides keys -------------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_SPLITMASK_H
#define SACCADE_LIB_IMPORT_RAISE_SPLITMASK_H

#include "Expr.h"

namespace saccade::raise {

struct MaskedScore {
  Node score;                            ///< the score of the keys that are seen
  llvm::SmallVector<Node, 2> conditions; ///< a key is seen where all hold
  bool isFinite = false;                 ///< whether a finite number hid keys
  bool isInfinite = false;               ///< whether −∞ did
};

/// Takes from `score` what sets it to −∞, or to a number of at most −9999, or adds that. A number that hides keys is taken
/// for a mask: what is raised gives 0 for a row whose keys are all hidden, where the graph gave the mean of all values.
MaskedScore splitMask(Graph &graph, Node score);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_SPLITMASK_H
