//===- StickWeights.cpp - Weights of registers of keys by stick-breaking ------===//
//
// With d = 1 + u, keys leave 1 / Π d. Products of d of neighbouring keys are formed first, so that two or four
// registers have one quotient: registers are split into the first and the second keys of pairs, in shuffles within
// blocks of 128 bits. A scan by shifts of 1, 2, 4, … lanes gives each group what the keys after it leave. What remains
// after the first keys of a group is what remains after the group, times Π d of its other keys; so each weight is u
// times a number that is multiplied down from its group.
//
// Scores are bounded, so that Π d is finite. Numbers up to 2^−24 add nothing to 1, but many of them take a part: where
// the weights of a row add up to less than 1/2, it leaves 1 minus their sum, which keeps them.
//
//===----------------------------------------------------------------------===//
#include "StickWeights.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// The lanes of a register that are shuffled together.
int64_t StickWeights::blockLanes() const {
  // SVE has instructions for the even and odd lanes of whole registers.
  int64_t lanes = e.lanes();
  return e.target.hasSVE ? lanes : std::min<int64_t>(lanes, 128 / e.type.getWidth());
}

//===----------------------------------------------------------------------===//
// Neighbouring keys
//===----------------------------------------------------------------------===//

/// Replaces registers of keys by registers of pairs, pairs of pairs, and so on, and returns the pairs.
SmallVector<StickWeights::Pairs> StickWeights::fold(SmallVector<Value> &registers) {
  SmallVector<Pairs> folds;
  int64_t block = blockLanes(), lanes = e.lanes();
  for (int64_t neighbours = block; registers.size() % 2 == 0 && neighbours > 1 && folds.size() < maxFolds();
       neighbours /= 2) {
    Pairs pairs;
    SmallVector<Value> next;
    for (size_t i = 0; i < registers.size(); i += 2) {
      auto every = [&](int64_t parity) -> Value {
        SmallVector<int64_t> from;
        for (int64_t begin = 0; begin < lanes; begin += block)
          for (int64_t operand : {0, 1})
            for (int64_t lane = parity; lane < block; lane += 2)
              from.push_back(operand * lanes + begin + lane);
        return vector::ShuffleOp::create(e.b, e.loc, registers[i], registers[i + 1], from);
      };
      pairs.first.push_back(every(0));
      pairs.second.push_back(every(1));
      next.push_back(e.mulf(pairs.first.back(), pairs.second.back()));
    }
    registers = next;
    folds.push_back(pairs);
  }
  return folds;
}

/// The registers whose pairs are these.
SmallVector<Value> StickWeights::join(ArrayRef<Value> first, ArrayRef<Value> second) {
  SmallVector<Value> registers;
  int64_t block = blockLanes(), lanes = e.lanes();
  for (auto [before, after] : llvm::zip_equal(first, second))
    for (int64_t half : {0, 1}) {
      SmallVector<int64_t> from;
      for (int64_t begin = half * block / 2; begin < lanes; begin += block)
        for (int64_t lane = begin; lane < begin + block / 2; ++lane)
          from.append({lane, lanes + lane});
      registers.push_back(vector::ShuffleOp::create(e.b, e.loc, before, after, from));
    }
  return registers;
}

/// For each lane of registers that were folded, what the lanes of later keys and `rest` leave.
SmallVector<Value> StickWeights::scan(ArrayRef<Value> registers, unsigned folds, Value &rest) {
  int64_t lanes = e.lanes(), block = blockLanes();
  // The lanes in the order of their keys: after folds, a block has keys of 2^folds registers, one after the other.
  SmallVector<int64_t> order;
  for (int64_t part = block >> folds, from = 0; from < block; from += part)
    for (int64_t begin = 0; begin < lanes; begin += block)
      for (int64_t lane = 0; lane < part; ++lane)
        order.push_back(begin + from + lane);
  auto shift = [&](Value x, int64_t count) -> Value {
    SmallVector<int64_t> from(lanes, lanes);
    for (int64_t i = 0; i + count < lanes; ++i)
      from[order[i]] = order[i + count];
    return vector::ShuffleOp::create(e.b, e.loc, x, e.splat(1.0), from);
  };
  SmallVector<Value> later(registers.size());
  for (size_t i = registers.size(); i-- > 0;) {
    Value all = registers[i];
    for (int64_t count = 1; count < lanes; count *= 2)
      all = e.mulf(all, shift(all, count));
    later[i] = e.mulf(shift(all, 1), rest);
    Value total = vector::ShuffleOp::create(e.b, e.loc, all, all, SmallVector<int64_t>(lanes, order[0]));
    rest = e.mulf(rest, total);
  }
  return later;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

SmallVector<Value> StickWeights::weigh(ArrayRef<Value> t, Value &rest) {
  SmallVector<Value> powers, registers;
  // The product of a group is below the largest power of two.
  double largest = (e.type.isF64() ? 1020.0 : 124.0) / (1 << maxFolds());
  Value one = e.splat(1.0), bound = e.splat(largest);
  for (Value score : t) {
    auto isLarge = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, bound, score); // false for NaN
    powers.push_back(emitExp2(e, e.select(isLarge, bound, score), error, smallestWeight));
    registers.push_back(e.addf(powers.back(), one));
  }
  SmallVector<Pairs> folds = fold(registers);
  for (Value &all : registers)
    all = arith::DivFOp::create(e.b, e.loc, one, all);
  // A row without a rest may be evaluated for others of its group. Its scores may be NaN.
  Value zero = e.splat(0.0), isOpen = isLeft(rest);
  rest = e.select(isOpen, rest, zero);
  SmallVector<Value> later = scan(registers, folds.size(), rest), left;
  for (auto [own, others] : llvm::zip_equal(registers, later))
    left.push_back(e.mulf(own, others));
  for (size_t i = folds.size(); i-- > 0;) {
    SmallVector<Value> ofSecond;
    for (size_t j = 0; j < left.size(); ++j) {
      // What four keys leave may be too small for a number, so that of two is computed without it.
      bool isGroup = i + 1 == folds.size();
      Value first = folds[i].first[j];
      ofSecond.push_back(isGroup ? e.mulf(e.mulf(registers[j], first), later[j]) : e.mulf(left[j], first));
    }
    left = join(left, ofSecond);
  }
  SmallVector<Value> weights;
  for (auto [power, own] : llvm::zip_equal(powers, left))
    weights.push_back(e.select(isOpen, e.mulf(power, own), zero));
  rest = e.select(isOpen, rest, zero);
  return weights;
}

Value StickWeights::isLeft(Value rest) {
  // Less is beyond the accuracy of a 16-bit type.
  double least = e.type.isF64() ? -1022.0 : error == Exp2Error::Unit ? smallestWeight : -40.0;
  return arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UGE, rest, e.floatLike(rest, std::exp2(least)));
}

StickRest StickWeights::finish(Value rest, Value sumOfWeights) {
  auto isSmall = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLE, sumOfWeights, e.splat(0.5));
  rest = e.select(isSmall, e.subf(e.splat(1.0), sumOfWeights), rest);
  rest = e.select(isLeft(rest), rest, e.splat(0.0));
  return {rest, e.mulf(e.log(rest), e.splat(std::numbers::log2e))};
}
