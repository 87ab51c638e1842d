//===- LinearRule.cpp - The rule of attn.linear -------------------------------===//
//
// For fixed features and decays the output is a linear map A(q, k) of the values v, and a sum of products in which
// queries and output gradients, and keys and values have equal parts. So the gradients are linear attentions (Yang et
// al. 2024, "Gated Linear Attention Transformers with Hardware-Efficient Training", appendix C): with the gradient u of
// the output,
//
//     dq = A(u, v) k,    dk = A(u, v)ᵀ q,    dv = A(q, k)ᵀ u
//
// where the decay of rows is that of columns for dq and dk. The gradient of the state after the last position is the
// initial state of the transposed ops, and the gradient of the initial state is the final state of the one for dv.
//
//===----------------------------------------------------------------------===//
#include "LinearDecayRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

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
    query = {features(op.getQuery()), op.getQueryDims()};
    key = {features(op.getKey()), op.getKeyDims()};
    value = {wide(op.getValue()), op.getValueDims()};
    if (op.getState())
      state = wide(op.getState());
    if (op.getFinalState() && gradients.of(op.getFinalState()))
      stateGradient = wide(gradients.of(op.getFinalState()));
    Value gradient = gradients.of(op.getOutput());
    gradient = gradient ? wide(gradient) : e.zeros(gradients.primal(op.getOutput()), type);
    output = {gradient, op.getOutputDims()};
    wholeOutput = output;
    wholeValue = value;
    if (op.getNormalize()) {
      differentiateQuotient();
    } else if (scalesStates()) {
      output.value = e.elementwise(gradient, type, [&](OpBuilder &nested, ValueRange elements) -> Value {
        Value scale =
            arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, op.getScaleAttr().getValueAsDouble()));
        return arith::MulFOp::create(nested, loc, elements[0], scale);
      });
      wholeOutput = output;
    }
    return addGradients();
  }

private:
  LogicalResult verify() {
    auto refuse = [&](const Twine &what) {
      return gradients.emitError(op) << "no rule for " << what << " of '" << op->getName() << "'";
    };
    if (op.getBeta())
      return refuse("the delta rule ('beta')");
    if (op.getTransposed() || op.getDecaysColumns())
      return refuse(op.getTransposed() ? "'transposed'" : "'decay_columns'");
    auto outer = [](DimsAttr dims) {
      return std::pair(dims.position(Dim::Batch).has_value(), dims.position(Dim::Head).has_value());
    };
    if ((op.getState() || op.getFinalState()) && outer(op.getKeyDims()) != outer(op.getValueDims()))
      return refuse("a state with keys and values of different dimensions");
    if (op.getNormalize() && ShapedType::isDynamic(getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth)))
      return refuse("'normalize' with a dynamic head size");
    return success();
  }

  /// Whether the output gradient is scaled, since a state depends on it as well as the results.
  bool scalesStates() { return op.getScaleAttr() && (op.getState() || stateGradient); }

  Value wide(Value x) {
    if (getElementTypeOrSelf(x) == type)
      return x;
    return e.elementwise(x, type, [&](OpBuilder &nested, ValueRange elements) {
      return TensorEmitter::convertedScalar(nested, loc, elements[0], type);
    });
  }

  /// φ(x) in the type of the state.
  Value features(Value x) {
    Region &region = op.getFeature();
    if (region.empty())
      return wide(x);
    return e.elementwise(x, type, [&](OpBuilder &nested, ValueRange elements) {
      IRMapping mapping;
      mapping.map(region.getArgument(0), TensorEmitter::convertedScalar(nested, loc, elements[0], type));
      for (Operation &inner : region.front().without_terminator())
        nested.clone(inner, mapping);
      return mapping.lookupOrDefault(region.front().getTerminator()->getOperand(0));
    });
  }

  /// Adds the gradient of `x`, given that of its features.
  LogicalResult addFeatureGradient(Value x, Value features, Value gradient) {
    if (!gradients.isActive(x))
      return success();
    if (features == x) {
      gradients.add(x, gradient);
      return success();
    }
    gradients.setActive(features);
    gradients.add(features, gradient);
    return differentiateStructured(features.getDefiningOp(), gradients);
  }

  /// A(query, key) value with the dimensions `out` and the extents `shape`; with `isTransposed` its transpose.
  LinearOp emit(Named query, Named key, Named value, DimsAttr out, ArrayRef<int64_t> shape, bool isTransposed,
                bool decaysColumns, Value state, Type finalState = {}) {
    // Without a dimension `d` decays of rows and columns are the same.
    decaysColumns &= op.getDecay() && op.getDecayAxesAttr().position(Dim::Depth);
    FloatAttr scale = scalesStates() ? FloatAttr() : op.getScaleAttr();
    return LinearOp::create(b, loc, RankedTensorType::get(shape, type), finalState, query.value, key.value, value.value,
                            decay(), /*beta=*/Value(), state, query.dims, key.dims, value.dims, out,
                            op.getDecayAxesAttr(), AxesAttr(), scale, op.getCausal(), /*normalize=*/false,
                            decaysColumns, isTransposed);
  }
  Value decay() {
    if (op.getDecay() && !wideDecay)
      wideDecay = wide(op.getDecay());
    return wideDecay;
  }

  LogicalResult addGradients() {
    bool hasDecay = op.getDecay() && gradients.isActive(op.getDecay());
    DecayTerms terms{query.value, {}, key.value, {}, {}, stateGradient};
    if (hasDecay || gradients.isActive(op.getQuery()))
      terms.queryGradient = emit(wholeOutput, wholeValue, key, query.dims, query.shape(), /*isTransposed=*/false,
                                 /*decaysColumns=*/true, transposed(state))
                                .getOutput();
    if (hasDecay || gradients.isActive(op.getKey()))
      terms.keyGradient = emit(wholeValue, wholeOutput, query, key.dims, key.shape(), /*isTransposed=*/true,
                               /*decaysColumns=*/true, transposed(stateGradient))
                              .getOutput();
    addValueGradient();
    if (hasDecay) {
      if (stateGradient)
        terms.state = wide(gradients.primal(op.getFinalState()));
      addDecayGradient(op, terms, gradients);
    }
    return success(succeeded(addFeatureGradient(op.getQuery(), query.value, terms.queryGradient)) &&
                   succeeded(addFeatureGradient(op.getKey(), key.value, terms.keyGradient)));
  }

  /// Adds the gradients of the values and of the initial state.
  void addValueGradient() {
    bool hasState = op.getState() && gradients.isActive(op.getState());
    if (!hasState && !gradients.isActive(op.getValue()))
      return;
    // The last column of `wholeOutput` is a part of the gradient of states only.
    bool isWhole = hasState || stateGradient;
    Type finalState;
    if (hasState)
      finalState = cast<RankedTensorType>(op.getState().getType()).clone(type);
    LinearOp made = emit(key, query, isWhole ? wholeOutput : output, value.dims, (isWhole ? wholeValue : value).shape(),
                         /*isTransposed=*/true, /*decaysColumns=*/false, stateGradient, finalState);
    Value gradient = made.getOutput();
    if (isWhole && op.getNormalize())
      gradient =
          columns(gradient, *value.dims.position(Dim::Depth), 0, getStaticDimSize(value.value, value.dims, Dim::Depth));
    gradients.add(op.getValue(), gradient);
    if (hasState)
      gradients.add(op.getState(), made.getFinalState());
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
        emit(query, key, ones, dims, outputShape, /*isTransposed=*/false, /*decaysColumns=*/false, column).getOutput();
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
    wholeOutput.value = withColumn(output, divisorGradient);
    wholeValue.value = withColumn(value, Value());
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

  /// A state with rows and columns exchanged; null for null.
  Value transposed(Value state) {
    if (!state)
      return {};
    SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(cast<RankedTensorType>(state.getType()).getRank()));
    std::swap(order[order.size() - 2], order.back());
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, state);
    std::swap(extents[extents.size() - 2], extents.back());
    Value empty = tensor::EmptyOp::create(b, loc, extents, type);
    return linalg::TransposeOp::create(b, loc, state, empty, order)->getResult(0);
  }

  LinearOp op;
  Gradients &gradients;
  OpBuilder &b;
  Location loc;
  TensorEmitter e;
  FloatType type;
  Named query, key, value; ///< features and values in the type of the state
  Named output;            ///< the gradient of the output or, if outputs are normalized, of the numerators
  /// Output gradient and values with a last column for the denominators, if outputs are normalized.
  Named wholeOutput, wholeValue;
  Value state, stateGradient, wideDecay; ///< null if there is none
};

} // namespace

LogicalResult saccade::attn::differentiateLinear(Operation *op, Gradients &gradients) {
  return LinearRule(cast<LinearOp>(op), gradients).apply();
}
