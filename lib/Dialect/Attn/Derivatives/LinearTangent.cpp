//===- LinearTangent.cpp - The tangents of attn.linear ------------------------===//
//
// With D = exp(decay), the state S and its tangent S' are the upper and the lower half of the state of one attn.linear
// with keys of twice the head size and two positions for each one:
//
//     position    decay   key              erase key                    value                  query
//     2t          decay   [0; k]           [beta' e + beta e'; beta e]  beta v' + beta' v      0
//     2t + 1      0       [k; k']          [beta e; 0]                  beta v                 [q'; q]
//
// (x': the tangent of x). Without the delta rule there is no erase key, and beta is 1. The output of position 2t + 1 is
// S ᵀ q' + S'ᵀ q.
//
// With G, the sums of the tangents of the decay over the positions up to the own one, the lower half is S' − G ∘ S: k'
// is k' − G ∘ k then, and e' and q' are e' + G ∘ e and q' + G ∘ q.
//
//===----------------------------------------------------------------------===//
#include "InterleavedEmitter.h"
#include "Tangents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

class LinearTangent : InterleavedEmitter {
public:
  LinearTangent(LinearOp op, Tangents &tangents) : InterleavedEmitter(op, tangents.b), tangents(tangents) {}

  LogicalResult apply() {
    if (std::optional<StringRef> what = findUnsupported())
      return tangents.emitError(op) << "no rule for " << *what << " of '" << op->getName() << "'";
    auto features = [&](Value x, DimsAttr dims, Pair &found) -> LogicalResult {
      SmallVector<Value> ops;
      found = {{wide(LinearEmitter::features(x, ops)), dims}, tangents.of(x)};
      if (found.tangent && !ops.empty()) {
        for (Value result : ops)
          tangents.setNeeded(result);
        for (Value result : ops)
          if (failed(pushStructured(result.getDefiningOp(), tangents)))
            return failure();
        found.tangent = tangents.of(ops.back());
      }
      found.tangent = wide(found.tangent);
      return success();
    };
    if (failed(features(op.getQuery(), op.getQueryDims(), query)) ||
        failed(features(op.getKey(), op.getKeyDims(), key)))
      return failure();
    value = wide(op.getValue(), op.getValueDims());
    if (op.getErase())
      erase = wide(op.getErase(), *op.getEraseDims());
    else if (op.getBeta())
      erase = key;
    state = {LinearEmitter::wide(op.getState()), LinearEmitter::wide(tangentOf(op.getState()))};
    isInterleaved = op.getCausal() || op.getCuSeqlens() || op.getKvLen();
    Value divisors;
    if (op.getNormalize()) {
      Value decay = LinearEmitter::wide(op.getDecay());
      divisors = LinearEmitter::divisors(query.primal.value, key.primal.value, value.primal, decay, state.first);
      value.primal.value = withColumn(value.primal, Value());
      if (value.tangent)
        value.tangent = withColumn({value.tangent, value.primal.dims}, Value(), 0);
    }
    if (tangentOf(op.getDecay()))
      sumDecay();
    LinearOp pushed = emitRecurrence();
    setOutput(pushed, divisors);
    if (op.getFinalState() && tangents.isNeeded(op.getFinalState()))
      setState(pushed);
    return success();
  }

private:
  /// An operand and its tangent, null for 0.
  struct Pair {
    Named primal;
    Value tangent;
  };

  Value tangentOf(Value x) const { return x ? tangents.of(x) : Value(); }
  using LinearEmitter::wide;
  Pair wide(Value x, DimsAttr dims) { return {{LinearEmitter::wide(x), dims}, LinearEmitter::wide(tangents.of(x))}; }

  //===--------------------------------------------------------------------===//
  // Heads and factors
  //===--------------------------------------------------------------------===//

  Pair withHeads(Pair x, OpFoldResult heads) {
    if (std::optional<unsigned> head = x.primal.dims.position(Dim::Head)) {
      x.primal.value = repeatHeads(x.primal.value, *head, heads);
      x.tangent = x.tangent ? repeatHeads(x.tangent, *head, heads) : Value();
    }
    return x;
  }

  RankedTensorType typeOfState(int64_t rows, int64_t columns) {
    SmallVector<int64_t> shape;
    for (Dim dim : op.getStateDims())
      shape.push_back(dim == Dim::Batch ? getStaticBatches(op) : op.getFactorOwner(dim).size(dim));
    shape.append({rows, columns});
    return RankedTensorType::get(shape, type);
  }

  OpFoldResult headsOfValue() { return getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Head); }

  /// The places of `dims` in a tensor with dimensions `in`.
  AffineMap mapOf(ArrayRef<Dim> dims, ArrayRef<Dim> in) {
    SmallVector<AffineExpr> places;
    for (Dim dim : dims)
      places.push_back(b.getAffineDimExpr(llvm::find(in, dim) - in.begin()));
    return AffineMap::get(in.size(), 0, places, b.getContext());
  }

  /// x · factor, where `factor` names `dims` of those of x.
  Value product(Value x, DimsAttr xDims, Value factor, ArrayRef<Dim> dims) {
    if (!x || !factor)
      return {};
    AffineMap all = b.getMultiDimIdentityMap(xDims.size());
    return e.generic({{x, all}, {factor, mapOf(dims, xDims.getDims())}}, {e.empty(x, type), all},
                     [&](OpBuilder &nested, ValueRange elements) -> Value {
                       return arith::MulFOp::create(nested, loc, elements[0], elements[1]);
                     });
  }

  /// x + sign · y; null stands for 0.
  Value sum(Value x, Value y, bool isDifference = false) {
    if (!y || (!x && !isDifference))
      return x ? x : y;
    if (!x)
      x = e.zeros(y, type);
    return e.elementwise({x, y}, type, [&](OpBuilder &nested, ValueRange elements) -> Value {
      if (isDifference)
        return arith::SubFOp::create(nested, loc, elements[0], elements[1]);
      return arith::AddFOp::create(nested, loc, elements[0], elements[1]);
    });
  }

  //===--------------------------------------------------------------------===//
  // Decays
  //===--------------------------------------------------------------------===//

  /// The decay or its tangent for every position and head of the value, with the dimensions of `op.getFactorDims`.
  Value everyDecay(Value decay) {
    SmallVector<Dim> dims = op.getFactorDims(op.hasMatrixDecay());
    SmallVector<OpFoldResult> extents;
    SmallVector<int64_t> shape;
    for (Dim dim : dims) {
      NamedOperand owner = op.getFactorOwner(dim);
      extents.push_back(getDimSize(b, loc, owner.value, owner.dims, dim));
      shape.push_back(owner.size(dim));
    }
    AffineMap all = b.getMultiDimIdentityMap(dims.size());
    return e.generic({{decay, mapOf(op.getDecayAxesAttr().getDims(), dims)}},
                     {e.filled(extents, RankedTensorType::get(shape, type), 0), all},
                     [&](OpBuilder &nested, ValueRange elements) -> Value {
                       return TensorEmitter::convertedScalar(nested, loc, elements[0], type);
                     });
  }

  /// Sets G and its last values by a linear attention with keys and queries of one element 1.
  void sumDecay() {
    Value steps = everyDecay(tangents.of(op.getDecay()));
    factorDims = op.getFactorDims(op.hasMatrixDecay());
    SmallVector<Dim> dims = factorDims;
    auto stepsType = cast<RankedTensorType>(steps.getType());
    if (!op.hasMatrixDecay()) {
      dims.push_back(Dim::Depth);
      SmallVector<int64_t> shape(stepsType.getShape());
      shape.push_back(1);
      SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, steps);
      extents.push_back(b.getIndexAttr(1));
      steps = tensor::ExpandShapeOp::create(b, loc, stepsType.clone(shape), steps,
                                            dividedAt(shape.size() - 1, shape.size() - 2), extents);
    }
    auto wholeType = cast<RankedTensorType>(steps.getType());
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, steps);
    extents.back() = b.getIndexAttr(1);
    SmallVector<int64_t> shape(wholeType.getShape());
    shape.back() = 1;
    Value ones = e.filled(extents, wholeType.clone(shape), 1);
    RankedTensorType stateType = typeOfState(1, wholeType.getShape().back());
    auto named = DimsAttr::get(b.getContext(), dims);
    auto sums = LinearOp::create(b, loc, wholeType, stateType, ones, ones, steps, Value(), Value(), Value(), Value(),
                                 op.getCuSeqlens(), op.getKvLen(), named, named, named, named, AxesAttr(), AxesAttr(),
                                 DimsAttr(), FloatAttr(), FloatAttr(),
                                 /*causal=*/true, /*normalize=*/false);
    sumsOfDecay = sums.getOutput();
    if (!op.hasMatrixDecay())
      sumsOfDecay = tensor::CollapseShapeOp::create(b, loc, sumsOfDecay, dividedAt(shape.size() - 1, shape.size() - 2));
    lastOfDecay = sums.getFinalState();
  }

  /// G ∘ x, where x has `heads` heads; null for 0.
  Value timesSums(Value x, DimsAttr dims, OpFoldResult heads) {
    if (!sumsOfDecay)
      return {};
    Value sums = sumsOfDecay;
    if (const auto *head = llvm::find(factorDims, Dim::Head); head != factorDims.end())
      sums = repeatHeads(sums, head - factorDims.begin(), heads);
    return product(x, dims, sums, factorDims);
  }

  //===--------------------------------------------------------------------===//
  // The recurrence
  //===--------------------------------------------------------------------===//

  /// The erase keys of the two positions, and the values.
  void emitDeltaRule() {
    OpFoldResult heads = headsOfValue();
    erase = withHeads(erase, heads);
    erase.tangent = sum(erase.tangent, timesSums(erase.primal.value, erase.primal.dims, heads));
    Value beta = op.getBeta();
    if (!beta)
      return;
    ArrayRef<Dim> axes = op.getBetaAxesAttr().getDims();
    Value rate = LinearEmitter::wide(beta), tangent = LinearEmitter::wide(tangents.of(beta));
    for (Pair *x : {&erase, &value}) {
      DimsAttr dims = x->primal.dims;
      x->tangent = sum(product(x->tangent, dims, rate, axes), product(x->primal.value, dims, tangent, axes));
      x->primal.value = product(x->primal.value, dims, rate, axes);
    }
  }

  LinearOp emitRecurrence() {
    Value erased;
    DimsAttr eraseDims;
    if (op.hasDeltaRule()) {
      emitDeltaRule();
      eraseDims = erase.primal.dims;
      Value x = erase.primal.value;
      erased = interleaved({erase.tangent, x, x, Value()}, eraseDims.getDims());
    }
    if (sumsOfDecay) {
      key = withHeads(key, headsOfValue());
      key.tangent = sum(key.tangent, timesSums(key.primal.value, key.primal.dims, headsOfValue()), true);
      query = withHeads(query, getOutputHeads(b, op));
      query.tangent = sum(query.tangent, timesSums(query.primal.value, query.primal.dims, getOutputHeads(b, op)));
    }
    Value keys = interleaved({Value(), key.primal.value, key.primal.value, key.tangent}, key.primal.dims.getDims());
    Value values = interleaved({value.tangent, value.primal.value}, value.primal.dims.getDims());
    ArrayRef<Dim> queryDims = query.primal.dims.getDims();
    Value q = query.primal.value;
    Value queries = isInterleaved ? interleaved({Value(), Value(), query.tangent, q}, queryDims)
                                  : interleaved({query.tangent, q}, queryDims, /*isInterleaved=*/false);
    Value decay;
    AxesAttr decayAxes;
    if (op.getDecay()) {
      SmallVector<Dim> dims = op.getFactorDims(op.hasMatrixDecay());
      Value each = everyDecay(op.getDecay());
      decay =
          op.hasMatrixDecay() ? interleaved({each, each, Value(), Value()}, dims) : interleaved({each, Value()}, dims);
      decayAxes = AxesAttr::get(b.getContext(), dims);
    }
    auto doubledExtent = [](int64_t extent) { return ShapedType::isDynamic(extent) ? extent : 2 * extent; };
    Named output = {op.getOutput(), op.getOutputDims()};
    SmallVector<int64_t> shape = output.shape();
    if (isInterleaved)
      shape[output.at(Dim::Seq)] = doubledExtent(shape[output.at(Dim::Seq)]);
    shape[output.at(Dim::Depth)] += op.getNormalize() ? 1 : 0;
    Value before = bothStates();
    RankedTensorType stateType =
        typeOfState(2 * getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth), shape[output.at(Dim::Depth)]);
    return LinearOp::create(b, loc, RankedTensorType::get(shape, type), stateType, queries, keys, values, decay,
                            Value(), erased, before, doubled(op.getCuSeqlens()), doubled(op.getKvLen()),
                            query.primal.dims, key.primal.dims, value.primal.dims, output.dims, decayAxes, AxesAttr(),
                            eraseDims, op.getScaleAttr(), FloatAttr(), op.getCausal(),
                            /*normalize=*/false);
  }

  /// The initial states above their tangents; null for 0.
  Value bothStates() {
    auto [primal, tangent] = state;
    if (!primal)
      return {};
    auto from = cast<RankedTensorType>(primal.getType());
    SmallVector<int64_t> shape(from.getShape());
    unsigned rows = shape.size() - 2;
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, primal), part = extents,
                              offsets(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1));
    int64_t half = shape[rows];
    extents[rows] = b.getIndexAttr(shape[rows] *= 2);
    Value both = e.zeros(extents, from.clone(shape));
    if (llvm::is_contained(shape, 0))
      return both;
    both = tensor::InsertSliceOp::create(b, loc, primal, both, offsets, part, ones);
    if (!tangent)
      return both;
    offsets[rows] = b.getIndexAttr(half);
    return tensor::InsertSliceOp::create(b, loc, tangent, both, offsets, part, ones);
  }

  //===--------------------------------------------------------------------===//
  // Results
  //===--------------------------------------------------------------------===//

  /// Positions 2t + 1 of the output, and with a normalized output o = n / z: (n' − o z') / z.
  void setOutput(LinearOp pushed, Value divisors) {
    if (!tangents.isNeeded(op.getOutput()))
      return;
    Named found = {pushed.getOutput(), op.getOutputDims()};
    if (isInterleaved)
      found.value = oddPositions(found, tensor::getMixedSizes(b, loc, op.getOutput()));
    if (divisors) {
      unsigned depth = found.at(Dim::Depth), rank = found.dims.size();
      int64_t size = found.shape()[depth] - 1;
      AffineMap all = b.getMultiDimIdentityMap(rank), rows = all.dropResult(depth);
      Value numerators = columns(found.value, depth, 0, size), ofDivisors = columns(found.value, depth, size, 1);
      SmallVector<AffineExpr> first(all.getResults());
      first[depth] = b.getAffineConstantExpr(0);
      found.value = e.generic({{numerators, all},
                               {ofDivisors, AffineMap::get(rank, 0, first, b.getContext())},
                               {op.getOutput(), all},
                               {divisors, rows}},
                              {e.empty(op.getOutput(), type), all}, [&](OpBuilder &nested, ValueRange elements) {
                                Value o = TensorEmitter::convertedScalar(nested, loc, elements[2], type);
                                Value product = arith::MulFOp::create(nested, loc, o, elements[1]);
                                Value difference = arith::SubFOp::create(nested, loc, elements[0], product);
                                return quotient(nested, difference, elements[3]);
                              });
    }
    tangents.set(op.getOutput(), found.value);
  }

  /// The lower half of the final state, + G ∘ the upper half.
  void setState(LinearOp pushed) {
    Value both = pushed.getFinalState();
    unsigned rank = cast<RankedTensorType>(both.getType()).getRank();
    int64_t rows = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
    Value tangent = columns(both, rank - 2, rows, rows);
    if (lastOfDecay) {
      // [..., 1, rows] or [..., 1, 1].
      AffineMap all = b.getMultiDimIdentityMap(rank);
      SmallVector<AffineExpr> places(all.getResults());
      places[rank - 1] = op.hasMatrixDecay() ? places[rank - 2] : b.getAffineConstantExpr(0);
      places[rank - 2] = b.getAffineConstantExpr(0);
      Value upper = columns(both, rank - 2, 0, rows);
      tangent =
          e.generic({{tangent, all}, {upper, all}, {lastOfDecay, AffineMap::get(rank, 0, places, b.getContext())}},
                    {e.empty(tangent, type), all}, [&](OpBuilder &nested, ValueRange elements) -> Value {
                      Value product = arith::MulFOp::create(nested, loc, elements[1], elements[2]);
                      return arith::AddFOp::create(nested, loc, elements[0], product);
                    });
    }
    tangents.set(op.getFinalState(), tangent);
  }

  Tangents &tangents;
  Pair query, key, value, erase;
  std::pair<Value, Value> state; ///< initial, and its tangent
  bool isInterleaved = false;    ///< whether queries have two positions for each one
  SmallVector<Dim> factorDims;   ///< of the sums
  Value sumsOfDecay;             ///< G; null for 0
  Value lastOfDecay;             ///< G of the last positions, as a state
};

} // namespace

LogicalResult saccade::attn::pushLinear(Operation *op, Tangents &tangents) {
  return LinearTangent(cast<LinearOp>(op), tangents).apply();
}
