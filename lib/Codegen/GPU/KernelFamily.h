//===- KernelFamily.h - Ways to compute an attention --------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_KERNELFAMILY_H
#define SACCADE_LIB_CODEGEN_GPU_KERNELFAMILY_H

#include "AttentionState.h"

namespace saccade::device {

/// A way to compute an attention whose state a kernel keeps in registers.
class KernelFamily {
public:
  virtual ~KernelFamily() = default;

  /// Whether the family supports an attention of a kernel.
  virtual bool fits(const AttentionState &state) const = 0;
  /// Emits code for the whole item in place of the ops of `state`, from the first fill to attn.finalize, and erases
  /// them. Launch attributes of the kernel (Kernels.h) are set if they are not the usual ones.
  virtual mlir::LogicalResult emit(mlir::func::FuncOp kernel, AttentionState &state) const = 0;
};

/// Lowers the attentions of `kernel` that `family` supports, and returns their number.
mlir::FailureOr<size_t> lowerAttentions(mlir::func::FuncOp kernel, const KernelFamily &family);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_KERNELFAMILY_H
