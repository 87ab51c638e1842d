//===- SplitIndexCasts.cpp - Split narrowing casts from index -----------------===//
//
// Splits casts from index to narrow types into a cast to i64 and a truncation. Runs before the first canonicalization,
// which folds a cast to a narrow type and back to its operand.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_SPLITINDEXCASTS
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;

namespace {

struct SplitIndexCasts : attn::impl::SplitIndexCastsBase<SplitIndexCasts> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (!isa<arith::IndexCastOp, arith::IndexCastUIOp>(op))
        return;
      Type from = op->getOperand(0).getType(), to = op->getResult(0).getType();
      if (!getElementTypeOrSelf(from).isIndex() || getElementTypeOrSelf(to).getIntOrFloatBitWidth() >= 64)
        return;
      OpBuilder b(op);
      // An index has 64 bits, so the signed and the unsigned cast are equal.
      Type wide = b.getI64Type();
      if (auto shaped = dyn_cast<ShapedType>(from))
        wide = shaped.clone(wide);
      Value bits = arith::IndexCastOp::create(b, op->getLoc(), wide, op->getOperand(0));
      Value narrow = arith::TruncIOp::create(b, op->getLoc(), to, bits);
      op->getResult(0).replaceAllUsesWith(narrow);
      op->erase();
    });
  }
};

} // namespace
