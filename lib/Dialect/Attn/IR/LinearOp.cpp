//===- LinearOp.cpp - attn.linear: syntax and verifier ------------------------===//
//
// Linear attention. It shares the verifier of operands with attention, but not the clauses.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

namespace {

/// An operand in parentheses, `(%g[b,s,h] : type)`; `axes` is null without dimensions.
struct GateOperand {
  OpAsmParser::UnresolvedOperand operand;
  AxesAttr axes;
  Type type;

  ParseResult parse(OpAsmParser &parser, bool hasAxes) {
    SmallVector<Dim> names;
    if (parser.parseLParen() || parser.parseOperand(operand))
      return failure();
    SMLoc loc = parser.getCurrentLocation();
    if (hasAxes) {
      if (parseDimNames(parser, names))
        return failure();
      axes = AxesAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), ArrayRef<Dim>(names));
      if (!axes)
        return failure();
    }
    return failure(parser.parseColonType(type) || parser.parseRParen());
  }
};

ParseResult parseFeature(OpAsmParser &parser, Region &region) {
  OpAsmParser::Argument argument;
  if (parser.parseLParen() || parser.parseArgument(argument))
    return failure();
  argument.type = parser.getBuilder().getF32Type();
  if (succeeded(parser.parseOptionalColon()) && parser.parseType(argument.type))
    return failure();
  return failure(parser.parseRParen() ||
                 parseIsolatedRegion(parser, "feature", argument, region, /*hasCaptures=*/false));
}

} // namespace

ParseResult LinearOp::parse(OpAsmParser &parser, OperationState &result) {
  SMLoc start = parser.getCurrentLocation();
  OpAsmParser::UnresolvedOperand tensors[3];
  DimsAttr dims[3];
  for (unsigned i = 0; i < 3; ++i)
    if ((i && parser.parseComma()) || parser.parseOperand(tensors[i]) || parseDims(parser, dims[i]))
      return failure();
  Properties &properties = result.getOrAddProperties<Properties>();
  properties.query_dims = properties.output_dims = dims[0];
  properties.key_dims = dims[1];
  properties.value_dims = dims[2];

  std::optional<GateOperand> decay, beta, state;
  Region *feature = result.addRegion();
  llvm::SmallDenseSet<StringRef> seen;
  StringRef clause;
  SMLoc loc = parser.getCurrentLocation();
  static constexpr StringRef clauseNames[] = {"causal", "transposed", "normalize", "scale",   "decay_columns",
                                              "decay",  "beta",       "state",     "feature", "out"};
  while (succeeded(parser.parseOptionalKeyword(&clause, clauseNames))) {
    if (!seen.insert(clause).second)
      return parser.emitError(loc, "clause '") << clause << "' is given twice";
    ParseResult parsed = success();
    double scale;
    UnitAttr *flag = clause == "causal"       ? &properties.causal
                     : clause == "transposed" ? &properties.transposed
                     : clause == "normalize"  ? &properties.normalize
                                              : nullptr;
    if (flag)
      *flag = parser.getBuilder().getUnitAttr();
    else if (clause == "scale") {
      parsed = failure(parser.parseLParen() || parser.parseFloat(scale) || parser.parseRParen());
      if (succeeded(parsed))
        properties.scale = parser.getBuilder().getF64FloatAttr(scale);
    } else if (clause == "feature")
      parsed = parseFeature(parser, *feature);
    else if (clause == "out")
      parsed = parseDims(parser, properties.output_dims);
    else {
      bool isDecay = clause.starts_with("decay");
      if (isDecay && decay)
        return parser.emitError(loc, "has both 'decay' and 'decay_columns', expected one of them");
      if (clause == "decay_columns")
        properties.decays_columns = parser.getBuilder().getUnitAttr();
      std::optional<GateOperand> &gate = isDecay ? decay : clause == "beta" ? beta : state;
      parsed = gate.emplace().parse(parser, /*hasAxes=*/clause != "state");
    }
    if (failed(parsed))
      return failure();
    loc = parser.getCurrentLocation();
  }
  if (refuseUnknownClause(parser, "attn.linear", clauseNames))
    return failure();

  Type types[3];
  SmallVector<Type> resultTypes;
  if (parser.parseOptionalAttrDict(result.attributes) || parser.parseColon() || parser.parseLParen() ||
      parser.parseType(types[0]) || parser.parseComma() || parser.parseType(types[1]) || parser.parseComma() ||
      parser.parseType(types[2]) || parser.parseRParen() || parser.parseArrowTypeList(resultTypes))
    return failure();
  if (resultTypes.empty() || resultTypes.size() > 2)
    return parser.emitError(start, "has ")
           << resultTypes.size() << " result types, expected the output and optionally the final state";
  for (unsigned i = 0; i < 3; ++i)
    if (parser.resolveOperand(tensors[i], types[i], result.operands))
      return failure();
  for (std::optional<GateOperand> *gate : {&decay, &beta, &state})
    if (*gate && parser.resolveOperand((*gate)->operand, (*gate)->type, result.operands))
      return failure();
  if (decay)
    properties.decay_axes = decay->axes;
  if (beta)
    properties.beta_axes = beta->axes;
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, decay ? 1 : 0, beta ? 1 : 0, state ? 1 : 0}),
             properties.operandSegmentSizes.begin());
  result.addTypes(resultTypes);
  return success();
}

void LinearOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getQuery();
  printDims(printer, getQueryDims());
  printer << ", " << getKey();
  printDims(printer, getKeyDims());
  printer << ", " << getValue();
  printDims(printer, getValueDims());
  if (getCausal())
    printer << " causal";
  if (getTransposed())
    printer << " transposed";
  if (getNormalize())
    printer << " normalize";
  if (FloatAttr scale = getScaleAttr()) {
    printer << " scale(";
    printer.printAttributeWithoutType(scale);
    printer << ')';
  }
  for (auto [clause, gate, axes] :
       {std::tuple(getDecaysColumns() ? "decay_columns" : "decay", getDecay(), getDecayAxesAttr()),
        std::tuple("beta", getBeta(), getBetaAxesAttr()), std::tuple("state", getState(), AxesAttr())}) {
    if (!gate)
      continue;
    printer << ' ' << clause << '(' << gate;
    if (axes)
      printDims(printer, axes.getDims());
    printer << " : " << gate.getType() << ')';
  }
  if (getOutputDims() != getQueryDims()) {
    printer << " out";
    printDims(printer, getOutputDims());
  }
  if (!getFeature().empty()) {
    printer << " feature(";
    BlockArgument argument = getFeature().getArgument(0);
    printer.printRegionArgument(argument, {}, /*omitType=*/argument.getType().isF32());
    printer << ") ";
    printer.printRegion(getFeature(), /*printEntryBlockArgs=*/false);
  }
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {getOperandSegmentSizesAttrName(), getQueryDimsAttrName(), getKeyDimsAttrName(),
                                 getValueDimsAttrName(), getOutputDimsAttrName(), getDecayAxesAttrName(),
                                 getBetaAxesAttrName(), getScaleAttrName(), getCausalAttrName(), getNormalizeAttrName(),
                                 getDecaysColumnsAttrName(), getTransposedAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ") -> ";
  if (getNumResults() == 1)
    printer << getOutput().getType();
  else
    printer << '(' << getResultTypes() << ')';
}

void LinearOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  if (!region.empty())
    setName(region.getArgument(0), "x");
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

NamedOperand LinearOp::getStateOwner() {
  if (getTransposed())
    return {"query", getQuery(), getQueryDims()};
  return {"key", getKey(), getKeyDims()};
}

NamedOperand LinearOp::getGrouped() {
  if (getTransposed())
    return {"key", getKey(), getKeyDims()};
  return {"query", getQuery(), getQueryDims()};
}

NamedOperand LinearOp::getFactorOwner(Dim dim) {
  if (dim == Dim::Head)
    return getStateOwner();
  if (dim == Dim::Depth && getDecaysColumns())
    return {"value", getValue(), getValueDims()};
  return {"key", getKey(), getKeyDims()};
}

SmallVector<Dim> LinearOp::getStateDims() {
  SmallVector<Dim> dims;
  for (Dim dim : {Dim::Batch, Dim::Head})
    if (getStateOwner().dims.position(dim))
      dims.push_back(dim);
  return dims;
}

/// Verifies that `value` has the element type of the operands or of the state.
static LogicalResult verifyGateElement(LinearOp op, StringRef role, Value value) {
  Type element = getElementTypeOrSelf(value), query = getElementTypeOrSelf(op.getQuery());
  if (element == query || element == op.getStateType())
    return success();
  return op.emitOpError() << role << " has element type " << element << ", expected that of the query (" << query
                          << ") or " << op.getStateType();
}

/// Verifies decay or beta.
static LogicalResult verifyGate(LinearOp op, StringRef role, Value value, AxesAttr axes) {
  if (bool(value) != bool(axes))
    return op.emitOpError() << role << (value ? " names no dimensions" : " is missing");
  if (!value)
    return success();
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != axes.size())
    return op.emitOpError() << role << " has rank " << type.getRank() << ", but names " << axes.size() << " dimensions";
  if (failed(verifyGateElement(op, role, value)))
    return failure();
  if (!op.getCausal())
    return op.emitOpError()
           << role << " is given without 'causal', expected 'causal': it applies to the state at each position";
  if (role == "beta" && axes.position(Dim::Depth))
    return op.emitOpError() << "beta names dimension 'd', expected at most b, h and s";
  for (auto [dim, extent] : llvm::zip_equal(axes.getDims(), type.getShape())) {
    NamedOperand owner = op.getFactorOwner(dim);
    if (failed(verifySameExtent(op, describe(dim), owner.role, owner.size(dim), role, extent)))
      return failure();
  }
  return success();
}

static LogicalResult verifyState(LinearOp op, StringRef role, Value state) {
  if (!state)
    return success();
  SmallVector<Dim> dims = op.getStateDims();
  auto type = cast<RankedTensorType>(state.getType());
  if (type.getRank() != int64_t(dims.size()) + 2)
    return op.emitOpError() << role << " has rank " << type.getRank() << ", expected " << dims.size() + 2 << ": "
                            << (dims.empty() ? "" : "batch and head of the " + op.getStateOwner().role.str() + ", ")
                            << "head size of keys, head size of values";
  if (failed(verifyGateElement(op, role, state)))
    return failure();
  NamedOperand owner = op.getStateOwner();
  for (auto [dim, extent] : llvm::zip(dims, type.getShape()))
    if (failed(verifySameExtent(op, describe(dim), owner.role, owner.size(dim), role, extent)))
      return failure();
  int64_t columns = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  if (op.getNormalize() && !ShapedType::isDynamic(columns))
    ++columns;
  if (failed(verifySameExtent(op, "rows", "key", getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth), role,
                              type.getShape().end()[-2])))
    return failure();
  return verifySameExtent(op, "columns", op.getNormalize() ? "value with the column of the sum" : "value", columns,
                          role, type.getShape().back());
}

static LogicalResult verifyOutput(LinearOp op) {
  auto type = cast<RankedTensorType>(op.getOutput().getType());
  DimsAttr dims = op.getOutputDims();
  if (type.getRank() != dims.size())
    return op.emitOpError() << "output has rank " << type.getRank() << ", but names " << dims.size() << " dimensions";
  if (failed(verifyGateElement(op, "output", op.getOutput())))
    return failure();
  for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq})
    if (failed(verifySameExtent(op, describe(dim), "query", getStaticDimSize(op.getQuery(), op.getQueryDims(), dim),
                                "output", getStaticDimSize(op.getOutput(), dims, dim))))
      return failure();
  return verifySameExtent(op, "head size", "value", getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth),
                          "output", getStaticDimSize(op.getOutput(), dims, Dim::Depth));
}

LogicalResult LinearOp::verify() {
  NamedOperand query{"query", getQuery(), getQueryDims()}, key{"key", getKey(), getKeyDims()},
      value{"value", getValue(), getValueDims()};
  if (failed(verifyTensors(*this, query, key, value)) ||
      failed(verifyExtents(*this, query, key, value,
                           {query.size(Dim::Batch), key.size(Dim::Batch), value.size(Dim::Batch)})) ||
      failed(verifyHeads(*this, getGrouped(), getStateOwner())) || failed(verifyOutput(*this)))
    return failure();
  if (getCausal() &&
      failed(verifySameExtent(*this, "length", "query", query.size(Dim::Seq), "key", key.size(Dim::Seq))))
    return failure();
  if (failed(verifyGate(*this, "decay", getDecay(), getDecayAxesAttr())) ||
      failed(verifyGate(*this, "beta", getBeta(), getBetaAxesAttr())) ||
      failed(verifyState(*this, "state", getState())) || failed(verifyState(*this, "final state", getFinalState())))
    return failure();
  if (getNormalize() && getBeta())
    return emitOpError() << "has both 'normalize' and beta, expected one of them: the delta rule has no normalizer";
  for (auto [clause, isGiven] : {std::pair("transposed", getTransposed()), {"decay_columns", getDecaysColumns()}})
    if (isGiven && (getNormalize() || getBeta()))
      return emitOpError() << "has both '" << clause << "' and '" << (getBeta() ? "beta" : "normalize")
                           << "', expected one of them";
  if (getDecaysColumns() && !(getDecay() && getDecayAxesAttr().position(Dim::Depth)))
    return emitOpError() << "decay_columns does not name dimension 'd', expected it: without it, 'decay' is the same";
  if (getNormalize() && getScaleAttr())
    return emitOpError() << "has both 'normalize' and a scale, expected one of them: the scale would cancel";
  return success();
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

LogicalResult LinearOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  auto sizeOf = [&](Value value, DimsAttr dims, Dim dim) { return getDimSize(b, getLoc(), value, dims, dim); };
  auto pick = [&](int64_t extent, llvm::function_ref<OpFoldResult()> size) {
    return ShapedType::isDynamic(extent) ? size() : OpFoldResult(b.getIndexAttr(extent));
  };
  SmallVector<OpFoldResult> &output = shapes.emplace_back();
  for (auto [dim, extent] : llvm::zip_equal(getOutputDims().getDims(), getOutput().getType().getShape()))
    output.push_back(pick(extent, [&, dim = dim] {
      return dim == Dim::Depth ? sizeOf(getValue(), getValueDims(), dim) : sizeOf(getQuery(), getQueryDims(), dim);
    }));
  if (!getFinalState())
    return success();
  SmallVector<OpFoldResult> &state = shapes.emplace_back();
  ArrayRef<int64_t> extents = getFinalState().getType().getShape();
  SmallVector<Dim> dims = getStateDims();
  dims.push_back(Dim::Depth);
  for (auto [dim, extent] : llvm::zip(dims, extents))
    state.push_back(pick(extent, [&, dim = dim] {
      NamedOperand owner = dim == Dim::Head ? getStateOwner() : NamedOperand{"key", getKey(), getKeyDims()};
      return sizeOf(owner.value, owner.dims, dim);
    }));
  state.push_back(pick(extents.back(), [&]() -> OpFoldResult {
    OpFoldResult columns = sizeOf(getValue(), getValueDims(), Dim::Depth);
    if (!getNormalize())
      return columns;
    Value one = arith::ConstantIndexOp::create(b, getLoc(), 1);
    Value size = getValueOrCreateConstantIndexOp(b, getLoc(), columns);
    return arith::AddIOp::create(b, getLoc(), size, one).getResult();
  }));
  return success();
}
