//===- MaskProof.h - What a mask can prove at all ------------------*- C++ -*-===//
//
// The mask analysis for positions, lengths and captures of which nothing is known: how much it leaves to run time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MASKPROOF_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MASKPROOF_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

struct MaskProof {
  bool isExact = false;    ///< bounds of the loop over keys are all that the mask says
  bool hasBounds = false;  ///< there are such bounds
  bool canBeEmpty = false; ///< code may find a tile empty,
  bool canBeFull = false;  ///< and full
  bool seesFirstKey = false; ///< every query sees the first key, whatever sizes and captures are
  llvm::SmallVector<unsigned> tables; ///< captured tensors whose elements code looks at
};

MaskProof proveMask(ScoringOpInterface op);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MASKPROOF_H
