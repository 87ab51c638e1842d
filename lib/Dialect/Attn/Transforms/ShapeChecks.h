//===- ShapeChecks.h - Run-time comparisons of extents ------------*- C++ -*-===//
//
// Emits the constraints of ops on the extents of their operands as index arithmetic: the number of the first violated
// constraint, the extent found, the extent expected and the place.
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
  /// Emits checks at the insertion point. `mayReadElements`: the elements of arguments are in host memory. `maxKeys`:
  /// the most keys of an attention, 0 without a limit.
  ShapeChecks(mlir::OpBuilder &builder, mlir::Location loc, bool mayReadElements, int64_t maxKeys);

  /// Adds checks that dimensions of the same name are equal; `names`: those of the arguments.
  void addForArguments(mlir::func::FuncOp function, llvm::ArrayRef<std::string> names);
  /// Adds checks that a result that updates an argument in place has its extents.
  void addForUpdatedArguments(mlir::func::FuncOp function, llvm::ArrayRef<std::string> names);
  /// Adds the checks of `op` for dynamic extents.
  void addFor(mlir::Operation *op);

  /// The number, 0 if all checks hold, else 1 + the index of a message; the values found and expected; the place.
  llvm::SmallVector<mlir::Value> getOutcome() const { return {number, found, expected, place}; }
  /// Each message is followed by the relation to the expected extent and by what the place is, each after a 0 byte, as
  /// the runtime reads them.
  llvm::ArrayRef<llvm::StringRef> getMessages() {
    messageRefs.assign(messages.begin(), messages.end());
    return messageRefs;
  }

private:
  void addForScoring(ScoringOpInterface op);
  void addForAttention(AttentionOp op);
  void addForGradient(GradientOp op);
  void addForJvp(JvpOp op);
  void addForWeights(WeightsOp op);
  /// Requires a number for every row of the query.
  void addForRows(ScoringOpInterface op, llvm::ArrayRef<Dim> dims, llvm::StringRef role, mlir::Value rows);
  /// Requires a log-sum-exp of every row, and its low part if the op has one.
  template <typename OpTy> void addForLse(OpTy op);
  void addForLinear(LinearOpInterface op);
  void addForLinearGradient(LinearGradientOp op);
  void addForState(LinearOpInterface op, llvm::StringRef role, mlir::Value state);
  void addForAppend(AppendOp op);
  /// Requires that positions and counts of new rows, as far as they are arguments, are within the cache.
  void addForAppendedRows(AppendOp op);
  /// New rows whose positions are known before the call: those of each sequence, and as many as `count`, all if it is
  /// null. `rows`: the most; `capacity`: the positions of a sequence.
  struct AppendedRows {
    mlir::Value at, count, rows, capacity, sequences;
  };
  /// Requires that the pages of new rows are in the pool, and that each is written by one sequence only.
  void addForWrittenPages(AppendOp op, AppendedRows rows);
  /// Requires that the number of heads `grouped` is a multiple of `shared`.
  void requireGroups(mlir::OpFoldResult grouped, mlir::OpFoldResult shared,
                     llvm::StringRef message = "number of query heads is not a multiple of the number of KV heads");
  void addForStructured(mlir::linalg::LinalgOp op);
  void addForGathers(mlir::linalg::LinalgOp op);
  void addForCast(mlir::tensor::CastOp op);
  void addForExpand(mlir::tensor::ExpandShapeOp op);
  void addForSlice(mlir::OffsetSizeAndStrideOpInterface op, mlir::Value whole);
  /// cu_seqlens of `role` if it is an argument, else null.
  mlir::Value cuSeqlensArgument(ScoringOpInterface op, Role role);
  void addForCuSeqlens(ScoringOpInterface op, Role role);
  void addForOffsets(llvm::StringRef clause, llvm::StringRef rows, mlir::Value offsets,
                     mlir::OpFoldResult extentOfRows);
  void addForLength(ScoringOpInterface op, Role role);
  void addForPages(PagedOp op);
  /// Requires that there is no sequence (−1) that has a page `page` outside of the pool of `pages` pages.
  void requireInPool(mlir::Value sequence, mlir::Value page, mlir::Value pages);
  /// The argument behind casts of `length`, a scalar or a tensor whose elements the host can read; else null.
  mlir::Value findLengthArgument(mlir::Value length);
  /// The number of a sequence: an element, or a scalar for all of them.
  mlir::Value numberOf(mlir::Value numbers, mlir::Value sequence);
  void addForCapture(ScoringOpInterface op, mlir::tensor::ExtractOp read, const NamedRegion &region);
  void addForComputedRead(ScoringOpInterface op, mlir::tensor::ExtractOp read, const NamedRegion &region);

  void requireSame(mlir::OpFoldResult found, mlir::OpFoldResult expected, const llvm::Twine &message);
  /// A value that a message names after the extents, such as the number of a sequence.
  struct Place {
    llvm::StringRef what;
    mlir::Value number;
  };
  /// Requires `holds` (an i1), else reports `message`. `relation` precedes the expected extent, such as "at least ".
  void require(mlir::Value holds, mlir::Value found, mlir::Value expected, const llvm::Twine &message,
               llvm::StringRef relation = "", Place at = {});
  mlir::Value materialize(mlir::OpFoldResult value);
  mlir::OpFoldResult extent(mlir::Value tensor, int64_t dim);
  /// The name of an extent of an operand in messages: an argument of the function that has it, or the operand.
  std::string nameExtent(mlir::OpOperand &operand, int64_t dim) const;

  mlir::OpBuilder &builder;
  mlir::Location loc;
  bool mayReadElements;
  int64_t maxKeys;
  mlir::Operation *current = nullptr;
  mlir::Value zero, number, found, expected, place;
  llvm::SmallVector<std::string> argumentNames; ///< of the function
  std::vector<std::string> messages;
  llvm::SmallVector<llvm::StringRef> messageRefs;
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_SHAPECHECKS_H
