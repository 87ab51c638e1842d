//===- WeightRegions.h - Weight region and tallies ----------------*- C++ -*-===//
//
// The weight region and the tallies of attn.accumulate are evaluated between the exponential and the matmul with the
// values, one register of a row at a time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H
#define SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H

#include "Emitter.h"
#include "Exp2.h"
#include "VectorizeRegion.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/IR/Position.h"

namespace saccade::cpu {

/// Binds the arguments of a region of `op` except the score: batch, head and query are uniform, keys are contiguous
/// from that of `at` on.
void bindRegion(RegionVectorizer &lanes, attn::ScoringOpInterface op, const attn::RegionArguments &args,
                const attn::Position &at);

/// The weight region and the tallies of one attn.accumulate.
class WeightRegions {
public:
  /// `scale` (a scalar, or null for 1) converts the scores passed to `apply` to the scores of the op. `keys`: number of
  /// keys in the tile, at most `maxKeys`.
  /// `error`: of exponentials of a normalizer.
  WeightRegions(Emitter &e, attn::AccumulateOp op, mlir::Value scale, mlir::Value keys, int64_t maxKeys,
                Exp2Error error);

  /// Whether the op has neither a weight region nor tallies.
  bool empty() { return op.getWeight().empty() && op.getTallyRegions().empty(); }

  /// Starts row `row` of the tile at position `at` and multiplies its bins by `factor`.
  void beginRow(const attn::Position &at, mlir::Value row, mlir::Value factor);
  /// The columns of the row, within `columns`, outside of which some tallies add nothing; nullopt if all tallies may
  /// add anywhere.
  std::optional<attn::KeyRange> boundedColumns(attn::KeyRange columns);
  /// Initial values of what is carried along the row.
  llvm::SmallVector<mlir::Value> initialSums();
  /// The largest number of registers that `apply` should process at a time, given the target's preference: regions are
  /// long, so several are worth it only for short ones, or if the weight region computes numbers for groups of keys,
  /// which then fill a register.
  int64_t preferredRegisters(int64_t preferred);
  /// Processes registers of scores and weights from column `column` of the tile on. Updates `sums` and replaces the
  /// weights by the factors of the values. A score of −inf marks a masked key. With a normalizer the
  /// weights given are scores. `isBounded`: whether the columns are in
  /// `boundedColumns`.
  void apply(llvm::ArrayRef<mlir::Value> scores, llvm::MutableArrayRef<mlir::Value> weights, mlir::Value column,
             llvm::MutableArrayRef<mlir::Value> sums, bool isBounded);
  /// Ends the row, given what was carried.
  void endRow(mlir::ValueRange sums);

  /// Set if a region has an op that cannot be vectorized; the diagnostic has been emitted.
  bool failed = false;

private:
  /// What determines the bin of a tally.
  enum class Bin {
    OfRow, ///< neither the score nor the key
    OfKey, ///< neither the score, the query nor the head
    OfPair
  };
  struct Tally {
    mlir::Region *region;
    mlir::Value bins; ///< memref of rows × bins
    Bin bin;
    /// OfKey: memref of the bin of each register of columns, `mixedBins` if its keys have several.
    mlir::Value binOfColumns;
    std::optional<attn::KeyBounds> bounds; ///< keys outside of which the value is 0

    /// The number of values that are carried along the row.
    unsigned carried() const { return bin == Bin::OfRow ? 1 : bin == Bin::OfKey ? 2 : 0; }
  };
  static constexpr int64_t mixedBins = -1;
  /// Evaluates a region for the lanes of `scoreOrWeight`.
  RegionVectorizer evaluate(mlir::Region &region, mlir::Value scoreOrWeight, mlir::Value column);
  void weigh(llvm::ArrayRef<mlir::Value> scores, llvm::MutableArrayRef<mlir::Value> weights, mlir::Value column);
  /// Replaces registers of scores by those of a normalizer, 0 for −inf.
  void normalize(llvm::MutableArrayRef<mlir::Value> scores, mlir::Value column);
  /// The bins of all registers of the tile.
  mlir::Value emitBinOfColumns(mlir::Region &region, mlir::Value keys, int64_t maxKeys);
  void addTallies(mlir::Value scores, mlir::Value weights, mlir::Value column, llvm::MutableArrayRef<mlir::Value> sums,
                  bool isBounded);
  /// Adds to the carried sum of the bin that the keys before had, or ends it.
  void addToBinOfKey(const Tally &tally, mlir::Value amounts, mlir::Value column,
                     llvm::MutableArrayRef<mlir::Value> sums);
  void addToBins(const Tally &tally, RegionVectorizer &lanes, mlir::Value bin, mlir::Value amounts);
  /// Adds to one bin if it is in bounds.
  void addToBin(const Tally &tally, mlir::Value bin, mlir::Value amount);
  /// Adds lane i to bin first + i (`step` 1) or first − i (−1), all in bounds.
  void addToRun(const Tally &tally, mlir::Value first, int64_t step, mlir::Value amounts);
  void addOneByOne(const Tally &tally, mlir::Value bins, mlir::Value amounts);

  Emitter &e;
  attn::AccumulateOp op;
  mlir::Value scale;
  Exp2Error error;
  llvm::SmallVector<Tally> tallies;
  mlir::Value binScratch, amountScratch; ///< one register each, for scalar updates
  attn::Position at;
  mlir::Value row;
  mlir::Value sum, inverseSum; ///< of the row, in all lanes, in a final step
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_WEIGHTREGIONS_H
