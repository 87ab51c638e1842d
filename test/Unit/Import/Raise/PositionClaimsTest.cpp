//===- PositionClaimsTest.cpp - Simplified positions against evaluation ---===//
//
// Positions are simplified with the extents of loops. Random ones must keep their values at all positions of the loops.
// SACCADE_REGIONS and SACCADE_SEED set the number of positions and the first seed.
//
//===----------------------------------------------------------------------===//
#include "lib/Import/Raise/Expr.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "test/Support/Cases.h"
#include "test/Support/Random.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade::raise;
using saccade::search::Random;

namespace {

/// Division rounds down, and remainders by positive numbers are not negative.
int64_t evaluate(AffineExpr expr, ArrayRef<int64_t> at) {
  if (auto loop = dyn_cast<AffineDimExpr>(expr))
    return at[loop.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  auto both = cast<AffineBinaryOpExpr>(expr);
  int64_t lhs = evaluate(both.getLHS(), at), rhs = evaluate(both.getRHS(), at);
  int64_t quotient = rhs ? llvm::divideFloorSigned(lhs, rhs) : 0;
  switch (both.getKind()) {
  case AffineExprKind::Add:
    return lhs + rhs;
  case AffineExprKind::Mul:
    return lhs * rhs;
  case AffineExprKind::FloorDiv:
    return quotient;
  case AffineExprKind::CeilDiv:
    return quotient + (lhs != quotient * rhs);
  default:
    return lhs - quotient * rhs;
  }
}

class Drawer {
public:
  Drawer(MLIRContext &context, Random &random, ArrayRef<int64_t> extents)
      : context(context), random(random), extents(extents) {}

  AffineExpr draw(unsigned depth) {
    if (depth == 0)
      return random.chance(0.15) ? constant(random.pick({-2, -1, 1, 2, 5})) : loop();
    AffineExpr x = draw(depth - 1);
    int64_t extent = random.pick(extents);
    int64_t divisor = std::max<int64_t>(random.pick({int64_t(2), int64_t(3), extent - 1, extent, extent + 1}), 1);
    switch (random.below(8)) {
    case 0:
      return x + draw(random.below(depth));
    case 1:
      return x - draw(random.below(depth));
    case 2:
      return x * random.pick({-1, 2, 3});
    case 3:
      return x.floorDiv(divisor);
    case 4:
      return x % divisor;
    case 5:
      return x.ceilDiv(divisor);
    default: {
      // The digits of a position, also with a factor that does not fit, and terms between them.
      int64_t factor = random.pick({1, 1, 2, -1}), whole = random.chance(0.7) ? divisor : divisor + 1;
      AffineExpr between = random.chance(0.5) ? draw(random.below(depth)) : constant(0);
      return x.floorDiv(divisor) * (factor * whole) + between + (x % divisor) * factor;
    }
    }
  }

private:
  AffineExpr loop() { return getAffineDimExpr(random.below(extents.size()), &context); }
  AffineExpr constant(int64_t value) { return getAffineConstantExpr(value, &context); }

  MLIRContext &context;
  Random &random;
  ArrayRef<int64_t> extents;
};

TEST(PositionClaims, SimplifiedPositionsKeepTheirValues) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  Cases cases(4000);
  int64_t simplified = 0, fitting = 0, atLimits = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    Random random(seed);
    SmallVector<int64_t> extents, known;
    for (unsigned loop = 0; loop < 3; ++loop) {
      extents.push_back(random.pick({1, 2, 3, 4, 5, 6}));
      known.push_back(random.chance(0.2) ? ShapedType::kDynamic : extents.back());
    }
    AffineExpr drawn = Drawer(context, random, extents).draw(1 + random.below(4));
    Graph graph(&context, known);
    AffineExpr found = graph.simplify(drawn);
    simplified += found != drawn;
    std::string text;
    llvm::raw_string_ostream(text) << drawn << " became " << found;
    Node position = graph.position(found);
    // Loops of unknown extent have at most 2²⁴ positions.
    auto positions = [&](unsigned loop) {
      SmallVector<int64_t> each = llvm::to_vector(llvm::seq<int64_t>(0, extents[loop]));
      if (ShapedType::isDynamic(known[loop]))
        each.push_back((1 << 24) - 1);
      return each;
    };
    SmallVector<int64_t> values;
    for (int64_t x : positions(0))
      for (int64_t y : positions(1))
        for (int64_t z : positions(2)) {
          int64_t at[] = {x, y, z};
          values.push_back(evaluate(drawn, at));
          ASSERT_EQ(values.back(), evaluate(found, at))
              << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << text << " at " << x << ", " << y << ", " << z;
        }
    auto [least, most] = std::minmax_element(values.begin(), values.end());
    EXPECT_TRUE(*least >= 0 || graph.mayBeNegative(found)) << "SACCADE_SEED=" << seed << ": " << text;
    for (unsigned width : {8, 16, 24, 25, 32}) {
      bool fits = graph.fits(position, width);
      fitting += fits;
      int64_t limit = int64_t(1) << (width - 1);
      EXPECT_TRUE(!fits || (*least >= -limit && *most < limit))
          << "SACCADE_SEED=" << seed << ": " << text << " is from " << *least << " to " << *most << ", width " << width;
      // As near to the limits as the values go, and one beyond them.
      int64_t below = limit - 1 - *most, above = -limit - *least;
      for (int64_t shift : {below, below + 1, above, above - 1}) {
        bool isWithin = *least + shift >= -limit && *most + shift < limit;
        bool shiftedFits = graph.fits(graph.position(found + shift), width);
        atLimits += shiftedFits;
        EXPECT_TRUE(!shiftedFits || isWithin) << "SACCADE_SEED=" << seed << ": " << text << " is from " << *least
                                              << " to " << *most << ", plus " << shift << ", width " << width;
      }
    }
  }
  EXPECT_GE(atLimits, cases.count) << "few positions fit at the limits";
  EXPECT_GE(fitting, cases.count) << "few positions fit";
  EXPECT_GE(simplified * 5, cases.count) << "few positions are simplified";
}

} // namespace
