//===- GradientRegion.cpp - The gradient region of an attention ---------------===//
//
// With the probability p of a key, its score s before and s' after the score region, the factor w(p) of its value, and
// its number n(s') in a tally T, the loss L has the derivatives
//
//     ∂L/∂p  = dp · w'(p) + Σ dT[bin] · n,   dp = output gradient · value
//     ∂L/∂s' = p · (∂L/∂p − delta) + Σ p · dT[bin] · n'(s'),   delta = Σ p · ∂L/∂p over the keys of the row
//     ∂L/∂s  = ∂L/∂s' · ∂s'/∂s
//
// and those of the captures follow from the same products.
//
//===----------------------------------------------------------------------===//
#include "GradientRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

class GradientRegionBuilder {
public:
  GradientRegionBuilder(AttentionOp op, const GradientCaptures &captures, Region &region)
      : op(op), captures(captures), b(op.getContext()), loc(op.getLoc()) {
    SmallVector<Type> types(4, op.getScoreType());
    types.append(4, b.getIndexType());
    llvm::append_range(types, ValueRange(captures.values).getTypes());
    Block &block = region.emplaceBlock();
    block.addArguments(types, SmallVector<Location>(types.size(), loc));
    b.setInsertionPointToEnd(&block);
    p = block.getArgument(0), s = block.getArgument(1), dp = block.getArgument(2), delta = block.getArgument(3);
    args = getRegionArguments(region, /*numbers=*/4);
  }

  FailureOr<SmallVector<int64_t>> build() {
    score = enter(op.getScore(), s);
    Value score1 = op.getScore().empty() ? s : yielded(op.getScore(), score);
    if (failed(addWeight()))
      return failure();
    for (auto [tally, gradient] : llvm::zip_equal(op.getTallyRegions(), captures.tallyGradients))
      if (gradient && failed(addTally(tally, score1, *gradient)))
        return failure();
    Value difference = arith::SubFOp::create(b, loc, ofWeight, delta);
    Value ofScore = arith::MulFOp::create(b, loc, p, difference);
    if (viaTallies)
      ofScore = arith::AddFOp::create(b, loc, ofScore, viaTallies);
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

  Value constant(double number) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(op.getScoreType(), number)); }

  /// Emits the code of a region for the score or probability `number`.
  IRMapping enter(Region &region, Value number) {
    IRMapping values;
    if (region.empty())
      return values;
    RegionArguments from = getRegionArguments(region, /*numbers=*/1);
    for (auto [source, value] :
         {std::pair(from.score, number), std::pair(from.batch, args.batch), std::pair(from.head, args.head),
          std::pair(from.query, args.query), std::pair(from.key, args.key)})
      values.map(source, value);
    values.map(from.captures, args.captures.take_front(from.captures.size()));
    cloneScalarCode(b, region.front(), values);
    return values;
  }
  static Value yielded(Region &region, const IRMapping &values) {
    return values.lookupOrDefault(region.front().getTerminator()->getOperands().back());
  }

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
    Value amount = gradient.amount;
    if (amount.getType() != op.getScoreType()) {
      bool isWider = op.getScoreType().getWidth() > amount.getType().getIntOrFloatBitWidth();
      amount = isWider ? Value(arith::ExtFOp::create(b, loc, op.getScoreType(), amount))
                       : Value(arith::TruncFOp::create(b, loc, op.getScoreType(), amount));
    }
    for (Read &read : reads)
      if (read.capture == capture && read.indices == gradient.indices) {
        read.amount = arith::AddFOp::create(b, loc, read.amount, amount);
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
    if (!isProportional(op.getWeight()))
      return op.emitOpError()
             << "cannot be differentiated: its weight region is not proved proportional to the weight, "
                "and other weight regions need a normalized second pass";
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
    Value ofP = arith::MulFOp::create(b, loc, ofBin, yielded(tally, values));
    ofWeight = arith::AddFOp::create(b, loc, ofWeight, ofP);
    Value seed = arith::MulFOp::create(b, loc, p, ofBin);
    FailureOr<Value> ofScore = reverse(tally, "a tally region", values, seed);
    if (failed(ofScore))
      return failure();
    if (*ofScore)
      viaTallies = viaTallies ? Value(arith::AddFOp::create(b, loc, viaTallies, *ofScore)) : *ofScore;
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
      return relative(args.batch, captures.at[0]);
    if (dim == Dim::Head)
      return relative(args.head, captures.at[1]);
    Value position = relative(args.query, captures.at[2]);
    if (!captures.cuSeqlensQ)
      return position;
    Value start =
        tensor::ExtractOp::create(b, loc, args.captures[*captures.cuSeqlensQ], relative(args.batch, captures.at[0]));
    if (!start.getType().isIndex())
      start = arith::IndexCastOp::create(b, loc, b.getIndexType(), start);
    return arith::AddIOp::create(b, loc, position, start);
  }

  AttentionOp op;
  const GradientCaptures &captures;
  OpBuilder b;
  Location loc;
  Value p, s, dp, delta;
  RegionArguments args;
  IRMapping score;
  Value ofWeight;   ///< ∂L/∂p
  Value viaTallies; ///< the part of ∂L/∂s' by the numbers of tallies; null for 0
  SmallVector<Read> reads;
};

} // namespace

FailureOr<SmallVector<int64_t>> saccade::attn::buildGradientRegion(AttentionOp op, const GradientCaptures &captures,
                                                                   Region &region) {
  return GradientRegionBuilder(op, captures, region).build();
}
