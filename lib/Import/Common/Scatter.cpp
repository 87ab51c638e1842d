//===- Scatter.cpp - Updates at positions that are elements ---------------===//
#include "saccade/Import/Common/Scatter.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Reductions.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;
using Predicate = arith::CmpIPredicate;

static Value sizeOf(ImplicitLocOpBuilder &b, OpFoldResult extent) {
  return getValueOrCreateConstantIndexOp(b, b.getLoc(), extent);
}

/// x and y combined by `kind`; bool as logical operations.
static Value combine(OpBuilder &b, Location loc, ScatterRule::Kind kind, Value x, Value y) {
  bool isFlag = x.getType().isInteger(1);
  switch (kind) {
  case ScatterRule::Sum:
  case ScatterRule::Mean:
    return isFlag ? b.createOrFold<arith::OrIOp>(loc, x, y) : add(b, loc, x, y);
  case ScatterRule::Product:
    return isFlag ? b.createOrFold<arith::AndIOp>(loc, x, y) : mul(b, loc, x, y);
  case ScatterRule::Lowest:
    return isFlag ? b.createOrFold<arith::AndIOp>(loc, x, y) : minimum(b, loc, x, y);
  case ScatterRule::Highest:
    return isFlag ? b.createOrFold<arith::OrIOp>(loc, x, y) : maximum(b, loc, x, y);
  case ScatterRule::Last:
    break;
  }
  return maximum(b, loc, x, y); // of the numbers of updates
}

/// The neutral element of `kind`.
static TypedAttr neutral(ScatterRule::Kind kind, Type type) {
  bool isHigh = kind == ScatterRule::Lowest || kind == ScatterRule::Product;
  if (type.isInteger(1) || kind == ScatterRule::Sum || kind == ScatterRule::Mean || kind == ScatterRule::Product)
    return numberAttr(type, isHigh ? 1 : 0);
  return extremeAttr(type, /*largest=*/isHigh);
}

namespace {

/// Which updates go to which positions: one loop for each dimension of `places`, then one over the updates.
struct Writes {
  Extents places;
  SmallVector<Value> columns;
  SmallVector<AffineMap> maps;
  /// The dimensions of `places` whose position a column gives, and their extents.
  SmallVector<int64_t> dims;
  SmallVector<Value> sizes;

  Value isHere(OpBuilder &b, Location loc, ValueRange indices) const {
    Value all;
    for (auto [index, dim, size] : llvm::zip(indices, dims, sizes)) {
      Value at = linalg::IndexOp::create(b, loc, dim);
      Value same = compare(b, loc, Predicate::eq, normalizeIndex(b, loc, index, size), at);
      all = all ? b.createOrFold<arith::AndIOp>(loc, all, same) : same;
    }
    return all;
  }

  /// Reduces `kind` over what `value` gives for the updates of each position, beginning with `start`. It takes the
  /// number of the update and, if `source` is not null, its element.
  Value reduce(ImplicitLocOpBuilder &b, ScatterRule::Kind kind, TypedAttr start, Value source, AffineMap sourceMap,
               llvm::function_ref<Value(OpBuilder &, Location, Value number, Value element)> value) const {
    int64_t rank = places.size();
    SmallVector<Value> inputs(columns);
    SmallVector<AffineMap> all(maps);
    if (source) {
      inputs.push_back(source);
      all.push_back(sourceMap);
    }
    all.push_back(b.getMultiDimIdentityMap(rank + 1).getMajorSubMap(rank));
    SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
    iterators.push_back(utils::IteratorType::reduction);
    Value init = splat(b, places, arith::ConstantOp::create(b, start));
    auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
      Value number = convert(nested, loc, linalg::IndexOp::create(nested, loc, rank), nested.getI64Type());
      Value own = value(nested, loc, number, source ? x[columns.size()] : Value());
      own = select(nested, loc, isHere(nested, loc, x.take_front(columns.size())), own,
                   arith::ConstantOp::create(nested, loc, start));
      linalg::YieldOp::create(nested, loc, combine(nested, loc, kind, x.back(), own));
    };
    return linalg::GenericOp::create(b, TypeRange{init.getType()}, inputs, ValueRange{init}, all, iterators, body)
        .getResult(0);
  }

  /// For each position, the number of the last update there, or −1.
  Value last(ImplicitLocOpBuilder &b) const {
    return reduce(b, ScatterRule::Last, b.getI64IntegerAttr(-1), nullptr, {},
                  [](OpBuilder &, Location, Value number, Value) { return number; });
  }

  /// For each position, how many updates there are.
  Value count(ImplicitLocOpBuilder &b) const {
    return reduce(
        b, ScatterRule::Sum, b.getI64IntegerAttr(0), nullptr, {},
        [](OpBuilder &nested, Location loc, Value, Value) { return makeNumber(nested, loc, nested.getI64Type(), 1); });
  }

  /// For each position, all updates there combined, in the type that accumulates their elements.
  Value combined(ImplicitLocOpBuilder &b, ScatterRule::Kind kind, Value updates, AffineMap map) const {
    Type type = getAccumulatorType(elementOf(updates));
    return reduce(b, kind, neutral(kind, type), updates, map,
                  [&](OpBuilder &nested, Location loc, Value, Value x) { return convert(nested, loc, x, type); });
  }
};

} // namespace

/// The element of the result, given that of the tensor, all updates of it combined, and their number, which is null if
/// it has no effect.
static Value merged(OpBuilder &b, Location loc, ScatterRule rule, Value self, Value sum, Value count) {
  Value own = convert(b, loc, self, sum.getType());
  Value value = rule.includesSelf ? combine(b, loc, rule.kind, own, sum) : sum;
  if (!count)
    return convert(b, loc, value, self.getType());
  Value zero = makeNumber(b, loc, count.getType(), 0), one = makeNumber(b, loc, count.getType(), 1);
  Value isWritten = compare(b, loc, Predicate::sgt, count, zero);
  if (rule.kind == ScatterRule::Mean) {
    Value number =
        convert(b, loc, rule.includesSelf ? add(b, loc, count, one) : maximum(b, loc, count, one), sum.getType());
    // Integers are rounded down.
    Value rest = isa<FloatType>(sum.getType()) ? Value() : mod(b, loc, value, number, /*truncated=*/false);
    value = div(b, loc, rest ? sub(b, loc, value, rest) : value, number);
  }
  return select(b, loc, isWritten, convert(b, loc, value, self.getType()), self);
}

static bool needsCount(ScatterRule rule) { return rule.kind == ScatterRule::Mean || !rule.includesSelf; }

/// Emits an error if the operands of a scatter along `axis` do not fit one another.
static LogicalResult verifyElements(FrontendOp &op, Value tensor, Value indices, Value updates, int64_t axis) {
  auto type = cast<RankedTensorType>(tensor.getType()), found = cast<RankedTensorType>(indices.getType()),
       given = cast<RankedTensorType>(updates.getType());
  if (!isa<IntegerType>(found.getElementType()) || found.getElementType().isInteger(1))
    return op.error() << "indices are " << found << ", expected integers";
  if (type.getElementType() != given.getElementType())
    return op.error() << "updates are " << given << ", expected elements of " << type.getElementType();
  bool fits = found.getRank() == type.getRank() && given.getRank() == type.getRank();
  for (int64_t i = 0; fits && i < type.getRank(); ++i) {
    int64_t own = found.getDimSize(i), other = given.getDimSize(i);
    fits = (i == axis || type.isDynamicDim(i) || found.isDynamicDim(i) || own <= type.getDimSize(i)) &&
           (own == other || found.isDynamicDim(i) || given.isDynamicDim(i));
  }
  if (!fits)
    return op.error() << "indices are " << found << " and updates " << given << ", expected equal shapes of at most "
                      << type << " except along axis " << axis;
  return success();
}

FailureOr<Value> frontend::scatterElements(FrontendOp &op, Value tensor, Value indices, Value updates, int64_t axis,
                                           ScatterRule rule) {
  if (failed(verifyElements(op, tensor, indices, updates, axis)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  int64_t rank = rankOf(tensor);
  if (llvm::is_contained(cast<RankedTensorType>(indices.getType()).getShape(), 0) ||
      llvm::is_contained(cast<RankedTensorType>(updates.getType()).getShape(), 0))
    return tensor;
  Extents extents = extentsOf(b, tensor), covered = extentsOf(b, indices);
  updates = firstOf(b, updates, covered); // checks that there is an update for each index
  SmallVector<AffineExpr> along;
  for (int64_t i = 0; i < rank; ++i)
    along.push_back(b.getAffineDimExpr(i == axis ? rank : i));
  AffineMap map = AffineMap::get(rank + 1, 0, along, b.getContext());
  // The positions that the indices cover.
  Writes writes{covered, {indices}, {map}, {axis}, {sizeOf(b, extents[axis])}};
  writes.places[axis] = extents[axis];
  bool isLast = rule.kind == ScatterRule::Last;
  Value made = isLast ? writes.last(b) : writes.combined(b, rule.kind, updates, map);
  Value count = !isLast && needsCount(rule) ? writes.count(b) : nullptr;
  bool coversAll = writes.places == extents;
  SmallVector<Value> limits = llvm::map_to_vector(writes.places, [&](OpFoldResult each) { return sizeOf(b, each); });
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    // Clamp positions beyond the indices, and discard what is read there.
    Value isThere, one = arith::ConstantIndexOp::create(nested, loc, 1);
    SmallVector<Value> position(x.take_front(rank));
    for (auto [at, limit] : llvm::zip(position, limits)) {
      if (coversAll)
        break;
      Value isIn = compare(nested, loc, Predicate::slt, at, limit);
      isThere = isThere ? nested.createOrFold<arith::AndIOp>(loc, isThere, isIn) : isIn;
      at = minimum(nested, loc, at, sub(nested, loc, limit, one));
    }
    auto at = [&](Value from) { return tensor::ExtractOp::create(nested, loc, from, position).getResult(); };
    Value value;
    if (isLast) {
      Value writer = at(made), zero = makeNumber(nested, loc, writer.getType(), 0);
      Value isWritten = compare(nested, loc, Predicate::sge, writer, zero);
      position[axis] = convert(nested, loc, maximum(nested, loc, writer, zero), nested.getIndexType());
      value = select(nested, loc, isWritten, at(updates), x[rank]);
    } else {
      value = merged(nested, loc, rule, x[rank], at(made), count ? at(count) : Value());
    }
    return isThere ? select(nested, loc, isThere, value, x[rank]) : value;
  };
  return generate(b, extents, tensor, elementOf(tensor), body);
}

Value frontend::scatterSlices(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<int64_t> dims, ArrayRef<Value> columns,
                              Value updates, int64_t at, ScatterRule rule) {
  int64_t rank = rankOf(tensor);
  Extents extents = extentsOf(b, tensor);
  SmallVector<int64_t> others;
  for (int64_t i = 0; i < rank; ++i)
    if (!llvm::is_contained(dims, i))
      others.push_back(i);
  Writes writes;
  writes.columns.assign(columns.begin(), columns.end());
  for (int64_t dim : dims)
    writes.sizes.push_back(sizeOf(b, extents[dim]));
  if (rule.kind == ScatterRule::Sum) {
    // A loop for each dimension of the tensor.
    writes.places = extents;
    writes.dims.assign(dims.begin(), dims.end());
    writes.maps.assign(columns.size(), AffineMap::get(rank + 1, 0, b.getAffineDimExpr(rank)));
    SmallVector<AffineExpr> from;
    for (int64_t dim : others)
      from.push_back(b.getAffineDimExpr(dim));
    from.insert(from.begin() + at, b.getAffineDimExpr(rank));
    Value sum = writes.combined(b, rule.kind, updates, AffineMap::get(rank + 1, 0, from, b.getContext()));
    return elementwise(b, {tensor, sum}, elementOf(tensor), [&](OpBuilder &nested, Location loc, ValueRange x) {
      return merged(nested, loc, rule, x[0], x[1], nullptr);
    });
  }
  // Writers are found for the positions of the columns alone.
  int64_t depth = dims.size();
  for (int64_t dim : dims)
    writes.places.push_back(extents[dim]);
  writes.dims = llvm::to_vector(llvm::seq<int64_t>(0, depth));
  writes.maps.assign(columns.size(), AffineMap::get(depth + 1, 0, b.getAffineDimExpr(depth)));
  Value writers = writes.last(b);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    auto place = llvm::map_to_vector(dims, [&](int64_t dim) { return Value(x[dim]); });
    Value writer = tensor::ExtractOp::create(nested, loc, writers, place);
    Value zero = makeNumber(nested, loc, writer.getType(), 0);
    Value isWritten = compare(nested, loc, Predicate::sge, writer, zero);
    auto position = llvm::map_to_vector(others, [&](int64_t dim) { return Value(x[dim]); });
    position.insert(position.begin() + at,
                    convert(nested, loc, maximum(nested, loc, writer, zero), nested.getIndexType()));
    return select(nested, loc, isWritten, tensor::ExtractOp::create(nested, loc, updates, position), x[rank]);
  };
  return generate(b, extents, tensor, elementOf(tensor), body);
}
