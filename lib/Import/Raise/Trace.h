//===- Trace.h - From ops on tensors to expressions ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_TRACE_H
#define SACCADE_LIB_IMPORT_RAISE_TRACE_H

#include "Expr.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::raise {

/// Looks through elementwise ops, broadcasts, transposes, reshapes and slices, until an op that is none.
class Tracer {
public:
  explicit Tracer(Graph &graph) : graph(graph) {}

  /// What the element of `tensor` at `index` is computed from.
  Node element(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> index);

  /// What a reduction reduces over loop `key`: where `leaf` is an element of the result of a reduction by the op `combiner`
  /// along one dimension. Null where it is none. `op` becomes the reduction.
  Node reduced(Node leaf, llvm::ArrayRef<llvm::StringRef> combiners, unsigned key, mlir::Operation **op = nullptr);

private:
  Node trace(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> index);
  Node structured(mlir::linalg::LinalgOp op, unsigned result, llvm::ArrayRef<mlir::AffineExpr> index);
  Node constant(mlir::Attribute value, mlir::Type type, llvm::ArrayRef<mlir::AffineExpr> index);
  Node scalar(mlir::Value value, unsigned depth);
  /// Gives every value of `block` its node; fails where an op has none. `loops` answers linalg.index.
  bool body(mlir::Block &block, llvm::ArrayRef<mlir::AffineExpr> loops, llvm::DenseMap<mlir::Value, Node> &nodes);
  Node operation(mlir::Operation &op, llvm::function_ref<Node(mlir::Value)> nodeOf);

  Graph &graph;
  std::map<std::vector<const void *>, Node> known;
  unsigned depth = 0;
};

/// Whether `op` sums products of two operands, with nothing else in its body but casts of them.
bool isContraction(mlir::linalg::LinalgOp op);

/// Whether `value` is 0 everywhere: what a sum starts from.
bool isZero(mlir::Value value);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_TRACE_H
