//===- Syntax.cpp - Parser and printer of the clauses of attention ops -------===//
//
// The grammar of attention on whole tensors and on tiles: operands with named dimensions, then clauses in any order,
// each at most once (`mask` and `tally` may be repeated).
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "llvm/ADT/StringExtras.h"

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
  llvm::interleave(dims, [&](Dim dim) { printer << stringifyDim(dim); }, [&] { printer << ","; });
  printer << ']';
}

namespace {

/// Clauses of attn.attention, then those that only ops of the compiler have.
constexpr StringRef clauseNames[] = {"captures",
                                     "q_len",
                                     "kv_len",
                                     "cu_seqlens_q",
                                     "cu_seqlens_k",
                                     "scale",
                                     "qk_type",
                                     "at",
                                     "sink",
                                     "mask",
                                     "score",
                                     "weight",
                                     "dropout",
                                     "tally",
                                     "lse",
                                     "lse_low",
                                     "max",
                                     "argmax",
                                     "out",
                                     "into",
                                     "delta",
                                     "tangent",
                                     "output_gradient",
                                     "gradient",
                                     "query_tangent",
                                     "key_tangent",
                                     "value_tangent",
                                     "scale_tangent"};
constexpr size_t attentionClauses = 19;

ParseResult parseTyped(OpAsmParser &parser, std::optional<Clauses::Typed> &typed) {
  typed.emplace();
  return failure(parser.parseLParen() || parser.parseOperand(typed->operand) || parser.parseColonType(typed->type) ||
                 parser.parseRParen());
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

/// Parses `(i8)`.
ParseResult parseQkType(OpAsmParser &parser, TypeAttr &qkType) {
  Type type;
  if (parser.parseLParen() || parser.parseType(type) || parser.parseRParen())
    return failure();
  qkType = TypeAttr::get(type);
  return success();
}

/// Parses the arguments and the body of a region `name` whose first arguments are the numbers `first`.
ParseResult parseScoringRegion(OpAsmParser &parser, StringRef name, StringRef first, const Clauses &clauses,
                               std::unique_ptr<Region> &region) {
  unsigned numbers = first.count(',') + 1;
  SmallVector<OpAsmParser::Argument> args;
  SMLoc loc = parser.getCurrentLocation();
  auto parseOne = [&]() -> ParseResult {
    OpAsmParser::Argument &arg = args.emplace_back();
    if (parser.parseArgument(arg))
      return failure();
    // Only numbers may have a type: f64 for f64 inputs, else f32.
    if (args.size() > numbers || failed(parser.parseOptionalColon()))
      return success();
    return failure(parser.parseType(arg.type) || parser.parseOptionalLocationSpecifier(arg.sourceLoc));
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOne))
    return failure();
  unsigned expected = numbers + 4 + clauses.capturedTypes.size();
  if (args.size() != expected)
    return parser.emitError(loc, name) << " region has " << args.size() << " arguments, expected " << expected << ": ("
                                       << first << ", b, h, q, k"
                                       << (clauses.capturedTypes.empty() ? "" : ", captures...") << ")";
  for (OpAsmParser::Argument &arg : MutableArrayRef(args).take_front(numbers))
    if (!arg.type)
      arg.type = parser.getBuilder().getF32Type();
  for (OpAsmParser::Argument &arg : MutableArrayRef(args).slice(numbers, 4))
    arg.type = parser.getBuilder().getIndexType();
  for (auto [arg, type] : llvm::zip_equal(MutableArrayRef(args).drop_front(numbers + 4), clauses.capturedTypes))
    arg.type = type;
  region = std::make_unique<Region>();
  return parseIsolatedRegion(parser, name, args, *region);
}

ParseResult parseTally(OpAsmParser &parser, Clauses &clauses) {
  if (parser.parseLess() || parser.parseInteger(clauses.bins.emplace_back()) || parser.parseGreater())
    return failure();
  return parseScoringRegion(parser, "tally", "s", clauses, clauses.tallies.emplace_back());
}

/// Parses `<0, 0, 2>`, which may be missing, and the region.
ParseResult parseGradient(OpAsmParser &parser, Clauses &clauses) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::OptionalLessGreater,
                                     [&] { return parser.parseInteger(clauses.reads.emplace_back()); }))
    return failure();
  for (int64_t capture : clauses.reads)
    if (capture < 0 || capture >= int64_t(clauses.captures.size()))
      return parser.emitError(loc, "gradient of capture ")
             << capture << ", but there are " << clauses.captures.size() << " captures";
  return parseScoringRegion(parser, "gradient", "p, s, dp, delta", clauses, clauses.gradient);
}

/// Parses `output_gradient(%do[b,h,s,d] : type)`.
ParseResult parseOutputGradient(OpAsmParser &parser, Clauses &clauses) {
  clauses.outputGradient.emplace();
  return failure(parser.parseLParen() || parser.parseOperand(clauses.outputGradient->operand) ||
                 parseDims(parser, clauses.outputDims) || parser.parseColonType(clauses.outputGradient->type) ||
                 parser.parseRParen());
}

/// Parses `lse` or `lse_low`, which a derivative op gives an operand: `lse(%l : type)`.
ParseResult parseLse(OpAsmParser &parser, bool &isGiven, std::optional<Clauses::Typed> &typed) {
  isGiven = true;
  if (failed(parser.parseOptionalLParen()))
    return success();
  typed.emplace();
  return failure(parser.parseOperand(typed->operand) || parser.parseColonType(typed->type) || parser.parseRParen());
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

ParseResult syntax::parseIsolatedRegion(OpAsmParser &parser, StringRef name, ArrayRef<OpAsmParser::Argument> args,
                                        Region &region, bool hasCaptures) {
  if (parser.parseRegion(region, args, /*enableNameShadowing=*/true))
    return failure();
  // The parser stands in for a value that is not defined yet by an op outside of any block. In an isolated region no
  // definition can follow.
  WalkResult walk = region.walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp(); producer && !producer->getBlock()) {
        InFlightDiagnostic error = emitError(producer->getLoc(), "use of a value that is not defined in the ")
                                   << name << " region, expected one of its arguments or a value computed in it; ";
        if (hasCaptures)
          error << "captures(...) passes values from outside, ";
        error << "constants are defined inside of the region";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

ParseResult syntax::refuseUnknownClause(OpAsmParser &parser, StringRef op, ArrayRef<StringRef> names) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef name;
  if (failed(parser.parseOptionalKeyword(&name)))
    return success();
  InFlightDiagnostic error = parser.emitError(loc, "unknown clause '") << name << "' of " << op << ", expected ";
  bool hasRegions = llvm::is_contained(names, "score");
  if (hasRegions && llvm::is_contained({"soft_cap", "softcap", "alibi", "bias"}, name))
    return error << "a score region, which computes it (docs/guides/scores.md)";
  auto isName = [&](const MaskSugar &sugar) { return sugar.name == name; };
  if (hasRegions && llvm::any_of(parser.getContext()->getLoadedDialect<AttnDialect>()->getMaskSugars(), isName))
    return error << "'mask " << name << "<...>'";
  return error << llvm::join(names, ", ");
}

ParseResult syntax::parseClauses(OpAsmParser &parser, Clauses &clauses) {
  if (parser.parseOperand(clauses.query) || parseDims(parser, clauses.queryDims) || parser.parseComma() ||
      parser.parseOperand(clauses.key) || parseDims(parser, clauses.keyDims) || parser.parseComma() ||
      parser.parseOperand(clauses.value) || parseDims(parser, clauses.valueDims))
    return failure();
  bool sawRegion = false;
  llvm::SmallDenseSet<StringRef> seen;
  StringRef clause;
  SMLoc loc = parser.getCurrentLocation();
  while (succeeded(parser.parseOptionalKeyword(&clause, clauseNames))) {
    bool isRegion = llvm::is_contained({"mask", "score", "weight", "tally", "gradient", "tangent"}, clause);
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
    else if (clause == "qk_type")
      result = parseQkType(parser, clauses.qkType);
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
    else if (clause == "dropout")
      result = parseDropout(parser, loc, clauses);
    else if (clause == "tally")
      result = parseTally(parser, clauses);
    else if (clause == "gradient")
      result = parseGradient(parser, clauses);
    else if (clause == "output_gradient")
      result = parseOutputGradient(parser, clauses);
    else if (clause == "tangent")
      result = parseScoringRegion(parser, clause, "p, s, ds", clauses, clauses.tangent);
    else if (clause == "query_tangent")
      result = parseTyped(parser, clauses.queryTangent);
    else if (clause == "key_tangent")
      result = parseTyped(parser, clauses.keyTangent);
    else if (clause == "value_tangent")
      result = parseTyped(parser, clauses.valueTangent);
    else if (clause == "scale_tangent")
      result = parseTyped(parser, clauses.scaleTangent);
    else if (clause == "delta")
      result = parseTyped(parser, clauses.delta);
    else if (clause == "lse")
      result = parseLse(parser, clauses.hasLse, clauses.lse);
    else if (clause == "lse_low")
      result = parseLse(parser, clauses.hasLseLow, clauses.lseLow);
    else
      (clause == "max" ? clauses.hasMax : clauses.hasArgmax) = true;
    if (failed(result))
      return failure();
    sawRegion |= isRegion;
    loc = parser.getCurrentLocation();
  }
  return refuseUnknownClause(parser, "an attention op", ArrayRef(clauseNames).take_front(attentionClauses));
}

ParseResult syntax::parseDerivative(OpAsmParser &parser, Clauses &clauses, OperationState &result,
                                    SmallVectorImpl<Type> &types, SmallVectorImpl<Type> &resultTypes) {
  SMLoc loc = parser.getCurrentLocation();
  if (parseClauses(parser, clauses) || parser.parseOptionalAttrDict(result.attributes) || parser.parseColon() ||
      parser.parseLParen() || parser.parseTypeList(types) || parser.parseRParen() ||
      parser.parseArrowTypeList(resultTypes))
    return failure();
  if (types.size() != 3)
    return parser.emitError(loc, "has ") << types.size() << " operand types, expected those of query, key and value";
  return success();
}

ParseResult syntax::refuseDerivativeClauses(OpAsmParser &parser, SMLoc loc, const Clauses &clauses, StringRef op) {
  constexpr StringRef ofGradient = "attn.gradient", ofJvp = "attn.jvp";
  bool isDerivative = op == ofGradient || op == ofJvp;
  if (isDerivative && clauses.qkType)
    return parser.emitError(loc, "'qk_type' belongs to attn.attention; derivatives are those of unquantized attention");
  for (auto [isGiven, clause, owner] : {std::tuple(clauses.outputGradient.has_value(), "output_gradient", ofGradient),
                                        std::tuple(clauses.lse && !isDerivative, "lse(...)", ofGradient),
                                        std::tuple(clauses.lseLow && !isDerivative, "lse_low(...)", ofGradient),
                                        std::tuple(clauses.delta.has_value(), "delta", ofGradient),
                                        std::tuple(clauses.gradient != nullptr, "gradient", ofGradient),
                                        std::tuple(clauses.queryTangent.has_value(), "query_tangent", ofJvp),
                                        std::tuple(clauses.keyTangent.has_value(), "key_tangent", ofJvp),
                                        std::tuple(clauses.valueTangent.has_value(), "value_tangent", ofJvp),
                                        std::tuple(clauses.scaleTangent.has_value(), "scale_tangent", ofJvp),
                                        std::tuple(clauses.tangent != nullptr, "tangent", ofJvp)})
    if (isGiven && owner != op)
      return parser.emitError(loc, "'") << clause << "' belongs to " << owner;
  return success();
}

ParseResult Clauses::resolveWholeOperands(OpAsmParser &parser, SMLoc loc, ArrayRef<Type> types,
                                          OperationState &result) const {
  SmallVector<Operand> tensors = {query, key, value};
  SmallVector<Type> atTypes(at.size(), parser.getBuilder().getIndexType());
  return failure(parser.resolveOperands(tensors, types, loc, result.operands) ||
                 parser.resolveOperands(captures, captureTypes, loc, result.operands) ||
                 resolve(parser, queryLength, result) || resolve(parser, keyLength, result) ||
                 resolve(parser, cuSeqlensQ, result) || resolve(parser, cuSeqlensK, result) ||
                 resolve(parser, scaleValue, result) || parser.resolveOperands(at, atTypes, loc, result.operands));
}

void Clauses::addRegionsTo(OperationState &result) {
  for (auto *region : {&score, &mask, &weight})
    result.addRegion(*region ? std::move(*region) : std::make_unique<Region>());
  for (std::unique_ptr<Region> &tally : tallies)
    result.addRegion(std::move(tally));
}

void syntax::printTyped(OpAsmPrinter &printer, ArrayRef<std::pair<StringRef, Value>> operands) {
  for (auto [clause, operand] : operands)
    if (operand)
      printer << ' ' << clause << '(' << operand << " : " << operand.getType() << ')';
}

void syntax::printHead(OpAsmPrinter &printer, ScoringOpInterface op) {
  printer << ' ' << op.getQuery();
  printDims(printer, op.getQueryDims());
  printer << ", " << op.getKey();
  printDims(printer, op.getKeyDims());
  printer << ", " << op.getValue();
  printDims(printer, op.getValueDims());
  if (OperandRange captures = op.getCaptures(); !captures.empty())
    printer << " captures(" << captures << " : " << captures.getTypes() << ')';
  printTyped(printer, {{"q_len", op.getQLen()}, {"kv_len", op.getKvLen()}, {"scale", op.getScaleValue()}});
  if (FloatAttr scale = op.getScaleAttr()) {
    printer << " scale(";
    printer.printAttributeWithoutType(scale);
    printer << ')';
  }
  if (TypeAttr type = op.getQkTypeAttr())
    printer << " qk_type(" << type.getValue() << ')';
  if (OperandRange at = op.getAt(); !at.empty())
    printer << " at(" << at << ')';
}

void syntax::printRegions(OpAsmPrinter &printer, ScoringOpInterface op, ArrayRef<int64_t> bins,
                          ArrayRef<int64_t> reads) {
  for (const NamedRegion &named : getNamedRegions(op)) {
    auto [name, region, numberNames] = named;
    printer.increaseIndent();
    printer.printNewline();
    printer << name;
    if (name == "tally") {
      printer << '<' << bins.front() << '>';
      bins = bins.drop_front();
    }
    if (name == "gradient" && !reads.empty()) {
      printer << '<';
      llvm::interleaveComma(reads, printer);
      printer << '>';
    }
    printer << '(';
    llvm::interleaveComma(region->getArguments(), printer, [&](BlockArgument arg) {
      printer.printRegionArgument(arg, {},
                                  /*omitType=*/!arg.getType().isF64() || arg.getArgNumber() >= numberNames.size());
    });
    printer << ") ";
    printer.printRegion(*region, /*printEntryBlockArgs=*/false);
    printer.decreaseIndent();
  }
}

void syntax::nameRegionArguments(ScoringOpInterface op, Region &region, OpAsmSetValueNameFn setName) {
  for (const NamedRegion &named : getNamedRegions(op)) {
    if (named.region != &region)
      continue;
    SmallVector<StringRef> names(named.numberNames);
    names.append({"b", "h", "q", "k"});
    for (auto [arg, name] : llvm::zip(region.getArguments(), names))
      setName(arg, name);
  }
}
