//===- AffineMask.h - Conjunctions of affine comparisons ----------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_AFFINEMASK_H
#define SACCADE_TEST_UNIT_AFFINEMASK_H

#include "RandomRegion.h"

/// A mask region with the captures of `RandomRegion`: comparisons of sums of positions, constants, captured integers
/// and lengths, in any width, joined by `and`; and a value of each input.
class AffineMask {
public:
  AffineMask(const RegionOps &ops, mlir::MLIRContext &context, uint64_t seed);

  mlir::Region region;
  std::vector<Scalar> inputs; ///< by argument, then the lengths of queries and keys
  bool isNarrow = false;      ///< a position is cast to less than 64 bits
  /// All comparisons are on `index`, signed, with small factors and constants, each of the key.
  bool isSimple = true;

  /// The inputs in all lanes; positions are set by the caller.
  Environment environment(size_t lanes) const;
  /// The conditions that `and` joins.
  llvm::SmallVector<mlir::Value> conjuncts();
  std::string text();

private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }
  bool chance(double share) { return std::uniform_real_distribution<>()(random) < share; }
  mlir::Value constant(mlir::Type type, int64_t number);
  mlir::Value cast(mlir::Value value, mlir::Type type);
  mlir::Value position(unsigned argument, mlir::Type type);
  mlir::Value term(mlir::Type type);
  mlir::Value sum(mlir::Value first, mlir::Type type);
  mlir::Value comparison();

  std::mt19937_64 random;
  mlir::OpBuilder b;
  mlir::Location loc;
};

#endif // SACCADE_TEST_UNIT_AFFINEMASK_H
