//===- FloatFactsTest.cpp - Facts about functions of floats against evaluation -===//
#include "lib/Import/Raise/FloatFacts.h"
#include "../../Dialect/Attn/Analysis/RegionOps.h"
#include "lib/Reference/ScalarOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using reference::Scalar;

namespace {

/// Numbers at which functions have poles, zeros or extrema, and other realistic ones.
constexpr double realistic[] = {-80, -2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, 80};

class FloatFactsTest : public testing::Test {
protected:
  FloatFactsTest() : context(MLIRContext::Threading::DISABLED) {
    context.loadDialect<attn::AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect,
                        tensor::TensorDialect>();
  }

  /// Calls `see` with the operands and the result of the function `name` of f64 for all combinations of `numbers`.
  /// Returns false for an op without such a function.
  bool evaluate(const RegionOps &ops, StringRef name, ArrayRef<double> numbers,
                llvm::function_ref<void(ArrayRef<double>, double)> see) {
    Region region;
    Block &block = region.emplaceBlock();
    OpBuilder b(&context);
    b.setInsertionPointToEnd(&block);
    auto signature = llvm::find_if(ops.all().at(name.str()), [](const Signature &each) {
      auto isWide = [](Type type) { return type.isF64(); };
      return each.results.size() == 1 && isWide(each.results[0]) && llvm::all_of(each.operands, isWide);
    });
    if (signature == ops.all().at(name.str()).end())
      return false;
    unsigned count = signature->operands.size();
    for (Type type : signature->operands)
      block.addArgument(type, b.getUnknownLoc());
    Operation *op = RegionOps::create(b, b.getUnknownLoc(), *signature, block.getArguments(), 0);
    auto function = reference::scalarFunction(op);
    unsigned combinations = 1;
    for (unsigned i = 0; i < count; ++i)
      combinations *= numbers.size();
    for (unsigned combination = 0; combination < combinations; ++combination) {
      SmallVector<double> chosen;
      SmallVector<Scalar> operands;
      for (unsigned i = 0, rest = combination; i < count; ++i, rest /= numbers.size()) {
        chosen.push_back(numbers[rest % numbers.size()]);
        operands.push_back(Scalar{.real = chosen.back()});
      }
      Scalar result;
      EXPECT_FALSE(function(operands.data(), result)) << name.str();
      see(chosen, result.real);
    }
    return true;
  }

  MLIRContext context;
};

TEST_F(FloatFactsTest, EveryScalarOpHasARow) {
  for (StringRef name : attn::getScalarRuleNames())
    EXPECT_TRUE(raise::hasFloatFacts(name)) << name.str() << " has no row in FloatFacts.cpp";
}

TEST_F(FloatFactsTest, EvaluationAgreesWithTheFacts) {
  RegionOps ops(context);
  unsigned evaluated = 0;
  for (StringRef name : attn::getScalarRuleNames()) {
    const raise::FloatFacts &facts = raise::floatFacts(name);
    bool keepsZero = true, isFinite = true, hasPole = false, isBounded = true, dropsNaN = false;
    double zeros[] = {0.0, -0.0};
    if (!evaluate(ops, name, zeros, [&](auto, double result) { keepsZero &= result == 0; }))
      continue; // the op has operands or results that are no floats, or of several types
    evaluated += 1;
    evaluate(ops, name, realistic, [&](auto, double result) {
      isFinite &= std::isfinite(result);
      hasPole |= std::isinf(result);
    });
    SmallVector<double> all = llvm::to_vector(ArrayRef(realistic));
    all.append({-INFINITY, INFINITY, NAN});
    evaluate(ops, name, all, [&](ArrayRef<double> operands, double result) {
      bool isNaN = llvm::any_of(operands, [](double each) { return std::isnan(each); });
      isBounded &= isNaN ? std::isnan(result) : std::abs(result) <= 1;
      dropsNaN |= isNaN && !std::isnan(result);
    });
    EXPECT_EQ(keepsZero, facts.keepsZero) << name.str();
    EXPECT_EQ(hasPole, facts.hasPole) << name.str();
    EXPECT_EQ(dropsNaN, facts.dropsNaN) << name.str();
    EXPECT_TRUE(isFinite || !facts.isFinite) << name.str();
    EXPECT_TRUE(isBounded || !facts.isBounded) << name.str();
  }
  EXPECT_GT(evaluated, 35u);
}

} // namespace
