// The tensor dialect: creating, accessing, slicing and reshaping tensors.
#include "Harness.h"

using namespace saccade::reference;

namespace {

using TensorOps = Reference;

/// 0, 1, 2, ...
std::vector<double> count(int64_t n) {
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i)
    values[i] = i;
  return values;
}

TEST_F(TensorOps, Constants) {
  auto results = run(R"(
    func.func @constants() -> (tensor<2x2xf32>, tensor<3xi64>, tensor<2xf16>, i1) {
      %a = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
      %b = arith.constant dense<-7> : tensor<3xi64>
      %c = arith.constant dense<[0.1, 2.0]> : tensor<2xf16>
      %d = arith.constant true
      return %a, %b, %c, %d : tensor<2x2xf32>, tensor<3xi64>, tensor<2xf16>, i1
    })",
                     {});
  EXPECT_EQ((std::vector<double>{1, 2, 3, 4}), realsOf(results[0]));
  EXPECT_EQ((std::vector<int64_t>{-7, -7, -7}), integersOf(results[1]));
  EXPECT_EQ((std::vector<double>{0.0999755859375, 2}), realsOf(results[2]));
  EXPECT_EQ(1, results[3].values[0].integer);
}

TEST_F(TensorOps, CreatingTensors) {
  auto results = run(R"(
    func.func @make(%n: index, %x: f32) -> (tensor<?x2xindex>, tensor<?x2xf32>, tensor<2x2xf32>, tensor<?xf32>) {
      %g = tensor.generate %n {
      ^bb0(%i: index, %j: index):
        %c10 = arith.constant 10 : index
        %t = arith.muli %i, %c10 : index
        %s = arith.addi %t, %j : index
        tensor.yield %s : index
      } : tensor<?x2xindex>
      %s = tensor.splat %x[%n] : tensor<?x2xf32>
      %y = arith.addf %x, %x : f32
      %f = tensor.from_elements %x, %y, %y, %x : tensor<2x2xf32>
      %e = tensor.empty(%n) : tensor<?xf32>
      return %g, %s, %f, %e : tensor<?x2xindex>, tensor<?x2xf32>, tensor<2x2xf32>, tensor<?xf32>
    })",
                     {index(3), reals({}, {2})});
  EXPECT_EQ((std::vector<int64_t>{0, 1, 10, 11, 20, 21}), integersOf(results[0]));
  EXPECT_EQ((std::vector<double>{2, 2, 2, 2, 2, 2}), realsOf(results[1]));
  EXPECT_EQ((std::vector<double>{2, 4, 4, 2}), realsOf(results[2]));
  for (double value : realsOf(results[3]))
    EXPECT_TRUE(std::isnan(value)); // uninitialised elements are NaN
}

TEST_F(TensorOps, ExtractInsertDimRankCast) {
  auto results = run(R"(
    func.func @elements(%t: tensor<?x3xf32>, %i: index) -> (f32, tensor<?x3xf32>, index, index, tensor<2x?xf32>) {
      %c1 = arith.constant 1 : index
      %c0 = arith.constant 0 : index
      %x = tensor.extract %t[%i, %c1] : tensor<?x3xf32>
      %u = tensor.insert %x into %t[%c0, %i] : tensor<?x3xf32>
      %d = tensor.dim %t, %c0 : tensor<?x3xf32>
      %r = tensor.rank %t : tensor<?x3xf32>
      %c = tensor.cast %t : tensor<?x3xf32> to tensor<2x?xf32>
      return %x, %u, %d, %r, %c : f32, tensor<?x3xf32>, index, index, tensor<2x?xf32>
    })",
                     {reals({2, 3}, count(6)), index(1)});
  EXPECT_EQ(4, results[0].values[0].real);
  EXPECT_EQ((std::vector<double>{0, 4, 2, 3, 4, 5}), realsOf(results[1]));
  EXPECT_EQ(2, results[2].values[0].integer);
  EXPECT_EQ(2, results[3].values[0].integer);
  EXPECT_EQ(count(6), realsOf(results[4]));
}

TEST_F(TensorOps, SlicesWithStridesAndDroppedDimensions) {
  auto results = run(R"(
    func.func @slices(%t: tensor<3x4xf32>, %i: index, %s: tensor<2xf32>) -> (tensor<2x2xf32>, tensor<?xf32>, tensor<3x4xf32>) {
      %a = tensor.extract_slice %t[1, 0] [2, 2] [1, 3] : tensor<3x4xf32> to tensor<2x2xf32>
      %b = tensor.extract_slice %t[0, %i] [%i, 1] [1, 1] : tensor<3x4xf32> to tensor<?xf32>
      %c = tensor.insert_slice %s into %t[%i, 1] [1, 2] [1, 2] : tensor<2xf32> into tensor<3x4xf32>
      return %a, %b, %c : tensor<2x2xf32>, tensor<?xf32>, tensor<3x4xf32>
    })",
                     {reals({3, 4}, count(12)), index(2), reals({2}, {-1, -2})});
  EXPECT_EQ((std::vector<double>{4, 7, 8, 11}), realsOf(results[0]));
  EXPECT_EQ((std::vector<double>{2, 6}), realsOf(results[1]));
  EXPECT_EQ((std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, -1, 10, -2}), realsOf(results[2]));
}

TEST_F(TensorOps, ReshapesKeepRowMajorOrder) {
  auto results = run(R"(
    func.func @reshape(%t: tensor<?x6xf32>, %n: index) -> (tensor<?x2x2x3xf32>, tensor<?xf32>, tensor<f32>, tensor<1x1xf32>) {
      %a = tensor.expand_shape %t [[0, 1], [2, 3]] output_shape [%n, 2, 2, 3] : tensor<?x6xf32> into tensor<?x2x2x3xf32>
      %b = tensor.collapse_shape %a [[0, 1, 2, 3]] : tensor<?x2x2x3xf32> into tensor<?xf32>
      %s = tensor.extract_slice %t[1, 2] [1, 1] [1, 1] : tensor<?x6xf32> to tensor<1x1xf32>
      %c = tensor.collapse_shape %s [] : tensor<1x1xf32> into tensor<f32>
      %d = tensor.expand_shape %c [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
      return %a, %b, %c, %d : tensor<?x2x2x3xf32>, tensor<?xf32>, tensor<f32>, tensor<1x1xf32>
    })",
                     {reals({4, 6}, count(24)), index(2)});
  EXPECT_EQ(count(24), realsOf(results[0]));
  EXPECT_EQ((llvm::SmallVector<int64_t>{2, 2, 2, 3}), results[0].shape);
  EXPECT_EQ(count(24), realsOf(results[1]));
  EXPECT_EQ((std::vector<double>{8}), realsOf(results[2]));
  EXPECT_EQ((std::vector<double>{8}), realsOf(results[3]));
}

TEST_F(TensorOps, PadAndConcat) {
  auto results = run(R"(
    func.func @join(%a: tensor<2x2xf32>, %b: tensor<2x?xf32>, %n: index) -> (tensor<?x4xf32>, tensor<2x?xf32>) {
      %p = tensor.pad %a low[%n, 1] high[0, 1] {
      ^bb0(%i: index, %j: index):
        %k = arith.index_cast %j : index to i32
        %x = arith.sitofp %k : i32 to f32
        tensor.yield %x : f32
      } : tensor<2x2xf32> to tensor<?x4xf32>
      %c = tensor.concat dim(1) %a, %b, %a : (tensor<2x2xf32>, tensor<2x?xf32>, tensor<2x2xf32>) -> tensor<2x?xf32>
      return %p, %c : tensor<?x4xf32>, tensor<2x?xf32>
    })",
                     {reals({2, 2}, {10, 20, 30, 40}), reals({2, 1}, {5, 6}), index(1)});
  EXPECT_EQ((std::vector<double>{0, 1, 2, 3, 0, 10, 20, 3, 0, 30, 40, 3}), realsOf(results[0]));
  EXPECT_EQ((std::vector<double>{10, 20, 5, 10, 20, 30, 40, 6, 30, 40}), realsOf(results[1]));
}

// Lazily evaluated boxes of a chain of reshapes, slices, pads, concats and transposes equal those of the whole result.
TEST_F(TensorOps, LazyBoxesEqualTheWholeResult) {
  auto function = parse(R"(
    func.func @chain(%t: tensor<6x10xf32>, %n: index) -> tensor<?x3x8xf32> {
      %zero = arith.constant 0.0 : f32
      %a = tensor.expand_shape %t [[0, 1], [2, 3]] output_shape [2, 3, 5, 2] : tensor<6x10xf32> into tensor<2x3x5x2xf32>
      %e = tensor.empty() : tensor<2x5x3x2xf32>
      %b = linalg.transpose ins(%a : tensor<2x3x5x2xf32>) outs(%e : tensor<2x5x3x2xf32>) permutation = [0, 2, 1, 3]
      %c = tensor.collapse_shape %b [[0, 1], [2, 3]] : tensor<2x5x3x2xf32> into tensor<10x6xf32>
      %s = tensor.extract_slice %c[1, 1] [4, 2] [2, 3] : tensor<10x6xf32> to tensor<4x2xf32>
      %d = tensor.insert_slice %s into %c[0, 2] [4, 2] [2, 1] : tensor<4x2xf32> into tensor<10x6xf32>
      %p = tensor.pad %d low[0, %n] high[2, 0] {
      ^bb0(%i: index, %j: index):
        tensor.yield %zero : f32
      } : tensor<10x6xf32> to tensor<12x?xf32>
      %q = tensor.cast %p : tensor<12x?xf32> to tensor<12x8xf32>
      %f = tensor.concat dim(0) %q, %q, %q : (tensor<12x8xf32>, tensor<12x8xf32>, tensor<12x8xf32>) -> tensor<36x8xf32>
      %c12 = arith.constant 12 : index
      %g = tensor.cast %f : tensor<36x8xf32> to tensor<?x8xf32>
      %h = tensor.expand_shape %g [[0, 1], [2]] output_shape [%c12, 3, 8] : tensor<?x8xf32> into tensor<?x3x8xf32>
      return %h : tensor<?x3x8xf32>
    })");
  ASSERT_TRUE(function);
  llvm::SmallVector<Tensor> arguments{random({6, 10}), index(2)};
  Tensor whole = run(function, arguments)[0];
  ASSERT_EQ((llvm::SmallVector<int64_t>{12, 3, 8}), whole.shape);
  for (int round = 0; round < 200; ++round) {
    auto evaluation = Evaluation::begin(function, arguments);
    ASSERT_TRUE(mlir::succeeded(evaluation));
    // Two boxes in one evaluation: some elements of the second one may be known already.
    llvm::SmallVector<Box> boxes(2);
    for (Box &box : boxes)
      for (int64_t extent : whole.shape) {
        box.offsets.push_back(generator() % extent);
        box.sizes.push_back(1 + generator() % (extent - box.offsets.back()));
      }
    auto part = evaluation->evaluate(0, boxes);
    ASSERT_TRUE(mlir::succeeded(part));
    EXPECT_EQ(realsOf(gather(whole, boxes)), realsOf(*part));
  }
}

} // namespace
