//===- StabilityClaimsTest.cpp - Proofs of stability against scores and masks -===//
#include "AffineMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace saccade::attn;

namespace {

class StabilityClaims : public testing::Test {
protected:
  StabilityClaims() : context(MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
    ops.emplace(context);
    module = parseSourceString<ModuleOp>(skeleton(*ops), &context);
    module->walk([&](AttentionOp op) { attention = op; });
  }
  MLIRContext context;
  std::optional<RegionOps> ops;
  OwningOpRef<ModuleOp> module;
  AttentionOp attention;
};

/// Weakens or strengthens a mask so that many see the first key: `or` with, or a choice between, `k ≤ q + c`.
void extendMask(AffineMask &mask, std::mt19937_64 &random) {
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Block &block = mask.region.front();
  Operation *yield = &block.back();
  OpBuilder b(yield);
  Location loc = b.getUnknownLoc();
  Value query = block.getArgument(2), key = block.getArgument(3), before = yield->getOperand(0);
  auto causal = [&]() -> Value {
    Value bound = query;
    if (int64_t offset = pick(-3, 5))
      bound = arith::AddIOp::create(b, loc, bound, arith::ConstantIndexOp::create(b, loc, offset));
    auto predicate = pick(0, 3) ? arith::CmpIPredicate::sle : arith::CmpIPredicate::slt;
    return arith::CmpIOp::create(b, loc, predicate, key, bound);
  };
  Value result = causal();
  switch (pick(0, 4)) {
  case 0:
    result = arith::OrIOp::create(b, loc, result, before);
    break;
  case 1:
    result = arith::SelectOp::create(b, loc, before, result, causal());
    break;
  case 2:
    result = arith::AndIOp::create(b, loc, result, arith::OrIOp::create(b, loc, causal(), before));
    break;
  case 3:
    result = arith::AndIOp::create(b, loc, result, before);
    break;
  default:
    break;
  }
  yield->setOperand(0, result);
}

TEST_F(StabilityClaims, AProvedMaximumIsFinite) {
  Cases cases(500);
  int64_t proved[3] = {0, 0, 0}, finite = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    std::mt19937_64 random(seed);
    auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
    RandomRegion score(*ops, context, seed, /*size=*/12, /*lanes=*/96);
    if (!score.region.getArgument(0).getType().isF32())
      continue;
    // Any float of the region may be the score.
    SmallVector<Value> candidates;
    for (Operation &op : score.region.front())
      for (Value value : op.getResults())
        if (value.getType().isF32())
          candidates.push_back(value);
    if (!candidates.empty())
      score.region.front().back().setOperand(0, candidates[pick(candidates.size() / 2, candidates.size() - 1)]);
    bool hasMask = pick(0, 3);
    AffineMask mask(*ops, context, seed);
    extendMask(mask, random);
    auto scores = evaluate(score.region.front(), score.inputs)[score.region.front().back().getOperand(0)];
    std::string text = score.text();

    IRMapping none;
    Region copy;
    mask.region.cloneInto(&copy, none);
    attention.getScore().takeBody(score.region);
    if (hasMask)
      attention.getMask().takeBody(copy);
    Stability found = analyzeStability(attention);
    attention.getScore().getBlocks().clear();
    attention.getMask().getBlocks().clear();
    ++proved[unsigned(found.finiteMax)];
    bool areFinite = true;
    for (auto [number, isDefined] : llvm::zip_equal(scores.values, scores.isDefined)) {
      if (!isDefined)
        continue;
      // The softmax multiplies scores by log2(e) in f32.
      bool isGood = std::isnan(number.real) || std::isfinite(float(number.real) * float(std::numbers::log2e));
      areFinite &= isGood;
      ASSERT_TRUE(isGood || found.finiteMax == FiniteMax::Never)
          << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: a score is " << number.real << ", but " << found.reason
          << "\n"
          << text;
    }
    finite += areFinite;
    if (found.finiteMax == FiniteMax::Never || !hasMask)
      continue;
    ASSERT_EQ(FiniteMax::InOrder, found.finiteMax) << "SACCADE_SEED=" << seed << mask.text();
    // Every query sees the first key, whatever the captures and lengths.
    constexpr size_t lanes = 200;
    Environment inputs;
    for (BlockArgument argument : mask.region.getArguments())
      for (std::vector<Scalar> &input = inputs.emplace_back(); input.size() < lanes;)
        input.push_back(anyScalar(getElementTypeOrSelf(argument.getType()), random));
    const int64_t queries[] = {0, 1, 2, 100, (int64_t(1) << 31) + 1, int64_t(1) << 39};
    for (size_t lane = 0; lane < lanes; ++lane) {
      inputs[0][lane].integer = pick(0, 3), inputs[1][lane].integer = pick(0, 3);
      inputs[2][lane].integer = queries[lane % 6], inputs[3][lane].integer = 0;
    }
    for (unsigned i = 0; i < 2; ++i)
      for (std::vector<Scalar> &input = inputs.emplace_back(); input.size() < lanes;)
        input.push_back({.integer = pick(0, 1) ? pick(0, 3) : pick(0, int64_t(1) << 40)});
    auto known = evaluate(mask.region.front(), inputs);
    const ScalarLanes &sees = known[mask.region.front().back().getOperand(0)];
    for (size_t lane = 0; lane < lanes; ++lane)
      ASSERT_TRUE(!sees.isDefined[lane] || sees.values[lane].integer)
          << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: query " << inputs[2][lane].integer
          << " does not attend to the first key\n"
          << mask.text();
  }
  std::printf("%lld softmaxes: %lld finite; guarded %lld, in order %lld, in every step %lld\n", (long long)cases.count,
              (long long)finite, (long long)proved[0], (long long)proved[1], (long long)proved[2]);
  if (cases.count >= 100) {
    EXPECT_GT(proved[1] * 20, cases.count);
    EXPECT_GT(proved[2] * 20, cases.count);
  }
}

} // namespace
