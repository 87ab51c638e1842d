//===- DropoutSugar.cpp - dropout(...) as a weight region ---------------------===//
//
// The parser expands the clause to arith ops at the end of the weight region, so tiling and code generators handle
// dropout like any weight. The random bits are those of the generator Philox4x32-10 (Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3"), which computes them from a position and a seed: forward and backward, all
// targets and all tilings have the same bits.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

/// A word has 24 bits that are compared with the rate: all integers up to 2^24 are floats.
static constexpr unsigned uniformBits = 24;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

/// Whether `type` is `element`, or a tensor with one element of it.
static bool isOneElement(Type type, function_ref<bool(Type)> isElement) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor.hasStaticShape() && tensor.getRank() <= 1 && tensor.getNumElements() == 1 &&
                      isElement(tensor.getElementType())
                : isElement(type);
}

ParseResult syntax::parseDropout(OpAsmParser &parser, SMLoc loc, Clauses &clauses) {
  Clauses::Dropout &dropout = clauses.dropout.emplace();
  dropout.loc = loc;
  auto parseOperand = [&](std::optional<Clauses::Typed> &typed) -> OptionalParseResult {
    Clauses::Operand operand;
    OptionalParseResult isOperand = parser.parseOptionalOperand(operand);
    if (isOperand.has_value())
      typed.emplace().operand = operand;
    return isOperand;
  };
  auto isFloat = [](Type type) { return type.isF32(); };
  auto isSeed = [](Type type) { return type.isInteger(64); };
  auto isHeads = [](Type type) { return type.isIndex(); };

  if (parser.parseLParen())
    return failure();
  loc = parser.getCurrentLocation();
  OptionalParseResult isOperand = parseOperand(dropout.rate);
  if (isOperand.has_value() ? failed(*isOperand) : failed(parser.parseFloat(dropout.constantRate)))
    return failure();
  if (!dropout.rate && !(dropout.constantRate >= 0 && dropout.constantRate <= 1))
    return parser.emitError(loc, "dropout has the rate ") << dropout.constantRate << ", expected one in [0, 1]";
  if (parser.parseComma() || parser.parseOperand(dropout.seed.emplace().operand))
    return failure();
  if (succeeded(parser.parseOptionalComma())) {
    isOperand = parseOperand(dropout.heads);
    if (isOperand.has_value() ? failed(*isOperand) : failed(parser.parseInteger(dropout.constantHeads.emplace())))
      return failure();
  }
  if (parser.parseColon())
    return failure();
  bool isFirst = true;
  auto parseType = [&](std::optional<Clauses::Typed> &typed, StringRef what, function_ref<bool(Type)> isElement,
                       StringRef expected) -> ParseResult {
    if (!typed)
      return success();
    if (!std::exchange(isFirst, false) && failed(parser.parseComma()))
      return failure();
    SMLoc typeLoc = parser.getCurrentLocation();
    if (failed(parser.parseType(typed->type)))
      return failure();
    if (isOneElement(typed->type, isElement))
      return success();
    return parser.emitError(typeLoc, "dropout has ")
           << what << " of type " << typed->type << ", expected " << expected << ", or a tensor with one element of it";
  };
  return failure(parseType(dropout.rate, "a rate", isFloat, "f32") ||
                 parseType(dropout.seed, "a seed", isSeed, "i64") ||
                 parseType(dropout.heads, "a number of heads", isHeads, "index") || parser.parseRParen());
}

//===----------------------------------------------------------------------===//
// Expansion
//===----------------------------------------------------------------------===//

namespace {

/// Emits dropout at the insertion point of a region.
class DropoutEmitter {
public:
  DropoutEmitter(OpBuilder &b, Location loc, FloatType scoreType) : b(b), loc(loc), scoreType(scoreType) {}

  /// keep ? weight / (1 − rate) : 0.
  Value apply(Value weight);

  /// The values of the region: rate (f32), seed (i64), number of heads, batch, head, query and key (index).
  Value rate, seed, heads, batch, head, query, key;
  /// The rate if it is a constant.
  std::optional<double> constantRate;

private:
  Value word(uint32_t value) { return arith::ConstantIntOp::create(b, loc, int32_t(value), 32); }
  Value lowWord(Value value) { return arith::TruncIOp::create(b, loc, b.getI32Type(), value); }
  Value indexWord(Value value) { return arith::IndexCastOp::create(b, loc, b.getI32Type(), value); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value exclusiveOr(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
  Value number(Type type, double value) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); }

  /// The word of key `key`: its block of four keys is a counter, its position in the block selects the word.
  Value philox();
  /// The smallest integer of `uniformBits` bits that is kept, as an i32.
  Value threshold();
  /// 1 / (1 − rate), and 0 for rate 1.
  Value factor();
  /// The run-time rate, clamped to [0, 1]; 0 for NaN.
  Value clampedRate();

  OpBuilder &b;
  Location loc;
  FloatType scoreType;
};

} // namespace

Value DropoutEmitter::philox() {
  constexpr unsigned rounds = 10;
  constexpr uint32_t multipliers[] = {0xD2511F53, 0xCD9E8D57}, increments[] = {0x9E3779B9, 0xBB67AE85};
  Value row = add(arith::MulIOp::create(b, loc, batch, heads), head), column = indexWord(key);
  Value counter[] = {indexWord(row), indexWord(query), arith::ShRUIOp::create(b, loc, column, word(2)), word(0)};
  Value upper = arith::ShRUIOp::create(b, loc, seed, arith::ConstantIntOp::create(b, loc, 32, 64));
  Value keys[] = {lowWord(seed), lowWord(upper)};
  for (unsigned round = 0; round < rounds; ++round) {
    if (round > 0)
      for (unsigned i = 0; i < 2; ++i)
        keys[i] = add(keys[i], word(increments[i]));
    auto first = arith::MulUIExtendedOp::create(b, loc, counter[0], word(multipliers[0]));
    auto second = arith::MulUIExtendedOp::create(b, loc, counter[2], word(multipliers[1]));
    Value mixed[] = {exclusiveOr(exclusiveOr(counter[1], keys[0]), second.getHigh()), second.getLow(),
                     exclusiveOr(exclusiveOr(counter[3], keys[1]), first.getHigh()), first.getLow()};
    llvm::copy(mixed, counter);
  }
  auto bit = [&](uint32_t mask) -> Value {
    Value bits = arith::AndIOp::create(b, loc, column, word(mask));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bits, word(0));
  };
  Value isOdd = bit(1), isUpper = bit(2);
  Value lower = arith::SelectOp::create(b, loc, isOdd, counter[1], counter[0]);
  Value higher = arith::SelectOp::create(b, loc, isOdd, counter[3], counter[2]);
  return arith::SelectOp::create(b, loc, isUpper, higher, lower);
}

Value DropoutEmitter::clampedRate() {
  Type type = rate.getType();
  Value atLeastZero = arith::MaxNumFOp::create(b, loc, rate, number(type, 0.0));
  return arith::MinNumFOp::create(b, loc, atLeastZero, number(type, 1.0));
}

Value DropoutEmitter::threshold() {
  double scale = std::ldexp(1.0, uniformBits);
  if (constantRate)
    return word(uint32_t(std::ceil(*constantRate * scale)));
  Value scaled = arith::MulFOp::create(b, loc, rate, number(rate.getType(), scale));
  return arith::FPToSIOp::create(b, loc, b.getI32Type(), math::CeilOp::create(b, loc, scaled));
}

Value DropoutEmitter::factor() {
  if (constantRate)
    return number(scoreType, *constantRate < 1 ? 1 / (1 - *constantRate) : 0.0);
  Value one = number(scoreType, 1.0);
  Value wide = rate.getType() == scoreType ? rate : arith::ExtFOp::create(b, loc, scoreType, rate).getResult();
  Value kept = arith::SubFOp::create(b, loc, one, wide);
  Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, kept, number(scoreType, 0.0));
  // Without a kept weight, infinity would become NaN in the gradient of the region.
  return arith::SelectOp::create(b, loc, isZero, number(scoreType, 0.0), arith::DivFOp::create(b, loc, one, kept));
}

Value DropoutEmitter::apply(Value weight) {
  if (!constantRate)
    rate = clampedRate();
  Value bits = arith::ShRUIOp::create(b, loc, philox(), word(32 - uniformBits));
  Value isKept = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, bits, threshold());
  Value scaled = arith::MulFOp::create(b, loc, weight, factor());
  return arith::SelectOp::create(b, loc, isKept, scaled, number(scoreType, 0.0));
}

/// Adds the regions that dropout changes, as those of an op without them.
static void addDefaultRegions(Clauses &clauses, OpBuilder &b, Location loc, FloatType scoreType) {
  auto addRegion = [&](std::unique_ptr<Region> &region, unsigned numbers) -> Block & {
    region = std::make_unique<Region>();
    Block &block = region->emplaceBlock();
    SmallVector<Type> types(numbers, scoreType);
    types.append(4, b.getIndexType());
    llvm::append_range(types, clauses.capturedTypes);
    block.addArguments(types, SmallVector<Location>(types.size(), loc));
    b.setInsertionPointToEnd(&block);
    return block;
  };
  // The default gradient is that of attention without score and weight regions.
  if (clauses.outputGradient && !clauses.gradient && !clauses.score && !clauses.weight) {
    Block &block = addRegion(clauses.gradient, 4);
    Value difference = arith::SubFOp::create(b, loc, block.getArgument(2), block.getArgument(3));
    YieldOp::create(b, loc, arith::MulFOp::create(b, loc, block.getArgument(0), difference).getResult());
  }
  if (!clauses.weight)
    YieldOp::create(b, loc, addRegion(clauses.weight, 1).getArgument(0));
}

ParseResult syntax::expandDropout(OpAsmParser &parser, Clauses &clauses, Type queryType) {
  if (!clauses.dropout)
    return success();
  Clauses::Dropout &dropout = *clauses.dropout;
  auto query = dyn_cast<RankedTensorType>(queryType);
  std::optional<unsigned> headDim = clauses.queryDims.position(Dim::Head);
  // The verifiers report other types and ranks.
  if (!query || (headDim && *headDim >= query.getRank()))
    return success();
  int64_t heads = dropout.constantHeads.value_or(headDim ? query.getDimSize(*headDim) : 1);
  bool readsQuery = !dropout.heads && ShapedType::isDynamic(heads);

  OpBuilder b(parser.getContext());
  Location loc = parser.getEncodedSourceLoc(dropout.loc);
  FloatType scoreType = getScoreType(query.getElementType());
  addDefaultRegions(clauses, b, loc, scoreType);
  // New captures follow those of the op, in all regions.
  SmallVector<Region *> regions;
  for (auto *region : {&clauses.score, &clauses.mask, &clauses.weight, &clauses.gradient})
    if (*region)
      regions.push_back(region->get());
  for (std::unique_ptr<Region> &tally : clauses.tallies)
    regions.push_back(tally.get());
  auto capture = [&](const Clauses::Operand &operand, Type type) -> unsigned {
    clauses.captures.push_back(operand);
    clauses.captureTypes.push_back(type);
    clauses.capturedTypes.push_back(getCapturedType(type));
    for (Region *region : regions)
      if (!region->empty())
        region->addArgument(type, loc);
    return clauses.captures.size() - 1;
  };
  std::optional<unsigned> rateCapture, headsCapture;
  if (dropout.rate)
    rateCapture = capture(dropout.rate->operand, dropout.rate->type);
  unsigned seedCapture = capture(dropout.seed->operand, dropout.seed->type);
  if (dropout.heads)
    headsCapture = capture(dropout.heads->operand, dropout.heads->type);
  else if (readsQuery)
    headsCapture = capture(clauses.query, queryType);

  auto applyTo = [&](Region &region, unsigned numbers, Value weight) -> Value {
    RegionArguments args = getRegionArguments(region, numbers);
    auto element = [&](unsigned index) -> Value {
      Value captured = args.captures[index];
      auto tensor = dyn_cast<RankedTensorType>(captured.getType());
      if (!tensor)
        return captured;
      SmallVector<Value> zeros(tensor.getRank());
      for (Value &zero : zeros)
        zero = arith::ConstantIndexOp::create(b, loc, 0);
      return tensor::ExtractOp::create(b, loc, captured, zeros);
    };
    DropoutEmitter emitter(b, loc, scoreType);
    emitter.batch = args.batch, emitter.head = args.head, emitter.query = args.query, emitter.key = args.key;
    emitter.seed = element(seedCapture);
    if (rateCapture)
      emitter.rate = element(*rateCapture);
    else
      emitter.constantRate = double(float(dropout.constantRate));
    if (readsQuery)
      emitter.heads = tensor::DimOp::create(b, loc, args.captures[*headsCapture], *headDim);
    else
      emitter.heads = headsCapture ? element(*headsCapture) : arith::ConstantIndexOp::create(b, loc, heads);
    return emitter.apply(weight);
  };
  auto isSimple = [](Region &region) {
    return region.hasOneBlock() && !region.front().empty() && isa<YieldOp>(region.front().back()) &&
           region.front().back().getNumOperands() >= 1;
  };
  // The regions are not verified yet, so they may have any terminator.
  if (!isSimple(*clauses.weight) || clauses.weight->front().back().getOperand(0).getType() != scoreType)
    return parser.emitError(dropout.loc, "dropout needs a weight region of one block that yields a number of type ")
           << scoreType;
  {
    auto yield = cast<YieldOp>(clauses.weight->front().back());
    b.setInsertionPoint(yield);
    yield->setOperand(0, applyTo(*clauses.weight, 1, yield.getOperand()));
  }
  if (clauses.gradient && !clauses.gradient->empty()) {
    // The product with the output gradient becomes the gradient of the weight before dropout.
    b.setInsertionPointToStart(&clauses.gradient->front());
    BlockArgument product = clauses.gradient->getArgument(2);
    if (product.getType() != scoreType)
      return success();
    SmallVector<OpOperand *> uses = llvm::map_to_vector(product.getUses(), [](OpOperand &use) { return &use; });
    Value dropped = applyTo(*clauses.gradient, 4, product);
    for (OpOperand *use : uses)
      use->set(dropped);
  }
  return success();
}
