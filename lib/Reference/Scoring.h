//===- Scoring.h - Scores of queries against keys -------------------*- C++ -*-===//
//
// The part that whole and tiled attention share: the masked scores of one query, and the softmax
// over them.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_SCORING_H
#define SACCADE_REFERENCE_SCORING_H

#include "Program.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <algorithm>
#include <cmath>
#include <vector>

namespace saccade::reference {

/// The larger of two numbers; NaN wins.
inline double maxOrNaN(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }

/// A tensor seen through the names of its dimensions; a missing one has extent 1. Positions count from the beginning of
/// their batch.
struct NamedCells {
  Cells *cells = nullptr;
  attn::DimsAttr dims;
  /// Where the sequences of a packed tensor begin, which are its batches, and where the last one ends; else empty.
  llvm::SmallVector<int64_t> starts = {};

  int64_t extent(attn::Dim dim) const;
  int64_t batches() const { return starts.empty() ? extent(attn::Dim::Batch) : int64_t(starts.size()) - 1; }
  /// How many positions `batch` has.
  int64_t length(int64_t batch) const {
    return starts.empty() ? extent(attn::Dim::Seq) : starts[batch + 1] - starts[batch];
  }
  /// The position in the tensor of the first of `batch`.
  int64_t start(int64_t batch) const { return starts.empty() ? 0 : starts[batch]; }
  int64_t stride(attn::Dim dim) const;
  double *at(int64_t batch, int64_t head, int64_t position) const;
  /// The elements of one batch, heads [head, head + heads) and positions [position, position + positions), all depths.
  Box box(int64_t batch, int64_t head, int64_t heads, int64_t position, int64_t positions) const;
};

/// Computes masked scores of one `ScoringOpInterface`.
class Scorer {
public:
  static mlir::FailureOr<Scorer> create(attn::ScoringOpInterface op, Frame &frame);

  NamedCells query, key, value;
  mlir::Type inputType, scoreType;

  /// The scores of query `position` of (batch, head) against the first `keys` keys, scaled, changed by the score
  /// region, −inf where masked: a key that scores −inf weighs nothing, so that nothing more than this need be known.
  /// All numbers count from element 0 of the operands. Keys beyond `keys` and masked keys are not read.
  mlir::LogicalResult scores(int64_t batch, int64_t head, int64_t position, int64_t keys, std::vector<double> &scores);

  /// Of the row whose scores were computed last: what the weight region makes of `weight` at `key`, itself without one.
  mlir::FailureOr<double> modifiedWeight(int64_t key, double weight);
  /// What tally region `number` yields at `key`, which has this score.
  mlir::LogicalResult tally(unsigned number, int64_t key, double score, int64_t &bin, double &amount);

  /// What `attn.length` answers with, and the absolute position (b, h, q, k) of element 0.
  int64_t queryLength = 0, keyLength = 0;
  int64_t at[4] = {0, 0, 0, 0};

  /// The key head that serves a query head.
  int64_t keyHead(int64_t head) const { return head / (query.extent(attn::Dim::Head) / key.extent(attn::Dim::Head)); }
  double getScale() const { return scale; }

private:
  Scorer(attn::ScoringOpInterface op, Frame &frame) : op(op), frame(&frame) {}
  mlir::LogicalResult findSequences(attn::AttentionOp op);
  mlir::LogicalResult findExtents();
  mlir::LogicalResult findScale();

  attn::ScoringOpInterface op;
  Frame *frame;
  double scale = 1;
  Program *score = nullptr, *mask = nullptr, *weight = nullptr;
  llvm::SmallVector<Program *> tallies;
};

/// Adds the tallies of a row, whose probabilities or weights are given, to `sums`: an array of bins for each tally.
mlir::LogicalResult addTallies(Frame &frame, Scorer &scorer, llvm::ArrayRef<double> scores,
                               llvm::ArrayRef<double> weights, llvm::ArrayRef<llvm::MutableArrayRef<double>> sums);

/// The largest score that is a number, and where; −inf and −1 where there is none.
struct LargestScore {
  double score = -INFINITY;
  int64_t key = -1;
  explicit LargestScore(llvm::ArrayRef<double> scores);
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_SCORING_H
