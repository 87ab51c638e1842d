//===- KeyTile.cpp - Tiles of keys and values ----------------------------------===//
//
// Keys and values that are not a tensor in memory are computed a tile at a time, in the scratch memory of a task.
//
//===----------------------------------------------------------------------===//
#include "KeyTile.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Follows casts and slices of all dimensions from `operand` to the op that computes their source, or null. Collects
/// the slices in `slices`.
static Operation *findProducer(Value operand, SmallVectorImpl<tensor::ExtractSliceOp> &slices) {
  while (Operation *op = operand.getDefiningOp()) {
    if (auto cast = dyn_cast<tensor::CastOp>(op)) {
      operand = cast.getSource();
      continue;
    }
    auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
    if (!slice || slice.getDroppedDims().any() || !slice.hasUnitStride())
      return op;
    slices.push_back(slice);
    operand = slice.getSource();
  }
  return nullptr;
}

/// Emits the tile `slice` of pages. `offsets`: those of the slice in the result of `op`.
static Value emitPages(OpBuilder &b, Location loc, PagedOp op, ArrayRef<OpFoldResult> offsets, const Slice &slice,
                       Value destination) {
  DimsAttr dims = op.getDims();
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Slice pool, pages;
  for (auto [i, dim] : llvm::enumerate(dims.getDims()))
    if (dim == Dim::Head)
      pool.addPosition(offsets[i]);
    else if (dim == Dim::Depth)
      pool.add(offsets[i], slice.sizes[i], one);
    else
      pool.add(zero, tensor::getMixedSize(b, loc, op.getPool(), i), one);
  pages.addPosition(offsets[*dims.position(Dim::Batch)]);
  pages.add(zero, tensor::getMixedSize(b, loc, op.getTable(), 1), one);
  auto poolDims =
      DimsAttr::get(b.getContext(), llvm::filter_to_vector(dims.getDims(), [](Dim dim) { return dim != Dim::Head; }));
  auto load = LoadPagesOp::create(
      b, loc, destination.getType(), pool.extract(b, loc, op.getPool()), pages.extract(b, loc, op.getTable()),
      getValueOrCreateConstantIndexOp(b, loc, offsets[*dims.position(Dim::Seq)]), destination, poolDims);
  return load->getResult(0);
}

/// Whether all uses of `value` are keys and values of attention, so that without them it need not be in memory.
static bool isOnlyAttended(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    if (isa<tensor::CastOp, tensor::ExtractSliceOp>(user))
      return isOnlyAttended(user->getResult(0));
    return isa<tensor::DimOp>(user) || (isa<AttnDialect>(user->getDialect()) && !isa<AppendOp>(user));
  });
}

/// Whether rows are appended in place to the memory of `value`. What is computed from it before must not be computed
/// later.
static bool isAppendedTo(Value value) {
  SmallVector<tensor::ExtractSliceOp> slices;
  while (auto paged = dyn_cast_or_null<PagedOp>(findProducer(value, slices)))
    value = paged.getPool();
  return llvm::any_of(value.getUses(), [](OpOperand &use) {
    auto append = dyn_cast<AppendOp>(use.getOwner());
    return append && append.isDpsInit(&use);
  });
}

/// Whether the program does not compute `value`, except for rows of a cache.
static bool isInMemory(Value value) {
  SmallVector<tensor::ExtractSliceOp> slices;
  Operation *producer = findProducer(value, slices);
  if (auto paged = dyn_cast_or_null<PagedOp>(producer))
    return isInMemory(paged.getPool());
  return !producer || isa<AppendOp>(producer);
}

/// Whether `op` computes each element of its result by cheap arithmetic, from fewer bits, such as a dequantization, or
/// from as many in the same order for attention only, such as a rotation of a cache of keys. It is then computed for
/// each tile, which reads less memory than a copy of the whole result. Tasks that share keys repeat the computation.
static bool isExpansion(linalg::GenericOp op) {
  if (!op || op->getNumResults() != 1 || !linalg::isElementwise(op) ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity() ||
      op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)))
    return false;
  bool isCheap = llvm::all_of(op.getBody()->getOperations(), [](Operation &inner) {
    return !isa<math::MathDialect>(inner.getDialect()) &&
           !isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp>(inner);
  });
  if (!isCheap)
    return false;
  int64_t bits = 0;
  bool isInOrder = true;
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    // Vectors of i1 in memory are bytes.
    if (getElementTypeOrSelf(input->get()).isInteger(1))
      return false;
    if (map.getNumResults() != op.getNumLoops() || !map.isPermutation())
      continue;
    bits += getElementTypeOrSelf(input->get()).getIntOrFloatBitWidth();
    isInOrder &= map.isIdentity() && isInMemory(input->get()) && !isAppendedTo(input->get());
  }
  isInOrder &= isOnlyAttended(op.getResult(0));
  return bits - isInOrder < getElementTypeOrSelf(op.getResult(0)).getIntOrFloatBitWidth();
}

namespace {

/// Computes tiles of operands.
class TileEmitter : IndexEmitter {
public:
  TileEmitter(OpBuilder &b, Location loc, int64_t capacity) : IndexEmitter(b, loc), capacity(capacity) {}

  KeyTile emit(Value operand, DimsAttr dims, const Slice &slice);

private:
  int64_t capacity;

  Value emitExpansion(linalg::GenericOp op, ArrayRef<OpFoldResult> offsets, const Slice &slice, unsigned seq,
                      unsigned depth, Value destination);
  /// The tile that has the elements of a read, and the index of the first one.
  struct ReadTile {
    Value tile;
    OpFoldResult first;
    Value element; ///< that is read
  };
  std::optional<ReadTile> findReadTile(tensor::ExtractOp read, ArrayRef<OpFoldResult> offsets, const Slice &slice,
                                       unsigned seq, unsigned depth, DenseMap<Value, Value> &tiles);
  std::optional<ReadTile> findSlice(tensor::ExtractOp read, ArrayRef<OpFoldResult> offsets, const Slice &slice,
                                    unsigned seq, unsigned depth, DenseMap<Value, Value> &tiles);
  std::pair<Value, AffineMap> emitInput(Value input, AffineMap map, ArrayRef<OpFoldResult> offsets, const Slice &slice,
                                        unsigned seq, unsigned depth);
};

/// The part of an input of an expansion that a tile needs, and its indexing map by position and depth of the tile.
std::pair<Value, AffineMap> TileEmitter::emitInput(Value input, AffineMap map, ArrayRef<OpFoldResult> offsets,
                                                   const Slice &slice, unsigned seq, unsigned depth) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Slice part;
  SmallVector<AffineExpr> exprs;
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (dim && (dim.getPosition() == seq || dim.getPosition() == depth)) {
      part.add(offsets[dim.getPosition()], slice.sizes[dim.getPosition()], one);
      exprs.push_back(b.getAffineDimExpr(dim.getPosition() == seq ? 0 : 1));
    } else {
      part.addPosition(dim ? offsets[dim.getPosition()] : zero);
    }
  }
  SmallVector<tensor::ExtractSliceOp> slices;
  if (auto paged = dyn_cast_or_null<PagedOp>(findProducer(input, slices))) {
    // A scale for each position has depth 1.
    unsigned position = *paged.getDims().position(Dim::Depth);
    bool isPerPosition = part.dropped.test(position);
    part.dropped.reset(position);
    KeyTile tile = emit(input, paged.getDims(), part);
    exprs = {b.getAffineDimExpr(0), isPerPosition ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(1)};
    return {tile.tile, AffineMap::get(2, 0, exprs, b.getContext())};
  }
  return {part.extract(b, loc, input), AffineMap::get(2, 0, exprs, b.getContext())};
}

/// The loop that `index` counts.
static std::optional<unsigned> loopOf(Value index) {
  auto op = index.getDefiningOp<linalg::IndexOp>();
  return op ? std::optional<unsigned>(op.getDim()) : std::nullopt;
}

/// The body of an expansion may read any element of the position that it computes an element for: the other element of
/// a rotated pair, or the scale of a block of elements. Those of inputs, and of pages, are in a tile. `tiles` has the
/// tiles of inputs, and gets those of pages. Returns no tile for other reads, of which the indices are absolute.
std::optional<TileEmitter::ReadTile> TileEmitter::findReadTile(tensor::ExtractOp read, ArrayRef<OpFoldResult> offsets,
                                                               const Slice &slice, unsigned seq, unsigned depth,
                                                               DenseMap<Value, Value> &tiles) {
  ValueRange indices = read.getIndices();
  if (Value tile = tiles.lookup(read.getTensor())) {
    for (auto [dim, index] : llvm::enumerate(indices))
      if (dim != depth && loopOf(index) != dim)
        return std::nullopt;
    return ReadTile{tile, offsets[depth], indices[depth]};
  }
  SmallVector<tensor::ExtractSliceOp> slices;
  auto paged = dyn_cast_or_null<PagedOp>(findProducer(read.getTensor(), slices));
  if (!paged)
    return findSlice(read, offsets, slice, seq, depth, tiles);
  if (!slices.empty())
    return std::nullopt;
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Slice part;
  for (auto [i, dim] : llvm::enumerate(paged.getDims().getDims())) {
    if (dim == Dim::Depth) {
      part.add(zero, tensor::getMixedSize(b, loc, paged.getPool(), i), one);
      continue;
    }
    std::optional<unsigned> loop = loopOf(indices[i]);
    if (!loop || *loop == depth || (dim == Dim::Seq) != (*loop == seq))
      return std::nullopt;
    dim == Dim::Seq ? part.add(offsets[seq], slice.sizes[seq], one) : part.addPosition(offsets[*loop]);
  }
  Value &tile = tiles[read.getTensor()];
  tile = emit(paged.getResult(), paged.getDims(), part).tile;
  return ReadTile{tile, zero, indices[*paged.getDims().position(Dim::Depth)]};
}

/// The rows of a tensor in memory that a tile reads, of which the last dimension is read by any index.
std::optional<TileEmitter::ReadTile> TileEmitter::findSlice(tensor::ExtractOp read, ArrayRef<OpFoldResult> offsets,
                                                            const Slice &slice, unsigned seq, unsigned depth,
                                                            DenseMap<Value, Value> &tiles) {
  ValueRange indices = read.getIndices();
  unsigned last = indices.size() - 1, rows = 0;
  if (indices.empty() || !isInMemory(read.getTensor()))
    return std::nullopt;
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Slice part;
  for (auto [i, index] : llvm::enumerate(indices.drop_back())) {
    std::optional<unsigned> loop = loopOf(index);
    if (!loop || *loop == depth)
      return std::nullopt;
    rows += *loop == seq;
    *loop == seq ? part.add(offsets[seq], slice.sizes[seq], one) : part.addPosition(offsets[*loop]);
  }
  if (rows != 1)
    return std::nullopt;
  part.add(zero, tensor::getMixedSize(b, loc, read.getTensor(), last), one);
  Value &tile = tiles[read.getTensor()];
  if (!tile)
    tile = part.extract(b, loc, read.getTensor());
  return ReadTile{tile, zero, indices[last]};
}

Value TileEmitter::emitExpansion(linalg::GenericOp op, ArrayRef<OpFoldResult> offsets, const Slice &slice, unsigned seq,
                                 unsigned depth, Value destination) {
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  DenseMap<Value, Value> tiles;
  // A body may read elements beside a tile of a part of the depth.
  int64_t wholeDepth = cast<ShapedType>(op.getResult(0).getType()).getDimSize(depth);
  bool isWhole = isConstantIntValue(offsets[depth], 0) && isConstantIntValue(slice.sizes[depth], wholeDepth);
  for (OpOperand *input : op.getDpsInputOperands()) {
    auto [part, map] = emitInput(input->get(), op.getMatchingIndexingMap(input), offsets, slice, seq, depth);
    inputs.push_back(part);
    maps.push_back(map);
    if (isWhole && op.getMatchingIndexingMap(input).isIdentity() && map.isIdentity())
      tiles[input->get()] = part;
  }
  SmallVector<std::pair<tensor::ExtractOp, ReadTile>> reads;
  for (auto read : op.getBody()->getOps<tensor::ExtractOp>())
    if (std::optional<ReadTile> found = findReadTile(read, offsets, slice, seq, depth, tiles))
      reads.push_back({read, *found});
  maps.push_back(b.getMultiDimIdentityMap(2));
  SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
  auto tile = linalg::GenericOp::create(b, loc, destination.getType(), inputs, destination, maps, loops);
  IRMapping mapping;
  op.getRegion().cloneInto(&tile.getRegion(), mapping);
  OpBuilder::InsertionGuard guard(b);
  DenseSet<Operation *> rows;
  for (auto [original, from] : reads) {
    auto read = mapping.lookup(original.getResult()).getDefiningOp<tensor::ExtractOp>();
    b.setInsertionPoint(read);
    Value row = linalg::IndexOp::create(b, loc, 0), element = mapping.lookupOrDefault(from.element);
    rows.insert(row.getDefiningOp());
    read.getIndicesMutable().assign({row, sub(element, getValueOrCreateConstantIndexOp(b, loc, from.first))});
    read.getTensorMutable().assign(from.tile);
  }
  // Loop indices are absolute.
  for (auto index : llvm::to_vector(tile.getBody()->getOps<linalg::IndexOp>())) {
    if (rows.contains(index))
      continue;
    b.setInsertionPoint(index);
    unsigned dim = index.getDim();
    Value first = getValueOrCreateConstantIndexOp(b, loc, offsets[dim]);
    if (dim == seq || dim == depth)
      first = add(first, linalg::IndexOp::create(b, loc, dim == seq ? 0 : 1).getResult());
    index.replaceAllUsesWith(first);
    index.erase();
  }
  return tile.getResult(0);
}

KeyTile TileEmitter::emit(Value operand, DimsAttr dims, const Slice &slice) {
  SmallVector<tensor::ExtractSliceOp> slices;
  Operation *producer = findProducer(operand, slices);
  auto paged = dyn_cast_or_null<PagedOp>(producer);
  auto generic = dyn_cast_or_null<linalg::GenericOp>(producer);
  if (!(paged && paged.getDims() == dims) && !isExpansion(generic))
    return {slice.extract(b, loc, operand), tileDims(dims)};
  SmallVector<OpFoldResult> offsets(slice.offsets);
  for (tensor::ExtractSliceOp outer : slices)
    for (auto [offset, more] : llvm::zip_equal(offsets, outer.getMixedOffsets()))
      offset = getAsOpFoldResult(
          add(getValueOrCreateConstantIndexOp(b, loc, offset), getValueOrCreateConstantIndexOp(b, loc, more)));
  unsigned seq = *dims.position(Dim::Seq), depth = *dims.position(Dim::Depth);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Slice part;
  part.add(zero, slice.sizes[seq], one);
  part.add(zero, slice.sizes[depth], one);
  SmallVector<OpFoldResult> sizes = {b.getIndexAttr(capacity), slice.sizes[depth]};
  Value memory = tensor::EmptyOp::create(b, loc, sizes, getElementTypeOrSelf(operand));
  Value destination = part.extract(b, loc, memory);
  Value tile = paged ? emitPages(b, loc, paged, offsets, slice, destination)
                     : emitExpansion(generic, offsets, slice, seq, depth, destination);
  return {tile, DimsAttr::get(b.getContext(), {Dim::Seq, Dim::Depth})};
}

} // namespace

KeyTile saccade::emitKeyTile(OpBuilder &b, Location loc, Value operand, DimsAttr dims, const Slice &slice,
                             int64_t capacity) {
  return TileEmitter(b, loc, capacity).emit(operand, dims, slice);
}
