//===- QuantizedRows.cpp - Rows of quantized weights in registers -------------===//
//
// Formats are those of ggml and of MatMulNBits (attn.dequantize). Scales of f16 and of 6 bits become f32 in scratch
// memory, many blocks at a time, before the codes that they multiply are read.
//
//===----------------------------------------------------------------------===//
#include "QuantizedRows.h"
#include "Prefetch.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;
using attn::BlockFormat;

/// The elements that share the bytes of codes.
static int64_t unitOf(BlockFormat format, int64_t elements) {
  switch (format) {
  case BlockFormat::Q4_K:
    return 64;
  case BlockFormat::Q6_K:
    return 128;
  default:
    return std::min<int64_t>(elements, 32);
  }
}

/// A view of `codes` as rows of contiguous bytes, or a copy if blocks or bytes are not adjacent.
static Value emitRowsOfBytes(Emitter &e, Value codes, int64_t capacity) {
  auto type = cast<MemRefType>(codes.getType());
  int64_t blocks = type.getDimSize(1), blockBytes = type.getDimSize(2);
  auto layout = StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1});
  auto rowsType = MemRefType::get({type.getDimSize(0), blocks * blockBytes}, type.getElementType(), layout);
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, codes);
  auto view = [&](Value base, OpFoldResult offset, OpFoldResult stride) -> SmallVector<Value> {
    SmallVector<OpFoldResult> sizes = {memref::getMixedSize(e.b, e.loc, codes, 0),
                                       e.b.getIndexAttr(blocks * blockBytes)};
    return {memref::ReinterpretCastOp::create(e.b, e.loc, rowsType, base, offset, sizes,
                                              ArrayRef<OpFoldResult>{stride, e.b.getIndexAttr(1)})};
  };
  auto inPlace = [&] {
    return view(metadata.getBaseBuffer(), OpFoldResult(metadata.getOffset()), OpFoldResult(metadata.getStrides()[0]));
  };
  auto strides = type.getStridesAndOffset().first;
  if (strides[1] == blockBytes && strides[2] == 1)
    return inPlace()[0];
  Value isContiguous = e.b.createOrFold<arith::AndIOp>(e.loc, e.isEqual(metadata.getStrides()[1], e.index(blockBytes)),
                                                       e.isEqual(metadata.getStrides()[2], e.index(1)));
  Value copy = memref::AllocOp::create(
      e.b, e.loc, MemRefType::get({capacity, blocks * blockBytes}, type.getElementType()), e.b.getI64IntegerAttr(64));
  auto copied = [&] {
    e.loop(e.index(0), e.size(codes, 0), 1, [&](Value r) {
      e.loop(e.index(0), e.index(blocks), 1, [&](Value block) {
        e.loop(e.index(0), e.index(blockBytes), 1,
               [&](Value i) { e.store(e.load(codes, {r, block, i}), copy, {r, e.add(e.mul(block, blockBytes), i)}); });
      });
    });
    return view(copy, e.b.getIndexAttr(0), e.b.getIndexAttr(blocks * blockBytes));
  };
  return e.choose(isContiguous, inPlace, copied)[0];
}

QuantizedRows::QuantizedRows(Emitter &e, const attn::QuantizedWeights &weights, int64_t slots, int64_t capacity)
    : e(e), weights(weights), traits(weights.traits()), unitElements(unitOf(weights.format, traits.elements)),
      unitsOfBlock(traits.elements / unitElements),
      groupsOfUnit(std::max<int64_t>(unitElements / traits.groupElements, 1)) {
  bytes = emitRowsOfBytes(e, weights.codes, capacity);
  if (traits.hasScales)
    return;
  // A vector of scales may end after the last one.
  bool isQ4K = weights.format == BlockFormat::Q4_K;
  int64_t groups = weights.blocks() * (traits.elements / traits.groupElements) + 16;
  scales = e.alloc({slots, isQ4K ? 2 * groups : groups});
  if (isQ4K)
    offsets = scales;
  else if (weights.format == BlockFormat::Q4_1)
    offsets = e.alloc({slots, groups});
}

//===----------------------------------------------------------------------===//
// Bytes and numbers
//===----------------------------------------------------------------------===//

Value QuantizedRows::loadBytes(Value row, Value offset, int64_t count) {
  auto type = VectorType::get({count}, e.b.getI8Type());
  return vector::LoadOp::create(e.b, e.loc, type, bytes, ValueRange{row, offset});
}

/// The bits of the f16 at byte `offset`. LLVM 22 joins loads of two bytes; a vector of two it cannot load on AArch64.
Value QuantizedRows::loadHalf(Value row, Value offset) {
  auto byteAt = [&](int64_t i) -> Value {
    return arith::ExtUIOp::create(e.b, e.loc, e.b.getI16Type(), e.load(bytes, {row, e.add(offset, i)}));
  };
  Value low = byteAt(0), high = byteAt(1);
  return arith::OrIOp::create(e.b, e.loc, low,
                              arith::ShLIOp::create(e.b, e.loc, high, e.constantLike(high, 8)).getResult());
}

Value QuantizedRows::asInt(Value bytes, bool isSigned) {
  auto type = VectorType::get(cast<VectorType>(bytes.getType()).getShape(), e.b.getI32Type());
  if (isSigned)
    return arith::ExtSIOp::create(e.b, e.loc, type, bytes);
  return arith::ExtUIOp::create(e.b, e.loc, type, bytes);
}

Value QuantizedRows::asFloat(Value codes) {
  auto type = VectorType::get(cast<VectorType>(codes.getType()).getShape(), e.type);
  return arith::SIToFPOp::create(e.b, e.loc, type, codes);
}

static Value splatInt(Emitter &e, Value like, int64_t value) {
  auto type = cast<VectorType>(like.getType());
  return arith::ConstantOp::create(e.b, e.loc,
                                   DenseElementsAttr::get(type, e.b.getIntegerAttr(type.getElementType(), value)));
}

/// The low nibble of each code, or bits 4 to 7, minus `bias`. Codes may have other bits.
Value QuantizedRows::nibbles(Value codes, bool isHigh, int64_t bias) {
  if (isHigh)
    codes = arith::ShRUIOp::create(e.b, e.loc, codes, splatInt(e, codes, 4));
  if (e.target.hasAVX512 && e.lanes() == 16) {
    // One instruction looks a nibble up in a register.
    SmallVector<float> values;
    for (int64_t code = 0; code < 16; ++code)
      values.push_back(float(code - bias));
    Value table =
        arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(e.vectorType(), ArrayRef<float>(values)));
    return LLVM::CallIntrinsicOp::create(e.b, e.loc, e.vectorType(),
                                         e.b.getStringAttr("llvm.x86.avx512.permvar.sf.512"), ValueRange{table, codes})
        .getResult(0);
  }
  codes = arith::AndIOp::create(e.b, e.loc, codes, splatInt(e, codes, 15));
  if (bias != 0)
    codes = arith::SubIOp::create(e.b, e.loc, codes, splatInt(e, codes, bias));
  return asFloat(codes);
}

void QuantizedRows::prefetch(Value row, Value offset, int64_t count, bool intoL1) {
  // Whole lines only: the processor fetches lines in pairs, and more prefetches take longer than they gain.
  int64_t lines = std::max<int64_t>(count / cacheLine, 1);
  for (int64_t line = 0; line < lines; ++line)
    memref::PrefetchOp::create(e.b, e.loc, bytes, ValueRange{row, e.add(offset, line * count / lines)},
                               /*isWrite=*/false, /*localityHint=*/intoL1 ? 3 : 2, /*isDataCache=*/true);
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

/// The bits of the f16 at byte `offset` of `count` blocks from `block` on, in i16.
Value QuantizedRows::loadHalves(Value row, Value block, int64_t count, int64_t offset) {
  auto type = VectorType::get({count}, e.b.getI16Type());
  Value first = e.mul(block, traits.bytes);
  if (!e.target.hasAVX512 || count == 1) {
    SmallVector<Value> halves;
    for (int64_t i = 0; i < count; ++i)
      halves.push_back(loadHalf(row, e.add(first, i * traits.bytes + offset)));
    return vector::FromElementsOp::create(e.b, e.loc, type, halves);
  }
  // Registers of all bytes are cheaper than a gather, and than to insert each element: these use the port of look-ups.
  constexpr int64_t words = 32, bytesOfVector = 2 * words;
  auto wordsType = VectorType::get({words}, e.b.getI16Type());
  int64_t vectors = count * traits.bytes / bytesOfVector;
  auto loadWords = [&](int64_t i) -> Value {
    return vector::BitCastOp::create(e.b, e.loc, wordsType,
                                     loadBytes(row, e.add(first, i * bytesOfVector), bytesOfVector));
  };
  Value result;
  for (int64_t pair = 0; pair < vectors; pair += 2) {
    SmallVector<int64_t> places(count, 0);
    SmallVector<bool> isHere(count, false);
    for (int64_t i = 0; i < count; ++i) {
      int64_t word = (i * traits.bytes + offset) / 2 - pair * words,
              most = std::min<int64_t>(vectors - pair, 2) * words;
      if (isHere[i] = word >= 0 && word < most; isHere[i])
        places[i] = word;
    }
    Value low = loadWords(pair), high = pair + 1 < vectors ? loadWords(pair + 1) : low;
    Value part = vector::ShuffleOp::create(e.b, e.loc, low, high, places);
    Value mask = arith::ConstantOp::create(
        e.b, e.loc, DenseElementsAttr::get(VectorType::get({count}, e.b.getI1Type()), ArrayRef<bool>(isHere)));
    result = result ? e.select(mask, part, result) : part;
  }
  for (int64_t i = 0; i < count; ++i)
    if ((i * traits.bytes + offset) / bytesOfVector >= vectors)
      result = vector::InsertOp::create(e.b, e.loc, loadHalf(row, e.add(first, i * traits.bytes + offset)), result,
                                        ArrayRef<int64_t>{i});
  return result;
}

/// Stores the f16 at byte `offset` of `count` blocks from `block` on.
void QuantizedRows::prepareHalves(Value row, unsigned slot, Value block, int64_t count, int64_t offset, Value into) {
  Value narrow = arith::BitcastOp::create(e.b, e.loc, VectorType::get({count}, e.b.getF16Type()),
                                          loadHalves(row, block, count, offset));
  Value wide = arith::ExtFOp::create(e.b, e.loc, VectorType::get({count}, e.type), narrow);
  e.storeVector(wide, into, {e.index(slot), block});
}

/// After two f16, 12 bytes have the 6 bits of eight scales and of eight minima, four in a word: the first four in words
/// of their own, and of the last four a nibble in the third word and two bits in the others. Scales and negative
/// offsets of a block are neighbours in scratch memory.
void QuantizedRows::prepareQ4K(Value row, unsigned slot, Value block) {
  auto words = VectorType::get({4}, e.b.getI32Type());
  auto constant = [&](ArrayRef<int32_t> values) -> Value {
    return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(words, values));
  };
  Value all = vector::BitCastOp::create(e.b, e.loc, words, loadBytes(row, e.mul(block, traits.bytes), 16));
  auto select = [&](ArrayRef<int64_t> from, ArrayRef<int32_t> shifts, ArrayRef<int32_t> bits) -> Value {
    Value chosen = vector::ShuffleOp::create(e.b, e.loc, all, all, from);
    chosen = arith::ShRUIOp::create(e.b, e.loc, chosen, constant(shifts));
    return arith::AndIOp::create(e.b, e.loc, chosen, constant(bits));
  };
  constexpr int32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
  Value low = select({1, 3, 2, 3}, {0, 0, 0, 4}, {six, four, six, four});
  Value high = select({1, 1, 2, 2}, {2, 2, 2, 2}, {0, two, 0, two});
  Value codes = vector::BitCastOp::create(e.b, e.loc, VectorType::get({16}, e.b.getI8Type()),
                                          arith::OrIOp::create(e.b, e.loc, low, high));
  auto halves = VectorType::get({8}, e.b.getF16Type());
  Value factors = vector::BitCastOp::create(e.b, e.loc, halves, all);
  factors = vector::ExtractStridedSliceOp::create(e.b, e.loc, factors, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{2},
                                                  ArrayRef<int64_t>{1});
  auto pair = VectorType::get({2}, e.type);
  Value signs = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(pair, ArrayRef<float>{1, -1}));
  factors = e.mulf(arith::ExtFOp::create(e.b, e.loc, pair, factors), signs);
  SmallVector<int64_t> lanes(16, 0);
  std::fill(lanes.begin() + 8, lanes.end(), 1);
  factors = vector::ShuffleOp::create(e.b, e.loc, factors, factors, lanes);
  e.storeVector(e.mulf(asFloat(asInt(codes, /*isSigned=*/false)), factors), scales, {e.index(slot), e.mul(block, 16)});
}

void QuantizedRows::prepareQ6K(Value row, unsigned slot, Value block) {
  Value first = e.mul(block, traits.bytes);
  Value bits = arith::BitcastOp::create(e.b, e.loc, e.b.getF16Type(), loadHalf(row, e.add(first, 208)));
  Value factor = arith::ExtFOp::create(e.b, e.loc, e.type, bits);
  auto sixteen = VectorType::get({16}, e.type);
  Value numbers = asFloat(asInt(loadBytes(row, e.add(first, 192), 16), /*isSigned=*/true));
  e.storeVector(e.mulf(numbers, vector::BroadcastOp::create(e.b, e.loc, sixteen, factor)), scales,
                {e.index(slot), e.mul(block, 16)});
}

void QuantizedRows::prepare(Value row, unsigned slot, Value begin, Value end) {
  if (traits.hasScales)
    return;
  Value first = e.div(begin, unitsOfBlock), last = e.div(end, unitsOfBlock);
  if (weights.format == BlockFormat::Q4_K)
    return e.loop(first, last, 1, [&](Value block) { prepareQ4K(row, slot, block); });
  if (weights.format == BlockFormat::Q6_K)
    return e.loop(first, last, 1, [&](Value block) { prepareQ6K(row, slot, block); });
  auto forBlocks = [&](Value from, Value to, int64_t count) {
    e.loop(from, to, count, [&](Value block) {
      prepareHalves(row, slot, block, count, 0, scales);
      if (offsets)
        prepareHalves(row, slot, block, count, 2, offsets);
    });
  };
  int64_t together = e.target.hasAVX512 && traits.bytes <= 20 ? 16 : 8;
  Value whole = e.add(first, e.roundDown(e.sub(last, first), together));
  forBlocks(first, whole, together);
  // The parts of a row that packing dequantizes at a time have eight blocks.
  Value eights = together == 8 ? whole : e.add(whole, e.roundDown(e.sub(last, whole), 8));
  forBlocks(whole, eights, 8);
  forBlocks(eights, last, 1);
}

/// The number of `group`, in all lanes.
Value QuantizedRows::numberOf(Value memref, unsigned slot, Value group) {
  return e.broadcast(e.load(memref, {e.index(slot), group}));
}

/// The zero of a block, as a number of f32; null for a constant one.
Value QuantizedRows::zeroOf(Value row, Value block) {
  if (!weights.zeros)
    return nullptr;
  if (!weights.hasPackedZeros())
    return e.broadcast(e.load(weights.zeros, {row, block}));
  bool isU4 = weights.format == BlockFormat::U4;
  Value byte = e.load(weights.zeros, {row, isU4 ? e.div(block, 2) : block});
  Value code = arith::ExtUIOp::create(e.b, e.loc, e.b.getI32Type(), byte);
  if (isU4) {
    Value isOdd = e.isEqual(e.rem(block, e.index(2)), e.index(1));
    code = e.select(isOdd, e.div(code, 16), e.rem(code, e.constantLike(code, 16)));
  }
  return e.broadcast(arith::SIToFPOp::create(e.b, e.loc, e.type, code));
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// The elements of a unit whose first half has the low nibbles of the bytes from `first` on.
SmallVector<Value> QuantizedRows::loadNibblePairs(Value row, Value first, int64_t bias) {
  SmallVector<Value> codes, result;
  for (int64_t i = 0; i < unitElements / 2; i += e.lanes())
    codes.push_back(asInt(loadBytes(row, e.add(first, i), e.lanes()), /*isSigned=*/false));
  for (bool isHigh : {false, true})
    for (Value each : codes)
      result.push_back(nibbles(each, isHigh, bias));
  return result;
}

/// The elements of a unit whose neighbours share a byte. A byte in 64 bits becomes two of 32.
SmallVector<Value> QuantizedRows::loadNeighbours(Value row, Value first, int64_t bias) {
  SmallVector<Value> result;
  int64_t lanes = e.lanes();
  for (int64_t i = 0; i < unitElements / 2; i += lanes / 2) {
    Value byte = loadBytes(row, e.add(first, i), lanes / 2);
    Value wide = arith::ExtUIOp::create(e.b, e.loc, VectorType::get({lanes / 2}, e.b.getI64Type()), byte);
    Value high = arith::ShLIOp::create(e.b, e.loc, wide, splatInt(e, wide, 28));
    Value both = arith::OrIOp::create(e.b, e.loc, wide, high);
    Value codes = vector::BitCastOp::create(e.b, e.loc, VectorType::get({lanes}, e.b.getI32Type()), both);
    result.push_back(nibbles(codes, /*isHigh=*/false, bias));
  }
  return result;
}

/// 128 elements: quarters of 32 have a nibble of one of two halves of 64 bytes, and two bits of 32 other bytes.
SmallVector<Value> QuantizedRows::loadQ6K(Value row, Value block, Value part) {
  Value first = e.mul(block, traits.bytes);
  Value low = e.add(first, e.mul(part, 64)), high = e.add(e.add(first, 128), e.mul(part, 32));
  auto codesAt = [&](Value from, int64_t offset) {
    return asInt(loadBytes(row, e.add(from, offset), e.lanes()), /*isSigned=*/false);
  };
  auto mask = [&](Value x, int64_t bits) -> Value {
    return arith::AndIOp::create(e.b, e.loc, x, splatInt(e, x, bits));
  };
  SmallVector<Value> result;
  for (int64_t quarter = 0; quarter < 4; ++quarter)
    for (int64_t i = 0; i < 32; i += e.lanes()) {
      Value lower = codesAt(low, quarter % 2 * 32 + i), upper = codesAt(high, i);
      if (quarter >= 2)
        lower = arith::ShRUIOp::create(e.b, e.loc, lower, splatInt(e, lower, 4));
      // Bits 4 and 5 of the code.
      int64_t shift = 4 - 2 * quarter;
      if (shift > 0)
        upper = arith::ShLIOp::create(e.b, e.loc, upper, splatInt(e, upper, shift));
      else if (shift < 0)
        upper = arith::ShRUIOp::create(e.b, e.loc, upper, splatInt(e, upper, -shift));
      Value code = arith::OrIOp::create(e.b, e.loc, mask(lower, 15), mask(upper, 48));
      result.push_back(asFloat(arith::SubIOp::create(e.b, e.loc, code, splatInt(e, code, 32))));
    }
  return result;
}

SmallVector<QuantizedRows::Register> QuantizedRows::loadCodes(Value row, unsigned slot, Value unit) {
  Value block = e.div(unit, unitsOfBlock), part = unitsOfBlock == 1 ? e.index(0) : e.rem(unit, e.index(unitsOfBlock));
  Value first = e.mul(block, traits.bytes);
  bool hasZeros = bool(weights.zeros);
  SmallVector<Value> codes;
  auto loadAll = [&](Value from, bool isSigned, int64_t bias) {
    for (int64_t i = 0; i < unitElements; i += e.lanes()) {
      Value each = asInt(loadBytes(row, e.add(from, i), e.lanes()), isSigned);
      if (bias != 0)
        each = arith::SubIOp::create(e.b, e.loc, each, splatInt(e, each, bias));
      codes.push_back(asFloat(each));
    }
  };
  switch (weights.format) {
  case BlockFormat::Q4_0:
    codes = loadNibblePairs(row, e.add(first, 2), 8);
    break;
  case BlockFormat::Q4_1:
    codes = loadNibblePairs(row, e.add(first, 4), 0);
    break;
  case BlockFormat::Q8_0:
    loadAll(e.add(first, 2), /*isSigned=*/true, 0);
    break;
  case BlockFormat::Q4_K:
    codes = loadNibblePairs(row, e.add(e.add(first, 16), e.mul(part, 32)), 0);
    break;
  case BlockFormat::Q6_K:
    codes = loadQ6K(row, block, part);
    break;
  case BlockFormat::U4:
    codes = loadNeighbours(row, e.add(first, e.mul(part, unitElements / 2)), hasZeros ? 0 : 8);
    break;
  case BlockFormat::U8:
    loadAll(e.add(first, e.mul(part, unitElements)), /*isSigned=*/false, hasZeros ? 0 : 128);
    break;
  }
  SmallVector<Register> registers;
  bool isQ4K = weights.format == BlockFormat::Q4_K;
  Value firstGroup = isQ4K ? e.add(e.mul(block, 16), e.mul(part, groupsOfUnit)) : e.mul(unit, groupsOfUnit);
  Value zero = traits.hasScales ? zeroOf(row, block) : Value();
  for (auto [i, each] : llvm::enumerate(codes)) {
    int64_t group = int64_t(i) * e.lanes() / std::min(traits.groupElements, unitElements);
    if (zero)
      each = e.subf(each, zero);
    Value at = e.add(firstGroup, group);
    registers.push_back(
        {each, traits.hasScales ? e.broadcast(e.load(weights.scales, {row, block})) : numberOf(scales, slot, at),
         offsets ? numberOf(offsets, slot, isQ4K ? e.add(at, 8) : at) : Value(), group});
  }
  return registers;
}

SmallVector<Value> QuantizedRows::load(Value row, unsigned slot, Value unit) {
  return llvm::map_to_vector(loadCodes(row, slot, unit), [&](const Register &each) {
    return each.offset ? e.fma(each.codes, each.scale, each.offset) : e.mulf(each.codes, each.scale);
  });
}

//===----------------------------------------------------------------------===//
// Codes as bytes
//===----------------------------------------------------------------------===//

int64_t QuantizedRows::bias() const {
  switch (weights.format) {
  case BlockFormat::Q4_0:
    return 8;
  case BlockFormat::Q6_K:
    return 32;
  default:
    return 0;
  }
}

Value QuantizedRows::loadNumbers(Value memref, unsigned slot, Value group, int64_t offset) {
  // Scales and offsets of eight groups of Q4_K are neighbours.
  Value at = weights.format == BlockFormat::Q4_K ? e.add(e.mul(group, 2), offset) : group;
  return vector::LoadOp::create(e.b, e.loc, VectorType::get({8}, e.type), memref, ValueRange{e.index(slot), at});
}

Value QuantizedRows::loadOffsets(unsigned slot, Value group) {
  return offsets ? loadNumbers(offsets, slot, group, 8) : Value();
}

void QuantizedRows::clearScales(int64_t slots) {
  int64_t groups = weights.blocks() * (traits.elements / traits.groupElements);
  for (int64_t slot = 0; slot < slots; ++slot)
    for (int64_t i = groups; i < int64_t(llvm::alignTo(groups, 8)); ++i) {
      e.store(e.scalar(0.0), scales, {e.index(slot), e.index(i)});
      if (offsets)
        e.store(e.scalar(0.0), offsets, {e.index(slot), e.index(i)});
    }
}

SmallVector<Value> QuantizedRows::loadCodeBytes(Value row, Value unit) {
  Value block = e.div(unit, unitsOfBlock), part = unitsOfBlock == 1 ? e.index(0) : e.rem(unit, e.index(unitsOfBlock));
  Value first = e.mul(block, traits.bytes);
  auto masked = [&](Value x, int64_t bits) -> Value {
    return arith::AndIOp::create(e.b, e.loc, x, splatInt(e, x, bits));
  };
  auto shiftedRight = [&](Value x, int64_t count) -> Value {
    return arith::ShRUIOp::create(e.b, e.loc, x, splatInt(e, x, count));
  };
  auto shiftedLeft = [&](Value x, int64_t count) -> Value {
    return arith::ShLIOp::create(e.b, e.loc, x, splatInt(e, x, count));
  };
  switch (weights.format) {
  case BlockFormat::Q4_0:
  case BlockFormat::Q4_1: {
    // Both halves of a register are the same bytes, and those of the second one are shifted.
    Value bytes = loadBytes(row, e.add(first, weights.format == BlockFormat::Q4_0 ? 2 : 4), 16);
    SmallVector<int64_t> twice(bytesOfRegister);
    for (int64_t i = 0; i < bytesOfRegister; ++i)
      twice[i] = i % 16;
    Value both = vector::ShuffleOp::create(e.b, e.loc, bytes, bytes, twice);
    auto words = VectorType::get({8}, e.b.getI32Type());
    Value counts =
        arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(words, ArrayRef<int32_t>{0, 0, 0, 0, 4, 4, 4, 4}));
    Value shifted =
        arith::ShRUIOp::create(e.b, e.loc, vector::BitCastOp::create(e.b, e.loc, words, both).getResult(), counts);
    return {masked(vector::BitCastOp::create(e.b, e.loc, both.getType(), shifted), 15)};
  }
  case BlockFormat::Q8_0:
    return {loadBytes(row, e.add(first, 2), bytesOfRegister)};
  case BlockFormat::Q4_K: {
    Value bytes = loadBytes(row, e.add(e.add(first, 16), e.mul(part, 32)), bytesOfRegister);
    return {masked(bytes, 15), shiftedRight(bytes, 4)};
  }
  case BlockFormat::Q6_K: {
    Value low = e.add(first, e.mul(part, 64)), high = e.add(e.add(first, 128), e.mul(part, 32));
    Value upper = loadBytes(row, high, bytesOfRegister);
    Value lower[2] = {loadBytes(row, low, bytesOfRegister), loadBytes(row, e.add(low, 32), bytesOfRegister)};
    auto joined = [&](Value lower, Value upper) -> Value { return arith::OrIOp::create(e.b, e.loc, lower, upper); };
    return {joined(masked(lower[0], 15), shiftedLeft(masked(upper, 3), 4)),
            joined(masked(lower[1], 15), shiftedLeft(masked(upper, 12), 2)),
            joined(shiftedRight(lower[0], 4), masked(upper, 48)),
            joined(shiftedRight(lower[1], 4), shiftedRight(masked(upper, 192), 2))};
  }
  default:
    llvm_unreachable("has no codes as bytes");
  }
}
