//===- PairEvaluator.h - Pairs of a query and a key ----------------*- C++ -*-===//
#ifndef SACCADE_REFERENCE_PAIREVALUATOR_H
#define SACCADE_REFERENCE_PAIREVALUATOR_H

#include "Scoring.h"

namespace saccade::reference {

/// Evaluates `attn.gradient`, `attn.jvp` or `attn.weights` by its definition: probabilities from the log-sum-exp, then
/// the contribution of each pair of a query and a key to the results.
class PairEvaluator {
public:
  /// `OpTy` has a log-sum-exp, which is null with a normalizer.
  template <typename OpTy>
  PairEvaluator(OpTy op, Frame &frame, Scorer &scorer)
      : frame(frame), scorer(scorer), op(op), lse(op.getLse()), lseLow(op.getLseLow()), rowDims(op.getRowDims()) {}
  virtual ~PairEvaluator() = default;
  /// Computes all results.
  mlir::LogicalResult run();

protected:
  /// Computes the operands and allocates the results.
  virtual mlir::LogicalResult demandOperands() = 0;
  /// Called before the pairs of a row, of which the first `keys` keys have these weights; without a softmax only.
  virtual mlir::LogicalResult beginRow(int64_t, int64_t, int64_t, llvm::ArrayRef<double>) { return mlir::success(); }
  /// Checks at run time what the verifier checks for static sizes.
  virtual mlir::LogicalResult checkExtents() = 0;
  /// Adds a visible pair with probability `p`, with its weight by stick_breaking, or with score `p`. `row`: its indices
  /// in a tensor with a number for each row.
  virtual mlir::LogicalResult addPair(int64_t batch, int64_t head, int64_t position, int64_t key, double p,
                                      llvm::SmallVector<int64_t> &row) = 0;

  /// Computes operands, of which some may be null.
  mlir::LogicalResult demand(llvm::ArrayRef<mlir::Value> operands);
  /// Checks the extents of a tensor with a number for each row.
  mlir::LogicalResult checkRows(llvm::StringRef role, Cells *rows);
  double rounded(double number) const { return frame.rounded(scorer.scoreType, number); }
  void add(double &sum, double term) const { sum = rounded(sum + rounded(term)); }
  /// to += factor · from, along depth.
  void addScaled(const NamedCells &to, int64_t head, int64_t position, double factor, const NamedCells &from,
                 int64_t fromHead, int64_t fromPosition, int64_t batch) const;

  Frame &frame;
  Scorer &scorer;

private:
  /// Computes the first `keys` keys and values of a batch.
  mlir::LogicalResult demandKeys(int64_t batch, int64_t keys);
  void roundSticks();
  mlir::LogicalResult addRow(int64_t batch, int64_t head, int64_t position, int64_t keys);

  attn::ScoringOpInterface op;
  mlir::Value lse, lseLow; ///< may be null
  llvm::SmallVector<attn::Dim> rowDims;
  std::vector<double> weights; ///< by stick_breaking, of the row

protected:
  std::vector<double> scores; ///< of the row
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_PAIREVALUATOR_H
