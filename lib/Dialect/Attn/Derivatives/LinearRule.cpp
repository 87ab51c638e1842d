//===- LinearRule.cpp - The rule of attn.linear -------------------------------===//
//
// The gradients are one attn.linear_gradient, of features that structured ops compute. It has the gradients of each
// head of values and of each position; the sums over groups of heads, and over dimensions that a decay or beta lacks,
// are structured ops.
//
//===----------------------------------------------------------------------===//
#include "Gradients.h"
#include "LinearEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

class LinearRule : LinearEmitter {
public:
  LinearRule(LinearOp op, Gradients &gradients) : LinearEmitter(op, gradients.b), gradients(gradients) {}

  LogicalResult apply() {
    if (std::optional<StringRef> what = findUnsupported())
      return gradients.emitError(op) << "no rule for " << *what << " of '" << op->getName() << "'";
    query = {features(op.getQuery(), queryOps), op.getQueryDims()};
    key = {features(op.getKey(), keyOps), op.getKeyDims()};
    value = {op.getValue(), op.getValueDims()};
    decay = op.getDecay(), beta = op.getBeta(), erase = op.getErase(), state = op.getState();
    if (hasFeatures() || op.getNormalize()) { // queries and keys are in the type of the state then
      value.value = wide(value.value);
      for (Value *operand : {&decay, &beta, &erase, &state})
        *operand = wide(*operand);
    }
    if (op.getFinalState() && gradients.of(op.getFinalState()))
      stateGradient = wide(gradients.of(op.getFinalState()));
    Value gradient = gradients.of(op.getOutput());
    gradient = gradient ? wide(gradient) : e.zeros(gradients.primal(op.getOutput()), type);
    output = {gradient, op.getOutputDims()};
    FloatAttr scale = op.getScaleAttr();
    if (op.getNormalize()) {
      differentiateQuotient();
    }
    return addGradients(scale);
  }

private:
  /// Adds the gradient of `x`, given that of its features, which `ops` compute.
  LogicalResult addFeatureGradient(Value x, ArrayRef<Value> ops, Value gradient) {
    if (!gradients.isActive(x))
      return success();
    if (ops.empty()) {
      gradients.add(x, gradient);
      return success();
    }
    for (Value result : ops)
      gradients.setActive(result);
    gradients.add(ops.back(), gradient);
    return success(llvm::all_of(llvm::reverse(ops), [&](Value result) {
      return succeeded(differentiateStructured(result.getDefiningOp(), gradients));
    }));
  }

  //===--------------------------------------------------------------------===//
  // The op and sums of its results
  //===--------------------------------------------------------------------===//

  /// The type of a gradient: `like` with the heads of the value, or of the output.
  RankedTensorType typeOf(Named like, bool isQuery = false) {
    SmallVector<int64_t> shape = like.shape();
    if (std::optional<unsigned> position = like.dims.position(Dim::Head)) {
      int64_t heads = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Head);
      if (isQuery)
        heads = ShapedType::isDynamic(heads) || ShapedType::isDynamic(shape[*position])
                    ? ShapedType::kDynamic
                    : std::max(heads, shape[*position]);
      shape[*position] = heads;
    }
    return RankedTensorType::get(shape, type);
  }

  /// The type of the gradient of decay or beta.
  RankedTensorType factorType(bool isMatrix) {
    SmallVector<int64_t> shape;
    for (Dim dim : op.getFactorDims(isMatrix))
      shape.push_back(op.getFactorOwner(dim).size(dim));
    return RankedTensorType::get(shape, type);
  }

  LogicalResult addGradients(FloatAttr scale) {
    Type decayType, betaType, eraseType, stateType;
    if (op.getDecay())
      decayType = factorType(op.hasMatrixDecay());
    if (op.getBeta())
      betaType = factorType(/*isMatrix=*/false);
    if (op.getErase())
      eraseType = typeOf({op.getErase(), *op.getEraseDims()});
    if (state)
      stateType = cast<RankedTensorType>(state.getType()).clone(type);
    auto made = LinearGradientOp::create(
        b, loc, typeOf(query, /*isQuery=*/true), typeOf(key), typeOf(value), decayType, betaType, eraseType, stateType,
        query.value, key.value, value.value, decay, beta, erase, state, op.getCuSeqlens(), op.getKvLen(), output.value,
        stateGradient, query.dims, key.dims, value.dims, output.dims, op.getDecayAxesAttr(), op.getBetaAxesAttr(),
        op.getEraseDimsAttr(), scale, op.getCausal());
    Value ofValue = made.getValueGradient();
    if (op.getNormalize())
      ofValue = columns(ofValue, *value.dims.position(Dim::Depth), 0,
                        getStaticDimSize(op.getValue(), value.dims, Dim::Depth));
    gradients.add(op.getValue(), ofValue);
    if (op.getDecay())
      gradients.add(op.getDecay(), sumOfMissing(made.getDecayGradient(), op.getFactorDims(op.hasMatrixDecay()),
                                                op.getDecay(), op.getDecayAxesAttr()));
    if (op.getBeta())
      gradients.add(op.getBeta(), sumOfMissing(made.getBetaGradient(), op.getFactorDims(/*isMatrix=*/false),
                                               op.getBeta(), op.getBetaAxesAttr()));
    if (op.getErase())
      gradients.add(op.getErase(), sumOfGroups(made.getEraseGradient(), {op.getErase(), *op.getEraseDims()}));
    if (state)
      gradients.add(op.getState(), made.getInitialGradient());
    return success(
        succeeded(addFeatureGradient(op.getQuery(), queryOps, sumOfGroups(made.getQueryGradient(), query))) &&
        succeeded(addFeatureGradient(op.getKey(), keyOps, sumOfGroups(made.getKeyGradient(), key))));
  }

  /// Sums over the dimensions that `axes` lacks.
  Value sumOfMissing(Value gradient, ArrayRef<Dim> dims, Value like, AxesAttr axes) {
    if (ArrayRef(axes.getDims()) == dims)
      return gradient;
    SmallVector<AffineExpr> indices;
    for (Dim dim : axes.getDims())
      indices.push_back(b.getAffineDimExpr(llvm::find(dims, dim) - dims.begin()));
    return e.accumulate({{gradient, b.getMultiDimIdentityMap(dims.size())}}, like,
                        AffineMap::get(dims.size(), 0, indices, b.getContext()), type, addElements());
  }

  /// Sums over the heads that share one of `like`.
  Value sumOfGroups(Value gradient, Named like) {
    auto from = cast<RankedTensorType>(gradient.getType());
    std::optional<unsigned> position = like.dims.position(Dim::Head);
    int64_t own = position ? like.shape()[*position] : 1;
    if (!position || (own == from.getDimSize(*position) && !ShapedType::isDynamic(own)))
      return gradient;
    unsigned head = *position;
    SmallVector<int64_t> shape(from.getShape());
    if (ShapedType::isDynamic(own) && !ShapedType::isDynamic(shape[head])) { // what is expanded has to be dynamic too
      shape[head] = ShapedType::kDynamic;
      from = from.clone(shape);
      gradient = tensor::CastOp::create(b, loc, from, gradient);
    }
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, gradient);
    OpFoldResult all = extents[head];
    extents[head] = tensor::getMixedSize(b, loc, like.value, head);
    OpFoldResult members = membersOf(all, extents[head]);
    shape[head] = own;
    shape.insert(shape.begin() + head + 1, getConstantIntValue(members).value_or(ShapedType::kDynamic));
    extents.insert(extents.begin() + head + 1, members);
    Value expanded =
        tensor::ExpandShapeOp::create(b, loc, from.clone(shape), gradient, dividedAt(like.dims.size(), head), extents);
    AffineMap loops = b.getMultiDimIdentityMap(shape.size());
    return e.accumulate({{expanded, loops}}, like.value, loops.dropResult(head + 1), type, addElements());
  }

  std::function<Value(OpBuilder &, ValueRange)> addElements() {
    return [this](OpBuilder &nested, ValueRange elements) -> Value {
      return arith::AddFOp::create(nested, loc, elements[1], elements[0]);
    };
  }

  //===--------------------------------------------------------------------===//
  // Normalized outputs
  //===--------------------------------------------------------------------===//

  /// With the numerator n and the denominator z of the output o = n / z: dn = do / z and dz = −(do·o) / z. The
  /// denominators are the outputs for a column of values that are 1.
  void differentiateQuotient() {
    unsigned depth = output.at(Dim::Depth), rank = output.dims.size();
    Value divisors = LinearEmitter::divisors(query.value, key.value, value, decay, state);
    AffineMap all = b.getMultiDimIdentityMap(rank), rows = all.dropResult(depth);
    Value products = e.zeros(tensor::getMixedSizes(b, loc, divisors), cast<RankedTensorType>(divisors.getType()));
    products = e.generic({{output.value, all}, {gradients.primal(op.getOutput()), all}}, {products, rows},
                         [&](OpBuilder &nested, ValueRange elements) -> Value {
                           Value y = TensorEmitter::convertedScalar(nested, loc, elements[1], type);
                           Value product = arith::MulFOp::create(nested, loc, elements[0], y);
                           return arith::SubFOp::create(nested, loc, elements[2], product);
                         });
    Value divisorGradient = e.elementwise({products, divisors}, type, [&](OpBuilder &nested, ValueRange elements) {
      return quotient(nested, elements[0], elements[1]);
    });
    Value empty = tensor::EmptyOp::create(b, loc, sizes(output), type);
    output.value =
        e.generic({{output.value, all}, {divisors, rows}}, {empty, all},
                  [&](OpBuilder &nested, ValueRange elements) { return quotient(nested, elements[0], elements[1]); });
    output.value = withColumn(output, divisorGradient);
    value.value = withColumn(value, Value());
  }

  Gradients &gradients;
  Named query, key, value; ///< features, and values with a last column of ones if outputs are normalized
  /// The gradient of the output or, if outputs are normalized, of the numerators and denominators.
  Named output;
  SmallVector<Value> queryOps, keyOps;
  Value decay, beta, erase, state, stateGradient; ///< null if there is none
};

} // namespace

LogicalResult saccade::attn::differentiateLinear(Operation *op, Gradients &gradients) {
  return LinearRule(cast<LinearOp>(op), gradients).apply();
}
