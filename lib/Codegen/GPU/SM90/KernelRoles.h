//===- KernelRoles.h - The two roles of a kernel on sm_90a --------*- C++ -*-===//
//
// The body of a kernel becomes the two sides of a branch: a copy of it copies operands to shared memory, the body
// itself computes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_KERNELROLES_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_KERNELROLES_H

#include "../Emitter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::device {

/// Rewrites the body of a kernel. Code is emitted at its end.
class KernelRoles {
public:
  using Value = mlir::Value;
  KernelRoles(mlir::func::FuncOp kernel, mlir::Location loc);

  /// Private memory of a thread.
  Value allocate(int64_t count, mlir::Type type) {
    return mlir::memref::AllocaOp::create(b, e.loc, mlir::MemRefType::get({count}, type));
  }
  void allocateShared(int64_t bytes);
  /// Initialises barriers by one thread, before the roles.
  void initBarriers(llvm::function_ref<void()> init);
  /// Emits the roles: `produce` for the first warp of the first warpgroup, whose other warps only take part in
  /// setmaxnreg, and `consume` for the other warpgroups.
  void emit(int64_t producerRegisters, int64_t consumerRegisters, llvm::function_ref<void()> produce,
            llvm::function_ref<void()> consume);

  /// Copies the body to the place of the builder, or moves it there. `item` (i32), if given, is the number of the CTA
  /// for it.
  mlir::IRMapping copyBody(Value item = {});
  void moveBody(Value item = {});

private:
  mlir::Block *body;
  mlir::OpBuilder b;
  llvm::SmallVector<mlir::Operation *> ops; ///< of the body
  mlir::NVVM::BlockIdXOp index;             ///< the number of the CTA in the body; null if it is not used

public:
  Emitter e;
  Value steps;  ///< private memory that counts steps of rings, i32; 0 at the start
  Value shared; ///< the address of the shared memory, i32
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_KERNELROLES_H
