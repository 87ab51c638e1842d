//===- HideKeys.cpp - A rewrite that invalidates facts ------------------------===//
//
// Hides all keys that do not precede their query, so that the first query attends to none. It changes nothing else:
// what was proved of the softmax is false afterwards.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Pass/Pass.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

namespace {
struct HideKeys : PassWrapper<HideKeys, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(HideKeys)
  StringRef getArgument() const override { return "test-hide-keys"; }
  StringRef getDescription() const override { return "hide keys that do not precede their query"; }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<arith::ArithDialect>(); }

  void runOnOperation() override {
    getOperation()->walk([](attn::ScoringOpInterface op) {
      if (!op.getMask().empty())
        return;
      OpBuilder b(op->getContext());
      Block *block = b.createBlock(&op.getMask());
      for (unsigned position = 0; position < 4; ++position)
        block->addArgument(b.getIndexType(), op->getLoc());
      for (Value capture : op.getCaptures())
        block->addArgument(capture.getType(), op->getLoc());
      Value isVisible = arith::CmpIOp::create(b, op->getLoc(), arith::CmpIPredicate::slt, block->getArgument(3),
                                              block->getArgument(2));
      attn::YieldOp::create(b, op->getLoc(), isVisible);
    });
  }
};
} // namespace

void registerHideKeys() { PassRegistration<HideKeys>(); }
