//===- ShapeChecks.h - Run-time comparisons of extents ------------*- C++ -*-===//
//
// Turns what an op demands of the extents of its operands into arithmetic: the number of the first message that
// applies, the extent found and the extent wanted.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SHAPECHECKS_H
#define SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SHAPECHECKS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <string>

namespace saccade::attn {

class ShapeChecks {
public:
  /// Checks are built where `builder` stands. `mayReadElements`: of arguments, which are in the host's memory.
  ShapeChecks(mlir::OpBuilder &builder, mlir::Location loc, bool mayReadElements);

  /// Adds that extents of one name are equal; `names` are those of the arguments.
  void addForArguments(mlir::func::FuncOp function, llvm::ArrayRef<std::string> names);
  /// Adds what `op` demands; nothing where it demands nothing or all is known already.
  void addFor(mlir::Operation *op);

  mlir::Value getNumber() const { return number; } ///< 0 where all is well, else 1 + the index of a message
  mlir::Value getFound() const { return found; }
  mlir::Value getExpected() const { return expected; }
  /// Each is followed by a 0 and the words that stand before the extent wanted, as the runtime reads it.
  llvm::ArrayRef<llvm::StringRef> getMessages() {
    messageRefs.assign(messages.begin(), messages.end());
    return messageRefs;
  }

private:
  void addForAttention(AttentionOp op);
  void addForLinear(LinearOp op);
  /// That the number of query heads is a multiple of that of key heads.
  void requireGroups(mlir::OpFoldResult queryHeads, mlir::OpFoldResult keyHeads);
  void addForStructured(mlir::linalg::LinalgOp op);
  void addForGathers(mlir::linalg::LinalgOp op);
  void addForCast(mlir::tensor::CastOp op);
  void addForExpand(mlir::tensor::ExpandShapeOp op);
  void addForSlice(mlir::OffsetSizeAndStrideOpInterface op, mlir::Value whole);
  void addForCuSeqlens(AttentionOp op, Role role);
  void addForCapture(AttentionOp op, mlir::tensor::ExtractOp read, mlir::Region &region, bool isScore);
  void addForComputedRead(AttentionOp op, mlir::tensor::ExtractOp read, mlir::Region &region);

  void requireSame(mlir::OpFoldResult found, mlir::OpFoldResult expected, const llvm::Twine &message);
  /// Unless `fine` (an i1), `message` applies. `relation` stands before the extent wanted: "at least ".
  void require(mlir::Value holds, mlir::Value found, mlir::Value expected, const llvm::Twine &message,
               llvm::StringRef relation = "");
  mlir::Value materialize(mlir::OpFoldResult value);
  mlir::OpFoldResult extent(mlir::Value tensor, int64_t dim);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  bool mayReadElements;
  mlir::Operation *current = nullptr;
  mlir::Value zero, number, found, expected;
  std::vector<std::string> messages;
  llvm::SmallVector<llvm::StringRef> messageRefs;
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SHAPECHECKS_H
