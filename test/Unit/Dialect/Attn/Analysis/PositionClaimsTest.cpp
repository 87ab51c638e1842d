//===- PositionClaimsTest.cpp - Terms of the relative position against values -===//
#include "RandomRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"
#include <cmath>
#include <map>

using namespace mlir;
using namespace saccade::attn;

namespace {

constexpr int64_t positionExtent = 7, rows = 4;

class PositionClaims : public testing::Test {
protected:
  PositionClaims() : context(MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
    ops.emplace(context);
  }
  MLIRContext context;
  std::optional<RegionOps> ops;
};

/// Adds integer code over positions, batch, head and their differences, in several widths.
void addPositionalCode(RandomRegion &drawn, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Block &block = drawn.region.front();
  OpBuilder b(&block.back());
  Location loc = b.getUnknownLoc();
  const Type types[] = {b.getIndexType(), b.getI32Type(), b.getI64Type(), b.getIntegerType(16)};
  std::vector<Value> values[4]; // by type
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned argument : {3u, 4u, 3u, 4u, 1u, 2u}) {
      Value value = block.getArgument(argument);
      values[i].push_back(i ? arith::IndexCastOp::create(b, loc, types[i], value).getResult() : value);
    }
  for (unsigned i = 0; i < 4; ++i)
    values[i].push_back(arith::SubIOp::create(b, loc, values[i][1], values[i][0]));
  if (pick(0, 3) == 0) {
    // Narrow positions wrap separately, so the difference of their extensions is no function of the difference.
    unsigned narrow = pick(0, 1) ? 1 : 3;
    Value query = arith::ExtSIOp::create(b, loc, types[2], values[narrow][0]);
    Value key = arith::ExtSIOp::create(b, loc, types[2], values[narrow][1]);
    values[2].push_back(arith::SubIOp::create(b, loc, key, query));
  }
  if (pick(0, 3) == 0)
    values[0].push_back(LengthOp::create(b, loc, b.getIndexType(), Role::Key));
  for (int64_t count = pick(4, 14); count > 0; --count) {
    unsigned type = pick(0, 3), other = pick(0, 3);
    auto any = [&](unsigned from) {
      return values[from][std::max(pick(0, values[from].size() - 1), pick(0, values[from].size() - 1))];
    };
    Value x = any(type), y = any(type);
    if (pick(0, 4) == 0)
      y = arith::ConstantOp::create(b, loc, b.getIntegerAttr(types[type], pick(-4, 5)));
    Value made;
    switch (pick(0, 7)) {
    case 0:
      made = arith::AddIOp::create(b, loc, x, y);
      break;
    case 1:
    case 2:
      made = arith::SubIOp::create(b, loc, x, y);
      break;
    case 3:
      made = arith::MulIOp::create(b, loc, x, y);
      break;
    case 4:
      made = arith::MaxSIOp::create(b, loc, x, y);
      break;
    default:
      if (type == other)
        continue;
      if (type == 0 || other == 0)
        made = arith::IndexCastOp::create(b, loc, types[other], x);
      else if (bitWidthOf(types[type]) > bitWidthOf(types[other]))
        made = arith::TruncIOp::create(b, loc, types[other], x);
      else
        made = arith::ExtSIOp::create(b, loc, types[other], x);
      type = other;
    }
    values[type].push_back(made);
  }
}

/// Adds a use of every number that is no function of the relative position, so that all terms are reported.
void useAll(RandomRegion &drawn) {
  Block &block = drawn.region.front();
  OpBuilder b(&block.back());
  Location loc = b.getUnknownLoc();
  SmallVector<Value> numbers;
  for (Operation &op : block.without_terminator())
    if (op.getNumResults() == 1)
      numbers.push_back(op.getResult(0));
  for (Value value : numbers) {
    if (auto type = dyn_cast<FloatType>(value.getType())) {
      Value score = block.getArgument(0);
      if (auto from = cast<FloatType>(score.getType()); type.getWidth() < from.getWidth())
        score = arith::TruncFOp::create(b, loc, type, score);
      else if (type.getWidth() > from.getWidth())
        score = arith::ExtFOp::create(b, loc, type, score);
      arith::AddFOp::create(b, loc, value, score);
    } else if (value.getType().isInteger(32) || value.getType().isInteger(64)) {
      Value query = arith::IndexCastOp::create(b, loc, value.getType(), block.getArgument(3));
      arith::MulIOp::create(b, loc, value, query);
    }
  }
}

/// Sets the positions of a score region: the lanes (b, h, q, k) of a box, then (b, h, 0, k − q) for the same pairs.
void setPositions(RandomRegion &drawn, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  const int64_t origins[] = {0, 0, 0, 1000, (int64_t(1) << 31) - 4, (int64_t(1) << 15) - 3, (int64_t(1) << 40)};
  int64_t origin = origins[pick(0, 6)];
  size_t count = rows * positionExtent * positionExtent;
  for (std::vector<Scalar> &input : drawn.inputs)
    input.assign(2 * count, Scalar(input.front()));
  for (size_t lane = 0; lane < 2 * count; ++lane) {
    size_t pair = lane % count;
    int64_t query = origin + int64_t(pair / positionExtent % positionExtent),
            key = origin + int64_t(pair % positionExtent);
    int64_t row = pair / (positionExtent * positionExtent);
    const int64_t numbers[] = {row / 2, row % 2, lane < count ? query : 0, lane < count ? key : key - query};
    for (unsigned i = 0; i < 4; ++i)
      drawn.inputs[1 + i][lane].integer = numbers[i];
    drawn.inputs[0][lane] = anyScalar(drawn.region.getArgument(0).getType(), random);
  }
}

/// The bits of a number; NaNs are equal.
int64_t bitsOf(Type type, Scalar number) {
  return isa<FloatType>(type) && std::isnan(number.real) ? -1 : number.integer;
}

/// A description of a wrong term; empty if there is none. Adds the number of terms.
std::string findViolation(RandomRegion &drawn, int64_t &terms) {
  size_t count = rows * positionExtent * positionExtent;
  auto known = evaluate(drawn.region.front(), drawn.inputs);
  for (const RelativePositionTerm &term : findRelativePositionTerms(drawn.region)) {
    Type type = term.root.getType();
    const ScalarLanes &lanes = known[term.root];
    std::map<std::array<int64_t, 3>, int64_t> byPosition;
    for (size_t lane = 0; lane < count; ++lane) {
      auto input = [&](unsigned argument) { return drawn.inputs[argument][lane].integer; };
      // The ops of a term may be undefined for a query at 0 only if they are for the pair.
      if (!lanes.isDefined[lane])
        continue;
      int64_t bits = bitsOf(type, lanes.values[lane]);
      std::array<int64_t, 3> position = {term.usesBatch ? input(1) : 0, term.usesHead ? input(2) : 0,
                                         input(4) - input(3)};
      auto [first, isNew] = byPosition.try_emplace(position, bits);
      if (first->second != bits || !lanes.isDefined[lane + count] || bitsOf(type, lanes.values[lane + count]) != bits) {
        std::string text;
        llvm::raw_string_ostream(text) << term.root << " is not a function of the relative position: b = " << input(1)
                                       << ", h = " << input(2) << ", q = " << input(3) << ", k = " << input(4)
                                       << (first->second != bits ? "" : ", and q = 0") << "\n";
        return text;
      }
    }
    // The ops must be complete and in order.
    llvm::SmallPtrSet<Operation *, 8> before;
    for (Operation *op : term.ops) {
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp(); producer && !before.contains(producer))
          return "an op of a term precedes its operand\n";
      before.insert(op);
    }
    if (!before.contains(term.root.getDefiningOp()))
      return "the ops of a term do not compute it\n";
  }
  terms += findRelativePositionTerms(drawn.region).size();
  return "";
}

TEST_F(PositionClaims, TermsAreFunctionsOfTheRelativePosition) {
  Cases cases(250);
  int64_t terms = 0, ignored = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomRegion drawn(*ops, context, seed, /*size=*/8, /*lanes=*/1);
    addPositionalCode(drawn, seed);
    useAll(drawn);
    setPositions(drawn, seed);
    if (findViolation(drawn, terms).empty())
      continue;
    reduce(drawn.region, [&] { return !findViolation(drawn, ignored).empty(); });
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << findViolation(drawn, ignored) << drawn.text();
  }
  std::printf("%lld regions: %lld terms\n", (long long)cases.count, (long long)terms);
  if (cases.count >= 100) {
    EXPECT_GT(terms * 2, cases.count);
  }
}

} // namespace
