//===- LinearOp.cpp - Verifiers and shapes of linear attention ----------------===//
//
// attn.linear and attn.linear_gradient share the verifier of operands with attention, except that keys and queries may
// have fewer heads than values.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

namespace {

NamedOperand queryOf(LinearOpInterface op) { return {"query", op.getQuery(), op.getQueryDims()}; }
NamedOperand keyOf(LinearOpInterface op) { return {"key", op.getKey(), op.getKeyDims()}; }
NamedOperand valueOf(LinearOpInterface op) { return {"value", op.getValue(), op.getValueDims()}; }

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

/// Verifies that `value` has the element type of the operands or of the state.
LogicalResult verifyGateElement(LinearOpInterface op, StringRef role, Value value) {
  Type element = getElementTypeOrSelf(value), query = getElementTypeOrSelf(op.getQuery());
  if (element == query || element == op.getStateType())
    return success();
  return op->emitOpError() << role << " has element type " << element << ", expected that of the query (" << query
                           << ") or " << op.getStateType();
}

/// Verifies decay or beta.
LogicalResult verifyGate(LinearOpInterface op, StringRef role, Value value, AxesAttr axes) {
  if (bool(value) != bool(axes))
    return op->emitOpError() << role << (value ? " names no dimensions" : " is missing");
  if (!value)
    return success();
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != axes.size())
    return op->emitOpError() << role << " has rank " << type.getRank() << ", but names " << axes.size()
                             << " dimensions";
  if (failed(verifyGateElement(op, role, value)))
    return failure();
  if (!op.getCausal())
    return op->emitOpError()
           << role << " is given without 'causal', expected 'causal': it applies to the state at each position";
  if (role == "beta" && axes.position(Dim::Depth))
    return op->emitOpError() << "beta names dimension 'd', expected at most b, h and s";
  if (op.getCuSeqlens() && axes.position(Dim::Batch))
    return op->emitOpError() << role << " names dimension 'b', expected none with cu_seqlens";
  for (auto [dim, extent] : llvm::zip_equal(axes.getDims(), type.getShape())) {
    NamedOperand owner = op.getFactorOwner(dim);
    if (failed(verifySameExtent(op, describe(dim), owner.role, owner.size(dim), role, extent)))
      return failure();
  }
  return success();
}

LogicalResult verifyErase(LinearOpInterface op) {
  if (bool(op.getErase()) != bool(op.getEraseDimsAttr()))
    return op->emitOpError() << "erase " << (op.getErase() ? "names no dimensions" : "is missing");
  if (!op.getErase())
    return success();
  NamedOperand erase{"erase", op.getErase(), op.getEraseDimsAttr()}, key = keyOf(op);
  int64_t rank = cast<RankedTensorType>(erase.value.getType()).getRank();
  if (rank != erase.dims.size())
    return op->emitOpError() << "erase has rank " << rank << ", but names " << erase.dims.size() << " dimensions";
  if (!op.getCausal())
    return op->emitOpError() << "erase is given without 'causal', expected 'causal': it applies to the state at each "
                                "position";
  if (failed(verifyGateElement(op, erase.role, erase.value)))
    return failure();
  for (Dim dim : {Dim::Batch, Dim::Seq, Dim::Depth})
    if (failed(verifySameExtent(op, describe(dim), key.role, key.size(dim), erase.role, erase.size(dim))))
      return failure();
  return success();
}

LogicalResult verifyLinearState(LinearOpInterface op, StringRef role, Value state, bool isNormalized) {
  if (!state)
    return success();
  SmallVector<Dim> dims = op.getStateDims();
  auto type = cast<RankedTensorType>(state.getType());
  if (type.getRank() != int64_t(dims.size()) + 2)
    return op->emitOpError() << role << " has rank " << type.getRank() << ", expected " << dims.size() + 2 << ": "
                             << (dims.empty() ? "" : "batch and head of the value, ")
                             << "head size of keys, head size of values";
  if (failed(verifyGateElement(op, role, state)))
    return failure();
  NamedOperand value = valueOf(op);
  for (auto [dim, extent] : llvm::zip(dims, type.getShape()))
    if (failed(verifySameExtent(op, describe(dim), value.role,
                                dim == Dim::Batch ? getStaticBatches(op) : value.size(dim), role, extent)))
      return failure();
  int64_t columns = value.size(Dim::Depth);
  if (isNormalized && !ShapedType::isDynamic(columns))
    ++columns;
  if (failed(verifySameExtent(op, "rows", "key", keyOf(op).size(Dim::Depth), role, type.getShape().end()[-2])))
    return failure();
  return verifySameExtent(op, "columns", isNormalized ? "value with the column of the sum" : "value", columns, role,
                          type.getShape().back());
}

/// The heads of the output: of the query or, if there are more, of the value.
int64_t staticOutputHeads(LinearOpInterface op) {
  int64_t query = queryOf(op).size(Dim::Head), value = valueOf(op).size(Dim::Head);
  return ShapedType::isDynamic(query) || ShapedType::isDynamic(value) ? ShapedType::kDynamic : std::max(query, value);
}

LogicalResult verifyLinearOutput(LinearOpInterface op, StringRef role, Value output) {
  auto type = cast<RankedTensorType>(output.getType());
  DimsAttr dims = op.getOutputDims();
  if (type.getRank() != dims.size())
    return op->emitOpError() << role << " has rank " << type.getRank() << ", but names " << dims.size()
                             << " dimensions";
  if (failed(verifyGateElement(op, role, output)))
    return failure();
  int64_t heads = staticOutputHeads(op);
  bool isOfValue = heads != queryOf(op).size(Dim::Head);
  for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq})
    if (failed(verifySameExtent(op, describe(dim), dim == Dim::Head && isOfValue ? "value" : "query",
                                dim == Dim::Head ? heads : queryOf(op).size(dim), role,
                                getStaticDimSize(output, dims, dim))))
      return failure();
  return verifySameExtent(op, "head size", "value", valueOf(op).size(Dim::Depth), role,
                          getStaticDimSize(output, dims, Dim::Depth));
}

/// Verifies that the heads of `shared` divide those of the value.
LogicalResult verifySharedHeads(LinearOpInterface op, const NamedOperand &shared) {
  int64_t heads = valueOf(op).size(Dim::Head), groups = shared.size(Dim::Head);
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(groups) || (groups == 0 ? heads == 0 : heads % groups == 0))
    return success();
  return op->emitOpError() << "value has " << heads << " heads, expected a multiple of the " << groups << " heads of "
                           << shared.role;
}

LogicalResult verifyLinearHeads(LinearOpInterface op) {
  if (failed(verifySharedHeads(op, keyOf(op))) ||
      (op.getErase() && failed(verifySharedHeads(op, {"erase", op.getErase(), op.getEraseDimsAttr()}))))
    return failure();
  int64_t heads = valueOf(op).size(Dim::Head), queries = queryOf(op).size(Dim::Head);
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(queries) ||
      (heads == 0 || queries == 0 ? heads == queries : heads % queries == 0 || queries % heads == 0))
    return success();
  return op->emitOpError() << "query has " << queries << " heads, expected a multiple or a divisor of the " << heads
                           << " heads of value";
}

LogicalResult verifySequences(LinearOpInterface op) {
  if (op.getCuSeqlens() && op.getKvLen())
    return op->emitOpError() << "has both cu_seqlens and kv_len, expected one of them";
  if (!op.getCuSeqlens()) {
    int64_t size = op.getKvLen() ? cast<RankedTensorType>(op.getKvLen().getType()).getDimSize(0) : 0;
    return op.getKvLen() ? verifySameExtent(op, "batch size", "value", valueOf(op).size(Dim::Batch), "kv_len", size)
                         : success();
  }
  for (const NamedOperand &operand :
       {queryOf(op), keyOf(op), valueOf(op), NamedOperand{"output", {}, op.getOutputDims()}})
    if (operand.dims.position(Dim::Batch))
      return op->emitOpError() << operand.role << " names dimension 'b', expected none with cu_seqlens";
  return verifySameExtent(op, "length", "query", queryOf(op).size(Dim::Seq), "key", keyOf(op).size(Dim::Seq));
}

LogicalResult verifyLinear(LinearOpInterface op, bool isNormalized) {
  NamedOperand query = queryOf(op), key = keyOf(op), value = valueOf(op);
  auto same = [&](StringRef what, Dim dim, const NamedOperand &lhs, const NamedOperand &rhs) {
    return verifySameExtent(op, what, lhs.role, lhs.size(dim), rhs.role, rhs.size(dim));
  };
  if (failed(verifyTensors(op, query, key, value)) || failed(same("batch size", Dim::Batch, query, key)) ||
      failed(same("batch size", Dim::Batch, query, value)) || failed(same("length", Dim::Seq, key, value)) ||
      failed(same("head size", Dim::Depth, query, key)) || failed(verifySequences(op)) || failed(verifyLinearHeads(op)))
    return failure();
  if (op.getCausal() && failed(same("length", Dim::Seq, query, key)))
    return failure();
  return success(succeeded(verifyGate(op, "decay", op.getDecay(), op.getDecayAxesAttr())) &&
                 succeeded(verifyGate(op, "beta", op.getBeta(), op.getBetaAxesAttr())) && succeeded(verifyErase(op)) &&
                 succeeded(verifyLinearState(op, "state", op.getState(), isNormalized)));
}

} // namespace

LogicalResult LinearOp::verify() {
  if (failed(verifyLinear(*this, getNormalize())) || failed(verifyLinearOutput(*this, "output", getOutput())) ||
      failed(verifyLinearState(*this, "final state", getFinalState(), getNormalize())))
    return failure();
  if (getNormalize() && hasDeltaRule())
    return emitOpError() << "has both 'normalize' and " << (getBeta() ? "beta" : "erase")
                         << ", expected one of them: the delta rule has no normalizer";
  if (getNormalize() && getScaleAttr())
    return emitOpError() << "has both 'normalize' and a scale, expected one of them: the scale would cancel";
  if (std::optional<APFloat> epsilon = getL2norm(); epsilon && (epsilon->isNegative() || !epsilon->isFinite()))
    return emitOpError() << "has l2norm " << epsilon->convertToDouble() << ", expected a finite number, at least 0";
  return success();
}

LogicalResult LinearGradientOp::verify() {
  if (failed(verifyLinear(*this, /*isNormalized=*/false)) ||
      failed(verifyLinearOutput(*this, "output gradient", getOutputGradient())) ||
      failed(verifyLinearState(*this, "state gradient", getStateGradient(), /*isNormalized=*/false)) ||
      failed(verifyLinearState(*this, "gradient of the state", getInitialGradient(), /*isNormalized=*/false)))
    return failure();
  auto verifyResult = [&](StringRef role, Value result, DimsAttr dims, int64_t heads) -> LogicalResult {
    if (!result)
      return success();
    NamedOperand named{role, result, dims};
    if (cast<RankedTensorType>(result.getType()).getRank() != dims.size())
      return emitOpError() << role << " has another rank than its operand";
    return verifySameExtent(*this, "head count", "value", dims.position(Dim::Head) ? heads : 1, role,
                            named.size(Dim::Head));
  };
  int64_t heads = valueOf(*this).size(Dim::Head);
  return success(
      succeeded(verifyResult("gradient of the query", getQueryGradient(), getQueryDims(), staticOutputHeads(*this))) &&
      succeeded(verifyResult("gradient of the key", getKeyGradient(), getKeyDims(), heads)) &&
      succeeded(verifyResult("gradient of the value", getValueGradient(), getValueDims(), heads)) &&
      succeeded(verifyResult("gradient of erase", getEraseGradient(), getEraseDims().value_or(getKeyDims()), heads)));
}

LogicalResult LinearOp::verifyRegions() {
  if (getFeature().empty())
    return success();
  Block &block = getFeature().front();
  if (block.getNumArguments() != 1 || block.getArgument(0).getType() != getStateType())
    return emitOpError() << "feature region has arguments " << block.getArgumentTypes() << ", expected one "
                         << getStateType();
  if (failed(verifyScalarCode(*this, "feature", block)))
    return failure();
  auto yield = cast<YieldOp>(block.back());
  if (yield.getOperandTypes() != TypeRange(getStateType()))
    return emitOpError() << "feature region yields " << yield.getOperandTypes() << ", expected " << getStateType();
  return success();
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

OpFoldResult saccade::attn::getOutputHeads(OpBuilder &b, LinearOpInterface op) {
  Location loc = op.getLoc();
  if (int64_t heads = staticOutputHeads(op); !ShapedType::isDynamic(heads))
    return b.getIndexAttr(heads);
  auto size = [&](Value value, DimsAttr dims) {
    return getValueOrCreateConstantIndexOp(b, loc, getDimSize(b, loc, value, dims, Dim::Head));
  };
  Value query = size(op.getQuery(), op.getQueryDims()), value = size(op.getValue(), op.getValueDims());
  return arith::MaxSIOp::create(b, loc, query, value).getResult();
}

/// The extents of `type` where they are static, else those that `size` computes.
static SmallVector<OpFoldResult> extentsOf(OpBuilder &b, Value result,
                                           llvm::function_ref<OpFoldResult(unsigned)> size) {
  SmallVector<OpFoldResult> extents;
  for (auto [i, extent] : llvm::enumerate(cast<RankedTensorType>(result.getType()).getShape()))
    extents.push_back(ShapedType::isDynamic(extent) ? size(i) : OpFoldResult(b.getIndexAttr(extent)));
  return extents;
}

/// The extents of a state; with `isNormalized` it has one column more than the value.
static SmallVector<OpFoldResult> extentsOfState(OpBuilder &b, LinearOpInterface op, Value state, bool isNormalized) {
  SmallVector<Dim> dims = op.getStateDims();
  Location loc = op.getLoc();
  return extentsOf(b, state, [&](unsigned i) -> OpFoldResult {
    if (i < dims.size())
      return dims[i] == Dim::Batch ? getBatches(b, op) : getDimSize(b, loc, op.getValue(), op.getValueDims(), dims[i]);
    if (i == dims.size())
      return getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Depth);
    OpFoldResult columns = getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Depth);
    if (!isNormalized)
      return columns;
    Value one = arith::ConstantIndexOp::create(b, loc, 1), size = getValueOrCreateConstantIndexOp(b, loc, columns);
    return arith::AddIOp::create(b, loc, size, one).getResult();
  });
}

LogicalResult LinearOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(extentsOf(b, getOutput(), [&](unsigned i) {
    Dim dim = getOutputDims().getDims()[i];
    if (dim == Dim::Head)
      return getOutputHeads(b, *this);
    return dim == Dim::Depth ? getDimSize(b, getLoc(), getValue(), getValueDims(), dim)
                             : getDimSize(b, getLoc(), getQuery(), getQueryDims(), dim);
  }));
  if (getFinalState())
    shapes.push_back(extentsOfState(b, *this, getFinalState(), getNormalize()));
  return success();
}

LogicalResult LinearGradientOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  auto sizeOf = [&](Value value, DimsAttr dims, Dim dim) { return getDimSize(b, getLoc(), value, dims, dim); };
  auto like = [&](Value result, Value operand, DimsAttr dims, bool isQuery) {
    shapes.push_back(extentsOf(b, result, [&](unsigned i) {
      Dim dim = dims.getDims()[i];
      if (dim != Dim::Head)
        return sizeOf(operand, dims, dim);
      return isQuery ? getOutputHeads(b, *this) : sizeOf(getValue(), getValueDims(), dim);
    }));
  };
  auto factors = [&](Value result, bool isMatrix) {
    SmallVector<Dim> dims = getFactorDims(isMatrix);
    shapes.push_back(extentsOf(b, result, [&](unsigned i) {
      NamedOperand owner = getFactorOwner(dims[i]);
      return sizeOf(owner.value, owner.dims, dims[i]);
    }));
  };
  like(getQueryGradient(), getQuery(), getQueryDims(), /*isQuery=*/true);
  like(getKeyGradient(), getKey(), getKeyDims(), /*isQuery=*/false);
  like(getValueGradient(), getValue(), getValueDims(), /*isQuery=*/false);
  if (getDecayGradient())
    factors(getDecayGradient(), hasMatrixDecay());
  if (getBetaGradient())
    factors(getBetaGradient(), /*isMatrix=*/false);
  if (getEraseGradient())
    like(getEraseGradient(), getErase(), *getEraseDims(), /*isQuery=*/false);
  if (getInitialGradient())
    shapes.push_back(extentsOfState(b, *this, getInitialGradient(), /*isNormalized=*/false));
  return success();
}
