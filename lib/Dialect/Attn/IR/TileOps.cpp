//===- TileOps.cpp - attn.accumulate, attn.merge, attn.finalize ---------------===//
//
// Attention cut into tiles of keys: destination-style ops on tensors or buffers whose state
// (accumulator, running max, running sum) is visible.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/IR/Builders.h"

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

/// On tensors one result for each destination, of its type; on buffers none.
static LogicalResult verifyResults(DestinationStyleOpInterface op) {
  SmallVector<Type> wanted;
  for (Value init : op.getDpsInits())
    if (isa<RankedTensorType>(init.getType()))
      wanted.push_back(init.getType());
  if (!llvm::equal(op->getResultTypes(), wanted))
    return op->emitOpError() << "has " << op->getNumResults() << " results, expected one for each tensor destination, of its type";
  return success();
}

/// The rows of `state` must hold those of `value`.
static LogicalResult verifyRows(Operation *op, StringRef role, int64_t rows, Value acc) {
  int64_t capacity = cast<ShapedType>(acc.getType()).getDimSize(0);
  if (ShapedType::isDynamic(rows) || ShapedType::isDynamic(capacity) || rows <= capacity)
    return success();
  return op->emitOpError() << role << " has " << rows << " rows, but accumulator has " << capacity;
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
  if (failed(verifyOperands(*this)) || failed(verifyState(*this, getAcc(), getMax(), getSum())) ||
      failed(verifyResults(cast<DestinationStyleOpInterface>(getOperation()))))
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
  int64_t depth = getStaticDimSize(getValue(), getValueDims(), Dim::Depth);
  int64_t columns = cast<ShapedType>(getAcc().getType()).getDimSize(1);
  if (!ShapedType::isDynamic(depth) && !ShapedType::isDynamic(columns) && columns < depth)
    return emitOpError() << "accumulator has " << columns << " columns, expected the head size " << depth
                         << " of value or more";
  return success();
}

LogicalResult AccumulateOp::verifyRegions() { return syntax::verifyRegions(*this); }

void AccumulateOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
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
  if (failed(verifySameExtent(*this, "rows", "state", ours.getDimSize(0), "other state", theirs.getDimSize(0))) ||
      failed(verifySameExtent(*this, "head size", "state", ours.getDimSize(1), "other state", theirs.getDimSize(1))))
    return failure();
  return verifyResults(cast<DestinationStyleOpInterface>(getOperation()));
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
  if (getLse() && cast<ShapedType>(getLse().getType()).getRank() != 1)
    return emitOpError() << "log-sum-exp tile has rank " << cast<ShapedType>(getLse().getType()).getRank()
                         << ", expected 1";
  if (failed(verifyRows(*this, "output", getStaticDimSize(getOutput(), getOutputDims(), Dim::Seq), getAcc())))
    return failure();
  return verifyResults(cast<DestinationStyleOpInterface>(getOperation()));
}

void FinalizeOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}
