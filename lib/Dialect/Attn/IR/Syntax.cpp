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

/// Parses `stick_breaking` or a region.
ParseResult parseNormalizer(OpAsmParser &parser, Clauses &clauses) {
  clauses.hasStickBreaking = succeeded(parser.parseOptionalKeyword("stick_breaking"));
  return clauses.hasStickBreaking ? success()
                                  : parseScoringRegion(parser, "normalizer", "s", clauses, clauses.normalizer);
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

/// Parses a clause after its name, which is at `loc`.
using ClauseParser = ParseResult (*)(OpAsmParser &, Clauses &, SMLoc loc);

template <std::optional<Clauses::Typed> Clauses::*typed>
ParseResult parseTypedClause(OpAsmParser &parser, Clauses &clauses, SMLoc) {
  return parseTyped(parser, clauses.*typed);
}

template <bool Clauses::*flag> ParseResult setFlag(OpAsmParser &, Clauses &clauses, SMLoc) {
  clauses.*flag = true;
  return success();
}

struct ClauseRow {
  StringRef name;
  ClauseParser parse;
  StringRef owner = ""; ///< the op that alone has the clause; empty if attn.attention has it
  bool isRegion = false;
  bool mayRepeat = false;
};

constexpr StringRef ofAccumulate = "attn.accumulate", ofGradient = "attn.gradient", ofJvp = "attn.jvp",
                    ofWeights = "attn.weights";

constexpr ClauseRow clauseRows[] = {
    {"captures", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseCaptures(parser, clauses); }},
    {"q_len", parseTypedClause<&Clauses::queryLength>},
    {"kv_len", parseTypedClause<&Clauses::keyLength>},
    {"cu_seqlens_q", parseTypedClause<&Clauses::cuSeqlensQ>},
    {"cu_seqlens_k", parseTypedClause<&Clauses::cuSeqlensK>},
    {"scale", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseScale(parser, clauses); }},
    {"qk_type", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseQkType(parser, clauses.qkType); }},
    {"at", [](OpAsmParser &parser, Clauses &clauses,
              SMLoc) { return parser.parseOperandList(clauses.at, AsmParser::Delimiter::Paren); }},
    {"sink", parseTypedClause<&Clauses::sink>},
    {.name = "mask",
     .parse = [](OpAsmParser &parser, Clauses &clauses,
                 SMLoc) { return parseMask(parser, clauses.capturedTypes, clauses.mask); },
     .isRegion = true,
     .mayRepeat = true},
    {.name = "score",
     .parse = [](OpAsmParser &parser, Clauses &clauses,
                 SMLoc) { return parseScoringRegion(parser, "score", "s", clauses, clauses.score); },
     .isRegion = true},
    {.name = "weight",
     .parse = [](OpAsmParser &parser, Clauses &clauses,
                 SMLoc) { return parseScoringRegion(parser, "weight", "p", clauses, clauses.weight); },
     .isRegion = true},
    {.name = "normalizer",
     .parse = [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseNormalizer(parser, clauses); },
     .isRegion = true},
    {"dropout", [](OpAsmParser &parser, Clauses &clauses, SMLoc loc) { return parseDropout(parser, loc, clauses); }},
    {.name = "tally",
     .parse = [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseTally(parser, clauses); },
     .isRegion = true,
     .mayRepeat = true},
    {"lse", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseLse(parser, clauses.hasLse, clauses.lse); }},
    {"lse_low",
     [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseLse(parser, clauses.hasLseLow, clauses.lseLow); }},
    {"max", setFlag<&Clauses::hasMax>},
    {"argmax", setFlag<&Clauses::hasArgmax>},
    {"out", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseDims(parser, clauses.outputDims); }},
    {"into", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseInto(parser, clauses); }, ofAccumulate},
    {"output_gradient",
     [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseOutputGradient(parser, clauses); }, ofGradient},
    {"delta", parseTypedClause<&Clauses::delta>, ofGradient},
    {"gradient", [](OpAsmParser &parser, Clauses &clauses, SMLoc) { return parseGradient(parser, clauses); },
     ofGradient, /*isRegion=*/true},
    {"query_tangent", parseTypedClause<&Clauses::queryTangent>, ofJvp},
    {"key_tangent", parseTypedClause<&Clauses::keyTangent>, ofJvp},
    {"value_tangent", parseTypedClause<&Clauses::valueTangent>, ofJvp},
    {"scale_tangent", parseTypedClause<&Clauses::scaleTangent>, ofJvp},
    {"tangent",
     [](OpAsmParser &parser, Clauses &clauses, SMLoc) {
       return parseScoringRegion(parser, "tangent", "p, s, ds", clauses, clauses.tangent);
     },
     ofJvp, /*isRegion=*/true},
};

/// The names of all clauses, or of those that attn.attention has.
SmallVector<StringRef> clauseNames(bool ofAttention = false) {
  SmallVector<StringRef> names;
  for (const ClauseRow &row : clauseRows)
    if (!ofAttention || row.owner.empty())
      names.push_back(row.name);
  return names;
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

ParseResult syntax::parseClauses(OpAsmParser &parser, Clauses &clauses, bool hasValue) {
  if (parser.parseOperand(clauses.query) || parseDims(parser, clauses.queryDims) || parser.parseComma() ||
      parser.parseOperand(clauses.key) || parseDims(parser, clauses.keyDims))
    return failure();
  if (hasValue && (parser.parseComma() || parser.parseOperand(clauses.value) || parseDims(parser, clauses.valueDims)))
    return failure();
  bool sawRegion = false;
  StringRef name;
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<StringRef> names = clauseNames();
  while (succeeded(parser.parseOptionalKeyword(&name, names))) {
    const ClauseRow &row = *llvm::find_if(clauseRows, [&](const ClauseRow &each) { return each.name == name; });
    if (!clauses.given.insert(row.name).second && !row.mayRepeat)
      return parser.emitError(loc, "clause '") << name << "' is given twice";
    if (name == "captures" && sawRegion)
      return parser.emitError(loc, "captures must come before the regions that read them");
    if (row.parse(parser, clauses, loc))
      return failure();
    sawRegion |= row.isRegion;
    loc = parser.getCurrentLocation();
  }
  if (refuseUnknownClause(parser, "an attention op", clauseNames(/*ofAttention=*/true)))
    return failure();
  return joinNormalizer(parser, loc, clauses);
}

ParseResult syntax::joinNormalizer(OpAsmParser &parser, SMLoc loc, Clauses &clauses) {
  if (!clauses.normalizer && !clauses.hasStickBreaking)
    return success();
  // The last ones of a softmax, and of its state.
  for (StringRef clause : {"lse", "lse_low", "sink", "max", "argmax", "tally", "delta"})
    if (clauses.given.contains(clause))
      return parser.emitError(loc, "'") << clause
                                        << "' belongs to a softmax, but the weights are those of 'normalizer'";
  if (clauses.hasStickBreaking)
    return success();
  std::unique_ptr<Region> weight = std::move(clauses.weight);
  clauses.weight = std::move(clauses.normalizer);
  if (!weight)
    return success();
  // The regions are not verified yet, so they may have any terminator.
  for (Region *region : {clauses.weight.get(), weight.get()})
    if (!region->hasOneBlock() || region->front().empty() || !isa<YieldOp>(region->front().back()) ||
        region->front().back().getNumOperands() != 1)
      return parser.emitError(loc, "a weight region after 'normalizer' needs two regions of one block that yield a "
                                   "number");
  Block &block = clauses.weight->front(), &next = weight->front();
  auto yield = cast<YieldOp>(block.back());
  if (yield.getOperand().getType() != next.getArgument(0).getType())
    return parser.emitError(loc, "the normalizer yields ")
           << yield.getOperand().getType() << ", but the weight region takes " << next.getArgument(0).getType();
  next.getArgument(0).replaceAllUsesWith(yield.getOperand());
  for (auto [from, to] : llvm::zip_equal(next.getArguments().drop_front(), block.getArguments().drop_front()))
    from.replaceAllUsesWith(to);
  yield->erase();
  block.getOperations().splice(block.end(), next.getOperations());
  return success();
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

ParseResult syntax::refuseForeignClauses(OpAsmParser &parser, SMLoc loc, const Clauses &clauses, StringRef op) {
  bool isDerivative = op == ofGradient || op == ofJvp;
  if (isDerivative && clauses.qkType)
    return parser.emitError(loc, "'qk_type' belongs to attn.attention; derivatives are those of unquantized attention");
  auto refuse = [&](StringRef clause, StringRef owner) -> ParseResult {
    return parser.emitError(loc, "'") << clause << "' belongs to " << owner;
  };
  // Derivatives read the log-sum-exp, of which other ops have a result.
  if (!isDerivative && op != ofWeights && (clauses.lse || clauses.lseLow))
    return refuse(clauses.lse ? "lse(...)" : "lse_low(...)", ofGradient);
  for (const ClauseRow &row : clauseRows)
    if (!row.owner.empty() && row.owner != op && clauses.given.contains(row.name))
      return refuse(row.name, row.owner);
  return success();
}

ParseResult Clauses::resolveWholeOperands(OpAsmParser &parser, SMLoc loc, ArrayRef<Type> types,
                                          OperationState &result) const {
  SmallVector<Operand> tensors = {query, key};
  if (valueDims)
    tensors.push_back(value);
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
  if (!isa<WeightsOp>(op.getOperation())) {
    printer << ", " << op.getValue();
    printDims(printer, op.getValueDims());
  }
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
  if (op.getStickBreaking())
    printer << " normalizer stick_breaking";
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
