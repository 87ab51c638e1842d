//===- MaskSugar.cpp - causal<...> and window<...> as mask regions ------------===//
//
// The parser expands mask sugar to arith ops and conjoins all masks of an op, so analyses and code generators handle a
// single mask region.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

namespace {

constexpr StringRef causalForms = "causal<top_left>, causal<bottom_right> or causal<OFFSET>";
constexpr StringRef windowForm = "window<LEFT, RIGHT>, with '*' for an open side";

Value compare(OpBuilder &b, Location loc, arith::CmpIPredicate pred, Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, loc, pred, lhs, rhs);
}

/// key ≤ query + offset.
ParseResult parseCausal(OpAsmParser &parser, SMLoc maskLoc, OpBuilder &b, Location loc, RegionArguments args,
                        Value &holds) {
  if (failed(parser.parseOptionalLess()))
    return parser.emitError(maskLoc, "mask 'causal' has no alignment, expected ") << causalForms;
  Value limit = args.query;
  int64_t offset = 0;
  OptionalParseResult isInteger = parser.parseOptionalInteger(offset);
  if (isInteger.has_value()) {
    if (failed(*isInteger))
      return failure();
    limit = arith::AddIOp::create(b, loc, limit, arith::ConstantIndexOp::create(b, loc, offset));
  } else {
    StringRef alignment;
    SMLoc alignmentLoc = parser.getCurrentLocation();
    if (failed(parser.parseOptionalKeyword(&alignment)))
      return parser.emitError(alignmentLoc, "mask 'causal' has no alignment, expected ") << causalForms;
    if (alignment != "top_left" && alignment != "bottom_right")
      return parser.emitError(alignmentLoc, "mask 'causal' has the unknown alignment '")
             << alignment << "', expected " << causalForms;
    if (alignment == "bottom_right") {
      Value keys = LengthOp::create(b, loc, b.getIndexType(), Role::Key);
      Value queries = LengthOp::create(b, loc, b.getIndexType(), Role::Query);
      limit = arith::AddIOp::create(b, loc, limit, arith::SubIOp::create(b, loc, keys, queries));
    }
  }
  holds = compare(b, loc, arith::CmpIPredicate::sle, args.key, limit);
  return parser.parseGreater();
}

/// query − left ≤ key ≤ query + right; `*` for an open side.
ParseResult parseWindow(OpAsmParser &parser, SMLoc maskLoc, OpBuilder &b, Location loc, RegionArguments args,
                        Value &holds) {
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
    Value limit = arith::AddIOp::create(b, loc, args.query,
                                        arith::ConstantIndexOp::create(b, loc, isLeft ? -distance : distance));
    Value side = compare(b, loc, isLeft ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle, args.key, limit);
    holds = holds ? arith::AndIOp::create(b, loc, holds, side).getResult() : side;
    return success();
  };
  if (failed(parser.parseOptionalLess()))
    return parser.emitError(maskLoc, "mask 'window' has no sides, expected ") << windowForm;
  if (parseSide(/*isLeft=*/true))
    return failure();
  if (failed(parser.parseOptionalComma()))
    return parser.emitError(maskLoc, "mask 'window' has one side, expected ") << windowForm;
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

} // namespace

ParseResult syntax::parseMask(OpAsmParser &parser, ArrayRef<Type> capturedTypes, std::unique_ptr<Region> &mask) {
  auto piece = std::make_unique<Region>();
  SMLoc where = parser.getCurrentLocation();
  StringRef sugar;
  if (succeeded(parser.parseOptionalKeyword(&sugar))) {
    if (sugar != "causal" && sugar != "window")
      return parser.emitError(where, "unknown mask '")
             << sugar << "', expected causal<...>, window<LEFT, RIGHT> or a region (%b, %h, %q, %k, captures...) {...}";
    Location loc = parser.getEncodedSourceLoc(where);
    OpBuilder b(parser.getContext());
    Block *block = b.createBlock(piece.get());
    for (unsigned i = 0; i < 4; ++i)
      block->addArgument(b.getIndexType(), loc);
    for (Type type : capturedTypes)
      block->addArgument(type, loc);
    RegionArguments args = getRegionArguments(*piece, /*numbers=*/0);
    Value holds;
    if (failed(sugar == "causal" ? parseCausal(parser, where, b, loc, args, holds)
                                 : parseWindow(parser, where, b, loc, args, holds)))
      return failure();
    if (!holds)
      holds = arith::ConstantIntOp::create(b, loc, 1, 1);
    YieldOp::create(b, loc, holds);
  } else if (failed(parseMaskRegion(parser, capturedTypes, *piece))) {
    return failure();
  }
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
