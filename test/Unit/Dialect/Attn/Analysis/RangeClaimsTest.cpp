//===- RangeClaimsTest.cpp - Ranges and proofs of stability against evaluation ===//
#include "RandomRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/ScoreRange.h"
#include "test/Support/Cases.h"
#include "llvm/Support/Format.h"
#include "gtest/gtest.h"
#include <cmath>
#include <set>

using namespace mlir;
using namespace saccade::attn;

namespace {

class RangeClaims : public testing::Test {
protected:
  RangeClaims() : context(MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
    ops.emplace(context);
  }
  MLIRContext context;
  std::optional<RegionOps> ops;
};

/// The first value that leaves its range, described; empty if none does.
std::string findViolation(RandomRegion &drawn, int64_t *bounded = nullptr, int64_t *boundable = nullptr) {
  auto known = evaluate(drawn.region.front(), drawn.inputs);
  for (Operation &op : drawn.region.front().without_terminator())
    for (Value value : op.getResults()) {
      if (!isa<FloatType>(value.getType()))
        continue;
      FloatRange range = analyzeRange(value);
      const ScalarLanes &lanes = known.find(value)->second;
      bool areFinite = true;
      for (auto [number, isDefined] : llvm::zip_equal(lanes.values, lanes.isDefined)) {
        areFinite &= isDefined && std::isfinite(number.real);
        if (isDefined && !range.contains(number.real)) {
          std::string text;
          llvm::raw_string_ostream(text) << value << " is " << llvm::format("%.17g", number.real) << ", not in ["
                                         << llvm::format("%.17g, %.17g", range.low, range.high) << "]"
                                         << (range.mayBeNaN ? " or NaN" : "") << "\n";
          return text;
        }
      }
      if (bounded && areFinite && !isa<arith::ConstantOp>(op)) {
        *boundable += 1;
        *bounded += range.isFinite();
      }
    }
  return "";
}

TEST_F(RangeClaims, NoValueLeavesItsRange) {
  Cases cases(1500);
  int64_t bounded = 0, boundable = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomRegion drawn(*ops, context, seed, /*size=*/24, /*lanes=*/96);
    if (findViolation(drawn, &bounded, &boundable).empty())
      continue;
    auto fails = [&] { return !findViolation(drawn).empty(); };
    reduce(drawn.region, fails);
    reduce(drawn.inputs, drawn.region.front(), fails);
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << findViolation(drawn) << drawn.text();
  }
  std::printf("%lld regions: %lld of %lld finite values have a finite range\n", (long long)cases.count,
              (long long)bounded, (long long)boundable);
  // Sound does not imply precise.
  if (cases.count >= 100) {
    EXPECT_GT(bounded * 100, boundable * 30);
  }
}

TEST_F(RangeClaims, EveryPermittedOpIsDrawn) {
  std::set<std::string> drawn;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    RandomRegion random(*ops, context, seed, 24, 1);
    for (Operation &op : random.region.front())
      drawn.insert(op.getName().getStringRef().str());
  }
  // Ops of the two dialects that are not in the table: constants, and ops that the verifier refuses.
  const std::set<std::string> others = {"arith.constant", "arith.scaling_extf", "arith.scaling_truncf",
                                        "math.clampf",    "math.fpowi",         "math.ipowi",
                                        "math.isinf",     "math.isnormal"};
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    StringRef dialect = name.getDialectNamespace();
    std::string text = name.getStringRef().str();
    if ((dialect == "arith" || dialect == "math") && !others.contains(text)) {
      EXPECT_TRUE(drawn.contains(text)) << text;
    }
  }
}

} // namespace
