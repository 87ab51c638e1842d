//===- MaskCountTest.cpp - Counted tiles and pairs against masks pair by pair -===//
#include "saccade/Dialect/Attn/Analysis/MaskCount.h"
#include "RandomMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

class MaskCountTest : public testing::Test {
protected:
  MaskCountTest() : context(MLIRContext::Threading::DISABLED), b(&context), loc(b.getUnknownLoc()) {
    context.loadDialect<AttnDialect, arith::ArithDialect, math::MathDialect, tensor::TensorDialect>();
    Type index = b.getIndexType();
    block().addArguments({index, index, index, index}, SmallVector<Location>(4, loc));
    b.setInsertionPointToEnd(&block());
  }

  Block &block() { return region.empty() ? region.emplaceBlock() : region.front(); }
  Value query() { return block().getArgument(2); }
  Value key() { return block().getArgument(3); }
  void require(Value condition) { YieldOp::create(b, loc, ValueRange(condition)); }
  Value atMost(Value left, Value right) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, left, right);
  }

  MLIRContext context;
  OpBuilder b;
  Location loc;
  Region region;
  StaticMaskInputs inputs;
  int64_t budget = 100'000;
};

TEST_F(MaskCountTest, CausalTilesAndPairsAreCounted) {
  require(atMost(key(), query()));
  std::optional<MaskCount> found = countMask(region, {0, 0, 0, 96, 0, 96}, {48, 32, 12, 16, 16}, inputs, budget);
  ASSERT_TRUE(found);
  EXPECT_EQ(6, found->tiles());
  // Queries 0 to 47: keys 0 to 31 and 32 to 63 in part; 48 to 95: the first in full, the others in part.
  EXPECT_EQ(1, found->empty);
  EXPECT_EQ(1, found->full);
  EXPECT_EQ(4, found->partial);
  EXPECT_EQ(96 * 97 / 2, found->visible);
  EXPECT_TRUE(found->isExact);
  // Groups of twelve compute keys up to their last query, rounded up to a panel.
  int64_t computed = 0;
  for (int64_t first = 0; first < 96; first += 12)
    computed += 12 * std::min<int64_t>(96, (first + 12 + 15) / 16 * 16);
  EXPECT_EQ(computed, found->computed);
}

TEST_F(MaskCountTest, StepsBeginAtMultiplesWhereverTheFirstKeyIs) {
  Region noMask;
  std::optional<MaskCount> found = countMask(noMask, {0, 0, 0, 10, 30, 40}, {10, 32, 10, 32, 32}, inputs, budget);
  ASSERT_TRUE(found);
  // 30 and 31, 32 to 63, 64 to 69.
  EXPECT_EQ(3, found->full);
  EXPECT_EQ(400, found->computed);
}

TEST_F(MaskCountTest, WhatDataDecideIsOpenAndCountedAsVisible) {
  Value table = block().addArgument(RankedTensorType::get({100}, b.getI32Type()), loc);
  Value left = tensor::ExtractOp::create(b, loc, table, query()),
        right = tensor::ExtractOp::create(b, loc, table, key());
  Value isSame = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, left, right);
  require(arith::AndIOp::create(b, loc, isSame, atMost(key(), query())));
  std::optional<MaskCount> found = countMask(region, {0, 0, 0, 100, 0, 100}, {50, 50, 10, 10, 10}, inputs, budget);
  ASSERT_TRUE(found);
  EXPECT_EQ(1, found->empty);
  EXPECT_EQ(3, found->dataDependent);
  EXPECT_FALSE(found->isExact);
  EXPECT_GE(found->visible, 5050);
  EXPECT_LE(found->visible, 6000);
  EXPECT_TRUE(inputs.tables.contains(0));
  EXPECT_EQ((SmallVector<std::string>{"?...", "??..", "???.", "????"}),
            drawMask(region, {0, 0, 0, 100, 0, 100}, 4, 4, inputs));
}

TEST_F(MaskCountTest, NumbersThatNobodyKnowsAreNamed) {
  Value limit = block().addArgument(b.getIndexType(), loc);
  require(atMost(key(), limit));
  (void)classifyMask(region, {0, 0, 0, 8, 0, 8}, inputs);
  EXPECT_TRUE(inputs.missing.contains(0));
  StaticMaskInputs known;
  known.scalars[0] = 7;
  EXPECT_EQ(MaskKind::Full, classifyMask(region, {0, 0, 0, 8, 0, 8}, known));
  EXPECT_TRUE(known.missing.empty());
}

TEST_F(MaskCountTest, AShortBudgetIsSaid) {
  require(atMost(key(), query()));
  int64_t none = 3, few = 10;
  EXPECT_FALSE(countMask(region, {0, 0, 0, 96, 0, 96}, {48, 32, 12, 16, 16}, inputs, none));
  std::optional<MaskCount> found = countMask(region, {0, 0, 0, 96, 0, 96}, {48, 32, 12, 16, 16}, inputs, few);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->isExact);
  EXPECT_GE(found->visible, 96 * 97 / 2);
}

TEST_F(MaskCountTest, PicturesShowAllKinds) {
  require(atMost(key(), query()));
  EXPECT_EQ((SmallVector<std::string>{"+...", "#+..", "##+.", "###+"}),
            drawMask(region, {0, 0, 0, 64, 0, 64}, 4, 4, inputs));
}

TEST_F(MaskCountTest, EmptyPanelsBetweenOthersAreLeftOut) {
  // Every query attends to keys 0 to 15 and 80 to 95.
  Value begin = arith::ConstantIndexOp::create(b, loc, 80), end = arith::ConstantIndexOp::create(b, loc, 15);
  require(arith::OrIOp::create(b, loc, atMost(begin, key()), atMost(key(), end)));
  std::optional<MaskCount> found = countMask(region, {0, 0, 0, 24, 0, 96}, {24, 96, 12, 32, 16}, inputs, budget);
  ASSERT_TRUE(found);
  EXPECT_EQ(1, found->partial);
  EXPECT_EQ(24 * 32, found->visible);
  EXPECT_EQ(24 * 64, found->computed);
  // A kernel without holes computes the keys between as well.
  MaskTiling tiling{24, 96, 24, 32, 32, /*hasHoles=*/false};
  found = countMask(region, {0, 0, 0, 24, 0, 96}, tiling, inputs, budget);
  ASSERT_TRUE(found);
  EXPECT_EQ(24 * 96, found->computed);
}

/// The keys of a group of queries in a step, key by key: those of panels that are not empty or lie between such panels,
/// if there are no holes, without the empty tails at the end. The last panel keeps its first tail.
int64_t keysOfGroup(Region &mask, const MaskPlane &group, const MaskTiling &tiling, StaticMaskInputs &inputs) {
  std::vector<bool> isComputed(group.keys);
  auto isEmpty = [&](int64_t begin, int64_t granularity) {
    int64_t keys = std::min(granularity, group.keys - begin);
    return MaskKind::Empty ==
           classifyMask(mask, {group.batch, group.head, group.firstQuery, group.queries, group.firstKey + begin, keys},
                        inputs);
  };
  int64_t first = -1, last = -1;
  for (int64_t key = 0; key < group.keys; ++key)
    if (isComputed[key] = !isEmpty(key / tiling.panel * tiling.panel, tiling.panel); isComputed[key])
      first = first < 0 ? key : first, last = key;
  for (int64_t key = first; !tiling.hasHoles && key < last; ++key)
    isComputed[key] = true;
  for (int64_t tail = last / tiling.tail * tiling.tail; tail % tiling.panel != 0 && isEmpty(tail, tiling.tail);
       tail -= tiling.tail)
    for (int64_t key = tail; key < std::min(tail + tiling.tail, group.keys); ++key)
      isComputed[key] = false;
  return llvm::count(isComputed, true);
}

/// What `MaskCount::computed` is: steps at multiples of the number of keys, in full or by groups of queries.
int64_t countComputed(Region &mask, const MaskPlane &plane, const MaskTiling &tiling, StaticMaskInputs &inputs) {
  int64_t computed = 0;
  for (int64_t row = 0; row < plane.queries; row += tiling.rows)
    for (int64_t key = 0; key < plane.keys;) {
      int64_t firstKey = plane.firstKey + key,
              keys = std::min(tiling.cols - ((firstKey % tiling.cols) + tiling.cols) % tiling.cols, plane.keys - key);
      MaskPlane step{plane.batch, plane.head, plane.firstQuery + row, std::min(tiling.rows, plane.queries - row),
                     firstKey,    keys};
      key += keys;
      MaskKind kind = classifyMask(mask, step, inputs);
      if (kind == MaskKind::Full)
        computed += step.queries * keys;
      for (int64_t i = 0; i < step.queries && kind != MaskKind::Full && kind != MaskKind::Empty; i += tiling.group) {
        MaskPlane group = step;
        group.firstQuery += i, group.queries = std::min(tiling.group, step.queries - i);
        computed += group.queries * keysOfGroup(mask, group, tiling, inputs);
      }
    }
  return computed;
}

// For random masks all visible pairs are counted, exactly if `isExact`.
TEST_F(MaskCountTest, NoVisiblePairOfARandomMaskIsLost) {
  constexpr int64_t extent = 24;
  unsigned exact = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    RandomMask mask(context, seed, extent);
    LaneEvaluator evaluate(extent * extent);
    Lanes queries, keys;
    for (int64_t i = 0; i < extent * extent; ++i) {
      queries.push_back(mask.queryOrigin + i / extent);
      keys.push_back(mask.keyOrigin + i % extent);
    }
    StaticMaskInputs inputs;
    auto arguments = mask.region.getArguments();
    evaluate.bind(arguments[0], Lanes(extent * extent, mask.batch));
    evaluate.bind(arguments[1], Lanes(extent * extent, mask.head));
    evaluate.bind(arguments[2], std::move(queries));
    evaluate.bind(arguments[3], std::move(keys));
    for (unsigned i = 0; i < mask.tables.size(); ++i) {
      if (mask.tables[i]) {
        evaluate.bindTable(arguments[4 + i], *mask.tables[i]);
        for (auto [dim, size] : llvm::enumerate(mask.tables[i]->shape))
          inputs.extents[{i, unsigned(dim)}] = size;
      } else {
        inputs.scalars[i] = mask.scalars[i];
        evaluate.bind(arguments[4 + i],
                      Lanes(extent * extent, mask.scalars[i] & (arguments[4 + i].getType().isInteger(1) ? 1 : -1)));
      }
    }
    evaluate.queryLength = inputs.queryLength = mask.queryLength;
    evaluate.keyLength = inputs.keyLength = mask.keyLength;
    int64_t visible = 0;
    for (int64_t holds : evaluate(mask.getCondition()))
      visible += holds & 1;
    int64_t budget = 100'000;
    std::optional<MaskCount> found =
        countMask(mask.region, {mask.batch, mask.head, mask.queryOrigin, extent, mask.keyOrigin, extent},
                  {12, 8, 4, 4, 2}, inputs, budget);
    ASSERT_TRUE(found);
    ASSERT_GE(found->visible, visible) << "seed " << seed << "\n" << mask.text();
    ASSERT_GE(found->computed, visible) << "seed " << seed << "\n" << mask.text();
    if (found->isExact) {
      ASSERT_EQ(found->visible, visible) << "seed " << seed << "\n" << mask.text();
    }
    exact += found->isExact;
    constexpr std::pair<int64_t, int64_t> granularities[] = {{4, 1}, {4, 2}, {6, 1}, {8, 8}};
    auto [panel, tail] = granularities[seed % 4];
    MaskPlane plane{mask.batch, mask.head, mask.queryOrigin, extent, mask.keyOrigin, extent - seed % 3};
    MaskTiling tiling{10, 2 * panel, 4, panel, tail, /*hasHoles=*/seed % 8 < 4};
    found = countMask(mask.region, plane, tiling, inputs, budget);
    ASSERT_TRUE(found);
    ASSERT_EQ(countComputed(mask.region, plane, tiling, inputs), found->computed)
        << "seed " << seed << ", panels of " << panel << ", tails of " << tail << "\n"
        << mask.text();
  }
  EXPECT_GT(exact, 20u);
}

} // namespace
