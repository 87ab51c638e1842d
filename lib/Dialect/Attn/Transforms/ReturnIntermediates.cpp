//===- ReturnIntermediates.cpp - Return what a program computes ---------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_RETURNINTERMEDIATES
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade::attn;

/// Whether the op computes elements. Others repeat a number or elements of an operand, or have undefined ones.
static bool computes(Operation &op) {
  return !isa<arith::ConstantOp, linalg::FillOp, linalg::BroadcastOp, linalg::TransposeOp, DequantizeOp, PagedOp>(op) &&
         (!isa<tensor::TensorDialect>(op.getDialect()) || isa<tensor::GenerateOp, tensor::PadOp>(op));
}

static bool hasFloats(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(tensor.getElementType());
}

namespace {

struct ReturnIntermediates : saccade::attn::impl::ReturnIntermediatesBase<ReturnIntermediates> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function.isPublic() && function.getBody().hasOneBlock())
        returnIntermediates(function);
  }

private:
  static void returnIntermediates(func::FuncOp function) {
    Operation *terminator = function.front().getTerminator();
    SmallVector<Value> values(terminator->getOperands());
    for (Operation &op : function.front().without_terminator())
      for (Value result : op.getResults())
        if (computes(op) && hasFloats(result.getType()) && !llvm::is_contained(values, result))
          values.push_back(result);
    terminator->setOperands(values);
    unsigned known = function.getNumResults();
    SmallVector<unsigned> places(values.size() - known, known);
    SmallVector<Type> types =
        llvm::map_to_vector(ArrayRef(values).drop_front(known), [](Value v) { return v.getType(); });
    if (failed(function.insertResults(places, types, SmallVector<DictionaryAttr>(places.size()))))
      llvm_unreachable("a function of the dialect func takes any results");
  }
};

} // namespace
