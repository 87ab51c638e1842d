//===- RowSource.cpp - The rows of a tile of keys or values -------------------===//
#include "RowSource.h"
#include "../Common/NarrowFloats.h"
#include "Pack.h"
#include "Prefetch.h"
#include "VectorizeRegion.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::cpu;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// (position, column) -> (position, column)
static AffineMap elementMap(Emitter &e) { return e.b.getMultiDimIdentityMap(2); }

RowSource::Input RowSource::emitStrided(Emitter &e, Value tile, int64_t capacity) {
  auto type = cast<MemRefType>(tile.getType());
  if (type.getStridesAndOffset().first.back() == 1)
    return {tile, Value(), elementMap(e)};
  auto unit =
      MemRefType::get(type.getShape(), type.getElementType(),
                      StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1}));
  auto memory = MemRefType::get({capacity, type.getDimSize(1)}, type.getElementType());
  Value copy = memref::AllocOp::create(e.b, e.loc, memory, e.b.getI64IntegerAttr(64));
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, tile);
  Value isUnit = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, metadata.getStrides().back(), e.index(1));
  auto view = [&](Value base, OpFoldResult offset, Value stride) -> SmallVector<Value> {
    return {memref::ReinterpretCastOp::create(e.b, e.loc, unit, base, offset, memref::getMixedSizes(e.b, e.loc, tile),
                                              {OpFoldResult(stride), e.b.getIndexAttr(1)})};
  };
  auto inPlace = [&] {
    return view(metadata.getBaseBuffer(), OpFoldResult(metadata.getOffset()), metadata.getStrides()[0]);
  };
  auto copied = [&] {
    e.loop(e.index(0), e.size(tile, 0), 1, [&](Value r) {
      e.loop(e.index(0), e.size(tile, 1), 1, [&](Value c) { e.store(e.load(tile, {r, c}), copy, {r, c}); });
    });
    return view(copy, e.b.getIndexAttr(0), e.index(type.getDimSize(1)));
  };
  return {e.choose(isUnit, inPlace, copied)[0], Value(), elementMap(e)};
}

/// Emits `body(position of the tile, page, position of the page)` for all positions of the tile, in ascending order.
static void emitForPagePositions(Emitter &e, LoadPagesOp op, function_ref<void(Value, Value, Value)> body) {
  auto sizeOf = [&](Dim dim) { return e.size(op.getPool(), *op.getDims().position(dim)); };
  Value begin = op.getBegin(), count = e.size(op.getTile(), 0), pageSize = sizeOf(Dim::Seq);
  Value lastPage = e.sub(sizeOf(Dim::Batch), e.index(1)), end = e.add(begin, count);
  Value none = e.isLess(count, e.index(1)), first = e.div(begin, pageSize);
  e.loop(first, e.select(none, first, e.ceilDiv(end, pageSize)), 1, [&](Value entry) {
    Value page = e.asIndex(e.load(op.getPages(), entry));
    page = e.max(e.index(0), e.min(page, lastPage));
    Value start = e.mul(entry, pageSize);
    e.loop(e.max(start, begin), e.min(e.add(start, pageSize), end), 1,
           [&](Value position) { body(e.sub(position, begin), page, e.sub(position, start)); });
  });
}

/// The index of an element of the pool.
static SmallVector<Value> poolIndex(LoadPagesOp op, Value page, Value position, Value element) {
  SmallVector<Value> index;
  for (Dim dim : op.getDims().getDims())
    index.push_back(dim == Dim::Batch ? page : dim == Dim::Seq ? position : element);
  return index;
}

void saccade::cpu::emitLoadPages(Emitter &e, LoadPagesOp op) {
  auto tile = cast<MemRefType>(op.getTile().getType());
  int64_t width = int64_t(e.lanes()) * e.type.getWidth() / tile.getElementTypeBitWidth();
  auto vector = VectorType::get({width}, tile.getElementType());
  Value depth = e.size(op.getTile(), 1), whole = e.roundDown(depth, width);
  auto copy = [&](Value pool) {
    emitForPagePositions(e, op, [&](Value to, Value page, Value position) {
      if (pool)
        e.loop(e.index(0), whole, width, [&](Value c) {
          Value row = vector::LoadOp::create(e.b, e.loc, vector, pool, poolIndex(op, page, position, c));
          vector::StoreOp::create(e.b, e.loc, row, op.getTile(), ValueRange{to, c});
        });
      e.loop(pool ? whole : e.index(0), depth, 1,
             [&](Value c) { e.store(e.load(op.getPool(), poolIndex(op, page, position, c)), op.getTile(), {to, c}); });
    });
  };
  if (op.getDims().getDims().back() != Dim::Depth)
    return copy(nullptr);
  emitByInnerStride(e, op.getPool(), copy, [&] { copy(nullptr); });
}

/// The rows that `op` loads, in their pages, or in the tile if the elements of a row are not contiguous.
RowSource::Input RowSource::emitInPages(Emitter &e, LoadPagesOp op, int64_t capacity) {
  Type index = e.b.getIndexType();
  Input rows{Value(), Value(), elementMap(e)};
  rows.places = memref::AllocOp::create(e.b, e.loc, MemRefType::get({capacity}, index), e.b.getI64IntegerAttr(64));
  auto tile = cast<MemRefType>(op.getTile().getType());
  // A row is the offset of its first element.
  auto layout = StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {1, 1});
  auto type = MemRefType::get(tile.getShape(), tile.getElementType(), layout);
  SmallVector<OpFoldResult> strides(2, e.b.getIndexAttr(1)), sizes = memref::getMixedSizes(e.b, e.loc, op.getTile());
  auto pool = memref::ExtractStridedMetadataOp::create(e.b, e.loc, op.getPool());
  auto stride = [&](Dim dim) -> Value { return pool.getStrides()[*op.getDims().position(dim)]; };
  auto inPages = [&]() -> SmallVector<Value> {
    emitForPagePositions(e, op, [&](Value to, Value page, Value position) {
      e.store(e.add(e.mul(page, stride(Dim::Batch)), e.mul(position, stride(Dim::Seq))), rows.places, to);
    });
    return {memref::ReinterpretCastOp::create(e.b, e.loc, type, pool.getBaseBuffer(), pool.getConstifiedMixedOffset(),
                                              sizes, strides)};
  };
  auto inTile = [&]() -> SmallVector<Value> {
    emitLoadPages(e, op);
    auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, op.getTile());
    e.loop(e.index(0), e.size(op.getTile(), 0), 1,
           [&](Value to) { e.store(e.mul(to, metadata.getStrides()[0]), rows.places, to); });
    return {memref::ReinterpretCastOp::create(e.b, e.loc, type, metadata.getBaseBuffer(),
                                              metadata.getConstifiedMixedOffset(), sizes, strides)};
  };
  rows.buffer = e.choose(e.isEqual(stride(Dim::Depth), e.index(1)), inPages, inTile)[0];
  return rows;
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

SmallVector<Value> RowSource::Input::indices(Emitter &e, Value place, Value column) const {
  return llvm::map_to_vector(map.getResults(), [&](AffineExpr expr) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    return !dim ? e.index(cast<AffineConstantExpr>(expr).getValue()) : dim.getPosition() == 0 ? place : column;
  });
}

RowSource::Row RowSource::row(Emitter &e, Value position) const {
  Row row{position, {}, {}, Value()};
  for (const Input &input : inputs) {
    Value place = input.places ? e.load(input.places, position) : position;
    if (!isa<MemRefType>(input.buffer.getType()))
      row.inputs.push_back(input.buffer);
    else
      row.inputs.push_back(input.isUniform() ? e.load(input.buffer, input.indices(e, place, Value())) : place);
  }
  for (const Read &read : reads)
    row.reads.push_back(read.rows.places ? e.load(read.rows.places, position) : position);
  if (!rowFactor)
    return row;
  Value factor = rowFactor;
  linalg::GenericOp op = computation;
  Block *body = op.getBody();
  IRMapping values;
  SetVector<Operation *> ops;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.filter = [&](Operation *op) { return op->getBlock() == body; };
  (void)getBackwardSlice(factor, &ops, options);
  for (auto [i, value] : llvm::enumerate(row.inputs))
    values.map(body->getArgument(i), value);
  for (Operation *op : ops)
    if (isa<linalg::IndexOp>(op))
      values.map(op->getResult(0), position);
    else
      e.b.clone(*op, values);
  row.factor = values.lookupOrDefault(factor);
  if (unit != 1)
    row.factor = e.mulf(row.factor, arith::ConstantOp::create(e.b, e.loc, e.b.getF32FloatAttr(unit)));
  return row;
}

Value RowSource::load(Emitter &e, const Row &row, Value column, int64_t count, int64_t present, Value condition) const {
  auto maskType = VectorType::get({count}, e.b.getI1Type());
  Value mask;
  if (present < count) {
    SmallVector<bool> lanes(count, false);
    std::fill_n(lanes.begin(), present, true);
    mask = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(maskType, ArrayRef<bool>(lanes)));
  }
  if (condition) {
    Value all = vector::BroadcastOp::create(e.b, e.loc, maskType, condition);
    mask = mask ? Value(arith::AndIOp::create(e.b, e.loc, mask, all)) : all;
  }
  auto zero = [&](Type type) -> Value { return arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type)); };
  auto read = [&](const Input &input, Value place) -> Value {
    auto type = VectorType::get({count}, getElementTypeOrSelf(input.buffer));
    SmallVector<Value> at = input.indices(e, place, column);
    if (!mask)
      return vector::LoadOp::create(e.b, e.loc, type, input.buffer, at);
    return vector::MaskedLoadOp::create(e.b, e.loc, type, input.buffer, at, mask, zero(type));
  };
  if (!computation)
    return read(inputs[0], row.inputs[0]);
  RegionVectorizer region(e.b, e.loc, count);
  linalg::GenericOp op = computation;
  Block &body = *op.getBody();
  for (auto [i, input] : llvm::enumerate(inputs)) {
    Value argument = body.getArgument(i);
    if (argument.use_empty())
      continue;
    if (input.isUniform())
      region.bindUniform(argument, row.inputs[i]);
    else
      region.bindVector(argument, read(input, row.inputs[i]));
  }
  // Columns are those of registers.
  std::optional<int64_t> known = getConstantIntValue(column);
  int64_t multiple = !known ? e.lanes() : *known == 0 ? int64_t(1) << 20 : *known & -*known;
  for (auto index : body.getOps<linalg::IndexOp>())
    index.getDim() == 0 ? region.bindUniform(index, row.position) : region.bindContiguous(index, column, multiple);
  for (auto [read, place] : llvm::zip_equal(reads, row.reads))
    region.bindRow(read.matrix, read.rows.buffer, place);
  region.setActive(mask);
  [[maybe_unused]] LogicalResult hasRun = region.run(body);
  assert(succeeded(hasRun) && "expected a body that has a vector form");
  Value elements = region.getVector(element);
  if (isF8(getElementTypeOrSelf(elements)))
    elements = emitWidenF8(e.b, e.loc, elements);
  return mask ? e.select(mask, elements, zero(elements.getType())) : elements;
}

/// The place of `position`, or of the last position if it is beyond the tile: the places of the next tile are unknown.
static Value knownPlace(Emitter &e, Value places, Value position, Value positions) {
  return places ? e.load(places, e.min(position, e.sub(positions, e.index(1)))) : position;
}

constexpr int64_t shortRow = 32; // bytes that need no prefetch of their own

/// The bytes of a row of a matrix.
static int64_t rowBytes(Value matrix) {
  auto type = cast<MemRefType>(matrix.getType());
  return type.getDimSize(1) * type.getElementTypeBitWidth() / 8;
}

void RowSource::prefetch(Emitter &e, Value position, Value column, Value positions) const {
  for (const Input &input : inputs)
    if (input.isElement())
      emitPrefetch(e, input.buffer, knownPlace(e, input.places, position, positions), column);
  for (const Read &read : reads)
    if (rowBytes(read.matrix) >= shortRow)
      emitPrefetch(e, read.rows.buffer, knownPlace(e, read.rows.places, position, positions),
                   e.div(column, int64_t(1) << read.bits));
}

void RowSource::prefetchShortRows(Emitter &e, Value position, Value positions) const {
  for (const Input &input : inputs)
    if (input.places && input.isUniform())
      emitPrefetchAt(e, input.buffer, input.indices(e, knownPlace(e, input.places, position, positions), Value()));
  for (const Read &read : reads)
    if (read.rows.places && rowBytes(read.matrix) < shortRow)
      emitPrefetch(e, read.rows.buffer, knownPlace(e, read.rows.places, position, positions), e.index(0));
}

int64_t RowSource::registersPerLoad() const {
  auto isWidened = [](const Input &input) {
    return input.isElement() && isF8(getElementTypeOrSelf(input.buffer.getType()));
  };
  return llvm::any_of(inputs, isWidened) ? 2 : 1;
}

int64_t RowSource::elementsPerLine() const {
  int64_t bits = 0;
  for (const Input &input : inputs)
    if (input.isElement())
      bits = std::max<int64_t>(bits, getElementTypeOrSelf(input.buffer).getIntOrFloatBitWidth());
  for (const Read &read : reads)
    bits = std::max<int64_t>(bits, getElementTypeOrSelf(read.matrix).getIntOrFloatBitWidth() >> read.bits);
  return cacheLine * 8 / (bits ? bits : 8);
}

/// Whether an integer is a part of another one, of at most 16 bits.
static bool isPart(Value integer) {
  APInt mask;
  auto part = integer.getDefiningOp<arith::AndIOp>();
  return part && matchPattern(part.getRhs(), m_ConstantInt(&mask)) && mask.isIntN(16);
}

/// Whether `value` is the conversion of a number of at most 16 bits, or the sum or difference of one and a value of the
/// row, so that the magnitude of dot products is that of small numbers.
static bool isSmall(Value value, function_ref<bool(Value)> isUniform) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::SIToFPOp, arith::UIToFPOp, arith::ExtFOp>(op)) {
    Type from = op->getOperand(0).getType();
    return (from.getIntOrFloatBitWidth() <= 16 && !from.isBF16()) || isPart(op->getOperand(0));
  }
  if (!isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op))
    return false;
  Value x = op->getOperand(0), y = op->getOperand(1);
  return isUniform(x) ? isSmall(y, isUniform) : isUniform(y) && isSmall(x, isUniform);
}

/// Sets `element` and `rowFactor`. `type` is that of scores.
void RowSource::splitFactor(Type type) {
  Block &body = *computation.getBody();
  element = body.getTerminator()->getOperand(0);
  DenseMap<Value, bool> known;
  std::function<bool(Value)> isUniform = [&](Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value); argument && argument.getOwner() == &body)
      return inputs[argument.getArgNumber()].isUniform();
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != &body)
      return true;
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      return index.getDim() == 0;
    if (auto [it, isNew] = known.try_emplace(value, true); !isNew)
      return it->second;
    return known[value] = isMemoryEffectFree(op) && llvm::all_of(op->getOperands(), isUniform);
  };
  Value product = element;
  if (auto rounded = product.getDefiningOp<arith::TruncFOp>())
    product = rounded.getIn();
  // Elements in registers need no rounding to the type of the tile.
  if (product.getType() == type)
    element = product;
  auto multiply = product.getDefiningOp<arith::MulFOp>();
  if (!multiply || multiply.getType() != type)
    return;
  Value x = multiply.getLhs(), factor = multiply.getRhs();
  if (isUniform(x))
    std::swap(x, factor);
  if (isUniform(factor) && isSmall(x, isUniform))
    element = x, rowFactor = factor;
  auto widened = element.getDefiningOp<arith::ExtFOp>();
  if (rowFactor && widened && widened.getType().isF32() && isF8(widened.getIn().getType())) {
    element = widened.getIn();
    unit = widenedF8Factor(element.getType());
  }
}

void RowSource::emitInput(Emitter &e, OpOperand &operand, int64_t capacity) {
  Value buffer = operand.get();
  AffineMap map = computation.getMatchingIndexingMap(&operand);
  auto type = dyn_cast<MemRefType>(buffer.getType());
  if (auto load = dyn_cast_or_null<LoadPagesOp>(findWriterOf(buffer, computation))) {
    inputs.push_back(emitInPages(e, load, capacity));
    inputs.back().map = map;
    writers.push_back(load);
  } else if (!type || !map.isFunctionOfDim(1) || type.getStridesAndOffset().first.back() == 1) {
    inputs.push_back({buffer, Value(), map});
  } else if (type.getRank() == 2) {
    inputs.push_back(emitStrided(e, buffer, capacity));
  } else {
    // A vector along the depth is a row.
    auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, buffer);
    auto layout =
        StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, ShapedType::kDynamic});
    auto rowType = MemRefType::get({1, type.getDimSize(0)}, type.getElementType(), layout);
    SmallVector<OpFoldResult> sizes = {e.b.getIndexAttr(1), e.b.getIndexAttr(type.getDimSize(0))},
                              strides(2, metadata.getStrides()[0]);
    Value row = memref::ReinterpretCastOp::create(e.b, e.loc, rowType, metadata.getBaseBuffer(),
                                                  OpFoldResult(metadata.getOffset()), sizes, strides);
    inputs.push_back(emitStrided(e, row, 1));
    inputs.back().map = AffineMap::get(2, 0, {e.b.getAffineConstantExpr(0), e.b.getAffineDimExpr(1)}, e.b.getContext());
  }
}

/// Finds the matrices of which all reads have known rows.
void RowSource::emitReads(Emitter &e, int64_t capacity) {
  linalg::GenericOp op = computation;
  llvm::MapVector<Value, std::optional<int64_t>> matrices;
  for (auto load : op.getBody()->getOps<memref::LoadOp>()) {
    std::optional<int64_t> bits = matchRowRead(load);
    auto [known, isNew] = matrices.insert({load.getMemRef(), bits});
    if (!bits)
      known->second = std::nullopt;
  }
  for (auto [matrix, bits] : matrices) {
    if (!bits)
      continue;
    if (auto pages = dyn_cast_or_null<LoadPagesOp>(findWriterOf(matrix, op))) {
      reads.push_back({matrix, emitInPages(e, pages, capacity), *bits});
      writers.push_back(pages);
    } else {
      reads.push_back({matrix, emitStrided(e, matrix, capacity), *bits});
    }
  }
}

RowSource saccade::cpu::emitRows(Emitter &e, Value tile, Operation *writer, int64_t capacity) {
  RowSource source;
  if (writer)
    source.writers.push_back(writer);
  if (auto load = dyn_cast_or_null<LoadPagesOp>(writer)) {
    source.inputs.push_back(RowSource::emitInPages(e, load, capacity));
  } else if (auto generic = dyn_cast_or_null<linalg::GenericOp>(writer)) {
    source.computation = generic;
    for (OpOperand *input : generic.getDpsInputOperands())
      source.emitInput(e, *input, capacity);
    source.emitReads(e, capacity);
    source.splitFactor(e.type);
  } else {
    source.inputs.push_back(RowSource::emitStrided(e, tile, capacity));
  }
  return source;
}

void RowSource::eraseWriters() {
  for (Operation *writer : writers)
    writer->erase();
  writers.clear();
}

//===----------------------------------------------------------------------===//
// Analysis
//===----------------------------------------------------------------------===//

/// The allocation that `memref` is or is a part of; null if it is other memory.
static memref::AllocOp findAlloc(Value memref) {
  while (auto part = memref.getDefiningOp<memref::SubViewOp>())
    memref = part.getSource();
  return memref.getDefiningOp<memref::AllocOp>();
}

/// Whether elements of the tile that `op` writes can be computed when they are loaded.
static bool canComputeOnLoad(linalg::GenericOp op) {
  if (op.getNumLoops() != 2 || op.getNumReductionLoops() != 0 || op.getNumDpsInits() != 1 ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity() ||
      op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)) || !RegionVectorizer::hasVectorForm(*op.getBody()))
    return false;
  return llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *input) {
    AffineMap map = op.getMatchingIndexingMap(input);
    auto type = dyn_cast<MemRefType>(input->get().getType());
    // Along the depth, elements are contiguous or copied.
    bool isAlongDepth = map.isFunctionOfDim(1);
    return llvm::all_of(map.getResults(), llvm::IsaPred<AffineDimExpr, AffineConstantExpr>) &&
           (!isAlongDepth ||
            (type && !type.isDynamicDim(type.getRank() - 1) && (map.isIdentity() || map.isMinorIdentity())));
  });
}

/// Whether `op` writes nothing but allocated memory that `reader` does not read.
static bool isIndependent(Operation *op, Operation *reader) {
  if (isMemoryEffectFree(op) || isa<memref::AllocOp>(op))
    return true;
  SmallVector<Value> written;
  if (auto load = dyn_cast<LoadPagesOp>(op))
    written.push_back(load.getTile());
  else if (auto generic = dyn_cast<linalg::GenericOp>(op))
    llvm::append_range(written, generic.getDpsInits());
  return !written.empty() && llvm::all_of(written, [&](Value memref) {
    memref::AllocOp memory = findAlloc(memref);
    return memory && llvm::none_of(reader->getOperands(), [&](Value operand) { return findAlloc(operand) == memory; });
  });
}

Operation *saccade::cpu::findWriterOf(Value tile, Operation *user) {
  Value memory = tile;
  if (auto part = tile.getDefiningOp<memref::SubViewOp>())
    memory = part.getSource();
  if (!memory.getDefiningOp<memref::AllocOp>() || (memory != tile && !memory.hasOneUse()))
    return nullptr;
  Operation *writer = nullptr;
  for (Operation *other : tile.getUsers()) {
    // A body reads the tile by element. If it is an operand as well, both read the memory.
    if (other == user || (user->isProperAncestor(other) && !llvm::is_contained(user->getOperands(), tile)))
      continue;
    auto load = dyn_cast<LoadPagesOp>(other);
    auto generic = dyn_cast<linalg::GenericOp>(other);
    bool isWriter = (load && load.getTile() == tile) ||
                    (generic && generic.getDpsInits().front() == tile && canComputeOnLoad(generic));
    if (!isWriter || writer)
      return nullptr;
    writer = other;
  }
  if (!writer || writer->getBlock() != user->getBlock() || !writer->isBeforeInBlock(user))
    return nullptr;
  for (Operation *op = writer->getNextNode(); op != user; op = op->getNextNode())
    if (!isIndependent(op, writer))
      return nullptr;
  return writer;
}
