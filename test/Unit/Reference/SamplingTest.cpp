// Lazy evaluation of sampled rows: their choice, cost and values.
#include "Harness.h"

using namespace saccade::reference;

namespace {

using Sampling = Reference;

// An encoder block: projections, attention, output projection and residual.
std::string block(int64_t heads, int64_t depth) {
  std::string d = std::to_string(depth), h = std::to_string(heads), w = std::to_string(heads * depth);
  std::string matrix = "tensor<?x" + w + "xf32>", weight = "tensor<" + w + "x" + w + "xf32>",
              split = "tensor<?x?x" + h + "x" + d + "xf32>";
  std::string source = "func.func @block(%x3: tensor<?x?x" + w + "xf32>, %wq: " + weight + ", %wk: " + weight +
                       ", %wv: " + weight + ", %wo: " + weight + ") -> tensor<?x?x" + w + "xf32> {\n" +
                       "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n" +
                       "%b = tensor.dim %x3, %c0 : tensor<?x?x" + w + "xf32>\n%s = tensor.dim %x3, %c1 : tensor<?x?x" +
                       w + "xf32>\n" + "%x = tensor.collapse_shape %x3 [[0, 1], [2]] : tensor<?x?x" + w +
                       "xf32> into " + matrix + "\n%n = tensor.dim %x, %c0 : " + matrix +
                       "\n%zero = arith.constant 0.0 : f32\n%e = tensor.empty(%n) : " + matrix +
                       "\n%z = linalg.fill ins(%zero : f32) outs(%e : " + matrix + ") -> " + matrix + "\n";
  for (std::string side : {"q", "k", "v"})
    source += "%m" + side + " = linalg.matmul ins(%x, %w" + side + " : " + matrix + ", " + weight +
              ") outs(%z : " + matrix + ") -> " + matrix + "\n%" + side + " = tensor.expand_shape %m" + side +
              " [[0, 1], [2, 3]] output_shape [%b, %s, " + h + ", " + d + "] : " + matrix + " into " + split + "\n";
  source += "%o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] : (" + split + ", " + split + ", " + split +
            ") -> " + split + "\n%j = tensor.collapse_shape %o [[0, 1], [2, 3]] : " + split + " into " + matrix +
            "\n%p = linalg.matmul ins(%j, %wo : " + matrix + ", " + weight + ") outs(%x : " + matrix + ") -> " +
            matrix + "\n%y = tensor.expand_shape %p [[0, 1], [2]] output_shape [%b, %s, " + w + "] : " + matrix +
            " into tensor<?x?x" + w + "xf32>\nreturn %y : tensor<?x?x" + w + "xf32>\n}";
  return source;
}

TEST_F(Sampling, SampledRowsEqualTheWholeResult) {
  auto function = parse(block(3, 4));
  ASSERT_TRUE(function);
  llvm::SmallVector<Tensor> arguments{random({5, 11, 12}), random({12, 12}), random({12, 12}), random({12, 12}),
                                      random({12, 12})};
  for (Precision precision : {Precision::Exact, Precision::Rounded}) {
    Tensor whole = run(function, arguments, precision)[0];
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto evaluation = Evaluation::begin(function, arguments, precision);
      auto rows = evaluation->sampleRows(0, 8, seed);
      ASSERT_TRUE(mlir::succeeded(rows));
      EXPECT_LE(rows->size(), 8u);
      auto part = evaluation->evaluate(0, *rows);
      ASSERT_TRUE(mlir::succeeded(part));
      EXPECT_EQ(realsOf(gather(whole, *rows)), realsOf(*part));
      for (int64_t i = 0; i < part->size(); ++i) {
        auto index = positionInTensor(*rows, i);
        EXPECT_EQ(whole.values[(index[0] * 11 + index[1]) * 12 + index[2]].real, part->values[i].real);
      }
    }
  }
}

TEST_F(Sampling, IncludesTheEndsAndAllRowsOfSmallResults) {
  auto function = parse("func.func @f(%a: tensor<?x3xf32>) -> tensor<?x3xf32> { return %a : tensor<?x3xf32> }");
  auto large = Evaluation::begin(function, {random({1000, 3})});
  auto rows = large->sampleRows(0, 64);
  ASSERT_TRUE(mlir::succeeded(rows));
  EXPECT_EQ(0, rows->front().offsets[0]);
  EXPECT_EQ(999, rows->back().offsets[0]);
  EXPECT_GT(rows->size(), 32u);
  EXPECT_LE(rows->size(), 64u);
  EXPECT_EQ(3u, large->sampleRows(0, 3)->size());
  auto small = Evaluation::begin(function, {random({5, 3})});
  EXPECT_EQ(5u, small->sampleRows(0, 64)->size());
  auto none = Evaluation::begin(function, {random({0, 3})});
  EXPECT_EQ(0u, none->sampleRows(0, 64)->size());
}

TEST_F(Sampling, RowsAreAlongDepthAndLogSumExpByElement) {
  auto function = parse(R"(
    func.func @f(%q: tensor<6x500xf32>, %k: tensor<500x6xf32>) -> (tensor<6x500xf32>, tensor<500xf32>) {
      %o, %l = attn.attention %q[d,s], %k[s,d], %k[s,d] lse
        : (tensor<6x500xf32>, tensor<500x6xf32>, tensor<500x6xf32>) -> (tensor<6x500xf32>, tensor<500xf32>)
      return %o, %l : tensor<6x500xf32>, tensor<500xf32>
    })");
  auto evaluation = Evaluation::begin(function, {random({6, 500}), random({500, 6})});
  auto rows = evaluation->sampleRows(0, 8);
  ASSERT_TRUE(mlir::succeeded(rows));
  EXPECT_EQ((llvm::SmallVector<int64_t>{6, 1}), rows->front().sizes);
  auto elements = evaluation->sampleRows(1, 8);
  ASSERT_TRUE(mlir::succeeded(elements));
  EXPECT_EQ((llvm::SmallVector<int64_t>{1}), elements->front().sizes);
}

// The whole result of 32 × 196 tokens of width 768 takes 35 GFLOP; 256 rows take a small part.
TEST_F(Sampling, FewRowsOfALargeBlockAreCheap) {
  auto function = parse(block(12, 64));
  auto evaluation = Evaluation::begin(function, {random({32, 196, 768}), random({768, 768}, "f32", 0.03),
                                                 random({768, 768}, "f32", 0.03), random({768, 768}, "f32", 0.03),
                                                 random({768, 768}, "f32", 0.03)});
  ASSERT_TRUE(mlir::succeeded(evaluation));
  auto rows = evaluation->sampleRows(0);
  ASSERT_TRUE(mlir::succeeded(rows));
  auto part = evaluation->evaluate(0, *rows);
  ASSERT_TRUE(mlir::succeeded(part));
  EXPECT_EQ(part->size(), int64_t(rows->size()) * 768);
  for (Scalar value : part->values)
    ASSERT_TRUE(std::isfinite(value.real));
}

} // namespace
