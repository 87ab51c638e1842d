//===- SelectedDerivativesTest.cpp - Derivatives of values not selected -------===//
//
// A value that is not selected contributes exactly 0, whatever its own derivative.
//
//===----------------------------------------------------------------------===//
#include "Derivative.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;

namespace {

int64_t countSelects(Block &block) {
  return llvm::count_if(block, [](Operation &op) { return isa<arith::SelectOp>(op); });
}

TEST_F(DerivativesTest, AnInfiniteDerivativeThatIsNotSelectedIsZero) {
  std::string root = R"(%0 = arith.constant 0.0 : f64
    %p = arith.cmpf ogt, %x, %0 : f64
    %s = math.sqrt %x : f64
    %r = arith.select %p, %s, %0 : f64
    return %r : f64)";
  EXPECT_EQ(derivatives(root, 0)[0], 0);
  EXPECT_EQ(derivatives(root, -1)[0], 0);
  EXPECT_EQ(derivatives(root, NAN)[0], 0);
  EXPECT_EQ(derivatives(root, 4)[0], 0.25);
}

TEST_F(DerivativesTest, ANaNThatIsNotSelectedDoesNotReachSharedOperands) {
  // Both arms read %l = log x, which has derivatives by both.
  std::string body = R"(%0 = arith.constant 0.0 : f64
    %l = math.log %x : f64
    %d = arith.divf %l, %y : f64
    %m = arith.mulf %l, %l : f64
    %r = arith.select %c, %d, %m : f64
    return %r : f64)";
  EXPECT_EQ(derivatives(body, 1, 0, false), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(derivatives(body, 1, 4, true), (std::vector<double>{0.25, 0, 0, 0}));
}

TEST_F(DerivativesTest, NestedSelectsDiscardWhatTheyDoNotChoose) {
  std::string body = R"(%0 = arith.constant 0.0 : f64
    %p = arith.cmpf ogt, %x, %0 : f64
    %q = arith.cmpf ogt, %y, %0 : f64
    %l = math.log %x : f64
    %k = math.rsqrt %y : f64
    %a = arith.select %q, %k, %x : f64
    %b = arith.select %p, %a, %y : f64
    %e = arith.select %p, %l, %b : f64
    %r = arith.addf %b, %e : f64
    return %r : f64)";
  EXPECT_EQ(derivatives(body, -1, -1), (std::vector<double>{0, 2, 0, 0}));
  EXPECT_EQ(derivatives(body, -1, 0), (std::vector<double>{0, 2, 0, 0}));
  EXPECT_EQ(derivatives(body, 2, 0), (std::vector<double>{1.5, 0, 0, 0}));
  EXPECT_EQ(derivatives(body, 2, 1), (std::vector<double>{0.5, -0.5, 0, 0}));
}

TEST_F(DerivativesTest, OppositeConditionsExcludeEachOther) {
  // The inner select chooses %y only where the outer one discards it.
  EXPECT_EQ(derivatives(R"(%l = math.log %y : f64
    %i = arith.select %c, %x, %l : f64
    %r = arith.select %c, %i, %x : f64
    return %r : f64)",
                        3, -1, true),
            (std::vector<double>{1, 0, 0, 0}));
}

TEST_F(DerivativesTest, TheOperandThatIsNotTheMaximumIsDiscarded) {
  EXPECT_EQ(derivatives(R"(%e = math.exp %x : f64
    %i = math.sqrt %y : f64
    %r = arith.maximumf %e, %i : f64
    return %r : f64)",
                        0, 0),
            (std::vector<double>{1, 0, 0, 0}));
}

TEST_F(DerivativesTest, AReadThatIsNotSelectedHasGradientZero) {
  std::string body = R"(%i = arith.constant 0 : index
    %e = tensor.extract %t[%i] : tensor<?xf64>
    %l = math.log %e : f64
    %r = arith.select %c, %l, %x : f64
    return %r : f64)";
  EXPECT_EQ(derivatives(body, 1, 0, false, 0), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(derivatives(body, 1, 0, true, 2), (std::vector<double>{0, 0, 0, 0.5}));
}

TEST_F(DerivativesTest, ReadsWithEqualIndicesAreOneRead) {
  Region &region = parse(R"(%i = arith.constant 0 : index
    %e = tensor.extract %t[%i] : tensor<?xf64>
    %f = tensor.extract %t[%i] : tensor<?xf64>
    %r = arith.mulf %e, %f : f64
    return %r : f64)");
  Block &source = region.front();
  Region to;
  OpBuilder b(&context);
  b.setInsertionPointToEnd(&to.emplaceBlock());
  IRMapping values;
  Location loc = source.back().getLoc();
  for (Value argument : source.getArguments())
    values.map(argument, to.front().addArgument(argument.getType(), loc));
  saccade::attn::cloneScalarCode(b, source, values);
  Value seed = values.lookup(source.getArgument(0));
  auto gradients = saccade::attn::emitReverseMode(b, "the test", source, values, {{source.back().getOperand(0), seed}},
                                                  {source.getArgument(3)});
  ASSERT_TRUE(succeeded(gradients));
  EXPECT_EQ(gradients->size(), 1u);
}

TEST_F(DerivativesTest, CodeWithoutConditionsHasNoSelects) {
  Region &region = parse(R"(%e = math.exp %x : f64
    %a = arith.mulf %e, %y : f64
    %b = arith.divf %e, %a : f64
    %r = arith.addf %a, %b : f64
    return %r : f64)");
  Derivative derivative(region, {1.0});
  EXPECT_EQ(countSelects(derivative.reverseCode()), 0);
  EXPECT_EQ(countSelects(derivative.forwardCode()), 0);
}

TEST_F(DerivativesTest, TwoArmsOfOneValueShareASelect) {
  Region &region = parse(R"(%e = math.exp %x : f64
    %n = arith.negf %x : f64
    %r = arith.select %c, %e, %n : f64
    return %r : f64)");
  Derivative derivative(region, {1.0});
  EXPECT_EQ(countSelects(derivative.reverseCode()), 2); // the copy, and one for %x
}

} // namespace
