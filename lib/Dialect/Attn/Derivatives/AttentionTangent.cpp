//===- AttentionTangent.cpp - The tangents of attn.attention ------------------===//
//
// With m = Σ p · ds' over the keys of a row, where ds' is the tangent of the score, the tangents are
//
//     lse: m,   output: Σ dw · v + w · dv − m · output,   tally: Σ (p · ds' · n + p · dn) − m · tally
//
// where dw is the tangent of the weight w for a constant log-sum-exp. `attn.jvp` computes the sums; a sink is a term
// of m. With a normalizer in place of the softmax, w is a function of the score and m is 0.
//
//===----------------------------------------------------------------------===//
#include "DerivativeRegion.h"
#include "Sinks.h"
#include "Tangents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// The captures of `attn.jvp`: those of the attention, then the tangents of some of them.
struct TangentCaptures {
  SmallVector<Value> values;
  llvm::SmallDenseMap<unsigned, unsigned> tangents; ///< by capture of the attention: the capture with its tangent
};

/// Fills the region `tangent`.
class TangentRegion : DerivativeRegion {
public:
  TangentRegion(AttentionOp op, const TangentCaptures &captures, Region &region)
      : DerivativeRegion(op, captures.values, region, /*numbers=*/3), captures(captures), p(block.getArgument(0)),
        s(block.getArgument(1)), ds(block.getArgument(2)) {}

  LogicalResult build(ArrayRef<Region *> tallies) {
    Value score = s, tangent = ds;
    if (Region &region = op.getScore(); !region.empty()) {
      IRMapping values = enter(region, s);
      score = yielded(region, values);
      FailureOr<Value> pushed = push(region, "the score region", values, ds);
      if (failed(pushed))
        return failure();
      tangent = *pushed;
    }
    bool isPointwise = op.getPointwise();
    Value dp = !tangent ? constant(0) : isPointwise ? tangent : multiply(p, tangent), dw = dp;
    if (Region &region = op.getWeight(); !region.empty()) {
      FailureOr<Value> pushed = push(region, "the weight region", enter(region, p), dp);
      if (failed(pushed))
        return failure();
      dw = *pushed ? *pushed : constant(0);
    }
    SmallVector<Value> results = {isPointwise ? constant(0) : dp, dw};
    for (Region *tally : tallies) {
      IRMapping values = enter(*tally, score);
      FailureOr<Value> pushed = push(*tally, "a tally region", values, tangent);
      if (failed(pushed))
        return failure();
      Value ofNumber = *pushed ? multiply(p, *pushed) : Value();
      results.push_back(values.lookupOrDefault(tally->front().getTerminator()->getOperand(0)));
      results.push_back(add(multiply(dp, yielded(*tally, values)), ofNumber));
    }
    YieldOp::create(b, loc, results);
    return success();
  }

private:
  /// The tangent of what a region yields last, given that of its first argument; null for 0.
  FailureOr<Value> push(Region &region, StringRef place, const IRMapping &values, Value tangent) {
    RegionArguments from = getRegionArguments(region, /*numbers=*/1);
    auto captured = [&](Value value) -> Value {
      auto argument = dyn_cast<BlockArgument>(value);
      unsigned first = from.captures.front().getArgNumber();
      if (!argument || argument.getArgNumber() < first)
        return {};
      auto known = captures.tangents.find(argument.getArgNumber() - first);
      return known == captures.tangents.end() ? Value() : Value(args.captures[known->second]);
    };
    auto tangentOf = [&](Value value) -> Value {
      if (value == from.score)
        return tangent;
      if (from.captures.empty())
        return {};
      Value found;
      if (auto read = value.getDefiningOp<tensor::ExtractOp>()) {
        if (Value tensor = captured(read.getTensor()))
          found = tensor::ExtractOp::create(b, loc, tensor, llvm::map_to_vector(read.getIndices(), [&](Value index) {
                                              return values.lookupOrDefault(index);
                                            }));
      } else {
        found = captured(value);
      }
      return found ? converted(found, getScoreType(found.getType())) : Value();
    };
    FailureOr<SmallVector<Value>> pushed = emitForwardMode(b, place, region.front(), values, tangentOf);
    if (failed(pushed))
      return failure();
    return pushed->back();
  }

  const TangentCaptures &captures;
  Value p, s, ds;
};

class AttentionTangent {
public:
  AttentionTangent(AttentionOp op, Tangents &tangents)
      : op(op), tangents(tangents), b(tangents.b), loc(op.getLoc()), e{b, loc}, type(op.getScoreType()),
        rows(getRowDims(op.getOutputDims())) {}

  LogicalResult apply() {
    if (Value max = op.getRowMax(); max && tangents.isNeeded(max))
      return tangents.emitError(op) << "no rule for the row maximum of '" << op->getName() << "'";
    if (op.getStickBreaking())
      return tangents.emitError(op) << "no rule for tangents of the normalizer stick_breaking of '" << op->getName()
                                    << "'";
    FailureOr<JvpOp> sums = emitSums();
    if (failed(sums))
      return failure();
    if (Value low = op.getLseLow(); low && tangents.isNeeded(low))
      return tangents.emitError(op) << "no rule for the low part of the log-sum-exp of '" << op->getName() << "'";
    if (op.getPointwise()) {
      tangents.set(op.getOutput(), sums->getOutput());
      return success();
    }
    Value ofLse = addSink(sums->getRow());
    tangents.set(op.getLse(), ofLse);
    tangents.set(op.getOutput(), minusProduct(sums->getOutput(), ofLse, op.getOutput()));
    for (auto [tally, sum] : llvm::zip_equal(tallies, sums->getTallies()))
      tangents.set(tally, minusProduct(sum, ofLse, tally));
    return success();
  }

private:
  FailureOr<JvpOp> emitSums() {
    if (failed(checkWeight(op)))
      return failure();
    TangentCaptures captures;
    llvm::append_range(captures.values, op.getCaptures());
    for (auto [i, capture] : llvm::enumerate(op.getCaptures()))
      if (Value tangent = tangents.of(capture)) {
        captures.tangents[i] = captures.values.size();
        captures.values.push_back(tangent);
      }
    SmallVector<Region *> regions;
    SmallVector<int64_t> rowShape =
        llvm::map_to_vector(rows, [&](Dim dim) { return getStaticDimSize(op.getOutput(), op.getOutputDims(), dim); });
    SmallVector<Type> types = {shapeOf(op.getOutput()), RankedTensorType::get(rowShape, type)};
    for (auto [tally, region] : llvm::zip_equal(op.getTallies(), op.getTallyRegions()))
      if (tangents.isNeeded(tally)) {
        tallies.push_back(tally);
        regions.push_back(&region);
        types.push_back(tally.getType());
      }
    Region region;
    if (!op.getScore().empty() || !op.getWeight().empty() || !regions.empty())
      if (failed(TangentRegion(op, captures, region).build(regions)))
        return failure();
    Value scale = op.getScaleValue();
    auto jvp = JvpOp::create(b, loc, types, op.getQuery(), op.getKey(), op.getValue(), captures.values, op.getQLen(),
                             op.getKvLen(), op.getCuSeqlensQ(), op.getCuSeqlensK(), scale, op.getAt(),
                             tangents.of(op.getQuery()), tangents.of(op.getKey()), tangents.of(op.getValue()),
                             scale ? tangents.of(scale) : Value(), op.getLse(), op.getLseLow(), op.getQueryDimsAttr(),
                             op.getKeyDimsAttr(), op.getValueDimsAttr(), op.getOutputDimsAttr(), op.getScaleAttr(),
                             op.getPointwise(),
                             /*schedule=*/ScheduleAttr());
    cloneRegions(op, cast<DerivativeOpInterface>(jvp.getOperation()), captures.values);
    jvp.getTangent().takeBody(region);
    return jvp;
  }

  Type shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).clone(type); }

  /// row + exp(sink − lse − lse_low) · (tangent of the sink).
  Value addSink(Value row) {
    Value sink = op.getSink(), tangent = sink ? tangents.of(sink) : Value();
    if (!tangent)
      return row;
    AffineMap map = getDimMap(b, rows, rows), ofSink = getSinkMap(b, op, rows);
    return e.generic({{sink, ofSink}, {tangent, ofSink}, {op.getLse(), map}, {op.getLseLow(), map}}, {row, map},
                     [&](OpBuilder &nested, ValueRange elements) -> Value {
                       Value wide = TensorEmitter::convertedScalar(nested, loc, elements[1], type);
                       Value term = emitSinkProduct(nested, loc, elements[0], elements[2], elements[3], wide);
                       return arith::AddFOp::create(nested, loc, elements[4], term);
                     });
  }

  /// sums − (tangent of the log-sum-exp) · result.
  Value minusProduct(Value sums, Value ofLse, Value result) {
    SmallVector<Dim> dims = op.getResultDims(result);
    AffineMap map = getDimMap(b, dims, dims);
    return e.generic({{ofLse, getDimMap(b, dims, rows)}, {result, map}}, {sums, map},
                     [&](OpBuilder &nested, ValueRange elements) -> Value {
                       Value wide = TensorEmitter::convertedScalar(nested, loc, elements[1], type);
                       Value negated = arith::NegFOp::create(nested, loc, elements[0]);
                       Value product = arith::MulFOp::create(nested, loc, negated, wide);
                       return arith::AddFOp::create(nested, loc, elements[2], product);
                     });
  }

  AttentionOp op;
  Tangents &tangents;
  OpBuilder &b;
  Location loc;
  TensorEmitter e;
  FloatType type; ///< of scores
  SmallVector<Dim> rows;
  SmallVector<Value> tallies; ///< the needed ones
};

} // namespace

LogicalResult saccade::attn::pushAttention(Operation *op, Tangents &tangents) {
  return AttentionTangent(cast<AttentionOp>(op), tangents).apply();
}
