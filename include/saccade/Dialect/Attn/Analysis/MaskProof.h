//===- MaskProof.h - Properties of a mask for all inputs -----------*- C++ -*-===//
//
// The mask analysis for unknown positions, lengths and captures: the properties that hold for all of them, and the
// tests that remain at run time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MASKPROOF_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MASKPROOF_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

struct MaskProof {
  bool isExact = false;               ///< the bounds of the key loop are equivalent to the mask
  bool hasBounds = false;             ///< the mask bounds the key loop
  bool canBeEmpty = false;            ///< run-time tests can prove a tile empty
  bool canBeFull = false;             ///< run-time tests can prove a tile full
  bool seesFirstKey = false;          ///< every query attends to the first key, for all sizes and captures
  bool seesPositionZero = false;      ///< every query attends to the key at position 0; the first key may be another
  llvm::SmallVector<unsigned> tables; ///< captured tensors whose elements these tests read
};

MaskProof proveMask(ScoringOpInterface op);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MASKPROOF_H
