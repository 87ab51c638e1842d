//===- GradientFunctionTest.cpp - Functions of derivatives against differences -===//
//
// Evaluates a function, its gradient function and its function of tangents with the reference interpreter, in f64.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"
#include "mlir/IR/Verifier.h"
#include "test/Unit/Reference/Harness.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::reference;

namespace {

class GradientFunction : public Reference {
protected:
  /// Parses `source` and creates the gradient function and the function of tangents of its only function.
  bool differentiate(StringRef source) {
    function = parse(source);
    if (!function)
      return false;
    originalResults = function.getNumResults();
    FailureOr<func::FuncOp> forward = createJvpFunction(function), reverse = createGradientFunction(function);
    EXPECT_EQ(succeeded(forward), succeeded(reverse));
    if (failed(forward) || failed(reverse))
      return false;
    jvpFunction = *forward, gradientFunction = *reverse;
    EXPECT_TRUE(succeeded(verify(*module)));
    return true;
  }

  /// The gradients of the arguments, for random gradients of the results.
  SmallVector<Tensor> gradients(ArrayRef<Tensor> arguments) {
    SmallVector<Tensor> results = run(function, arguments), inputs(arguments);
    llvm::append_range(inputs, results);
    seeds.clear();
    for (Tensor &result : MutableArrayRef(results).take_front(originalResults)) {
      seeds.push_back(result.isReal() ? random(result.shape, "f64") : Tensor());
      if (result.isReal())
        inputs.push_back(seeds.back());
    }
    return run(gradientFunction, inputs);
  }

  /// Σ seed · result. Empty rows have log-sum-exp −inf and gradient 0.
  double loss(ArrayRef<Tensor> arguments) {
    SmallVector<Tensor> results = run(function, arguments);
    double sum = 0;
    for (auto [result, seed] : llvm::zip(results, seeds))
      for (auto [number, factor] : llvm::zip(result.values, seed.values))
        sum += number.real == -INFINITY ? 0 : number.real * factor.real;
    return sum;
  }

  bool isDifferentiated(unsigned argument, const Tensor &value) {
    return value.isReal() && !function.getArgAttr(argument, noGradientAttr);
  }

  /// Compares the tangents of the results for random tangents of the arguments with differences along these, and with
  /// the gradients `found`: Σ seed · tangent = Σ gradient · tangent of the argument.
  void checkForward(ArrayRef<Tensor> arguments, ArrayRef<Tensor> found) {
    SmallVector<Tensor> tangents, inputs(arguments);
    double product = 0;
    for (auto [i, argument] : llvm::enumerate(arguments)) {
      if (!isDifferentiated(i, argument))
        continue;
      for (auto [gradient, number] :
           llvm::zip_equal(found[tangents.size()].values, tangents.emplace_back(randomReals(argument.shape)).values))
        product += gradient.real * number.real;
    }
    llvm::append_range(inputs, tangents);
    SmallVector<Tensor> results = run(jvpFunction, inputs), expected = run(function, arguments);
    auto at = [&](double step) {
      SmallVector<Tensor> moved(arguments);
      ArrayRef<Tensor> directions = tangents;
      for (auto [i, argument] : llvm::enumerate(moved)) {
        if (!isDifferentiated(i, argument))
          continue;
        for (auto [number, direction] : llvm::zip_equal(argument.values, directions.front().values))
          number.real += step * direction.real;
        directions = directions.drop_front();
      }
      return run(function, moved);
    };
    constexpr double step = 1e-4;
    SmallVector<Tensor> near[] = {at(step), at(-step)}, far[] = {at(2 * step), at(-2 * step)};
    double sum = 0;
    unsigned next = originalResults;
    for (unsigned i = 0; i < originalResults; ++i) {
      EXPECT_EQ(realsOf(results[i]), realsOf(expected[i])) << "result " << i;
      if (!expected[i].isReal())
        continue;
      ASSERT_LT(next, results.size());
      const Tensor &tangent = results[next++];
      ASSERT_EQ(tangent.shape, expected[i].shape);
      for (int64_t j = 0; j < tangent.size(); ++j) {
        double actual = tangent.values[j].real;
        auto difference = [&](SmallVector<Tensor>(&moved)[2]) {
          return moved[0][i].values[j].real - moved[1][i].values[j].real;
        };
        // The log-sum-exp of an empty row is −inf.
        double along =
            expected[i].values[j].real == -INFINITY ? 0 : (8 * difference(near) - difference(far)) / (12 * step);
        EXPECT_NEAR(actual, along, 1e-6 * (1 + std::abs(along))) << "tangent of result " << i << ", element " << j;
        sum += actual * seeds[i].values[j].real;
      }
    }
    EXPECT_EQ(next, results.size());
    EXPECT_NEAR(sum, product, 1e-9 * (1 + std::abs(product))) << "forward and reverse mode differ";
  }

  /// Compares all gradients with central differences of fourth order, and returns them. Compares tangents as well.
  SmallVector<Tensor> check(StringRef source, ArrayRef<Tensor> arguments) {
    if (!differentiate(source)) {
      ADD_FAILURE() << "cannot be differentiated";
      return {};
    }
    SmallVector<Tensor> found = gradients(arguments);
    unsigned next = 0;
    for (unsigned i = 0; i < arguments.size(); ++i) {
      if (!isDifferentiated(i, arguments[i]))
        continue;
      if (next == found.size()) {
        ADD_FAILURE() << "no gradient of argument " << i;
        break;
      }
      const Tensor &gradient = found[next++];
      EXPECT_EQ(gradient.shape, arguments[i].shape);
      if (gradient.shape != arguments[i].shape)
        return found;
      double largest = 0;
      for (int64_t j = 0; j < arguments[i].size(); ++j) {
        auto at = [&](double shift) {
          SmallVector<Tensor> moved(arguments);
          moved[i].values[j].real += shift;
          return loss(moved);
        };
        constexpr double step = 1e-4;
        double expected = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
        double actual = gradient.values[j].real;
        EXPECT_NEAR(actual, expected, 1e-7 * (1 + std::abs(expected))) << "argument " << i << ", element " << j;
        largest = std::max(largest, std::abs(actual));
      }
      if (arguments[i].size() != 0)
        EXPECT_GT(largest, 1e-6) << "the program does not depend on argument " << i;
    }
    EXPECT_EQ(next, found.size());
    checkForward(arguments, found);
    return found;
  }

  /// The diagnostics of a program that cannot be differentiated.
  std::string errorOf(StringRef source) {
    std::string message;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { message += diagnostic.str(); });
    EXPECT_FALSE(differentiate(source));
    return message;
  }

  Tensor randomReals(ArrayRef<int64_t> shape) { return random(shape, "f64"); }
  Tensor real(double value) { return reals({}, {value}, "f64"); }

  func::FuncOp function, gradientFunction, jvpFunction;
  unsigned originalResults = 0;
  SmallVector<Tensor> seeds;
};

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

TEST_F(GradientFunction, PlainAttention) {
  check(R"(func.func @f(%q: tensor<?x3xf64>, %k: tensor<?x3xf64>, %v: tensor<?x3xf64>) -> tensor<?x3xf64> {
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
      : (tensor<?x3xf64>, tensor<?x3xf64>, tensor<?x3xf64>) -> tensor<?x3xf64>
    return %o : tensor<?x3xf64>
  })",
        {randomReals({4, 3}), randomReals({5, 3}), randomReals({5, 3})});
  EXPECT_EQ(function.getNumResults(), 3u); // the log-sum-exp and its low part are passed in, too
}

TEST_F(GradientFunction, GroupsOfHeadsWithOtherLayoutsAndEmptyRows) {
  SmallVector<Tensor> found = check(
      R"(func.func @f(%q: tensor<2x5x4x3xf64>, %k: tensor<2x2x6x3xf64>, %v: tensor<2x6x2x2xf64>) -> tensor<2x4x2x5xf64> {
    %o = attn.attention %q[b,s,h,d], %k[b,h,s,d], %v[b,s,h,d] out[b,h,d,s] mask causal<-2>
      : (tensor<2x5x4x3xf64>, tensor<2x2x6x3xf64>, tensor<2x6x2x2xf64>) -> tensor<2x4x2x5xf64>
    return %o : tensor<2x4x2x5xf64>
  })",
      {randomReals({2, 5, 4, 3}), randomReals({2, 2, 6, 3}), randomReals({2, 6, 2, 2})});
  ASSERT_EQ(found.size(), 3u);
  // Queries 0 and 1 see no key, keys 3 to 5 are seen by no query.
  for (int64_t i = 0; i < 2 * 4 * 3; ++i)
    EXPECT_EQ(found[0].values[i].real, 0);
  for (int64_t i = 3 * 3; i < 6 * 3; ++i)
    EXPECT_EQ(found[1].values[i].real, 0);
}

TEST_F(GradientFunction, SinksScaleLengthsAndLogSumExp) {
  check(R"(func.func @f(%q: tensor<2x2x4x3xf64>, %k: tensor<2x2x5x3xf64>, %v: tensor<2x2x5x3xf64>, %scale: f64,
                        %sink: tensor<2xf64>, %n: tensor<2xi64>, %m: tensor<2xi64>)
        -> (tensor<2x2x4x3xf64>, tensor<2x2x4xf64>) {
    %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%n : tensor<2xi64>) kv_len(%m : tensor<2xi64>)
      scale(%scale : f64) sink(%sink : tensor<2xf64>) lse
      : (tensor<2x2x4x3xf64>, tensor<2x2x5x3xf64>, tensor<2x2x5x3xf64>) -> (tensor<2x2x4x3xf64>, tensor<2x2x4xf64>)
    return %o, %l : tensor<2x2x4x3xf64>, tensor<2x2x4xf64>
  })",
        {randomReals({2, 2, 4, 3}), randomReals({2, 2, 5, 3}), randomReals({2, 2, 5, 3}), real(0.7), randomReals({2}),
         integers({2}, {4, 3}, "i64"), integers({2}, {5, 2}, "i64")});
  EXPECT_EQ(function.getNumResults(), 3u);
}

TEST_F(GradientFunction, OneSinkForAllHeads) {
  for (StringRef type : {"f64", "tensor<1xf64>"})
    check(("func.func @f(%q: tensor<4x3xf64>, %sink: " + type + R"() -> tensor<4x3xf64> {
      %o = attn.attention %q[s,d], %q[s,d], %q[s,d] sink(%sink : )" +
           type + R"() : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<4x3xf64>) -> tensor<4x3xf64>
      return %o : tensor<4x3xf64>
    })")
              .str(),
          {randomReals({4, 3}), type == "f64" ? real(0.3) : randomReals({1})});
}

TEST_F(GradientFunction, CapturesReadAtComputedPositionsInSeveralRegions) {
  check(R"(func.func @f(%q: tensor<2x4x3xf64>, %k: tensor<2x5x3xf64>, %v: tensor<2x5x3xf64>, %t: tensor<?x4xf64>,
                        %cap: f64, %number: tensor<5xi32>, %constant: tensor<4xf64> {attn.no_gradient})
        -> tensor<2x4x3xf64> {
    %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%t, %cap, %number, %constant
        : tensor<?x4xf64>, f64, tensor<5xi32>, tensor<4xf64>)
      mask causal<1>
      score(%s: f64, %b, %h, %i, %j, %table, %c, %n, %x) {
        %bucket = tensor.extract %n[%j] : tensor<5xi32>
        %place = arith.index_cast %bucket : i32 to index
        %bias = tensor.extract %table[%h, %place] : tensor<?x4xf64>
        %same = tensor.extract %table[%h, %i] : tensor<?x4xf64>
        %y = tensor.extract %x[%place] : tensor<4xf64>
        %0 = arith.divf %s, %c : f64
        %1 = math.tanh %0 : f64
        %2 = arith.mulf %1, %c : f64
        %3 = arith.mulf %bias, %same : f64
        %4 = arith.addf %2, %3 : f64
        %5 = arith.addf %4, %y : f64
        attn.yield %5 : f64
      }
      weight(%p: f64, %b, %h, %i, %j, %table, %c, %n, %x) {
        %bias = tensor.extract %table[%h, %i] : tensor<?x4xf64>
        %0 = arith.mulf %p, %bias : f64
        %1 = arith.divf %0, %c : f64
        attn.yield %1 : f64
      }
      : (tensor<2x4x3xf64>, tensor<2x5x3xf64>, tensor<2x5x3xf64>) -> tensor<2x4x3xf64>
    return %o : tensor<2x4x3xf64>
  })",
        {randomReals({2, 4, 3}), randomReals({2, 5, 3}), randomReals({2, 5, 3}), randomReals({2, 4}), real(1.5),
         integers({5}, {3, 0, 0, 2, 1}, "i32"), randomReals({4})});
}

TEST_F(GradientFunction, TalliesOfNumbersThatDependOnScoresAndCaptures) {
  // Bins −1 and 3 do not count. Positions start at `at`.
  check(R"(func.func @f(%q: tensor<2x2x4x3xf64>, %k: tensor<2x2x5x3xf64>, %v: tensor<2x2x5x3xf64>, %t: tensor<9xf64>,
                        %b0: index, %q0: index)
        -> (tensor<2x2x4x3xf64>, tensor<2x2x4x3xf64>, tensor<2x2x4x2xf64>) {
    %one = arith.constant 1 : index
    %zero = arith.constant 0 : index
    %o, %first, %second = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%t : tensor<9xf64>)
      at(%b0, %one, %q0, %zero)
      score(%s: f64, %b, %h, %i, %j, %table) {
        %c = tensor.extract %table[%i] : tensor<9xf64>
        %0 = arith.mulf %s, %c : f64
        attn.yield %0 : f64
      }
      tally<3>(%s: f64, %b, %h, %i, %j, %table) {
        %u = arith.constant 1 : index
        %bin = arith.subi %j, %u : index
        %c = tensor.extract %table[%j] : tensor<9xf64>
        %0 = math.exp %s : f64
        %1 = arith.mulf %0, %c : f64
        attn.yield %bin, %1 : index, f64
      }
      tally<2>(%s: f64, %b, %h, %i, %j, %table) {
        %u = arith.constant 2 : index
        %bin = arith.remui %j, %u : index
        attn.yield %bin, %s : index, f64
      }
      : (tensor<2x2x4x3xf64>, tensor<2x2x5x3xf64>, tensor<2x2x5x3xf64>)
      -> (tensor<2x2x4x3xf64>, tensor<2x2x4x3xf64>, tensor<2x2x4x2xf64>)
    return %o, %first, %second : tensor<2x2x4x3xf64>, tensor<2x2x4x3xf64>, tensor<2x2x4x2xf64>
  })",
        {randomReals({2, 2, 4, 3}), randomReals({2, 2, 5, 3}), randomReals({2, 2, 5, 3}), randomReals({9}), index(3),
         index(2)});
}

TEST_F(GradientFunction, RaggedBatches) {
  check(R"(func.func @f(%q: tensor<7x2x3xf64>, %k: tensor<8x2x3xf64>, %v: tensor<8x2x3xf64>, %cq: tensor<4xi32>,
                        %ck: tensor<4xi32>, %slope: tensor<2xf64>) -> (tensor<7x2x3xf64>, tensor<2x7x2xf64>) {
    %o, %t = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] captures(%slope : tensor<2xf64>)
      cu_seqlens_q(%cq : tensor<4xi32>) cu_seqlens_k(%ck : tensor<4xi32>)
      score(%s: f64, %b, %h, %i, %j, %sl) {
        %m = tensor.extract %sl[%h] : tensor<2xf64>
        %n = arith.index_cast %j : index to i64
        %x = arith.sitofp %n : i64 to f64
        %y = arith.mulf %m, %x : f64
        %r = arith.addf %s, %y : f64
        attn.yield %r : f64
      }
      tally<2>(%s: f64, %b, %h, %i, %j, %sl) {
        attn.yield %j, %s : index, f64
      }
      : (tensor<7x2x3xf64>, tensor<8x2x3xf64>, tensor<8x2x3xf64>) -> (tensor<7x2x3xf64>, tensor<2x7x2xf64>)
    return %o, %t : tensor<7x2x3xf64>, tensor<2x7x2xf64>
  })",
        {randomReals({7, 2, 3}), randomReals({8, 2, 3}), randomReals({8, 2, 3}), integers({4}, {0, 3, 3, 6}, "i32"),
         integers({4}, {0, 2, 4, 7}, "i32"), randomReals({2})});
}

TEST_F(GradientFunction, AnArmThatIsNotSelectedHasNoGradient) {
  SmallVector<Tensor> found = check(
      R"(func.func @f(%q: tensor<3x2xf64>, %k: tensor<3x2xf64>, %t: tensor<3xf64>) -> tensor<3x2xf64> {
    %o = attn.attention %q[s,d], %k[s,d], %k[s,d] captures(%t : tensor<3xf64>)
      score(%s: f64, %b, %h, %i, %j, %table) {
        %zero = arith.constant 0.0 : f64
        %e = tensor.extract %table[%j] : tensor<3xf64>
        %p = arith.cmpf ogt, %e, %zero : f64
        %root = math.sqrt %e : f64
        %l = math.log %root : f64
        %0 = arith.select %p, %l, %zero : f64
        %1 = arith.addf %s, %0 : f64
        attn.yield %1 : f64
      } : (tensor<3x2xf64>, tensor<3x2xf64>, tensor<3x2xf64>) -> tensor<3x2xf64>
    return %o : tensor<3x2xf64>
  })",
      {randomReals({3, 2}), randomReals({3, 2}), reals({3}, {2.0, -1.0, -0.5}, "f64")});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2].values[1].real, 0);
}

//===----------------------------------------------------------------------===//
// Other ops
//===----------------------------------------------------------------------===//

TEST_F(GradientFunction, ProjectionsViewsAndScalarsAroundAttention) {
  check(R"(#id = affine_map<(d0, d1) -> (d0, d1)>
  #row = affine_map<(d0, d1) -> (d1)>
  func.func @f(%x: tensor<4x6xf64>, %w: tensor<6x6xf64>, %bias: tensor<6xf64>, %t: f64, %u: tensor<4x2xf64>)
      -> tensor<4x6xf64> {
    %zero = arith.constant 0.0 : f64
    %empty = tensor.empty() : tensor<4x6xf64>
    %init = linalg.fill ins(%zero : f64) outs(%empty : tensor<4x6xf64>) -> tensor<4x6xf64>
    %xw = linalg.matmul ins(%x, %w : tensor<4x6xf64>, tensor<6x6xf64>) outs(%init : tensor<4x6xf64>) -> tensor<4x6xf64>
    %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%xw, %bias : tensor<4x6xf64>, tensor<6xf64>) outs(%empty : tensor<4x6xf64>) {
      ^bb0(%a: f64, %b: f64, %out: f64):
        %0 = arith.addf %a, %b : f64
        %1 = math.erf %0 : f64
        %2 = arith.mulf %1, %t : f64
        linalg.yield %2 : f64
      } -> tensor<4x6xf64>
    %heads = tensor.expand_shape %y [[0], [1, 2]] output_shape [4, 2, 3] : tensor<4x6xf64> into tensor<4x2x3xf64>
    %turned = tensor.empty() : tensor<2x4x3xf64>
    %k = linalg.transpose ins(%heads : tensor<4x2x3xf64>) outs(%turned : tensor<2x4x3xf64>) permutation = [1, 0, 2]
    %part = tensor.extract_slice %x[0, 1] [4, 2] [1, 2] : tensor<4x6xf64> to tensor<4x2xf64>
    %mixed = tensor.insert_slice %u into %x[0, 4] [4, 2] [1, 1] : tensor<4x2xf64> into tensor<4x6xf64>
    %q = tensor.expand_shape %mixed [[0], [1, 2]] output_shape [4, 2, 3] : tensor<4x6xf64> into tensor<4x2x3xf64>
    %scale0 = arith.mulf %t, %t : f64
    %scale = math.sqrt %scale0 : f64
    %o = attn.attention %q[s,h,d], %k[h,s,d], %k[h,s,d] scale(%scale : f64) out[s,h,d]
        : (tensor<4x2x3xf64>, tensor<2x4x3xf64>, tensor<2x4x3xf64>) -> tensor<4x2x3xf64>
    %flat = tensor.collapse_shape %o [[0], [1, 2]] : tensor<4x2x3xf64> into tensor<4x6xf64>
    %any = tensor.cast %flat : tensor<4x6xf64> to tensor<?x6xf64>
    %same = tensor.cast %any : tensor<?x6xf64> to tensor<4x6xf64>
    %tile = linalg.fill ins(%t : f64) outs(%empty : tensor<4x6xf64>) -> tensor<4x6xf64>
    %acc = linalg.matmul ins(%same, %w : tensor<4x6xf64>, tensor<6x6xf64>) outs(%tile : tensor<4x6xf64>)
        -> tensor<4x6xf64>
    %r = tensor.insert_slice %part into %acc[0, 0] [4, 2] [1, 1] : tensor<4x2xf64> into tensor<4x6xf64>
    return %r : tensor<4x6xf64>
  })",
        {randomReals({4, 6}), randomReals({6, 6}), randomReals({6}), real(0.8), randomReals({4, 2})});
}

TEST_F(GradientFunction, ANormWithBroadcastDimensionsOfExtentOne) {
  check(R"(#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
  #one = affine_map<(d0, d1, d2) -> (d0, 0, 0)>
  #first = affine_map<(d0, d1, d2) -> (0, d1, 0)>
  #none = affine_map<(d0, d1, d2) -> (0, 0)>
  func.func @f(%x: tensor<?x3x4xf64>, %scale: tensor<?x1x1xf64>, %shift: tensor<1x3x1xf64>, %all: tensor<1x1xf64>)
      -> tensor<?x3x4xf64> {
    %zero = arith.constant 0 : index
    %n = tensor.dim %x, %zero : tensor<?x3x4xf64>
    %e = tensor.empty(%n) : tensor<?x3x4xf64>
    %r = linalg.generic {indexing_maps = [#id, #one, #first, #none, #id],
                         iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x, %scale, %shift, %all : tensor<?x3x4xf64>, tensor<?x1x1xf64>, tensor<1x3x1xf64>, tensor<1x1xf64>)
        outs(%e : tensor<?x3x4xf64>) {
      ^bb0(%a: f64, %b: f64, %c: f64, %d: f64, %out: f64):
        %0 = arith.mulf %a, %b : f64
        %1 = arith.addf %0, %c : f64
        %2 = arith.mulf %1, %1 : f64
        %3 = arith.mulf %2, %d : f64
        linalg.yield %3 : f64
      } -> tensor<?x3x4xf64>
    return %r : tensor<?x3x4xf64>
  })",
        {randomReals({2, 3, 4}), randomReals({2, 1, 1}), randomReals({1, 3, 1}), randomReals({1, 1})});
}

TEST_F(GradientFunction, SeveralResultsAndPositionsInTheBody) {
  check(R"(#id = affine_map<(d0, d1) -> (d0, d1)>
  #turned = affine_map<(d0, d1) -> (d1, d0)>
  #row = affine_map<(d0, d1) -> (d0)>
  func.func @f(%x: tensor<3x4xf64>, %y: tensor<4x3xf64>, %n: tensor<3x4xi64>, %init: tensor<3xf64>)
      -> (tensor<3xf64>, tensor<3xf64>) {
    %r:2 = linalg.generic {indexing_maps = [#id, #turned, #id, #row, #row], iterator_types = ["parallel", "reduction"]}
        ins(%x, %y, %n : tensor<3x4xf64>, tensor<4x3xf64>, tensor<3x4xi64>)
        outs(%init, %init : tensor<3xf64>, tensor<3xf64>) {
      ^bb0(%a: f64, %b: f64, %c: i64, %out0: f64, %out1: f64):
        %i = linalg.index 1 : index
        %j = arith.index_cast %i : index to i64
        %k = arith.addi %j, %c : i64
        %p = arith.sitofp %k : i64 to f64
        %0 = arith.mulf %a, %p : f64
        %1 = arith.addf %0, %out0 : f64
        %2 = math.sin %0 : f64
        %3 = arith.mulf %2, %b : f64
        %4 = arith.addf %out1, %3 : f64
        linalg.yield %1, %4 : f64, f64
      } -> (tensor<3xf64>, tensor<3xf64>)
    return %r#0, %r#1 : tensor<3xf64>, tensor<3xf64>
  })",
        {randomReals({3, 4}), randomReals({4, 3}), integers({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "i64"),
         randomReals({3})});
}

TEST_F(GradientFunction, TypesOfGradientsAreThoseOfArguments) {
  ASSERT_TRUE(differentiate(R"(func.func @f(%q: tensor<4x3xf16>, %t: tensor<4xbf16>, %c: f64, %sink: f16, %scale: f32)
      -> tensor<4x3xf16> {
    %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%t, %c : tensor<4xbf16>, f64) scale(%scale : f32)
      sink(%sink : f16)
      score(%s, %b, %h, %i, %j, %table, %x) {
        %e = tensor.extract %table[%j] : tensor<4xbf16>
        %0 = arith.extf %e : bf16 to f32
        %1 = arith.truncf %x : f64 to f32
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %s, %2 : f32
        attn.yield %3 : f32
      } : (tensor<4x3xf16>, tensor<4x3xf16>, tensor<4x3xf16>) -> tensor<4x3xf16>
    return %o : tensor<4x3xf16>
  })"));
  SmallVector<Type> expected = {type("tensor<4x3xf16>"), type("tensor<4xbf16>"), type("tensor<f64>"),
                                type("tensor<f16>"), type("tensor<f32>")};
  EXPECT_EQ(SmallVector<Type>(gradientFunction.getResultTypes()), expected);
}

TEST_F(GradientFunction, AttentionOfAttention) {
  check(R"(func.func @f(%q: tensor<4x3xf64>, %k: tensor<4x3xf64>) -> (tensor<4x3xf64>, tensor<4x3xf64>) {
    %o = attn.attention %q[s,d], %k[s,d], %k[s,d] : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<4x3xf64>) -> tensor<4x3xf64>
    %p = attn.attention %o[s,d], %o[s,d], %q[s,d] : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<4x3xf64>) -> tensor<4x3xf64>
    return %p, %o : tensor<4x3xf64>, tensor<4x3xf64>
  })",
        {randomReals({4, 3}), randomReals({4, 3})});
  EXPECT_EQ(function.getNumResults(), 6u);
  // Both outputs are passed in.
  EXPECT_TRUE(gradientFunction.getOps<AttentionOp>().empty());
}

TEST_F(GradientFunction, AViewOfTheOutputIsPassedIn) {
  check(R"(func.func @f(%q: tensor<?x2x3xf64>) -> (tensor<?x6xf64>, tensor<6x?xf64>) {
    %c0 = arith.constant 0 : index
    %n = tensor.dim %q, %c0 : tensor<?x2x3xf64>
    %o = attn.attention %q[s,h,d], %q[s,h,d], %q[s,h,d]
      : (tensor<?x2x3xf64>, tensor<?x2x3xf64>, tensor<?x2x3xf64>) -> tensor<?x2x3xf64>
    %flat = tensor.collapse_shape %o [[0], [1, 2]] : tensor<?x2x3xf64> into tensor<?x6xf64>
    %p = attn.attention %q[s,h,d], %o[s,h,d], %q[s,h,d]
      : (tensor<?x2x3xf64>, tensor<?x2x3xf64>, tensor<?x2x3xf64>) -> tensor<?x2x3xf64>
    %flat1 = tensor.collapse_shape %p [[0], [1, 2]] : tensor<?x2x3xf64> into tensor<?x6xf64>
    %e = tensor.empty(%n) : tensor<6x?xf64>
    %turned = linalg.transpose ins(%flat1 : tensor<?x6xf64>) outs(%e : tensor<6x?xf64>) permutation = [1, 0]
    return %flat, %turned : tensor<?x6xf64>, tensor<6x?xf64>
  })",
        {randomReals({4, 2, 3})});
  EXPECT_TRUE(gradientFunction.getOps<AttentionOp>().empty());
}

TEST_F(GradientFunction, ResultsThatNoOtherOpComputes) {
  check(R"(func.func @f(%x: tensor<2x3xf64>, %y: tensor<2x3xf64>) -> (tensor<2x3xf64>, tensor<6xf64>, tensor<1x2x3xf64>,
      tensor<?x3xf64>, tensor<3x2xf64>, tensor<?xf64>, tensor<2x3xf64>, tensor<2xf64>) {
    %flat = tensor.collapse_shape %x [[0, 1]] : tensor<2x3xf64> into tensor<6xf64>
    %split = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 2, 3] : tensor<2x3xf64> into tensor<1x2x3xf64>
    %any = tensor.cast %y : tensor<2x3xf64> to tensor<?x3xf64>
    %e = tensor.empty() : tensor<3x2xf64>
    %turned = linalg.transpose ins(%y : tensor<2x3xf64>) outs(%e : tensor<3x2xf64>) permutation = [1, 0]
    %flat1 = tensor.collapse_shape %turned [[0, 1]] : tensor<3x2xf64> into tensor<6xf64>
    %chain = tensor.cast %flat1 : tensor<6xf64> to tensor<?xf64>
    %constant = arith.constant dense<[1.0, 2.0]> : tensor<2xf64>
    return %x, %flat, %split, %any, %turned, %chain, %x, %constant : tensor<2x3xf64>, tensor<6xf64>, tensor<1x2x3xf64>,
      tensor<?x3xf64>, tensor<3x2xf64>, tensor<?xf64>, tensor<2x3xf64>, tensor<2xf64>
  })",
        {randomReals({2, 3}), randomReals({2, 3})});
}

TEST_F(GradientFunction, AnArgumentWithoutInfluenceHasGradientZero) {
  ASSERT_TRUE(differentiate("func.func @f(%x: tensor<2xf64>, %y: tensor<?xf64>, %z: f64) -> tensor<2xf64> {\n"
                            "  return %x : tensor<2xf64>\n}"));
  SmallVector<Tensor> found = gradients({randomReals({2}), randomReals({3}), real(1)});
  ASSERT_EQ(found.size(), 3u);
  expectNear(found[0], realsOf(seeds[0]));
  expectNear(found[1], {0, 0, 0});
  expectNear(found[2], {0});
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST_F(GradientFunction, AWeightRegionThatIsNotProportionalIsRefused) {
  std::string message = "'attn.attention' op cannot be differentiated: its weight region is not proved proportional to "
                        "the weight, and other weight regions need a normalized second pass";
  EXPECT_EQ(errorOf(R"(func.func @f(%q: tensor<4x3xf64>) -> tensor<4x3xf64> {
    %o = attn.attention %q[s,d], %q[s,d], %q[s,d] weight(%p: f64, %b, %h, %i, %j) {
      %r = arith.mulf %p, %p : f64
      attn.yield %r : f64
    } : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<4x3xf64>) -> tensor<4x3xf64>
    return %o : tensor<4x3xf64>
  })"),
            // In forward mode and in reverse mode.
            message + message);
}

TEST_F(GradientFunction, TypesOfTangentsAreThoseOfValues) {
  ASSERT_TRUE(differentiate(R"(func.func @f(%x: tensor<4x3xf16> {attn.dim_names = ["n", "m"]}, %c: f32, %n: i32,
                                            %w: tensor<3x2xf16> {attn.no_gradient})
      -> (tensor<4x2xf16>, tensor<4xi32>, tensor<4x3xf32>) {
    %zero = arith.constant 0.0 : f16
    %empty = tensor.empty() : tensor<4x2xf16>
    %init = linalg.fill ins(%zero : f16) outs(%empty : tensor<4x2xf16>) -> tensor<4x2xf16>
    %y = linalg.matmul ins(%x, %w : tensor<4x3xf16>, tensor<3x2xf16>) outs(%init : tensor<4x2xf16>) -> tensor<4x2xf16>
    %i = tensor.empty() : tensor<4xi32>
    %r = arith.mulf %c, %c : f32
    %t = tensor.empty() : tensor<4x3xf32>
    %s = linalg.fill ins(%r : f32) outs(%t : tensor<4x3xf32>) -> tensor<4x3xf32>
    return %y, %i, %s : tensor<4x2xf16>, tensor<4xi32>, tensor<4x3xf32>
  })"));
  SmallVector<Type> arguments = {type("tensor<4x3xf16>"), type("f32"), type("i32"), type("tensor<3x2xf16>"),
                                 type("tensor<4x3xf16>"), type("f32")};
  SmallVector<Type> results = {type("tensor<4x2xf16>"), type("tensor<4xi32>"), type("tensor<4x3xf32>"),
                               type("tensor<4x2xf16>"), type("tensor<4x3xf32>")};
  EXPECT_EQ(SmallVector<Type>(jvpFunction.getArgumentTypes()), arguments);
  EXPECT_EQ(SmallVector<Type>(jvpFunction.getResultTypes()), results);
  EXPECT_EQ(jvpFunction.getArgAttr(4, dimNamesAttr), function.getArgAttr(0, dimNamesAttr));
  // The matmul has one differentiated factor, so its tangent is one contraction.
  EXPECT_EQ(llvm::count_if(jvpFunction.getOps<linalg::LinalgOp>(),
                           [](linalg::LinalgOp op) { return op.getNumReductionLoops() == 1; }),
            2);
}

TEST_F(GradientFunction, TangentsOfAScaleOfZeroAndOfEmptyRows) {
  ASSERT_TRUE(differentiate(R"(func.func @f(%q: tensor<4x3xf64>, %scale: f64) -> (tensor<4x3xf64>, tensor<4xf64>) {
    %o, %l = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(%scale : f64) mask causal<-2> lse
      : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<4x3xf64>) -> (tensor<4x3xf64>, tensor<4xf64>)
    return %o, %l : tensor<4x3xf64>, tensor<4xf64>
  })"));
  SmallVector<Tensor> found = run(jvpFunction, {randomReals({4, 3}), real(0), randomReals({4, 3}), real(1)});
  ASSERT_EQ(found.size(), 4u);
  for (int64_t i = 0; i < 2 * 3; ++i)
    EXPECT_EQ(found[2].values[i].real, 0);
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_EQ(found[3].values[i].real, 0);
  for (Scalar number : found[2].values)
    EXPECT_TRUE(std::isfinite(number.real));
  // Query 2 sees one key, whose score changes with the scale.
  EXPECT_NE(found[3].values[2].real, 0);
}

TEST_F(GradientFunction, NeitherModeIsDifferentiatedAgain) {
  std::string source = R"(func.func @f(%q: tensor<4x3xf64>) -> tensor<4x3xf64> {
    %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<4x3xf64>) -> tensor<4x3xf64>
    return %o : tensor<4x3xf64>
  })";
  for (bool isForward : {false, true}) {
    ASSERT_TRUE(differentiate(source));
    std::string message;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { message += diagnostic.str(); });
    EXPECT_TRUE(failed(createGradientFunction(isForward ? jvpFunction : gradientFunction)));
    EXPECT_TRUE(failed(createJvpFunction(isForward ? jvpFunction : gradientFunction)));
    std::string name = isForward ? "jvp" : "gradient";
    std::string start = "'f_" + name + "' cannot be differentiated: no rule for ", op = "'attn." + name + "'";
    // Tangents are made in program order, and the attention whose low part attn.jvp reads comes first.
    std::string first = isForward ? "the low part of the log-sum-exp of 'attn.attention'" : op;
    EXPECT_EQ(message, start + op + start + first);
  }
}

} // namespace
