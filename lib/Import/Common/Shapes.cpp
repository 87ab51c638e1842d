//===- Shapes.cpp - Ops that move elements without computing --------------===//
#include "saccade/Import/Common/Shapes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Elements.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

//===- Reshapes -----------------------------------------------------------===//

namespace {
/// Dimensions of a tensor and the dimensions of its reshape with the same elements.
struct Group {
  SmallVector<int64_t, 2> from, to;
};
} // namespace

/// Partitions both shapes, from the front, into the smallest groups with provably equal element counts; the rest is one
/// group. Each group has at least one dimension on both sides.
static SmallVector<Group> matchDimensions(ArrayRef<OpFoldResult> from, ArrayRef<OpFoldResult> to) {
  SmallVector<Group> groups;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    size_t m = 1, n = 1;
    bool found = false;
    // Try pairs in order of their total size, then of the size of the first group.
    for (size_t sum = 2; !found && sum <= from.size() - i + to.size() - j; ++sum)
      for (m = 1; !found && m < sum && m <= from.size() - i; ++m) {
        n = sum - m;
        if (n > to.size() - j)
          continue;
        found = areEqualProducts(from.slice(i, m), to.slice(j, n));
        if (found)
          break;
      }
    if (!found) {
      m = from.size() - i;
      n = to.size() - j;
    }
    Group group;
    for (size_t k = 0; k < m; ++k)
      group.from.push_back(i + k);
    for (size_t k = 0; k < n; ++k)
      group.to.push_back(j + k);
    groups.push_back(std::move(group));
    i += m;
    j += n;
  }
  // Append trailing dimensions of extent 1 to the last group.
  for (; i < from.size() && !groups.empty(); ++i)
    groups.back().from.push_back(i);
  for (; j < to.size() && !groups.empty(); ++j)
    groups.back().to.push_back(j);
  return groups;
}

Value frontend::reshape(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<OpFoldResult> extents) {
  auto type = cast<RankedTensorType>(tensor.getType());
  RankedTensorType expected = typeOf(extents, type.getElementType());
  if (type == expected && type.hasStaticShape())
    return tensor;
  if (expected.hasStaticShape())
    if (std::optional<SmallVector<OpFoldResult>> elements = elementsOf(tensor))
      return fromElements(b, expected, *elements);
  if (type.getRank() == 0)
    return tensor::ExpandShapeOp::create(b, expected, tensor, ArrayRef<ReassociationIndices>(), extents);
  if (extents.empty())
    return tensor::CollapseShapeOp::create(b, tensor, ArrayRef<ReassociationIndices>());
  // Collapse each group, then expand it.
  SmallVector<ReassociationIndices> collapsed, expanded;
  SmallVector<int64_t> shape;
  for (const Group &group : matchDimensions(extentsOf(b, tensor), extents)) {
    collapsed.emplace_back(group.from.begin(), group.from.end());
    expanded.emplace_back(group.to.begin(), group.to.end());
    auto parts = llvm::map_to_vector(group.to, [&](int64_t dim) { return extents[dim]; });
    shape.push_back(countElements(parts).value_or(ShapedType::kDynamic));
  }
  Value joined = tensor;
  if (static_cast<int64_t>(collapsed.size()) != type.getRank())
    joined = tensor::CollapseShapeOp::create(b, joined, collapsed);
  // The new extents may be more or less static than the old ones.
  auto refined = RankedTensorType::get(shape, type.getElementType());
  if (joined.getType() != refined)
    joined = tensor::CastOp::create(b, refined, joined);
  if (expanded.size() == extents.size())
    return joined;
  return tensor::ExpandShapeOp::create(b, expected, joined, expanded, extents);
}

Value frontend::squeeze(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims) {
  Extents extents;
  for (auto [i, extent] : llvm::enumerate(extentsOf(b, tensor)))
    if (!llvm::is_contained(dims, static_cast<int64_t>(i)))
      extents.push_back(extent);
  return reshape(b, tensor, extents);
}

Value frontend::unsqueeze(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims) {
  Extents extents = extentsOf(b, tensor);
  for (int64_t dim : dims)
    extents.insert(extents.begin() + dim, b.getIndexAttr(1));
  return reshape(b, tensor, extents);
}

//===- Permuted and partial tensors -----------------------------------------===//

Value frontend::transpose(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> permutation) {
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, permutation.size())))
    return tensor;
  Extents extents = extentsOf(b, tensor);
  auto permuted = llvm::map_to_vector(permutation, [&](int64_t dim) { return extents[dim]; });
  Value empty = tensor::EmptyOp::create(b, permuted, getElementTypeOrSelf(tensor.getType()));
  return linalg::TransposeOp::create(b, tensor, empty, permutation).getResult()[0];
}

Value frontend::slice(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<OpFoldResult> offsets,
                      ArrayRef<OpFoldResult> sizes, ArrayRef<int64_t> steps) {
  auto type = cast<RankedTensorType>(tensor.getType());
  // The identity slice.
  if (llvm::all_of(offsets, [](OpFoldResult each) { return isConstantIntValue(each, 0); }) &&
      llvm::all_of(steps, [](int64_t step) { return step == 1; }) && sizes == ArrayRef(extentsOf(b, tensor)))
    return tensor;
  auto areStatic = [](ArrayRef<OpFoldResult> values) {
    return llvm::all_of(values, [](OpFoldResult each) { return getConstantIntValue(each).has_value(); });
  };
  RankedTensorType expected = typeOf(sizes, type.getElementType());
  std::optional<SmallVector<OpFoldResult>> elements = elementsOf(tensor);
  if (elements && areStatic(offsets) && areStatic(sizes)) {
    SmallVector<OpFoldResult> chosen;
    SmallVector<int64_t> strides = computeStrides(expected.getShape()), from = computeStrides(type.getShape());
    for (int64_t i = 0; i < expected.getNumElements(); ++i) {
      SmallVector<int64_t> position = delinearize(i, strides);
      for (auto [each, offset, step] : llvm::zip(position, offsets, steps))
        each = *getConstantIntValue(offset) + each * step;
      chosen.push_back((*elements)[linearize(position, from)]);
    }
    return fromElements(b, expected, chosen);
  }
  // An empty slice may have an offset equal to the extent, which extract_slice does not allow.
  if (llvm::is_contained(expected.getShape(), 0))
    return tensor::EmptyOp::create(b, sizes, type.getElementType());
  if (llvm::all_of(steps, [](int64_t step) { return step > 0; })) {
    auto strides = llvm::map_to_vector(steps, [&](int64_t step) -> OpFoldResult { return b.getIndexAttr(step); });
    return tensor::ExtractSliceOp::create(b, tensor, offsets, sizes, strides);
  }
  // extract_slice has no negative strides.
  return generate(b, sizes, {}, type.getElementType(), [&](OpBuilder &nested, Location loc, ValueRange at) {
    SmallVector<Value> position;
    for (auto [i, offset, step] : llvm::zip(at, offsets, steps)) {
      Value first = getValueOrCreateConstantIndexOp(nested, loc, offset);
      Value distance = mul(nested, loc, i, arith::ConstantIndexOp::create(nested, loc, step));
      position.push_back(add(nested, loc, first, distance));
    }
    return tensor::ExtractOp::create(nested, loc, tensor, position).getResult();
  });
}

Value frontend::firstOf(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<OpFoldResult> sizes) {
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  return slice(b, tensor, offsets, sizes, SmallVector<int64_t>(sizes.size(), 1));
}

Value frontend::sliceLastDim(ImplicitLocOpBuilder &b, Value tensor, OpFoldResult first, OpFoldResult count,
                             int64_t step) {
  Extents sizes = extentsOf(b, tensor), offsets(sizes.size(), b.getIndexAttr(0));
  SmallVector<int64_t> steps(sizes.size(), 1);
  offsets.back() = first;
  sizes.back() = count;
  steps.back() = step;
  return slice(b, tensor, offsets, sizes, steps);
}

Value frontend::selectIndex(ImplicitLocOpBuilder &b, Value tensor, int64_t axis, int64_t index) {
  Extents sizes = extentsOf(b, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  offsets[axis] = b.getIndexAttr(index);
  sizes[axis] = b.getIndexAttr(1);
  SmallVector<int64_t> steps(sizes.size(), 1);
  return squeeze(b, slice(b, tensor, offsets, sizes, steps), axis);
}

Value frontend::concat(ImplicitLocOpBuilder &b, ValueRange tensors, int64_t dim) {
  SmallVector<Value> parts = llvm::filter_to_vector(
      tensors, [&](Value each) { return cast<RankedTensorType>(each.getType()).getDimSize(dim) != 0; });
  if (parts.empty())
    return tensors.front();
  if (parts.size() == 1)
    return parts.front();
  // Concatenate known elements, as in shape computations.
  SmallVector<OpFoldResult> all;
  bool isKnown = llvm::all_of(parts, [&](Value each) {
    std::optional<SmallVector<OpFoldResult>> elements = elementsOf(each);
    if (!elements || cast<RankedTensorType>(each.getType()).getRank() != 1)
      return false;
    all.append(*elements);
    return true;
  });
  Type element = getElementTypeOrSelf(parts.front().getType());
  if (isKnown && static_cast<int64_t>(all.size()) <= maxFoldedElements)
    return fromElements(b, RankedTensorType::get(all.size(), element), all);
  return tensor::ConcatOp::create(b, dim, parts);
}

Value frontend::broadcastTo(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<OpFoldResult> extents) {
  RankedTensorType expected = typeOf(extents, getElementTypeOrSelf(tensor.getType()));
  if (tensor.getType() == expected && expected.hasStaticShape())
    return tensor;
  SmallVector<Value> inputs = {tensor};
  return generate(b, extents, inputs, expected.getElementType(),
                  [](OpBuilder &, Location, ValueRange arguments) { return arguments.back(); });
}

/// Returns the tensor before expand_shape ops that only insert dimensions of extent 1, and updates `dims` to the
/// remaining dimensions.
static Value dropUnitDims(Value tensor, SmallVectorImpl<int64_t> &dims) {
  while (auto expand = tensor.getDefiningOp<tensor::ExpandShapeOp>()) {
    SmallVector<int64_t> kept;
    for (const ReassociationIndices &group : expand.getReassociationIndices()) {
      auto isLong = [&](int64_t dim) { return expand.getResultType().getDimSize(dim) != 1; };
      if (llvm::count_if(group, isLong) > 1)
        return tensor;
      auto found = llvm::find_if(group, isLong);
      kept.push_back(dims[found == group.end() ? group.front() : *found]);
    }
    if (kept.empty())
      return tensor;
    tensor = expand.getSrc();
    dims.assign(kept.begin(), kept.end());
  }
  return tensor;
}

Value frontend::broadcastAlong(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<OpFoldResult> extents,
                               ArrayRef<int64_t> dims) {
  auto type = cast<RankedTensorType>(tensor.getType());
  RankedTensorType expected = typeOf(extents, type.getElementType());
  std::optional<SmallVector<OpFoldResult>> elements = elementsOf(tensor);
  if (elements && expected.hasStaticShape() && expected.getNumElements() <= maxFoldedElements) {
    SmallVector<OpFoldResult> repeated;
    SmallVector<int64_t> strides = computeStrides(expected.getShape()), from = computeStrides(type.getShape());
    for (int64_t i = 0; i < expected.getNumElements(); ++i) {
      SmallVector<int64_t> position = delinearize(i, strides), own;
      for (auto [dim, extent] : llvm::zip(dims, type.getShape()))
        own.push_back(extent == 1 ? 0 : position[dim]);
      repeated.push_back((*elements)[linearize(own, from)]);
    }
    return fromElements(b, expected, repeated);
  }
  if (elements && elements->size() == 1)
    return splat(b, extents, toValue(b, elements->front()));
  // Without repetition a reshape is sufficient.
  bool broadcasts = !llvm::is_sorted(dims);
  for (auto [i, extent] : llvm::enumerate(extents)) {
    auto own = llvm::find(dims, static_cast<int64_t>(i));
    int64_t before = own == dims.end() ? 1 : type.getDimSize(own - dims.begin());
    broadcasts |= before == 1 && !isConstantIntValue(extent, 1);
  }
  if (!broadcasts)
    return reshape(b, tensor, extents);
  SmallVector<int64_t> places(dims);
  Value source = dropUnitDims(tensor, places);
  SmallVector<AffineExpr> position;
  for (auto [place, extent] : llvm::zip(places, cast<RankedTensorType>(source.getType()).getShape())) {
    bool repeats = extent == 1 && !isConstantIntValue(extents[place], 1);
    position.push_back(repeats ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(place));
  }
  AffineMap maps[] = {AffineMap::get(extents.size(), 0, position, b.getContext()),
                      b.getMultiDimIdentityMap(extents.size())};
  SmallVector<utils::IteratorType> iterators(extents.size(), utils::IteratorType::parallel);
  Value empty = tensor::EmptyOp::create(b, extents, type.getElementType());
  return linalg::GenericOp::create(b, TypeRange{empty.getType()}, ValueRange{source}, ValueRange{empty}, maps,
                                   iterators,
                                   [](OpBuilder &nested, Location loc, ValueRange arguments) {
                                     linalg::YieldOp::create(nested, loc, arguments[0]);
                                   })
      .getResult(0);
}

Value frontend::pad(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<OpFoldResult> before, ArrayRef<OpFoldResult> after,
                    Value value) {
  Extents extents = extentsOf(b, tensor), result;
  for (auto [extent, low, high] : llvm::zip(extents, before, after))
    result.push_back(addExtents(b, addExtents(b, extent, low), high));
  if (llvm::any_of(extents, [](OpFoldResult each) { return isConstantIntValue(each, 0); }))
    return splat(b, result, value);
  // Clamp the read position to the tensor, and select `value` outside of it.
  auto body = [&](OpBuilder &nested, Location loc, ValueRange at) {
    Value isInside = arith::ConstantIntOp::create(nested, loc, 1, 1),
          zero = arith::ConstantIndexOp::create(nested, loc, 0);
    Value one = arith::ConstantIndexOp::create(nested, loc, 1);
    SmallVector<Value> position;
    for (auto [i, low, extent] : llvm::zip(at, before, extents)) {
      Value own = sub(nested, loc, i, getValueOrCreateConstantIndexOp(nested, loc, low));
      Value size = getValueOrCreateConstantIndexOp(nested, loc, extent);
      using Predicate = arith::CmpIPredicate;
      Value isIn = nested.createOrFold<arith::AndIOp>(loc, compare(nested, loc, Predicate::sge, own, zero),
                                                      compare(nested, loc, Predicate::slt, own, size));
      isInside = nested.createOrFold<arith::AndIOp>(loc, isInside, isIn);
      Value last = sub(nested, loc, size, one);
      position.push_back(maximum(nested, loc, zero, minimum(nested, loc, own, last)));
    }
    Value element = tensor::ExtractOp::create(nested, loc, tensor, position);
    return select(nested, loc, isInside, element, value);
  };
  return generate(b, result, {}, getElementTypeOrSelf(tensor.getType()), body);
}
