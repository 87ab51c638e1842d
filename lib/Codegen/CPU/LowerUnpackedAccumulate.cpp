//===- LowerUnpackedAccumulate.cpp - Flash attention step without packing -----===//
//
// An attn.accumulate with few rows is memory-bound, so keys and values are read once for all rows and not packed. Runs
// before LowerAccumulate, which lowers all other attn.accumulate ops.
//
//===----------------------------------------------------------------------===//
#include "Pack.h"
#include "TileProduct.h"
#include "UnpackedLowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERUNPACKEDACCUMULATE
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

LogicalResult UnpackedLowering::check() {
  auto accType = cast<MemRefType>(op.getAcc().getType());
  if (!op.getScheduleAttr())
    return op.emitOpError() << "has no schedule";
  if (op.getScheduleAttr().getRows() > groupRows)
    return op.emitOpError() << "is unpacked with " << op.getScheduleAttr().getRows() << " rows, expected " << groupRows
                            << " or fewer";
  if (accType.getDimSize(1) % e.lanes() != 0)
    return op.emitOpError() << "accumulator has " << accType.getDimSize(1) << " columns, expected a multiple of "
                            << e.lanes();
  if (ShapedType::isDynamic(depth) || ShapedType::isDynamic(valueDepth))
    return op.emitOpError() << "head size is dynamic, expected a static one";
  return success();
}

/// The queries of one head, positions × depth.
Value UnpackedLowering::queriesOfHead(Value head) {
  DimsAttr dims = op.getQueryDims();
  Value matrix = op.getQuery();
  if (std::optional<unsigned> position = dims.position(Dim::Head)) {
    // Not a rank-reducing subview, which is ambiguous if several dimensions are 1.
    auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, matrix);
    Value distance = e.b.createOrFold<arith::MulIOp>(e.loc, metadata.getStrides()[*position], head);
    Value offset = e.add(metadata.getOffset(), distance);
    SmallVector<OpFoldResult> sizes = memref::getMixedSizes(e.b, e.loc, matrix), strides;
    llvm::append_range(strides, metadata.getStrides());
    sizes.erase(sizes.begin() + *position);
    strides.erase(strides.begin() + *position);
    auto [shape, dynamicSizes] = decomposeMixedValues(sizes);
    auto layout =
        StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, ShapedType::kDynamic});
    auto type = MemRefType::get(shape, getElementTypeOrSelf(matrix), layout);
    matrix = memref::ReinterpretCastOp::create(e.b, e.loc, type, metadata.getBaseBuffer(), OpFoldResult(offset), sizes,
                                               strides);
  }
  return emitPositions(e, matrix, dims);
}

/// Row i · heads + h of `query` is query i of head h; padding elements and rows are 0.
void UnpackedLowering::packQueries(Value signMask) {
  int64_t kPacks = cast<MemRefType>(query.getType()).getDimSize(1);
  e.loop(e.index(0), paddedRows, 1, [&](Value r) {
    for (int64_t w = 0; w < kPacks; w += e.lanes())
      e.storeVector(e.splat(0.0), query, {r, e.index(w)});
  });
  OpFoldResult zero = e.b.getIndexAttr(0), one = e.b.getIndexAttr(1);
  e.loop(e.index(0), heads, 1, [&](Value head) {
    Value to = subview(query, {OpFoldResult(head), zero}, {OpFoldResult(queries), e.b.getIndexAttr(kPacks)},
                       {OpFoldResult(heads), one});
    product->packRows(e, queriesOfHead(head), queries, queries, to, signMask);
  });
}

/// The range of columns visible to some row of some head.
KeyRange UnpackedLowering::visibleKeys(ScoreTile tile) {
  if (op.getMask().empty())
    return {e.index(0), keys};
  SmallVector<Value> bounds = e.loop(e.index(0), heads, 1, {keys, e.index(0)}, [&](Value head, ValueRange carried) {
    tile.setOrigin(head, e.index(0));
    KeyRange own = tile.visibleKeys(e.index(0), queries).hull(e);
    Value isSome = e.isLess(own.begin, own.end);
    return SmallVector<Value>{e.select(isSome, e.min(carried[0], own.begin), carried[0]),
                              e.select(isSome, e.max(carried[1], own.end), carried[1])};
  });
  return {bounds[0], bounds[1]};
}

/// The registers of `elements`, converted for computing.
static SmallVector<Value> splitRegisters(Emitter &e, Value elements) {
  int64_t lanes = e.lanes(), count = cast<VectorType>(elements.getType()).getNumElements();
  elements = emitToCompute(e, elements);
  if (count == lanes)
    return {elements};
  return llvm::map_to_vector(llvm::seq<int64_t>(0, count / lanes), [&](int64_t i) -> Value {
    return vector::ExtractStridedSliceOp::create(e.b, e.loc, elements, ArrayRef<int64_t>{i * lanes},
                                                 ArrayRef<int64_t>{lanes}, ArrayRef<int64_t>{1});
  });
}

/// Registers of k-packs of a row of keys, as many as are loaded at once or `present` elements need.
SmallVector<Value> UnpackedLowering::loadKeyKPacks(const RowSource::Row &row, Value column, int64_t present) {
  int64_t width = kPackElements() * e.lanes();
  int64_t count = std::min<int64_t>(key.registersPerLoad(), llvm::divideCeil(present, width));
  Value elements = key.load(e, row, column, width * count, present);
  if (kPackElements() == 1)
    return splitRegisters(e, elements);
  return toKPacks(elements);
}

/// Registers of pairs of `elements`, which are rounded if they were computed.
SmallVector<Value> UnpackedLowering::toKPacks(Value elements) {
  int64_t count = cast<VectorType>(elements.getType()).getNumElements() / (2 * e.lanes());
  if (!getElementTypeOrSelf(elements).isBF16()) {
    SmallVector<Value> registers = splitRegisters(e, elements), kPacks;
    for (int64_t i = 0; i < count; ++i)
      kPacks.push_back(emitRoundToPairs(e, registers[2 * i], registers[2 * i + 1]));
    return kPacks;
  }
  assert(count == 1 && "only elements that are computed are loaded by several registers");
  return {vector::BitCastOp::create(e.b, e.loc, e.vectorType(), elements)};
}

/// Whether the k-packs of two registers of values from `column`, a multiple of them, are paired within lanes of 128
/// bits: the first register has the lower halves of the lanes of all columns, the second the upper halves. Pairing
/// across lanes takes four times as many instructions. `addToState` restores the order.
bool UnpackedLowering::arePairedInLanes(int64_t column) const {
  return kPackElements() > 1 && column + 2 * e.lanes() <= valueDepth;
}

/// `elements` of one or two registers of f32 as bf16, if they were computed.
Value UnpackedLowering::toBF16(Value elements) {
  int64_t count = cast<VectorType>(elements.getType()).getNumElements();
  if (getElementTypeOrSelf(elements).isBF16())
    return elements;
  if (count == e.lanes())
    return emitFromCompute(e, emitToCompute(e, elements), e.b.getBF16Type());
  auto type = VectorType::get({count}, e.b.getBF16Type());
  return vector::BitCastOp::create(e.b, e.loc, type, toKPacks(elements)[0]);
}

/// A shuffle that interleaves the lower or upper halves of the lanes of two operands of `size` elements.
static SmallVector<int64_t> halvesOfLanes(int64_t size, int64_t lane, bool isUpper) {
  SmallVector<int64_t> mask;
  for (int64_t start = 0; start < size; start += lane)
    for (int64_t i = 0; i < lane / 2; ++i)
      for (int64_t operand : {int64_t(0), size})
        mask.push_back(operand + start + (isUpper ? lane / 2 : 0) + i);
  return mask;
}

/// Adjacent registers of k-packs of values, each of as many keys as a k-pack has elements. Keys out of bounds are 0.
SmallVector<Value> UnpackedLowering::loadValueKPacks(Value kPack, Value column, int64_t present, unsigned vectors) {
  int64_t lanes = e.lanes();
  SmallVector<Value> result;
  if (kPackElements() == 1) {
    RowSource::Row row = value.row(e, kPack);
    while (result.size() < vectors) {
      int64_t offset = result.size() * lanes,
              count = std::min<int64_t>(value.registersPerLoad(), vectors - result.size());
      llvm::append_range(result,
                         splitRegisters(e, value.load(e, row, e.add(column, offset), count * lanes, present - offset)));
    }
    return result;
  }
  Value first = e.mul(kPack, kPackElements()), second = e.add(first, 1);
  Value isKey = e.isLess(second, keys);
  if (value.isBounded())
    second = e.select(isKey, second, first);
  RowSource::Row evenRow = value.row(e, first), oddRow = value.row(e, second);
  auto append = [&](Value pairs) { result.push_back(vector::BitCastOp::create(e.b, e.loc, e.vectorType(), pairs)); };
  while (result.size() < vectors) {
    int64_t offset = result.size() * lanes, rest = present - offset;
    int64_t count = rest >= 2 * lanes && vectors - result.size() >= 2 ? 2 * lanes : lanes;
    Value even = toBF16(value.load(e, evenRow, e.add(column, offset), count, rest));
    Value odd = toBF16(value.load(e, oddRow, e.add(column, offset), count, rest, isKey));
    if (count == lanes) {
      append(vector::InterleaveOp::create(e.b, e.loc, even, odd));
      continue;
    }
    for (bool isUpper : {false, true})
      append(vector::ShuffleOp::create(e.b, e.loc, even, odd, halvesOfLanes(count, /*lane=*/8, isUpper)));
  }
  return result;
}

/// Adds the registers of k-packs that are loaded at once to the sums of rowTail rows of queries × lanes / rowTail keys.
SmallVector<Value> UnpackedLowering::addScoreKPacks(ArrayRef<Value> sums, Value row, ArrayRef<RowSource::Row> keyRows,
                                                    Value column, int64_t present) {
  int64_t blockRows = std::min<int64_t>(rowTail, e.lanes()), blockKeys = e.lanes() / blockRows;
  SmallVector<SmallVector<Value>> rhs;
  SmallVector<Value> result(sums);
  for (int64_t j = 0; j < blockKeys; ++j)
    rhs.push_back(loadKeyKPacks(keyRows[j], column, present));
  Value kPack = e.div(column, kPackElements());
  const KPackProduct &inVectors = Product::ofKPacks(product->traits.form);
  for (size_t r = 0; r < rhs[0].size(); ++r)
    for (int64_t i = 0; i < blockRows; ++i) {
      Value lhs = e.loadVector(query, {e.add(row, i), e.add(kPack, r * e.lanes())});
      for (int64_t j = 0; j < blockKeys; ++j) {
        Value &sum = result[i * blockKeys + j];
        sum = inVectors.multiplyAdd(e, lhs, rhs[j][r], sum);
      }
    }
  return result;
}

/// The factors of the keys `rows`, repeated to fill a register.
Value UnpackedLowering::emitFactors(ArrayRef<RowSource::Row> rows) {
  int64_t count = rows.size();
  SmallVector<Value> factors = llvm::map_to_vector(rows, [](const RowSource::Row &row) { return row.factor; });
  Value few = vector::FromElementsOp::create(e.b, e.loc, VectorType::get({count}, e.type), factors);
  SmallVector<int64_t> repeated =
      llvm::map_to_vector(llvm::seq<int64_t>(0, e.lanes()), [&](int64_t i) { return i % count; });
  return vector::ShuffleOp::create(e.b, e.loc, few, few, repeated);
}

/// The scores of rowTail rows from `row` on and the keys `positions`, in the order of rows.
Value UnpackedLowering::computeScoreBlock(Value row, ArrayRef<Value> positions, bool prefetches) {
  int64_t lanes = e.lanes(), line = key.elementsPerLine();
  // Whole steps of a stream, whose keys are adjacent.
  int64_t adjacent = std::max<int64_t>(1, positions.size() / keyStreams);
  int64_t distance = llvm::alignTo(std::max(prefetchedRows(key, depth) / keyStreams, 2 * adjacent), adjacent);
  int64_t width = kPackElements() * lanes * key.registersPerLoad(), whole = depth / width * width;
  // Up to 128 multiply-adds are unrolled. The columns of more are whole cache lines.
  int64_t stride = 128 * kPackElements(), looped = whole > stride ? whole / stride * stride : 0;
  Value lastKey = e.sub(keys, e.index(1));
  SmallVector<RowSource::Row> keyRows =
      llvm::map_to_vector(positions, [&](Value each) { return key.row(e, e.min(each, lastKey)); });
  // The factors of values are read after the scores.
  if (prefetches)
    for (Value position : positions) {
      key.prefetchShortRows(e, e.add(position, distance), keys);
      value.prefetchShortRows(e, position, keys);
    }
  // A processor may drop prefetches while it translates addresses of other pages of memory, so those are repeated.
  SmallVector<int64_t> distances = {distance};
  if (key.isInPages() && distance / 2 >= adjacent)
    distances.push_back(distance / 2);
  auto addColumns = [&](ArrayRef<Value> before, Value first, int64_t begin, int64_t end) {
    SmallVector<Value> sums(before);
    for (int64_t each = llvm::alignTo(begin, line); prefetches && each < end; each += line)
      for (int64_t ahead : distances)
        for (Value position : positions)
          key.prefetch(e, e.add(position, ahead), e.add(first, each), keys);
    for (int64_t column = begin; column < end; column += width)
      sums = addScoreKPacks(sums, row, keyRows, e.add(first, column), std::min(width, end - column));
    return sums;
  };
  SmallVector<Value> sums(lanes, e.splat(0.0));
  if (looped > 0)
    sums = e.loop(e.index(0), e.index(looped), stride, sums, [&](Value first, ValueRange carried) {
      return addColumns(SmallVector<Value>(carried), first, 0, stride);
    });
  sums = addColumns(sums, e.index(0), looped, depth);
  // Lane l becomes the lane sum of accumulator l, a score of key l % blockKeys.
  Value block = emitReduceVectors(e, sums, [&](Value x, Value y) { return e.addf(x, y); });
  return key.hasFactor() ? e.mulf(block, emitFactors(keyRows)) : block;
}

/// scores[r][c] = query[r] · key[c] for all columns of `visible`. A block of keys is the same place in each of
/// `keyStreams` parts of the keys: a processor reads several streams of memory at a higher rate than one.
void UnpackedLowering::computeScores(KeyRange visible) {
  int64_t lanes = e.lanes(), blockRows = std::min<int64_t>(rowTail, lanes), blockKeys = lanes / blockRows;
  int64_t parts = std::min(keyStreams, blockKeys), adjacent = blockKeys / parts;
  Value length = e.roundUp(e.ceilDiv(e.sub(visible.end, visible.begin), parts), adjacent);
  e.loop(e.index(0), length, adjacent, [&](Value place) {
    SmallVector<Value> positions;
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < adjacent; ++i)
        positions.push_back(e.add(e.add(e.add(visible.begin, place), e.mul(length, part)), i));
    auto compute = [&](Value row, bool prefetches) {
      Value block = computeScoreBlock(row, positions, prefetches);
      for (int64_t l = 0; l < lanes; l += adjacent) {
        Value some = vector::ExtractStridedSliceOp::create(e.b, e.loc, block, ArrayRef<int64_t>{l},
                                                           ArrayRef<int64_t>{adjacent}, ArrayRef<int64_t>{1});
        e.storeVector(some, scores, {e.add(row, l / blockKeys), positions[l % blockKeys]});
      }
    };
    compute(e.index(0), /*prefetches=*/true);
    e.loop(e.index(blockRows), paddedRows, blockRows, [&](Value row) { compute(row, /*prefetches=*/false); });
  });
}

/// Replaces scores by weights, and updates max and sum. Restricts `visible` to the columns that have weights.
LogicalResult UnpackedLowering::computeWeights(Value scale, KeyRange &visible, const GroupState &state) {
  // Weights that are scaled later are rounded after that.
  const Product &ofWeights = value.hasFactor() ? Product::of(ProductForm::MultiplyAdd) : *product;
  ScoreTile tile(e, op, scores, scale, ofWeights, Exp2Error::Unit, keys);
  auto setOrigin = [&](Value row) {
    Value index = e.b.createOrFold<arith::DivUIOp>(e.loc, row, heads);
    Value head = e.sub(row, e.b.createOrFold<arith::MulIOp>(e.loc, index, heads));
    // The origin is the query of row 0.
    tile.setOrigin(head, e.sub(index, row));
  };
  e.loop(e.index(0), rows, 1, [&](Value row) {
    setOrigin(row);
    e.storeVector(tile.scoreRow(row, row, visible), state.laneValues, {row, e.index(0)});
  });
  // Weight regions and tallies read the positions of their row.
  bool hasRegions = !op.getWeight().empty() || !op.getTallyRegions().empty();
  tile.allocateWeights();
  ColumnRuns weighed = tile.softmaxGroup(state, e.index(0), rows, visible, [&](Value row) {
    if (hasRegions)
      setOrigin(row);
  });
  visible = weighed.hull(e);
  scores = tile.getWeights();
  return failure(tile.failed);
}

/// Multiplies the weights of each key by the factor of its row of values.
void UnpackedLowering::scaleWeights(KeyRange visible) {
  if (!value.hasFactor())
    return;
  Value factors = e.alloc({cast<MemRefType>(scores.getType()).getDimSize(1)});
  // Weights around the keys are 0, and stay 0.
  Value first = e.roundDown(visible.begin, e.lanes()), last = e.max(e.sub(visible.end, e.index(1)), first);
  for (Value at : {first, e.roundDown(last, e.lanes())})
    e.storeVector(e.splat(0.0), factors, at);
  e.loop(visible.begin, visible.end, 1, [&](Value k) { e.store(value.row(e, k).factor, factors, k); });
  e.loop(e.roundDown(visible.begin, e.lanes()), visible.end, e.lanes(), [&](Value k) {
    Value each = e.loadVector(factors, k);
    e.loop(e.index(0), paddedRows, 1,
           [&](Value row) { e.storeVector(e.mulf(e.loadVector(scores, {row, k}), each), scores, {row, k}); });
  });
  if (usesTiles())
    roundWeights(visible);
}

/// acc = factor · acc + sums
void UnpackedLowering::addToState(const GroupState &state) {
  int64_t lanes = e.lanes(), columns = llvm::alignTo(valueDepth, lanes);
  e.loop(e.index(0), rows, 1, [&](Value row) {
    Value factor = e.broadcast(e.load(state.factors, {row}));
    auto add = [&](int64_t column, Value terms) {
      SmallVector<Value> at = {row, e.index(column)};
      e.storeVector(e.fma(e.loadVector(op.getAcc(), at), factor, terms), op.getAcc(), at);
    };
    for (int64_t c = 0; c < columns; c += lanes) {
      Value terms = e.loadVector(sums, {row, e.index(c)});
      if (c % (2 * lanes) != 0 || !arePairedInLanes(c)) {
        add(c, terms);
        continue;
      }
      Value others = e.loadVector(sums, {row, e.index(c + lanes)});
      // Four columns of the first register are followed by four of the second.
      for (int64_t half : {0, 1}) {
        SmallVector<int64_t> order;
        for (int64_t i = half * lanes; i < (half + 1) * lanes; ++i)
          order.push_back(i / 8 * 4 + i % 4 + (i % 8 < 4 ? 0 : lanes));
        add(c + half * lanes, vector::ShuffleOp::create(e.b, e.loc, terms, others, order));
      }
      c += lanes;
    }
  });
}

/// sums[row + i][c] += weights · values of the k-packs [begin, end), for one block of columns.
void UnpackedLowering::addValueBlock(Value row, RegisterBlock block, Value column, int64_t present, Value begin,
                                     Value end) {
  SmallVector<Value> zeros(block.rows * block.vectors, e.splat(0.0));
  SmallVector<Value> loaded;
  SmallVector<Value> part =
      Product::ofKPacks(product->traits.form)
          .multiply(
              e, block, begin, end, zeros, [&](unsigned i, Value k) { return e.load(scores, {e.add(row, i), k}); },
              [&](Value k, unsigned j) {
                if (j == 0)
                  loaded = loadValueKPacks(k, column, present, block.vectors);
                return loaded[j];
              });
  storeBlock(e, block, addBlock(e, block, part, sums, row, column), sums, row, column);
}

/// Prefetches `count` rows of values from `first` on.
void UnpackedLowering::prefetchValues(Value first, int64_t count) {
  for (int64_t row = 0; row < count; ++row)
    for (int64_t column = 0; column < valueDepth; column += value.elementsPerLine())
      value.prefetch(e, e.add(first, row), e.index(column), keys);
}

void UnpackedLowering::addValues(KeyRange visible) {
  int64_t lanes = e.lanes(), keyBlock = cachedKeys(value), vectors = llvm::divideCeil(valueDepth, lanes);
  // Four rows at a time share values, which are loaded and converted once for them.
  int64_t maxVectors = e.target.shapes.unpackedRegisters / rowTail;
  auto blockOf = [&](int64_t remaining) {
    return RegisterBlock{unsigned(rowTail), unsigned(std::min(maxVectors, remaining))};
  };
  RegisterBlock block = blockOf(vectors);
  int64_t width = block.vectors * lanes, whole = valueDepth / width * width;
  // While a block of columns is multiplied, some of the rows of a later block of keys are prefetched, in the order of
  // memory.
  int64_t share = llvm::divideCeil(keyBlock, llvm::divideCeil(valueDepth, width));
  int64_t distance = llvm::alignTo(prefetchedRows(value, valueDepth), keyBlock);
  e.loop(e.index(0), paddedRows, 1, [&](Value row) {
    for (int64_t v = 0; v < vectors; ++v)
      e.storeVector(e.splat(0.0), sums, {row, e.index(v * lanes)});
  });
  e.loop(e.roundDown(visible.begin, keyBlock), visible.end, keyBlock, [&](Value first) {
    Value begin = e.div(e.max(first, visible.begin), kPackElements());
    Value end = e.ceilDiv(e.min(e.add(first, keyBlock), visible.end), kPackElements());
    auto forRows = [&](RegisterBlock shape, Value column, int64_t present) {
      prefetchValues(e.add(first, e.add(e.mul(e.div(column, width), share), distance)), share);
      e.loop(e.index(0), paddedRows, shape.rows,
             [&](Value row) { addValueBlock(row, shape, column, present, begin, end); });
    };
    e.loop(e.index(0), e.index(whole), width, [&](Value column) { forRows(block, column, width); });
    if (whole < valueDepth)
      forRows(blockOf(vectors - whole / lanes), e.index(whole), valueDepth - whole);
  });
}

LogicalResult UnpackedLowering::run() {
  Type element = getElementTypeOrSelf(op.getQuery());
  // The schedule selects tile registers by more rows than the other kernels have.
  int64_t mostRows = op.getScheduleAttr() ? op.getScheduleAttr().getRows() : 0;
  const ProductTraits &preferred = chooseUnpackedProduct(e.target, element, /*permitsTiles=*/mostRows > rowGroup);
  bool hasTiles = preferred.inTiles;
  if (hasTiles)
    groupRows = mostRows <= tileSize ? tileSize : llvm::alignTo(mostRows, maxTileBlock.rows);
  depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  if (failed(check()))
    return failure();
  Operation *keyWriter = writerOf(op.getKey(), op.getKeyDims());
  Operation *valueWriter = writerOf(op.getValue(), op.getValueDims());
  heads = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Head);
  queries = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Seq);
  rows = e.b.createOrFold<arith::MulIOp>(e.loc, queries, heads);
  keys = sizeOf(op.getKey(), op.getKeyDims(), Dim::Seq);
  LogicalResult result = success();
  auto emit = [&](bool inTiles) {
    result = failure(failed(result) || failed(emitKernel(keyWriter, valueWriter, inTiles)));
  };
  // If the number of heads is not known, few rows have the other kernel.
  if (hasTiles && !getConstantIntValue(heads))
    e.ifElse(e.isLess(e.index(rowTail), rows), [&] { emit(true); }, [&] { emit(false); });
  else
    emit(hasTiles);
  bool areInPages = key.isInPages() && value.isInPages();
  setKernelFamily(e, op, hasTiles ? preferred : product->traits, areInPages ? "unpacked in pages" : "unpacked");
  if (keyWriter != valueWriter)
    value.eraseWriters();
  key.eraseWriters();
  return result;
}

/// Emits the kernel for all rows, in tile registers if the target has them and `permitsTiles`. `keyWriter` and
/// `valueWriter`: see `writerOf`.
LogicalResult UnpackedLowering::emitKernel(Operation *keyWriter, Operation *valueWriter, bool permitsTiles) {
  product = &Product::of(chooseUnpackedProduct(e.target, getElementTypeOrSelf(op.getQuery()), permitsTiles));
  // Conversions to pairs of bf16 take longer than they save, except in tile registers.
  bool isComputed = isa_and_nonnull<linalg::GenericOp>(keyWriter) || isa_and_nonnull<linalg::GenericOp>(valueWriter);
  if (isComputed && !usesTiles())
    product = &Product::of(ProductForm::MultiplyAdd);
  if (!usesTiles())
    groupRows = rowGroup;
  paddedRows = e.roundUp(rows, usesTiles() ? tileSize : rowTail);

  int64_t lanes = e.lanes(), columns = llvm::alignTo(op.getScheduleAttr().getCols(), ScoreTile::chunk(e));
  query = e.alloc({groupRows, int64_t(llvm::alignTo(llvm::divideCeil(depth, kPackElements()), lanes))});
  // Padded by one register: row strides that are powers of two cause cache set conflicts.
  scores = e.alloc({groupRows, columns + lanes});
  sums = e.alloc({groupRows, int64_t(llvm::alignTo(valueDepth, lanes))});
  SplitScale scale = emitSplitScale(e, op, kPackElements());
  KeyRange range = visibleKeys(ScoreTile(e, op, scores, scale.size, *product, Exp2Error::Unit, keys));
  Value isNeeded = e.b.createOrFold<arith::AndIOp>(e.loc, e.isLess(range.begin, range.end), e.isLess(e.index(0), rows));
  LogicalResult result = success();
  e.ifElse(isNeeded, [&] {
    key = rowsOf(op.getKey(), op.getKeyDims(), keyWriter);
    bool isShared = keyWriter && keyWriter == valueWriter;
    value = isShared ? key : rowsOf(op.getValue(), op.getValueDims(), valueWriter);
    packQueries(scale.signMask);
    if (usesTiles()) {
      transposeQueries();
      computeScoresInTiles(range);
    } else {
      computeScores(range);
    }
    GroupState state(e, groupRows, /*keepsMaxima=*/op.getRowMax() != nullptr);
    result = computeWeights(scale.size, range, state);
    scaleWeights(range);
    if (usesTiles())
      addValuesInTiles(range);
    else
      addValues(range);
    addToState(state);
  });
  return result;
}

namespace {

struct LowerUnpackedAccumulate : saccade::impl::LowerUnpackedAccumulateBase<LowerUnpackedAccumulate> {
  using LowerUnpackedAccumulateBase::LowerUnpackedAccumulateBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<AccumulateOp> ops;
    getOperation().walk([&](AccumulateOp op) {
      if (op.getUnpacked())
        ops.push_back(op);
    });
    for (AccumulateOp op : ops)
      if (failed(lowerUnpackedAccumulate(op, *cpu)))
        return signalPassFailure();
  }
};

} // namespace

LogicalResult saccade::lowerUnpackedAccumulate(AccumulateOp op, const CPUTarget &target,
                                               OpBuilder::Listener *listener) {
  OpBuilder b(op, listener);
  FloatType type = cast<ScoringOpInterface>(op.getOperation()).getScoreType();
  if (failed(UnpackedLowering({b, op.getLoc(), target, type}, op).run()))
    return failure();
  op.erase();
  return success();
}
