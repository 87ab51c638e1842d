//===- CaptureGradients.h - Gradients of captured tensors ---------*- C++ -*-===//
//
// Accumulates the numbers that the gradient region of attention yields for its reads of captures. A task adds to
// partial gradients of its own, in a fixed order, and these are added up at the end, so results are deterministic.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_CAPTUREGRADIENTS_H
#define SACCADE_LIB_TILING_CAPTUREGRADIENTS_H

#include "PairTile.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"

namespace saccade {

/// The accumulators of the captures of `op`, its differentiated captures first and then one vector of relative
/// positions for each read that needs it.
class CaptureGradients {
public:
  CaptureGradients(StructuredEmitter &e, attn::GradientOp op);

  /// The accumulators, filled with 0, before the parallel loop. `sequences`: the number of batches or ragged sequences.
  llvm::SmallVector<mlir::Value> inits(mlir::Value sequences);
  /// The part of each accumulator that a task owns.
  llvm::SmallVector<StructuredEmitter::Place> places(const TaskPositions &at, mlir::ValueRange accumulators);

  /// The results of the elementwise op that `add` reads, among those that the region yields after the first: element
  /// types, null for a result that is not needed.
  llvm::SmallVector<mlir::Type> neededTypes();
  /// Adds a tile. `tiles`: the needed results for all of its pairs.
  llvm::SmallVector<mlir::Value> add(const TaskPositions &at, const PairTile &tile, mlir::ValueRange tiles,
                                     mlir::ValueRange accumulators);
  /// Adds the sums by relative position to the gradients, at the end of a query head.
  llvm::SmallVector<mlir::Value> endHead(const TaskPositions &at, mlir::ValueRange accumulators);
  /// The gradients of the captures, from all accumulators.
  llvm::SmallVector<mlir::Value> finish(mlir::ValueRange accumulators);

private:
  /// How the elements that a read touches vary over a tile.
  enum class Access {
    Element,  ///< one element for all pairs
    Row,      ///< one element for each query
    Run,      ///< consecutive elements for the keys of a query
    Relative, ///< a function of key − query
    Any
  };
  struct Read {
    unsigned capture;         ///< among the differentiated captures
    mlir::ValueRange indices; ///< in the region
    Access access;
    unsigned accumulator; ///< that takes the sums of the tiles
  };
  struct Capture {
    mlir::Value value;
    bool perBatch, perHead;                    ///< whether there is a partial gradient for each batch, each KV head
    std::optional<unsigned> batchDim, headDim; ///< else the dimension that batch or head index
    unsigned leading() const { return perBatch + perHead; }
    int64_t rank() const {
      auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(value.getType());
      return tensor ? tensor.getRank() : 0;
    }
  };
  Access accessOf(mlir::ValueRange indices);
  mlir::Value emitScalar(const TaskPositions &at, mlir::Value value, mlir::Value query, mlir::Value key,
                         mlir::IRMapping &mapping);
  /// Indices of an element, and whether it exists.
  struct Element {
    llvm::SmallVector<mlir::Value> indices;
    mlir::Value exists;
  };
  /// The element at `index(dim)` in every dimension that batch and head do not index. With `isRun`, the index of the
  /// last dimension is not checked.
  Element elementAt(const TaskPositions &at, const Capture &capture, mlir::Value accumulator,
                    llvm::function_ref<mlir::Value(unsigned dim)> index, bool isRun = false);
  Element elementAt(const TaskPositions &at, const Read &read, mlir::Value query, mlir::Value key,
                    mlir::Value accumulator, bool isRun);
  mlir::Value addSum(const Capture &capture, mlir::Value accumulator, const Element &element, mlir::Value amounts);
  mlir::Value addRun(const TaskPositions &at, const Read &read, const PairTile &tile, mlir::Value row,
                     mlir::Value amounts, mlir::Value accumulator);
  mlir::Value scatter(const TaskPositions &at, const Read &read, mlir::ValueRange tiles, mlir::Value rows,
                      mlir::Value columns, mlir::Value accumulator);
  mlir::Value extentOf(mlir::Value accumulator, const Capture &capture, unsigned dim);

  StructuredEmitter &e;
  attn::GradientOp op;
  llvm::SmallVector<Capture> captures;
  llvm::SmallVector<Read> reads;
  unsigned relative = 0; ///< number of vectors of relative positions
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_CAPTUREGRADIENTS_H
