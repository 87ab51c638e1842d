//===- MaskCodeClaimsTest.cpp - Emitted analyses of masks against values -------===//
//
// MaskClaimsTest for run-time inputs: what the code of the analysis computes holds for every value of a mask.
//
//===----------------------------------------------------------------------===//
#include "MaskBoxes.h"
#include "RandomRegion.h"
#include "lib/Dialect/Attn/Analysis/MaskEvaluator.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// Code that computes the analysis of boxes, with lengths and captured scalars at run time, and its value for each box.
class Code : public MaskInputs {
public:
  Code(RandomMask &mask, ArrayRef<Box> boxes)
      : mask(mask), b(mask.region.getArgument(0).getContext()), loc(b.getUnknownLoc()), evaluate(boxes.size()),
        count(boxes.size()) {
    b.setInsertionPointToEnd(&block);
    numbers.emplace(b, loc);
    auto side = [&](int64_t origin, llvm::function_ref<int64_t(const Box &)> ofBox) {
      return argument(b.getIndexType(),
                      llvm::map_to_vector(boxes, [&](const Box &box) { return origin + ofBox(box); }));
    };
    box = {StagedInt(mask.batch), StagedInt(mask.head), {}, {}};
    box.query = {side(mask.queryOrigin, [](const Box &box) { return box.queries[0]; }),
                 side(mask.queryOrigin, [](const Box &box) { return box.queries[1]; })};
    box.key = {side(mask.keyOrigin, [](const Box &box) { return box.keys[0]; }),
               side(mask.keyOrigin, [](const Box &box) { return box.keys[1]; })};
    for (unsigned i = 0; i < mask.scalars.size(); ++i) {
      Type type = mask.region.getArgument(4 + i).getType();
      scalars.push_back(type.isIntOrIndex() ? argument(type, mask.scalars[i] & (type.isInteger(1) ? 1 : -1))
                                            : StagedInt());
    }
    lengths = {argument(b.getIndexType(), mask.queryLength), argument(b.getIndexType(), mask.keyLength)};
    evaluator.emplace(mask.region, box, *this, *numbers);
  }
  ~Code() override { block.dropAllReferences(); }

  StagedInt length(StagedIntBuilder &, Role role) override { return lengths[role == Role::Key]; }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override { return scalars[capture]; }
  StagedInt extent(StagedIntBuilder &, unsigned capture, unsigned dim) override {
    return mask.tables[capture]->shape[dim];
  }
  /// The bounds of all elements.
  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, ArrayRef<Interval>) override {
    auto [low, high] =
        std::minmax_element(mask.tables[capture]->elements.begin(), mask.tables[capture]->elements.end());
    return Interval(*low, *high);
  }

  MaskEvaluator &operator*() { return *evaluator; }
  /// What the code computes for each box.
  Lanes run(StagedInt number, bool isTruth) { return evaluate(numbers->materialize(number, isTruth)); }

private:
  StagedInt argument(Type type, Lanes lanes) {
    Value value = block.addArgument(type, loc);
    evaluate.bind(value, std::move(lanes));
    return numbers->fromValue(value);
  }
  StagedInt argument(Type type, SmallVector<int64_t> lanes) {
    return argument(type, Lanes(lanes.begin(), lanes.end()));
  }
  StagedInt argument(Type type, int64_t number) { return argument(type, Lanes(count, number)); }

  RandomMask &mask;
  Block block;
  OpBuilder b;
  Location loc;
  LaneEvaluator evaluate;
  size_t count;
  std::optional<StagedIntBuilder> numbers;
  MaskBox box;
  std::vector<StagedInt> scalars;
  std::array<StagedInt, 2> lengths;
  std::optional<MaskEvaluator> evaluator;
};

std::string findViolationByCode(RandomMask &mask, uint64_t seed) {
  std::mt19937_64 random(seed);
  SmallVector<Box> boxes;
  for (unsigned i = 0; i < 20; ++i)
    boxes.push_back(drawBox(random));
  LaneEvaluator pairs = onAllPairs(mask);
  Code code(mask, boxes);
  for (Operation &op : mask.region.front().without_terminator()) {
    Value value = op.getResult(0);
    bool isTruth = value.getType().isInteger(1);
    Lanes values = pairs(value), low, high, residue, isValid(boxes.size(), 0);
    int64_t modulus = 1;
    if (isTruth) {
      Coverage truth = (*code).condition(value);
      low = code.run(truth.mayFail, true), high = code.run(truth.mayHold, true);
    } else {
      AffineValue form = (*code).integer(value);
      auto [step, rest] = (*code).congruence(form.form);
      Interval range = (*code).range(value);
      low = code.run(range.low, false), high = code.run(range.high, false);
      modulus = step, residue = code.run(rest, false), isValid = code.run(form.isValid, true);
    }
    for (auto [i, box] : llvm::enumerate(boxes))
      for (int64_t query = box.queries[0]; query <= box.queries[1]; ++query)
        for (int64_t key = box.keys[0]; key <= box.keys[1]; ++key) {
          int64_t number = values[query * maskExtent + key];
          bool isWithin = isTruth ? (number ? high[i] : low[i]) : low[i] <= number && number <= high[i];
          if (!isWithin)
            return describe(value, box, "code excludes " + std::to_string(number));
          __int128 difference = isValid[i] ? __int128(number) - residue[i] : 0;
          if (modulus == 0 ? difference != 0 : difference % modulus != 0)
            return describe(value, box,
                            std::to_string(number) + " is not " + std::to_string(residue[i]) + " modulo " +
                                std::to_string(modulus) + ", as code claims");
        }
  }
  return "";
}

TEST(MaskCodeClaims, NoValueOfAMaskLeavesTheIntervalThatCodeComputes) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  context.loadDialect<AttnDialect, arith::ArithDialect, math::MathDialect, tensor::TensorDialect>();
  Cases cases(600);
  for (int64_t seed = cases.seed; seed < cases.seed + (cases.count + 1) / 2; ++seed) {
    RandomMask mask(context, seed, maskExtent, /*usesScalars=*/seed % 4 != 0);
    if (findViolationByCode(mask, seed).empty())
      continue;
    reduce(mask.region, [&] { return !findViolationByCode(mask, seed).empty(); });
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << findViolationByCode(mask, seed) << mask.text();
  }
}

} // namespace
