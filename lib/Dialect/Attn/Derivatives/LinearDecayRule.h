//===- LinearDecayRule.h - The gradient of a decay -----------------*- C++ -*-===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_LINEARDECAYRULE_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_LINEARDECAYRULE_H

#include "Gradients.h"

namespace saccade::attn {

/// Values in the type of the state that the gradient of a decay follows from.
struct DecayTerms {
  mlir::Value query, queryGradient; ///< features of the queries and their gradients
  mlir::Value key, keyGradient;
  mlir::Value state, stateGradient; ///< after the last position; null if the loss does not depend on it
};

/// Adds the gradient of the decay of `op`.
void addDecayGradient(LinearOp op, const DecayTerms &terms, Gradients &gradients);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_LINEARDECAYRULE_H
