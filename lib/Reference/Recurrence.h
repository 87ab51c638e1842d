//===- Recurrence.h - The operands of linear attention ------------*- C++ -*-===//
//
// What attn.linear and attn.linear_gradient share: operands, sequences, and the state of one sequence and head, which
// positions update one after another.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_REFERENCE_RECURRENCE_H
#define SACCADE_LIB_REFERENCE_RECURRENCE_H

#include "Scoring.h"

namespace saccade::reference {

/// Decay or beta: a factor that is broadcast along the dimensions it does not name.
struct Factor {
  Cells *cells = nullptr;
  attn::AxesAttr axes;

  /// `row`: of the tensor, the position in dense ones.
  double at(int64_t batch, int64_t head, int64_t row, int64_t depth) const;
};

/// The recurrence of linear attention, for one sequence and head of values at a time.
class Recurrence {
protected:
  Recurrence(attn::LinearOpInterface op, Frame &frame, bool isNormalized)
      : op(op), frame(frame), type(op.getStateType()), inputType(mlir::getElementTypeOrSelf(op.getQuery())),
        isBF16(inputType.isBF16()), isNormalized(isNormalized) {}
  mlir::LogicalResult fetch();
  /// Fetches all elements of an operand; `cells` remains null for a null operand.
  mlir::LogicalResult fetchAll(mlir::Value operand, Cells *&cells);
  mlir::LogicalResult fetchNamed(mlir::Value operand, attn::DimsAttr dims, NamedCells &named);

  int64_t heads() const { return value.extent(attn::Dim::Head); }
  int64_t outputHeads() const { return std::max(heads(), query.extent(attn::Dim::Head)); }
  /// The number of positions of a sequence of keys.
  int64_t length(int64_t batch) const;
  /// The head of an operand that value heads share, for head `head` of values.
  int64_t shared(const NamedCells &operand, int64_t head) const {
    return head / (heads() / operand.extent(attn::Dim::Head));
  }
  /// The head of queries of an output head.
  int64_t queryHead(int64_t head) const { return head / (outputHeads() / query.extent(attn::Dim::Head)); }
  /// The first element of a state in a tensor of states.
  int64_t stateOffset(int64_t batch, int64_t head) const;

  /// The elements of a row.
  std::vector<double> row(const NamedCells &operand, int64_t batch, int64_t head, int64_t position) const;
  /// Of queries or keys.
  virtual mlir::FailureOr<std::vector<double>> features(const NamedCells &operand, int64_t batch, int64_t head,
                                                        int64_t position) {
    return row(operand, batch, head, position);
  }
  /// The values of a position; with `isNormalized`, a last one that is 1.
  std::vector<double> values(int64_t batch, int64_t head, int64_t position) const;
  /// The key at which the delta rule reads.
  mlir::FailureOr<std::vector<double>> eraseKey(int64_t batch, int64_t head, int64_t position);

  /// Sets the state to the initial one, decays it, and writes a position into it.
  void beginState(int64_t batch, int64_t head);
  std::vector<double> decayFactors(int64_t batch, int64_t head, int64_t position) const;
  void decayState(int64_t batch, int64_t head, int64_t position);
  double betaAt(int64_t batch, int64_t head, int64_t position) const;
  /// What the delta rule leaves of the values, before beta; the values without it.
  mlir::FailureOr<std::vector<double>> remainder(int64_t batch, int64_t head, int64_t position);
  mlir::LogicalResult write(int64_t batch, int64_t head, int64_t position);

  double rounded(double number) const { return frame.rounded(type, number); }
  /// An operand of a product, which kernels round to bf16 for inputs of bf16.
  double operand(double number) const { return isBF16 ? frame.rounded(inputType, number) : number; }
  /// matrix + x ⊗ y.
  void addProduct(std::vector<double> &matrix, llvm::ArrayRef<double> x, llvm::ArrayRef<double> y, double factor = 1);
  /// Element `column` of matrixᵀ x, and element `row` of matrix · x.
  double readColumn(llvm::ArrayRef<double> matrix, llvm::ArrayRef<double> x, int64_t column) const;
  double readRow(llvm::ArrayRef<double> matrix, llvm::ArrayRef<double> x, int64_t row) const;

  attn::LinearOpInterface op;
  Frame &frame;
  mlir::Type type, inputType; ///< of the state, and of queries
  bool isBF16, isNormalized;
  NamedCells query, key, value, erase;
  Factor decay, beta;
  Cells *before = nullptr, *lengths = nullptr;
  double scale = 1;
  int64_t rows = 0, columns = 0;
  /// Rows are key features, columns value elements; with `isNormalized`, the last column accumulates values of 1.
  std::vector<double> state;

private:
  mlir::LogicalResult checkExtents();
  mlir::LogicalResult findSequences();
};

/// The extents of a tensor of states.
mlir::LogicalResult shapeOfState(attn::LinearOpInterface op, Frame &frame, bool isNormalized, Shape &shape);

} // namespace saccade::reference

#endif // SACCADE_LIB_REFERENCE_RECURRENCE_H
