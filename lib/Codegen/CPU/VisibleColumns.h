//===- VisibleColumns.h - Which columns of a tile a few queries see ----*- C++ -*-===//
//
// A tile that is partial for all of its queries may be empty or full for twelve of them but for a few panels.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_VISIBLECOLUMNS_H
#define SACCADE_LIB_CODEGEN_CPU_VISIBLECOLUMNS_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"

namespace saccade::cpu {

/// Columns of a tile that a group of rows works on: one range, or runs of panels that are known at run time only.
class ColumnRuns {
public:
  using Body = llvm::function_ref<void(attn::KeyRange run)>;
  using CarryingBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(attn::KeyRange run, mlir::ValueRange)>;

  ColumnRuns(attn::KeyRange single) : single(single) {}
  /// `bounds`: memref<runs x 3 x index> of begin, end and whether some row may not see some column; all but the last end
  /// between panels, all but the first begin there, and those that are not partial do both.
  ColumnRuns(mlir::Value bounds, mlir::Value count) : bounds(bounds), count(count) {}

  mlir::Value isNonEmpty(Emitter &e) const;
  /// From the first column to the last one.
  attn::KeyRange hull(Emitter &e) const;
  /// What is done for each run, in ascending order.
  void forEach(Emitter &e, Body body) const;
  llvm::SmallVector<mlir::Value> forEach(Emitter &e, mlir::ValueRange inits, CarryingBody body) const;
  /// The same where it matters whether a run has something to mask.
  void forEach(Emitter &e, Body full, Body partial) const;

private:
  attn::KeyRange load(Emitter &e, mlir::Value run) const;

  attn::KeyRange single;
  mlir::Value bounds, count;
};

/// Finds the runs of groups of rows in one tile.
class VisibleColumns {
public:
  /// Stands in front of the loop over groups: there it keeps what the panels have in common for all of them. `keys` of
  /// at most `maxKeys` are in the tile.
  VisibleColumns(Emitter &e, attn::AccumulateOp op, mlir::Value keys, int64_t maxKeys);

  /// Of `columns`, the panels in which the mask may hold for one of the queries at absolute positions [firstQuery,
  /// lastQuery] of an absolute head.
  ColumnRuns find(Emitter &e, mlir::Value head, mlir::Value firstQuery, mlir::Value lastQuery, attn::KeyRange columns);

private:
  class Inputs;
  /// The absolute positions of the keys of a panel.
  attn::Interval keysOf(attn::StagedIntBuilder &numbers, mlir::Value panel, int64_t width);

  attn::AccumulateOp op;
  mlir::Value keys;
  int64_t panels;
  mlir::Value bounds;
  /// Least and greatest elements of captured tensors in the panels of the tile, by capture and leading places.
  llvm::SmallVector<std::tuple<unsigned, llvm::SmallVector<attn::StagedInt>, mlir::Value>> tables;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_VISIBLECOLUMNS_H
