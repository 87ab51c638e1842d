//===- StructuredEmitter.h - Structured ops on matrices -----------*- C++ -*-===//
//
// Emits structured ops on temporaries of a task, for tilings that consist of matmuls and elementwise ops.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_STRUCTUREDEMITTER_H
#define SACCADE_LIB_TILING_STRUCTUREDEMITTER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade {

/// Emits computations in `type`.
struct StructuredEmitter : IndexEmitter {
  StructuredEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::FloatType type) : IndexEmitter(b, loc), type(type) {}

  mlir::FloatType type;

  /// An operand of a structured op and the loop that indexes each of its dimensions.
  struct IndexedOperand {
    Value value;
    llvm::SmallVector<unsigned> loops;
  };
  using Element = llvm::function_ref<llvm::SmallVector<Value>(mlir::ValueRange)>;

  /// An extent of a temporary, and the static size that is allocated for it.
  struct Extent {
    mlir::OpFoldResult size;
    int64_t bound;
  };

  /// A slice of a tensor with unit strides.
  struct Place {
    llvm::SmallVector<mlir::OpFoldResult> offsets, sizes;
  };

  Value scalar(double value);
  Value asIndex(mlir::OpFoldResult value);
  /// `value`, widened or rounded to `to`.
  Value convert(Value value, mlir::Type to);
  /// A temporary with elements of type `element`, or of `type` if it is null.
  Value temporary(llvm::ArrayRef<Extent> shape, mlir::Type element = nullptr);
  Value filled(Value tensor, double value);

  /// A linalg.generic with `loops` loops, the last `reductions` of them reductions, and body `element`.
  llvm::SmallVector<Value> apply(unsigned loops, unsigned reductions, llvm::ArrayRef<IndexedOperand> inputs,
                                 llvm::ArrayRef<IndexedOperand> outputs, Element element);
  /// sums + Σ x, where the last `reductions` of the loops are reductions.
  Value sum(unsigned loops, unsigned reductions, const IndexedOperand &x, const IndexedOperand &sums);
  /// `tensor` with its elements rounded to those of `to` and its type `to`.
  Value round(Value tensor, mlir::RankedTensorType to);
  /// sums + Σ lhs · rhs, where loops 0, 1, 2 are m, n, k. `block`: the sizes of the schedule. The sums stay in the
  /// cache.
  Value matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, const IndexedOperand &sums,
               attn::ScheduleAttr block);

  /// A rank-reducing slice of `tensor`; dimensions with `isKept` false are dropped.
  Value slice(Value tensor, llvm::ArrayRef<mlir::OpFoldResult> offsets, llvm::ArrayRef<mlir::OpFoldResult> sizes,
              llvm::ArrayRef<bool> isKept);
  /// The slice at `place`, with all dimensions.
  Value slice(Value tensor, const Place &place);
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_STRUCTUREDEMITTER_H
