//===- JvpOp.cpp - attn.jvp: syntax and verifier ------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

ParseResult JvpOp::parse(OpAsmParser &parser, OperationState &result) {
  Clauses clauses;
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Type> types, resultTypes;
  if (parseDerivative(parser, clauses, result, types, resultTypes))
    return failure();
  if (resultTypes.size() < 2)
    return parser.emitError(loc, "has ") << resultTypes.size()
                                         << " result types, expected those of output, row and the tallies";
  if (failed(refuseForeignClauses(parser, loc, clauses, "attn.jvp")))
    return failure();
  if (clauses.hasStickBreaking)
    return parser.emitError(loc,
                            "'normalizer stick_breaking' does not belong to attn.jvp, which has no tangents of it");
  if (!clauses.lse && !clauses.given.contains("normalizer"))
    return parser.emitError(loc, "has no clause 'lse(...)'");
  if (!clauses.tallies.empty() || clauses.dropout || clauses.hasMax || clauses.hasArgmax || clauses.sink)
    return parser.emitError(loc, "'tally', 'dropout', 'max', 'argmax' and 'sink' do not belong to attn.jvp; the "
                                 "tangent region and the log-sum-exp include tallies, dropout and sinks");
  if (clauses.resolveWholeOperands(parser, loc, types, result))
    return failure();
  for (const auto *operand : {&clauses.queryTangent, &clauses.keyTangent, &clauses.valueTangent, &clauses.scaleTangent,
                              &clauses.lse, &clauses.lseLow})
    if (Clauses::resolve(parser, *operand, result))
      return failure();

  Properties &properties = result.getOrAddProperties<Properties>();
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, int32_t(clauses.captures.size()), clauses.queryLength ? 1 : 0,
                                clauses.keyLength ? 1 : 0, clauses.cuSeqlensQ ? 1 : 0, clauses.cuSeqlensK ? 1 : 0,
                                clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size()), clauses.queryTangent ? 1 : 0,
                                clauses.keyTangent ? 1 : 0, clauses.valueTangent ? 1 : 0, clauses.scaleTangent ? 1 : 0,
                                clauses.lse ? 1 : 0, clauses.lseLow ? 1 : 0}),
             properties.operandSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.value_dims = clauses.valueDims;
  properties.output_dims = clauses.outputDims ? clauses.outputDims : clauses.queryDims;
  properties.scale = clauses.scale;
  properties.pointwise = clauses.pointwise(parser);
  std::unique_ptr<Region> tangent = std::move(clauses.tangent);
  clauses.addRegionsTo(result);
  result.addRegion(tangent ? std::move(tangent) : std::make_unique<Region>());
  result.addTypes(resultTypes);
  return success();
}

void JvpOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this);
  printTyped(printer, {{"cu_seqlens_q", getCuSeqlensQ()},
                       {"cu_seqlens_k", getCuSeqlensK()},
                       {"query_tangent", getQueryTangent()},
                       {"key_tangent", getKeyTangent()},
                       {"value_tangent", getValueTangent()},
                       {"scale_tangent", getScaleTangent()},
                       {"lse", getLse()},
                       {"lse_low", getLseLow()}});
  if (getOutputDims() != getQueryDims()) {
    printer << " out";
    printDims(printer, getOutputDims());
  }
  printRegions(printer, *this, /*bins=*/{});
  printer.printOptionalAttrDict(
      (*this)->getAttrs(), {"operandSegmentSizes", getQueryDimsAttrName(), getKeyDimsAttrName(), getValueDimsAttrName(),
                            getOutputDimsAttrName(), getScaleAttrName(), getPointwiseAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ") -> ("
          << getResultTypes() << ')';
}

void JvpOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameRegionArguments(*this, region, setName);
}

/// Tallies are part of the tangent region.
MutableArrayRef<Region> JvpOp::getTallyRegions() { return {}; }

Region &JvpOp::getDerivative() { return getTangent(); }

StringRef JvpOp::getDerivativeName() { return "tangent"; }

ArrayRef<StringRef> JvpOp::getDerivativeNumbers() {
  static constexpr StringRef names[] = {"p", "s", "ds"};
  return names;
}

SmallVector<Type> JvpOp::getDerivativeTypes() {
  Type number = getScoreType();
  SmallVector<Type> types = {number, number};
  for (size_t i = 0; i < getTallies().size(); ++i)
    types.append({IndexType::get(getContext()), number});
  return types;
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

static LogicalResult verifyTangents(JvpOp op) {
  for (auto [role, tangent, of] :
       {std::tuple("query", op.getQueryTangent(), op.getQuery()), std::tuple("key", op.getKeyTangent(), op.getKey()),
        std::tuple("value", op.getValueTangent(), op.getValue())})
    if (tangent && (getElementTypeOrSelf(tangent) != getElementTypeOrSelf(of) ||
                    failed(verifyCompatibleShape(tangent.getType(), of.getType()))))
      return op.emitOpError() << "tangent of " << role << " has type " << tangent.getType() << ", but " << role
                              << " has type " << of.getType();
  if (Value tangent = op.getScaleTangent()) {
    if (!op.getScaleValue())
      return op.emitOpError() << "has a tangent of the scale, which is a constant";
    if (tangent.getType() != op.getScaleValue().getType())
      return op.emitOpError() << "tangent of scale has type " << tangent.getType() << ", but scale has type "
                              << op.getScaleValue().getType();
  }
  return success();
}

LogicalResult JvpOp::verify() {
  if (failed(verifyWholeOperands(*this)) || failed(verifyTangents(*this)))
    return failure();
  if (bool(getLse()) == getPointwise() || (getPointwise() && getLseLow()))
    return emitOpError() << "expected either a log-sum-exp or a normalizer";
  Type scoreType = getScoreType();
  NamedOperand query{"query", getQuery(), getQueryDims()};
  if (failed(verifyElement(*this, "output", getOutput(), scoreType)) ||
      failed(verifyOutputExtents(cast<DerivativeOpInterface>(getOperation()), "output", getOutput())))
    return failure();
  SmallVector<Dim> dims = getRowDims();
  for (auto [role, rows] :
       {std::pair("log-sum-exp", Value(getLse())), std::pair("low part of the log-sum-exp", Value(getLseLow())),
        std::pair("row", Value(getRow()))})
    if (rows && failed(verifyRows(*this, role, rows, scoreType, query, dims)))
      return failure();
  dims.push_back(Dim::Depth);
  for (auto [i, tally] : llvm::enumerate(getTallies()))
    if (failed(verifyRows(*this, ("tally " + Twine(i)).str(), tally, scoreType, query, dims)))
      return failure();
  return success();
}

LogicalResult JvpOp::verifyRegions() {
  if (needsSoftmaxWeights(*this))
    return emitOpError() << "has a weight region that is not proved proportional to its argument";
  if (getTangent().empty() && (!getTallies().empty() || !getScore().empty() || !getWeight().empty()))
    return emitOpError() << "has no tangent region, expected one for a score or weight region and for tallies";
  return syntax::verifyRegions(*this);
}

LogicalResult JvpOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  auto sizeOf = [&](Dim dim) {
    return dim == Dim::Depth ? getDimSize(b, getLoc(), getValue(), getValueDims(), dim)
                             : getDimSize(b, getLoc(), getQuery(), getQueryDims(), dim);
  };
  shapes.push_back(llvm::map_to_vector(getOutputDims().getDims(), sizeOf));
  shapes.push_back(llvm::map_to_vector(getRowDims(), sizeOf));
  for (Value tally : getTallies()) {
    shapes.push_back(shapes[1]);
    shapes.back().push_back(b.getIndexAttr(cast<RankedTensorType>(tally.getType()).getShape().back()));
  }
  return success();
}
