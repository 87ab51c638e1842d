//===- Syntax.cpp - Parser and printer of the clauses of attention ops -------===//
//
// One grammar for whole and tiled attention: operands with named dimensions, then clauses in any
// order, each at most once (`mask` may be repeated).
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

ParseResult syntax::parseDimNames(AsmParser &parser, SmallVectorImpl<Dim> &names, AsmParser::Delimiter delimiter) {
  auto parseOne = [&]() -> ParseResult {
    StringRef name;
    SMLoc nameLoc = parser.getCurrentLocation();
    if (parser.parseKeyword(&name))
      return failure();
    std::optional<Dim> dim = symbolizeDim(name);
    if (!dim)
      return parser.emitError(nameLoc, "unknown dimension '") << name << "', expected b, h, s or d";
    names.push_back(*dim);
    return success();
  };
  return parser.parseCommaSeparatedList(delimiter, parseOne);
}

ParseResult syntax::parseDims(AsmParser &parser, DimsAttr &dims, AsmParser::Delimiter delimiter) {
  SmallVector<Dim> names;
  SMLoc loc = parser.getCurrentLocation();
  if (parseDimNames(parser, names, delimiter))
    return failure();
  dims = DimsAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), ArrayRef<Dim>(names));
  return success(dims != nullptr);
}

void syntax::printDims(OpAsmPrinter &printer, ArrayRef<Dim> dims) {
  printer << '[';
  llvm::interleave(
      dims, [&](Dim dim) { printer << stringifyDim(dim); }, [&] { printer << ","; });
  printer << ']';
}

namespace {

ParseResult parseTyped(OpAsmParser &parser, std::optional<Clauses::Typed> &typed) {
  typed.emplace();
  return failure(parser.parseLParen() || parser.parseOperand(typed->operand) ||
                 parser.parseColonType(typed->type) || parser.parseRParen());
}

ParseResult parseScale(OpAsmParser &parser, Clauses &clauses) {
  if (parser.parseLParen())
    return failure();
  Clauses::Operand operand;
  OptionalParseResult isOperand = parser.parseOptionalOperand(operand);
  if (isOperand.has_value()) {
    clauses.scaleValue.emplace();
    clauses.scaleValue->operand = operand;
    return failure(*isOperand || parser.parseColonType(clauses.scaleValue->type) || parser.parseRParen());
  }
  double scale;
  if (parser.parseFloat(scale) || parser.parseRParen())
    return failure();
  clauses.scale = parser.getBuilder().getF64FloatAttr(scale);
  return success();
}

/// The arguments and the body of a region `name` that takes a score or a weight, called `first`.
ParseResult parseScoringRegion(OpAsmParser &parser, StringRef name, StringRef first, const Clauses &clauses,
                               std::unique_ptr<Region> &region) {
  SmallVector<OpAsmParser::Argument> args;
  SMLoc loc = parser.getCurrentLocation();
  auto parseOne = [&]() -> ParseResult {
    OpAsmParser::Argument &arg = args.emplace_back();
    if (parser.parseArgument(arg))
      return failure();
    // Only the score may carry a type: f64 where the inputs are f64, else f32.
    if (args.size() != 1 || failed(parser.parseOptionalColon()))
      return success();
    return failure(parser.parseType(arg.type) || parser.parseOptionalLocationSpecifier(arg.sourceLoc));
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOne))
    return failure();
  unsigned expected = 5 + clauses.capturedTypes.size();
  if (args.size() != expected)
    return parser.emitError(loc, name) << " region has " << args.size() << " arguments, expected " << expected << ": ("
                                       << first << ", b, h, q, k"
                                       << (clauses.capturedTypes.empty() ? "" : ", captures...") << ")";
  if (!args[0].type)
    args[0].type = parser.getBuilder().getF32Type();
  for (OpAsmParser::Argument &arg : MutableArrayRef(args).slice(1, 4))
    arg.type = parser.getBuilder().getIndexType();
  for (auto [arg, type] : llvm::zip_equal(MutableArrayRef(args).drop_front(5), clauses.capturedTypes))
    arg.type = type;
  region = std::make_unique<Region>();
  return parser.parseRegion(*region, args, /*enableNameShadowing=*/true);
}

ParseResult parseTally(OpAsmParser &parser, Clauses &clauses) {
  if (parser.parseLess() || parser.parseInteger(clauses.bins.emplace_back()) || parser.parseGreater())
    return failure();
  return parseScoringRegion(parser, "tally", "s", clauses, clauses.tallies.emplace_back());
}

ParseResult parseCaptures(OpAsmParser &parser, Clauses &clauses) {
  if (parser.parseLParen() || parser.parseOperandList(clauses.captures) ||
      parser.parseColonTypeList(clauses.captureTypes) || parser.parseRParen())
    return failure();
  llvm::append_range(clauses.capturedTypes, llvm::map_range(clauses.captureTypes, getCapturedType));
  return success();
}

ParseResult parseInto(OpAsmParser &parser, Clauses &clauses) {
  return failure(parser.parseLParen() || parser.parseOperandList(clauses.into) ||
                 parser.parseColonTypeList(clauses.intoTypes) || parser.parseRParen());
}

} // namespace

ParseResult syntax::parseClauses(OpAsmParser &parser, Clauses &clauses) {
  if (parser.parseOperand(clauses.query) || parseDims(parser, clauses.queryDims) || parser.parseComma() ||
      parser.parseOperand(clauses.key) || parseDims(parser, clauses.keyDims) || parser.parseComma() ||
      parser.parseOperand(clauses.value) || parseDims(parser, clauses.valueDims))
    return failure();
  bool sawRegion = false;
  llvm::SmallDenseSet<StringRef> seen;
  StringRef clause;
  SMLoc loc = parser.getCurrentLocation();
  while (succeeded(
      parser.parseOptionalKeyword(&clause, {"captures", "q_len", "kv_len", "cu_seqlens_q", "cu_seqlens_k", "scale", "at", "sink",
                                            "into", "mask", "score", "weight", "tally", "lse", "max", "argmax", "out"}))) {
    bool isRegion = clause == "mask" || clause == "score" || clause == "weight" || clause == "tally";
    if (clause != "mask" && clause != "tally" && !seen.insert(clause).second)
      return parser.emitError(loc, "clause '") << clause << "' is given twice";
    if (clause == "captures" && sawRegion)
      return parser.emitError(loc, "captures must come before the regions that read them");
    ParseResult result = success();
    if (clause == "captures")
      result = parseCaptures(parser, clauses);
    else if (clause == "q_len")
      result = parseTyped(parser, clauses.queryLength);
    else if (clause == "kv_len")
      result = parseTyped(parser, clauses.keyLength);
    else if (clause == "cu_seqlens_q")
      result = parseTyped(parser, clauses.cuSeqlensQ);
    else if (clause == "cu_seqlens_k")
      result = parseTyped(parser, clauses.cuSeqlensK);
    else if (clause == "scale")
      result = parseScale(parser, clauses);
    else if (clause == "at")
      result = parser.parseOperandList(clauses.at, AsmParser::Delimiter::Paren);
    else if (clause == "sink")
      result = parseTyped(parser, clauses.sink);
    else if (clause == "into")
      result = parseInto(parser, clauses);
    else if (clause == "out")
      result = parseDims(parser, clauses.outputDims);
    else if (clause == "mask")
      result = parseMask(parser, clauses.capturedTypes, clauses.mask);
    else if (clause == "score")
      result = parseScoringRegion(parser, clause, "s", clauses, clauses.score);
    else if (clause == "weight")
      result = parseScoringRegion(parser, clause, "p", clauses, clauses.weight);
    else if (clause == "tally")
      result = parseTally(parser, clauses);
    else
      (clause == "lse" ? clauses.wantsLse : clause == "max" ? clauses.wantsMax : clauses.wantsArgmax) = true;
    if (failed(result))
      return failure();
    sawRegion |= isRegion;
    loc = parser.getCurrentLocation();
  }
  return success();
}

void Clauses::addRegionsTo(OperationState &result) {
  for (auto *region : {&score, &mask, &weight})
    result.addRegion(*region ? std::move(*region) : std::make_unique<Region>());
  for (std::unique_ptr<Region> &tally : tallies)
    result.addRegion(std::move(tally));
}

void syntax::printHead(OpAsmPrinter &printer, ScoringOpInterface op, Value queryLength, Value keyLength) {
  printer << ' ' << op.getQuery();
  printDims(printer, op.getQueryDims());
  printer << ", " << op.getKey();
  printDims(printer, op.getKeyDims());
  printer << ", " << op.getValue();
  printDims(printer, op.getValueDims());
  if (OperandRange captures = op.getCaptures(); !captures.empty())
    printer << " captures(" << captures << " : " << captures.getTypes() << ')';
  if (queryLength)
    printer << " q_len(" << queryLength << " : " << queryLength.getType() << ')';
  if (keyLength)
    printer << " kv_len(" << keyLength << " : " << keyLength.getType() << ')';
  if (Value scale = op.getScaleValue())
    printer << " scale(" << scale << " : " << scale.getType() << ')';
  if (FloatAttr scale = op.getScaleAttr()) {
    printer << " scale(";
    printer.printAttributeWithoutType(scale);
    printer << ')';
  }
  if (OperandRange at = op.getAt(); !at.empty())
    printer << " at(" << at << ')';
}

void syntax::printRegions(OpAsmPrinter &printer, ScoringOpInterface op, ArrayRef<int64_t> bins) {
  for (auto [name, region] : getNamedRegions(op)) {
    printer.increaseIndent();
    printer.printNewline();
    printer << name;
    if (name == "tally") {
      printer << '<' << bins.front() << '>';
      bins = bins.drop_front();
    }
    printer << '(';
    llvm::interleaveComma(region->getArguments(), printer, [&](BlockArgument arg) {
      printer.printRegionArgument(arg, {}, /*omitType=*/!arg.getType().isF64() || arg.getArgNumber() != 0);
    });
    printer << ") ";
    printer.printRegion(*region, /*printEntryBlockArgs=*/false);
    printer.decreaseIndent();
  }
}

void syntax::nameRegionArguments(ScoringOpInterface op, Region &region, OpAsmSetValueNameFn setName) {
  if (region.empty())
    return;
  StringRef names[] = {&region == &op.getWeight() ? "p" : "s", "b", "h", "q", "k"};
  unsigned first = &region == &op.getMask() ? 1 : 0;
  for (auto [arg, name] : llvm::zip(region.getArguments(), ArrayRef(names).drop_front(first)))
    setName(arg, name);
}
