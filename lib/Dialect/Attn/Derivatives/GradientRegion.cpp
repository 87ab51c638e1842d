//===- GradientRegion.cpp - The gradient region of an attention ---------------===//
//
// With the probability p of a key, its score s before and s' after the score region, the factor w(p) of its value, and
// its number n(s') in a tally T, the loss L has the derivatives
//
//     ∂L/∂p  = dp · w'(p) + Σ dT[bin] · n,   dp = output gradient · value
//     ∂L/∂s' = p · (∂L/∂p − delta) + Σ p · dT[bin] · n'(s'),   delta = Σ p · ∂L/∂p over the keys of the row
//     ∂L/∂s  = ∂L/∂s' · ∂s'/∂s
//
// and those of the captures follow from the same products. With a normalizer f in place of the softmax, p is s' and
//
//     ∂L/∂s' = dp · f'(s')
//
// With stick_breaking ∂L/∂s' depends on the weights of the other keys. It is the argument delta.
//
//===----------------------------------------------------------------------===//
#include "GradientRegion.h"
#include "DerivativeRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

class GradientRegionBuilder : DerivativeRegion {
public:
  GradientRegionBuilder(AttentionOp op, const GradientCaptures &captures, Region &region)
      : DerivativeRegion(op, captures.values, region, /*numbers=*/4), captures(captures), p(block.getArgument(0)),
        s(block.getArgument(1)), dp(block.getArgument(2)), delta(block.getArgument(3)) {}

  FailureOr<SmallVector<int64_t>> build() {
    score = enter(op.getScore(), s);
    Value score1 = op.getScore().empty() ? s : yielded(op.getScore(), score);
    if (failed(addWeight()))
      return failure();
    for (auto [tally, gradient] : llvm::zip_equal(op.getTallyRegions(), captures.tallyGradients))
      if (gradient && failed(addTally(tally, score1, *gradient)))
        return failure();
    Value ofScore = op.getStickBreaking() ? delta : ofWeight;
    if (op.hasSoftmax()) {
      Value difference = arith::SubFOp::create(b, loc, ofWeight, delta);
      ofScore = add(multiply(p, difference), viaTallies);
    }
    FailureOr<Value> ds = ofScore;
    if (!op.getScore().empty())
      ds = reverse(op.getScore(), "the score region", score, ofScore);
    if (failed(ds))
      return failure();

    SmallVector<Value> results = {*ds ? *ds : constant(0)};
    SmallVector<int64_t> readCaptures;
    for (const Read &read : reads) {
      readCaptures.push_back(read.capture);
      llvm::append_range(results, read.indices);
      results.push_back(read.amount);
    }
    YieldOp::create(b, loc, results);
    return readCaptures;
  }

private:
  struct Read {
    unsigned capture;
    SmallVector<Value, 4> indices;
    Value amount;
  };

  /// Differentiates a region whose result has the derivative `seed`. Returns the derivative of its first argument, null
  /// for 0, and records those of captures.
  FailureOr<Value> reverse(Region &region, StringRef place, const IRMapping &values, Value seed) {
    RegionArguments from = getRegionArguments(region, /*numbers=*/1);
    SmallVector<Value> inputs = {from.score};
    for (unsigned capture : captures.differentiated.set_bits())
      inputs.push_back(from.captures[capture]);
    Value result = region.front().getTerminator()->getOperands().back();
    auto gradients = emitReverseMode(b, place, region.front(), values, {{result, seed}}, inputs);
    if (failed(gradients))
      return failure();
    Value ofArgument;
    for (const ElementGradient &gradient : *gradients) {
      if (gradient.input == from.score)
        ofArgument = gradient.amount;
      else
        addRead(llvm::find(from.captures, gradient.input) - from.captures.begin(), gradient);
    }
    return ofArgument;
  }

  void addRead(unsigned capture, const ElementGradient &gradient) {
    Value amount = converted(gradient.amount, op.getScoreType());
    for (Read &read : reads)
      if (read.capture == capture && read.indices == gradient.indices) {
        read.amount = add(read.amount, amount);
        return;
      }
    // In the order of captures.
    auto *place = llvm::find_if(reads, [&](const Read &read) { return read.capture > capture; });
    reads.insert(place, {capture, gradient.indices, amount});
  }

  LogicalResult addWeight() {
    ofWeight = dp;
    if (op.getWeight().empty())
      return success();
    if (failed(checkWeight(op)))
      return failure();
    FailureOr<Value> ofP = reverse(op.getWeight(), "the weight region", enter(op.getWeight(), p), dp);
    if (failed(ofP))
      return failure();
    ofWeight = *ofP ? *ofP : constant(0);
    return success();
  }

  LogicalResult addTally(Region &tally, Value score1, unsigned gradient) {
    IRMapping values = enter(tally, score1);
    Value bin = values.lookupOrDefault(tally.front().getTerminator()->getOperand(0));
    Value ofBin = readTallyGradient(tally, gradient, bin);
    ofWeight = add(ofWeight, multiply(ofBin, yielded(tally, values)));
    FailureOr<Value> ofScore = reverse(tally, "a tally region", values, multiply(p, ofBin));
    if (failed(ofScore))
      return failure();
    viaTallies = add(viaTallies, *ofScore);
    return success();
  }

  /// The gradient of a bin of this row; 0 for a bin that the tally does not have.
  Value readTallyGradient(Region &tally, unsigned gradient, Value bin) {
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), inTable;
    SmallVector<Value> indices;
    Value tensor = args.captures[gradient];
    Value result = op.getTallies()[tally.getRegionNumber() - op.getTallyRegions().front().getRegionNumber()];
    for (auto [i, dim] : llvm::enumerate(op.getResultDims(result))) {
      if (dim != Dim::Depth) {
        indices.push_back(row(dim));
        continue;
      }
      Value bins = tensor::DimOp::create(b, loc, tensor, i);
      // Unsigned, so that a negative bin is too large.
      inTable = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, bin, bins);
      indices.push_back(arith::SelectOp::create(b, loc, inTable, bin, zero));
    }
    Value element = tensor::ExtractOp::create(b, loc, tensor, indices);
    return arith::SelectOp::create(b, loc, inTable, element, constant(0));
  }

  /// The index of this row in a result of the attention.
  Value row(Dim dim) {
    auto relative = [&](Value position, std::optional<unsigned> origin) {
      return origin ? Value(arith::SubIOp::create(b, loc, position, args.captures[*origin])) : position;
    };
    if (dim == Dim::Batch)
      return relative(args.batch, captures.at.batch);
    if (dim == Dim::Head)
      return relative(args.head, captures.at.head);
    Value position = relative(args.query, captures.at.query);
    if (!captures.cuSeqlensQ)
      return position;
    Value start =
        tensor::ExtractOp::create(b, loc, args.captures[*captures.cuSeqlensQ], relative(args.batch, captures.at.batch));
    if (!start.getType().isIndex())
      start = arith::IndexCastOp::create(b, loc, b.getIndexType(), start);
    return arith::AddIOp::create(b, loc, position, start);
  }

  const GradientCaptures &captures;
  Value p, s, dp, delta;
  IRMapping score;
  Value ofWeight;   ///< ∂L/∂p, with a normalizer ∂L/∂s'
  Value viaTallies; ///< the part of ∂L/∂s' by the numbers of tallies; null for 0
  SmallVector<Read> reads;
};

} // namespace

FailureOr<SmallVector<int64_t>> saccade::attn::buildGradientRegion(AttentionOp op, const GradientCaptures &captures,
                                                                   Region &region) {
  return GradientRegionBuilder(op, captures, region).build();
}
