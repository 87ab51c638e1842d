//===- EmitRegions.h - Emit expressions as regions of attention -*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_EMITREGIONS_H
#define SACCADE_LIB_IMPORT_RAISE_EMITREGIONS_H

#include "NameDims.h"

namespace saccade::raise {

/// Emits the regions of one attention, which share their captures.
class RegionEmitter {
public:
  RegionEmitter(const Graph &graph, const NamedLoops &names, mlir::Type scoreType, mlir::Location loc)
      : graph(graph), names(names), scoreType(scoreType), loc(loc) {}

  /// Emits a region that yields `root`; `given` stands for its first argument, the score or the weight, and is null
  /// for a mask. Returns null if `root` depends on values that are not available in a region; see `getReason`.
  std::unique_ptr<mlir::Block> emit(Node root, Node given);
  llvm::ArrayRef<mlir::Value> getCaptures() const { return captures; }
  llvm::StringRef getReason() const { return reason; }

private:
  mlir::Value emitNode(Node node);
  mlir::Value read(const Access &access);
  mlir::Value capture(mlir::Value value);
  mlir::Value loop(unsigned loop);
  mlir::Value index(mlir::AffineExpr expr);
  mlir::Value toScore(mlir::Value value);
  const Access *findComputed(Node node);
  mlir::Value fail(const llvm::Twine &why);
  bool isKnown(unsigned loop) const;

  const Graph &graph;
  const NamedLoops &names;
  mlir::Type scoreType;
  mlir::Location loc;
  llvm::SmallVector<mlir::Value> captures;
  llvm::SmallVector<mlir::Block *> blocks;
  std::string reason;
  // State of the region being emitted.
  mlir::OpBuilder *b = nullptr;
  mlir::Block *block = nullptr;
  Node variable = nullptr;
  unsigned firstIndex = 0;
  llvm::DenseMap<Node, mlir::Value> values;
};

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_EMITREGIONS_H
