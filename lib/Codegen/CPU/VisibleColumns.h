//===- VisibleColumns.h - Visible columns of a group of rows ------*- C++ -*-===//
//
// A tile that is partial for all of its queries may be empty or full for one group of rows, except in some panels. The
// lowering skips empty panels and evaluates the mask in partial ones only.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_VISIBLECOLUMNS_H
#define SACCADE_LIB_CODEGEN_CPU_VISIBLECOLUMNS_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"

namespace saccade::cpu {

/// The visible columns of a group of rows: one range, or runs of panels that are determined at run time.
class ColumnRuns {
public:
  using Body = llvm::function_ref<void(attn::KeyRange run)>;
  using CarryingBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(attn::KeyRange run, mlir::ValueRange)>;

  ColumnRuns(attn::KeyRange single) : single(single) {}
  /// `bounds`: memref<runs x 3 x index> of begin, end, and whether the run is partial. Runs start and end at panel
  /// boundaries, except the start of the first and the end of the last run, which are then partial.
  ColumnRuns(mlir::Value bounds, mlir::Value count) : bounds(bounds), count(count) {}

  mlir::Value isNonEmpty(Emitter &e) const;
  /// The range, if there is one; nullopt for runs that are determined at run time.
  std::optional<attn::KeyRange> asRange() const { return bounds ? std::nullopt : std::optional(single); }
  /// The range from the first to the last column.
  attn::KeyRange hull(Emitter &e) const;
  /// Emits `body` for each run in ascending order.
  void forEach(Emitter &e, Body body) const;
  llvm::SmallVector<mlir::Value> forEach(Emitter &e, mlir::ValueRange inits, CarryingBody body) const;
  /// The same in descending order.
  llvm::SmallVector<mlir::Value> forEachDescending(Emitter &e, mlir::ValueRange inits, CarryingBody body) const;
  /// Emits `full` or `partial` for each run, depending on whether it has masked columns.
  void forEach(Emitter &e, Body full, Body partial) const;

private:
  attn::KeyRange load(Emitter &e, mlir::Value run) const;

  attn::KeyRange single;
  mlir::Value bounds, count;
};

/// Computes the runs of groups of rows in one tile.
class VisibleColumns {
public:
  /// Must be created before the loop over groups, where per-panel data of all groups is computed. The tile has `keys`
  /// (at most `maxKeys`) keys.
  VisibleColumns(Emitter &e, attn::ScoringOpInterface op, mlir::Value keys, int64_t maxKeys);

  /// The panels of `columns` in which the mask may hold for a query at absolute positions [firstQuery, lastQuery] of an
  /// absolute head.
  ColumnRuns find(Emitter &e, mlir::Value head, mlir::Value firstQuery, mlir::Value lastQuery, attn::KeyRange columns);

private:
  class Inputs;
  /// The absolute positions of the keys of a panel.
  attn::Interval keysOf(attn::StagedIntBuilder &numbers, mlir::Value panel, int64_t width);

  attn::ScoringOpInterface op;
  mlir::Value keys;
  int64_t panels;
  mlir::Value bounds;
  /// Minimum and maximum elements of captured tensors per panel of the tile, by capture and leading indices.
  llvm::SmallVector<std::tuple<unsigned, llvm::SmallVector<attn::StagedInt>, mlir::Value>> tables;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_VISIBLECOLUMNS_H
