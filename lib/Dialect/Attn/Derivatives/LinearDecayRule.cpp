//===- LinearDecayRule.cpp - The gradient of a decay --------------------------===//
//
// With the sum c of the logarithms of decays up to a position, an output has the terms exp(c[i] − c[j]) · … for keys
// j ≤ i. So the gradient of c[i] is q[i]·dq[i] − k[i]·dk[i], and that of the decay at t is the sum of these for i ≥ t
// (Yang et al. 2024, "Gated Linear Attention Transformers with Hardware-Efficient Training", appendix C). No term
// contains a quotient of decays. The sum over later positions is a transposed linear attention with features of 1.
//
//===----------------------------------------------------------------------===//
#include "LinearDecayRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// A loop of the sums: a dimension, or the number of a query head in its group.
enum Loop : unsigned { Batch = unsigned(Dim::Batch), Head = unsigned(Dim::Head), Seq = unsigned(Dim::Seq), Group = 4 };

class DecayRule {
public:
  DecayRule(LinearOp op, const DecayTerms &terms, Gradients &gradients)
      : op(op), terms(terms), gradients(gradients), b(gradients.b), loc(op.getLoc()), e{b, loc},
        type(op.getStateType()), axes(op.getDecayAxesAttr()) {}

  void apply() {
    bool isPerPosition = axes.position(Dim::Seq).has_value();
    for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth})
      if (axes.position(dim) || (isPerPosition && dim == Dim::Depth))
        kept.push_back(dim);
    if (!isPerPosition)
      kept.assign(axes.getDims().begin(), axes.getDims().end());
    Value result = isPerPosition ? sumOverLater() : sumOverAll();
    // A decay factor of 0 has derivative 0, which rounding errors of the sums must not change.
    result = e.elementwise({result, op.getDecay()}, type, [&](OpBuilder &nested, ValueRange elements) -> Value {
      auto element = cast<FloatType>(elements[1].getType());
      Value minusInfinity = arith::ConstantOp::create(
          nested, loc, nested.getFloatAttr(element, APFloat::getInf(element.getFloatSemantics(), /*Negative=*/true)));
      Value isZero = arith::CmpFOp::create(nested, loc, arith::CmpFPredicate::OEQ, elements[1], minusInfinity);
      Value zero = arith::ConstantOp::create(nested, loc, nested.getFloatAttr(type, 0));
      return arith::SelectOp::create(nested, loc, isZero, zero, elements[0]);
    });
    gradients.add(op.getDecay(), result);
  }

private:
  OpFoldResult sizeOf(Dim dim) { return getDimSize(b, loc, op.getKey(), op.getKeyDims(), dim); }
  /// The extent of a kept dimension: 1 for the depth of a decay that does not have it.
  OpFoldResult keptSize(Dim dim) { return axes.position(dim) ? sizeOf(dim) : OpFoldResult(b.getIndexAttr(1)); }
  Value asFloat(OpBuilder &nested, Value index) {
    Value integer = arith::IndexCastOp::create(nested, loc, nested.getI64Type(), index);
    return arith::SIToFPOp::create(nested, loc, type, integer);
  }

  /// q·dq − k·dk for each position.
  Value sumOverLater() {
    SmallVector<OpFoldResult> extents, state, ones;
    for (Dim dim : kept) {
      extents.push_back(keptSize(dim));
      ones.push_back(dim == Dim::Depth ? OpFoldResult(b.getIndexAttr(1)) : keptSize(dim));
      state.push_back(dim == Dim::Seq ? OpFoldResult(b.getIndexAttr(1)) : keptSize(dim));
    }
    Value empty = tensor::EmptyOp::create(b, loc, extents, type);
    Value terms = emitTerms(empty);
    Value initial = emitStateTerm(tensor::EmptyOp::create(b, loc, state, type));
    Value weight = tensor::EmptyOp::create(b, loc, ones, type);
    weight = e.filled(ones, cast<RankedTensorType>(weight.getType()), 1);
    SmallVector<Dim> out(axes.getDims());
    SmallVector<int64_t> shape(cast<RankedTensorType>(op.getDecay().getType()).getShape());
    bool hasDepth = axes.position(Dim::Depth).has_value();
    if (!hasDepth) {
      out.push_back(Dim::Depth);
      shape.push_back(1);
    }
    auto dims = DimsAttr::get(b.getContext(), kept);
    Value sums = LinearOp::create(b, loc, RankedTensorType::get(shape, type), Type(), weight, weight, terms,
                                  /*decay=*/Value(), /*beta=*/Value(), initial, dims, dims, dims,
                                  DimsAttr::get(b.getContext(), out), AxesAttr(), AxesAttr(), FloatAttr(),
                                  /*causal=*/true, /*normalize=*/false, /*decays_columns=*/false, /*transposed=*/true)
                     .getOutput();
    if (hasDepth)
      return sums;
    SmallVector<ReassociationIndices> groups(axes.size());
    for (auto [i, group] : llvm::enumerate(groups))
      group.push_back(i);
    groups.back().push_back(axes.size());
    auto collapsed = cast<RankedTensorType>(op.getDecay().getType()).clone(type);
    return tensor::CollapseShapeOp::create(b, loc, collapsed, sums, groups);
  }

  /// The same, accumulated over all positions at which one decay factor is applied: term i counts for i + 1 of them.
  Value sumOverAll() {
    Value like = op.getDecay(), sums = emitTerms(like);
    if (Value ofState = emitStateTerm(like))
      return e.sum({sums, ofState});
    return sums;
  }

  Value emitTerms(Value like) {
    bool isGrouped = false;
    Value query = terms.query, queryGradient = terms.queryGradient;
    if (axes.position(Dim::Head) && op.getQueryDims().position(Dim::Head) && !hasEqualHeads()) {
      isGrouped = true;
      query = expandHeads(query);
      queryGradient = expandHeads(queryGradient);
    }
    Value ofQueries = emitProducts(like, query, queryGradient, op.getQueryDims(), isGrouped, /*isNegative=*/false);
    Value ofKeys =
        emitProducts(like, terms.key, terms.keyGradient, op.getKeyDims(), /*isGrouped=*/false, /*isNegative=*/true);
    return e.sum({ofQueries, ofKeys});
  }

  bool hasEqualHeads() {
    int64_t queries = getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Head),
            keys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Head);
    return queries == keys && !ShapedType::isDynamic(keys);
  }

  /// Splits the heads of a tensor with the dimensions of the query into KV heads and groups.
  Value expandHeads(Value x) {
    auto from = cast<RankedTensorType>(x.getType());
    int64_t heads = getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Head),
            keyHeads = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Head);
    SmallVector<int64_t> shape;
    SmallVector<OpFoldResult> extents;
    SmallVector<ReassociationIndices> groups;
    for (auto [i, dim] : llvm::enumerate(op.getQueryDims().getDims())) {
      groups.push_back({int64_t(shape.size())});
      if (dim != Dim::Head) {
        shape.push_back(from.getDimSize(i));
        extents.push_back(tensor::getMixedSize(b, loc, x, i));
        continue;
      }
      groups.back().push_back(shape.size() + 1);
      bool isStatic = !ShapedType::isDynamic(heads) && !ShapedType::isDynamic(keyHeads);
      shape.append({keyHeads, !isStatic ? ShapedType::kDynamic : keyHeads == 0 ? 0 : heads / keyHeads});
      extents.push_back(sizeOf(Dim::Head));
      if (isStatic) {
        extents.push_back(b.getIndexAttr(shape.back()));
        continue;
      }
      Value all = getValueOrCreateConstantIndexOp(b, loc, tensor::getMixedSize(b, loc, x, i));
      Value divisor = getValueOrCreateConstantIndexOp(b, loc, extents.back());
      divisor = arith::MaxUIOp::create(b, loc, divisor, arith::ConstantIndexOp::create(b, loc, 1));
      extents.push_back(arith::DivUIOp::create(b, loc, all, divisor).getResult());
    }
    return tensor::ExpandShapeOp::create(b, loc, from.clone(shape), x, groups, extents);
  }

  /// The indexing map from `loops` to dimensions.
  AffineMap mapOf(ArrayRef<unsigned> loops, ArrayRef<unsigned> results) {
    SmallVector<AffineExpr> indices;
    for (unsigned loop : results)
      indices.push_back(b.getAffineDimExpr(llvm::find(loops, loop) - loops.begin()));
    return AffineMap::get(loops.size(), 0, indices, b.getContext());
  }
  /// The indexing map of the kept dimensions.
  AffineMap mapOfKept(ArrayRef<unsigned> loops) {
    SmallVector<AffineExpr> indices;
    for (Dim dim : kept)
      indices.push_back(axes.position(dim) ? b.getAffineDimExpr(llvm::find(loops, unsigned(dim)) - loops.begin())
                                           : b.getAffineConstantExpr(0));
    return AffineMap::get(loops.size(), 0, indices, b.getContext());
  }

  /// The sum of ±x · gradient over what the decay does not have.
  Value emitProducts(Value like, Value x, Value gradient, DimsAttr dims, bool isGrouped, bool isNegative) {
    SmallVector<unsigned> own, loops;
    for (Dim dim : dims.getDims()) {
      own.push_back(unsigned(dim));
      if (dim == Dim::Head && isGrouped)
        own.push_back(Loop::Group);
    }
    for (Dim dim : kept)
      if (axes.position(dim))
        loops.push_back(unsigned(dim));
    for (unsigned loop : own)
      if (!llvm::is_contained(loops, loop))
        loops.push_back(loop);
    AffineMap map = mapOf(loops, own);
    unsigned position = llvm::find(loops, unsigned(Loop::Seq)) - loops.begin();
    return e.accumulate({{x, map}, {gradient, map}}, like, mapOfKept(loops), type,
                        [&](OpBuilder &nested, ValueRange elements) -> Value {
                          Value product = arith::MulFOp::create(nested, loc, elements[0], elements[1]);
                          if (!axes.position(Dim::Seq)) {
                            Value before = linalg::IndexOp::create(nested, loc, position);
                            Value one = arith::ConstantIndexOp::create(nested, loc, 1);
                            Value count = asFloat(nested, arith::AddIOp::create(nested, loc, before, one));
                            product = arith::MulFOp::create(nested, loc, product, count);
                          }
                          if (isNegative)
                            return arith::SubFOp::create(nested, loc, elements[2], product);
                          return arith::AddFOp::create(nested, loc, elements[2], product);
                        });
  }

  /// The sum over columns of the state after the last position · its gradient, which every decay is a factor of. Null
  /// if the loss does not depend on the state.
  Value emitStateTerm(Value like) {
    if (!terms.stateGradient)
      return {};
    SmallVector<unsigned> own, loops;
    for (Dim dim : op.getStateDims())
      own.push_back(unsigned(dim));
    own.push_back(unsigned(Dim::Depth));
    for (Dim dim : kept)
      if (axes.position(dim) && dim != Dim::Seq)
        loops.push_back(unsigned(dim));
    for (unsigned loop : own)
      if (!llvm::is_contained(loops, loop))
        loops.push_back(loop);
    own.push_back(Loop::Group); // the columns
    loops.push_back(Loop::Group);
    AffineMap map = mapOf(loops, own);
    SmallVector<AffineExpr> indices(mapOfKept(loops).getResults());
    for (auto [dim, index] : llvm::zip_equal(kept, indices))
      if (dim == Dim::Seq)
        index = b.getAffineConstantExpr(0);
    bool isPerPosition = axes.position(Dim::Seq).has_value();
    Value positions;
    if (!isPerPosition)
      positions = asFloat(b, getValueOrCreateConstantIndexOp(b, loc, sizeOf(Dim::Seq)));
    return e.accumulate({{terms.state, map}, {terms.stateGradient, map}}, like,
                        AffineMap::get(loops.size(), 0, indices, b.getContext()), type,
                        [&](OpBuilder &nested, ValueRange elements) -> Value {
                          Value product = arith::MulFOp::create(nested, loc, elements[0], elements[1]);
                          if (positions)
                            product = arith::MulFOp::create(nested, loc, product, positions);
                          return arith::AddFOp::create(nested, loc, elements[2], product);
                        });
  }

  LinearOp op;
  const DecayTerms &terms;
  Gradients &gradients;
  OpBuilder &b;
  Location loc;
  TensorEmitter e;
  FloatType type;
  AxesAttr axes;
  SmallVector<Dim> kept; ///< the dimensions of the sums
};

} // namespace

void saccade::attn::addDecayGradient(LinearOp op, const DecayTerms &terms, Gradients &gradients) {
  DecayRule(op, terms, gradients).apply();
}
