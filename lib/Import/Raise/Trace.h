//===- Trace.h - From ops on tensors to expressions -------------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_TRACE_H
#define SACCADE_LIB_IMPORT_RAISE_TRACE_H

#include "Expr.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::raise {

/// Looks through elementwise ops, broadcasts, transposes, reshapes and slices. All other ops become leaves.
class Tracer {
public:
  explicit Tracer(Graph &graph) : graph(graph) {}

  /// The expression for the element of `tensor` at `given`.
  Node element(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> given);

  /// If `leaf` is an element of a reduction along one dimension whose combiner is one of `combiners`, the expression of
  /// the reduced element over loop `key`; otherwise null. Sets `found` to the reduction.
  Node reduced(Node leaf, llvm::ArrayRef<llvm::StringRef> combiners, unsigned key, mlir::Operation **found = nullptr);

private:
  Node trace(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> index);
  Node structured(mlir::linalg::LinalgOp op, unsigned result, llvm::ArrayRef<mlir::AffineExpr> index);
  /// What `op` reads from an operand at these positions of its loops; null if that is unknown.
  Node operand(mlir::linalg::LinalgOp op, mlir::OpOperand &operand, llvm::ArrayRef<mlir::AffineExpr> loops);
  Node constant(mlir::Attribute value, mlir::Type type, llvm::ArrayRef<mlir::AffineExpr> index);
  Node scalar(mlir::Value value, unsigned steps);
  /// Builds the node of every value in `block`; returns false if an op is unsupported. `loops` are the values of
  /// linalg.index.
  bool body(mlir::Block &block, llvm::ArrayRef<mlir::AffineExpr> loops, llvm::DenseMap<mlir::Value, Node> &nodes);
  Node operation(mlir::Operation &op, llvm::function_ref<Node(mlir::Value)> nodeOf);

  Graph &graph;
  std::map<std::vector<const void *>, Node> known;
  unsigned depth = 0;
};

/// The trip counts of the loops of `op`. Those that its types do not have are looked up in the ops before it.
llvm::SmallVector<int64_t> getLoopExtents(mlir::linalg::LinalgOp op);

/// Whether `op` is a contraction of two operands whose body contains only casts, a multiplication and an addition.
bool isContraction(mlir::linalg::LinalgOp op);

/// The number that `value` is filled with, by linalg.fill or as it is generalized; nullopt if it is no constant.
std::optional<double> getFilledNumber(mlir::Value value);
inline bool isZero(mlir::Value value) { return getFilledNumber(value) == 0.0; }

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_TRACE_H
