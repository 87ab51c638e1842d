//===- MaskClaimsTest.cpp - Intervals and congruences of a mask against values ===//
//
// MaskBoxTest checks the result of the analysis; this test checks every value on the way to it.
//
//===----------------------------------------------------------------------===//
#include "MaskBoxes.h"
#include "RandomRegion.h"
#include "lib/Dialect/Attn/Analysis/MaskEvaluator.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// A region, the values of its captures, and the value of each result for all pairs of positions.
struct Subject {
  Region *region;
  MaskInputs *inputs;
  int64_t batch, head, queryOrigin, keyOrigin;
  llvm::DenseMap<Value, ScalarLanes> values = llvm::DenseMap<Value, ScalarLanes>(); ///< by query · extent + key
};

/// Totals over all cases.
struct MaskCounts {
  int64_t tight = 0, intervals = 0, decided = 0, decidable = 0;
};

std::string checkBox(Subject &subject, const Box &box, MaskCounts *counts) {
  StagedIntBuilder numbers;
  MaskBox absolute{StagedInt(subject.batch),
                   StagedInt(subject.head),
                   {subject.queryOrigin + box.queries[0], subject.queryOrigin + box.queries[1]},
                   {subject.keyOrigin + box.keys[0], subject.keyOrigin + box.keys[1]}};
  MaskEvaluator evaluator(*subject.region, absolute, *subject.inputs, numbers);
  for (Operation &op : subject.region->front().without_terminator())
    for (Value value : op.getResults()) {
      Type type = value.getType();
      if (!type.isIntOrIndex() || op.getNumResults() != 1)
        continue;
      const ScalarLanes &lanes = subject.values.find(value)->second;
      int64_t low = INT64_MAX, high = INT64_MIN;
      auto [modulus, residue] = std::pair<int64_t, StagedInt>(1, 0);
      if (!type.isInteger(1)) {
        AffineValue form = evaluator.integer(value);
        if (form.isValid.isConstant(1))
          std::tie(modulus, residue) = evaluator.congruence(form.form);
      }
      bool isDefined = true;
      for (int64_t query = box.queries[0]; query <= box.queries[1]; ++query)
        for (int64_t key = box.keys[0]; key <= box.keys[1]; ++key) {
          size_t lane = query * maskExtent + key;
          isDefined &= lanes.isDefined[lane];
          if (!lanes.isDefined[lane])
            continue;
          int64_t number = lanes.values[lane].integer;
          low = std::min(low, number), high = std::max(high, number);
          __int128 difference = __int128(number) - *residue.getConstant();
          if (modulus == 0 ? difference != 0 : difference % modulus != 0)
            return describe(value, box,
                            std::to_string(number) + " is not " + std::to_string(*residue.getConstant()) + " modulo " +
                                std::to_string(modulus));
        }
      if (low > high)
        continue;
      if (type.isInteger(1)) {
        Coverage truth = evaluator.condition(value);
        if ((truth.mayHold.isConstant(0) && high == 1) || (truth.mayFail.isConstant(0) && low == 0))
          return describe(value, box, "is said to be " + std::to_string(truth.mayFail.isConstant(0)));
        if (counts && low == high && isDefined && !isa<arith::ConstantOp>(op)) {
          ++counts->decidable;
          counts->decided += truth.mayHold.isConstant(0) || truth.mayFail.isConstant(0);
        }
        continue;
      }
      Interval range = evaluator.range(value);
      if (low < *range.low.getConstant() || high > *range.high.getConstant())
        return describe(value, box,
                        "[" + std::to_string(low) + ", " + std::to_string(high) + "] is not in [" +
                            std::to_string(*range.low.getConstant()) + ", " +
                            std::to_string(*range.high.getConstant()) + "]");
      if (counts && isDefined && !isa<arith::ConstantOp>(op)) {
        ++counts->intervals;
        // Tight: at most twice as wide as the values, and one more.
        counts->tight += double(*range.high.getConstant()) - double(*range.low.getConstant()) <=
                         2 * (double(high) - double(low)) + 1;
      }
    }
  return "";
}

std::string checkBoxes(Subject &subject, uint64_t seed, MaskCounts *counts) {
  std::mt19937_64 random(seed);
  for (unsigned i = 0; i < 10; ++i)
    if (std::string found = checkBox(subject, drawBox(random), counts); !found.empty())
      return found;
  return "";
}

//===----------------------------------------------------------------------===//
// Masks of tables and common patterns
//===----------------------------------------------------------------------===//

/// Minimum and maximum of the elements at clamped positions.
class TableInputs : public MaskInputs {
public:
  explicit TableInputs(const RandomMask &mask) : mask(mask) {}
  StagedInt length(StagedIntBuilder &, Role role) override {
    return role == Role::Query ? mask.queryLength : mask.keyLength;
  }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override { return mask.scalars[capture]; }
  StagedInt extent(StagedIntBuilder &, unsigned capture, unsigned dim) override {
    return mask.tables[capture]->shape[dim];
  }
  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, ArrayRef<Interval> place) override {
    const Table &table = *mask.tables[capture];
    int64_t first[2] = {0, 0}, last[2] = {0, 0}, low = INT64_MAX, high = INT64_MIN;
    for (unsigned i = 0; i < place.size(); ++i) {
      first[i] = std::clamp<int64_t>(*place[i].low.getConstant(), 0, table.shape[i] - 1);
      last[i] = std::clamp<int64_t>(*place[i].high.getConstant(), 0, table.shape[i] - 1);
    }
    for (int64_t i = first[0]; i <= last[0]; ++i)
      for (int64_t j = first[1]; j <= last[1]; ++j) {
        int64_t element = table.elements[place.size() == 1 ? i : i * table.shape[1] + j];
        low = std::min(low, element), high = std::max(high, element);
      }
    return Interval(low, high);
  }

private:
  const RandomMask &mask;
};

std::string findViolation(RandomMask &mask, uint64_t seed, MaskCounts *counts) {
  LaneEvaluator lanes = onAllPairs(mask);
  TableInputs inputs(mask);
  Subject subject{&mask.region, &inputs, mask.batch, mask.head, mask.queryOrigin, mask.keyOrigin};
  for (Operation &op : mask.region.front().without_terminator()) {
    ScalarLanes values{{}, std::vector<bool>(maskExtent * maskExtent, true)};
    for (int64_t number : lanes(op.getResult(0)))
      values.values.push_back({.integer = number});
    subject.values[op.getResult(0)] = std::move(values);
  }
  return checkBoxes(subject, seed, counts);
}

//===----------------------------------------------------------------------===//
// Masks of all permitted ops
//===----------------------------------------------------------------------===//

/// The same value of a capture in all lanes.
class UniformInputs : public MaskInputs {
public:
  UniformInputs(const Environment &inputs, unsigned arguments) : inputs(inputs), arguments(arguments) {}
  StagedInt length(StagedIntBuilder &, Role role) override { return number(arguments + (role == Role::Key)); }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override { return number(4 + capture); }
  StagedInt extent(StagedIntBuilder &, unsigned, unsigned) override { return 1; }
  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, ArrayRef<Interval>) override {
    return Interval(number(4 + capture));
  }

private:
  int64_t number(unsigned input) { return inputs[input].front().integer; }
  const Environment &inputs;
  unsigned arguments;
};

std::string findViolation(RandomRegion &drawn, uint64_t seed, MaskCounts *counts) {
  UniformInputs inputs(drawn.inputs, drawn.region.getNumArguments());
  Subject subject{&drawn.region,
                  &inputs,
                  drawn.inputs[0].front().integer,
                  drawn.inputs[1].front().integer,
                  drawn.inputs[2].front().integer,
                  drawn.inputs[3].front().integer,
                  evaluate(drawn.region.front(), drawn.inputs)};
  return checkBoxes(subject, seed, counts);
}

class MaskClaims : public testing::Test {
protected:
  MaskClaims() : context(MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context
        .loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect, tensor::TensorDialect>();
  }
  /// Compares what is tight and decided of the default cases with what it was. A more precise analysis raises these.
  void expectPrecision(const Cases &cases, const MaskCounts &counts, int64_t tight, int64_t decided) {
    if (cases.count != 600 || cases.seed != 1)
      return;
    EXPECT_GE(counts.tight, tight);
    EXPECT_GE(counts.decided, decided);
  }
  void report(const Cases &cases, const MaskCounts &counts) {
    std::printf("%lld regions: %lld of %lld intervals are tight, %lld of %lld decidable conditions are decided\n",
                (long long)cases.count, (long long)counts.tight, (long long)counts.intervals, (long long)counts.decided,
                (long long)counts.decidable);
  }
  MLIRContext context;
};

TEST_F(MaskClaims, NoValueOfACommonMaskLeavesItsInterval) {
  Cases cases(350);
  MaskCounts counts;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomMask mask(context, seed, maskExtent);
    if (findViolation(mask, seed, &counts).empty())
      continue;
    reduce(mask.region, [&] { return !findViolation(mask, seed, nullptr).empty(); });
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << findViolation(mask, seed, nullptr) << mask.text();
  }
  report(cases, counts);
  if (cases.count >= 100) {
    EXPECT_GT(counts.tight * 2, counts.intervals);
    EXPECT_GT(counts.decided * 4, counts.decidable * 3);
  }
  expectPrecision(cases, counts, 53792, 15718);
}

TEST_F(MaskClaims, NoValueOfAnyOpsLeavesItsInterval) {
  Cases cases(350);
  MaskCounts counts;
  RegionOps ops(context);
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomRegion drawn(ops, context, seed, /*size=*/20, /*lanes=*/1, /*isMask=*/true);
    for (std::vector<Scalar> &input : drawn.inputs)
      input.assign(maskExtent * maskExtent, Scalar(input.front()));
    const int64_t origins[] = {0, 1, 100, (int64_t(1) << 31) - 8, -8, (int64_t(1) << 15) - 8};
    int64_t origin = origins[seed % 6];
    for (int64_t i = 0; i < maskExtent * maskExtent; ++i) {
      drawn.inputs[0][i].integer = drawn.inputs[1][i].integer = 1;
      drawn.inputs[2][i].integer = origin + i / maskExtent;
      drawn.inputs[3][i].integer = origin + i % maskExtent;
    }
    if (findViolation(drawn, seed, &counts).empty())
      continue;
    reduce(drawn.region, [&] { return !findViolation(drawn, seed, nullptr).empty(); });
    std::string found = findViolation(drawn, seed, nullptr);
    for (std::vector<Scalar> &input : drawn.inputs)
      input.resize(1);
    FAIL() << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << found << drawn.text();
  }
  report(cases, counts);
  if (cases.count >= 100) {
    EXPECT_GT(counts.tight * 2, counts.intervals);
    EXPECT_GT(counts.decided * 10, counts.decidable); // comparisons of floats are not analyzed
  }
  expectPrecision(cases, counts, 24272, 1927);
}

} // namespace
