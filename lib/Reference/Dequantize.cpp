//===- Dequantize.cpp - attn.dequantize, load_dequantized, fake_quantize --------===//
//
// Elements of blocks as ggml and ONNX Runtime define them, one at a time, in f64.
//
//===----------------------------------------------------------------------===//
#include "Frame.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::BlockFormat;

namespace {

/// The bytes of one block.
struct BlockBytes {
  const Scalar *first;

  int64_t byte(int64_t i) const { return first[i].integer & 255; }
  int64_t signedByte(int64_t i) const { return byte(i) < 128 ? byte(i) : byte(i) - 256; }
  /// The f16 at byte i.
  double half(int64_t i) const {
    int64_t bits = byte(i) | byte(i + 1) << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
      return fraction ? NAN : sign * INFINITY;
    return exponent ? sign * std::ldexp(1024 + fraction, int(exponent) - 25) : sign * std::ldexp(fraction, -24);
  }
  /// Nibble `part` of byte i: 0 for the low one.
  int64_t nibble(int64_t i, int64_t part) const { return byte(i) >> 4 * part & 15; }

  double q4k(int64_t i) const;
  double q6k(int64_t i) const;
};

} // namespace

/// Sub-block i / 32 has 6 bits of a scale and of a minimum in the 12 bytes after d and m.
double BlockBytes::q4k(int64_t i) const {
  int64_t sub = i / 32, scale, least;
  if (sub < 4) {
    scale = byte(4 + sub) & 63;
    least = byte(8 + sub) & 63;
  } else {
    scale = (byte(8 + sub) & 15) | (byte(sub) >> 6) << 4;
    least = byte(8 + sub) >> 4 | (byte(4 + sub) >> 6) << 4;
  }
  // 64 elements share 32 bytes.
  int64_t code = nibble(16 + i / 64 * 32 + i % 32, i / 32 % 2);
  return half(0) * double(scale) * double(code) - half(2) * double(least);
}

/// 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales, d.
double BlockBytes::q6k(int64_t i) const {
  int64_t half128 = i / 128, quarter = i % 128 / 32, place = i % 32;
  int64_t low = nibble(half128 * 64 + quarter % 2 * 32 + place, quarter / 2);
  int64_t high = byte(128 + half128 * 32 + place) >> 2 * quarter & 3;
  int64_t code = (low | high << 4) - 32;
  return half(208) * double(signedByte(192 + i / 16)) * double(code);
}

/// Element i of a block of a format of GGUF.
static double dequantizedElement(BlockFormat format, BlockBytes block, int64_t i) {
  switch (format) {
  case BlockFormat::Q4_0:
    return block.half(0) * double(block.nibble(2 + i % 16, i / 16) - 8);
  case BlockFormat::Q4_1:
    return block.half(0) * double(block.nibble(4 + i % 16, i / 16)) + block.half(2);
  case BlockFormat::Q8_0:
    return block.half(0) * double(block.signedByte(2 + i));
  case BlockFormat::Q4_K:
    return block.q4k(i);
  case BlockFormat::Q6_K:
    return block.q6k(i);
  default:
    llvm_unreachable("has scales outside of its blocks");
  }
}

template <typename OpTy> static int64_t elementsOfBlock(OpTy op, int64_t bytes) {
  switch (op.getFormat()) {
  case BlockFormat::Q4_K:
  case BlockFormat::Q6_K:
    return 256;
  case BlockFormat::U4:
    return 2 * bytes;
  case BlockFormat::U8:
    return bytes;
  default:
    return 32;
  }
}

template <typename OpTy> static LogicalResult evaluateDequantize(OpTy op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> to = frame.cells(op->getResult(0));
  FailureOr<Cells *> codes = frame.cells(op.getCodes());
  if (failed(to) || failed(codes))
    return failure();
  ArrayRef<int64_t> shape = (*codes)->getShape();
  int64_t bytes = shape[2], ofBlock = elementsOfBlock(op, bytes);
  int64_t firstBlock = box.offsets[1] / ofBlock, endBlock = llvm::divideCeil(box.offsets[1] + box.sizes[1], ofBlock);
  auto demandRows = [&](Value operand, int64_t from, int64_t count) {
    return frame.demand(operand, Box{{box.offsets[0], from}, {box.sizes[0], count}});
  };
  if (box.size() == 0)
    return success();
  if (failed(frame.demand(op.getCodes(),
                          Box{{box.offsets[0], firstBlock, 0}, {box.sizes[0], endBlock - firstBlock, bytes}})))
    return failure();
  bool isU4 = op.getFormat() == BlockFormat::U4, inBytes = false;
  Cells *scales = nullptr, *zeros = nullptr;
  if (op.getScales()) {
    FailureOr<Cells *> found = demandRows(op.getScales(), firstBlock, endBlock - firstBlock);
    if (failed(found))
      return failure();
    scales = *found;
  }
  if (op.getZeros()) {
    inBytes = getElementTypeOrSelf(op.getZeros()).isInteger(8);
    int64_t width = cast<ShapedType>(op.getZeros().getType()).getDimSize(1);
    FailureOr<Cells *> found = demandRows(op.getZeros(), 0, width);
    if (failed(found))
      return failure();
    zeros = *found;
  }
  Type element = getElementTypeOrSelf(op->getResult(0));
  forEachPoint(box, [&](ArrayRef<int64_t> index) {
    int64_t row = index[0], block = index[1] / ofBlock, i = index[1] % ofBlock;
    BlockBytes bytesOf{&(*codes)->at({row, block, 0})};
    double value;
    if (scales) {
      double code = double(isU4 ? bytesOf.nibble(i / 2, i % 2) : bytesOf.byte(i)), zero = isU4 ? 8 : 128;
      if (zeros && inBytes)
        zero = double(isU4 ? BlockBytes{&zeros->at({row, block / 2})}.nibble(0, block % 2)
                           : BlockBytes{&zeros->at({row, block})}.byte(0));
      else if (zeros)
        zero = zeros->at({row, block}).real;
      value = frame.rounded(Float32Type::get(op.getContext()), scales->at({row, block}).real * (code - zero));
    } else {
      value = frame.rounded(Float32Type::get(op.getContext()), dequantizedElement(op.getFormat(), bytesOf, i));
    }
    (*to)->at(index).real = frame.rounded(element, value);
  });
  return success();
}

static LogicalResult shapeOfDequantized(attn::DequantizeOp, Frame &, unsigned, Shape &) {
  llvm_unreachable("a result has static extents");
}

static LogicalResult shapeOfDequantizedTile(attn::LoadDequantizedOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> tile = frame.cells(op.getTile());
  if (succeeded(tile))
    shape.assign((*tile)->getShape().begin(), (*tile)->getShape().end());
  return tile;
}

/// Rounds in f32, as the op is defined, since another precision may round to a neighbour.
static LogicalResult evaluateFakeQuantize(attn::FakeQuantizeOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> to = frame.cells(op.getResult());
  if (failed(to) || box.size() == 0)
    return to;
  constexpr int64_t block = 32;
  Box read = box;
  read.offsets.back() = box.offsets.back() / block * block;
  read.sizes.back() = llvm::alignTo(box.offsets.back() + box.sizes.back(), uint64_t(block)) - read.offsets.back();
  FailureOr<Cells *> from = frame.demand(op.getSource(), read);
  if (failed(from))
    return failure();
  forEachPoint(box, [&](ArrayRef<int64_t> index) {
    SmallVector<int64_t> at(index);
    float largest = 0, element = float((*from)->at(index).real);
    for (int64_t first = index.back() / block * block, i = first; i < first + block; ++i) {
      at.back() = i;
      float magnitude = std::abs(float((*from)->at(at).real));
      largest = std::isnan(magnitude) || std::isnan(largest) ? NAN : std::max(largest, magnitude);
    }
    float code = largest < 0x1p-100f ? 0 : std::nearbyint(element * (127 / largest));
    (*to)->at(index).real = code * (largest / 127);
  });
  return success();
}

static LogicalResult shapeOfFakeQuantized(attn::FakeQuantizeOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> source = frame.cells(op.getSource());
  if (succeeded(source))
    shape.assign((*source)->getShape().begin(), (*source)->getShape().end());
  return source;
}

void saccade::reference::addDequantizeSemantics(SemanticsTable &table) {
  table.add<attn::DequantizeOp>(shapeOfDequantized, evaluateDequantize<attn::DequantizeOp>);
  table.add<attn::FakeQuantizeOp>(shapeOfFakeQuantized, evaluateFakeQuantize);
  table.add<attn::LoadDequantizedOp>(shapeOfDequantizedTile, evaluateDequantize<attn::LoadDequantizedOp>);
}
