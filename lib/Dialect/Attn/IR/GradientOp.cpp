//===- GradientOp.cpp - attn.gradient: syntax and verifier --------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

ParseResult GradientOp::parse(OpAsmParser &parser, OperationState &result) {
  Clauses clauses;
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Type> types, resultTypes;
  if (parseDerivative(parser, clauses, result, types, resultTypes))
    return failure();
  bool hasSums = !clauses.given.contains("normalizer");
  for (auto [isGiven, clause] : {std::pair(clauses.outputGradient.has_value(), "output_gradient"),
                                 std::pair(clauses.lse.has_value() || !hasSums, "lse"),
                                 std::pair(clauses.delta.has_value() || !hasSums, "delta")})
    if (!isGiven)
      return parser.emitError(loc, "has no clause '") << clause << "(...)'";
  if (failed(refuseForeignClauses(parser, loc, clauses, "attn.gradient")))
    return failure();
  if (!clauses.tallies.empty() || clauses.hasMax || clauses.hasArgmax || clauses.sink)
    return parser.emitError(loc, "'tally', 'max', 'argmax' and 'sink' do not belong to attn.gradient; the gradient "
                                 "region and the log-sum-exp include tallies and sinks");
  if (failed(expandDropout(parser, clauses, types[0])))
    return failure();

  if (clauses.resolveWholeOperands(parser, loc, types, result) ||
      Clauses::resolve(parser, clauses.outputGradient, result) || Clauses::resolve(parser, clauses.lse, result) ||
      Clauses::resolve(parser, clauses.lseLow, result) || Clauses::resolve(parser, clauses.delta, result))
    return failure();

  Properties &properties = result.getOrAddProperties<Properties>();
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, int32_t(clauses.captures.size()), clauses.queryLength ? 1 : 0,
                                clauses.keyLength ? 1 : 0, clauses.cuSeqlensQ ? 1 : 0, clauses.cuSeqlensK ? 1 : 0,
                                clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size()), 1, hasSums ? 1 : 0,
                                clauses.lseLow ? 1 : 0, hasSums ? 1 : 0}),
             properties.operandSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.value_dims = clauses.valueDims;
  properties.output_dims = clauses.outputDims;
  properties.scale = clauses.scale;
  properties.pointwise = clauses.pointwise(parser);
  properties.stick_breaking = clauses.stickBreaking(parser);
  properties.reads = parser.getBuilder().getDenseI64ArrayAttr(clauses.reads);
  std::unique_ptr<Region> gradient = std::move(clauses.gradient);
  clauses.addRegionsTo(result);
  result.addRegion(gradient ? std::move(gradient) : std::make_unique<Region>());
  result.addTypes(resultTypes);
  return success();
}

void GradientOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this);
  printTyped(printer, {{"cu_seqlens_q", getCuSeqlensQ()}, {"cu_seqlens_k", getCuSeqlensK()}});
  printer << " output_gradient(" << getOutputGradient();
  printDims(printer, getOutputDims());
  printer << " : " << getOutputGradient().getType() << ')';
  printTyped(printer, {{"lse", getLse()}, {"lse_low", getLseLow()}, {"delta", getDelta()}});
  printRegions(printer, *this, /*bins=*/{}, getReads());
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {"operandSegmentSizes", getQueryDimsAttrName(), getKeyDimsAttrName(),
                                 getValueDimsAttrName(), getOutputDimsAttrName(), getScaleAttrName(),
                                 getReadsAttrName(), getPointwiseAttrName(), getStickBreakingAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ") -> ("
          << getResultTypes() << ')';
}

void GradientOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameRegionArguments(*this, region, setName);
}

/// Tallies are part of the gradient region.
MutableArrayRef<Region> GradientOp::getTallyRegions() { return {}; }

SmallVector<int64_t> GradientOp::getDifferentiatedCaptures() {
  SmallVector<int64_t> captures(getReads());
  llvm::sort(captures);
  captures.erase(llvm::unique(captures), captures.end());
  return captures;
}

Region &GradientOp::getDerivative() { return getGradient(); }

StringRef GradientOp::getDerivativeName() { return "gradient"; }

ArrayRef<StringRef> GradientOp::getDerivativeNumbers() {
  static constexpr StringRef names[] = {"p", "s", "dp", "delta"};
  return names;
}

SmallVector<Type> GradientOp::getDerivativeTypes() {
  Type index = IndexType::get(getContext()), number = getScoreType();
  SmallVector<Type> types = {number};
  for (int64_t capture : getReads()) {
    auto tensor = dyn_cast<RankedTensorType>(getCaptures()[capture].getType());
    types.append(tensor ? tensor.getRank() : 0, index);
    types.push_back(number);
  }
  return types;
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

/// Verifies the gradient of `of`, which has its shape.
static LogicalResult verifyGradient(GradientOp op, StringRef role, Value gradient, Value of) {
  auto type = cast<RankedTensorType>(gradient.getType());
  auto shaped = dyn_cast<RankedTensorType>(of.getType());
  ArrayRef<int64_t> shape = shaped ? shaped.getShape() : ArrayRef<int64_t>();
  if (failed(verifyCompatibleShape(type.getShape(), shape)))
    return op.emitOpError() << "gradient of " << role << " has type " << type << ", but " << role << " has type "
                            << of.getType();
  Type element = getElementTypeOrSelf(of), scoreType = getScoreType(getElementTypeOrSelf(op.getQuery()));
  if (!isa<FloatType>(element))
    return op.emitOpError() << "has a gradient of " << role << ", whose elements have type " << element;
  if (type.getElementType() != element && type.getElementType() != scoreType)
    return op.emitOpError() << "gradient of " << role << " has element type " << type.getElementType() << ", expected "
                            << element << " or " << scoreType;
  return success();
}

/// Verifies the extents of the output gradient, and of the log-sum-exp, its low part and delta.
static LogicalResult verifyOutputs(GradientOp op) {
  Type element = getElementTypeOrSelf(op.getQuery()), scoreType = getScoreType(element);
  Type outputElement = getElementTypeOrSelf(op.getOutputGradient());
  if (outputElement != element && outputElement != scoreType)
    return op.emitOpError() << "output gradient has element type " << outputElement << ", expected " << element
                            << " or " << scoreType;
  if (failed(verifyOutputExtents(cast<DerivativeOpInterface>(op.getOperation()), "output gradient",
                                 op.getOutputGradient())))
    return failure();
  bool hasSoftmax = op.hasSoftmax();
  if (bool(op.getLse()) != hasSoftmax || bool(op.getDelta()) != hasSoftmax || (!hasSoftmax && op.getLseLow()))
    return op.emitOpError() << "expected either a log-sum-exp and delta or a normalizer";
  for (auto [role, rows] :
       {std::pair("log-sum-exp", Value(op.getLse())), std::pair("low part of the log-sum-exp", Value(op.getLseLow())),
        std::pair("delta", Value(op.getDelta()))})
    if (rows && failed(syntax::verifyRows(op, role, rows, scoreType, {"query", op.getQuery(), op.getQueryDims()},
                                          op.getRowDims())))
      return failure();
  return success();
}

LogicalResult GradientOp::verify() {
  if (failed(verifyWholeOperands(*this)) || failed(verifyOutputs(*this)))
    return failure();
  for (auto [role, gradient, of] :
       {std::tuple("query", getQueryGradient(), getQuery()), std::tuple("key", getKeyGradient(), getKey()),
        std::tuple("value", getValueGradient(), getValue())})
    if (failed(verifyGradient(*this, role, gradient, of)))
      return failure();
  for (int64_t capture : getReads())
    if (capture < 0 || capture >= int64_t(getCaptures().size()))
      return emitOpError() << "has a gradient of capture " << capture << ", but " << getCaptures().size()
                           << " captures";
  SmallVector<int64_t> captures = getDifferentiatedCaptures();
  if (captures.size() != getCaptureGradients().size())
    return emitOpError() << "has " << getCaptureGradients().size() << " gradients of captures, expected "
                         << captures.size();
  for (auto [capture, gradient] : llvm::zip_equal(captures, getCaptureGradients()))
    if (failed(verifyGradient(*this, ("capture " + Twine(capture)).str(), gradient, getCaptures()[capture])))
      return failure();
  return success();
}

LogicalResult GradientOp::verifyRegions() {
  if (needsSoftmaxWeights(*this))
    return emitOpError() << "has a weight region that is not proved proportional to its argument";
  if (getGradient().empty() && (!getReads().empty() || !getScore().empty() || !getWeight().empty()))
    return emitOpError() << "has no gradient region, expected one for a score or weight region";
  return syntax::verifyRegions(*this);
}

LogicalResult GradientOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<Value> sources = {getQuery(), getKey(), getValue()};
  for (int64_t capture : getDifferentiatedCaptures())
    sources.push_back(getCaptures()[capture]);
  for (Value source : sources)
    shapes.push_back(isa<RankedTensorType>(source.getType()) ? tensor::getMixedSizes(b, getLoc(), source)
                                                             : SmallVector<OpFoldResult>());
  return success();
}
