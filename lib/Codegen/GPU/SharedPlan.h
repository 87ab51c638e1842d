//===- SharedPlan.h - Places of buffers in shared memory ----------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SHAREDPLAN_H
#define SACCADE_LIB_CODEGEN_GPU_SHAREDPLAN_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace saccade::device {

/// A buffer with its live range [first, last] in program order, from its first use on, and its offset in bytes.
struct SharedPlace {
  mlir::memref::AllocOp buffer;
  int64_t first, last, offset = 0, bytes = 0;

  bool overlaps(const SharedPlace &other) const { return first <= other.last && other.first <= last; }
};

/// Gives each buffer of a kernel the first free place, from the largest to the smallest, among the buffers with
/// overlapping live ranges.
class SharedPlan {
public:
  using Bytes = llvm::function_ref<int64_t(mlir::memref::AllocOp)>;

  /// `begin`: the first offset. `bytesOf` returns the size of a buffer, that of its type by default.
  SharedPlan(mlir::func::FuncOp kernel, int64_t begin, Bytes bytesOf = sizeInBytes);

  llvm::ArrayRef<SharedPlace> getPlaces() const { return places; }
  /// The end of the last place.
  int64_t getBytes() const { return end; }
  /// The bytes of a buffer of static size.
  static int64_t sizeInBytes(mlir::memref::AllocOp buffer);

private:
  std::pair<int64_t, int64_t> liveRange(mlir::memref::AllocOp buffer);

  llvm::DenseMap<mlir::Operation *, int64_t> order;
  llvm::SmallVector<SharedPlace> places; ///< sorted by offset
  int64_t end;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SHAREDPLAN_H
