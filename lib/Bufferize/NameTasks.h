//===- NameTasks.h - Names of tasks after their ops ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_BUFFERIZE_NAMETASKS_H
#define SACCADE_LIB_BUFFERIZE_NAMETASKS_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"

namespace saccade {

/// The ops of a parallel loop on buffers in a few words: "attention.split_kv", "matmul_bias_gelu", "layer_norm". It has
/// letters, digits, '_' and '.' only.
std::string describeTask(mlir::scf::ForallOp loop);

/// Gives tasks the names `FUNCTION.OPS`, with a number from 2 on for further tasks with these ops. They depend on the
/// order of the program only. Names stay different if '.' becomes '_', as in kernels of GPUs.
class TaskNames {
public:
  explicit TaskNames(mlir::ModuleOp module);

  /// A name of at most 56 characters and a number. If `function` has more than 27 of them, the ops have at most 28.
  std::string take(llvm::StringRef function, mlir::scf::ForallOp loop);

private:
  llvm::StringSet<> taken; ///< with '_' in place of other characters
};

} // namespace saccade

#endif // SACCADE_LIB_BUFFERIZE_NAMETASKS_H
