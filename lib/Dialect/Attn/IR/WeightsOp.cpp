//===- WeightsOp.cpp - attn.weights: syntax and verifier ----------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

/// Reports a clause of attn.attention that weights do not depend on, or that they are not defined for.
static ParseResult refuseUnusedClauses(OpAsmParser &parser, SMLoc loc, const Clauses &clauses) {
  if (clauses.given.contains("normalizer"))
    return parser.emitError(loc, "'normalizer' does not belong to attn.weights, which are those of a softmax");
  if (!clauses.lse)
    return parser.emitError(loc, "has no clause 'lse(...)'");
  for (StringRef clause : {"tally", "max", "argmax", "sink", "out"})
    if (clauses.given.contains(clause))
      return parser.emitError(loc, "'") << clause << "' does not belong to attn.weights"
                                        << (clause == "sink" ? "; the log-sum-exp includes a sink" : "");
  if (clauses.cuSeqlensQ || clauses.cuSeqlensK)
    return parser.emitError(loc, "attn.weights has no ragged batches, expected slices of one sequence in place of "
                                 "'cu_seqlens_q' and 'cu_seqlens_k'");
  if (clauses.qkType)
    return parser.emitError(loc, "'qk_type' belongs to attn.attention; weights are those of unquantized attention");
  return success();
}

ParseResult WeightsOp::parse(OpAsmParser &parser, OperationState &result) {
  Clauses clauses;
  SMLoc loc = parser.getCurrentLocation();
  Type types[2], resultType;
  if (parseClauses(parser, clauses, /*hasValue=*/false) || parser.parseOptionalAttrDict(result.attributes) ||
      parser.parseColon() || parser.parseLParen() || parser.parseType(types[0]) || parser.parseComma() ||
      parser.parseType(types[1]) || parser.parseRParen() || parser.parseArrow() || parser.parseType(resultType))
    return failure();
  if (failed(refuseForeignClauses(parser, loc, clauses, "attn.weights")) ||
      failed(refuseUnusedClauses(parser, loc, clauses)) || failed(expandDropout(parser, clauses, types[0])))
    return failure();
  if (clauses.resolveWholeOperands(parser, loc, types, result) || Clauses::resolve(parser, clauses.lse, result) ||
      Clauses::resolve(parser, clauses.lseLow, result))
    return failure();

  Properties &properties = result.getOrAddProperties<Properties>();
  llvm::copy(
      ArrayRef<int32_t>({1, 1, int32_t(clauses.captures.size()), clauses.queryLength ? 1 : 0, clauses.keyLength ? 1 : 0,
                         clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size()), 1, clauses.lseLow ? 1 : 0}),
      properties.operandSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.scale = clauses.scale;
  clauses.addRegionsTo(result);
  result.addTypes(resultType);
  return success();
}

void WeightsOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this);
  printTyped(printer, {{"lse", getLse()}, {"lse_low", getLseLow()}});
  printRegions(printer, *this, /*bins=*/{});
  printer.printOptionalAttrDict(
      (*this)->getAttrs(), {"operandSegmentSizes", getQueryDimsAttrName(), getKeyDimsAttrName(), getScaleAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ") -> " << getType();
}

void WeightsOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameRegionArguments(*this, region, setName);
}

Value WeightsOp::getValue() { return getKey(); }

DimsAttr WeightsOp::getValueDims() { return getKeyDims(); }

MutableArrayRef<Region> WeightsOp::getTallyRegions() { return {}; }

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

LogicalResult WeightsOp::verify() {
  if (failed(verifyWholeOperands(*this)))
    return failure();
  NamedOperand query{"query", getQuery(), getQueryDims()}, key{"key", getKey(), getKeyDims()};
  for (auto [role, rows] :
       {std::pair("log-sum-exp", Value(getLse())), std::pair("low part of the log-sum-exp", Value(getLseLow()))})
    if (rows && failed(verifyRows(*this, role, rows, getScoreType(), query, getRowDims())))
      return failure();
  auto type = cast<RankedTensorType>(getType());
  SmallVector<Dim> dims = getRowDims();
  if (type.getRank() != int64_t(dims.size()) + 1)
    return emitOpError() << "result has rank " << type.getRank() << ", expected " << dims.size() + 1;
  if (failed(verifyElement(*this, "result", getResult(), getScoreType())))
    return failure();
  for (auto [dim, extent] : llvm::zip(dims, type.getShape()))
    if (failed(verifySameExtent(*this, describe(dim), "query", query.size(dim), "result", extent)))
      return failure();
  return verifySameExtent(*this, "keys", "key", key.size(Dim::Seq), "result", type.getShape().back());
}

LogicalResult WeightsOp::verifyRegions() { return syntax::verifyRegions(*this); }

LogicalResult WeightsOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> shape = llvm::map_to_vector(
      getRowDims(), [&](Dim dim) { return getDimSize(b, getLoc(), getQuery(), getQueryDims(), dim); });
  shape.push_back(getDimSize(b, getLoc(), getKey(), getKeyDims(), Dim::Seq));
  for (auto [size, extent] : llvm::zip_equal(shape, cast<RankedTensorType>(getType()).getShape()))
    if (!ShapedType::isDynamic(extent))
      size = b.getIndexAttr(extent);
  shapes.push_back(shape);
  return success();
}
