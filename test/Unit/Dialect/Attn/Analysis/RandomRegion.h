//===- RandomRegion.h - Regions of all permitted ops --------------*- C++ -*-===//
//
// Claims of an analysis are checked against evaluation: a region of random ops, inputs with many extreme values, the
// scalar functions of the reference interpreter, and a reduction of regions for which a claim does not hold.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_UNIT_RANDOMREGION_H
#define SACCADE_TEST_UNIT_RANDOMREGION_H

#include "RegionOps.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Reference/Tensor.h"
#include "llvm/ADT/DenseMap.h"
#include <random>

using saccade::reference::Scalar;

/// A value for many inputs at once. A lane is undefined after a division by 0, a shift by the width and the like; a
/// select drops what it does not choose.
struct ScalarLanes {
  std::vector<Scalar> values;
  std::vector<bool> isDefined;
};

/// The width of a number; 64 for `index`.
inline unsigned bitWidthOf(mlir::Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

/// Inputs of a region: the lanes of its arguments, and of the lengths of queries and keys.
using Environment = std::vector<std::vector<Scalar>>;

/// Evaluates the values of a block on the lanes of its arguments. Floats are rounded to their type.
llvm::DenseMap<mlir::Value, ScalarLanes> evaluate(mlir::Block &block, const Environment &inputs);

/// A score or mask region over positions, a captured scalar of each type, and captured tensors. A lane of a tensor is
/// the element that is read, whatever the index.
class RandomRegion {
public:
  RandomRegion(const RegionOps &ops, mlir::MLIRContext &context, uint64_t seed, unsigned size, unsigned lanes,
               bool isMask = false);

  mlir::Region region;
  Environment inputs;

  /// The region and its inputs, for failures.
  std::string text();

private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }
  bool chance(double share) { return std::uniform_real_distribution<>()(random) < share; }
  mlir::Type anyFloat();
  mlir::Value constant(mlir::Type type);
  mlir::Value operand(mlir::Type type);
  void draw();
  const Signature &anySignature();

  const RegionOps &ops;
  std::mt19937_64 random;
  mlir::OpBuilder b;
  mlir::Location loc;
  llvm::SmallVector<mlir::Type, 4> usual; ///< the types of most values
  llvm::DenseMap<mlir::Type, std::vector<mlir::Value>> values;
};

/// A number of `type`: often a special one (0, 1, the largest, subnormal, infinite, NaN).
Scalar anyScalar(mlir::Type type, std::mt19937_64 &random);

/// The program of an attention over f32 queries %q and keys %k, whose captures have the types of a `RandomRegion`,
/// without regions. `clauses` may use the lengths %n and %m and the origins %b0, %h0, %i0, %j0.
std::string skeleton(const RegionOps &ops, llvm::StringRef clauses = "");

/// Makes `region` smaller as long as `fails` returns true: drops ops, replaces values by operands, arguments and
/// simple constants.
void reduce(mlir::Region &region, llvm::function_ref<bool()> fails);
/// Keeps one lane of `inputs` and replaces numbers by 0 and 1 as long as `fails` returns true.
void reduce(Environment &inputs, mlir::Block &block, llvm::function_ref<bool()> fails);

/// The text of a region, as an op.
std::string print(mlir::Region &region);

#endif // SACCADE_TEST_UNIT_RANDOMREGION_H
