//===- KeyBoundsClaimsTest.cpp - Bounds of keys against masks pair by pair ----===//
#include "AffineMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

constexpr int64_t keyBoundsExtent = 18;
constexpr size_t boxCount = 48;

struct KeyBox {
  int64_t firstQuery, lastQuery, firstKey, endKey;
};

/// Totals over all cases.
struct KeyCounts {
  int64_t exact = 0, bounded = 0, reached = 0, needed = 0;
};

class KeyBoundsClaims : public testing::Test {
protected:
  KeyBoundsClaims() : context(MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
    ops.emplace(context);
    module = parseSourceString<ModuleOp>(skeleton(*ops), &context);
    module->walk([&](AttentionOp op) { attention = op; });
  }

  /// A description of a wrong bound; empty if there is none. `counts` may be null.
  std::string findViolation(AffineMask &mask, uint64_t seed, KeyCounts *counts);

  MLIRContext context;
  std::optional<RegionOps> ops;
  OwningOpRef<ModuleOp> module;
  AttentionOp attention;
};

std::string KeyBoundsClaims::findViolation(AffineMask &mask, uint64_t seed, KeyCounts *counts) {
  std::mt19937_64 random(seed);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  // Positions in narrow types are below 2^30.
  const int64_t origins[] = {0, 0, 0, 17, 1000, int64_t(1) << 20, (int64_t(1) << 30) - 40, int64_t(1) << 40};
  int64_t queryOrigin = origins[pick(0, mask.isNarrow ? 6 : 7)];
  int64_t keyOrigin = pick(0, 3) ? queryOrigin : origins[pick(0, mask.isNarrow ? 6 : 7)];

  // Which pairs satisfy each comparison.
  Environment grid = mask.environment(keyBoundsExtent * keyBoundsExtent);
  for (int64_t i = 0; i < keyBoundsExtent * keyBoundsExtent; ++i) {
    grid[2][i].integer = queryOrigin + i / keyBoundsExtent;
    grid[3][i].integer = keyOrigin + i % keyBoundsExtent;
  }
  auto known = evaluate(mask.region.front(), grid);
  SmallVector<Value> conjuncts = mask.conjuncts();
  bool hasEquality = llvm::any_of(conjuncts, [](Value each) {
    auto compared = each.getDefiningOp<arith::CmpIOp>();
    return compared && compared.getPredicate() == arith::CmpIPredicate::eq;
  });

  attention.getMask().takeBody(mask.region);
  KeyBounds bounds(cast<ScoringOpInterface>(attention.getOperation()));
  // The emitted code for all boxes at once.
  Block block;
  OpBuilder b(&context);
  b.setInsertionPointToEnd(&block);
  Location loc = b.getUnknownLoc();
  IRMapping mapping;
  for (Value argument : attention.getMask().getArguments())
    mapping.map(argument, block.addArgument(argument.getType(), loc));
  Value rest[6];
  for (Value &value : rest)
    value = block.addArgument(b.getIndexType(), loc);
  KeyRange range =
      bounds.computeRange(b, loc, Role::Key, mapping, rest[0], rest[1], rest[2], rest[3], KeyRange{rest[4], rest[5]});
  mask.region.takeBody(attention.getMask());

  std::vector<KeyBox> boxes;
  Environment inputs = mask.environment(boxCount); // ends with the lengths
  inputs.resize(inputs.size() + 4);
  for (size_t i = 0; i < boxCount; ++i) {
    int64_t first = pick(0, keyBoundsExtent - 1), last = pick(0, 1) ? first : pick(first, keyBoundsExtent - 1);
    int64_t begin = pick(0, 2) ? 0 : pick(0, keyBoundsExtent - 1),
            end = pick(0, 2) ? keyBoundsExtent : pick(begin, keyBoundsExtent);
    boxes.push_back({first, last, begin, end});
    const int64_t numbers[] = {queryOrigin + first, queryOrigin + last, keyOrigin + begin, keyOrigin + end};
    for (unsigned j = 0; j < 4; ++j)
      inputs[inputs.size() - 4 + j].push_back({.integer = numbers[j]});
  }
  auto emitted = evaluate(block, inputs);
  const ScalarLanes begins = emitted.find(range.begin)->second, ends = emitted.find(range.end)->second;
  if (counts) {
    counts->exact += bounds.isExact();
    counts->bounded += !bounds.getConstraints().empty();
  }
  bool isLoose = !bounds.isExact() && !bounds.getConstraints().empty();
  for (auto [i, box] : llvm::enumerate(boxes)) {
    int64_t least = keyBoundsExtent, most = -1;
    for (int64_t key = box.firstKey; key < box.endKey; ++key) {
      int64_t begin = begins.values[i].integer - keyOrigin, end = ends.values[i].integer - keyOrigin;
      bool isReached = begin <= key && key < end, isSeen = false, isAllowed = true;
      for (int64_t query = box.firstQuery; query <= box.lastQuery; ++query)
        isSeen |= llvm::all_of(
            conjuncts, [&](Value each) { return known[each].values[query * keyBoundsExtent + key].integer != 0; });
      // Each comparison is bounded by the query that makes it weakest.
      for (Value each : conjuncts) {
        bool isPossible = false;
        for (int64_t query = box.firstQuery; query <= box.lastQuery; ++query)
          isPossible |= known[each].values[query * keyBoundsExtent + key].integer != 0;
        isAllowed &= isPossible;
      }
      if (isSeen)
        least = std::min(least, key), most = key;
      if (counts && isLoose)
        counts->reached += isReached;
      // An equality is two bounds; the keys of several queries may have gaps in between.
      bool isExact = bounds.isExact() && (!hasEquality || box.firstQuery == box.lastQuery);
      if ((isSeen && !isReached) || (isExact && isReached != isAllowed))
        return ("queries " + Twine(queryOrigin + box.firstQuery) + " to " + Twine(queryOrigin + box.lastQuery) +
                ": key " + Twine(keyOrigin + key) + (isReached ? " is" : " is not") + " in [" +
                Twine(begins.values[i].integer) + ", " + Twine(ends.values[i].integer) + "), which is " +
                (bounds.isExact() ? "" : "not ") + "exact, but the mask says " + (isAllowed ? "visible" : "hidden") +
                "\n")
            .str();
    }
    if (counts && isLoose)
      counts->needed += std::max<int64_t>(most - least + 1, 0);
  }
  if (mask.isSimple && !bounds.isExact())
    return "a conjunction of simple comparisons is not exact\n";
  return "";
}

TEST_F(KeyBoundsClaims, NoKeyIsLostAndExactBoundsHaveNoOthers) {
  Cases cases(800);
  KeyCounts counts;
  int64_t simple = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    AffineMask mask(*ops, context, seed);
    simple += mask.isSimple;
    if (findViolation(mask, seed, &counts).empty())
      continue;
    bool wasSimple = mask.isSimple;
    mask.isSimple = false;
    auto fails = [&] { return !findViolation(mask, seed, nullptr).empty(); };
    if (fails())
      reduce(mask.region, fails);
    else
      mask.isSimple = wasSimple;
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << findViolation(mask, seed, nullptr) << mask.text();
  }
  std::printf(
      "%lld masks: %lld bounded, %lld exact, %lld simple; the other bounded ones reach %.3f times the keys they need\n",
      (long long)cases.count, (long long)counts.bounded, (long long)counts.exact, (long long)simple,
      double(counts.reached) / std::max<int64_t>(counts.needed, 1));
  // Sound does not imply precise.
  if (cases.count >= 100) {
    EXPECT_GT(counts.exact * 100, cases.count * 20);
    EXPECT_LT(counts.reached, 3 * counts.needed);
  }
}

} // namespace
