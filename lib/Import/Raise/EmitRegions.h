//===- EmitRegions.h - Expressions as regions of attention --------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_EMITREGIONS_H
#define SACCADE_LIB_IMPORT_RAISE_EMITREGIONS_H

#include "NameDims.h"

namespace saccade::raise {

/// Writes regions of one attention. They share their captures.
class RegionEmitter {
public:
  /// `variable` is what stands for the score, or in the weight region for the weight.
  RegionEmitter(const Graph &graph, const NamedLoops &names, mlir::Type scoreType, mlir::Location loc)
      : graph(graph), names(names), scoreType(scoreType), loc(loc) {}

  /// A region that yields `root`, where `score` and `weight` stand for the first argument. Null where it depends on what
  /// regions cannot know; `reason` says on what.
  std::unique_ptr<mlir::Block> emit(Node root, Node variable);
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
  // Of the region at hand.
  mlir::OpBuilder *b = nullptr;
  mlir::Block *block = nullptr;
  Node variable = nullptr;
  unsigned firstIndex = 0;
  llvm::DenseMap<Node, mlir::Value> values;
};

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_EMITREGIONS_H
