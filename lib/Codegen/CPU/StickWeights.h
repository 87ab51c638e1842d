//===- StickWeights.h - Weights of registers of keys by stick-breaking -*- C++ -*-===//
//
// The arithmetic of StickBreaking.cpp, for consecutive registers of keys of one row.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_STICKWEIGHTS_H
#define SACCADE_LIB_CODEGEN_CPU_STICKWEIGHTS_H

#include "Emitter.h"
#include "Exp2.h"

namespace saccade::cpu {

/// What the keys of a tile leave of the sticks of one row per lane.
struct StickRest {
  mlir::Value factor; ///< of the weights of earlier keys, 0 where it is too small to count
  mlir::Value log;    ///< its logarithm with base 2
};

class StickWeights {
public:
  /// `error`: error bound of the exponential.
  StickWeights(Emitter &e, Exp2Error error) : e(e), error(error) {}

  /// The weights of one, two or four registers of keys with the scores t. `rest`, in all lanes, is what later keys
  /// leave, 1 at first, and becomes what these keys leave too.
  llvm::SmallVector<mlir::Value> weigh(llvm::ArrayRef<mlir::Value> t, mlir::Value &rest);
  /// Whether a scalar or vector `rest` is enough for other weights than 0; true for NaN.
  mlir::Value isLeft(mlir::Value rest);
  StickRest finish(mlir::Value rest, mlir::Value sumOfWeights);

private:
  /// Numbers of neighbouring keys, or of neighbouring groups of keys.
  struct Pairs {
    llvm::SmallVector<mlir::Value> first, second;
  };
  llvm::SmallVector<Pairs> fold(llvm::SmallVector<mlir::Value> &registers);
  llvm::SmallVector<mlir::Value> join(llvm::ArrayRef<mlir::Value> first, llvm::ArrayRef<mlir::Value> second);
  llvm::SmallVector<mlir::Value> scan(llvm::ArrayRef<mlir::Value> registers, unsigned folds, mlir::Value &rest);
  int64_t blockLanes() const;
  /// How often neighbouring keys are combined before the quotient.
  unsigned maxFolds() const { return error == Exp2Error::Unit ? 1 : 2; }

  Emitter &e;
  Exp2Error error;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_STICKWEIGHTS_H
