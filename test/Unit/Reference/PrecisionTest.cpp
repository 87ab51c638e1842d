// Accuracy of the oracle: 1,000 random cases agree with the definition in long double to 1e-12 of the largest element.
#include "Formula.h"
#include "Harness.h"
#include "saccade/Reference/Tolerance.h"

using namespace saccade::reference;

namespace {

using PrecisionOfOracle = Reference;

TEST_F(PrecisionOfOracle, RandomAttentionAgreesWithLongDouble) {
  mlir::func::FuncOp function = parse(R"(
    func.func @attention(%q: tensor<?x?x?x?xf64>, %k: tensor<?x?x?x?xf64>, %v: tensor<?x?x?x?xf64>, %n: tensor<?xi32>,
        %bias: tensor<?x?xf64>, %left: index) -> (tensor<?x?x?x?xf64>, tensor<?x?x?xf64>) {
      %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%bias, %left : tensor<?x?xf64>, index)
        kv_len(%n : tensor<?xi32>)
        mask(%b, %h, %i, %j, %bi, %w) {
          %d = arith.subi %i, %j : index
          %m = arith.cmpi sle, %d, %w : index
          attn.yield %m : i1
        }
        score(%s : f64, %b, %h, %i, %j, %bi, %w) {
          %x = tensor.extract %bi[%i, %j] : tensor<?x?xf64>
          %y = arith.addf %s, %x : f64
          %c = arith.constant 20.0 : f64
          %z = arith.divf %y, %c : f64
          %t = math.tanh %z : f64
          %u = arith.mulf %t, %c : f64
          attn.yield %u : f64
        } lse
        : (tensor<?x?x?x?xf64>, tensor<?x?x?x?xf64>, tensor<?x?x?x?xf64>) -> (tensor<?x?x?x?xf64>, tensor<?x?x?xf64>)
      return %o, %l : tensor<?x?x?x?xf64>, tensor<?x?x?xf64>
    })");
  ASSERT_TRUE(function);
  double worst = 0;
  for (int round = 0; round < 1000; ++round) {
    auto pick = [&](int64_t max) { return int64_t(1 + generator() % max); };
    int64_t batch = pick(2), kvHeads = pick(2), heads = kvHeads * pick(3), queries = pick(8), keys = pick(24),
            depth = pick(16), valueDepth = pick(8), left = int64_t(generator() % 12) - 4;
    double size = std::exp2(double(generator() % 8) - 3);
    Tensor q = random({batch, heads, queries, depth}, "f64", size), k = random({batch, kvHeads, keys, depth}, "f64"),
           v = random({batch, kvHeads, keys, valueDepth}, "f64"), bias = random({queries, keys}, "f64");
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < batch; ++b)
      lengths.push_back(generator() % (keys + 1));
    auto formula = Formula<long double>::of(q, k, v);
    formula.keyLength = [&](int64_t b) { return lengths[b]; };
    formula.mask = [&](int64_t, int64_t, int64_t i, int64_t j) { return i - j <= left; };
    formula.score = [&](long double s, int64_t, int64_t, int64_t i, int64_t j) {
      return 20 * std::tanh((s + bias.values[i * keys + j].real) / 20);
    };
    formula.compute();
    auto results = run(function, {q, k, v, integers({batch}, lengths, "i32"), bias, index(left)});
    for (auto [result, expected] : {std::pair(&results[0], &formula.output), std::pair(&results[1], &formula.lse)}) {
      long double largest = 0;
      for (long double value : *expected)
        if (std::isfinite(value))
          largest = std::max(largest, std::abs(value));
      for (int64_t i = 0; i < result->size(); ++i) {
        double actual = result->values[i].real;
        if (!std::isfinite((*expected)[i])) {
          ASSERT_EQ(double((*expected)[i]), actual);
          continue;
        }
        double error = std::abs(actual - (*expected)[i]);
        ASSERT_LE(error, tolerance::oracleError * largest) << "round " << round << ", element " << i;
        if (largest > 0)
          worst = std::max(worst, double(error / largest));
      }
    }
  }
  RecordProperty("worst relative error", std::to_string(worst));
  EXPECT_GT(worst, 0); // guards against an empty comparison
}

} // namespace
