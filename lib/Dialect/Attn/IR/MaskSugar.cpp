//===- MaskSugar.cpp - Masks by name, as mask regions -------------------------===//
//
// The parser expands mask sugar to scalar code and conjoins all masks of an op, so analyses and code generators handle
// a single mask region. causal<...> and window<...> are here; extensions of the dialect add others.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

namespace {

constexpr StringRef causalForms = "causal<top_left>, causal<bottom_right> or causal<OFFSET>";
constexpr StringRef windowForm = "window<LEFT, RIGHT>, with '*' for an open side";

/// key ≤ query + offset.
ParseResult parseCausal(OpAsmParser &parser, SMLoc where, ImplicitLocOpBuilder &b, const RegionArguments &args,
                        Value &isVisible) {
  if (failed(parser.parseOptionalLess()))
    return parser.emitError(where, "mask 'causal' has no alignment, expected ") << causalForms;
  Value limit = args.query;
  int64_t offset = 0;
  OptionalParseResult isInteger = parser.parseOptionalInteger(offset);
  if (isInteger.has_value()) {
    if (failed(*isInteger))
      return failure();
    limit = arith::AddIOp::create(b, limit, arith::ConstantIndexOp::create(b, offset));
  } else {
    StringRef alignment;
    SMLoc alignmentLoc = parser.getCurrentLocation();
    if (failed(parser.parseOptionalKeyword(&alignment)))
      return parser.emitError(alignmentLoc, "mask 'causal' has no alignment, expected ") << causalForms;
    if (alignment != "top_left" && alignment != "bottom_right")
      return parser.emitError(alignmentLoc, "mask 'causal' has the unknown alignment '")
             << alignment << "', expected " << causalForms;
    if (alignment == "bottom_right") {
      Value keys = LengthOp::create(b, b.getIndexType(), Role::Key);
      Value queries = LengthOp::create(b, b.getIndexType(), Role::Query);
      limit = arith::AddIOp::create(b, limit, arith::SubIOp::create(b, keys, queries));
    }
  }
  isVisible = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, args.key, limit);
  return parser.parseGreater();
}

/// query − left ≤ key ≤ query + right; `*` for an open side.
ParseResult parseWindow(OpAsmParser &parser, SMLoc where, ImplicitLocOpBuilder &b, const RegionArguments &args,
                        Value &isVisible) {
  auto parseSide = [&](bool isLeft) -> ParseResult {
    if (succeeded(parser.parseOptionalStar()))
      return success();
    int64_t distance;
    SMLoc sideLoc = parser.getCurrentLocation();
    OptionalParseResult isInteger = parser.parseOptionalInteger(distance);
    if (!isInteger.has_value())
      return parser.emitError(sideLoc, "mask 'window' has no value for ")
             << (isLeft ? "LEFT" : "RIGHT") << ", expected " << windowForm;
    if (failed(*isInteger))
      return failure();
    if (distance < 0)
      return parser.emitError(sideLoc, "mask 'window' has ")
             << (isLeft ? "LEFT" : "RIGHT") << " = " << distance << ", expected at least 0, or '*' for an open side";
    Value limit =
        arith::AddIOp::create(b, args.query, arith::ConstantIndexOp::create(b, isLeft ? -distance : distance));
    Value side =
        arith::CmpIOp::create(b, isLeft ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle, args.key, limit);
    isVisible = isVisible ? arith::AndIOp::create(b, isVisible, side).getResult() : side;
    return success();
  };
  if (failed(parser.parseOptionalLess()))
    return parser.emitError(where, "mask 'window' has no sides, expected ") << windowForm;
  if (parseSide(/*isLeft=*/true))
    return failure();
  if (failed(parser.parseOptionalComma()))
    return parser.emitError(where, "mask 'window' has one side, expected ") << windowForm;
  return failure(parseSide(/*isLeft=*/false) || parser.parseGreater());
}

/// Appends the body of `piece` to `mask`, which then yields the conjunction of both.
void conjoin(Region &mask, Region &piece) {
  Block &into = mask.front(), &from = piece.front();
  auto firstYield = cast<YieldOp>(into.getTerminator());
  auto secondYield = cast<YieldOp>(from.getTerminator());
  for (auto [arg, otherArg] : llvm::zip_equal(into.getArguments(), from.getArguments()))
    otherArg.replaceAllUsesWith(arg);
  into.getOperations().splice(firstYield->getIterator(), from.getOperations(), from.begin(),
                              secondYield->getIterator());
  OpBuilder b(firstYield);
  Value both = arith::AndIOp::create(b, firstYield.getLoc(), firstYield.getOperand(), secondYield.getOperand());
  firstYield->setOperand(0, both);
}

ParseResult parseMaskRegion(OpAsmParser &parser, ArrayRef<Type> capturedTypes, Region &piece) {
  SmallVector<OpAsmParser::Argument> args;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseArgumentList(args, AsmParser::Delimiter::Paren))
    return failure();
  unsigned expected = 4 + capturedTypes.size();
  if (args.size() != expected)
    return parser.emitError(loc, "mask region has ")
           << args.size() << " arguments, expected " << expected << ": (b, h, q, k"
           << (capturedTypes.empty() ? "" : ", captures...") << ")";
  for (OpAsmParser::Argument &arg : MutableArrayRef(args).take_front(4))
    arg.type = parser.getBuilder().getIndexType();
  for (auto [arg, type] : llvm::zip_equal(MutableArrayRef(args).drop_front(4), capturedTypes))
    arg.type = type;
  return parseIsolatedRegion(parser, "mask", args, piece);
}

/// Parses the mask with this name, and builds its region.
ParseResult parseSugar(OpAsmParser &parser, SMLoc where, StringRef name, ArrayRef<Type> capturedTypes, Region &piece) {
  ArrayRef<MaskSugar> known = parser.getContext()->getLoadedDialect<AttnDialect>()->getMaskSugars();
  auto named = llvm::make_filter_range(known, [&](const MaskSugar &sugar) { return sugar.name == name; });
  if (named.empty()) {
    InFlightDiagnostic error = parser.emitError(where, "unknown mask '") << name << "', expected ";
    llvm::interleaveComma(known, error, [&](const MaskSugar &sugar) { error << sugar.form; });
    return error << " or a region (%b, %h, %q, %k, captures...) {...}";
  }
  if (std::next(named.begin()) != named.end())
    return parser.emitError(where, "mask '") << name << "' is ambiguous, two extensions define it";
  ImplicitLocOpBuilder b(parser.getEncodedSourceLoc(where), parser.getContext());
  Block *block = b.createBlock(&piece);
  for (unsigned i = 0; i < 4; ++i)
    block->addArgument(b.getIndexType(), b.getLoc());
  for (Type type : capturedTypes)
    block->addArgument(type, b.getLoc());
  Value isVisible;
  if (failed(named.begin()->parse(parser, where, b, getRegionArguments(piece, /*numbers=*/0), isVisible)))
    return failure();
  if (!isVisible)
    isVisible = arith::ConstantIntOp::create(b, 1, 1);
  YieldOp::create(b, isVisible);
  return success();
}

} // namespace

void AttnDialect::addMaskSugar(const MaskSugar &sugar) {
  if (llvm::none_of(maskSugars,
                    [&](const MaskSugar &other) { return other.name == sugar.name && other.parse == sugar.parse; }))
    maskSugars.push_back(sugar);
}

void syntax::addMaskSugars(AttnDialect &dialect) {
  dialect.addMaskSugar({"causal", "causal<...>", parseCausal});
  dialect.addMaskSugar({"window", "window<LEFT, RIGHT>", parseWindow});
}

ParseResult syntax::parseMask(OpAsmParser &parser, ArrayRef<Type> capturedTypes, std::unique_ptr<Region> &mask) {
  auto piece = std::make_unique<Region>();
  SMLoc where = parser.getCurrentLocation();
  StringRef name;
  if (succeeded(parser.parseOptionalKeyword(&name)) ? parseSugar(parser, where, name, capturedTypes, *piece)
                                                    : parseMaskRegion(parser, capturedTypes, *piece))
    return failure();
  if (!mask) {
    mask = std::move(piece);
    return success();
  }
  for (Region *region : {mask.get(), piece.get()}) {
    // The region is not verified yet, so it may have any terminator.
    bool isSimple = region->hasOneBlock() && !region->front().empty() && isa<YieldOp>(region->front().back()) &&
                    region->front().back().getNumOperands() == 1;
    if (!isSimple)
      return parser.emitError(where, "a mask that is joined with another must be one block that ends in attn.yield");
  }
  conjoin(*mask, *piece);
  return success();
}
