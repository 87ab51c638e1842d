//===- CountWork.cpp - Floating-point operations of a program -----------------===//
//
// Emits the counts as index arithmetic into a copy of the function, substitutes the arguments' extents and folds.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/CountWork.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/ResolveExtents.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// Builds the counts at the end of a function.
class WorkBuilder {
public:
  explicit WorkBuilder(OpBuilder &builder, Location loc) : builder(builder), loc(loc) { flops = tokens = constant(0); }

  void add(Operation *op) {
    if (auto attention = dyn_cast<AttentionOp>(op))
      addAttention(attention);
    else if (auto structured = dyn_cast<linalg::LinalgOp>(op); structured && saccade::isMatmul(structured))
      addContraction(structured);
  }

  Value flops, tokens;

private:
  void addAttention(AttentionOp op) {
    auto size = [&](Value value, DimsAttr dims, Dim dim) { return getDimSize(builder, loc, value, dims, dim); };
    Value batch = materialize(size(op.getQuery(), op.getQueryDims(), Dim::Batch));
    Value queries = multiply(batch, materialize(size(op.getQuery(), op.getQueryDims(), Dim::Seq)));
    Value keys = materialize(size(op.getKey(), op.getKeyDims(), Dim::Seq));
    Value heads = materialize(size(op.getQuery(), op.getQueryDims(), Dim::Head));
    Value depth = add(materialize(size(op.getKey(), op.getKeyDims(), Dim::Depth)),
                      materialize(size(op.getValue(), op.getValueDims(), Dim::Depth)));
    Value pairs = multiply(multiply(queries, keys), heads);
    flops = add(flops, multiply(constant(2), multiply(pairs, depth)));
    if (!hasAttention)
      tokens = queries;
    hasAttention = true;
  }

  void addContraction(linalg::LinalgOp op) {
    Value steps = constant(2);
    for (unsigned loop = 0, e = op.getNumLoops(); loop < e; ++loop) {
      Value operand;
      unsigned dim = 0;
      if (failed(op.mapIterationSpaceDimToOperandDim(loop, operand, dim)))
        return; // The extent of the loop is not given by an operand; the verifier rejects such ops.
      steps = multiply(steps, materialize(tensor::getMixedSize(builder, loc, operand, dim)));
    }
    flops = add(flops, steps);
  }

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(builder, loc, value); }
  Value materialize(OpFoldResult value) { return getValueOrCreateConstantIndexOp(builder, loc, value); }
  Value multiply(Value lhs, Value rhs) { return arith::MulIOp::create(builder, loc, lhs, rhs); }
  Value add(Value lhs, Value rhs) { return arith::AddIOp::create(builder, loc, lhs, rhs); }

  OpBuilder &builder;
  Location loc;
  bool hasAttention = false;
};

} // namespace

/// Replaces extents and integer values of the arguments by constants.
static void substituteArguments(func::FuncOp function, ArrayRef<WorkArgument> arguments) {
  OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
  for (auto [argument, known] : llvm::zip_equal(function.getArguments(), arguments)) {
    if (isa<IndexType, IntegerType>(argument.getType()))
      argument.replaceAllUsesWith(arith::ConstantOp::create(
          builder, function.getLoc(), cast<TypedAttr>(builder.getIntegerAttr(argument.getType(), known.value))));
    for (Operation *user : llvm::make_early_inc_range(argument.getUsers())) {
      auto dim = dyn_cast<tensor::DimOp>(user);
      std::optional<int64_t> index = dim ? dim.getConstantIndex() : std::nullopt;
      if (!index || *index < 0 || *index >= int64_t(known.shape.size()))
        continue;
      dim.replaceAllUsesWith(
          arith::ConstantIndexOp::create(builder, function.getLoc(), known.shape[*index]).getResult());
      dim.erase();
    }
  }
}

std::optional<Work> saccade::attn::countWork(func::FuncOp function, ArrayRef<WorkArgument> arguments) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return std::nullopt;
  // The lengths of ragged sequences are elements of tensors.
  if (llvm::any_of(function.getOps<AttentionOp>(), [](AttentionOp op) { return op.isRagged(); }))
    return std::nullopt;
  OwningOpRef<func::FuncOp> copy = function.clone();
  Operation *terminator = copy->getBody().front().getTerminator();
  OpBuilder builder(terminator);
  WorkBuilder work(builder, copy->getLoc());
  for (Operation &op : llvm::make_early_inc_range(copy->getBody().front()))
    work.add(&op);
  Value counts[] = {work.flops, work.tokens};
  func::ReturnOp::create(builder, copy->getLoc(), counts);
  terminator->erase();
  copy->setType(builder.getFunctionType(copy->getArgumentTypes(), TypeRange(ValueRange(counts))));
  copy->removeResAttrsAttr();
  if (failed(resolveExtents(*copy)))
    return std::nullopt;
  substituteArguments(*copy, arguments);
  if (failed(resolveExtents(*copy)))
    return std::nullopt;
  APInt flops, tokens;
  Operation *result = copy->getBody().front().getTerminator();
  if (!matchPattern(result->getOperand(0), m_ConstantInt(&flops)) ||
      !matchPattern(result->getOperand(1), m_ConstantInt(&tokens)))
    return std::nullopt;
  return Work{flops.getSExtValue(), tokens.getSExtValue()};
}
