//===- PairOp.h - The elementwise op of a gradient at one pair ----*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_PAIROP_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_PAIROP_H

#include "../Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace saccade::device {

/// Evaluates an elementwise op on pairs of query and key, whose results are rounded to 16 bits.
class PairOp {
public:
  using Value = mlir::Value;

  PairOp(Emitter &e, mlir::linalg::GenericOp op) : e(e), op(op) {}

  /// The results at one pair, before they are rounded. `places` are its positions in the tile (i32), and `load` returns
  /// an input, at a position in index.
  llvm::SmallVector<Value> evaluate(llvm::ArrayRef<Value> places,
                                    llvm::function_ref<Value(mlir::OpOperand &, llvm::ArrayRef<Value> positions)> load);

private:
  struct PlaceSum;
  std::optional<PlaceSum> placeSumOf(Value value);
  Value compareInTile(mlir::Operation &inner, llvm::ArrayRef<Value> places);

  Emitter &e;
  mlir::linalg::GenericOp op;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_PAIROP_H
