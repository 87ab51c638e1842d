//===- WeightRegions.h - What else is done with weights -------------*- C++ -*-===//
//
// Between the exponential of a score and its product with values stand the weight region and the
// tallies of attn.accumulate. They see a register of one row at a time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H
#define SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H

#include "Emitter.h"
#include "VectorizeRegion.h"

namespace saccade::cpu {

/// Binds the arguments of a region of `op` but the score: its position (batch, head, query) is the same in all lanes,
/// keys are those from `key` on.
void bindRegion(RegionVectorizer &lanes, attn::AccumulateOp op, const attn::RegionArguments &args, mlir::Value batch,
                mlir::Value head, mlir::Value query, mlir::Value key);

/// The weight region and the tallies of one attn.accumulate.
class WeightRegions {
public:
  /// `scale` (a scalar, or null for 1) leads from the scores that are given here to those that regions see.
  WeightRegions(Emitter &e, attn::AccumulateOp op, mlir::Value scale);

  /// Whether there is nothing to do.
  bool empty() { return op.getWeight().empty() && op.getTallyRegions().empty(); }

  /// Position (b, h, q, k) of element 0 of the tile; row `row` of it, whose state is to shrink by `factor`, follows.
  void beginRow(llvm::ArrayRef<mlir::Value> at, mlir::Value row, mlir::Value factor);
  /// What is carried along the row, initially; one vector each.
  llvm::SmallVector<mlir::Value> initialSums();
  /// Takes the weights of a register of scores, from column `column` of the tile on, into account and returns what
  /// values are multiplied by. A score of −inf is one that nobody sees. Updates what is carried.
  mlir::Value apply(mlir::Value scores, mlir::Value weights, mlir::Value column,
                    llvm::MutableArrayRef<mlir::Value> sums);
  /// Ends the row, given what was carried.
  void endRow(mlir::ValueRange sums);

  /// Set where a region has an op that cannot be vectorised; the diagnostic is out.
  bool failed = false;

private:
  /// A tally, and whether its bin is the same for all keys of a row.
  struct Tally {
    mlir::Region *region;
    mlir::Value bins; ///< memref of rows × bins
    bool isOneBin;
  };
  RegionVectorizer evaluate(mlir::Region &region, mlir::Value scoreOrWeight, mlir::Value column);
  mlir::Value weigh(mlir::Value scores, mlir::Value weights, mlir::Value column);
  void addToBins(const Tally &tally, RegionVectorizer &lanes, mlir::Value bin, mlir::Value amounts);
  /// One bin, if there is such a one.
  void addToBin(const Tally &tally, mlir::Value bin, mlir::Value amount);
  /// Lane i to bin first + i (`step` 1) or first − i (−1), all of which there are.
  void addToRun(const Tally &tally, mlir::Value first, int64_t step, mlir::Value amounts);
  void addOneByOne(const Tally &tally, mlir::Value bins, mlir::Value amounts);

  Emitter &e;
  attn::AccumulateOp op;
  mlir::Value scale;
  llvm::SmallVector<Tally> tallies;
  mlir::Value binScratch, amountScratch; ///< one register each, where lanes are taken one by one
  mlir::Value at[4], row;
  mlir::Value sum, inverseSum; ///< of the row, in all lanes, in a final step
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H
