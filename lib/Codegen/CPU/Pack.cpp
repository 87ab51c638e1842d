//===- Pack.cpp - Packing operands for the microkernels -----------------------===//
//
// Each packing loop is emitted in a vector version for inner stride 1 and a scalar version for any stride; a run-time
// test selects one.
//
//===----------------------------------------------------------------------===//
#include "Pack.h"
#include "SVE.h"
#include "TileProduct.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace saccade::cpu;

static Type withElement(Type shapeOf, Type element) {
  if (auto vector = dyn_cast<VectorType>(shapeOf))
    return VectorType::get(vector.getShape(), element);
  return element;
}

Value saccade::cpu::emitToCompute(Emitter &e, Value value) {
  unsigned bits = getElementTypeOrSelf(value).getIntOrFloatBitWidth();
  if (bits < e.type.getWidth())
    return arith::ExtFOp::create(e.b, e.loc, withElement(value.getType(), e.type), value);
  if (bits > e.type.getWidth())
    return arith::TruncFOp::create(e.b, e.loc, withElement(value.getType(), e.type), value);
  return value;
}

Value saccade::cpu::emitFromCompute(Emitter &e, Value value, Type elementType) {
  unsigned from = getElementTypeOrSelf(value).getIntOrFloatBitWidth(), to = elementType.getIntOrFloatBitWidth();
  if (to < from)
    return arith::TruncFOp::create(e.b, e.loc, withElement(value.getType(), elementType), value);
  if (to > from)
    return arith::ExtFOp::create(e.b, e.loc, withElement(value.getType(), elementType), value);
  return value;
}

Value saccade::cpu::emitTransposed(Emitter &e, Value memref) {
  auto swap = AffineMapAttr::get(AffineMap::getPermutationMap(ArrayRef<unsigned>{1, 0}, e.b.getContext()));
  return memref::TransposeOp::create(e.b, e.loc, memref, swap);
}

Value saccade::cpu::emitPositions(Emitter &e, Value operand, attn::DimsAttr dims) {
  return *dims.position(attn::Dim::Seq) < *dims.position(attn::Dim::Depth) ? operand : emitTransposed(e, operand);
}

void saccade::cpu::emitByInnerStride(Emitter &e, Value memref, function_ref<void(Value)> contiguous,
                                     function_ref<void()> strided) {
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  if (strides.back() == 1)
    return contiguous(memref);
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, memref);
  Value isUnit = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, metadata.getStrides().back(), e.index(1));
  e.ifElse(
      isUnit,
      [&] {
        SmallVector<OpFoldResult> newStrides = metadata.getConstifiedMixedStrides();
        newStrides.back() = e.b.getIndexAttr(1);
        SmallVector<int64_t> staticStrides(strides);
        staticStrides.back() = 1;
        auto layout = StridedLayoutAttr::get(e.b.getContext(), offset, staticStrides);
        auto unit = MemRefType::get(type.getShape(), type.getElementType(), layout);
        contiguous(memref::ReinterpretCastOp::create(e.b, e.loc, unit, metadata.getBaseBuffer(),
                                                     metadata.getConstifiedMixedOffset(),
                                                     metadata.getConstifiedMixedSizes(), newStrides));
      },
      strided);
}

//===----------------------------------------------------------------------===//
// K-packs
//===----------------------------------------------------------------------===//

Value saccade::cpu::emitRoundToPairs(Emitter &e, Value first, Value second) {
  // One instruction rounds two registers; arith.truncf of a vector of twice the size would become three.
  auto pairs = VectorType::get({2 * e.lanes()}, e.b.getBF16Type());
  if (e.target.hasSVE)
    return emitRoundInSVE(e, first, second);
  if (!e.target.hasAVX512) {
    Value both =
        vector::ShuffleOp::create(e.b, e.loc, first, second, llvm::to_vector(llvm::seq<int64_t>(0, 2 * e.lanes())));
    Value rounded = arith::TruncFOp::create(e.b, e.loc, pairs, both);
    return vector::BitCastOp::create(e.b, e.loc, e.vectorType(), rounded);
  }
  Value rounded =
      LLVM::CallIntrinsicOp::create(e.b, e.loc, pairs, e.b.getStringAttr("llvm.x86.avx512bf16.cvtne2ps2bf16.512"),
                                    ValueRange{second, first})
          .getResult(0);
  return vector::BitCastOp::create(e.b, e.loc, e.vectorType(), rounded);
}

std::pair<Value, Value> saccade::cpu::emitInterleave(Emitter &e, Value first, Value second) {
  int64_t lanes = cast<VectorType>(first.getType()).getNumElements();
  SmallVector<int64_t> lower, upper;
  for (int64_t i = 0; i < lanes / 2; ++i) {
    lower.append({i, lanes + i});
    upper.append({lanes / 2 + i, lanes + lanes / 2 + i});
  }
  return {vector::ShuffleOp::create(e.b, e.loc, first, second, lower),
          vector::ShuffleOp::create(e.b, e.loc, first, second, upper)};
}

/// The k-pack of one element or of two of 16 bits, which may be scalars or vectors.
static Value joinKPacks(Emitter &e, ValueRange elements) {
  if (elements.size() == 1)
    return emitToCompute(e, elements[0]);
  if (isa<VectorType>(elements[0].getType())) {
    Value pairs = vector::InterleaveOp::create(e.b, e.loc, elements[0], elements[1]);
    return vector::BitCastOp::create(e.b, e.loc, e.vectorType(), pairs);
  }
  // The first element of a pair is in the lower half.
  SmallVector<Value> halves;
  for (Value element : elements) {
    Value bits = arith::BitcastOp::create(e.b, e.loc, e.b.getI16Type(), element);
    halves.push_back(arith::ExtUIOp::create(e.b, e.loc, e.b.getI32Type(), bits));
  }
  Value sixteen = arith::ConstantOp::create(e.b, e.loc, e.b.getI32IntegerAttr(16));
  Value kPack = arith::OrIOp::create(e.b, e.loc, halves[0], arith::ShLIOp::create(e.b, e.loc, halves[1], sixteen));
  return arith::BitcastOp::create(e.b, e.loc, e.type, kPack);
}

Value saccade::cpu::emitPlaceOfPart(Emitter &e, Value w, int64_t part) {
  return e.add(e.add(w, e.roundDown(w, tileSize)), part * tileSize);
}

Value saccade::cpu::emitUnits(Emitter &e, const ProductTraits &product, Value depth) {
  return e.mul(e.ceilDiv(depth, product.step), product.unitsOfStep);
}

/// The elements of a register of bf16 pairs as two of f32.
static std::pair<Value, Value> widenPairs(Emitter &e, Value pairs, FloatType element) {
  auto elements = VectorType::get({2 * e.lanes()}, element);
  Value both = vector::BitCastOp::create(e.b, e.loc, elements, pairs);
  auto half = [&](int64_t first) -> Value {
    Value part = vector::ExtractStridedSliceOp::create(e.b, e.loc, both, ArrayRef<int64_t>{first},
                                                       ArrayRef<int64_t>{e.lanes()}, ArrayRef<int64_t>{1});
    return arith::ExtFOp::create(e.b, e.loc, e.vectorType(), part);
  };
  return {half(0), half(e.lanes())};
}

/// The pairs of `upper`, and of the differences of `first` and `second` from these.
static std::pair<Value, Value> withDifferences(Emitter &e, Value upper, Value first, Value second) {
  auto [firstUpper, secondUpper] = widenPairs(e, upper, e.b.getBF16Type());
  return {upper, emitRoundToPairs(e, e.subf(first, firstUpper), e.subf(second, secondUpper))};
}

std::pair<Value, Value> saccade::cpu::emitSplitToPairs(Emitter &e, Value first, Value second) {
  return withDifferences(e, emitRoundToPairs(e, first, second), first, second);
}

/// `x` (f32, scalar or vector), or the greatest f16 with its sign if it is infinite. An infinity is then the lower part
/// alone: as the upper one it would be multiplied by lower parts that are 0.
static Value limitToF16(Emitter &e, Value x) {
  auto limit = [&](double bound, arith::CmpFPredicate isBeyond) {
    Value constant = e.floatLike(x, bound);
    x = e.select(arith::CmpFOp::create(e.b, e.loc, isBeyond, x, constant), constant, x);
  };
  limit(65504.0, arith::CmpFPredicate::OGT);
  limit(-65504.0, arith::CmpFPredicate::OLT);
  return x;
}

/// The upper and the lower parts of k-packs of two f16 (scalar or vector).
static std::pair<Value, Value> splitKPacks(Emitter &e, Value kPacks) {
  if (isa<VectorType>(kPacks.getType())) {
    auto [first, second] = widenPairs(e, kPacks, e.b.getF16Type());
    return withDifferences(e, emitRoundToPairs(e, limitToF16(e, first), limitToF16(e, second)), first, second);
  }
  auto one = VectorType::get({1}, e.type);
  auto pairOf = [&](Type element) { return VectorType::get({2}, element); };
  Value halves = vector::BitCastOp::create(e.b, e.loc, pairOf(e.b.getF16Type()),
                                           vector::BroadcastOp::create(e.b, e.loc, one, kPacks));
  Value wide = arith::ExtFOp::create(e.b, e.loc, pairOf(e.type), halves);
  Value upper = arith::TruncFOp::create(e.b, e.loc, pairOf(e.b.getBF16Type()), limitToF16(e, wide));
  Value lower = e.subf(wide, arith::ExtFOp::create(e.b, e.loc, pairOf(e.type), upper));
  auto join = [&](Value parts) -> Value {
    Value joined = vector::BitCastOp::create(e.b, e.loc, one, parts);
    return vector::ExtractOp::create(e.b, e.loc, joined, ArrayRef<int64_t>{0});
  };
  return {join(upper), join(arith::TruncFOp::create(e.b, e.loc, pairOf(e.b.getBF16Type()), lower))};
}

/// Stores k-packs (scalar or vector) of `parts` parts at `at`, whose index `along` counts k-packs.
static void storeKPacks(Emitter &e, Value kPacks, Value dst, ArrayRef<Value> at, unsigned along, unsigned parts) {
  auto store = [&](Value each, ValueRange place) {
    isa<VectorType>(each.getType()) ? e.storeVector(each, dst, place) : e.store(each, dst, place);
  };
  if (parts == 1)
    return store(kPacks, at);
  auto [upper, lower] = splitKPacks(e, kPacks);
  for (auto [i, part] : llvm::enumerate(std::array{upper, lower})) {
    SmallVector<Value> place(at);
    place[along] = emitPlaceOfPart(e, at[along], i);
    store(part, place);
  }
}

/// Calls `clear` for the places of the split k-packs between the last of `kPacks` and the end of its step.
static void forPadding(Emitter &e, Value kPacks, unsigned parts, function_ref<void(Value place)> clear) {
  if (parts == 1)
    return;
  e.loop(kPacks, e.roundUp(kPacks, tileSize), 1, [&](Value w) {
    for (unsigned part = 0; part < parts; ++part)
      clear(emitPlaceOfPart(e, w, part));
  });
}

Value saccade::cpu::applySignMask(Emitter &e, Value kPack, Value signMask) {
  if (!signMask)
    return kPack;
  Type bits = signMask.getType();
  if (isa<VectorType>(kPack.getType())) {
    bits = VectorType::get({e.lanes()}, bits);
    signMask = e.broadcast(signMask);
  }
  Value flipped = arith::XOrIOp::create(e.b, e.loc, arith::BitcastOp::create(e.b, e.loc, bits, kPack), signMask);
  return arith::BitcastOp::create(e.b, e.loc, kPack.getType(), flipped);
}

Value KPackReader::vector(Value row, Value column, bool isWhole) {
  Type element = getElementTypeOrSelf(src);
  auto load = [&](unsigned count, Value r) -> Value {
    return vector::LoadOp::create(e.b, e.loc, VectorType::get({count}, element), src, ValueRange{r, column});
  };
  if (shape.elements == 1)
    return joinKPacks(e, load(e.lanes(), row));
  if (!shape.isColumn)
    return vector::BitCastOp::create(e.b, e.loc, e.vectorType(), load(2 * e.lanes(), row));
  Value first = load(e.lanes(), row);
  Value second = isWhole ? load(e.lanes(), e.add(row, 1))
                         : Value(arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(first.getType())));
  return joinKPacks(e, {first, second});
}

Value KPackReader::scalar(Value row, Value column) {
  Value first = e.load(src, {row, column});
  if (shape.elements == 1)
    return joinKPacks(e, first);
  // If the second element is out of bounds, the first is read twice and the second is replaced by 0.
  Value nextRow = e.add(row, shape.rows() - 1), nextColumn = e.add(column, shape.columns() - 1);
  Value lastRow = e.sub(e.size(src, 0), e.index(1)), lastColumn = e.sub(e.size(src, 1), e.index(1));
  Value second = e.load(src, {e.min(nextRow, lastRow), e.min(nextColumn, lastColumn)});
  Value isInside = shape.isColumn ? e.isLess(row, lastRow) : e.isLess(column, lastColumn);
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(second.getType()));
  return joinKPacks(e, {first, e.select(isInside, second, zero)});
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Packs the k-packs that start in row `row` of `src` into row `to` of `dst`. Uses vectors if `unit`, a view of `src`
/// with inner stride 1, is not null.
static void packVector(Emitter &e, KPackReader src, unsigned parts, Value unit, Value row, Value dst, Value to,
                       Value signMask, bool isWhole = true) {
  int64_t width = src.shape.columns();
  auto store = [&](Value kPacks, Value w) {
    storeKPacks(e, applySignMask(e, kPacks, signMask), dst, {to, w}, /*along=*/src.shape.isColumn ? 0 : 1, parts);
  };
  Value columns = e.size(src.src, 1), begin = e.index(0);
  if (unit) {
    begin = e.roundDown(e.div(columns, width), e.lanes());
    KPackReader reader{e, unit, src.shape};
    e.loop(e.index(0), begin, e.lanes(), [&](Value w) { store(reader.vector(row, e.mul(w, width), isWhole), w); });
  }
  Value kPacks = e.ceilDiv(columns, width);
  e.loop(begin, kPacks, 1, [&](Value w) { store(src.scalar(row, e.mul(w, width)), w); });
  if (!src.shape.isColumn)
    forPadding(e, kPacks, parts, [&](Value place) { e.store(e.scalar(0.0), dst, {to, place}); });
}

/// Packs squares of `src` [rows, depth], whose columns are contiguous, as many as its `rows`, a multiple of the lanes,
/// and depth have: reads k-packs of adjacent rows and transposes them. Returns the k-packs that are done.
static Value packSquares(Emitter &e, Value src, int64_t rows, Value dst, const ProductTraits &product) {
  unsigned factor = product.kPackElements;
  KPackReader reader{e, emitTransposed(e, src), {factor, /*isColumn=*/factor > 1}};
  Value done = e.roundDown(e.div(e.size(src, 1), factor), e.lanes());
  e.loop(e.index(0), e.index(rows), e.lanes(), [&](Value row) {
    e.loop(e.index(0), done, e.lanes(), [&](Value w) {
      SmallVector<Value> vectors;
      for (int64_t i = 0; i < e.lanes(); ++i)
        vectors.push_back(reader.vector(e.mul(e.add(w, i), factor), row));
      emitTranspose(e, vectors);
      for (auto [i, each] : llvm::enumerate(vectors))
        e.storeVector(each, dst, {e.add(row, i), w});
    });
  });
  return done;
}

void saccade::cpu::emitPackRows(Emitter &e, Value src, Value rows, Value paddedRows, Value dst,
                                const ProductTraits &product, Value signMask) {
  Value lastRow = e.sub(rows, e.index(1));
  auto packRowsOf = [&](Value src, Value unit, Value dst) {
    e.loop(e.index(0), paddedRows, 1, [&](Value r) {
      packVector(e, {e, src, {product.kPackElements}}, product.parts, unit, e.min(r, lastRow), dst, r, signMask);
    });
  };
  auto pack = [&](Value unit) { packRowsOf(src, unit, dst); };
  auto type = cast<MemRefType>(src.getType());
  std::optional<int64_t> count = getConstantIntValue(rows);
  bool hasSquares = count && *count % e.lanes() == 0 && isEqualConstantIntOrValue(rows, paddedRows) && !signMask &&
                    product.parts == 1 && type.getStridesAndOffset().first[0] == 1 &&
                    (product.kPackElements == 2 ? type.getElementType().isBF16() : type.getElementType() == e.type);
  emitByInnerStride(e, src, pack, [&] {
    if (!hasSquares)
      return pack(nullptr);
    Value done = packSquares(e, src, *count, dst, product);
    Value first = e.mul(done, product.kPackElements), depth = e.size(src, 1);
    e.ifElse(e.isLess(first, depth), [&] {
      auto from = [&](Value matrix, Value column, Value columns) -> Value {
        SmallVector<OpFoldResult> ones(2, e.b.getIndexAttr(1));
        OpFoldResult zero = e.b.getIndexAttr(0), all = getAsOpFoldResult(paddedRows);
        return memref::SubViewOp::create(e.b, e.loc, matrix, ArrayRef<OpFoldResult>{zero, getAsOpFoldResult(column)},
                                         ArrayRef<OpFoldResult>{all, getAsOpFoldResult(columns)}, ones);
      };
      packRowsOf(from(src, first, e.sub(depth, first)), nullptr, from(dst, done, e.sub(e.size(dst, 1), done)));
    });
  });
}

void saccade::cpu::emitPackColumns(Emitter &e, Value src, Value dst, const ProductTraits &product) {
  unsigned kPackElements = product.kPackElements, parts = product.parts;
  Value rows = e.size(src, 0), whole = e.div(rows, kPackElements);
  auto clear = [&](Value place, Value first) {
    e.loop(first, e.size(dst, 1), 1, [&](Value c) { e.store(e.scalar(0.0), dst, {place, c}); });
  };
  auto pack = [&](Value unit) {
    auto packRow = [&](Value row, Value to, bool isWhole) {
      packVector(e, {e, src, {kPackElements, /*isColumn=*/true}}, parts, unit, row, dst, to, /*signMask=*/nullptr,
                 isWhole);
      for (unsigned part = 0; part < parts; ++part)
        clear(parts == 1 ? to : emitPlaceOfPart(e, to, part), e.size(src, 1));
    };
    e.loop(e.index(0), whole, 1, [&](Value w) { packRow(e.mul(w, kPackElements), w, /*isWhole=*/true); });
    if (kPackElements > 1)
      e.ifElse(e.isLess(e.mul(whole, kPackElements), rows),
               [&] { packRow(e.mul(whole, kPackElements), whole, /*isWhole=*/false); });
    forPadding(e, e.ceilDiv(rows, kPackElements), parts, [&](Value place) { clear(place, e.index(0)); });
  };
  emitByInnerStride(e, src, pack, [&] { pack(nullptr); });
}

void saccade::cpu::emitUnpackRows(Emitter &e, Value src, Value dst) {
  Type element = getElementTypeOrSelf(dst);
  Value rows = e.size(dst, 0), columns = e.size(dst, 1), vectorColumns = e.roundDown(columns, e.lanes());
  auto copyScalars = [&](Value r, Value first) {
    e.loop(first, columns, 1, [&](Value c) { e.store(emitFromCompute(e, e.load(src, {r, c}), element), dst, {r, c}); });
  };
  emitByInnerStride(
      e, dst,
      [&](Value unit) {
        e.loop(e.index(0), rows, 1, [&](Value r) {
          e.loop(e.index(0), vectorColumns, e.lanes(),
                 [&](Value c) { e.storeVector(emitFromCompute(e, e.loadVector(src, {r, c}), element), unit, {r, c}); });
          copyScalars(r, vectorColumns);
        });
      },
      [&] { e.loop(e.index(0), rows, 1, [&](Value r) { copyScalars(r, e.index(0)); }); });
}

//===----------------------------------------------------------------------===//
// Panels
//===----------------------------------------------------------------------===//

/// Exchanges halves, quarters, ... of pairs of vectors (Eklundh, 1972). Emits shuffles, because folding would scalarize
/// a vector.transpose. SVE has no instruction that exchanges halves: each round interleaves vectors with those of the
/// second half of the list.
void saccade::cpu::emitTranspose(Emitter &e, SmallVectorImpl<Value> &vectors) {
  int64_t lanes = vectors.size();
  for (int64_t round = lanes; e.target.hasSVE && round > 1; round /= 2) {
    SmallVector<Value> before(ArrayRef<Value>{vectors});
    for (int64_t i = 0; i < lanes / 2; ++i)
      std::tie(vectors[2 * i], vectors[2 * i + 1]) = emitInterleave(e, before[i], before[i + lanes / 2]);
  }
  if (e.target.hasSVE)
    return;
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    SmallVector<int64_t> upper, lower;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      bool fromSecond = lane & distance;
      upper.push_back(fromSecond ? lanes + lane - distance : lane);
      lower.push_back(fromSecond ? lanes + lane : lane + distance);
    }
    for (int64_t i = 0; i < lanes; ++i) {
      if (i & distance)
        continue;
      Value first = vectors[i], second = vectors[i + distance];
      vectors[i] = vector::ShuffleOp::create(e.b, e.loc, first, second, upper);
      vectors[i + distance] = vector::ShuffleOp::create(e.b, e.loc, first, second, lower);
    }
  }
}

/// Packs lanes × lanes k-packs, rows [row, row + lanes) from k-pack `w` on, into one lane block of a panel.
static void transposeBlock(Emitter &e, KPackReader src, unsigned parts, Value row, Value lastRow, Value w, Value dst,
                           Value panel, Value lane) {
  SmallVector<Value> vectors;
  for (int64_t i = 0; i < e.lanes(); ++i)
    vectors.push_back(src.vector(e.min(e.add(row, i), lastRow), e.mul(w, src.shape.columns())));
  emitTranspose(e, vectors);
  for (auto [i, each] : llvm::enumerate(vectors))
    storeKPacks(e, each, dst, {panel, e.add(w, i), lane}, /*along=*/1, parts);
}

void saccade::cpu::emitPackPanels(Emitter &e, Value src, Value rows, Value dst, const ProductTraits &product) {
  unsigned kPackElements = product.kPackElements, parts = product.parts;
  int64_t panelRows = cast<MemRefType>(dst.getType()).getDimSize(2);
  Value columns = e.size(src, 1), kPacks = e.ceilDiv(columns, kPackElements),
        wholeKPacks = e.div(columns, kPackElements);
  Value vectorKPacks = e.roundDown(wholeKPacks, e.lanes()), lastRow = e.sub(rows, e.index(1));
  // A panel consists of several lane blocks.
  auto forBlocks = [&](Value begin, Value end, function_ref<void(Value row, Value panel, Value lane)> body) {
    e.loop(begin, end, e.lanes(), [&](Value row) {
      Value panel = e.div(row, panelRows);
      body(row, panel, e.sub(row, e.mul(panel, panelRows)));
    });
  };
  auto forEachBlock = [&](auto body) { forBlocks(e.index(0), rows, body); };
  auto copyScalars = [&](Value row, Value panel, Value lane, Value first) {
    KPackReader reader{e, src, {kPackElements}};
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value i) {
      Value from = e.min(e.add(row, i), lastRow);
      e.loop(first, kPacks, 1, [&](Value w) {
        Value kPack = reader.scalar(from, e.mul(w, kPackElements));
        storeKPacks(e, kPack, dst, {panel, w, e.add(lane, i)}, /*along=*/1, parts);
      });
    });
  };
  emitByInnerStride(
      e, src,
      [&](Value unit) {
        forEachBlock([&](Value row, Value panel, Value lane) {
          e.loop(e.index(0), vectorKPacks, e.lanes(), [&](Value w) {
            transposeBlock(e, {e, unit, {kPackElements}}, parts, row, lastRow, w, dst, panel, lane);
          });
          copyScalars(row, panel, lane, vectorKPacks);
        });
      },
      [&] {
        // If columns are contiguous, no transpose is needed.
        emitByInnerStride(
            e, emitTransposed(e, src),
            [&](Value unit) {
              KPackReader reader{e, unit, {kPackElements, /*isColumn=*/true}};
              Value wholeRows = e.roundDown(rows, e.lanes());
              auto copyKPacks = [&](Value begin, Value end, bool isWhole) {
                forBlocks(e.index(0), wholeRows, [&](Value row, Value panel, Value lane) {
                  e.loop(begin, end, 1, [&](Value w) {
                    Value kPacks = reader.vector(e.mul(w, kPackElements), row, isWhole);
                    storeKPacks(e, kPacks, dst, {panel, w, lane}, /*along=*/1, parts);
                  });
                });
              };
              // A few k-packs at a time, since a cache line of the source has elements of several lane blocks.
              e.loop(e.index(0), wholeKPacks, packedTogether,
                     [&](Value w) { copyKPacks(w, e.min(e.add(w, packedTogether), wholeKPacks), /*isWhole=*/true); });
              if (kPackElements > 1)
                copyKPacks(wholeKPacks, kPacks, /*isWhole=*/false);
              forBlocks(wholeRows, rows,
                        [&](Value row, Value panel, Value lane) { copyScalars(row, panel, lane, e.index(0)); });
            },
            [&] {
              forEachBlock([&](Value row, Value panel, Value lane) { copyScalars(row, panel, lane, e.index(0)); });
            });
      });
  forPadding(e, kPacks, parts, [&](Value place) {
    forEachBlock([&](Value, Value panel, Value lane) { e.storeVector(e.splat(0.0), dst, {panel, place, lane}); });
  });
}
