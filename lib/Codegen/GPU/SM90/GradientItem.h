//===- GradientItem.h - A work item of a gradient on sm_90a -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTITEM_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTITEM_H

#include "GradientRoles.h"
#include "KernelRoles.h"

namespace saccade::device {

/// A kernel whose only work is one step of a gradient and its loops.
class GradientItem {
public:
  /// Matches a kernel with operands that tensor maps can describe, whose tiles fit registers, and shared memory of
  /// `sharedBytes`. Besides the step it may set results to zeros. If a kernel with steps does not match, `obstacle`
  /// says why.
  static std::optional<GradientItem> match(mlir::func::FuncOp kernel, int64_t sharedBytes, std::string &obstacle);

  /// Rewrites the kernel for `GradientLayout::threads` threads in two roles: a copy of its body copies operands to
  /// shared memory, the body itself computes. Adds a tensor map for each matrix as first parameters.
  void emit();

private:
  GradientItem(mlir::func::FuncOp kernel, GradientStep step, int64_t sharedBytes)
      : kernel(kernel), step(std::move(step)), sharedBytes(sharedBytes) {}
  /// What the kernel has that warpgroups do not support; empty if there is nothing.
  llvm::StringRef findObstacle();
  bool hasOnlyStep();
  void produce(KernelRoles &roles, const GradientLayout &layout, llvm::MutableArrayRef<MappedMatrix> matrices);
  void consume(KernelRoles &roles, const GradientLayout &layout, llvm::ArrayRef<mlir::Value> sums);

  mlir::func::FuncOp kernel;
  GradientStep step;
  int64_t sharedBytes;
  llvm::SmallVector<mlir::linalg::FillOp> fills; ///< of results, before the step
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTITEM_H
