//===- ScriptedTiling.h - What scripts do with attention ----------*- C++ -*-===//
#ifndef SACCADE_LIB_PIPELINE_SCRIPTEDTILING_H
#define SACCADE_LIB_PIPELINE_SCRIPTEDTILING_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "llvm/ADT/DenseMap.h"

namespace saccade {

/// The schedules that attention has after the scripts and passes that a user inserts before the tiling stage.
class ScriptedTiling {
public:
  /// Runs them on a copy of `program`, which has passed the stage schedule. Fails after a diagnostic.
  static mlir::FailureOr<ScriptedTiling> run(mlir::ModuleOp program, const CompileOptions &options);

  /// Gives `op`, which is not tiled, the schedule that it has afterwards; returns whether it is tiled then.
  bool apply(attn::AttentionOp op) const;

private:
  /// Function and place, which an op keeps when it is tiled.
  using Key = std::pair<mlir::Attribute, mlir::Attribute>;
  static Key keyOf(mlir::Operation *op);

  struct Found {
    attn::ScheduleAttr schedule;
    bool isTiled;
  };
  llvm::DenseMap<Key, Found> found;
};

} // namespace saccade

#endif // SACCADE_LIB_PIPELINE_SCRIPTEDTILING_H
