//===- LimitWindow.cpp - Give attention a sliding window ----------------------===//
//
// Hides the keys that are further from their query than a window, in every attention of a function. Insert it after
// transforms.raise: then gradients, shape checks and proofs follow the new mask.
//
//===----------------------------------------------------------------------===//
#include "Example.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

namespace {
struct LimitWindow : PassWrapper<LimitWindow, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LimitWindow)
  LimitWindow() = default;
  LimitWindow(const LimitWindow &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "example-limit-window"; }
  StringRef getDescription() const override { return "Hide keys that are further from their query than a window"; }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<arith::ArithDialect>(); }

  Option<int64_t> window{*this, "window", llvm::cl::desc("The largest distance of query and key"), llvm::cl::init(128)};

  void runOnOperation() override {
    getOperation().walk([&](attn::AttentionOp op) {
      Region &mask = op.getMask();
      if (mask.empty())
        addMask(op, mask);
      Block &block = mask.front();
      OpBuilder b(block.getTerminator());
      Location loc = op.getLoc();
      attn::RegionArguments arguments = attn::getRegionArguments(mask, /*numbers=*/0);
      Value distance = arith::SubIOp::create(b, loc, arguments.query, arguments.key);
      Value largest = arith::ConstantIndexOp::create(b, loc, window),
            least = arith::ConstantIndexOp::create(b, loc, -window);
      Value isNear =
          arith::AndIOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, distance, largest),
                                arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, distance, least));
      Operation *yield = block.getTerminator();
      yield->setOperand(0, arith::AndIOp::create(b, loc, yield->getOperand(0), isNear));
    });
  }

  /// Adds a mask that hides nothing: its arguments are batch, head, query, key and the captures of the op.
  static void addMask(attn::AttentionOp op, Region &mask) {
    OpBuilder b(op.getContext());
    Block *block = b.createBlock(&mask);
    for (unsigned position = 0; position < 4; ++position)
      block->addArgument(b.getIndexType(), op.getLoc());
    for (Value capture : op.getCaptures())
      block->addArgument(capture.getType(), op.getLoc());
    Value isVisible = arith::ConstantIntOp::create(b, op.getLoc(), /*value=*/1, /*width=*/1);
    attn::YieldOp::create(b, op.getLoc(), isVisible);
  }
};
} // namespace

void example::registerLimitWindow() { PassRegistration<LimitWindow>(); }
