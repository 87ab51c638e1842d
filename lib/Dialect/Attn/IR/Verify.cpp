//===- Verify.cpp - Shared verifier of attention ops --------------------------===//
//
// Checks of operands and regions for attention on whole tensors and on tiles. Every diagnostic names the role (query,
// key, value, ...), what was found and what was expected.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

bool syntax::isAttentionElement(Type type) { return isa<Float64Type, Float32Type, Float16Type, BFloat16Type>(type); }

Type syntax::getCapturedType(Type operandType) {
  auto buffer = dyn_cast<MemRefType>(operandType);
  return buffer ? RankedTensorType::get(buffer.getShape(), buffer.getElementType()) : operandType;
}

StringRef syntax::describe(Dim dim) {
  switch (dim) {
  case Dim::Batch:
    return "batch size";
  case Dim::Head:
    return "head count";
  case Dim::Seq:
    return "length";
  case Dim::Depth:
    return "head size";
  }
  llvm_unreachable("all dimensions have a name");
}

LogicalResult syntax::verifySameExtent(Operation *op, const Twine &what, StringRef lhsRole, int64_t lhs,
                                       StringRef rhsRole, int64_t rhs) {
  if (ShapedType::isDynamic(lhs) || ShapedType::isDynamic(rhs) || lhs == rhs)
    return success();
  return op->emitOpError() << rhsRole << " has " << what << ' ' << rhs << ", but " << lhsRole << " has " << lhs;
}

namespace {

LogicalResult verifyRank(Operation *op, StringRef role, Value value, DimsAttr dims) {
  auto type = cast<ShapedType>(value.getType());
  if (type.getRank() != dims.size())
    return op->emitOpError() << role << " has rank " << type.getRank() << ", but names " << dims.size()
                             << " dimensions";
  if (!isAttentionElement(type.getElementType()))
    return op->emitOpError() << role << " has element type " << type.getElementType()
                             << ", expected f64, f32, f16 or bf16";
  return success();
}

/// Captures are tensors (buffers after bufferization) or scalars.
LogicalResult verifyCaptures(ScoringOpInterface op) {
  for (auto [i, type] : llvm::enumerate(op.getCaptures().getTypes())) {
    Type number = isa<RankedTensorType, MemRefType>(type) ? getElementTypeOrSelf(type) : type;
    if (!number.isIntOrIndexOrFloat())
      return op->emitOpError() << "capture " << i << " has type " << type
                               << ", expected a scalar or a ranked tensor of scalars";
  }
  return success();
}

/// Scalar ops that no target supports.
bool isWithoutCode(Operation &op) {
  return isa<arith::ScalingExtFOp, arith::ScalingTruncFOp, math::ClampFOp, math::FPowIOp, math::IPowIOp, math::IsInfOp,
             math::IsNormalOp>(op);
}

/// Regions are pure scalar code: no calls, no memory, no control flow.
bool isAllowedInRegion(Operation &op) {
  if (isa<YieldOp, LengthOp, tensor::ExtractOp, tensor::DimOp>(op))
    return true;
  if (isWithoutCode(op))
    return false;
  // Unregistered ops have no dialect. Divisions are allowed although they are not pure (the divisor may be 0).
  return isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op.getDialect()) && isMemoryEffectFree(&op) &&
         op.getNumRegions() == 0 &&
         llvm::all_of(op.getResultTypes(), [](Type type) { return type.isIntOrIndexOrFloat(); });
}

/// The types that a region yields.
SmallVector<Type> yieldedTypes(ScoringOpInterface op, const NamedRegion &named) {
  auto index = IndexType::get(op->getContext());
  if (named.isMask())
    return {IntegerType::get(op->getContext(), 1)};
  if (named.name == "tally")
    return {index, op.getScoreType()};
  auto derivative = dyn_cast<DerivativeOpInterface>(op.getOperation());
  if (derivative && named.region == &derivative.getDerivative())
    return derivative.getDerivativeTypes();
  return {op.getScoreType()};
}

/// What a region yields, for diagnostics.
StringRef describeYielded(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Case("tally", ", a bin and a number")
      .Case("gradient", ", the gradient of the score, and indices and a number per read")
      .Case("tangent", ", the tangents of probability and weight, and a bin and a number per tally")
      .Default("");
}

LogicalResult verifyRegion(ScoringOpInterface op, const NamedRegion &named) {
  auto [name, region, numberNames] = named;
  SmallVector<Type> expected(named.numbers(), op.getScoreType());
  expected.append(4, IndexType::get(op->getContext()));
  llvm::append_range(expected, llvm::map_range(op.getCaptures().getTypes(), getCapturedType));
  Block &block = region->front();
  if (block.getNumArguments() != expected.size())
    return op->emitOpError() << name << " region has " << block.getNumArguments() << " arguments, expected "
                             << expected.size() << ": (" << llvm::join(numberNames, ", ")
                             << (numberNames.empty() ? "" : ", ") << "b, h, q, k, captures...)";
  for (auto [arg, type] : llvm::zip_equal(block.getArguments(), expected)) {
    if (arg.getType() != type)
      return op->emitOpError() << name << " region has argument " << arg.getArgNumber() << " of type " << arg.getType()
                               << ", expected " << type;
  }
  if (failed(verifyScalarCode(op, name, block)))
    return failure();
  auto yield = cast<YieldOp>(block.back());
  SmallVector<Type> results = yieldedTypes(op, named);
  if (yield.getOperandTypes() != TypeRange(results))
    return op->emitOpError() << name << " region yields " << yield.getOperandTypes() << ", expected "
                             << TypeRange(results) << describeYielded(name);
  return success();
}

/// A ragged operand has no batch dimension; its sequences are the batches.
LogicalResult verifyCuSeqlens(ScoringOpInterface op) {
  for (auto [role, dims, clause, offsets] :
       {std::tuple("query", op.getQueryDims(), "cu_seqlens_q", op.getCuSeqlensQ()),
        std::tuple("key", op.getKeyDims(), "cu_seqlens_k", op.getCuSeqlensK()),
        std::tuple("value", op.getValueDims(), "cu_seqlens_k", op.getCuSeqlensK())}) {
    if (!offsets)
      continue;
    if (dims.position(Dim::Batch))
      return op->emitOpError() << role << " names dimension 'b', but is ragged by " << clause
                               << ", expected its sequences contiguous along 's'";
    if (cast<RankedTensorType>(offsets.getType()).getDimSize(0) == 0)
      return op->emitOpError() << clause << " has no element, expected one more than there are sequences";
  }
  return success();
}

/// Verifies the number of indices of reads. Runs before the verifiers of the ops in regions, whose diagnostics do not
/// name captures.
LogicalResult verifyReads(ScoringOpInterface op) {
  for (const NamedRegion &named : getNamedRegions(op))
    for (auto read : named.region->getOps<tensor::ExtractOp>()) {
      size_t rank = cast<RankedTensorType>(read.getTensor().getType()).getRank(), indices = read.getIndices().size();
      auto capture = dyn_cast<BlockArgument>(read.getTensor());
      if (rank == indices || !capture)
        continue;
      unsigned first = named.numbers() + 4;
      return read.emitOpError() << "reads capture " << int(capture.getArgNumber()) - int(first) << ", a tensor of rank "
                                << rank << ", with " << indices << (indices == 1 ? " index" : " indices")
                                << ", expected one for each dimension";
    }
  return success();
}

} // namespace

LogicalResult syntax::verifyScalarCode(Operation *op, StringRef name, Block &block) {
  if (block.empty() || !isa<YieldOp>(block.back()))
    return op->emitOpError() << name << " region must end in attn.yield";
  for (Operation &inner : block) {
    if (isAllowedInRegion(inner))
      continue;
    InFlightDiagnostic error = inner.emitOpError()
                               << "is not allowed in the " << name << " region of '" << op->getName()
                               << "', expected scalar arith and math ops, tensor.extract, tensor.dim or attn.length";
    if (inner.isRegistered() && !isMemoryEffectFree(&inner))
      error << ": a region has no side effects and calls nothing";
    if (isWithoutCode(inner))
      error << ": no target supports it";
    return error;
  }
  return success();
}

LogicalResult syntax::verifyRows(Operation *op, StringRef role, Value rows, Type element, const NamedOperand &like,
                                 ArrayRef<Dim> dims) {
  auto type = cast<RankedTensorType>(rows.getType());
  if (type.getRank() != int64_t(dims.size()))
    return op->emitOpError() << role << " has rank " << type.getRank() << ", expected " << dims.size();
  if (failed(verifyElement(op, role, rows, element)))
    return failure();
  for (auto [dim, extent] : llvm::zip_equal(dims, type.getShape())) {
    if (dim != Dim::Depth) {
      if (failed(
              verifySameExtent(op, "extent of '" + stringifyDim(dim) + "'", like.role, like.size(dim), role, extent)))
        return failure();
    } else if (ShapedType::isDynamic(extent) || extent == 0) {
      return op->emitOpError() << role << " has type " << type << ", expected a static number of bins, at least 1";
    }
  }
  return success();
}

LogicalResult syntax::verifyOutputExtents(DerivativeOpInterface op, StringRef role, Value output) {
  auto scoring = cast<ScoringOpInterface>(op.getOperation());
  NamedOperand query{"query", scoring.getQuery(), scoring.getQueryDims()};
  NamedOperand value{"value", scoring.getValue(), scoring.getValueDims()};
  NamedOperand result{role, output, op.getOutputDims()};
  int64_t rank = cast<RankedTensorType>(output.getType()).getRank();
  if (rank != result.dims.size())
    return op->emitOpError() << role << " has rank " << rank << ", but names " << result.dims.size() << " dimensions";
  for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq})
    if (failed(verifySameExtent(op, "extent of '" + stringifyDim(dim) + "'", query.role, query.size(dim), role,
                                result.size(dim))))
      return failure();
  return verifySameExtent(op, "head size", value.role, value.size(Dim::Depth), role, result.size(Dim::Depth));
}

LogicalResult syntax::verifyTensors(Operation *op, const NamedOperand &query, const NamedOperand &key,
                                    const NamedOperand &value) {
  for (const NamedOperand *operand : {&query, &key, &value})
    if (failed(verifyRank(op, operand->role, operand->value, operand->dims)))
      return failure();
  Type elementType = getElementTypeOrSelf(query.value);
  for (const NamedOperand *operand : {&key, &value})
    if (getElementTypeOrSelf(operand->value) != elementType)
      return op->emitOpError() << operand->role << " has element type " << getElementTypeOrSelf(operand->value)
                               << ", but query has " << elementType;
  return success();
}

LogicalResult syntax::verifyExtents(Operation *op, const NamedOperand &query, const NamedOperand &key,
                                    const NamedOperand &value, std::array<int64_t, 3> batches) {
  auto same = [&](StringRef what, Dim dim, const NamedOperand &lhs, const NamedOperand &rhs) {
    return verifySameExtent(op, what, lhs.role, lhs.size(dim), rhs.role, rhs.size(dim));
  };
  return success(succeeded(verifySameExtent(op, "batch size", query.role, batches[0], key.role, batches[1])) &&
                 succeeded(verifySameExtent(op, "batch size", query.role, batches[0], value.role, batches[2])) &&
                 succeeded(same("head count", Dim::Head, key, value)) &&
                 succeeded(same("length", Dim::Seq, key, value)) &&
                 succeeded(same("head size", Dim::Depth, query, key)));
}

LogicalResult syntax::verifyHeads(Operation *op, const NamedOperand &grouped, const NamedOperand &shared) {
  int64_t heads = grouped.size(Dim::Head), groups = shared.size(Dim::Head);
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(groups))
    return success();
  if (groups == 0 ? heads == 0 : heads % groups == 0)
    return success();
  return op->emitOpError() << grouped.role << " has " << heads << " heads, expected a multiple of the " << groups
                           << (shared.role == "key" ? " KV" : " query") << " heads";
}

LogicalResult syntax::verifyOperands(ScoringOpInterface op) {
  NamedOperand query{"query", op.getQuery(), op.getQueryDims()}, key{"key", op.getKey(), op.getKeyDims()},
      value{"value", op.getValue(), op.getValueDims()};
  if (failed(verifyTensors(op, query, key, value)))
    return failure();
  std::array<int64_t, 3> batches = {query.size(Dim::Batch), key.size(Dim::Batch), value.size(Dim::Batch)};
  batches[0] = getStaticBatches(op, Role::Query), batches[1] = getStaticBatches(op, Role::Key);
  batches[2] = op.getCuSeqlensK() ? batches[1] : batches[2];
  if (failed(verifyExtents(op, query, key, value, batches)) || failed(verifyHeads(op, query, key)))
    return failure();
  for (const NamedOperand &operand : {query, value})
    if (operand.size(Dim::Depth) == 0)
      return op->emitOpError() << operand.role << " has head size 0, expected at least 1";
  if (FloatAttr attr = op.getScaleAttr()) {
    APFloat scale = attr.getValue();
    bool isInexact = false;
    scale.convert(cast<FloatType>(op.getScoreType()).getFloatSemantics(), APFloat::rmNearestTiesToEven, &isInexact);
    if (!scale.isFinite())
      return op->emitOpError() << "scale is " << (scale.isNaN() ? "NaN" : "infinite") << " in " << op.getScoreType()
                               << ", expected a finite number";
  }
  if (op.getScaleValue() && op.getScaleAttr())
    return op->emitOpError() << "has both a constant and a run-time scale";
  if (op.getScaleValue() && op.getScaleValue().getType() != op.getScoreType())
    return op->emitOpError() << "scale has type " << op.getScaleValue().getType() << ", expected " << op.getScoreType();
  if (TypeAttr type = op.getQkTypeAttr(); type && !type.getValue().isSignlessInteger(8))
    return op->emitOpError() << "has qk_type " << type.getValue() << ", expected i8";
  if (op.getQkTypeAttr() && !op.getScoreType().isF32())
    return op->emitOpError() << "has qk_type i8 and inputs of f64, expected f32, f16 or bf16";
  if (!llvm::is_contained({0, 4}, op.getAt().size()))
    return op->emitOpError() << "'at' has " << op.getAt().size() << " positions, expected (b, h, q, k)";
  return failure(failed(verifyCaptures(op)) || failed(verifyReads(op)));
}

LogicalResult syntax::verifyWholeOperands(ScoringOpInterface op) {
  if (failed(verifyCuSeqlens(op)) || failed(verifyOperands(op)))
    return failure();
  for (auto [role, length] : {std::pair("q_len", op.getQLen()), std::pair("kv_len", op.getKvLen())}) {
    auto type = length ? dyn_cast<RankedTensorType>(length.getType()) : nullptr;
    if (type && failed(verifySameExtent(op, "batch size", "query", getStaticBatches(op, Role::Query), role,
                                        type.getDimSize(0))))
      return failure();
  }
  return success();
}

LogicalResult syntax::verifyRegions(ScoringOpInterface op) {
  if (op.getPointwise() && op.getWeight().empty())
    return op->emitOpError() << "is pointwise, expected a normalizer";
  if (op.getStickBreaking() && op.getPointwise())
    return op->emitOpError()
           << "has the normalizer stick_breaking and a normalizer of each score, expected one of them";
  if (!llvm::all_of(getNamedRegions(op),
                    [&](const NamedRegion &region) { return succeeded(verifyRegion(op, region)); }))
    return failure();
  if (op.getStickBreaking() && !op.getWeight().empty() && !isProportional(op.getWeight()))
    return op->emitOpError()
           << "has a weight region that is not proved proportional to its argument, as the normalizer "
              "stick_breaking needs it";
  return success();
}

LogicalResult syntax::verifyElement(Operation *op, StringRef role, Value value, Type expected) {
  if (getElementTypeOrSelf(value) == expected)
    return success();
  return op->emitOpError() << role << " has element type " << getElementTypeOrSelf(value) << ", expected " << expected;
}

LogicalResult syntax::verifyState(Operation *op, Value acc, Value max, Value sum) {
  auto accType = cast<ShapedType>(acc.getType());
  if (accType.getRank() != 2)
    return op->emitOpError() << "accumulator has rank " << accType.getRank() << ", expected 2";
  if (getScoreType(accType.getElementType()) != accType.getElementType())
    return op->emitOpError() << "accumulator has element type " << accType.getElementType() << ", expected f32 or f64";
  for (auto [role, value] : {std::pair("running max", max), std::pair("running sum", sum)}) {
    auto type = cast<ShapedType>(value.getType());
    if (type.getRank() != 1)
      return op->emitOpError() << role << " has rank " << type.getRank() << ", expected 1";
    if (type.getElementType() != accType.getElementType())
      return op->emitOpError() << role << " has element type " << type.getElementType() << ", but accumulator has "
                               << accType.getElementType();
    if (failed(verifySameExtent(op, "rows", "accumulator", accType.getDimSize(0), role, type.getDimSize(0))))
      return failure();
  }
  return success();
}

LogicalResult LengthOp::verify() {
  if (!isa_and_nonnull<ScoringOpInterface>((*this)->getParentOp()))
    return emitOpError() << "is outside of a region of attention";
  return success();
}
