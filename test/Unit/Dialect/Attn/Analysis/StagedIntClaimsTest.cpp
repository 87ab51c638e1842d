//===- StagedIntClaimsTest.cpp - Staged integers against plain arithmetic -----===//
//
// Every function of StagedIntBuilder on constants and run-time values in any combination: what it computes or emits is
// the number that 64-bit arithmetic gives, and is within the bound of its magnitude. Ops are emitted after what they
// use, and before a loop if they use nothing of it.
//
//===----------------------------------------------------------------------===//
#include "Lanes.h"
#include "RandomRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Dialect/Attn/Analysis/StagedInt.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"
#include <random>

using namespace mlir;
using namespace saccade::attn;

namespace {

constexpr size_t lanes = 12;

/// A staged number, and its value in every lane.
struct Number {
  StagedInt staged;
  Lanes values;
};

class Numbers {
public:
  Numbers(MLIRContext &context, uint64_t seed) : random(seed), b(&context), evaluate(lanes), loc(b.getUnknownLoc()) {
    auto makeOp = [&](StringRef name, Block *&inside) {
      OperationState state(loc, name);
      state.addRegion()->push_back(inside = new Block);
      return Operation::create(state);
    };
    function = makeOp("test.function", block);
    loop = makeOp("test.loop", body);
    block->push_back(loop);
    b.setInsertionPointToEnd(body);
    hoists = pick(0, 3) != 0;
    builder.emplace(b, loc, hoists ? loop : nullptr);
    for (int64_t constant : {int64_t(0), int64_t(1), int64_t(-1), int64_t(2), pick(-9, 9), INT64_MAX, INT64_MIN})
      integers.push_back({StagedInt(constant), Lanes(lanes, constant)});
    for (unsigned bits : {0, 1, 4, 20, 63}) {
      Number drawn{StagedInt(argument(b.getIndexType()), bits), {}};
      for (size_t lane = 0; lane < lanes; ++lane)
        drawn.values.push_back(bits == 63 && pick(0, 1) ? int64_t(random())
                                                        : pick(-(int64_t(1) << bits % 63), 1 << bits % 63));
      evaluate.bind(drawn.staged.getValue(), drawn.values);
      integers.push_back(std::move(drawn));
    }
    truths = {{StagedInt(0), Lanes(lanes, 0)}, {StagedInt(1), Lanes(lanes, 1)}};
  }

  /// Adds the result of a random function; returns what is wrong with it.
  std::string step() {
    StagedIntBuilder &s = *builder;
    Number x = any(integers), y = any(integers), p = any(truths), q = any(truths);
    auto wrapping = [](auto apply) {
      return [=](int64_t a, int64_t b) { return int64_t(apply(uint64_t(a), uint64_t(b))); };
    };
    auto floorDivide = [](int64_t a, int64_t b) { return a / b - (a % b < 0); };
    bool isPositive = llvm::all_of(y.values, [](int64_t value) { return value > 0; });
    switch (pick(0, 14)) {
    case 0:
      return add(integers, "add", s.add(x.staged, y.staged), x, y, wrapping(std::plus<uint64_t>()));
    case 1:
      return add(integers, "sub", s.sub(x.staged, y.staged), x, y, wrapping(std::minus<uint64_t>()));
    case 2:
      return add(integers, "mul", s.mul(x.staged, y.staged), x, y, wrapping(std::multiplies<uint64_t>()));
    case 3:
      return add(integers, "min", s.min(x.staged, y.staged), x, y, [](int64_t a, int64_t b) { return std::min(a, b); });
    case 4:
      return add(integers, "max", s.max(x.staged, y.staged), x, y, [](int64_t a, int64_t b) { return std::max(a, b); });
    case 5: // of divisors that are not positive the result is unspecified
      return isPositive ? add(integers, "floorDiv", s.floorDiv(x.staged, y.staged), x, y, floorDivide) : "";
    case 6:
      return isPositive ? add(integers, "truncDiv", s.truncDiv(x.staged, y.staged), x, y, std::divides<int64_t>()) : "";
    case 7:
      return isPositive ? add(integers, "mod", s.mod(x.staged, y.staged), x, y,
                              [&](int64_t a, int64_t b) { return a - floorDivide(a, b) * b; })
                        : "";
    case 8:
      return add(truths, "isEqual", s.isEqual(x.staged, y.staged), x, y, std::equal_to<int64_t>());
    case 9:
      return add(truths, "isLess", s.isLess(x.staged, y.staged), x, y, std::less<int64_t>());
    case 10:
      return add(truths, "isAtMost", s.isAtMost(x.staged, y.staged), x, y, std::less_equal<int64_t>());
    case 11:
      return add(truths, "both", s.both(p.staged, q.staged), p, q, std::logical_and<int64_t>());
    case 12:
      return pick(0, 1) ? add(truths, "either", s.either(p.staged, q.staged), p, q, std::logical_or<int64_t>())
                        : add(truths, "negate", s.negate(p.staged), p, p, [](int64_t a, int64_t) { return !a; });
    case 13:
      return convert();
    default: {
      bool areTruths = pick(0, 3) == 0;
      Number first = areTruths ? q : x, second = areTruths ? any(truths) : y, chosen;
      for (size_t lane = 0; lane < lanes; ++lane)
        chosen.values.push_back(p.values[lane] ? first.values[lane] : second.values[lane]);
      chosen.staged = s.select(p.staged, first.staged, second.staged);
      return add(areTruths ? truths : integers, "select", std::move(chosen));
    }
    }
  }

  /// What is wrong with the places of the emitted ops.
  std::string misplaced() {
    std::string wrong;
    llvm::raw_string_ostream os(wrong);
    auto isOfLoop = [&](Value value) { return value.getParentBlock() == body; };
    block->walk([&](Operation *op) {
      for (Value operand : op->getOperands()) {
        Operation *user = operand.getParentBlock()->findAncestorOpInBlock(*op), *producer = operand.getDefiningOp();
        if (!user || (producer && !producer->isBeforeInBlock(user)))
          os << *op << " is before its operand\n";
      }
      bool usesLoop = llvm::any_of(
          op->getOperands(), [&](Value operand) { return isOfLoop(operand) && !matchPattern(operand, m_Constant()); });
      if (hoists && op->getBlock() == body && op->getNumOperands() != 0 && !usesLoop)
        os << *op << " uses nothing of the loop that it is in\n";
    });
    return wrong;
  }

private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }
  const Number &any(const std::vector<Number> &some) { return some[pick(0, some.size() - 1)]; }
  /// A value of the loop or from outside of it.
  Value argument(Type type) { return (pick(0, 1) ? block : body)->addArgument(type, loc); }

  /// Adds an integer of any type, a constant or a run-time value.
  std::string convert() {
    const unsigned widths[] = {1, 8, 16, 32, 64, 128, 0};
    unsigned width = widths[pick(0, 6)];
    Type type = width ? Type(b.getIntegerType(width)) : b.getIndexType();
    auto draw = [&] {
      APInt bits = APInt(64, random()).trunc(width == 0 ? 64 : std::min(width, 64u));
      return width == 1 ? int64_t(bits.getZExtValue()) : bits.getSExtValue();
    };
    Number result;
    if (pick(0, 3) == 0) {
      int64_t number = draw();
      APInt bits(width == 0 ? 64 : width, uint64_t(number), /*isSigned=*/width != 1);
      Value constant = arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, bits));
      result = {builder->fromValue(constant), Lanes(lanes, number)};
      return add(integers, "fromValue", std::move(result));
    }
    Value value = argument(type);
    for (size_t lane = 0; lane < lanes; ++lane)
      result.values.push_back(draw());
    evaluate.bind(value, result.values);
    result.staged = builder->fromValue(value);
    return add(integers, "fromValue", std::move(result));
  }

  template <typename Apply>
  std::string add(std::vector<Number> &to, StringRef name, StagedInt staged, const Number &x, const Number &y,
                  Apply apply) {
    Number result{staged, {}};
    for (size_t lane = 0; lane < lanes; ++lane)
      result.values.push_back(int64_t(apply(x.values[lane], y.values[lane])));
    return add(to, name, std::move(result));
  }
  std::string add(std::vector<Number> &to, StringRef name, Number result) {
    bool isTruth = &to == &truths;
    Lanes found = evaluate(builder->materialize(result.staged, isTruth));
    std::string wrong;
    llvm::raw_string_ostream os(wrong);
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (found[lane] != result.values[lane])
        os << name << ": found " << found[lane] << ", expected " << result.values[lane] << "\n";
      unsigned bits = result.staged.getBits();
      int64_t bound = int64_t(1) << std::min(bits, 62u);
      bool isBounded = result.staged.getValue() && !isTruth && bits < 63;
      if (isBounded && (found[lane] > bound || found[lane] < -bound))
        os << name << ": " << found[lane] << " exceeds " << bits << " bits\n";
    }
    to.push_back(std::move(result));
    return wrong;
  }

  std::mt19937_64 random;
  OwningOpRef<Operation *> function;
  Operation *loop;
  Block *block, *body; ///< of the function and of the loop
  bool hoists;         ///< whether ops may be emitted before the loop
  OpBuilder b;
  LaneEvaluator evaluate;
  Location loc;
  std::optional<StagedIntBuilder> builder;
  std::vector<Number> integers, truths;
};

TEST(StagedIntClaims, EveryResultIsThatOfPlainArithmetic) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<arith::ArithDialect>();
  context.allowUnregisteredDialects();
  Cases cases(500);
  for (int64_t i = cases.seed; i < cases.seed + cases.count; ++i) {
    Numbers numbers(context, i);
    for (int step = 0; step < 60; ++step) {
      std::string wrong = numbers.step();
      ASSERT_EQ(wrong, "") << "SACCADE_SEED=" << i << " SACCADE_REGIONS=1, step " << step;
    }
    ASSERT_EQ(numbers.misplaced(), "") << "SACCADE_SEED=" << i << " SACCADE_REGIONS=1";
  }
}

} // namespace
