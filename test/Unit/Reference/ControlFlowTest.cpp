// Calls, branches and loops.
#include "Harness.h"

using namespace saccade::reference;

namespace {

using ControlFlow = Reference;

TEST_F(ControlFlow, LoopsCarryTensorsAndScalars) {
  auto results = run(R"(
    func.func @loop(%t: tensor<4xf32>, %n: index, %step: index) -> (tensor<4xf32>, f32, index) {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %r:3 = scf.for %i = %c0 to %n step %step iter_args(%a = %t, %s = %zero, %last = %n) -> (tensor<4xf32>, f32, index) {
        %x = tensor.extract %a[%i] : tensor<4xf32>
        %y = arith.addf %s, %x : f32
        %b = tensor.insert %y into %a[%i] : tensor<4xf32>
        scf.yield %b, %y, %i : tensor<4xf32>, f32, index
      }
      return %r#0, %r#1, %r#2 : tensor<4xf32>, f32, index
    })",
                     {reals({4}, {1, 2, 3, 4}), index(4), index(2)});
  EXPECT_EQ((std::vector<double>{1, 2, 4, 4}), realsOf(results[0]));
  EXPECT_EQ(4, results[1].values[0].real);
  EXPECT_EQ(2, results[2].values[0].integer);
}

TEST_F(ControlFlow, LoopsWithoutIterationsReturnTheirInits) {
  auto results = run(R"(
    func.func @none(%t: tensor<2xf32>, %n: index) -> tensor<2xf32> {
      %c1 = arith.constant 1 : index
      %r = scf.for %i = %n to %c1 step %c1 iter_args(%a = %t) -> tensor<2xf32> {
        %b = arith.addf %a, %a : tensor<2xf32>
        scf.yield %b : tensor<2xf32>
      }
      return %r : tensor<2xf32>
    })",
                     {reals({2}, {1, 2}), index(5)});
  EXPECT_EQ((std::vector<double>{1, 2}), realsOf(results[0]));
}

constexpr const char *branches = R"(
  func.func @branch(%c: i1, %a: tensor<?xf32>, %i: index) -> tensor<?xf32> {
    %r = scf.if %c -> tensor<?xf32> {
      %x = tensor.extract %a[%i] : tensor<?xf32>
      %s = tensor.splat %x[%i] : tensor<?xf32>
      scf.yield %s : tensor<?xf32>
    } else {
      scf.yield %a : tensor<?xf32>
    }
    return %r : tensor<?xf32>
  })";

TEST_F(ControlFlow, OnlyTheTakenBranchRuns) {
  Tensor a = reals({3}, {5, 6, 7});
  EXPECT_EQ((std::vector<double>{7, 7}), realsOf(run(branches, {integers({}, {1}, "i1"), a, index(2)})[0]));
  // Index 9 would be out of bounds in the other branch.
  EXPECT_EQ((std::vector<double>{5, 6, 7}), realsOf(run(branches, {integers({}, {0}, "i1"), a, index(9)})[0]));
}

TEST_F(ControlFlow, CallsAreEvaluatedLazily) {
  auto function = parse(R"(
    func.func private @twice(%a: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
      %b = arith.addf %a, %a : tensor<?xf32>
      %c = arith.mulf %b, %b : tensor<?xf32>
      return %b, %c : tensor<?xf32>, tensor<?xf32>
    }
    func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
      %b:2 = call @twice(%a) : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
      %c:2 = call @twice(%b#1) : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
      return %c#0 : tensor<?xf32>
    })");
  EXPECT_EQ((std::vector<double>{8, 32, 72}), realsOf(run(function, {reals({3}, {1, 2, 3})})[0]));
  auto evaluation = Evaluation::begin(function, {reals({3}, {1, 2, 3})});
  auto part = evaluation->evaluate(0, {Box{{1}, {1}}});
  ASSERT_TRUE(mlir::succeeded(part));
  EXPECT_EQ((std::vector<double>{32}), realsOf(*part));
}

} // namespace
