// attn.accumulate, attn.merge, attn.finalize: attention tiled along the keys.
#include "Formula.h"
#include "Harness.h"

using namespace saccade::reference;

namespace {

using AttentionTile = Reference;

// Keys in tiles of four; the state has two more rows than there are queries.
constexpr const char *tiled = R"(
  func.func @tiled(%q: tensor<5x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x6xf32>, %slope: f32, %acc0: tensor<7x6xf32>,
      %max0: tensor<7xf32>, %sum0: tensor<7xf32>, %begin: index, %end: index)
      -> (tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>) {
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %n = tensor.dim %k, %c0 : tensor<?x4xf32>
    %r:3 = scf.for %j = %begin to %end step %c4 iter_args(%acc = %acc0, %max = %max0, %sum = %sum0)
        -> (tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>) {
      %size = affine.min affine_map<(d0)[s0] -> (4, s0 - d0)>(%j)[%end]
      %kt = tensor.extract_slice %k[%j, 0] [%size, 4] [1, 1] : tensor<?x4xf32> to tensor<?x4xf32>
      %vt = tensor.extract_slice %v[%j, 0] [%size, 6] [1, 1] : tensor<?x6xf32> to tensor<?x6xf32>
      %a, %m, %s = attn.accumulate %q[s,d], %kt[s,d], %vt[s,d] captures(%slope : f32) kv_len(%n : index)
          at(%c0, %c0, %c0, %j) into(%acc, %max, %sum : tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>)
          mask causal<bottom_right>
          score(%x, %b, %h, %i, %jj, %sl) {
            %d = arith.subi %jj, %i : index
            %di = arith.index_cast %d : index to i32
            %df = arith.sitofp %di : i32 to f32
            %y = arith.mulf %df, %sl : f32
            %z = arith.addf %x, %y : f32
            attn.yield %z : f32
          } : (tensor<5x4xf32>, tensor<?x4xf32>, tensor<?x6xf32>)
      scf.yield %a, %m, %s : tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>
    }
    return %r#0, %r#1, %r#2 : tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>
  }
  func.func @whole(%q: tensor<5x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x6xf32>, %slope: f32)
      -> (tensor<6x5xf32>, tensor<5xf32>) {
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %n = tensor.dim %k, %c0 : tensor<?x4xf32>
    %zero = arith.constant 0.0 : f32
    %mid = arith.minsi %c8, %n : index
    %none = arith.constant 0xff800000 : f32
    %e2 = tensor.empty() : tensor<7x6xf32>
    %e1 = tensor.empty() : tensor<7xf32>
    %acc = linalg.fill ins(%zero : f32) outs(%e2 : tensor<7x6xf32>) -> tensor<7x6xf32>
    %max = linalg.fill ins(%none : f32) outs(%e1 : tensor<7xf32>) -> tensor<7xf32>
    %sum = linalg.fill ins(%zero : f32) outs(%e1 : tensor<7xf32>) -> tensor<7xf32>
    %a:3 = func.call @tiled(%q, %k, %v, %slope, %acc, %max, %sum, %c0, %mid) : (tensor<5x4xf32>, tensor<?x4xf32>,
      tensor<?x6xf32>, f32, tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>, index, index)
      -> (tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>)
    %b:3 = func.call @tiled(%q, %k, %v, %slope, %acc, %max, %sum, %mid, %n) : (tensor<5x4xf32>, tensor<?x4xf32>,
      tensor<?x6xf32>, f32, tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>, index, index)
      -> (tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>)
    %m:3 = attn.merge (%b#0, %b#1, %b#2) into(%a#0, %a#1, %a#2)
      : (tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>, tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>)
      -> (tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>)
    %out = tensor.empty() : tensor<6x5xf32>
    %lse = tensor.empty() : tensor<5xf32>
    %o:2 = attn.finalize %m#0, %m#1, %m#2 : tensor<7x6xf32>, tensor<7xf32>, tensor<7xf32>
      into(%out[d,s] : tensor<6x5xf32>, %lse : tensor<5xf32>)
    return %o#0, %o#1 : tensor<6x5xf32>, tensor<5xf32>
  })";

TEST_F(AttentionTile, AccumulateMergeFinalizeEqualsAttention) {
  // With 11 keys every row attends to some; with 3 keys the first two rows attend to none.
  for (int64_t keys : {11, 9, 3}) {
    Tensor q = random({5, 4}), k = random({keys, 4}), v = random({keys, 6}), slope = reals({}, {0.25});
    auto results = run(tiled, {q, k, v, slope});
    q.shape = {1, 1, 5, 4}, k.shape = {1, 1, keys, 4}, v.shape = {1, 1, keys, 6};
    auto formula = Formula<double>::of(q, k, v);
    formula.mask = [=](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + keys - 5; };
    formula.score = [](double s, int64_t, int64_t, int64_t i, int64_t j) { return s + 0.25 * double(j - i); };
    formula.compute();
    expectNear(results[1], formula.lse);
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t d = 0; d < 6; ++d)
        EXPECT_NEAR(results[0].values[d * 5 + i].real, formula.output[i * 6 + d], 1e-14);
  }
}

constexpr const char *merge = R"(
  func.func @merge(%a: tensor<1x2xf64>, %m: tensor<1xf64>, %s: tensor<1xf64>, %a0: tensor<1x2xf64>, %m0: tensor<1xf64>,
      %s0: tensor<1xf64>) -> (tensor<1x2xf64>, tensor<1xf64>, tensor<1xf64>) {
    %r:3 = attn.merge (%a, %m, %s) into(%a0, %m0, %s0)
      : (tensor<1x2xf64>, tensor<1xf64>, tensor<1xf64>, tensor<1x2xf64>, tensor<1xf64>, tensor<1xf64>)
      -> (tensor<1x2xf64>, tensor<1xf64>, tensor<1xf64>)
    return %r#0, %r#1, %r#2 : tensor<1x2xf64>, tensor<1xf64>, tensor<1xf64>
  })";

TEST_F(AttentionTile, MergeByHand) {
  // Maxima 3 and 1: the second state is rescaled by 2^-2.
  auto results = run(merge, {reals({1, 2}, {8, 4}, "f64"), reals({1}, {1}, "f64"), reals({1}, {12}, "f64"),
                             reals({1, 2}, {1, 2}, "f64"), reals({1}, {3}, "f64"), reals({1}, {5}, "f64")});
  EXPECT_EQ((std::vector<double>{3, 3}), realsOf(results[0]));
  EXPECT_EQ(3, results[1].values[0].real);
  EXPECT_EQ(8, results[2].values[0].real);
}

TEST_F(AttentionTile, TheEmptyStateIsTheIdentityOfMerge) {
  llvm::SmallVector<Tensor> state{reals({1, 2}, {1, 2}, "f64"), reals({1}, {-3}, "f64"), reals({1}, {5}, "f64")};
  llvm::SmallVector<Tensor> empty{reals({1, 2}, {0, 0}, "f64"), reals({1}, {-INFINITY}, "f64"), reals({1}, {0}, "f64")};
  for (bool isFirst : {false, true}) {
    llvm::SmallVector<Tensor> arguments(isFirst ? empty : state);
    llvm::append_range(arguments, isFirst ? state : empty);
    auto results = run(merge, arguments);
    for (unsigned i = 0; i < 3; ++i)
      EXPECT_EQ(realsOf(state[i]), realsOf(results[i]));
  }
  llvm::SmallVector<Tensor> both(empty);
  llvm::append_range(both, empty);
  EXPECT_EQ(-INFINITY, run(merge, both)[1].values[0].real);
}

} // namespace
