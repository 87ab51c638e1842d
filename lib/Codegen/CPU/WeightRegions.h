//===- WeightRegions.h - Weight region and tallies ----------------*- C++ -*-===//
//
// The weight region and the tallies of attn.accumulate are evaluated between the exponential and the matmul with the
// values, one register of a row at a time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H
#define SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H

#include "Emitter.h"
#include "VectorizeRegion.h"

namespace saccade::cpu {

/// Binds the arguments of a region of `op` except the score: batch, head and query are uniform, keys are contiguous
/// from `key` on.
void bindRegion(RegionVectorizer &lanes, attn::ScoringOpInterface op, const attn::RegionArguments &args,
                mlir::Value batch, mlir::Value head, mlir::Value query, mlir::Value key);

/// The weight region and the tallies of one attn.accumulate.
class WeightRegions {
public:
  /// `scale` (a scalar, or null for 1) converts the scores passed to `apply` to the scores of the op.
  WeightRegions(Emitter &e, attn::AccumulateOp op, mlir::Value scale);

  /// Whether the op has neither a weight region nor tallies.
  bool empty() { return op.getWeight().empty() && op.getTallyRegions().empty(); }

  /// Starts row `row` of the tile at position `at` (b, h, q, k) and multiplies its bins by `factor`.
  void beginRow(llvm::ArrayRef<mlir::Value> at, mlir::Value row, mlir::Value factor);
  /// Initial values of the vectors that are carried along the row.
  llvm::SmallVector<mlir::Value> initialSums();
  /// The number of registers that `apply` should process at a time: more than one if the weight region computes numbers
  /// for groups of keys, which then fill a register.
  int64_t preferredRegisters();
  /// Processes registers of scores and weights from column `column` of the tile on. Updates `sums` and replaces the
  /// weights by the factors of the values. A score of −inf marks a masked key.
  void apply(llvm::ArrayRef<mlir::Value> scores, llvm::MutableArrayRef<mlir::Value> weights, mlir::Value column,
             llvm::MutableArrayRef<mlir::Value> sums);
  /// Ends the row, given the carried vectors.
  void endRow(mlir::ValueRange sums);

  /// Set if a region has an op that cannot be vectorized; the diagnostic has been emitted.
  bool failed = false;

private:
  /// A tally, and whether its bin is the same for all keys of a row.
  struct Tally {
    mlir::Region *region;
    mlir::Value bins; ///< memref of rows × bins
    bool isOneBin;
  };
  /// Evaluates a region for the lanes of `scoreOrWeight`.
  RegionVectorizer evaluate(mlir::Region &region, mlir::Value scoreOrWeight, mlir::Value column);
  void weigh(llvm::ArrayRef<mlir::Value> scores, llvm::MutableArrayRef<mlir::Value> weights, mlir::Value column);
  void addTallies(mlir::Value scores, mlir::Value weights, mlir::Value column, llvm::MutableArrayRef<mlir::Value> sums);
  void addToBins(const Tally &tally, RegionVectorizer &lanes, mlir::Value bin, mlir::Value amounts);
  /// Adds to one bin if it is in bounds.
  void addToBin(const Tally &tally, mlir::Value bin, mlir::Value amount);
  /// Adds lane i to bin first + i (`step` 1) or first − i (−1), all in bounds.
  void addToRun(const Tally &tally, mlir::Value first, int64_t step, mlir::Value amounts);
  void addOneByOne(const Tally &tally, mlir::Value bins, mlir::Value amounts);

  Emitter &e;
  attn::AccumulateOp op;
  mlir::Value scale;
  llvm::SmallVector<Tally> tallies;
  mlir::Value binScratch, amountScratch; ///< one register each, for scalar updates
  mlir::Value at[4], row;
  mlir::Value sum, inverseSum; ///< of the row, in all lanes, in a final step
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H
