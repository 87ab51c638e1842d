//===- TileOps.cpp - attn.accumulate, attn.merge, attn.finalize ---------------===//
//
// Attention cut into tiles of keys: destination-style ops on tensors or buffers whose state
// (accumulator, running max, running sum) is visible.
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

/// Buffers that are read or written; tensors have no effects.
static void addEffects(DestinationStyleOpInterface op,
                       SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    effects.emplace_back(MemoryEffects::Read::get(), &operand);
    if (op.isDpsInit(&operand))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
}

/// The rows of `state` must hold those of `value`.
static LogicalResult verifyRows(Operation *op, StringRef role, int64_t rows, Value acc) {
  int64_t capacity = cast<ShapedType>(acc.getType()).getDimSize(0);
  if (ShapedType::isDynamic(rows) || ShapedType::isDynamic(capacity) || rows <= capacity)
    return success();
  return op->emitOpError() << role << " has " << rows << " rows, but accumulator has " << capacity;
}

/// The columns of `acc` must hold those of `value`; there may be more.
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
  if (clauses.into.size() != 3 || clauses.intoTypes.size() != 3)
    return parser.emitError(loc, "'into' has ") << clauses.into.size()
                                                << " destinations, expected accumulator, running max and running sum";
  if (clauses.wantsLse || clauses.outputDims)
    return parser.emitError(loc, "'lse' and 'out' belong to attn.attention; attn.finalize makes the results");
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
                                clauses.keyLength ? 1 : 0, clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size()), 1,
                                1, 1}),
             properties.operandSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.value_dims = clauses.valueDims;
  properties.scale = clauses.scale;
  for (auto *region : {&clauses.score, &clauses.mask})
    result.addRegion(*region ? std::move(*region) : std::make_unique<Region>());
  for (Type type : clauses.intoTypes)
    if (isa<RankedTensorType>(type))
      result.addTypes(type);
  return success();
}

void AccumulateOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this, getQLen(), getKvLen());
  printer << " into(" << getAcc() << ", " << getMax() << ", " << getSum() << " : " << getAcc().getType() << ", "
          << getMax().getType() << ", " << getSum().getType() << ')';
  printRegions(printer, *this);
  printer.printOptionalAttrDict((*this)->getAttrs(), {"operandSegmentSizes", getQueryDimsAttrName(),
                                                      getKeyDimsAttrName(), getValueDimsAttrName(),
                                                      getScaleAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ')';
}

void AccumulateOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameRegionArguments(*this, region, setName);
}

LogicalResult AccumulateOp::verify() {
  if (failed(verifyOperands(*this)) || failed(verifyState(*this, getAcc(), getMax(), getSum())))
    return failure();
  for (auto [role, dims] : {std::pair("query", getQueryDims()), std::pair("key", getKeyDims()),
                            std::pair("value", getValueDims())})
    if (dims.size() != 2)
      return emitOpError() << role << " tile names " << dims.size() << " dimensions, expected s and d";
  if (getElementTypeOrSelf(getAcc()) != getScoreType())
    return emitOpError() << "accumulator has element type " << getElementTypeOrSelf(getAcc()) << ", expected "
                         << getScoreType();
  if (failed(verifyRows(*this, "query", getStaticDimSize(getQuery(), getQueryDims(), Dim::Seq), getAcc())))
    return failure();
  return verifyColumns(*this, "value", getStaticDimSize(getValue(), getValueDims(), Dim::Depth), getAcc());
}

LogicalResult AccumulateOp::verifyRegions() { return syntax::verifyRegions(*this); }

void AccumulateOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}

namespace {

/// accumulate(cast(x)) -> accumulate(x) where x says more about its shape. Upstream has this for every
/// destination-style op, but its form cannot clone an empty region; a higher benefit keeps it away.
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
      // The regions see a captured tensor with its new type.
      for (auto [region, first] : {std::pair(&op.getScore(), 5), std::pair(&op.getMask(), 4)})
        if (!region->empty())
          for (auto [i, capture] : llvm::enumerate(op.getCaptures()))
            region->getArgument(first + i).setType(capture.getType());
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

void AccumulateOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<FoldCastOperands>(context);
}

//===----------------------------------------------------------------------===//
// MergeOp
//===----------------------------------------------------------------------===//

LogicalResult MergeOp::verify() {
  if (failed(verifyState(*this, getAcc(), getMax(), getSum())) ||
      failed(verifyState(*this, getOtherAcc(), getOtherMax(), getOtherSum())))
    return failure();
  auto ours = cast<ShapedType>(getAcc().getType()), theirs = cast<ShapedType>(getOtherAcc().getType());
  if (ours.getElementType() != theirs.getElementType())
    return emitOpError() << "other state has element type " << theirs.getElementType() << ", but state has "
                         << ours.getElementType();
  if (failed(verifySameExtent(*this, "rows", "state", ours.getDimSize(0), "other state", theirs.getDimSize(0))))
    return failure();
  return verifySameExtent(*this, "head size", "state", ours.getDimSize(1), "other state", theirs.getDimSize(1));
}

void MergeOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}

//===----------------------------------------------------------------------===//
// FinalizeOp
//===----------------------------------------------------------------------===//

ParseResult FinalizeOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand state[3], output, lse;
  Type stateTypes[3], outputType, lseType;
  DimsAttr dims;
  if (parser.parseOperand(state[0]) || parser.parseComma() || parser.parseOperand(state[1]) || parser.parseComma() ||
      parser.parseOperand(state[2]) || parser.parseColonType(stateTypes[0]) || parser.parseComma() ||
      parser.parseType(stateTypes[1]) || parser.parseComma() || parser.parseType(stateTypes[2]) ||
      parser.parseKeyword("into") || parser.parseLParen() || parser.parseOperand(output) || parseDims(parser, dims) ||
      parser.parseColonType(outputType))
    return failure();
  bool hasLse = succeeded(parser.parseOptionalComma());
  if (hasLse && (parser.parseOperand(lse) || parser.parseColonType(lseType)))
    return failure();
  if (parser.parseRParen() || parser.parseOptionalAttrDict(result.attributes) ||
      parser.resolveOperands(state, stateTypes, parser.getCurrentLocation(), result.operands) ||
      parser.resolveOperand(output, outputType, result.operands) ||
      (hasLse && parser.resolveOperand(lse, lseType, result.operands)))
    return failure();
  result.getOrAddProperties<Properties>().output_dims = dims;
  for (Type type : {outputType, lseType})
    if (type && isa<RankedTensorType>(type))
      result.addTypes(type);
  return success();
}

void FinalizeOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getAcc() << ", " << getMax() << ", " << getSum() << " : " << getAcc().getType() << ", "
          << getMax().getType() << ", " << getSum().getType() << " into(" << getOutput();
  printDims(printer, getOutputDims());
  printer << " : " << getOutput().getType();
  if (getLse())
    printer << ", " << getLse() << " : " << getLse().getType();
  printer << ')';
  printer.printOptionalAttrDict((*this)->getAttrs(), {getOutputDimsAttrName()});
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
  if (!getLse())
    return success();
  auto lse = cast<ShapedType>(getLse().getType());
  if (lse.getRank() != 1)
    return emitOpError() << "log-sum-exp tile has rank " << lse.getRank() << ", expected 1";
  if (lse.getElementType() != getElementTypeOrSelf(getAcc()))
    return emitOpError() << "log-sum-exp tile has element type " << lse.getElementType() << ", but accumulator has "
                         << getElementTypeOrSelf(getAcc());
  return verifySameExtent(*this, "rows", "output", rows, "log-sum-exp tile", lse.getDimSize(0));
}

void FinalizeOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}
