//===- TileOps.cpp - attn.accumulate, attn.merge, attn.finalize ---------------===//
//
// Attention on tiles of keys: destination-style ops on tensors or buffers, with the state of the online softmax
// (accumulator, running max, running sum) as operands.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

#define GET_OP_CLASSES
#include "saccade/Dialect/Attn/IR/AttnOps.cpp.inc"

State::State(ValueRange parts) : acc(parts[0]), max(parts[1]), sum(parts[2]) {
  for (Value part : parts.drop_front(3)) {
    auto type = cast<ShapedType>(part.getType());
    if (type.getRank() == 2)
      tallies.push_back(part);
    else
      (type.getElementType().isInteger() ? argmax : rowMax) = part;
  }
}

SmallVector<Value> State::getParts() const {
  SmallVector<Value> parts = {acc, max, sum};
  llvm::append_range(parts, tallies);
  for (Value part : {rowMax, argmax})
    if (part)
      parts.push_back(part);
  return parts;
}

/// Verifies that the accumulator has at least `rows` rows.
static LogicalResult verifyRows(Operation *op, StringRef role, int64_t rows, Value acc) {
  int64_t capacity = cast<ShapedType>(acc.getType()).getDimSize(0);
  if (ShapedType::isDynamic(rows) || ShapedType::isDynamic(capacity) || rows <= capacity)
    return success();
  return op->emitOpError() << role << " has " << rows << " rows, but accumulator has " << capacity;
}

/// Verifies that the accumulator has at least `depth` columns.
static LogicalResult verifyColumns(Operation *op, StringRef role, int64_t depth, Value acc) {
  int64_t columns = cast<ShapedType>(acc.getType()).getDimSize(1);
  if (ShapedType::isDynamic(depth) || ShapedType::isDynamic(columns) || depth <= columns)
    return success();
  return op->emitOpError() << role << " has head size " << depth << ", but accumulator has " << columns << " columns";
}

//===----------------------------------------------------------------------===//
// AccumulateOp
//===----------------------------------------------------------------------===//

ParseResult AccumulateOp::parse(OpAsmParser &parser, OperationState &result) {
  Clauses clauses;
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Type> types;
  if (parseClauses(parser, clauses) || parser.parseOptionalAttrDict(result.attributes) || parser.parseColon() ||
      parser.parseLParen() || parser.parseTypeList(types) || parser.parseRParen())
    return failure();
  if (types.size() != 3)
    return parser.emitError(loc, "has ") << types.size() << " operand types, expected those of query, key and value";
  unsigned tallies = clauses.tallies.size(), more = clauses.into.size() - 3 - tallies;
  if (clauses.into.size() < 3 + tallies || more > 2 || clauses.intoTypes.size() != clauses.into.size())
    return parser.emitError(loc, "'into' has ")
           << clauses.into.size() << " destinations, expected accumulator, running max and running sum"
           << (tallies ? ", a tally for each region" : "") << ", and optionally the row maximum and its position";
  if (clauses.hasLse || clauses.hasLseLow || clauses.hasMax || clauses.hasArgmax || clauses.outputDims || clauses.sink)
    return parser.emitError(loc, "'lse', 'lse_low', 'max', 'argmax', 'out' and 'sink' belong to attn.attention; "
                                 "attn.finalize computes the results");
  if (failed(refuseForeignClauses(parser, loc, clauses, "attn.accumulate")))
    return failure();
  if (clauses.dropout)
    return parser.emitError(loc, "'dropout' belongs to attn.attention and attn.gradient");
  if (clauses.cuSeqlensQ || clauses.cuSeqlensK)
    return parser.emitError(loc, "'cu_seqlens_q' and 'cu_seqlens_k' belong to attn.attention; a tile has one sequence");
  SmallVector<Type> atTypes(clauses.at.size(), parser.getBuilder().getIndexType());
  auto resolveOptional = [&](std::optional<Clauses::Typed> &typed) -> ParseResult {
    return typed ? parser.resolveOperand(typed->operand, typed->type, result.operands) : success();
  };
  if (parser.resolveOperand(clauses.query, types[0], result.operands) ||
      parser.resolveOperand(clauses.key, types[1], result.operands) ||
      parser.resolveOperand(clauses.value, types[2], result.operands) ||
      parser.resolveOperands(clauses.captures, clauses.captureTypes, loc, result.operands) ||
      resolveOptional(clauses.queryLength) || resolveOptional(clauses.keyLength) ||
      resolveOptional(clauses.scaleValue) || parser.resolveOperands(clauses.at, atTypes, loc, result.operands) ||
      parser.resolveOperands(clauses.into, clauses.intoTypes, loc, result.operands))
    return failure();
  Properties &properties = result.getOrAddProperties<Properties>();
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, int32_t(clauses.captures.size()), clauses.queryLength ? 1 : 0,
                                clauses.keyLength ? 1 : 0, clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size()), 1, 1,
                                1, int32_t(tallies), more >= 1, more == 2}),
             properties.operandSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.value_dims = clauses.valueDims;
  properties.scale = clauses.scale;
  properties.qk_type = clauses.qkType;
  properties.pointwise = clauses.pointwise(parser);
  properties.stick_breaking = clauses.stickBreaking(parser);
  clauses.addRegionsTo(result);
  for (Type type : clauses.intoTypes)
    if (isa<RankedTensorType>(type))
      result.addTypes(type);
  return success();
}

void AccumulateOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this);
  OperandRange into = getDpsInits();
  printer << " into(" << into << " : " << into.getTypes() << ')';
  SmallVector<int64_t> bins;
  for (Value tally : getTallies())
    bins.push_back(cast<ShapedType>(tally.getType()).getShape().back());
  printRegions(printer, *this, bins);
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {"operandSegmentSizes", getQueryDimsAttrName(), getKeyDimsAttrName(),
                                 getValueDimsAttrName(), getScaleAttrName(), getQkTypeAttrName(),
                                 getPointwiseAttrName(), getStickBreakingAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ')';
}

void AccumulateOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameRegionArguments(*this, region, setName);
}

/// Verifies tallies, row maxima and their positions, which have the rows of the accumulator.
static LogicalResult verifyOthers(AccumulateOp op) {
  auto verify = [&](const Twine &role, Value value, int64_t rank, Type element) -> LogicalResult {
    auto type = cast<ShapedType>(value.getType());
    if (type.getRank() != rank)
      return op.emitOpError() << role << " has rank " << type.getRank() << ", expected " << rank;
    if (failed(verifyElement(op, role.str(), value, element)))
      return failure();
    return verifySameExtent(op, "rows", "accumulator", cast<ShapedType>(op.getAcc().getType()).getDimSize(0),
                            role.str(), type.getDimSize(0));
  };
  if (op.getTallies().size() != op.getTallyRegions().size())
    return op.emitOpError() << "has " << op.getTallyRegions().size() << " tally regions, but " << op.getTallies().size()
                            << " tallies";
  for (auto [i, tally] : llvm::enumerate(op.getTallies()))
    if (failed(verify("tally " + Twine(i), tally, 2, op.getScoreType())))
      return failure();
  if (op.getRowMax() && failed(verify("row maximum", op.getRowMax(), 1, op.getScoreType())))
    return failure();
  if (!op.getArgmax())
    return success();
  if (!op.getRowMax())
    return op.emitOpError() << "has the position of the row maximum, expected the row maximum as well";
  return verify("position", op.getArgmax(), 1, IntegerType::get(op.getContext(), 64));
}

LogicalResult AccumulateOp::verify() {
  if (failed(verifyOperands(*this)) || failed(verifyState(*this, getAcc(), getMax(), getSum())))
    return failure();
  bool hasHeads = getUnpacked() && getQueryDims().position(Dim::Head);
  for (auto [role, dims, expected] : {std::tuple("query", getQueryDims(), hasHeads ? 3u : 2u),
                                      std::tuple("key", getKeyDims(), 2u), std::tuple("value", getValueDims(), 2u)})
    if (dims.size() != expected)
      return emitOpError() << role << " tile names " << dims.size() << " dimensions, expected "
                           << (expected == 3 ? "h, s and d" : "s and d");
  if (getElementTypeOrSelf(getAcc()) != getScoreType())
    return emitOpError() << "accumulator has element type " << getElementTypeOrSelf(getAcc()) << ", expected "
                         << getScoreType();
  int64_t rows = getStaticDimSize(getQuery(), getQueryDims(), Dim::Seq);
  int64_t heads = getStaticDimSize(getQuery(), getQueryDims(), Dim::Head);
  bool isKnown = !ShapedType::isDynamic(rows) && !ShapedType::isDynamic(heads);
  if (failed(verifyRows(*this, "query", isKnown ? rows * heads : ShapedType::kDynamic, getAcc())))
    return failure();
  if (failed(verifyColumns(*this, "value", getStaticDimSize(getValue(), getValueDims(), Dim::Depth), getAcc())))
    return failure();
  return verifyOthers(*this);
}

LogicalResult AccumulateOp::verifyRegions() {
  if (failed(syntax::verifyRegions(*this)))
    return failure();
  if (!hasSoftmax() && (getFinal() || getNaturalMax() || getDpsInits().size() != 3))
    return emitOpError()
           << "has a normalizer, expected no final step, no natural maximum, no tallies and no row maxima";
  if (!getFinal() && needsSoftmaxWeights(*this))
    return emitOpError() << "has a weight region that is not proved proportional to its argument, expected 'final'";
  if (getFinal() && (getWeight().empty() || getDpsInits().size() != 3))
    return emitOpError() << "is final, expected a weight region, no tallies and no row maxima";
  return success();
}

void AccumulateOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addBufferEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}

namespace {

/// accumulate(cast(x)) -> accumulate(x) if x has a more static shape. Upstream's pattern for destination-style ops
/// cannot clone an empty region; the higher benefit of this one prevents that it runs.
struct FoldCastOperands : OpRewritePattern<AccumulateOp> {
  explicit FoldCastOperands(MLIRContext *context) : OpRewritePattern(context, /*benefit=*/10) {}

  LogicalResult matchAndRewrite(AccumulateOp op, PatternRewriter &rewriter) const override {
    auto foldable = [&](OpOperand &operand) -> tensor::CastOp {
      auto cast = operand.get().getDefiningOp<tensor::CastOp>();
      return cast && tensor::canFoldIntoConsumerOp(cast) ? cast : nullptr;
    };
    if (llvm::none_of(op->getOpOperands(), foldable))
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      for (OpOperand &operand : op->getOpOperands())
        if (tensor::CastOp cast = foldable(operand))
          operand.set(cast.getSource());
      // Region arguments take the new types of captured tensors.
      for (const NamedRegion &named : getNamedRegions(op))
        for (auto [argument, capture] : llvm::zip_equal(named.arguments().captures, op.getCaptures()))
          argument.setType(capture.getType());
    });
    for (OpResult result : op->getResults()) {
      Type type = op.getDpsInitOperand(result.getResultNumber())->get().getType(), old = result.getType();
      if (type == old)
        continue;
      rewriter.setInsertionPointAfter(op);
      result.setType(type);
      auto back = tensor::CastOp::create(rewriter, op.getLoc(), old, result);
      rewriter.replaceAllUsesExcept(result, back, back);
    }
    return success();
  }
};

} // namespace

void AccumulateOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *context) {
  results.add<FoldCastOperands>(context);
}

//===----------------------------------------------------------------------===//
// MergeOp
//===----------------------------------------------------------------------===//

/// Verifies that two states have the same parts, and that their rows and columns agree.
static LogicalResult verifySameParts(MergeOp op) {
  auto describe = [](const State &state) {
    return std::tuple(state.tallies.size(), bool(state.rowMax), bool(state.argmax));
  };
  State state = op.getState(), other = op.getOtherState();
  if (state.getParts().size() != op.getParts().size() || other.getParts().size() != op.getParts().size() ||
      describe(state) != describe(other) || (state.argmax && !state.rowMax))
    return op.emitOpError() << "has states of different or unknown parts, expected accumulator, max, sum, tallies, and "
                               "optionally row maximum and position in both";
  for (auto [i, part, otherPart] : llvm::enumerate(op.getParts(), op.getOtherParts())) {
    auto type = cast<ShapedType>(part.getType()), otherType = cast<ShapedType>(otherPart.getType());
    if (type.getElementType() != otherType.getElementType())
      return op.emitOpError() << "other state has element type " << otherType.getElementType() << ", but state has "
                              << type.getElementType();
    if (failed(verifySameExtent(op, "rows", "state", type.getDimSize(0), "other state", otherType.getDimSize(0))))
      return failure();
    if (type.getRank() == 2 && failed(verifySameExtent(op, i == 0 ? "head size" : "bins", "state", type.getDimSize(1),
                                                       "other state", otherType.getDimSize(1))))
      return failure();
    int64_t rows = cast<ShapedType>(state.acc.getType()).getDimSize(0);
    if (i >= 3 && failed(verifySameExtent(op, "rows", "accumulator", rows, "part of the state", type.getDimSize(0))))
      return failure();
  }
  return success();
}

LogicalResult MergeOp::verify() {
  if (getParts().size() < 3)
    return emitOpError() << "has states of " << getParts().size() << " parts, expected accumulator, max and sum";
  State state = getState(), other = getOtherState();
  if (failed(verifyState(*this, state.acc, state.max, state.sum)) ||
      failed(verifyState(*this, other.acc, other.max, other.sum)))
    return failure();
  return verifySameParts(*this);
}

void MergeOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addBufferEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}

//===----------------------------------------------------------------------===//
// FinalizeOp
//===----------------------------------------------------------------------===//

ParseResult FinalizeOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand state[3], output;
  Type stateTypes[3], outputType;
  // The operands of `with`, and the destinations after the output.
  SmallVector<OpAsmParser::UnresolvedOperand> others, more;
  SmallVector<Type> otherTypes, moreTypes;
  DimsAttr dims;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperand(state[0]) || parser.parseComma() || parser.parseOperand(state[1]) || parser.parseComma() ||
      parser.parseOperand(state[2]) || parser.parseColonType(stateTypes[0]) || parser.parseComma() ||
      parser.parseType(stateTypes[1]) || parser.parseComma() || parser.parseType(stateTypes[2]))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("with")) && (parser.parseLParen() || parser.parseOperandList(others) ||
                                                         parser.parseColonTypeList(otherTypes) || parser.parseRParen()))
    return failure();
  if (parser.parseKeyword("into") || parser.parseLParen() || parser.parseOperand(output) || parseDims(parser, dims) ||
      parser.parseColonType(outputType))
    return failure();
  while (succeeded(parser.parseOptionalComma()))
    if (parser.parseOperand(more.emplace_back()) || parser.parseColonType(moreTypes.emplace_back()))
      return failure();
  if (parser.parseRParen() || parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (more.size() < others.size() || more.size() > others.size() + 2)
    return parser.emitError(loc, "'into' has ") << more.size()
                                                << " destinations after the output, expected an optional log-sum-exp "
                                                   "and its low part, then one for each of the "
                                                << others.size() << " operands of 'with'";
  if (parser.resolveOperands(state, stateTypes, loc, result.operands) ||
      parser.resolveOperands(others, otherTypes, loc, result.operands) ||
      parser.resolveOperand(output, outputType, result.operands) ||
      parser.resolveOperands(more, moreTypes, loc, result.operands))
    return failure();
  Properties &properties = result.getOrAddProperties<Properties>();
  properties.output_dims = dims;
  int32_t count = others.size(), ofLse = int32_t(more.size()) - count;
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, count, 1, ofLse >= 1, ofLse == 2, count}),
             properties.operandSegmentSizes.begin());
  moreTypes.insert(moreTypes.begin(), outputType);
  for (Type type : moreTypes)
    if (isa<RankedTensorType>(type))
      result.addTypes(type);
  return success();
}

void FinalizeOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getAcc() << ", " << getMax() << ", " << getSum() << " : " << getAcc().getType() << ", "
          << getMax().getType() << ", " << getSum().getType();
  if (OperandRange others = getOthers(); !others.empty())
    printer << " with(" << others << " : " << others.getTypes() << ')';
  printer << " into(" << getOutput();
  printDims(printer, getOutputDims());
  printer << " : " << getOutput().getType();
  for (Value destination : getDpsInits().drop_front())
    printer << ", " << destination << " : " << destination.getType();
  printer << ')';
  printer.printOptionalAttrDict((*this)->getAttrs(), {"operandSegmentSizes", getOutputDimsAttrName()});
}

/// Verifies that each operand of `with` has a destination of its rank, element type and bins, with the rows of the
/// output.
static LogicalResult verifyOthers(FinalizeOp op, int64_t rows) {
  for (auto [i, other, destination] : llvm::enumerate(op.getOthers(), op.getOtherOutputs())) {
    auto from = cast<ShapedType>(other.getType()), to = cast<ShapedType>(destination.getType());
    std::string role = ("result " + Twine(i) + " of 'with'").str();
    if (from.getRank() != to.getRank() || from.getElementType() != to.getElementType() ||
        !llvm::is_contained({1, 2}, from.getRank()))
      return op.emitOpError() << role << " has type " << to << ", but the state has " << from;
    if (failed(verifySameExtent(op, "rows", "output", rows, role, to.getDimSize(0))))
      return failure();
    if (from.getRank() == 2 &&
        failed(verifySameExtent(op, "bins", "state", from.getDimSize(1), role, to.getDimSize(1))))
      return failure();
  }
  return success();
}

LogicalResult FinalizeOp::verify() {
  if (failed(verifyState(*this, getAcc(), getMax(), getSum())))
    return failure();
  if (getOutputDims().size() != 2 || cast<ShapedType>(getOutput().getType()).getRank() != 2)
    return emitOpError() << "output tile has rank " << cast<ShapedType>(getOutput().getType()).getRank()
                         << ", expected s and d";
  if (!isAttentionElement(getElementTypeOrSelf(getOutput())))
    return emitOpError() << "output tile has element type " << getElementTypeOrSelf(getOutput())
                         << ", expected f64, f32, f16 or bf16";
  int64_t rows = getStaticDimSize(getOutput(), getOutputDims(), Dim::Seq);
  if (failed(verifyRows(*this, "output", rows, getAcc())) ||
      failed(verifyColumns(*this, "output", getStaticDimSize(getOutput(), getOutputDims(), Dim::Depth), getAcc())))
    return failure();
  if (failed(verifyOthers(*this, rows)))
    return failure();
  for (auto [role, tile] :
       {std::pair("log-sum-exp tile", getLse()), std::pair("low part of the log-sum-exp", getLseLow())}) {
    if (!tile)
      continue;
    auto type = cast<ShapedType>(tile.getType());
    if (type.getRank() != 1)
      return emitOpError() << role << " has rank " << type.getRank() << ", expected 1";
    if (type.getElementType() != getElementTypeOrSelf(getAcc()))
      return emitOpError() << role << " has element type " << type.getElementType() << ", but accumulator has "
                           << getElementTypeOrSelf(getAcc());
    if (failed(verifySameExtent(*this, "rows", "output", rows, role, type.getDimSize(0))))
      return failure();
  }
  if (getLseLow() && !getNaturalMax())
    return emitOpError() << "has the low part of the log-sum-exp, expected 'natural_max'";
  return success();
}

void FinalizeOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addBufferEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}
