//===- RandomMask.h - Mask regions drawn at random ----------------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_RANDOMMASK_H
#define SACCADE_TEST_UNIT_RANDOMMASK_H

#include "Lanes.h"
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include <map>
#include <random>
#include <string>

/// A mask region and its inputs: positions [origin, origin + extent) × [origin, origin + extent).
class RandomMask {
public:
  /// `usesScalars`: most divisors and shifts are by captured scalars, else most are by constants.
  RandomMask(mlir::MLIRContext &context, uint64_t seed, int64_t extent, bool usesScalars = false);

  mlir::Region region;
  std::vector<std::unique_ptr<Table>> tables; ///< by capture, null for scalars
  std::vector<int64_t> scalars;               ///< by capture, of scalars
  int64_t batch, head, queryOrigin, keyOrigin, queryLength, keyLength, extent;

  mlir::Value getCondition();
  /// A description for failures.
  std::string text();

private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }
  bool chance(double share) { return std::uniform_real_distribution<>()(random) < share; }
  mlir::Type anyType();
  int64_t anyNumber(mlir::Type type);
  mlir::Value constant(mlir::Type type, int64_t number);
  mlir::Value number(mlir::Type type, int64_t number);
  mlir::Value cast(mlir::Value value, mlir::Type type);
  mlir::Value position(mlir::Type type);
  mlir::Value leaf(mlir::Type type);
  mlir::Value element(mlir::Type type, int depth);
  mlir::Value readTable(mlir::Type type, llvm::ArrayRef<int64_t> shape, mlir::ValueRange place);
  mlir::Value scalar(mlir::Type type);
  mlir::Value integer(mlir::Type type, int depth);
  mlir::Value commonMask();
  mlir::Value dense();
  mlir::Value condition(int depth);

  bool usesScalars;
  std::map<std::pair<const void *, int64_t>, mlir::Value> numbers; ///< captured scalars by type and number
  std::mt19937_64 random;
  mlir::OpBuilder b;
  mlir::Location loc;
};

#endif // SACCADE_TEST_UNIT_RANDOMMASK_H
