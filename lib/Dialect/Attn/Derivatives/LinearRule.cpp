//===- LinearRule.cpp - The rule of attn.linear -------------------------------===//
//
// The gradients are one attn.linear_gradient, of features that structured ops compute. It has the gradients of each
// head of values and of each position; the sums over groups of heads, and over dimensions that a decay or beta lacks,
// are structured ops.
//
//===----------------------------------------------------------------------===//
#include "Gradients.h"
#include "TensorEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// A tensor and the names of its dimensions.
struct Named {
  Value value;
  DimsAttr dims;
  SmallVector<int64_t> shape() const { return llvm::to_vector(cast<RankedTensorType>(value.getType()).getShape()); }
};

class LinearRule {
public:
  LinearRule(LinearOp op, Gradients &gradients)
      : op(op), gradients(gradients), b(gradients.b), loc(op.getLoc()), e{b, loc}, type(op.getStateType()) {}

  LogicalResult apply() {
    if (failed(verify()))
      return failure();
    query = {features(op.getQuery(), queryOps), op.getQueryDims()};
    key = {features(op.getKey(), keyOps), op.getKeyDims()};
    value = {op.getValue(), op.getValueDims()};
    decay = op.getDecay(), beta = op.getBeta(), erase = op.getErase(), state = op.getState();
    if (hasFeatures() || op.getNormalize()) { // queries and keys are in the type of the state then
      value.value = wide(value.value);
      for (Value *operand : {&decay, &beta, &erase, &state})
        *operand = *operand ? wide(*operand) : *operand;
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
  LogicalResult verify() {
    auto refuse = [&](const Twine &what) {
      return gradients.emitError(op) << "no rule for " << what << " of '" << op->getName() << "'";
    };
    bool hasHeads = op.getValueDims().position(Dim::Head).has_value();
    for (DimsAttr dims : {op.getQueryDims(), op.getKeyDims(), op.getEraseDims().value_or(op.getKeyDims())})
      if (dims.position(Dim::Head).has_value() != hasHeads)
        return refuse("queries, keys and values of different dimensions");
    if (op.getNormalize() && ShapedType::isDynamic(getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth)))
      return refuse("'normalize' with a dynamic head size");
    return success();
  }

  Value wide(Value x) {
    if (getElementTypeOrSelf(x) == type)
      return x;
    return e.elementwise(x, type, [&](OpBuilder &nested, ValueRange elements) {
      return TensorEmitter::convertedScalar(nested, loc, elements[0], type);
    });
  }

  //===--------------------------------------------------------------------===//
  // Features
  //===--------------------------------------------------------------------===//

  bool hasFeatures() { return op.getL2norm() || !op.getFeature().empty(); }

  /// φ(x) in the type of the state, x itself without features. `ops`: what computes it, in order.
  Value features(Value x, SmallVector<Value> &ops) {
    if (!hasFeatures())
      return op.getNormalize() ? wide(x) : x;
    if (op.getL2norm())
      ops = emitNorm(x, op.getL2norm()->convertToDouble());
    if (op.getFeature().empty())
      return ops.back();
    Region &region = op.getFeature();
    ops.push_back(e.elementwise(ops.empty() ? x : ops.back(), type, [&](OpBuilder &nested, ValueRange elements) {
      IRMapping mapping;
      mapping.map(region.getArgument(0), TensorEmitter::convertedScalar(nested, loc, elements[0], type));
      for (Operation &inner : region.front().without_terminator())
        nested.clone(inner, mapping);
      return mapping.lookupOrDefault(region.front().getTerminator()->getOperand(0));
    }));
    return ops.back();
  }

  /// Σ x² and x / √(Σ x² + `epsilon`) along the head size.
  SmallVector<Value> emitNorm(Value x, double epsilon) {
    DimsAttr dims = x == op.getQuery() ? op.getQueryDims() : op.getKeyDims();
    unsigned rank = dims.size(), depth = *dims.position(Dim::Depth);
    AffineMap all = b.getMultiDimIdentityMap(rank), rows = all.dropResult(depth);
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, x);
    extents.erase(extents.begin() + depth);
    SmallVector<int64_t> shape(cast<RankedTensorType>(x.getType()).getShape());
    shape.erase(shape.begin() + depth);
    auto widened = [&](OpBuilder &nested, Value element) {
      return TensorEmitter::convertedScalar(nested, loc, element, type);
    };
    Value squares = e.generic({{x, all}}, {e.zeros(extents, RankedTensorType::get(shape, type)), rows},
                              [&](OpBuilder &nested, ValueRange elements) -> Value {
                                Value element = widened(nested, elements[0]);
                                Value square = arith::MulFOp::create(nested, loc, element, element);
                                return arith::AddFOp::create(nested, loc, elements[1], square);
                              });
    Value normed = e.generic(
        {{x, all}, {squares, rows}}, {e.empty(x, type), all}, [&](OpBuilder &nested, ValueRange elements) -> Value {
          Value constant = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, epsilon));
          Value sum = arith::AddFOp::create(nested, loc, elements[1], constant);
          Value root = math::SqrtOp::create(nested, loc, sum);
          return arith::DivFOp::create(nested, loc, widened(nested, elements[0]), root);
        });
    return {squares, normed};
  }

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
    bool isStatic = !ShapedType::isDynamic(own) && !ShapedType::isDynamic(shape[head]);
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, gradient);
    Value all = getValueOrCreateConstantIndexOp(b, loc, extents[head]);
    extents[head] = tensor::getMixedSize(b, loc, like.value, head);
    Value divisor = getValueOrCreateConstantIndexOp(b, loc, extents[head]);
    divisor = arith::MaxUIOp::create(b, loc, divisor, arith::ConstantIndexOp::create(b, loc, 1));
    OpFoldResult members = arith::DivUIOp::create(b, loc, all, divisor).getResult();
    if (isStatic)
      members = b.getIndexAttr(own == 0 ? 0 : shape[head] / own);
    shape[head] = own;
    shape.insert(shape.begin() + head + 1, isStatic ? *getConstantIntValue(members) : ShapedType::kDynamic);
    extents.insert(extents.begin() + head + 1, members);
    SmallVector<ReassociationIndices> groups;
    for (unsigned i = 0, next = 0; i < like.dims.size(); ++i) {
      groups.push_back({next++});
      if (i == head)
        groups.back().push_back(next++);
    }
    Value expanded = tensor::ExpandShapeOp::create(b, loc, from.clone(shape), gradient, groups, extents);
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
    DimsAttr dims = output.dims;
    unsigned depth = *dims.position(Dim::Depth), rank = dims.size();
    SmallVector<OpFoldResult> extents = sizes(value);
    extents[*value.dims.position(Dim::Depth)] = b.getIndexAttr(1);
    SmallVector<int64_t> shape = value.shape(), outputShape = output.shape();
    shape[*value.dims.position(Dim::Depth)] = outputShape[depth] = 1;
    Named ones = {e.filled(extents, RankedTensorType::get(shape, type), 1), value.dims};
    Value column;
    if (state) {
      unsigned last = cast<RankedTensorType>(state.getType()).getRank() - 1;
      column = columns(state, last, cast<RankedTensorType>(state.getType()).getDimSize(last) - 1, 1);
    }
    Value divisors =
        LinearOp::create(b, loc, RankedTensorType::get(outputShape, type), Type(), query.value, key.value, ones.value,
                         decay, /*beta=*/Value(), /*erase=*/Value(), column, op.getCuSeqlens(), op.getKvLen(),
                         query.dims, key.dims, value.dims, dims, op.getDecayAxesAttr(), AxesAttr(), DimsAttr(),
                         /*scale=*/FloatAttr(), /*l2norm=*/FloatAttr(), op.getCausal(), /*normalize=*/false)
            .getOutput();
    // Without the dimension of extent 1.
    SmallVector<ReassociationIndices> groups;
    for (unsigned i = 0; i < rank; ++i) {
      if (groups.empty() || (i != depth && !(i == 1 && depth == 0)))
        groups.emplace_back();
      groups.back().push_back(i);
    }
    divisors = tensor::CollapseShapeOp::create(b, loc, divisors, groups);

    AffineMap all = b.getMultiDimIdentityMap(rank), rows = all.dropResult(depth);
    auto quotient = [&](OpBuilder &nested, Value x, Value divisor) -> Value {
      Value zero = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, 0));
      Value one = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, 1));
      Value isZero = arith::CmpFOp::create(nested, loc, arith::CmpFPredicate::OEQ, divisor, zero);
      Value safe = arith::SelectOp::create(nested, loc, isZero, one, divisor);
      return arith::SelectOp::create(nested, loc, isZero, zero, arith::DivFOp::create(nested, loc, x, safe));
    };
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

  SmallVector<OpFoldResult> sizes(Named x) { return tensor::getMixedSizes(b, loc, x.value); }

  /// Indices [first, first + count) of dimension `dim`.
  Value columns(Value x, unsigned dim, int64_t first, int64_t count) {
    auto from = cast<RankedTensorType>(x.getType());
    SmallVector<int64_t> shape(from.getShape());
    SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1)),
        extents = tensor::getMixedSizes(b, loc, x);
    shape[dim] = count;
    offsets[dim] = b.getIndexAttr(first);
    extents[dim] = b.getIndexAttr(count);
    if (llvm::is_contained(shape, 0)) // no offset is within a statically empty tensor
      return e.zeros(extents, from.clone(shape));
    return tensor::ExtractSliceOp::create(b, loc, x, offsets, extents, ones);
  }

  /// `x` with one more column: `column`, which has the other dimensions, or ones.
  Value withColumn(Named x, Value column) {
    unsigned depth = *x.dims.position(Dim::Depth);
    SmallVector<int64_t> shape = x.shape();
    SmallVector<OpFoldResult> offsets(x.dims.size(), b.getIndexAttr(0)), ones(offsets.size(), b.getIndexAttr(1)),
        extents = sizes(x), whole = extents;
    int64_t count = shape[depth]++;
    whole[depth] = b.getIndexAttr(shape[depth]);
    Value into = e.filled(whole, RankedTensorType::get(shape, type), 1);
    if (llvm::is_contained(shape, 0)) // no offset is within a statically empty tensor
      return into;
    into = tensor::InsertSliceOp::create(b, loc, x.value, into, offsets, extents, ones);
    if (!column)
      return into;
    offsets[depth] = b.getIndexAttr(count);
    extents[depth] = b.getIndexAttr(1);
    return tensor::InsertSliceOp::create(b, loc, column, into, offsets, extents, ones);
  }

  LinearOp op;
  Gradients &gradients;
  OpBuilder &b;
  Location loc;
  TensorEmitter e;
  FloatType type;
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
