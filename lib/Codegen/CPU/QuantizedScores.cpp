//===- QuantizedScores.cpp - Dot products of int8 -----------------------------===//
//
// Rows are rounded in blocks of as many rows as lanes, so that values of which a row has one are computed for all of
// them at once. Adding 1.5 · 2^23 rounds a small number, which is then in the low bits of the sum.
//
//===----------------------------------------------------------------------===//
#include "QuantizedScores.h"
#include "Pack.h"
#include "ScoreTile.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

static constexpr int64_t zeroPoint = 128; // of unsigned elements
static constexpr double largestElement = 127, roundingBias = 1.5 * (1 << 23);

static Value toBits(Emitter &e, Value vector) {
  return e.b.createOrFold<vector::BitCastOp>(e.loc, VectorType::get({e.lanes()}, e.b.getI32Type()), vector);
}
static Value fromBits(Emitter &e, Value vector) {
  return vector::BitCastOp::create(e.b, e.loc, e.vectorType(), vector);
}

QuantizedScores::QuantizedScores(Emitter &e, const VectorProduct &product, int64_t maxQueries, int64_t maxKeys,
                                 int64_t depth)
    : product(product), depth(depth),
      paddedDepth(llvm::alignTo(depth, std::max<int64_t>(e.lanes(), product.traits.step))) {
  int64_t lanes = e.lanes(), panel = 2 * lanes;
  int64_t kPacks = paddedDepth / product.traits.kPackElements, units = product.traits.units(paddedDepth);
  maxQueries = llvm::alignTo(maxQueries, lanes);
  maxKeys = llvm::alignTo(maxKeys, panel);
  queryRows = e.alloc({maxQueries, kPacks});
  // Rows of k-packs are packed if units are k-packs.
  query = product.traits.kPacks > 1 ? e.alloc(product.rowsShape(maxQueries, units)) : queryRows;
  keyRows = e.alloc({maxKeys, kPacks});
  key = e.alloc(product.panelsShape(e, maxKeys / panel, units));
  for (Value *each : {&queryScales, &starts, &offsets})
    *each = e.alloc({maxQueries});
  keyScales = e.alloc({maxKeys});
  mean = e.alloc({paddedDepth});
  rows = e.alloc({lanes, paddedDepth});
  laneValues = e.alloc({lanes, lanes});
  inverse = e.alloc({lanes});
}

void QuantizedScores::forColumns(Emitter &e, function_ref<void(Value)> body) const {
  e.loop(e.index(0), e.size(mean, 0), e.lanes(), body);
}

Value QuantizedScores::sumColumns(Emitter &e, function_ref<Value(Value, Value)> add) const {
  return e.loop(e.index(0), e.size(mean, 0), e.lanes(), e.splat(0.0),
                [&](Value column, ValueRange sum) -> SmallVector<Value> { return {add(column, sum[0])}; })[0];
}

/// Lane r combines the lanes of row r of `laneValues`.
Value QuantizedScores::combineRows(Emitter &e, function_ref<Value(Value, Value)> combine) const {
  SmallVector<Value> vectors;
  for (int64_t row = 0; row < e.lanes(); ++row)
    vectors.push_back(e.loadVector(laneValues, {e.index(row), e.index(0)}));
  return emitReduceVectors(e, vectors, combine);
}

/// Copies `count` rows of `src` from `first` on to `rows`, and repeats the last one.
void QuantizedScores::loadRows(Emitter &e, Value src, Value first, Value count, Value signMask) const {
  auto offsets = SmallVector<OpFoldResult>{first, e.b.getIndexAttr(0)};
  auto sizes = SmallVector<OpFoldResult>{count, getAsOpFoldResult(e.size(src, 1))};
  auto strides = SmallVector<OpFoldResult>(2, e.b.getIndexAttr(1));
  Value block = memref::SubViewOp::create(e.b, e.loc, src, offsets, sizes, strides);
  Product::of(attn::ProductForm::MultiplyAdd).packRows(e, block, count, e.index(e.lanes()), rows, signMask);
}

/// Emits a loop over the blocks of rows of `src`. `body` has the first row and the number of rows.
static void forBlocks(Emitter &e, Value count, function_ref<void(Value first, Value rows)> body) {
  e.loop(e.index(0), count, e.lanes(),
         [&](Value first) { body(first, e.min(e.sub(count, first), e.index(e.lanes()))); });
}

void QuantizedScores::findMean(Emitter &e, Value src, Value keys) const {
  Value count = arith::IndexCastOp::create(e.b, e.loc, e.b.getI32Type(), keys);
  Value number = arith::SIToFPOp::create(e.b, e.loc, e.type, count);
  // Each key is divided by the number of keys, so that the sum of large keys is finite.
  Value factor = e.broadcast(arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), number));
  forColumns(e, [&](Value c) { e.storeVector(e.splat(0.0), mean, {c}); });
  forBlocks(e, keys, [&](Value first, Value count) {
    loadRows(e, src, first, count, /*signMask=*/nullptr);
    forColumns(e, [&](Value c) {
      Value sum = e.loop(e.index(0), count, 1, e.loadVector(mean, {c}), [&](Value r, ValueRange carried) {
        Value element = e.loadVector(rows, {r, c}), size = math::AbsFOp::create(e.b, e.loc, element);
        Value isFinite = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, size,
                                               e.splat(std::numeric_limits<double>::infinity()));
        return SmallVector<Value>{e.select(isFinite, e.fma(element, factor, carried[0]), carried[0])};
      })[0];
      e.storeVector(sum, mean, {c});
    });
  });
}

/// Stores the scales of the rows in `rows` to `scales` from `first` on; NaN for a row with an element that is not
/// finite.
void QuantizedScores::findScales(Emitter &e, Value scales, Value first) const {
  // Magnitudes are compared as integers, which order NaN above infinity.
  auto larger = [&](Value x, Value y) {
    return fromBits(e, arith::MaxSIOp::create(e.b, e.loc, toBits(e, x), toBits(e, y)));
  };
  e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value r) {
    Value largest = sumColumns(e, [&](Value c, Value max) {
      return larger(max, math::AbsFOp::create(e.b, e.loc, e.loadVector(rows, {r, c})));
    });
    e.storeVector(largest, laneValues, {r, e.index(0)});
  });
  // Elements below 2^−100 may become 0: the inverse of a smaller scale overflows.
  Value largest = larger(combineRows(e, larger), e.splat(0x1p-100));
  Value infinity = e.splat(std::numeric_limits<double>::infinity());
  Value isFinite = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, largest, infinity);
  Value scale = e.mulf(largest, e.splat(1 / largestElement));
  e.storeVector(e.select(isFinite, scale, e.splat(std::numeric_limits<double>::quiet_NaN())), scales, {first});
  e.storeVector(arith::DivFOp::create(e.b, e.loc, e.splat(largestElement), largest), inverse, {e.index(0)});
}

/// Stores a register of elements of row `row`, divided by its scale and rounded, to row `to` of `dst`. Returns them as
/// floats, plus `roundingBias`.
Value QuantizedScores::round(Emitter &e, Value row, Value column, bool isUnsigned, Value dst, Value to) const {
  Value factor = e.broadcast(e.load(inverse, {row}));
  Value bias = e.splat(roundingBias + (isUnsigned ? double(zeroPoint) : 0));
  Value biased = e.fma(e.loadVector(rows, {row, column}), factor, bias);
  auto bytes = VectorType::get({e.lanes()}, e.b.getI8Type());
  Value elements = arith::TruncIOp::create(e.b, e.loc, bytes, toBits(e, biased));
  unsigned kPackElements = product.traits.kPackElements;
  auto packs = VectorType::get({e.lanes() / kPackElements}, e.type);
  e.storeVector(vector::BitCastOp::create(e.b, e.loc, packs, elements), dst, {to, e.div(column, kPackElements)});
  return biased;
}

void QuantizedScores::packKeys(Emitter &e, Value src, Value keys) const {
  forBlocks(e, keys, [&](Value first, Value count) {
    loadRows(e, src, first, count, /*signMask=*/nullptr);
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value r) {
      forColumns(e, [&](Value c) {
        e.storeVector(e.subf(e.loadVector(rows, {r, c}), e.loadVector(mean, {c})), rows, {r, c});
      });
    });
    findScales(e, keyScales, first);
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value r) {
      forColumns(e, [&](Value c) { round(e, r, c, product.hasUnsignedRHS(), keyRows, e.add(first, r)); });
    });
  });
  product.packPanels(e, keyRows, keys, key);
}

void QuantizedScores::packQueries(Emitter &e, Value src, Value queries, Value signMask) const {
  auto add = [&](Value x, Value y) { return e.addf(x, y); };
  forBlocks(e, queries, [&](Value first, Value count) {
    loadRows(e, src, first, count, signMask);
    findScales(e, queryScales, first);
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value r) {
      Value sum = sumColumns(e, [&](Value c, Value sum) {
        Value biased = round(e, r, c, /*isUnsigned=*/false, queryRows, e.add(first, r));
        return e.addf(sum, e.subf(biased, e.splat(roundingBias)));
      });
      e.storeVector(sum, laneValues, {r, e.index(0)});
    });
    if (product.hasUnsignedRHS()) {
      Value start = e.mulf(combineRows(e, add), e.splat(-double(zeroPoint)));
      start = arith::FPToSIOp::create(e.b, e.loc, VectorType::get({e.lanes()}, e.b.getI32Type()), start);
      e.storeVector(fromBits(e, start), starts, {first});
    }
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value r) {
      Value sum = sumColumns(
          e, [&](Value c, Value sum) { return e.fma(e.loadVector(rows, {r, c}), e.loadVector(mean, {c}), sum); });
      e.storeVector(sum, laneValues, {r, e.index(0)});
    });
    e.storeVector(combineRows(e, add), offsets, {first});
  });
}

void QuantizedScores::pack(Emitter &e, Value queryTile, Value queries, Value keyTile, Value keys, Value signMask) {
  // Clears the padding of rows, which begins within a register.
  e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value r) {
    for (int64_t c = depth / e.lanes() * e.lanes(); c < paddedDepth; c += e.lanes())
      e.storeVector(e.splat(0.0), rows, {r, e.index(c)});
  });
  findMean(e, keyTile, keys);
  packKeys(e, keyTile, keys);
  packQueries(e, queryTile, queries, signMask);
  if (query != queryRows)
    product.packRows(e, queryRows, queries, e.roundUp(queries, rowGroup), query);
}

/// The sums of products, in i32.
SmallVector<Value> QuantizedScores::multiplyElements(Emitter &e, RegisterBlock block, Value first, Value panel) const {
  int64_t units = product.traits.units(paddedDepth);
  SmallVector<Value> acc;
  if (product.hasUnsignedRHS()) {
    for (unsigned i = 0; i < block.rows; ++i)
      acc.append(block.vectors, toBits(e, e.broadcast(e.load(starts, {e.add(first, i)}))));
    acc = product.addPanel(e, block, units, acc, query, first, key, panel);
  } else {
    acc = product.multiplyPanel(e, block, units, query, first, key, panel);
  }
  return llvm::map_to_vector(acc, [&](Value sums) { return toBits(e, sums); });
}

SmallVector<Value> QuantizedScores::multiply(Emitter &e, RegisterBlock block, Value first, Value panel) const {
  SmallVector<Value> acc = multiplyElements(e, block, first, panel), scales;
  for (unsigned j = 0; j < block.vectors; ++j)
    scales.push_back(e.loadVector(keyScales, {e.add(e.mul(panel, 2 * e.lanes()), j * e.lanes())}));
  for (unsigned i = 0; i < block.rows; ++i) {
    Value scale = e.broadcast(e.load(queryScales, {e.add(first, i)}));
    Value offset = e.broadcast(e.load(offsets, {e.add(first, i)}));
    for (unsigned j = 0; j < block.vectors; ++j) {
      Value &product = acc[i * block.vectors + j];
      product = arith::SIToFPOp::create(e.b, e.loc, e.vectorType(), product);
      product = e.fma(e.mulf(product, scales[j]), scale, offset);
    }
  }
  return acc;
}
