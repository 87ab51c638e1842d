//===- AttentionRule.cpp - The rule of attn.attention -------------------------===//
//
// Emits the sums of each row that `attn.gradient` reads, the op itself, and the gradients of sinks and scales, which
// follow from its operands and results.
//
//===----------------------------------------------------------------------===//
#include "DerivativeRegion.h"
#include "GradientRegion.h"
#include "Gradients.h"
#include "Sinks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

class AttentionRule {
public:
  AttentionRule(AttentionOp op, Gradients &gradients)
      : op(op), gradients(gradients), b(gradients.b), loc(op.getLoc()), e{b, loc}, type(op.getScoreType()) {}

  LogicalResult apply() {
    if (Value max = op.getRowMax(); max && gradients.of(max))
      return gradients.emitError(op) << "no rule for the row maximum of '" << op->getName() << "'";
    if (Value low = op.getLseLow(); low && gradients.of(low))
      return gradients.emitError(op) << "no rule for the low part of the log-sum-exp of '" << op->getName() << "'";
    if (op.hasSoftmax())
      lse = gradients.primal(op.getLse()), lseLow = gradients.primal(op.getLseLow());
    outputGradient = gradients.of(op.getOutput());
    if (!outputGradient)
      outputGradient = e.zeros(gradients.primal(op.getOutput()), getElementTypeOrSelf(op.getOutput()));
    if (op.hasSoftmax())
      emitDelta();
    if (failed(emitGradient()))
      return failure();
    if (Value sink = op.getSink(); sink && gradients.isActive(sink))
      gradients.add(sink, emitSinkGradient(sink));
    if (Value scale = op.getScaleValue(); scale && gradients.isActive(scale))
      gradients.add(scale, emitScaleGradient(scale));
    return success();
  }

private:
  AffineMap mapOf(ArrayRef<Dim> dims, ArrayRef<Dim> names) { return getDimMap(b, dims, names); }
  Value widened(OpBuilder &nested, Value element) { return TensorEmitter::convertedScalar(nested, loc, element, type); }
  /// sums + Σ x · y over the loops `dims` that rows do not have.
  Value addProducts(Value sums, ArrayRef<Dim> dims, Value x, Value y) {
    AffineMap map = mapOf(dims, dims);
    SmallVector<Dim> rows = op.getResultDims(op.getLse());
    return e.generic({{x, map}, {y, map}}, {sums, mapOf(dims, rows)}, [&](OpBuilder &nested, ValueRange elements) {
      Value product = arith::MulFOp::create(nested, loc, widened(nested, elements[0]), widened(nested, elements[1]));
      return arith::AddFOp::create(nested, loc, elements[2], product);
    });
  }

  /// delta = Σ output · gradient + Σ tally · gradient − gradient of the log-sum-exp.
  void emitDelta() {
    delta = e.zeros(lse, type);
    delta = addProducts(delta, op.getOutputDims().getDims(), gradients.primal(op.getOutput()), outputGradient);
    for (Value tally : op.getTallies())
      if (Value gradient = gradients.of(tally))
        delta = addProducts(delta, op.getResultDims(tally), gradients.primal(tally), gradient);
    if (Value gradient = gradients.of(op.getLse()))
      delta = e.elementwise({delta, gradient}, type, [&](OpBuilder &nested, ValueRange elements) {
        return arith::SubFOp::create(nested, loc, elements[0], elements[1]);
      });
  }

  /// The captures of the attention, and those with which the gradient region reads the gradients of tallies.
  GradientCaptures collectCaptures() {
    GradientCaptures captures;
    llvm::append_range(captures.values, op.getCaptures());
    captures.differentiated.resize(op.getCaptures().size());
    for (auto [i, capture] : llvm::enumerate(op.getCaptures()))
      if (gradients.isActive(capture))
        captures.differentiated.set(i);
    auto add = [&](Value value) {
      captures.values.push_back(value);
      return unsigned(captures.values.size() - 1);
    };
    bool hasTallies = false;
    for (Value tally : op.getTallies()) {
      Value gradient = gradients.of(tally);
      captures.tallyGradients.push_back(gradient ? std::optional(add(gradient)) : std::nullopt);
      hasTallies |= bool(gradient);
    }
    if (!hasTallies)
      return captures;
    std::optional<unsigned> *origins[] = {&captures.at.batch, &captures.at.head, &captures.at.query};
    for (auto [origin, position] : llvm::zip(origins, op.getAt()))
      if (!isConstantIntValue(position, 0))
        *origin = add(position);
    if (Value offsets = op.getCuSeqlensQ())
      captures.cuSeqlensQ = add(offsets);
    return captures;
  }

  LogicalResult emitGradient() {
    GradientCaptures captures = collectCaptures();
    Region region;
    SmallVector<int64_t> reads;
    bool isPlain = op.getScore().empty() && op.getWeight().empty() &&
                   llvm::none_of(captures.tallyGradients, [](const auto &gradient) { return gradient.has_value(); });
    if (!isPlain) {
      FailureOr<SmallVector<int64_t>> built = buildGradientRegion(op, captures, region);
      if (failed(built))
        return failure();
      reads = *built;
    }
    SmallVector<int64_t> differentiated(reads);
    differentiated.erase(llvm::unique(differentiated), differentiated.end());
    auto gradientType = [&](Value of, bool isWide) {
      RankedTensorType shape = getGradientType(of);
      return isWide ? shape.clone(type) : shape;
    };
    // The scale's gradient is a sum over that of the queries. Sums over all pairs are not rounded to 16 bits.
    Value scale = op.getScaleValue();
    SmallVector<Type> types = {gradientType(op.getQuery(), scale && gradients.isActive(scale)),
                               gradientType(op.getKey(), false), gradientType(op.getValue(), false)};
    for (int64_t capture : differentiated)
      types.push_back(gradientType(op.getCaptures()[capture], true));
    auto gradient =
        GradientOp::create(b, loc, types, op.getQuery(), op.getKey(), op.getValue(), captures.values, op.getQLen(),
                           op.getKvLen(), op.getCuSeqlensQ(), op.getCuSeqlensK(), scale, op.getAt(), outputGradient,
                           lse, lseLow, delta, op.getQueryDimsAttr(), op.getKeyDimsAttr(), op.getValueDimsAttr(),
                           op.getOutputDimsAttr(), op.getScaleAttr(), op.getPointwise(), op.getStickBreaking(), reads,
                           /*schedule=*/ScheduleAttr());
    cloneRegions(op, cast<DerivativeOpInterface>(gradient.getOperation()), captures.values);
    gradient.getGradient().takeBody(region);
    queryGradient = gradient.getQueryGradient();
    gradients.add(op.getQuery(), queryGradient);
    gradients.add(op.getKey(), gradient.getKeyGradient());
    gradients.add(op.getValue(), gradient.getValueGradient());
    for (auto [capture, result] : llvm::zip_equal(differentiated, gradient.getCaptureGradients()))
      gradients.add(op.getCaptures()[capture], result);
    return success();
  }

  /// −Σ exp(sink − lse − lseLow) · delta over the rows of a head; the sink has no value.
  Value emitSinkGradient(Value sink) {
    SmallVector<Dim> rows = op.getResultDims(op.getLse());
    AffineMap ofRows = mapOf(rows, rows), ofSink = getSinkMap(b, op, rows);
    return e.accumulate({{sink, ofSink}, {lse, ofRows}, {lseLow, ofRows}, {delta, ofRows}}, sink, ofSink, type,
                        [&](OpBuilder &nested, ValueRange elements) -> Value {
                          Value amount =
                              emitSinkProduct(nested, loc, elements[0], elements[1], elements[2], elements[3]);
                          return arith::SubFOp::create(nested, loc, elements[4], amount);
                        });
  }

  /// Σ ds · (q · k) = Σ q · (gradient of q) / scale.
  Value emitScaleGradient(Value scale) {
    ArrayRef<Dim> dims = op.getQueryDims().getDims();
    AffineMap map = mapOf(dims, dims), none = mapOf(dims, {});
    Value sums = e.accumulate({{op.getQuery(), map}, {queryGradient, map}}, scale, none, type,
                              [&](OpBuilder &nested, ValueRange elements) -> Value {
                                Value product =
                                    arith::MulFOp::create(nested, loc, widened(nested, elements[0]), elements[1]);
                                return arith::AddFOp::create(nested, loc, elements[2], product);
                              });
    return e.elementwise(sums, type, [&](OpBuilder &nested, ValueRange elements) {
      return arith::DivFOp::create(nested, loc, elements[0], scale);
    });
  }

  AttentionOp op;
  Gradients &gradients;
  OpBuilder &b;
  Location loc;
  TensorEmitter e;
  FloatType type; ///< of scores
  Value lse, lseLow, outputGradient, delta, queryGradient;
};

} // namespace

LogicalResult saccade::attn::differentiateAttention(Operation *op, Gradients &gradients) {
  return AttentionRule(cast<AttentionOp>(op), gradients).apply();
}
