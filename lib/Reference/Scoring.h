//===- Scoring.h - Masked scores of queries and keys ----------------*- C++ -*-===//
//
// The part shared by attn.attention and the ops on tiles: the masked scores of one query, and its tallies.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_SCORING_H
#define SACCADE_REFERENCE_SCORING_H

#include "Program.h"
#include "QuantizedKeys.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace saccade::reference {

/// Maximum that propagates NaN.
inline double maxOrNaN(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }

/// A tensor with named dimensions; a missing dimension has extent 1. Positions are relative to the start of the
/// sequence.
struct NamedCells {
  NamedCells() = default;
  NamedCells(Cells *cells, attn::DimsAttr dims);

  /// cu_seqlens of a ragged tensor, whose batches are its sequences; empty for a dense tensor.
  llvm::SmallVector<int64_t> starts = {};

  Cells *getCells() const { return cells; }
  int64_t extent(attn::Dim dim) const { return extents[unsigned(dim)]; }
  int64_t stride(attn::Dim dim) const { return strides[unsigned(dim)]; }
  int64_t batches() const { return starts.empty() ? extent(attn::Dim::Batch) : int64_t(starts.size()) - 1; }
  /// Sequence length of `batch`.
  int64_t length(int64_t batch) const {
    return starts.empty() ? extent(attn::Dim::Seq) : starts[batch + 1] - starts[batch];
  }
  /// Row of the tensor at which `batch` starts.
  int64_t start(int64_t batch) const { return starts.empty() ? 0 : starts[batch]; }
  double *at(int64_t batch, int64_t head, int64_t position) const;
  /// Box of one batch, heads [head, head + heads), positions [position, position + positions) and all of depth.
  Box box(int64_t batch, int64_t head, int64_t heads, int64_t position, int64_t positions) const;

private:
  Cells *cells = nullptr;
  attn::DimsAttr dims;
  // By dimension; 1 and 0 for those that the tensor lacks.
  std::array<int64_t, 4> extents = {1, 1, 1, 1}, strides = {};
};

/// Computes the masked scores of a `ScoringOpInterface`.
class Scorer {
public:
  static mlir::FailureOr<Scorer> create(attn::ScoringOpInterface op, Frame &frame);

  NamedCells query, key, value;
  mlir::Type inputType, scoreType;

  /// Scores of query `position` of (batch, head) against the first `keys` keys: scaled, modified by the score region,
  /// −inf if masked. Indices are relative to element 0 of the operands. Keys beyond `keys` and masked keys are not
  /// read.
  mlir::LogicalResult scores(int64_t batch, int64_t head, int64_t position, int64_t keys, std::vector<double> &scores);

  /// For an op on whole tensors: sets the lengths to those of `batch` and returns the number of keys up to the length.
  mlir::FailureOr<int64_t> enterBatch(int64_t batch);

  /// Applies the weight region, if any, to the weight `value` at `key`, or a normalizer to the score `value`, for the
  /// row whose scores were computed last.
  mlir::FailureOr<double> modifiedWeight(int64_t key, double value);
  /// Whether no mask excludes `key`, for the row whose scores were computed last.
  bool isVisible(int64_t key) const { return visible[key]; }
  /// The scaled score at `key` before the score region, for the row whose scores were computed last.
  double scaledScore(int64_t key) const { return scaledScores[key]; }
  /// The score of the scaled score `scaled` at `key`, for the row whose scores were computed last.
  mlir::FailureOr<double> scoreOf(int64_t key, double scaled);
  /// With `qk_type`: the first `keys` keys of a KV head as kernels may round them. They belong to the caller until the
  /// next call.
  const QuantizedKeys &quantizedKeys(int64_t batch, int64_t kvHead, int64_t keys);
  /// Whether dot products may be rounded to int8.
  bool isQuantized() const { return op.getQkTypeAttr() != nullptr; }
  /// Query `position` of (batch, head).
  StridedRow queryRow(int64_t batch, int64_t head, int64_t position) const {
    return {query.at(batch, head, position), query.stride(attn::Dim::Depth)};
  }
  /// Runs the region of an `attn.gradient` or `attn.jvp` at `key`, for the row whose scores were computed last.
  /// `numbers`: its arguments before the positions.
  mlir::FailureOr<Program *> runDerivative(int64_t key, llvm::ArrayRef<double> numbers);
  /// Runs tally region `number` at `key`, for the row whose scores were computed last.
  mlir::LogicalResult tally(unsigned number, int64_t key, double score, int64_t &bin, double &amount);

  /// Results of `attn.length`, and the absolute position of element 0.
  int64_t queryLength = 0, keyLength = 0;
  attn::PositionOf<int64_t> at = {};

  /// Σ a · b along depth, in the type of scores.
  double dotProduct(const NamedCells &a, const double *fromA, const NamedCells &b, const double *fromB) const;

  /// The KV head of a query head.
  int64_t kvHead(int64_t head) const { return head / (query.extent(attn::Dim::Head) / key.extent(attn::Dim::Head)); }
  double getScale() const { return scale; }

private:
  Scorer(attn::ScoringOpInterface op, Frame &frame) : op(op), frame(&frame) {}
  mlir::LogicalResult findSequences();
  mlir::LogicalResult findExtents();
  mlir::LogicalResult findScale();

  mutable attn::ScoringOpInterface op;
  Frame *frame;
  double scale = 1;
  Program *score = nullptr, *mask = nullptr, *weight = nullptr, *derivative = nullptr;
  unsigned derivativeNumbers = 0; ///< arguments of `derivative` before the positions
  std::vector<double> scaledScores;
  std::vector<bool> visible;
  std::unique_ptr<QuantizedKeys> quantized;
  std::array<int64_t, 3> quantizedRange = {}; ///< batch, KV head and number of keys of `quantized`
  llvm::SmallVector<Program *> tallies;
};

/// Adds the tallies of a row with these scores and weights to `sums`, an array of bins per tally.
mlir::LogicalResult addTallies(Frame &frame, Scorer &scorer, llvm::ArrayRef<double> scores,
                               llvm::ArrayRef<double> weights, llvm::ArrayRef<llvm::MutableArrayRef<double>> sums);

/// Part σ(score) of the stick that a key takes, and the rest 1 − σ(score).
struct StickBreak {
  double taken, rest;
  explicit StickBreak(double score) : taken(1 / (1 + std::exp(-score))), rest(1 / (1 + std::exp(score))) {}
};

/// The weights of stick-breaking attention (Tan et al. 2024): from the last key to the first, each takes its part of a
/// stick. Returns the rest of a stick of length 1.
double breakStick(llvm::ArrayRef<double> scores, std::vector<double> &weights);

/// Row maximum, ignoring NaN, and its key; −inf and −1 if there is none.
struct RowMax {
  double score = -INFINITY;
  int64_t key = -1;
  explicit RowMax(llvm::ArrayRef<double> scores);
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_SCORING_H
