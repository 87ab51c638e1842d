//===- Dialect.cpp - The dialect and the lowering of its op -------------------===//
//
// The lowering is part of the import stage, so no later stage sees the op.
//
//===----------------------------------------------------------------------===//
#include "Example.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Pass/Pass.h"

#include "ExampleDialect.cpp.inc"
#define GET_OP_CLASSES
#include "ExampleOps.cpp.inc"

using namespace mlir;

void example::ExampleDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ExampleOps.cpp.inc"
      >();
}

namespace {
struct LowerQuickGelu : PassWrapper<LowerQuickGelu, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerQuickGelu)
  StringRef getArgument() const override { return "example-lower-quick-gelu"; }
  StringRef getDescription() const override { return "Lower example.quick_gelu to arith and math"; }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, math::MathDialect>();
  }

  void runOnOperation() override {
    getOperation().walk([](example::QuickGeluOp op) {
      OpBuilder b(op);
      Location loc = op.getLoc();
      auto type = cast<RankedTensorType>(op.getX().getType());
      auto constant = [&](double value) -> Value {
        auto element = b.getFloatAttr(type.getElementType(), value);
        return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, element.getValue()));
      };
      Value scaled = arith::MulFOp::create(b, loc, op.getX(), constant(-1.702));
      Value denominator = arith::AddFOp::create(b, loc, math::ExpOp::create(b, loc, scaled), constant(1));
      op.replaceAllUsesWith(arith::DivFOp::create(b, loc, op.getX(), denominator).getResult());
      op.erase();
    });
  }
};
} // namespace

void example::registerLowerQuickGelu() { PassRegistration<LowerQuickGelu>(); }

void example::addLowerQuickGelu(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(std::make_unique<LowerQuickGelu>());
}
