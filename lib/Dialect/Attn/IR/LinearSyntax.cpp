//===- LinearSyntax.cpp - The syntax of linear attention ----------------------===//
//
// Parser and printer of attn.linear and attn.linear_gradient, whose clauses are not those of attention.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

namespace {

/// An operand in parentheses with its dimensions, if its clause has them: `(%g[b,s,h] : type)`.
struct LinearOperand {
  StringRef clause;
  enum Kind { Axes, Tensor, Plain } kind;
  bool isOfGradient = false; ///< only of attn.linear_gradient
  std::optional<OpAsmParser::UnresolvedOperand> operand = std::nullopt;
  Attribute dims = nullptr;
  Type type = nullptr;

  ParseResult parse(OpAsmParser &parser) {
    if (parser.parseLParen() || parser.parseOperand(operand.emplace()))
      return failure();
    SMLoc loc = parser.getCurrentLocation();
    if (kind == Tensor) {
      DimsAttr named;
      if (parseDims(parser, named))
        return failure();
      dims = named;
    } else if (kind == Axes) {
      SmallVector<Dim> names;
      if (parseDimNames(parser, names))
        return failure();
      dims = AxesAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), ArrayRef<Dim>(names));
      if (!dims)
        return failure();
    }
    return failure(parser.parseColonType(type) || parser.parseRParen());
  }
};

/// The clauses with operands, in the order of the operands.
std::array<LinearOperand, 8> linearOperands() {
  return {{{"decay", LinearOperand::Axes},
           {"beta", LinearOperand::Axes},
           {"erase", LinearOperand::Tensor},
           {"state", LinearOperand::Plain},
           {"cu_seqlens", LinearOperand::Plain},
           {"kv_len", LinearOperand::Plain},
           {"output_gradient", LinearOperand::Tensor, true},
           {"state_gradient", LinearOperand::Plain, true}}};
}

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

/// What both ops have. Parts that only attn.linear has remain null for the other.
struct LinearParser {
  LinearParser(OpAsmParser &parser, OperationState &result) : parser(parser), result(result) {}

  OpAsmParser &parser;
  OperationState &result;
  DimsAttr query, key, value, output;
  FloatAttr scale, l2norm;
  UnitAttr causal, normalize;
  std::array<LinearOperand, 8> operands = linearOperands();
  SmallVector<Type> resultTypes;

  ParseResult parse(Region *feature);
  ParseResult parseClause(StringRef clause, Region *feature);
  template <typename Properties> void setCommon(Properties &properties);
};

ParseResult LinearParser::parseClause(StringRef clause, Region *feature) {
  if (clause == "causal" || clause == "normalize") {
    (clause == "causal" ? causal : normalize) = parser.getBuilder().getUnitAttr();
    return success();
  }
  if (clause == "scale" || clause == "l2norm") {
    double number;
    if (parser.parseLParen() || parser.parseFloat(number) || parser.parseRParen())
      return failure();
    (clause == "scale" ? scale : l2norm) = parser.getBuilder().getF64FloatAttr(number);
    return success();
  }
  if (clause == "feature")
    return parseFeature(parser, *feature);
  if (clause == "out")
    return parseDims(parser, output);
  return llvm::find_if(operands, [&](const LinearOperand &each) { return each.clause == clause; })->parse(parser);
}

ParseResult LinearParser::parse(Region *feature) {
  OpAsmParser::UnresolvedOperand tensors[3];
  DimsAttr *dims[] = {&query, &key, &value};
  for (unsigned i = 0; i < 3; ++i)
    if ((i && parser.parseComma()) || parser.parseOperand(tensors[i]) || parseDims(parser, *dims[i]))
      return failure();
  output = query;
  SmallVector<StringRef> names = {"causal", "scale", "out"};
  if (feature)
    names.append({"normalize", "l2norm", "feature"});
  for (const LinearOperand &each : operands)
    if (!feature || !each.isOfGradient)
      names.push_back(each.clause);
  llvm::SmallDenseSet<StringRef> seen;
  StringRef clause;
  SMLoc loc = parser.getCurrentLocation();
  while (succeeded(parser.parseOptionalKeyword(&clause, names))) {
    if (!seen.insert(clause).second)
      return parser.emitError(loc, "clause '") << clause << "' is given twice";
    if (parseClause(clause, feature))
      return failure();
    loc = parser.getCurrentLocation();
  }
  if (refuseUnknownClause(parser, result.name.getStringRef(), names))
    return failure();
  Type types[3];
  if (parser.parseOptionalAttrDict(result.attributes) || parser.parseColon() || parser.parseLParen() ||
      parser.parseType(types[0]) || parser.parseComma() || parser.parseType(types[1]) || parser.parseComma() ||
      parser.parseType(types[2]) || parser.parseRParen() || parser.parseArrowTypeList(resultTypes))
    return failure();
  for (unsigned i = 0; i < 3; ++i)
    if (parser.resolveOperand(tensors[i], types[i], result.operands))
      return failure();
  for (LinearOperand &each : operands)
    if (each.operand && parser.resolveOperand(*each.operand, each.type, result.operands))
      return failure();
  result.addTypes(resultTypes);
  return success();
}

template <typename Properties> void LinearParser::setCommon(Properties &properties) {
  properties.query_dims = query, properties.key_dims = key, properties.value_dims = value;
  properties.output_dims = output;
  properties.scale = scale;
  properties.causal = causal;
  properties.decay_axes = dyn_cast_or_null<AxesAttr>(operands[0].dims);
  properties.beta_axes = dyn_cast_or_null<AxesAttr>(operands[1].dims);
  properties.erase_dims = dyn_cast_or_null<DimsAttr>(operands[2].dims);
  SmallVector<int32_t> segments = {1, 1, 1};
  for (const LinearOperand &each : operands)
    segments.push_back(each.operand ? 1 : 0);
  llvm::copy(ArrayRef(segments).take_front(properties.operandSegmentSizes.size()),
             properties.operandSegmentSizes.begin());
}

void printScalar(OpAsmPrinter &printer, StringRef clause, FloatAttr number) {
  if (!number)
    return;
  printer << ' ' << clause << '(';
  printer.printAttributeWithoutType(number);
  printer << ')';
}

/// Prints the operands that both ops have, and the clauses `causal`, `scale` and `out`.
void printCommon(OpAsmPrinter &printer, LinearOpInterface op) {
  printer << ' ' << op.getQuery();
  printDims(printer, op.getQueryDims());
  printer << ", " << op.getKey();
  printDims(printer, op.getKeyDims());
  printer << ", " << op.getValue();
  printDims(printer, op.getValueDims());
  if (op.getCausal())
    printer << " causal";
  printScalar(printer, "scale", op.getScaleAttr());
  auto print = [&](StringRef clause, Value value, ArrayRef<Dim> dims) {
    if (!value)
      return;
    printer << ' ' << clause << '(' << value;
    if (!dims.empty() || clause == "decay" || clause == "beta")
      printDims(printer, dims);
    printer << " : " << value.getType() << ')';
  };
  print("decay", op.getDecay(), op.getDecay() ? op.getDecayAxesAttr().getDims() : ArrayRef<Dim>());
  print("beta", op.getBeta(), op.getBeta() ? op.getBetaAxesAttr().getDims() : ArrayRef<Dim>());
  print("erase", op.getErase(), op.getErase() ? op.getEraseDimsAttr().getDims() : ArrayRef<Dim>());
  print("state", op.getState(), {});
  print("cu_seqlens", op.getCuSeqlens(), {});
  print("kv_len", op.getKvLen(), {});
}

void printOutputDims(OpAsmPrinter &printer, LinearOpInterface op) {
  if (op.getOutputDims() == op.getQueryDims())
    return;
  printer << " out";
  printDims(printer, op.getOutputDims());
}

void printTypes(OpAsmPrinter &printer, LinearOpInterface op) {
  printer << " : (" << op.getQuery().getType() << ", " << op.getKey().getType() << ", " << op.getValue().getType()
          << ") -> ";
  if (op->getNumResults() == 1)
    printer << op->getResult(0).getType();
  else
    printer << '(' << op->getResultTypes() << ')';
}

} // namespace

ParseResult LinearOp::parse(OpAsmParser &parser, OperationState &result) {
  SMLoc start = parser.getCurrentLocation();
  LinearParser linear(parser, result);
  if (linear.parse(result.addRegion()))
    return failure();
  if (linear.resultTypes.empty() || linear.resultTypes.size() > 2)
    return parser.emitError(start, "has ")
           << linear.resultTypes.size() << " result types, expected the output and optionally the final state";
  Properties &properties = result.getOrAddProperties<Properties>();
  linear.setCommon(properties);
  properties.l2norm = linear.l2norm;
  properties.normalize = linear.normalize;
  return success();
}

void LinearOp::print(OpAsmPrinter &printer) {
  printCommon(printer, *this);
  if (getNormalize())
    printer << " normalize";
  printScalar(printer, "l2norm", getL2normAttr());
  printOutputDims(printer, *this);
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
                                 getBetaAxesAttrName(), getEraseDimsAttrName(), getScaleAttrName(), getL2normAttrName(),
                                 getCausalAttrName(), getNormalizeAttrName()});
  printTypes(printer, *this);
}

ParseResult LinearGradientOp::parse(OpAsmParser &parser, OperationState &result) {
  SMLoc start = parser.getCurrentLocation();
  LinearParser linear(parser, result);
  if (linear.parse(/*feature=*/nullptr))
    return failure();
  if (!linear.operands[6].operand)
    return parser.emitError(start, "has no output gradient, expected 'output_gradient(...)'");
  // The dimensions of the output are those of its gradient.
  linear.output = cast<DimsAttr>(linear.operands[6].dims);
  Properties &properties = result.getOrAddProperties<Properties>();
  linear.setCommon(properties);
  SmallVector<int32_t> segments = {1, 1, 1};
  for (unsigned i : {0, 1, 2, 3})
    segments.push_back(linear.operands[i].operand ? 1 : 0);
  size_t expected = llvm::count(segments, 1);
  if (linear.resultTypes.size() != expected)
    return parser.emitError(start, "has ") << linear.resultTypes.size() << " result types, expected " << expected
                                           << ", one for each operand whose gradient it computes";
  llvm::copy(segments, properties.resultSegmentSizes.begin());
  return success();
}

void LinearGradientOp::print(OpAsmPrinter &printer) {
  printCommon(printer, *this);
  printer << " output_gradient(" << getOutputGradient();
  printDims(printer, getOutputDims());
  printer << " : " << getOutputGradient().getType() << ')';
  if (getStateGradient())
    printer << " state_gradient(" << getStateGradient() << " : " << getStateGradient().getType() << ')';
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {getOperandSegmentSizesAttrName(), getResultSegmentSizeAttr(), getQueryDimsAttrName(),
                                 getKeyDimsAttrName(), getValueDimsAttrName(), getOutputDimsAttrName(),
                                 getDecayAxesAttrName(), getBetaAxesAttrName(), getEraseDimsAttrName(),
                                 getScaleAttrName(), getCausalAttrName()});
  printTypes(printer, *this);
}

void LinearOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  if (!region.empty())
    setName(region.getArgument(0), "x");
}
